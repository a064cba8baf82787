/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "train/engine.h"

/* A unit's message to or from a neighbour. */
enum transfer_kind { RECEIVE, SEND, TRANSFER_KINDS };

enum transfer_state {
    IDLE,   /* not posted in this run */
    POSTED, /* starts when the computing listed before it is done */
    MOVING, /* the stage's memory is lent to MPI */
    OVER
};

struct transfer {
    enum transfer_kind kind;
    enum tp_direction direction;
    const struct tp_unit *unit;
    enum transfer_state state;
    int after;    /* computes that have to be done first */
    double began; /* to move, for a trace */
    struct tp_request request;
};

/* Requests besides the transfers'. */
enum { REQUEST_MINE, REQUEST_THEIRS, REQUEST_SUMS, REQUEST_OPS, REQUESTS };

/* A bucket of gradients on its way to the sum over replicas. */
struct exchange {
    bool moving;
    double began;
    struct tp_request request;
};

struct tp_engine {
    const struct tp_grid *grid;
    struct tp_comm *pipe;
    const struct tp_stage *stage;
    const struct tp_schedule *schedule;
    double watchdog;
    bool armed;  /* the watchdog is, after the first run */
    bool failed; /* a run did */

    struct transfer *transfers; /* [direction][kind][unit] */
    struct transfer **active;   /* posted and not over, oldest first */
    int n_active;

    int begun, computed; /* computes of this run; they finish in order */
    int oldest;          /* action to look at for the first one that is not done */

    struct exchange *exchanges; /* [stage->n_buckets] */
    int n_started, n_summed;    /* of them; they start in order */
    bool exchanging;            /* gradients are, in this run */

    double *sums; /* [stage->n_sums] */
    struct tp_request requests[REQUESTS];
    bool requested[REQUESTS]; /* under way */

    struct tp_trace *trace; /* NULL: none is written */
    double origin;          /* of its times */
    double *enqueued;       /* [computes] when each was */
    double device_free;     /* when the latest that is computed was */

    const struct transfer *awaited; /* what the list waits for, NULL when that is not a message */
    const char *awaited_text;       /* then this */
    double moved;                   /* time of the latest progress */
    struct tp_step_result result;
};

static int count_transfers(const struct tp_schedule *schedule)
{
    return 2 * TRANSFER_KINDS * schedule->n_units;
}

static struct transfer *transfer_of(const struct tp_engine *engine, enum tp_direction direction,
                                    enum transfer_kind kind, int unit)
{
    const size_t row = (size_t)direction * TRANSFER_KINDS + (size_t)kind;
    return &engine->transfers[row * (size_t)engine->schedule->n_units + (size_t)unit];
}

static int neighbour(const struct tp_engine *engine, const struct transfer *transfer)
{
    const bool up = (transfer->kind == SEND) == (transfer->direction == TP_FORWARD);
    return engine->schedule->stage + (up ? +1 : -1);
}

/* A tag says what a message is: the direction and the unit. */
enum { TAG_TIED = 0, TAG_UNITS = 1 };

static int tag_of(enum tp_direction direction, int unit)
{
    return TAG_UNITS + 2 * unit + (int)direction;
}

/* ---- Trace ---- */

enum event { FORWARD, BACKWARD, SENT, RECEIVED, SUMMED, REDUCED };

const char *const tp_engine_event_names[] = {
    [FORWARD] = "forward", [BACKWARD] = "backward", [SENT] = "send",     [RECEIVED] = "receive",
    [SUMMED] = "sum",      [REDUCED] = "reduce",    [REDUCED + 1] = NULL};

void tp_engine_trace(struct tp_engine *engine, struct tp_trace *trace, double origin)
{
    engine->trace = trace;
    engine->origin = origin;
}

/* What has just ended, of a unit or (NULL) of all of them. */
static void add_event(struct tp_engine *engine, enum event name, enum tp_track track, double began,
                      const struct tp_unit *unit, int64_t flow)
{
    const struct tp_grid *grid = engine->grid;
    struct tp_trace_event event = {.pid = tp_grid_rank(grid, grid->d, grid->k, grid->o),
                                   .track = track,
                                   .name = tp_engine_event_names[name],
                                   .begin = began - engine->origin,
                                   .end = tp_clock_now() - engine->origin,
                                   .group = -1,
                                   .start = -1,
                                   .length = -1,
                                   .flow = flow};
    if (unit != NULL) {
        event.group = unit->slice.group;
        event.start = unit->slice.start;
        event.length = unit->slice.length;
    }
    tp_trace_add(engine->trace, &event);
}

/* The device does one thing after the other: this one since it was enqueued, or the one before was
 * computed. */
static void trace_compute(struct tp_engine *engine, const struct tp_action *action)
{
    const double enqueued = engine->enqueued[engine->computed];
    const double began = enqueued > engine->device_free ? enqueued : engine->device_free;

    add_event(engine, action->direction == TP_FORWARD ? FORWARD : BACKWARD, TP_TRACK_COMPUTE, began,
              &engine->schedule->units[action->unit], -1);
    engine->device_free = tp_clock_now();
}

/* The two ends of a message have one number: of its pipe, the boundary, the direction, the unit. */
static void trace_transfer(struct tp_engine *engine, const struct transfer *transfer)
{
    const struct tp_grid *grid = engine->grid;
    const int peer = neighbour(engine, transfer), mine = engine->schedule->stage;
    const int64_t boundary = peer < mine ? peer : mine,
                  pipe = (int64_t)grid->d * grid->op + grid->o;
    const int64_t link = 2 * (pipe * grid->pipe_size + boundary) + (int64_t)transfer->direction;
    const bool sent = transfer->kind == SEND;

    add_event(engine, sent ? SENT : RECEIVED, sent ? TP_TRACK_SEND : TP_TRACK_RECEIVE,
              transfer->began, transfer->unit,
              link * engine->schedule->n_units + transfer->unit->index);
}

/* ---- Progress ---- */

static enum tp_status start(struct tp_engine *engine, struct transfer *transfer)
{
    const struct tp_stage *stage = engine->stage;
    const enum tp_direction direction = transfer->direction;
    const int peer = neighbour(engine, transfer), tag = tag_of(direction, transfer->unit->index);
    size_t count;
    if (transfer->kind == RECEIVE) {
        float *data;
        TP_TRY(stage->message_in(stage->self, direction, transfer->unit, &data, &count));
        TP_TRY(tp_comm_irecv(engine->pipe, data, count, peer, tag, &transfer->request));
    } else {
        const float *data;
        TP_TRY(stage->message_out(stage->self, direction, transfer->unit, &data, &count));
        TP_TRY(tp_comm_isend(engine->pipe, data, count, peer, tag, &transfer->request));
    }
    transfer->state = MOVING;
    transfer->began = tp_clock_now();
    return TP_OK;
}

static enum tp_status finish(struct tp_engine *engine, struct transfer *transfer)
{
    const struct tp_stage *stage = engine->stage;
    transfer->state = OVER;
    if (engine->trace != NULL)
        trace_transfer(engine, transfer);
    return (transfer->kind == RECEIVE ? stage->message_in_done : stage->message_out_done)(
        stage->self, transfer->direction, transfer->unit);
}

/* Takes a transfer as far as it gets without waiting. */
static enum tp_status advance(struct tp_engine *engine, struct transfer *transfer, bool *moved)
{
    if (transfer->state == POSTED && engine->computed >= transfer->after) {
        TP_TRY(start(engine, transfer));
        *moved = true;
    }
    if (transfer->state == MOVING) {
        bool done = false;
        TP_TRY(tp_comm_test(&transfer->request, &done));
        if (done) {
            TP_TRY(finish(engine, transfer));
            *moved = true;
        }
    }
    return TP_OK;
}

static const struct tp_action *oldest_compute(struct tp_engine *engine)
{
    while (engine->schedule->actions[engine->oldest].kind != TP_ACTION_COMPUTE)
        engine->oldest++;
    return &engine->schedule->actions[engine->oldest];
}

static enum tp_status poll_computes(struct tp_engine *engine, bool *moved)
{
    const struct tp_stage *stage = engine->stage;
    while (engine->computed < engine->begun) {
        const struct tp_action *action = oldest_compute(engine);
        bool done = false;
        TP_TRY(stage->poll(stage->self, action->direction, &engine->schedule->units[action->unit],
                           &done));
        if (!done)
            return TP_OK;
        if (engine->trace != NULL)
            trace_compute(engine, action);
        engine->oldest++;
        engine->computed++;
        *moved = true;
    }
    return TP_OK;
}

/* Starts the sums over replicas of buckets that are there, in order, and ends those that are done.
 */
static enum tp_status exchange_buckets(struct tp_engine *engine, bool *moved)
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
            add_event(engine, SUMMED, TP_TRACK_SEND, exchange->began, NULL, -1);
        engine->n_summed++;
        TP_TRY(stage->bucket_done(stage->self, i));
        *moved = true;
    }
    return TP_OK;
}

/* Looks once at everything that is under way. */
static enum tp_status progress(struct tp_engine *engine, bool *moved)
{
    *moved = false;
    TP_TRY(poll_computes(engine, moved));
    if (engine->exchanging)
        TP_TRY(exchange_buckets(engine, moved));
    int kept = 0;
    for (int i = 0; i < engine->n_active; i++) {
        struct transfer *transfer = engine->active[i];
        TP_TRY(advance(engine, transfer, moved));
        if (transfer->state != OVER)
            engine->active[kept++] = transfer;
    }
    engine->n_active = kept;
    return TP_OK;
}

/* ---- Waiting ---- */

/* What a unit brings in a direction, for people. */
static const char *name_unit(enum tp_direction direction, const struct tp_unit *unit, char *text,
                             size_t size)
{
    snprintf(text, size, "%sslice %d of group %d",
             direction == TP_FORWARD ? "" : "the gradient of ", unit->number, unit->slice.group);
    return text;
}

/* Says what this rank waits for. A device that is not done comes first: the rest waits for it, or
 * would have moved. */
static enum tp_status fail_stuck(struct tp_engine *engine)
{
    const int rank = tp_comm_job_rank(engine->pipe, engine->schedule->stage);
    const struct transfer *transfer = engine->awaited;
    char unit[64], what[128];
    if (transfer == NULL && engine->awaited_text == NULL && engine->n_active > 0)
        transfer = engine->active[0];

    if (engine->computed < engine->begun) {
        const struct tp_action *action = oldest_compute(engine);
        name_unit(action->direction, &engine->schedule->units[action->unit], unit, sizeof unit);
        snprintf(what, sizeof what, "its device to compute %s", unit);
    } else if (transfer != NULL) {
        const int peer = tp_comm_job_rank(engine->pipe, neighbour(engine, transfer));
        name_unit(transfer->direction, transfer->unit, unit, sizeof unit);
        if (transfer->kind == RECEIVE)
            snprintf(what, sizeof what, "%s from rank %d", unit, peer);
        else
            snprintf(what, sizeof what, "rank %d to take %s", peer, unit);
    } else {
        snprintf(what, sizeof what, "%s", engine->awaited_text);
    }
    return tp_fail(TP_ERR_STUCK, "rank %d waits for %s, and nothing has moved for %g s", rank, what,
                   engine->watchdog);
}

static void begin_wait(struct tp_engine *engine, const struct transfer *awaited, const char *text)
{
    engine->awaited = awaited;
    engine->awaited_text = text;
    engine->moved = tp_clock_now();
}

/* A busy device ends the rest when it is done, and until then a message that comes can wait. */
#define BUSY_PAUSE_MAX 4e-3

static void rest(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    const bool busy = engine->computed < engine->begun;
    const double most = busy ? BUSY_PAUSE_MAX : TP_COMM_PAUSE_MAX;
    stage->rest(stage->self, tp_comm_pause_seconds(engine->moved, most));
}

/* One turn of a waiting loop. */
static enum tp_status turn(struct tp_engine *engine)
{
    bool moved = false;
    TP_TRY(progress(engine, &moved));
    if (moved) {
        engine->moved = tp_clock_now();
        return TP_OK;
    }
    if (engine->armed && engine->watchdog > 0 && tp_clock_now() - engine->moved > engine->watchdog)
        return fail_stuck(engine);
    rest(engine);
    return TP_OK;
}

static enum tp_status wait_transfer(struct tp_engine *engine, const struct transfer *transfer)
{
    begin_wait(engine, transfer, NULL);
    while (transfer->state != OVER)
        TP_TRY(turn(engine));
    return TP_OK;
}

/* Until nothing is under way. */
static enum tp_status wait_all(struct tp_engine *engine)
{
    begin_wait(engine, NULL, NULL);
    while (engine->computed < engine->begun || engine->n_active > 0)
        TP_TRY(turn(engine));
    return TP_OK;
}

static enum tp_status wait_request(struct tp_engine *engine, int index, const char *text)
{
    begin_wait(engine, NULL, text);
    for (;;) {
        bool done = false;
        TP_TRY(tp_comm_test(&engine->requests[index], &done));
        if (done) {
            engine->requested[index] = false;
            return TP_OK;
        }
        TP_TRY(turn(engine));
    }
}

/* ---- The seam for op ranks ---- */

static enum tp_status reduce_ops(void *self, enum tp_reduction reduction, float *data, size_t count)
{
    struct tp_engine *engine = self;
    TP_TRY(tp_comm_iallreduce_floats(engine->grid->ops, reduction == TP_REDUCE_MAX, data, count,
                                     &engine->requests[REQUEST_OPS]));
    engine->requested[REQUEST_OPS] = true;
    return wait_request(engine, REQUEST_OPS,
                        "the ranks that share its stage to hand in their sums");
}

static enum tp_status idle(void *self, double since)
{
    struct tp_engine *engine = self;
    if (engine->moved < since)
        begin_wait(engine, NULL, "its device to compute a part of a layer");
    return turn(engine);
}

void tp_engine_reduce(struct tp_engine *engine, struct tp_reduce *reduce)
{
    *reduce = (struct tp_reduce){.self = engine, .all = reduce_ops, .idle = idle};
}

/* ---- What the stages do together ---- */

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
        TP_TRY(
            wait_request(engine, REQUEST_THEIRS, "the other part of the tied matrix's gradient"));
        TP_TRY(wait_request(engine, REQUEST_MINE, "its part of the tied gradient to be taken"));
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
    return wait_request(engine, REQUEST_SUMS, text);
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
    begin_wait(engine, NULL, "the other replicas to hand in their gradients");
    while (engine->exchanging && engine->n_summed < engine->stage->n_buckets)
        TP_TRY(turn(engine));
    return TP_OK;
}

static enum tp_status reduce(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    const int n_squares = stage->n_sums - 1;
    TP_TRY(wait_all(engine));
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
        add_event(engine, REDUCED, TP_TRACK_COMPUTE, began, NULL, -1);
    return TP_OK;
}

/* Completes weights of which each replica has updated its share. */
static enum tp_status gather_weights(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    for (int i = 0; i < stage->n_buckets; i++) {
        float *data = NULL;
        size_t count;
        begin_wait(engine, NULL, "its device to update the weights");
        for (;;) {
            TP_TRY(stage->bucket(stage->self, TP_WEIGHT, i, &data, &count));
            if (data != NULL)
                break;
            TP_TRY(turn(engine));
        }
        TP_TRY(tp_comm_allgather_shares(engine->grid->replicas, data, count));
        TP_TRY(stage->bucket_done(stage->self, i));
    }
    return TP_OK;
}

static enum tp_status update(struct tp_engine *engine, const struct tp_adamw *adamw, double clip)
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
static enum tp_status sum_loss(struct tp_engine *engine)
{
    const struct tp_stage *stage = engine->stage;
    TP_TRY(wait_all(engine));
    TP_TRY(stage->loss(stage->self, engine->sums));
    TP_TRY(sum_over_ranks(engine, 1));
    const double loss = engine->sums[0];
    engine->result = (struct tp_step_result){.loss = loss, .finite = isfinite(loss)};
    return TP_OK;
}

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
        post(engine, transfer_of(engine, action->direction, RECEIVE, action->unit));
        return TP_OK;
    case TP_ACTION_WAIT_RECEIVE:
        return wait_transfer(engine, transfer_of(engine, action->direction, RECEIVE, action->unit));
    case TP_ACTION_COMPUTE:
        return compute(engine, action);
    case TP_ACTION_POST_SEND:
        post(engine, transfer_of(engine, action->direction, SEND, action->unit));
        return TP_OK;
    case TP_ACTION_WAIT_SEND:
        return wait_transfer(engine, transfer_of(engine, action->direction, SEND, action->unit));
    case TP_ACTION_REDUCE:
        return reduce(engine);
    case TP_ACTION_UPDATE:
        return update(engine, adamw, clip);
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
    for (int i = 0; i < count_transfers(engine->schedule); i++)
        engine->transfers[i].state = IDLE;
    engine->begun = engine->computed = engine->oldest = 0;
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
        TP_TRY(progress(engine, &moved));
    }
    return trains(schedule) ? TP_OK : sum_loss(engine);
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

    const size_t n_transfers = (size_t)count_transfers(schedule);
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
                *transfer_of(engine, direction, kind, unit) = (struct transfer){
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
    for (int i = 0; i < count_transfers(engine->schedule); i++)
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
