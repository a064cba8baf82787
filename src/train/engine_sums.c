/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "base/clock.h"
#include "engine_parts.h"

/* ---- Buckets of gradients ---- */

/* Starts the sums over replicas of buckets that are there, in order, and ends those that are done.
 */
enum tp_status tp_engine_exchange_buckets(struct tp_engine *engine, bool *moved)
{
    const struct tp_stage *stage = engine->stage;
    while (engine->n_started < stage->n_buckets) {
        struct exchange *next = &engine->exchanges[engine->n_started];
        float *data;
        size_t count;
        TP_TRY(stage->bucket(stage->self, TP_GRADIENT, engine->n_started, &data, &count));
        if (data == NULL)
            break;
        TP_TRY(
            tp_comm_iallreduce_floats(engine->grid->replicas, false, data, count, &next->request));
        next->moving = true;
        next->began = tp_clock_now();
        engine->n_started++;
        *moved = true;
    }
    for (int i = 0; i < engine->n_started; i++) {
        struct exchange *exchange = &engine->exchanges[i];
        bool done = false;
        if (exchange->moving)
            TP_TRY(tp_comm_test(&exchange->request, &done));
        if (!done)
            continue;
        exchange->moving = false;
        if (engine->trace != NULL)
            tp_engine_add_event(engine, SUMMED, TP_TRACK_SEND, exchange->began, NULL, -1);
        engine->n_summed++;
        TP_TRY(stage->bucket_done(stage->self, i));
        *moved = true;
    }
    return TP_OK;
}

/* ---- The seam for op ranks ---- */

static enum tp_status reduce_ops(void *self, enum tp_reduction reduction, float *data, size_t count)
{
    struct tp_engine *engine = self;
    TP_TRY(tp_comm_iallreduce_floats(engine->grid->ops, reduction == TP_REDUCE_MAX, data, count,
                                     &engine->requests[REQUEST_OPS]));
    engine->requested[REQUEST_OPS] = true;
    return tp_engine_wait_request(engine, REQUEST_OPS,
                                  "the ranks that share its stage to hand in their sums");
}

static enum tp_status idle(void *self, double since)
{
    struct tp_engine *engine = self;
    if (engine->moved < since)
        tp_engine_begin_wait(engine, NULL, "its device to compute a part of a layer");
    return tp_engine_turn(engine);
}

void tp_engine_reduce(struct tp_engine *engine, struct tp_reduce *reduce)
{
    *reduce = (struct tp_reduce){.self = engine, .all = reduce_ops, .idle = idle};
}

/* ---- What stages, op ranks and replicas do together ---- */

/* Swaps the first and the last stage's parts of the tied matrix's gradient. */
static enum tp_status exchange_tied(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    const int peer = engine->schedule->stage == 0 ? engine->schedule->n_stages - 1 : 0;
    struct tp_request *requests = engine->requests;
    const float *mine;
    float *theirs;
    size_t count;
    TP_TRY(stage->tied(stage->self, &mine, &theirs, &count));
    if (count > 0) {
        TP_TRY(
            tp_comm_irecv(engine->pipe, theirs, count, peer, TAG_TIED, &requests[REQUEST_THEIRS]));
        engine->requested[REQUEST_THEIRS] = true;
        TP_TRY(tp_comm_isend(engine->pipe, mine, count, peer, TAG_TIED, &requests[REQUEST_MINE]));
        engine->requested[REQUEST_MINE] = true;
        TP_TRY(tp_engine_wait_request(engine, REQUEST_THEIRS,
                                      "the other part of the tied matrix's gradient"));
        TP_TRY(tp_engine_wait_request(engine, REQUEST_MINE,
                                      "its part of the tied gradient to be taken"));
    }
    return stage->tied_done(stage->self);
}

static enum tp_status sum_over(struct tp_engine *engine, struct tp_comm *ranks, double *sums,
                               int count, const char *text)
{
    if (tp_comm_size(ranks) == 1)
        return TP_OK;
    TP_TRY(tp_comm_iallreduce_sum(ranks, sums, count, &engine->requests[REQUEST_SUMS]));
    engine->requested[REQUEST_SUMS] = true;
    return tp_engine_wait_request(engine, REQUEST_SUMS, text);
}

/* Op ranks first, in an order that does not depend on K; then each number is zero on all stages but
 * one, so that the sum is exact. Gradients were summed over replicas before, the loss, the last
 * number, was not. */
static enum tp_status sum_over_ranks(struct tp_engine *engine, int count)
{
    const struct tp_grid *grid = engine->grid;
    TP_TRY(sum_over(engine, grid->ops, engine->sums, count,
                    "the ranks that share its stage to hand in their loss and norm"));
    TP_TRY(sum_over(engine, grid->pipe, engine->sums, count,
                    "all stages to hand in their loss and norm"));
    return sum_over(engine, grid->replicas, &engine->sums[count - 1], 1,
                    "all replicas to hand in their loss");
}

/* Until all gradients are summed over the replicas. */
static enum tp_status wait_exchange(struct tp_engine *engine)
{
    tp_engine_begin_wait(engine, NULL, "the other replicas to hand in their gradients");
    while (engine->exchanging && engine->n_summed < engine->stage->n_buckets)
        TP_TRY(tp_engine_turn(engine));
    return TP_OK;
}

enum tp_status tp_engine_sum(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    const int n_squares = stage->n_sums - 1;
    TP_TRY(tp_engine_wait_all(engine));
    const double began = tp_clock_now();
    TP_TRY(exchange_tied(engine));
    TP_TRY(wait_exchange(engine));
    TP_TRY(stage->sums(stage->self, engine->sums));
    TP_TRY(sum_over_ranks(engine, stage->n_sums));

    double squares = 0;
    for (int i = 0; i < n_squares; i++)
        squares += engine->sums[i];
    const double norm = sqrt(squares), loss = engine->sums[n_squares];
    engine->result = (struct tp_step_result){
        .loss = loss, .norm = norm, .finite = isfinite(loss) && isfinite(norm)};
    if (engine->trace != NULL)
        tp_engine_add_event(engine, REDUCED, TP_TRACK_COMPUTE, began, NULL, -1);
    return TP_OK;
}

/* Completes weights of which each replica has updated its share. */
static enum tp_status gather_weights(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    for (int i = 0; i < stage->n_buckets; i++) {
        float *data = NULL;
        size_t count;
        tp_engine_begin_wait(engine, NULL, "its device to update the weights");
        for (;;) {
            TP_TRY(stage->bucket(stage->self, TP_WEIGHT, i, &data, &count));
            if (data != NULL)
                break;
            TP_TRY(tp_engine_turn(engine));
        }
        TP_TRY(tp_comm_allgather_shares(engine->grid->replicas, data, count));
        TP_TRY(stage->bucket_done(stage->self, i));
    }
    return TP_OK;
}

enum tp_status tp_engine_update(struct tp_engine *engine, const struct tp_adamw *adamw, double clip)
{
    const struct tp_stage *stage = engine->stage;
    if (!engine->result.finite || adamw == NULL)
        return TP_OK;
    double scale = clip / (engine->result.norm + 1e-6);
    if (clip == 0 || scale > 1)
        scale = 1;
    TP_TRY(stage->update(stage->self, adamw, scale));
    return stage->sharded ? gather_weights(engine) : TP_OK;
}

/* The loss of a list without reduce. */
enum tp_status tp_engine_sum_loss(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    TP_TRY(tp_engine_wait_all(engine));
    TP_TRY(stage->loss(stage->self, engine->sums));
    TP_TRY(sum_over_ranks(engine, 1));
    const double loss = engine->sums[0];
    engine->result = (struct tp_step_result){.loss = loss, .finite = isfinite(loss)};
    return TP_OK;
}
