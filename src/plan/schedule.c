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

static bool is_interleaved(enum tp_schedule_kind kind)
{
    return kind == TP_SCHEDULE_1F1B || kind == TP_SCHEDULE_SEQ1F1B;
}

void tp_turns_init(struct tp_turns *turns, const struct tp_plan *plan, int stage)
{
    *turns = (struct tp_turns){.plan = plan, .stage = stage};
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
    turns->warm_up = is_interleaved(plan->schedule) && ahead < turns->units ? ahead : turns->units;
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

/* Tokens with live activations and sequences with live keys and values, at most. */
static void count_live(const struct tp_plan *plan, const struct tp_unit *units, int stage,
                       size_t *rows, int *sequences)
{
    size_t live_rows = 0;
    int live_sequences = 0, place;
    enum tp_direction direction;
    struct tp_turns turns;

    *rows = 0;
    *sequences = 0;
    tp_turns_init(&turns, plan, stage);
    while (tp_turns_next(&turns, &direction, &place)) {
        const struct tp_unit *unit = &units[tp_units_at(units, direction, place)];
        bool first = unit->number == 0; /* the last one backward */
        if (direction == TP_FORWARD) {
            live_rows += tp_unit_rows(unit);
            live_sequences += first ? unit->sequences : 0;
        } else {
            live_rows -= tp_unit_rows(unit);
            live_sequences -= first ? unit->sequences : 0;
        }
        *rows = *rows < live_rows ? live_rows : *rows;
        *sequences = *sequences < live_sequences ? live_sequences : *sequences;
    }
}

void tp_plan_stage_shape(const struct tp_plan *plan, const struct tp_unit *units, int stage,
                         struct tp_stage_shape *shape)
{
    const int n_units = tp_units_count(plan);

    *shape = (struct tp_stage_shape){
        .model = plan->model,
        .layers = plan->stages[stage],
        .seq_len = plan->seq_len,
        .batch = plan->batch,
        .slots = n_units < TP_SCHEDULE_SLOTS ? n_units : TP_SCHEDULE_SLOTS,
        .train = plan->schedule != TP_SCHEDULE_FORWARD,
        .recompute = plan->recompute,
        .op = plan->op,
    };
    for (int i = 0; i < n_units; i++) {
        size_t rows = tp_unit_rows(&units[i]);
        if (shape->unit_rows < rows)
            shape->unit_rows = rows;
        if (shape->group < units[i].sequences)
            shape->group = units[i].sequences;
    }
    count_live(plan, units, stage, &shape->rows, &shape->caches);
    if (!shape->train)
        shape->rows = (size_t)shape->slots * shape->unit_rows;
    shape->input_rows = shape->rows;
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

/* Gives each unit its rows and slots. */
static void place_units(struct tp_schedule *schedule, bool keep_rows)
{
    size_t row = 0;
    for (int i = 0; i < schedule->n_units; i++) {
        struct tp_unit *unit = &schedule->units[i];
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
            unit->slot[direction] = tp_schedule_unit_at(schedule, direction, i) % schedule->slots;
        unit->row = keep_rows ? row : (size_t)unit->slot[TP_FORWARD] * schedule->unit_rows;
        unit->input_row = unit->row;
        unit->cache = unit->first_sequence;
        row += tp_unit_rows(unit);
    }
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
    if (is_interleaved(plan->schedule) || plan->n_flights > 1)
        return tp_fail(TP_ERR_INPUT,
                       "schedule %s in %d flights: cannot be run, expected gpipe or terapipe in 1",
                       tp_schedule_name(plan->schedule), plan->n_flights);
    const size_t n_units = (size_t)tp_units_count(plan);
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

    const bool train = plan->schedule != TP_SCHEDULE_FORWARD;
    struct tp_stage_shape shape;
    tp_units_cut(plan, schedule->units);
    tp_plan_stage_shape(plan, schedule->units, stage, &shape);
    schedule->rows = shape.rows;
    schedule->input_rows = shape.input_rows;
    schedule->unit_rows = shape.unit_rows;
    schedule->batch = shape.batch;
    schedule->caches = shape.caches;
    schedule->group = shape.group;
    schedule->slots = shape.slots;
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
