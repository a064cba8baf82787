/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/clock.h"
#include "engine_parts.h"

/* ---- The interpreter ---- */

static void post(struct tp_engine *engine, struct transfer *transfer)
{
    transfer->state = POSTED;
    transfer->after = engine->begun;
    engine->active[engine->n_active++] = transfer;
}

static enum tp_status compute(struct tp_engine *engine, const struct tp_action *action)
{
    const struct tp_stage *stage = engine->stage;
    engine->enqueued[engine->begun] = tp_clock_now();
    TP_TRY(stage->begin(stage->self, action->direction, &engine->schedule->units[action->unit]));
    engine->begun++;
    return TP_OK;
}

static enum tp_status act(struct tp_engine *engine, const struct tp_action *action,
                          const struct tp_adamw *adamw, double clip)
{
    switch (action->kind) {
    case TP_ACTION_POST_RECEIVE:
        post(engine, tp_engine_transfer(engine, action->direction, RECEIVE, action->unit));
        return TP_OK;
    case TP_ACTION_WAIT_RECEIVE:
        return tp_engine_wait_transfer(
            engine, tp_engine_transfer(engine, action->direction, RECEIVE, action->unit));
    case TP_ACTION_COMPUTE:
        return compute(engine, action);
    case TP_ACTION_POST_SEND:
        post(engine, tp_engine_transfer(engine, action->direction, SEND, action->unit));
        return TP_OK;
    case TP_ACTION_WAIT_SEND:
        return tp_engine_wait_transfer(
            engine, tp_engine_transfer(engine, action->direction, SEND, action->unit));
    case TP_ACTION_REDUCE:
        return tp_engine_sum(engine);
    case TP_ACTION_UPDATE:
        return tp_engine_update(engine, adamw, clip);
    }
    TP_ASSERT(!"an action");
    return TP_OK;
}

/* Does the list end with a reduce and an update? */
static bool trains(const struct tp_schedule *schedule)
{
    return schedule->actions[schedule->n_actions - 1].kind == TP_ACTION_UPDATE;
}

static void rewind_list(struct tp_engine *engine)
{
    for (int i = 0; i < tp_engine_count_transfers(engine->schedule); i++)
        engine->transfers[i].state = IDLE;
    engine->begun = engine->computed = engine->oldest = 0;
    engine->delayed = NULL;
    engine->n_started = engine->n_summed = 0;
    engine->exchanging = engine->grid->data > 1 && trains(engine->schedule);
}

static enum tp_status run(struct tp_engine *engine, const struct tp_adamw *adamw, double clip)
{
    const struct tp_schedule *schedule = engine->schedule;
    rewind_list(engine);
    for (int i = 0; i < schedule->n_actions; i++) {
        bool moved;
        TP_TRY(act(engine, &schedule->actions[i], adamw, clip));
        TP_TRY(tp_engine_progress(engine, &moved));
    }
    return trains(schedule) ? TP_OK : tp_engine_sum_loss(engine);
}

enum tp_status tp_engine_run(struct tp_engine *engine, const struct tp_adamw *adamw, double clip,
                             struct tp_step_result *result)
{
    TP_ASSERT(!engine->failed);
    enum tp_status status = run(engine, adamw, clip);
    if (status != TP_OK) {
        engine->failed = true;
        return status;
    }
    engine->armed = true;
    *result = engine->result;
    return TP_OK;
}

/* ---- Life ---- */

enum tp_status tp_engine_set_schedule(struct tp_engine *engine, const struct tp_schedule *schedule)
{
    const int n_units = schedule->n_units;
    if (n_units - 1 > (tp_comm_max_tag() - TAG_UNITS - 1) / 2)
        return tp_fail(TP_ERR_INPUT, "%d slices in one step: MPI has only %d tags for them",
                       n_units, tp_comm_max_tag());

    const size_t n_transfers = (size_t)tp_engine_count_transfers(schedule);
    struct transfer *transfers = calloc(n_transfers, sizeof *transfers);
    struct transfer **active = calloc(n_transfers, sizeof *active);
    double *enqueued = calloc(2 * (size_t)n_units, sizeof *enqueued);
    if (transfers == NULL || active == NULL || enqueued == NULL) {
        free(transfers);
        free(active);
        free(enqueued);
        return tp_fail(TP_ERR_MEMORY, "no memory for the messages of %d slices", n_units);
    }
    free(engine->transfers);
    free(engine->active);
    free(engine->enqueued);
    engine->enqueued = enqueued;
    engine->transfers = transfers;
    engine->active = active;
    engine->schedule = schedule;
    for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
        for (int kind = 0; kind < TRANSFER_KINDS; kind++)
            for (int unit = 0; unit < n_units; unit++)
                *tp_engine_transfer(engine, direction, kind, unit) = (struct transfer){
                    .kind = kind, .direction = direction, .unit = &schedule->units[unit]};
    return TP_OK;
}

enum tp_status tp_engine_new(const struct tp_grid *grid, const struct tp_stage *stage,
                             const struct tp_schedule *schedule, double watchdog,
                             struct tp_engine **out)
{
    TP_ASSERT(grid->pipe_size == schedule->n_stages && grid->k == schedule->stage);
    struct tp_engine *engine = calloc(1, sizeof *engine);
    double *sums = calloc((size_t)stage->n_sums, sizeof *sums);
    struct exchange *exchanges = calloc((size_t)stage->n_buckets + 1, sizeof *exchanges);
    enum tp_status status;
    if (engine == NULL || sums == NULL || exchanges == NULL) {
        status = tp_fail(TP_ERR_MEMORY, "no memory for the engine");
        goto fail;
    }
    engine->grid = grid;
    engine->pipe = grid->pipe;
    engine->exchanges = exchanges;
    engine->stage = stage;
    engine->watchdog = watchdog;
    engine->sums = sums;
    if ((status = tp_engine_set_schedule(engine, schedule)) != TP_OK)
        goto fail;
    *out = engine;
    return TP_OK;
fail:
    free(exchanges);
    free(sums);
    free(engine);
    return status;
}

void tp_engine_free(struct tp_engine *engine)
{
    if (engine == NULL)
        return;
    for (int i = 0; i < tp_engine_count_transfers(engine->schedule); i++)
        if (engine->transfers[i].state == MOVING)
            tp_comm_cancel(&engine->transfers[i].request);
    for (int i = REQUEST_MINE; i <= REQUEST_THEIRS; i++)
        if (engine->requested[i])
            tp_comm_cancel(&engine->requests[i]);
    if (!engine
             ->requested[REQUEST_SUMS]) /* MPI cannot withdraw an all-reduce, and may write there */
        free(engine->sums);
    free(engine->exchanges);
    free(engine->enqueued);
    free(engine->transfers);
    free(engine->active);
    free(engine);
}
