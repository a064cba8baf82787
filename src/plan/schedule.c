/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "plan/schedule.h"

/* ---- What is computed, and in which order ---- */

/* Slices of groups [first, first + count). */
static int count_slices(const struct tp_plan *plan, int first, int count)
{
    int sum = 0;
    for (int g = first; g < first + count; g++)
        sum += plan->groups[g].slices.count;
    return sum;
}

int tp_units_count(const struct tp_plan *plan)
{
    return count_slices(plan, 0, plan->n_groups);
}

void tp_units_cut(const struct tp_plan *plan, struct tp_unit *units)
{
    int index = 0, first_sequence = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        const struct tp_group *group = &plan->groups[g];
        int start = 0;
        for (int i = 0; i < group->slices.count; i++) {
            int length = group->slices.lengths[i];
            units[index] = (struct tp_unit){
                .slice = {.group = g, .start = start, .length = length},
                .index = index,
                .number = i,
                .last = group->slices.count - 1,
                .first_sequence = first_sequence,
                .sequences = group->sequences,
            };
            start += length;
            index++;
        }
        first_sequence += group->sequences;
    }
}

int tp_units_at(const struct tp_unit *units, enum tp_direction direction, int place)
{
    if (direction == TP_FORWARD)
        return place;
    const struct tp_unit *unit = &units[place];
    return place - unit->number + (unit->last - unit->number);
}

void tp_turns_init(struct tp_turns *turns, const struct tp_plan *plan, int stage)
{
    *turns = (struct tp_turns){.plan = plan, .stage = stage, .n_units = tp_units_count(plan)};
    for (int g = 0; g < plan->n_groups; g++)
        if (turns->slices < plan->groups[g].slices.count)
            turns->slices = plan->groups[g].slices.count;
}

/* The least warm-up with which no stage waits in a pipeline of equal units is K - s + M - 2: then
 * the last stage has a whole group forward when its first backward comes. */
static void begin_flight(struct tp_turns *turns)
{
    const struct tp_plan *plan = turns->plan;
    int groups = plan->flights[turns->flight];
    int ahead = plan->n_stages - turns->stage + turns->slices - 2;

    turns->first = turns->unit;
    turns->units = count_slices(plan, turns->group, groups);
    turns->warm_up =
        tp_schedule_is_early(plan->schedule) && ahead < turns->units ? ahead : turns->units;
    turns->done[TP_FORWARD] = turns->done[TP_BACKWARD] = 0;
    turns->unit += turns->units;
    turns->group += groups;
    turns->flight++;
}

bool tp_turns_next(struct tp_turns *turns, enum tp_direction *direction, int *place)
{
    const bool train = turns->plan->schedule != TP_SCHEDULE_FORWARD;
    const int *done = turns->done;

    if (done[train ? TP_BACKWARD : TP_FORWARD] == turns->units) {
        if (turns->flight == turns->plan->n_flights)
            return false;
        begin_flight(turns);
    }
    bool forward =
        done[TP_FORWARD] < turns->units && done[TP_FORWARD] <= turns->warm_up + done[TP_BACKWARD];
    *direction = forward ? TP_FORWARD : TP_BACKWARD;
    *place = turns->first + turns->done[*direction]++;
    return true;
}

/* Messages are on their way while this many units are computed; more cost memory where the units
 * behind them are alive only one after the other. */
int tp_turns_ahead(const struct tp_turns *turns, enum tp_direction direction)
{
    const struct tp_plan *plan = turns->plan;
    const int n_units = turns->n_units;

    if (turns->stage == (direction == TP_FORWARD ? 0 : plan->n_stages - 1))
        return 0;
    if (n_units <= TP_SCHEDULE_SLOTS)
        return n_units;
    const bool keeps =
        plan->schedule == TP_SCHEDULE_GPIPE || plan->schedule == TP_SCHEDULE_TERAPIPE;
    return direction == TP_FORWARD && keeps ? TP_SCHEDULE_SLOTS : TP_SCHEDULE_SLOTS / 2;
}

/* ---- The list of a stage ---- */

int tp_schedule_unit_at(const struct tp_schedule *schedule, enum tp_direction direction, int place)
{
    return tp_units_at(schedule->units, direction, place);
}

bool tp_schedule_receives(const struct tp_schedule *schedule, enum tp_direction direction)
{
    return schedule->stage != (direction == TP_FORWARD ? 0 : schedule->n_stages - 1);
}

bool tp_schedule_sends(const struct tp_schedule *schedule, enum tp_direction direction)
{
    return schedule->stage != (direction == TP_FORWARD ? schedule->n_stages - 1 : 0);
}

static void append(struct tp_schedule *schedule, enum tp_action_kind kind,
                   enum tp_direction direction, int unit)
{
    schedule->actions[schedule->n_actions++] =
        (struct tp_action){.kind = kind, .direction = direction, .unit = unit};
}

/* Appends an action of the unit at a place of the direction's order. */
static void append_at(struct tp_schedule *schedule, enum tp_action_kind kind,
                      enum tp_direction direction, int place)
{
    append(schedule, kind, direction, tp_schedule_unit_at(schedule, direction, place));
}

/* A list that is being made. */
struct list {
    struct tp_schedule *schedule;
    struct tp_turns turns;
    int waited[2]; /* places whose sends are waited for */
    int posted[2]; /* places whose receives are posted */
};

/* Waits for the sends up to, without, place end. */
static void append_waits(struct list *list, enum tp_direction direction, int end)
{
    if (!tp_schedule_sends(list->schedule, direction))
        return;
    for (; list->waited[direction] < end; list->waited[direction]++)
        append_at(list->schedule, TP_ACTION_WAIT_SEND, direction, list->waited[direction]);
}

/* Posts the receives up to, without, place end of the flight. A gradient comes into the slot from
 * which an earlier one is sent. */
static void append_posts(struct list *list, enum tp_direction direction, int end)
{
    const int flight_end = list->turns.first + list->turns.units;

    if (!tp_schedule_receives(list->schedule, direction))
        return;
    for (; list->posted[direction] < end && list->posted[direction] < flight_end;
         list->posted[direction]++) {
        if (direction == TP_BACKWARD)
            append_waits(list, direction, list->posted[direction] + 1 - list->schedule->slots);
        append_at(list->schedule, TP_ACTION_POST_RECEIVE, direction, list->posted[direction]);
    }
}

/* The first receives of a flight. */
static void append_flight(struct list *list, bool train)
{
    for (int direction = TP_FORWARD; direction <= (train ? TP_BACKWARD : TP_FORWARD); direction++)
        append_posts(list, direction, list->turns.first + tp_turns_ahead(&list->turns, direction));
}

static void append_turn(struct list *list, enum tp_direction direction, int place)
{
    struct tp_schedule *schedule = list->schedule;

    if (tp_schedule_receives(schedule, direction))
        append_at(schedule, TP_ACTION_WAIT_RECEIVE, direction, place);
    append_waits(list, direction, place + 1 - schedule->slots);
    append_at(schedule, TP_ACTION_COMPUTE, direction, place);
    if (tp_schedule_sends(schedule, direction))
        append_at(schedule, TP_ACTION_POST_SEND, direction, place);
    append_posts(list, direction, place + 1 + tp_turns_ahead(&list->turns, direction));
}

static void append_all(struct tp_schedule *schedule, const struct tp_plan *plan)
{
    const bool train = plan->schedule != TP_SCHEDULE_FORWARD;
    struct list list = {.schedule = schedule};
    enum tp_direction direction;
    int place, flight = 0;

    tp_turns_init(&list.turns, plan, schedule->stage);
    while (tp_turns_next(&list.turns, &direction, &place)) {
        if (list.turns.flight != flight)
            append_flight(&list, train);
        flight = list.turns.flight;
        append_turn(&list, direction, place);
    }
    for (direction = TP_FORWARD; direction <= (train ? TP_BACKWARD : TP_FORWARD); direction++)
        append_waits(&list, direction, schedule->n_units);
    if (train) {
        append(schedule, TP_ACTION_REDUCE, TP_BACKWARD, -1);
        append(schedule, TP_ACTION_UPDATE, TP_BACKWARD, -1);
    }
}

/* Actions of a unit in one direction, at most: one of each kind. */
enum { UNIT_ACTIONS = TP_ACTION_WAIT_SEND + 1 };

enum tp_status tp_schedule_new(const struct tp_plan *plan, int stage, struct tp_schedule **out)
{
    const size_t n_units = (size_t)tp_units_count(plan);
    struct tp_schedule *schedule = calloc(1, sizeof *schedule);
    struct tp_stage_shape shape;

    if (schedule == NULL)
        goto fail;
    schedule->units = calloc(n_units, sizeof *schedule->units);
    schedule->actions = calloc(2 * UNIT_ACTIONS * n_units + 2, sizeof *schedule->actions);
    if (schedule->units == NULL || schedule->actions == NULL)
        goto fail;
    schedule->stage = stage;
    schedule->n_stages = plan->n_stages;
    schedule->n_units = (int)n_units;
    tp_units_cut(plan, schedule->units);
    enum tp_status status = tp_plan_stage_shape(plan, schedule->units, stage, &shape);
    if (status != TP_OK) {
        tp_schedule_free(schedule);
        return status;
    }
    schedule->rows = shape.rows;
    schedule->input_rows = shape.input_rows;
    schedule->unit_rows = shape.unit_rows;
    schedule->batch = shape.batch;
    schedule->caches = shape.caches;
    schedule->group = shape.group;
    schedule->slots = shape.slots;
    schedule->alternates = shape.alternates;
    schedule->delay_wgrad = shape.delay_wgrad;
    append_all(schedule, plan);
    *out = schedule;
    return TP_OK;
fail:
    tp_schedule_free(schedule);
    return tp_fail(TP_ERR_MEMORY, "no memory for a schedule of %zu slices", n_units);
}

static size_t larger(size_t a, size_t b)
{
    return a < b ? b : a;
}

void tp_schedule_widen(const struct tp_schedule *schedule, struct tp_stage_shape *shape)
{
    const struct {
        int *most, needed;
    } counts[] = {{&shape->batch, schedule->batch},
                  {&shape->caches, schedule->caches},
                  {&shape->group, schedule->group},
                  {&shape->slots, schedule->slots}};

    shape->rows = larger(shape->rows, schedule->rows);
    shape->input_rows = larger(shape->input_rows, schedule->input_rows);
    shape->unit_rows = larger(shape->unit_rows, schedule->unit_rows);
    shape->alternates = shape->alternates || schedule->alternates;
    shape->delay_wgrad = shape->delay_wgrad || schedule->delay_wgrad;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        if (*counts[i].most < counts[i].needed)
            *counts[i].most = counts[i].needed;
}

void tp_schedule_free(struct tp_schedule *schedule)
{
    if (schedule == NULL)
        return;
    free(schedule->units);
    free(schedule->actions);
    free(schedule);
}
