/* SPDX-License-Identifier: Apache-2.0 */
/* What is computed, and in which order, is fixed for each stage, and so is the order of messages on
 * each link. Every time is then a maximum of earlier ones plus a duration, and does not depend on
 * the order in which the stages are looked at: each goes on until a message has not been sent yet.
 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "model/sizes.h"
#include "plan/schedule.h"
#include "plan/simulate.h"

struct stage {
    struct tp_turns turns;
    enum tp_direction direction; /* of the next turn */
    int place;                   /* of it; -1: there is none */
    int done[2];                 /* turns, per direction */
    double free;                 /* when the stage is */
    double link_free[2];         /* when the link of messages that it sends is, per direction */
    double *seconds[2];          /* [n_units] what a unit takes, per direction */
    double *arrival[2];          /* [n_units] when messages are there, by place */
    int units;                   /* alive */
    size_t tokens;               /* of those */
};

struct replay {
    const struct tp_plan *plan;
    const struct tp_cost *cost;
    struct tp_trace *trace;
    int n_units;
    struct tp_unit *units;
    struct stage *stages;
    double *times;         /* the memory for all stages' seconds and arrivals */
    double *layer_seconds; /* [devices][2][n_units] of one layer */
    struct tp_simulation *result;
};

/* ---- Durations ---- */

/* place: where the time comes from. */
static enum tp_status fail_time(const char *place, const struct tp_unit *unit, const char *what,
                                double seconds)
{
    return tp_fail(TP_ERR_INPUT,
                   "%s%s of %d tokens after %d of %d sequences takes %g seconds by the profile, "
                   "expected 0 or more",
                   place, what, unit->slice.length, unit->slice.start, unit->sequences, seconds);
}

static enum tp_status check_groups(const struct replay *replay)
{
    const struct tp_cost *cost = replay->cost;

    for (int g = 0; g < replay->plan->n_groups; g++)
        for (int d = 0; d < cost->n_devices; d++)
            if (!cost->has_group(cost->self, d, replay->plan->groups[g].sequences))
                return tp_fail(TP_ERR_INPUT,
                               "group %d: there are no times for %d sequences, expected a size "
                               "of groups that was measured",
                               g, replay->plan->groups[g].sequences);
    return TP_OK;
}

static double *layer_seconds(const struct replay *replay, int device, enum tp_direction direction)
{
    return replay->layer_seconds + ((size_t)device * 2 + direction) * (size_t)replay->n_units;
}

/* What one layer takes of every unit on every device. */
static void find_layer_seconds(const struct replay *replay)
{
    const struct tp_cost *cost = replay->cost;

    for (int d = 0; d < cost->n_devices; d++)
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
            for (int i = 0; i < replay->n_units; i++) {
                const struct tp_unit *unit = &replay->units[i];
                layer_seconds(replay, d, direction)[i] =
                    cost->layer(cost->self, d, direction, unit->sequences, unit->slice.length,
                                unit->slice.start);
            }
}

/* What a unit takes on a stage whose ranks all have that device. */
static double unit_seconds(const struct replay *replay, int stage, int device,
                           enum tp_direction direction, int i)
{
    const struct tp_cost *cost = replay->cost;
    const struct tp_plan *plan = replay->plan;
    const struct tp_unit *unit = &replay->units[i];
    const int n_layer = plan->stages[stage].n_layer;
    double seconds = n_layer * layer_seconds(replay, device, direction)[i];

    if (direction == TP_BACKWARD && plan->recompute)
        seconds += n_layer * layer_seconds(replay, device, TP_FORWARD)[i];
    if (stage == 0)
        seconds += cost->embed(cost->self, device, direction, unit->sequences, unit->slice.length);
    if (stage == plan->n_stages - 1)
        seconds += cost->head(cost->self, device, direction, unit->sequences, unit->slice.length);
    return seconds;
}

/* Says which part of a unit's time makes it wrong. */
static enum tp_status fail_part(const struct replay *replay, int stage, int device,
                                enum tp_direction direction, int i, double seconds)
{
    static const char *const names[] = {"the forward", "the backward"};
    static const char *const embed[] = {"embed.forward", "embed.backward"};
    static const char *const head[] = {"head.forward", "head.backward"};
    const struct tp_cost *cost = replay->cost;
    const struct tp_unit *unit = &replay->units[i];
    const int b = unit->sequences, s = unit->slice.length, c = unit->slice.start;
    const bool first = stage == 0, last = stage == replay->plan->n_stages - 1;
    const bool again = direction == TP_BACKWARD && replay->plan->recompute;
    char place[TP_COST_PLACE];

    if (first && !tp_cost_is_time(cost->embed(cost->self, device, direction, b, s)))
        tp_cost_place(cost, device, embed[direction], place);
    else if (last && !tp_cost_is_time(cost->head(cost->self, device, direction, b, s)))
        tp_cost_place(cost, device, head[direction], place);
    else if (again && !tp_cost_is_time(layer_seconds(replay, device, TP_FORWARD)[i]))
        tp_cost_layer_place(cost, device, TP_FORWARD, b, s, c, place);
    else
        tp_cost_layer_place(cost, device, direction, b, s, c, place);
    return fail_time(place, unit, names[direction], seconds);
}

/* A stage takes as long as its slowest rank. */
static enum tp_status find_stage_seconds(const struct replay *replay, int stage)
{
    const int op = replay->plan->op;
    int before = -1;

    for (int rank = stage * op; rank < (stage + 1) * op; rank++) {
        const int device = tp_cost_device_of(replay->cost, rank);
        if (device == before)
            continue;
        before = device;
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
            for (int i = 0; i < replay->n_units; i++) {
                double *slowest = &replay->stages[stage].seconds[direction][i];
                double seconds = unit_seconds(replay, stage, device, direction, i);
                if (!tp_cost_is_time(seconds))
                    return fail_part(replay, stage, device, direction, i, seconds);
                *slowest = *slowest < seconds ? seconds : *slowest;
            }
    }
    return TP_OK;
}

/* ---- Time goes on ---- */

static void add_trace(const struct replay *replay, int stage, enum tp_track track, const char *name,
                      double begin, double end, const struct tp_unit *unit, int64_t flow)
{
    if (replay->trace == NULL)
        return;
    struct tp_trace_event event = {.pid = stage,
                                   .track = track,
                                   .name = name,
                                   .begin = begin,
                                   .end = end,
                                   .group = -1,
                                   .flow = flow};
    if (unit != NULL) {
        event.group = unit->slice.group;
        event.start = unit->slice.start;
        event.length = unit->slice.length;
    }
    tp_trace_add(replay->trace, &event);
}

static void find_turn(struct stage *stage)
{
    if (!tp_turns_next(&stage->turns, &stage->direction, &stage->place))
        stage->place = -1;
}

/* The stage that a stage has its message from, or sends it to; may be none. */
static int sender(int stage, enum tp_direction direction)
{
    return direction == TP_FORWARD ? stage - 1 : stage + 1;
}

static int receiver(int stage, enum tp_direction direction)
{
    return direction == TP_FORWARD ? stage + 1 : stage - 1;
}

static bool exists(const struct replay *replay, int stage)
{
    return stage >= 0 && stage < replay->plan->n_stages;
}

/* Sends the result of a stage's turn, which is there at a time, to the next stage. */
static enum tp_status send_result(struct replay *replay, int k, const struct tp_unit *unit,
                                  double time)
{
    const struct tp_cost *cost = replay->cost;
    struct stage *stage = &replay->stages[k];
    const enum tp_direction direction = stage->direction;
    const int to = receiver(k, direction), boundary = k < to ? k : to;
    const int device = tp_cost_device_of(cost, k * replay->plan->op);
    const size_t bytes = tp_unit_rows(unit) * (size_t)replay->plan->model.n_embd *
                         (size_t)cost->devices[device].footprint.element_bytes;
    const double seconds = cost->link(cost->self, boundary, bytes);
    const double begin = fmax(time, stage->link_free[direction]), end = begin + seconds;
    const int64_t flow = ((int64_t)boundary * 2 + direction) * replay->n_units + stage->place;
    char key[32], place[TP_COST_PLACE];

    if (!tp_cost_is_time(seconds)) {
        snprintf(key, sizeof key, cost->n_links > 0 ? "links[%d]" : "link", boundary);
        return fail_time(tp_cost_place(cost, -1, key, place), unit, "the message", seconds);
    }
    stage->link_free[direction] = end;
    replay->stages[to].arrival[direction][stage->place] = end;
    add_trace(replay, k, TP_TRACK_SEND, "send", begin, end, unit, flow);
    add_trace(replay, to, TP_TRACK_RECEIVE, "receive", begin, end, unit, flow);
    return TP_OK;
}

/* A unit is alive from the start of its forward to the end of its backward, if there is one. */
static void count_alive(struct replay *replay, int k, const struct tp_unit *unit, bool over)
{
    struct tp_stage_simulation *result = &replay->result->stages[k];
    struct stage *stage = &replay->stages[k];

    if (over) {
        stage->units--;
        stage->tokens -= tp_unit_rows(unit);
        return;
    }
    stage->units++;
    stage->tokens += tp_unit_rows(unit);
    if (result->peak_units < stage->units)
        result->peak_units = stage->units;
    if (result->peak_tokens < stage->tokens)
        result->peak_tokens = stage->tokens;
}

/* After its last backward a group's weight gradients come, which no message waits for. */
static enum tp_status add_gradients(struct replay *replay, int k, const struct tp_unit *unit)
{
    const struct tp_plan *plan = replay->plan;
    const struct tp_cost *cost = replay->cost;
    struct stage *stage = &replay->stages[k];
    const double begin = stage->free;
    double slowest = 0;
    char place[TP_COST_PLACE];

    for (int rank = k * plan->op; rank < (k + 1) * plan->op; rank++) {
        const int device = tp_cost_device_of(cost, rank);
        const double seconds = plan->stages[k].n_layer *
                               cost->gradient(cost->self, device, unit->sequences, plan->seq_len);
        if (!tp_cost_is_time(seconds))
            return fail_time(tp_cost_place(cost, device, "gradient", place), unit,
                             "the weight gradients", seconds);
        slowest = fmax(slowest, seconds);
    }
    stage->free = begin + slowest;
    replay->result->stages[k].busy += slowest;
    add_trace(replay, k, TP_TRACK_COMPUTE, "weight gradients", begin, stage->free, unit, -1);
    return TP_OK;
}

/* The next turn of a stage, whose message has been sent. */
static enum tp_status take_turn(struct replay *replay, int k)
{
    static const char *const names[] = {"forward", "backward"};
    struct stage *stage = &replay->stages[k];
    const enum tp_direction direction = stage->direction;
    const int i = tp_units_at(replay->units, direction, stage->place);
    const struct tp_unit *unit = &replay->units[i];
    const double seconds = stage->seconds[direction][i];
    const double begin = fmax(stage->free, stage->arrival[direction][stage->place]);
    const bool last = replay->plan->schedule == TP_SCHEDULE_FORWARD || direction == TP_BACKWARD;

    stage->free = begin + seconds;
    replay->result->stages[k].busy += seconds;
    if (direction == TP_FORWARD)
        count_alive(replay, k, unit, false);
    if (last)
        count_alive(replay, k, unit, true);
    add_trace(replay, k, TP_TRACK_COMPUTE, names[direction], begin, stage->free, unit, -1);
    if (exists(replay, receiver(k, direction)))
        TP_TRY(send_result(replay, k, unit, stage->free));
    if (replay->plan->delay_wgrad && direction == TP_BACKWARD && unit->number == 0)
        TP_TRY(add_gradients(replay, k, unit));
    stage->done[direction]++;
    find_turn(stage);
    return TP_OK;
}

static bool may_go_on(const struct replay *replay, int k)
{
    const struct stage *stage = &replay->stages[k];
    const int from = sender(k, stage->direction);

    return stage->place >= 0 &&
           (!exists(replay, from) || replay->stages[from].done[stage->direction] > stage->place);
}

static enum tp_status run(struct replay *replay)
{
    bool moved;

    do {
        moved = false;
        for (int k = 0; k < replay->plan->n_stages; k++)
            while (may_go_on(replay, k)) {
                TP_TRY(take_turn(replay, k));
                moved = true;
            }
    } while (moved);
    for (int k = 0; k < replay->plan->n_stages; k++)
        TP_ASSERT(replay->stages[k].place < 0);
    return TP_OK;
}

/* ---- After the last backward ---- */

/* Gradients and update of a stage; the step waits for the largest of each. */
static enum tp_status finish_stage(struct replay *replay, int k, const struct tp_stage_shape *shape)
{
    const struct tp_cost *cost = replay->cost;
    struct tp_simulation *result = replay->result;
    const int device = tp_cost_device_of(cost, k * replay->plan->op);
    const size_t element = (size_t)cost->devices[device].footprint.element_bytes;
    const size_t parameters = tp_stage_parameters(shape);
    char key[32], place[TP_COST_PLACE];
    double exchange = 0, update = cost->update_seconds_per_parameter * (double)parameters;

    if (replay->plan->data > 1)
        exchange = cost->allreduce(cost->self, replay->plan->data, parameters * element);
    snprintf(key, sizeof key, "allreduce.%d", replay->plan->data);
    if (!tp_cost_is_time(exchange))
        return tp_fail(TP_ERR_INPUT,
                       "%sthe all-reduce of %zu bytes over %d ranks takes %g seconds by the "
                       "profile, expected 0 or more",
                       tp_cost_place(cost, -1, key, place), parameters * element,
                       replay->plan->data, exchange);
    if (exchange > 0)
        add_trace(replay, k, TP_TRACK_COMPUTE, "all-reduce", result->makespan,
                  result->makespan + exchange, NULL, -1);
    result->allreduce_seconds = fmax(result->allreduce_seconds, exchange);
    result->update_seconds = fmax(result->update_seconds, update);
    return TP_OK;
}

static enum tp_status finish(struct replay *replay)
{
    struct tp_simulation *result = replay->result;
    const struct tp_plan *plan = replay->plan;
    struct tp_stage_shape shape;

    for (int k = 0; k < plan->n_stages; k++)
        result->makespan = fmax(result->makespan, replay->stages[k].free);
    for (int k = 0; k < plan->n_stages; k++) {
        struct tp_stage_simulation *stage = &result->stages[k];
        const int device = tp_cost_device_of(replay->cost, k * plan->op);
        stage->bubble = result->makespan > 0 ? 1 - stage->busy / result->makespan : 0;
        result->bubble += stage->bubble / plan->n_stages;
        TP_TRY(tp_plan_stage_shape(plan, replay->units, k, &shape));
        stage->peak_bytes = tp_stage_bytes(&shape, &replay->cost->devices[device].footprint);
        if (plan->schedule != TP_SCHEDULE_FORWARD)
            TP_TRY(finish_stage(replay, k, &shape));
    }
    result->step_seconds = result->makespan + result->allreduce_seconds + result->update_seconds;
    if (!isfinite(result->step_seconds))
        return tp_fail(TP_ERR_INPUT,
                       "the step takes %g seconds by the profile, expected a time that ends",
                       result->step_seconds);
    return TP_OK;
}

/* ---- Memory ---- */

static enum tp_status replay_init(struct replay *replay)
{
    const size_t n_stages = (size_t)replay->plan->n_stages, n_units = (size_t)replay->n_units;

    replay->units = calloc(n_units, sizeof *replay->units);
    replay->stages = calloc(n_stages, sizeof *replay->stages);
    replay->times = calloc(n_stages * 4 * n_units, sizeof *replay->times);
    replay->layer_seconds =
        calloc((size_t)replay->cost->n_devices * 2 * n_units, sizeof *replay->layer_seconds);
    replay->result->stages = calloc(n_stages, sizeof *replay->result->stages);
    if (replay->units == NULL || replay->stages == NULL || replay->times == NULL ||
        replay->layer_seconds == NULL || replay->result->stages == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory to simulate %zu stages and %zu slices", n_stages,
                       n_units);
    replay->result->n_stages = replay->plan->n_stages;
    tp_units_cut(replay->plan, replay->units);
    for (size_t k = 0; k < n_stages; k++) {
        struct stage *stage = &replay->stages[k];
        double *times = replay->times + k * 4 * n_units;
        for (size_t direction = 0; direction < 2; direction++) {
            stage->seconds[direction] = times + direction * n_units;
            stage->arrival[direction] = times + (2 + direction) * n_units;
        }
        tp_turns_init(&stage->turns, replay->plan, (int)k);
        find_turn(stage);
    }
    return TP_OK;
}

static void replay_fini(struct replay *replay)
{
    free(replay->units);
    free(replay->stages);
    free(replay->times);
    free(replay->layer_seconds);
}

enum tp_status tp_simulate(const struct tp_plan *plan, const struct tp_cost *cost,
                           struct tp_trace *trace, struct tp_simulation *simulation)
{
    struct tp_simulation result = {.n_stages = 0};
    struct replay replay = {.plan = plan,
                            .cost = cost,
                            .trace = trace,
                            .n_units = tp_units_count(plan),
                            .result = &result};
    TP_TRY(tp_cost_check_delay(cost, plan->delay_wgrad));
    enum tp_status status = replay_init(&replay);

    if (status == TP_OK)
        status = check_groups(&replay);
    if (status == TP_OK)
        find_layer_seconds(&replay);
    for (int k = 0; k < plan->n_stages && status == TP_OK; k++)
        status = find_stage_seconds(&replay, k);
    if (status == TP_OK)
        status = run(&replay);
    if (status == TP_OK)
        status = finish(&replay);
    if (status == TP_OK)
        *simulation = result;
    else
        tp_simulation_fini(&result);
    replay_fini(&replay);
    return status;
}

void tp_simulation_fini(struct tp_simulation *simulation)
{
    free(simulation->stages);
    *simulation = (struct tp_simulation){.n_stages = 0};
}
