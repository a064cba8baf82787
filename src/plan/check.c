/* SPDX-License-Identifier: Apache-2.0 */
/* The checker of schedules. It replays the lists of all stages, each as far as it gets, in turn.
 * An action waits for others only by what they have done already and never undo, so whether all
 * get to the end does not depend on the order in which the stages are tried. */
#include "config.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "plan/schedule.h"
#include "ranges.h"

/* What has happened to a unit in one direction on one stage. */
enum {
    RECEIVING = 1, /* receive posted */
    RECEIVED = 2,  /* waited for */
    COMPUTED = 4,
    SENDING = 8, /* send posted */
    SENT = 16    /* waited for */
};

struct stage {
    const struct tp_schedule *schedule;
    int next;                              /* action */
    int computed[2];                       /* units, per direction */
    unsigned char *marks[2];               /* [n_units] of each direction */
    struct tp_ranges rows, inputs, caches; /* in use */
    bool slots_used[2][TP_SCHEDULE_SLOTS]; /* per direction */
    bool reduced, updated;
};

struct replay {
    int n_stages;
    bool train; /* some list goes backward */
    struct stage *stages;
};

static const char *const direction_names[] = {"forward", "backward"};

static const char *const action_names[] = {
    [TP_ACTION_POST_RECEIVE] = "post receive of",
    [TP_ACTION_WAIT_RECEIVE] = "wait for receive of",
    [TP_ACTION_COMPUTE] = "compute",
    [TP_ACTION_POST_SEND] = "post send of",
    [TP_ACTION_WAIT_SEND] = "wait for send of",
    [TP_ACTION_REDUCE] = "reduce",
    [TP_ACTION_UPDATE] = "update",
};

/* Reports what is wrong with a stage's next action. */
static enum tp_status fail_at(const struct stage *stage, const char *what)
{
    const struct tp_schedule *schedule = stage->schedule;
    if (stage->next == schedule->n_actions)
        return tp_fail(TP_ERR_INPUT, "schedule of stage %d, at its end: %s", schedule->stage, what);
    const struct tp_action *action = &schedule->actions[stage->next];
    char name[64];
    if (action->unit >= 0)
        snprintf(name, sizeof name, "%s %s %d", action_names[action->kind],
                 direction_names[action->direction], action->unit);
    else
        snprintf(name, sizeof name, "%s", action_names[action->kind]);
    return tp_fail(TP_ERR_INPUT, "schedule of stage %d, action %d (%s): %s", schedule->stage,
                   stage->next, name, what);
}

/* ---- Memory in use, as tp_schedule_new() describes it ---- */

/* A unit has rows from its forward to where it is over: its backward or, without one, the forward;
 * its input from when it may come; its group has keys and values from the first forward until the
 * last unit is over: that of the first slice, or without backward of the last. With delayed weight
 * gradients all units of a group are over then. */

static bool rows_taken(const struct stage *stage, const struct tp_unit *unit)
{
    return !tp_ranges_are_free(&stage->rows, unit->row, tp_unit_rows(unit));
}

static bool input_taken(const struct stage *stage, const struct tp_unit *unit)
{
    return !tp_ranges_are_free(&stage->inputs, unit->input_row, tp_unit_rows(unit));
}

static bool cache_taken(const struct stage *stage, const struct tp_unit *unit)
{
    return !tp_ranges_are_free(&stage->caches, (size_t)unit->cache, (size_t)unit->sequences);
}

static void take_input(struct stage *stage, const struct tp_unit *unit)
{
    tp_ranges_take(&stage->inputs, unit->input_row, tp_unit_rows(unit));
}

static void end_rows(struct stage *stage, const struct tp_unit *unit)
{
    tp_ranges_give_back(&stage->rows, unit->row, tp_unit_rows(unit));
    tp_ranges_give_back(&stage->inputs, unit->input_row, tp_unit_rows(unit));
}

static void end_unit(const struct replay *replay, struct stage *stage, const struct tp_unit *unit)
{
    const bool last = unit->number == (replay->train ? 0 : unit->last);

    if (!stage->schedule->delay_wgrad || !replay->train)
        end_rows(stage, unit);
    else if (last)
        for (int i = 0; i <= unit->last; i++)
            end_rows(stage, unit + i);
    if (last)
        tp_ranges_give_back(&stage->caches, (size_t)unit->cache, (size_t)unit->sequences);
}

/* What computing a unit does to the memory in use. */
static void use_memory(const struct replay *replay, struct stage *stage,
                       const struct tp_action *action)
{
    const struct tp_unit *unit = &stage->schedule->units[action->unit];

    if (action->direction == TP_FORWARD) {
        tp_ranges_take(&stage->rows, unit->row, tp_unit_rows(unit));
        if (!tp_schedule_receives(stage->schedule, TP_FORWARD))
            take_input(stage, unit);
        if (unit->number == 0)
            tp_ranges_take(&stage->caches, (size_t)unit->cache, (size_t)unit->sequences);
    }
    if (action->direction == TP_BACKWARD || !replay->train)
        end_unit(replay, stage, unit);
}

/* A unit's slot: a forward one holds a result until it is sent; a backward one a gradient from when
 * it may come, until it is sent or, on the first stage, computed. */
static bool *slot_of(struct stage *stage, const struct tp_action *action)
{
    const int slot = stage->schedule->units[action->unit].slot[action->direction];
    return &stage->slots_used[action->direction][slot];
}

static bool slot_taken(const struct stage *stage, const struct tp_action *action)
{
    const int slot = stage->schedule->units[action->unit].slot[action->direction];
    return stage->slots_used[action->direction][slot];
}

static void use_slot(struct stage *stage, const struct tp_action *action)
{
    const bool sends = tp_schedule_sends(stage->schedule, action->direction);

    if (action->kind == TP_ACTION_POST_RECEIVE && action->direction == TP_BACKWARD)
        *slot_of(stage, action) = true;
    if (action->kind == TP_ACTION_COMPUTE)
        *slot_of(stage, action) = sends;
    if (action->kind == TP_ACTION_WAIT_SEND)
        *slot_of(stage, action) = false;
}

/* ---- Rules: what is wrong with an action, NULL when nothing is ---- */

static const char *broken_post_receive(const struct stage *stage, const struct tp_action *action)
{
    if (!tp_schedule_receives(stage->schedule, action->direction))
        return "no stage sends it";
    if (stage->marks[action->direction][action->unit] & RECEIVING)
        return "it was posted before";
    if (action->direction == TP_FORWARD &&
        input_taken(stage, &stage->schedule->units[action->unit]))
        return "its input's rows are in use";
    if (action->direction == TP_BACKWARD && slot_taken(stage, action))
        return "its slot is in use";
    return NULL;
}

/* What is wrong with the memory that a forward is to fill. */
static const char *broken_memory(const struct stage *stage, const struct tp_unit *unit)
{
    if (rows_taken(stage, unit))
        return "its rows are in use";
    if (!tp_schedule_receives(stage->schedule, TP_FORWARD) && input_taken(stage, unit))
        return "its input's rows are in use";
    if (unit->number == 0 && cache_taken(stage, unit))
        return "its group's keys and values are in use";
    return NULL;
}

static const char *broken_compute(const struct stage *stage, const struct tp_action *action)
{
    const enum tp_direction direction = action->direction;
    const struct tp_unit *unit = &stage->schedule->units[action->unit];
    const unsigned char marks = stage->marks[direction][action->unit];
    const bool receives = tp_schedule_receives(stage->schedule, direction);
    const bool holds = direction == TP_BACKWARD && receives; /* the slot, since the receive */
    if (marks & COMPUTED)
        return "it was computed before";
    if (receives && !(marks & RECEIVED))
        return "its message is not there";
    if (direction == TP_BACKWARD && !(stage->marks[TP_FORWARD][action->unit] & COMPUTED))
        return "its forward is not computed";
    if (tp_schedule_unit_at(stage->schedule, direction, stage->computed[direction]) != action->unit)
        return "it is not its turn";
    if (!holds && slot_taken(stage, action))
        return "its slot is in use";
    return direction == TP_FORWARD ? broken_memory(stage, unit) : NULL;
}

static const char *broken_post_send(const struct stage *stage, const struct tp_action *action)
{
    const unsigned char marks = stage->marks[action->direction][action->unit];
    if (!tp_schedule_sends(stage->schedule, action->direction))
        return "no stage receives it";
    if (!(marks & COMPUTED))
        return "it is not computed";
    if (marks & SENDING)
        return "it was posted before";
    return NULL;
}

static const char *broken_wait(const struct stage *stage, const struct tp_action *action,
                               unsigned char posted, unsigned char waited)
{
    const unsigned char marks = stage->marks[action->direction][action->unit];
    if (!(marks & posted))
        return "it was not posted";
    if (marks & waited)
        return "it was waited for before";
    return NULL;
}

/* Is everything done and over, up to the reduce? */
static const char *broken_units(const struct replay *replay, const struct stage *stage)
{
    for (int direction = TP_FORWARD; direction <= (replay->train ? TP_BACKWARD : TP_FORWARD);
         direction++)
        for (int unit = 0; unit < stage->schedule->n_units; unit++) {
            const unsigned char marks = stage->marks[direction][unit];
            if (!(marks & COMPUTED))
                return "a unit is not computed";
            if (tp_schedule_sends(stage->schedule, direction) && !(marks & SENT))
                return "a send is not waited for";
        }
    return NULL;
}

static const char *broken(const struct replay *replay, const struct stage *stage,
                          const struct tp_action *action)
{
    if (stage->updated)
        return "it comes after the update";
    if (stage->reduced != (action->kind == TP_ACTION_UPDATE))
        return stage->reduced ? "it comes after the reduce" : "it comes before the reduce";
    switch (action->kind) {
    case TP_ACTION_POST_RECEIVE:
        return broken_post_receive(stage, action);
    case TP_ACTION_WAIT_RECEIVE:
        return broken_wait(stage, action, RECEIVING, RECEIVED);
    case TP_ACTION_COMPUTE:
        return broken_compute(stage, action);
    case TP_ACTION_POST_SEND:
        return broken_post_send(stage, action);
    case TP_ACTION_WAIT_SEND:
        return broken_wait(stage, action, SENDING, SENT);
    case TP_ACTION_REDUCE:
        return broken_units(replay, stage);
    case TP_ACTION_UPDATE:
        return NULL;
    }
    return "there is no such action";
}

static const char *broken_end(const struct replay *replay, const struct stage *stage)
{
    if (replay->train && !stage->updated)
        return stage->reduced ? "there is no update" : "there is no reduce";
    return broken_units(replay, stage);
}

/* ---- Replay ---- */

/* Has the other side of a message posted its part? */
static bool other_side(const struct replay *replay, const struct stage *stage,
                       const struct tp_action *action, int towards, unsigned char mark)
{
    const int step = action->direction == TP_FORWARD ? towards : -towards;
    const struct stage *other = &replay->stages[stage->schedule->stage + step];
    return other->marks[action->direction][action->unit] & mark;
}

static bool all_at_reduce(const struct replay *replay)
{
    for (int k = 0; k < replay->n_stages; k++) {
        const struct stage *stage = &replay->stages[k];
        const bool ended = stage->next == stage->schedule->n_actions;
        if (!stage->reduced &&
            (ended || stage->schedule->actions[stage->next].kind != TP_ACTION_REDUCE))
            return false;
    }
    return true;
}

/* Can the list go on after an action that breaks no rule? */
static bool is_ready(const struct replay *replay, const struct stage *stage,
                     const struct tp_action *action)
{
    switch (action->kind) {
    case TP_ACTION_WAIT_RECEIVE:
        return other_side(replay, stage, action, -1, SENDING);
    case TP_ACTION_WAIT_SEND:
        return other_side(replay, stage, action, +1, RECEIVING);
    case TP_ACTION_REDUCE:
        return all_at_reduce(replay);
    default:
        return true;
    }
}

static void apply(const struct replay *replay, struct stage *stage, const struct tp_action *action)
{
    static const unsigned char marks[] = {
        [TP_ACTION_POST_RECEIVE] = RECEIVING, [TP_ACTION_WAIT_RECEIVE] = RECEIVED,
        [TP_ACTION_COMPUTE] = COMPUTED,       [TP_ACTION_POST_SEND] = SENDING,
        [TP_ACTION_WAIT_SEND] = SENT,
    };
    if (action->kind == TP_ACTION_REDUCE) {
        stage->reduced = true;
    } else if (action->kind == TP_ACTION_UPDATE) {
        stage->updated = true;
    } else {
        if (action->kind == TP_ACTION_POST_RECEIVE && action->direction == TP_FORWARD)
            take_input(stage, &stage->schedule->units[action->unit]);
        if (action->kind == TP_ACTION_COMPUTE)
            use_memory(replay, stage, action);
        use_slot(stage, action);
        stage->marks[action->direction][action->unit] |= marks[action->kind];
        stage->computed[action->direction] += action->kind == TP_ACTION_COMPUTE;
    }
    stage->next++;
}

/* Goes on with one list as far as it gets; *moved becomes true if that is anywhere. */
static enum tp_status replay_stage(const struct replay *replay, struct stage *stage, bool *moved)
{
    while (stage->next < stage->schedule->n_actions) {
        const struct tp_action *action = &stage->schedule->actions[stage->next];
        const char *what = broken(replay, stage, action);
        if (what != NULL)
            return fail_at(stage, what);
        if (!is_ready(replay, stage, action))
            return TP_OK;
        apply(replay, stage, action);
        *moved = true;
    }
    return TP_OK;
}

static enum tp_status replay_all(struct replay *replay)
{
    bool moved;
    do {
        moved = false;
        for (int k = 0; k < replay->n_stages; k++)
            TP_TRY(replay_stage(replay, &replay->stages[k], &moved));
    } while (moved);

    for (int k = 0; k < replay->n_stages; k++) {
        const struct stage *stage = &replay->stages[k];
        if (stage->next < stage->schedule->n_actions)
            return fail_at(stage, "it waits for ever");
        const char *what = broken_end(replay, stage);
        if (what != NULL)
            return fail_at(stage, what);
    }
    return TP_OK;
}

/* ---- Before the replay: the lists belong together ---- */

static bool same_unit(const struct tp_unit *a, const struct tp_unit *b)
{
    return a->slice.group == b->slice.group && a->slice.start == b->slice.start &&
           a->slice.length == b->slice.length && a->index == b->index && a->number == b->number &&
           a->last == b->last && a->first_sequence == b->first_sequence &&
           a->sequences == b->sequences;
}

/* Does the unit fit the memory that the schedule asks for, and follow on the one before it? */
static bool is_sound(const struct tp_schedule *schedule, int i)
{
    const struct tp_unit *unit = &schedule->units[i];
    const bool first = unit->number == 0, last = unit->number == unit->last;
    for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
        if (unit->slot[direction] < 0 || unit->slot[direction] >= schedule->slots ||
            unit->slot[direction] >= TP_SCHEDULE_SLOTS)
            return false;
    return unit->index == i && unit->slice.length >= 1 && unit->sequences >= 1 &&
           unit->sequences <= schedule->group && tp_unit_rows(unit) <= schedule->unit_rows &&
           unit->row + tp_unit_rows(unit) <= schedule->rows &&
           unit->input_row + tp_unit_rows(unit) <= schedule->input_rows && unit->cache >= 0 &&
           unit->cache + unit->sequences <= schedule->caches &&
           first == (i == 0 || unit->slice.group != unit[-1].slice.group) &&
           last == (i == schedule->n_units - 1 || unit->slice.group != unit[1].slice.group) &&
           (first ? unit->slice.start == 0
                  : unit->number == unit[-1].number + 1 && unit->cache == unit[-1].cache &&
                        unit->slice.start == unit[-1].slice.start + unit[-1].slice.length);
}

static enum tp_status check_units(const struct tp_schedule *schedule,
                                  const struct tp_schedule *first, int stage, int n_stages)
{
    if (schedule->stage != stage || schedule->n_stages != n_stages)
        return tp_fail(TP_ERR_INPUT, "schedule of stage %d of %d given as stage %d of %d",
                       schedule->stage, schedule->n_stages, stage, n_stages);
    if (schedule->n_units != first->n_units)
        return tp_fail(TP_ERR_INPUT, "schedule of stage %d: %d units, but %d on stage 0", stage,
                       schedule->n_units, first->n_units);
    for (int i = 0; i < schedule->n_units; i++)
        if (!same_unit(&schedule->units[i], &first->units[i]) || !is_sound(schedule, i))
            return tp_fail(TP_ERR_INPUT,
                           "schedule of stage %d: unit %d differs from stage 0's, or does not fit",
                           stage, i);
    return TP_OK;
}

static enum tp_status check_actions(const struct tp_schedule *schedule)
{
    for (int i = 0; i < schedule->n_actions; i++) {
        const struct tp_action *action = &schedule->actions[i];
        const bool of_unit = action->unit >= 0 && action->unit < schedule->n_units;
        const bool of_all = action->kind == TP_ACTION_REDUCE || action->kind == TP_ACTION_UPDATE;
        if (of_all ? action->unit != -1 : !of_unit)
            return tp_fail(TP_ERR_INPUT,
                           "schedule of stage %d, action %d (%s): there is no unit %d",
                           schedule->stage, i, action_names[action->kind], action->unit);
    }
    return TP_OK;
}

static bool goes_backward(const struct tp_schedule *schedule)
{
    for (int i = 0; i < schedule->n_actions; i++)
        if (schedule->actions[i].direction == TP_BACKWARD)
            return true;
    return false;
}

enum tp_status tp_schedule_check(const struct tp_schedule *const *schedules, int n_stages)
{
    if (n_stages < 1)
        return tp_fail(TP_ERR_INPUT, "schedules of %d stages", n_stages);
    for (int k = 0; k < n_stages; k++) {
        TP_TRY(check_units(schedules[k], schedules[0], k, n_stages));
        TP_TRY(check_actions(schedules[k]));
    }

    const size_t n_units = (size_t)schedules[0]->n_units;
    struct replay replay = {.n_stages = n_stages};
    replay.stages = calloc((size_t)n_stages, sizeof *replay.stages);
    unsigned char *marks = calloc((size_t)n_stages * 2 * n_units, 1);
    struct tp_range *ranges = calloc((size_t)n_stages * 3 * (n_units + 1), sizeof *ranges);
    enum tp_status status;
    if (replay.stages == NULL || marks == NULL || ranges == NULL) {
        status = tp_fail(TP_ERR_MEMORY, "no memory to check schedules of %zu slices", n_units);
        goto free_all;
    }
    for (int k = 0; k < n_stages; k++) {
        struct stage *stage = &replay.stages[k];
        stage->schedule = schedules[k];
        stage->marks[TP_FORWARD] = marks + (size_t)k * 2 * n_units;
        stage->marks[TP_BACKWARD] = stage->marks[TP_FORWARD] + n_units;
        stage->rows.at = ranges + (size_t)k * 3 * (n_units + 1);
        stage->inputs.at = stage->rows.at + n_units + 1;
        stage->caches.at = stage->inputs.at + n_units + 1;
        replay.train |= goes_backward(schedules[k]);
    }
    status = replay_all(&replay);
free_all:
    free(ranges);
    free(marks);
    free(replay.stages);
    return status;
}
