/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "plan/schedule.h"

int tp_schedule_unit_at(const struct tp_schedule *schedule, enum tp_direction direction, int place)
{
    if (direction == TP_FORWARD)
        return place;
    const struct tp_unit *unit = &schedule->units[place];
    return place - unit->number + (unit->last - unit->number);
}

bool tp_schedule_receives(const struct tp_schedule *schedule, enum tp_direction direction)
{
    return schedule->stage != (direction == TP_FORWARD ? 0 : schedule->n_stages - 1);
}

bool tp_schedule_sends(const struct tp_schedule *schedule, enum tp_direction direction)
{
    return schedule->stage != (direction == TP_FORWARD ? schedule->n_stages - 1 : 0);
}

static int count_units(const struct tp_plan *plan)
{
    int count = 0;
    for (int g = 0; g < plan->n_groups; g++)
        count += plan->groups[g].slices.count;
    return count;
}

/* The slices of all groups, without their places in memory. */
static void cut_groups(struct tp_schedule *schedule, const struct tp_plan *plan)
{
    int index = 0, first_sequence = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        const struct tp_group *group = &plan->groups[g];
        int start = 0;
        for (int i = 0; i < group->slices.count; i++) {
            int length = group->slices.lengths[i];
            schedule->units[index] = (struct tp_unit){
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
        if (schedule->group < group->sequences)
            schedule->group = group->sequences;
    }
}

/* Gives each unit its rows and slots. */
static void place_units(struct tp_schedule *schedule, bool keep_rows)
{
    for (int i = 0; i < schedule->n_units; i++) {
        size_t rows = tp_unit_rows(&schedule->units[i]);
        if (schedule->unit_rows < rows)
            schedule->unit_rows = rows;
    }
    size_t row = 0;
    for (int i = 0; i < schedule->n_units; i++) {
        struct tp_unit *unit = &schedule->units[i];
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
            unit->slot[direction] = tp_schedule_unit_at(schedule, direction, i) % schedule->slots;
        unit->row = keep_rows ? row : (size_t)unit->slot[TP_FORWARD] * schedule->unit_rows;
        row += tp_unit_rows(unit);
    }
    schedule->rows = keep_rows ? row : (size_t)schedule->slots * schedule->unit_rows;
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

/* Waits for the sends from place *waited up to, without, place end. */
static void append_waits(struct tp_schedule *schedule, enum tp_direction direction, int *waited,
                         int end)
{
    if (!tp_schedule_sends(schedule, direction))
        return;
    for (; *waited < end; (*waited)++)
        append_at(schedule, TP_ACTION_WAIT_SEND, direction, *waited);
}

/* All units in one direction. Forward receives go to rows, not slots, so as many may be ahead as
 * there are slots; backward receives share theirs with the sends, which get the other half, unless
 * each unit has a slot of its own. */
static void append_direction(struct tp_schedule *schedule, enum tp_direction direction)
{
    const int n = schedule->n_units, slots = schedule->slots;
    const bool receives = tp_schedule_receives(schedule, direction);
    const int ahead = direction == TP_FORWARD || n == slots ? slots : slots / 2;
    int waited = 0;

    for (int place = 0; receives && place < ahead; place++)
        append_at(schedule, TP_ACTION_POST_RECEIVE, direction, place);
    for (int place = 0; place < n; place++) {
        if (receives)
            append_at(schedule, TP_ACTION_WAIT_RECEIVE, direction, place);
        append_waits(schedule, direction, &waited, place + 1 - slots);
        append_at(schedule, TP_ACTION_COMPUTE, direction, place);
        if (tp_schedule_sends(schedule, direction))
            append_at(schedule, TP_ACTION_POST_SEND, direction, place);
        if (receives && place + ahead < n) {
            if (direction == TP_BACKWARD)
                append_waits(schedule, direction, &waited, place + ahead + 1 - slots);
            append_at(schedule, TP_ACTION_POST_RECEIVE, direction, place + ahead);
        }
    }
    append_waits(schedule, direction, &waited, n);
}

/* Actions of a unit in one direction, at most: one of each kind. */
enum { UNIT_ACTIONS = TP_ACTION_WAIT_SEND + 1 };

enum tp_status tp_schedule_new(const struct tp_plan *plan, int stage, struct tp_schedule **out)
{
    const size_t n_units = (size_t)count_units(plan);
    struct tp_schedule *schedule = calloc(1, sizeof *schedule);
    if (schedule == NULL)
        goto fail;
    schedule->units = calloc(n_units, sizeof *schedule->units);
    schedule->actions = calloc(2 * UNIT_ACTIONS * n_units + 2, sizeof *schedule->actions);
    if (schedule->units == NULL || schedule->actions == NULL)
        goto fail;
    schedule->stage = stage;
    schedule->n_stages = plan->n_stages;
    schedule->n_units = (int)n_units;
    schedule->slots = n_units < TP_SCHEDULE_SLOTS ? (int)n_units : TP_SCHEDULE_SLOTS;

    const bool train = plan->schedule != TP_SCHEDULE_FORWARD;
    cut_groups(schedule, plan);
    place_units(schedule, train);
    append_direction(schedule, TP_FORWARD);
    if (train) {
        append_direction(schedule, TP_BACKWARD);
        append(schedule, TP_ACTION_REDUCE, TP_BACKWARD, -1);
        append(schedule, TP_ACTION_UPDATE, TP_BACKWARD, -1);
    }
    *out = schedule;
    return TP_OK;
fail:
    tp_schedule_free(schedule);
    return tp_fail(TP_ERR_MEMORY, "no memory for a schedule of %zu slices", n_units);
}

void tp_schedule_free(struct tp_schedule *schedule)
{
    if (schedule == NULL)
        return;
    free(schedule->units);
    free(schedule->actions);
    free(schedule);
}
