/* SPDX-License-Identifier: Apache-2.0 */
/* Where a stage keeps its units: the memory that a schedule needs, no more. One walk over the
 * stage's turns takes and gives back rows, so that what a planner predicts is what a stage takes.
 */
#include "config.h"

#include <stdlib.h>

#include "plan/schedule.h"
#include "ranges.h"

/* ---- First fit ---- */

/* Some memory, and how much of it was needed. */
struct memory {
    struct tp_ranges used;
    size_t least;       /* what is taken for smaller ones */
    size_t alive, peak; /* asked for at present, and at most so far */
    size_t most;        /* the largest end so far */
};

static void clear(struct memory *memory, size_t least)
{
    *memory = (struct memory){.used.at = memory->used.at, .least = least};
}

static size_t larger(size_t a, size_t b)
{
    return a < b ? b : a;
}

/* The lowest place for so many. */
static size_t take(struct memory *memory, size_t asked)
{
    const size_t count = larger(asked, memory->least);
    const size_t first = tp_ranges_fit(&memory->used, count);

    tp_ranges_take(&memory->used, first, count);
    memory->alive += asked;
    memory->peak = larger(memory->peak, memory->alive);
    memory->most = larger(memory->most, first + count);
    return first;
}

static void give_back(struct memory *memory, size_t first, size_t asked)
{
    tp_ranges_give_back(&memory->used, first, larger(asked, memory->least));
    memory->alive -= asked;
}

/* ---- The walk ---- */

struct walk {
    struct tp_unit *units;
    bool delays; /* what a group's weight gradients need lives to its end, in one piece */
    struct tp_turns turns;
    struct memory rows, inputs, caches;
    int posted;      /* forward places whose input has a place */
    bool alternates; /* some forward came after a backward of its flight */
};

/* A unit's place: its own or, in one piece, behind those of the group's earlier slices. */
static size_t take_rows(const struct walk *walk, struct memory *memory, const struct tp_unit *unit,
                        size_t before)
{
    const size_t sequences = (size_t)unit->sequences;

    if (!walk->delays)
        return take(memory, tp_unit_rows(unit));
    if (unit->number > 0)
        return before + sequences * (size_t)unit[-1].slice.length;
    return take(memory, sequences * (size_t)walk->turns.plan->seq_len);
}

static void give_back_rows(const struct walk *walk, struct memory *memory,
                           const struct tp_unit *unit, size_t first)
{
    if (!walk->delays)
        give_back(memory, first, tp_unit_rows(unit));
    else if (unit->number == 0)
        give_back(memory, first, (size_t)unit->sequences * (size_t)walk->turns.plan->seq_len);
}

/* Inputs get their places when their receives are posted, up to, without, place end. */
static void place_inputs(struct walk *walk, int end)
{
    const int flight_end = walk->turns.first + walk->turns.units;

    for (; walk->posted < end && walk->posted < flight_end; walk->posted++) {
        struct tp_unit *unit = &walk->units[walk->posted];
        unit->input_row =
            take_rows(walk, &walk->inputs, unit, unit->number > 0 ? unit[-1].input_row : 0);
    }
}

static void place_forward(struct walk *walk, int place)
{
    const int ahead = tp_turns_ahead(&walk->turns, TP_FORWARD);
    struct tp_unit *unit = &walk->units[place];

    place_inputs(walk, place + (ahead > 0 ? ahead : 1));
    unit->row = take_rows(walk, &walk->rows, unit, unit->number > 0 ? unit[-1].row : 0);
    unit->cache =
        unit->number > 0 ? unit[-1].cache : (int)take(&walk->caches, (size_t)unit->sequences);
    if (ahead > 0)
        place_inputs(walk, place + ahead + 1);
}

/* The first slice's backward is its group's last. */
static void leave_backward(struct walk *walk, int place)
{
    const struct tp_unit *unit = &walk->units[tp_units_at(walk->units, TP_BACKWARD, place)];

    give_back_rows(walk, &walk->rows, unit, unit->row);
    give_back_rows(walk, &walk->inputs, unit, unit->input_row);
    if (unit->number == 0)
        give_back(&walk->caches, (size_t)unit->cache, (size_t)unit->sequences);
}

/* A step, with places for rows, and inputs, that are no smaller than this. */
static void walk_step(struct walk *walk, const struct tp_plan *plan, int stage, size_t least_rows,
                      size_t least_inputs)
{
    enum tp_direction direction;
    int place;

    clear(&walk->rows, least_rows);
    clear(&walk->inputs, least_inputs);
    clear(&walk->caches, 0);
    walk->posted = 0;
    walk->alternates = false;
    tp_turns_init(&walk->turns, plan, stage);
    while (tp_turns_next(&walk->turns, &direction, &place))
        if (direction == TP_FORWARD) {
            place_forward(walk, place);
            walk->alternates = walk->alternates || walk->turns.done[TP_BACKWARD] > 0;
        } else {
            leave_backward(walk, place);
        }
}

/* A slice that is somewhat longer than the one before it in a place needs another one. So when
 * slices of several lengths leave gaps, equal places, which fit all, may need less in all. */
static void walk_best(struct walk *walk, const struct tp_plan *plan, int stage, size_t equal)
{
    walk_step(walk, plan, stage, 0, 0);
    const size_t rows = walk->rows.most, inputs = walk->inputs.most;

    if (rows == walk->rows.peak && inputs == walk->inputs.peak)
        return;
    walk_step(walk, plan, stage, equal, equal);
    walk_step(walk, plan, stage, walk->rows.most < rows ? equal : 0,
              walk->inputs.most < inputs ? equal : 0);
}

static enum tp_status place_training(const struct tp_plan *plan, struct tp_unit *units, int n_units,
                                     int stage, struct tp_stage_shape *shape)
{
    const size_t most = (size_t)n_units + 1;
    struct tp_range *ranges = malloc(3 * most * sizeof *ranges);
    struct walk walk = {.units = units,
                        .delays = plan->delay_wgrad,
                        .rows.used.at = ranges,
                        .inputs.used.at = ranges + most,
                        .caches.used.at = ranges + 2 * most};

    if (ranges == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory to place %d slices", n_units);
    walk_best(&walk, plan, stage, tp_gradient_rows(shape));
    shape->rows = walk.rows.most;
    shape->input_rows = walk.inputs.most;
    shape->caches = (int)walk.caches.most;
    shape->alternates = walk.alternates || plan->recompute;
    free(ranges);
    return TP_OK;
}

/* Without backward nothing lives on: a stage computes in order, so that all units have the same
 * rows and all groups the same keys and values. Only inputs come while another one is computed. */
static void place_forward_only(const struct tp_plan *plan, struct tp_unit *units, int n_units,
                               int stage, struct tp_stage_shape *shape)
{
    struct tp_turns turns;

    tp_turns_init(&turns, plan, stage);
    const int ahead = tp_turns_ahead(&turns, TP_FORWARD);
    const int inputs = ahead < n_units ? ahead + 1 : n_units;
    for (int i = 0; i < n_units; i++) {
        units[i].row = 0;
        units[i].input_row = (size_t)(i % inputs) * shape->unit_rows;
        units[i].cache = 0;
    }
    shape->rows = shape->unit_rows;
    shape->input_rows = (size_t)inputs * shape->unit_rows;
    shape->caches = shape->group;
}

enum tp_status tp_plan_stage_shape(const struct tp_plan *plan, struct tp_unit *units, int stage,
                                   struct tp_stage_shape *out)
{
    const int n_units = tp_units_count(plan);
    struct tp_stage_shape shape = {
        .model = plan->model,
        .layers = plan->stages[stage],
        .seq_len = plan->seq_len,
        .batch = plan->batch,
        .slots = n_units < TP_SCHEDULE_SLOTS ? n_units : TP_SCHEDULE_SLOTS,
        .train = plan->schedule != TP_SCHEDULE_FORWARD,
        .recompute = plan->recompute,
        .delay_wgrad = plan->delay_wgrad && plan->schedule != TP_SCHEDULE_FORWARD,
        .op = plan->op,
        .shards = plan->zero ? plan->data : 1,
    };

    for (int i = 0; i < n_units; i++) {
        const size_t rows = tp_unit_rows(&units[i]);
        if (shape.unit_rows < rows)
            shape.unit_rows = rows;
        if (shape.group < units[i].sequences)
            shape.group = units[i].sequences;
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
            units[i].slot[direction] = tp_units_at(units, direction, i) % shape.slots;
    }
    if (shape.train)
        TP_TRY(place_training(plan, units, n_units, stage, &shape));
    else
        place_forward_only(plan, units, n_units, stage, &shape);
    *out = shape;
    return TP_OK;
}
