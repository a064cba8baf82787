/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "base/clock.h"
#include "engine_parts.h"

int tp_engine_count_transfers(const struct tp_schedule *schedule)
{
    return 2 * TRANSFER_KINDS * schedule->n_units;
}

struct transfer *tp_engine_transfer(const struct tp_engine *engine, enum tp_direction direction,
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

static int tag_of(enum tp_direction direction, int unit)
{
    return TAG_UNITS + 2 * unit + (int)direction;
}

/* ---- Trace ---- */

const char *const tp_engine_event_names[] = {
    [FORWARD] = "forward", [BACKWARD] = "backward",
    [SENT] = "send",       [RECEIVED] = "receive",
    [SUMMED] = "sum",      [REDUCED] = "reduce",
    [UPDATED] = "update",  [GRADIENTS] = "weight gradients",
    [GRADIENTS + 1] = NULL};

void tp_engine_trace(struct tp_engine *engine, struct tp_trace *trace, double origin)
{
    engine->trace = trace;
    engine->origin = origin;
}

/* What has just ended, of a unit or (NULL) of all of them. */
void tp_engine_add_event(struct tp_engine *engine, enum event name, enum tp_track track,
                         double began, const struct tp_unit *unit, int64_t flow)
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

void tp_engine_trace_update(struct tp_engine *engine, double began)
{
    tp_engine_add_event(engine, UPDATED, TP_TRACK_COMPUTE, began, NULL, -1);
}

/* The device does one thing after the other: this one since it was enqueued, or the one before was
 * computed. */
static void trace_compute(struct tp_engine *engine, const struct tp_action *action)
{
    const double enqueued = engine->enqueued[engine->computed];
    const double began = enqueued > engine->device_free ? enqueued : engine->device_free;

    if (engine->trace == NULL)
        return;
    tp_engine_add_event(engine, action->direction == TP_FORWARD ? FORWARD : BACKWARD,
                        TP_TRACK_COMPUTE, began, &engine->schedule->units[action->unit], -1);
    engine->device_free = tp_clock_now();
}

static void trace_gradients(struct tp_engine *engine)
{
    if (engine->trace == NULL)
        return;
    tp_engine_add_event(engine, GRADIENTS, TP_TRACK_COMPUTE, engine->device_free, engine->delayed,
                        -1);
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

    tp_engine_add_event(engine, sent ? SENT : RECEIVED, sent ? TP_TRACK_SEND : TP_TRACK_RECEIVE,
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

/* Is what comes before a transfer computed? Delayed weight gradients read inputs of their group, in
 * whose place another one may come. */
static bool may_start(const struct tp_engine *engine, const struct transfer *transfer)
{
    const bool is_input = transfer->kind == RECEIVE && transfer->direction == TP_FORWARD;

    return engine->computed >= transfer->after && !(is_input && engine->delayed != NULL);
}

/* Takes a transfer as far as it gets without waiting. */
static enum tp_status advance(struct tp_engine *engine, struct transfer *transfer, bool *moved)
{
    if (transfer->state == POSTED && may_start(engine, transfer)) {
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

/* Is what the device was given computed? */
static bool is_idle(const struct tp_engine *engine)
{
    return engine->computed == engine->begun && engine->delayed == NULL;
}

/* Weight gradients come behind their group's last backward, before what was begun after it. */
static void end_gradients(struct tp_engine *engine)
{
    trace_gradients(engine);
    engine->delayed = NULL;
}

static enum tp_status poll_gradients(struct tp_engine *engine, bool *moved)
{
    const struct tp_stage *stage = engine->stage;
    bool done = false;

    if (engine->delayed == NULL)
        return TP_OK;
    TP_TRY(stage->poll_gradients(stage->self, engine->delayed, &done));
    if (done)
        end_gradients(engine);
    *moved = *moved || done;
    return TP_OK;
}

/* The oldest unit that is not computed. */
static enum tp_status poll_unit(struct tp_engine *engine, bool *done)
{
    const struct tp_stage *stage = engine->stage;
    const struct tp_action *action = oldest_compute(engine);
    const struct tp_unit *unit = &engine->schedule->units[action->unit];

    TP_TRY(stage->poll(stage->self, action->direction, unit, done));
    if (!*done)
        return TP_OK;
    if (engine->delayed != NULL)
        end_gradients(engine);
    trace_compute(engine, action);
    if (engine->schedule->delay_wgrad && action->direction == TP_BACKWARD && unit->number == 0)
        engine->delayed = unit;
    engine->oldest++;
    engine->computed++;
    return TP_OK;
}

static enum tp_status poll_computes(struct tp_engine *engine, bool *moved)
{
    TP_TRY(poll_gradients(engine, moved));
    while (engine->computed < engine->begun) {
        bool done = false;
        TP_TRY(poll_unit(engine, &done));
        if (!done)
            return TP_OK;
        *moved = true;
    }
    return TP_OK;
}

/* Looks once at everything that is under way. */
enum tp_status tp_engine_progress(struct tp_engine *engine, bool *moved)
{
    *moved = false;
    TP_TRY(poll_computes(engine, moved));
    if (engine->exchanging)
        TP_TRY(tp_engine_exchange_buckets(engine, moved));
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

    if (engine->delayed != NULL) {
        snprintf(what, sizeof what, "its device to compute the weight gradients of group %d",
                 engine->delayed->slice.group);
    } else if (engine->computed < engine->begun) {
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

void tp_engine_begin_wait(struct tp_engine *engine, const struct transfer *awaited,
                          const char *text)
{
    engine->awaited = awaited;
    engine->awaited_text = text;
    engine->moved = tp_clock_now();
}

/* One turn of a waiting loop. */
enum tp_status tp_engine_turn(struct tp_engine *engine)
{
    bool moved = false;
    TP_TRY(tp_engine_progress(engine, &moved));
    if (moved) {
        engine->moved = tp_clock_now();
        return TP_OK;
    }
    if (engine->armed && engine->watchdog > 0 && tp_clock_now() - engine->moved > engine->watchdog)
        return fail_stuck(engine);
    tp_comm_pause(engine->moved, !is_idle(engine));
    return TP_OK;
}

enum tp_status tp_engine_wait_transfer(struct tp_engine *engine, const struct transfer *transfer)
{
    tp_engine_begin_wait(engine, transfer, NULL);
    while (transfer->state != OVER)
        TP_TRY(tp_engine_turn(engine));
    return TP_OK;
}

/* Until nothing is under way. */
enum tp_status tp_engine_wait_all(struct tp_engine *engine)
{
    tp_engine_begin_wait(engine, NULL, NULL);
    while (!is_idle(engine) || engine->n_active > 0)
        TP_TRY(tp_engine_turn(engine));
    return TP_OK;
}

enum tp_status tp_engine_wait_request(struct tp_engine *engine, int index, const char *text)
{
    tp_engine_begin_wait(engine, NULL, text);
    for (;;) {
        bool done = false;
        TP_TRY(tp_comm_test(&engine->requests[index], &done));
        if (done) {
            engine->requested[index] = false;
            return TP_OK;
        }
        TP_TRY(tp_engine_turn(engine));
    }
}
