/* SPDX-License-Identifier: Apache-2.0 */
/* Every change makes a plan of its own, which takes the place of the best one when it is better. A
 * plan that cannot be faster by its bound is not simulated. Groups that are cut alike are first
 * changed together: one of many alone rarely matters, and there are far fewer changes to try. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/bound.h"
#include "plan/refine.h"
#include "plan/schedule.h"

/* How much faster a plan has to be to count as better: more than rounding. */
#define GAIN 1e-9

struct refiner {
    const struct tp_refine_task *task;
    struct tp_refined best; /* plan NULL: none yet */
    size_t lack;            /* bytes that the best lacks */
    int64_t left;           /* of the work */
};

/* Groups that are changed alike. */
struct range {
    int first, end;
};

/* ---- Judging ---- */

static size_t memory_of(const struct tp_plan *plan, const struct tp_cost *cost, size_t memory,
                        int stage)
{
    size_t least = SIZE_MAX;

    if (memory > 0)
        return memory;
    for (int rank = stage * plan->op; rank < (stage + 1) * plan->op; rank++) {
        const size_t has = cost->devices[tp_cost_device_of(cost, rank)].memory;
        least = has > 0 && has < least ? has : least;
    }
    return least;
}

static size_t lack_of(const struct tp_shortage *shortage)
{
    return shortage->need > shortage->limit ? shortage->need - shortage->limit : 0;
}

void tp_shortage_find(const struct tp_plan *plan, const struct tp_cost *cost, size_t memory,
                      const struct tp_simulation *simulation, struct tp_shortage *shortage)
{
    struct tp_shortage worst = {.stage = -1};

    for (int k = 0; k < plan->n_stages; k++) {
        const struct tp_shortage here = {k, simulation->stages[k].peak_bytes,
                                         memory_of(plan, cost, memory, k)};
        const bool fuller = lack_of(&here) == 0 && lack_of(&worst) == 0 && here.need > worst.need;
        if (worst.stage < 0 || lack_of(&here) > lack_of(&worst) || fuller)
            worst = here;
    }
    *shortage = worst;
}

/* May the plan be better than the best one, as far as the bound tells? */
static enum tp_status may_win(const struct refiner *r, const struct tp_plan *plan, bool *may)
{
    double seconds;

    *may = true;
    if (r->best.plan == NULL || r->lack > 0)
        return TP_OK;
    TP_TRY(tp_plan_bound(plan, r->task->cost, &seconds));
    *may = seconds < r->best.simulation.step_seconds * (1 - GAIN);
    return TP_OK;
}

static bool is_better(const struct refiner *r, size_t lack, const struct tp_simulation *simulation)
{
    if (r->best.plan == NULL || lack != r->lack)
        return r->best.plan == NULL || lack < r->lack;
    return simulation->step_seconds < r->best.simulation.step_seconds * (1 - GAIN);
}

/* Judges a plan and takes it over. */
static enum tp_status judge(struct refiner *r, struct tp_plan *plan, bool *better)
{
    struct tp_simulation simulation;
    struct tp_shortage shortage;
    bool may;
    enum tp_status status = may_win(r, plan, &may);

    *better = false;
    r->left -= tp_units_count(plan);
    if (status != TP_OK || !may) {
        tp_plan_free(plan);
        return status;
    }
    status = tp_simulate(plan, r->task->cost, NULL, &simulation);
    if (status != TP_OK) {
        tp_plan_free(plan);
        return status;
    }
    r->left -= 2 * (int64_t)plan->n_stages * tp_units_count(plan);
    r->best.simulated++;
    tp_shortage_find(plan, r->task->cost, r->task->memory, &simulation, &shortage);
    *better = is_better(r, lack_of(&shortage), &simulation);
    if (!*better) {
        tp_simulation_fini(&simulation);
        tp_plan_free(plan);
        return TP_OK;
    }
    if (r->best.plan != NULL)
        tp_refined_fini(&r->best);
    r->best.plan = plan;
    r->best.simulation = simulation;
    r->best.shortage = shortage;
    r->lack = lack_of(&shortage);
    return TP_OK;
}

/* ---- Changing slices ---- */

/* A change of the slices of one group. */
struct cut {
    enum { SHIFT, JOIN, HALVE } kind;
    int at;     /* slice, the former one of two */
    int tokens; /* SHIFT: that it gets from the next one */
};

/* There is room for one slice more. False: the change cannot be made. */
static bool change_slices(const struct cut *cut, int grain, struct tp_slices *slices)
{
    int *at = slices->lengths + cut->at;
    const int behind = slices->count - cut->at - 1; /* slices */

    switch (cut->kind) {
    case SHIFT:
        if (behind == 0 || at[0] + cut->tokens < 1 || at[1] - cut->tokens < 1)
            return false;
        at[0] += cut->tokens;
        at[1] -= cut->tokens;
        return true;
    case JOIN:
        if (behind == 0)
            return false;
        at[0] += at[1];
        memmove(at + 1, at + 2, (size_t)(behind - 1) * sizeof *at);
        slices->count--;
        return true;
    case HALVE:
        break;
    }
    const int half = (at[0] / 2 + grain - 1) / grain * grain;
    if (half == 0 || half >= at[0])
        return false;
    memmove(at + 2, at + 1, (size_t)behind * sizeof *at);
    at[1] = at[0] - half;
    at[0] = half;
    slices->count++;
    return true;
}

/* The same plan, to be changed. */
static enum tp_status copy(const struct tp_plan *plan, struct tp_plan **out)
{
    return tp_plan_shrink(plan, plan->batch, plan->schedule, out);
}

/* Tries a change of the slices of a range of groups, which are alike. */
static enum tp_status try_cut(struct refiner *r, const struct range *range, const struct cut *cut,
                              bool *better)
{
    struct tp_plan *plan;
    bool done = true;

    TP_TRY(copy(r->best.plan, &plan));
    for (int g = range->first; g < range->end && done; g++) {
        struct tp_slices *slices = &plan->groups[g].slices;
        int *lengths = realloc(slices->lengths, ((size_t)slices->count + 1) * sizeof *lengths);
        if (lengths == NULL) {
            tp_plan_free(plan);
            return tp_fail(TP_ERR_MEMORY, "no memory for %d slices", slices->count + 1);
        }
        slices->lengths = lengths;
        done = change_slices(cut, r->task->grain, slices);
    }
    if (done)
        return judge(r, plan, better);
    tp_plan_free(plan);
    return TP_OK;
}

/* ---- Changing groups ---- */

/* Writes the sequences of a plan's groups and which group of the best plan each is cut like. */
struct grouping {
    int n_groups;
    int *sequences, *like;
};

static bool are_measured(const struct tp_cost *cost, int sequences)
{
    for (int d = 0; d < cost->n_devices; d++)
        if (!cost->has_group(cost->self, d, sequences))
            return false;
    return true;
}

/* Tries a plan with these groups. */
static enum tp_status try_grouping(struct refiner *r, const struct grouping *grouping, bool *better)
{
    const struct tp_plan *from = r->best.plan;
    struct tp_plan *plan;

    for (int g = 0; g < grouping->n_groups; g++)
        if (!are_measured(r->task->cost, grouping->sequences[g]))
            return TP_OK;
    TP_TRY(tp_plan_new(from, grouping->n_groups, &plan));
    memcpy(plan->stages, from->stages, (size_t)from->n_stages * sizeof *plan->stages);
    plan->flights[0] = grouping->n_groups;
    for (int g = 0; g < grouping->n_groups; g++) {
        enum tp_status status =
            tp_slices_copy(&from->groups[grouping->like[g]].slices, &plan->groups[g].slices);
        if (status != TP_OK) {
            tp_plan_free(plan);
            return status;
        }
        plan->groups[g].sequences = grouping->sequences[g];
    }
    return judge(r, plan, better);
}

enum regroup { JOIN_GROUPS, HALVE_GROUPS, MOVE_SEQUENCE, MOVE_BACK, EXCHANGE, REGROUPS };

static void add_group(struct grouping *grouping, int sequences, int like)
{
    grouping->sequences[grouping->n_groups] = sequences;
    grouping->like[grouping->n_groups++] = like;
}

/* Two neighbouring groups become others; false: they cannot. */
static bool change_pair(const struct tp_plan *plan, int g, enum regroup kind,
                        struct grouping *grouping)
{
    const int a = plan->groups[g].sequences, b = plan->groups[g + 1].sequences;

    switch (kind) {
    case JOIN_GROUPS:
        add_group(grouping, a + b, g);
        return true;
    case MOVE_SEQUENCE:
        add_group(grouping, a - 1, g);
        add_group(grouping, b + 1, g + 1);
        return a > 1;
    case MOVE_BACK:
        add_group(grouping, a + 1, g);
        add_group(grouping, b - 1, g + 1);
        return b > 1;
    default:
        add_group(grouping, b, g + 1);
        add_group(grouping, a, g);
        return true;
    }
}

/* Changes the groups of a range: each alone when halved, else in pairs. */
static bool change_groups(const struct tp_plan *plan, const struct range *range, enum regroup kind,
                          struct grouping *grouping)
{
    bool changed = false;

    grouping->n_groups = 0;
    for (int g = 0; g < plan->n_groups; g++) {
        const int sequences = plan->groups[g].sequences;
        const bool inside = g >= range->first && g < range->end;
        if (inside && kind == HALVE_GROUPS && sequences > 1) {
            add_group(grouping, (sequences + 1) / 2, g);
            add_group(grouping, sequences / 2, g);
            changed = true;
        } else if (inside && kind != HALVE_GROUPS && g + 1 < range->end) {
            if (!change_pair(plan, g, kind, grouping))
                return false;
            changed = true;
            g++;
        } else {
            add_group(grouping, sequences, g);
        }
    }
    return changed;
}

static enum tp_status try_regroup(struct refiner *r, const struct range *range, enum regroup kind,
                                  bool *better)
{
    const struct tp_plan *plan = r->best.plan;
    int *numbers = calloc(4 * (size_t)plan->n_groups, sizeof *numbers);
    struct grouping grouping = {.sequences = numbers};
    enum tp_status status = TP_OK;

    if (numbers == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d groups", plan->n_groups);
    grouping.like = numbers + 2 * plan->n_groups;
    if (change_groups(plan, range, kind, &grouping))
        status = try_grouping(r, &grouping, better);
    free(numbers);
    return status;
}

/* ---- Changing stages ---- */

static enum tp_status try_layer(struct refiner *r, int from, int to, bool *better)
{
    struct tp_plan *plan;

    if (from == to || r->best.plan->stages[from].n_layer == 1)
        return TP_OK;
    TP_TRY(copy(r->best.plan, &plan));
    plan->stages[from].n_layer--;
    plan->stages[to].n_layer++;
    for (int k = 0, first = 0; k < plan->n_stages; first += plan->stages[k++].n_layer)
        plan->stages[k].first_layer = first;
    return judge(r, plan, better);
}

static int busiest(const struct tp_simulation *simulation)
{
    int stage = 0;

    for (int k = 1; k < simulation->n_stages; k++)
        if (simulation->stages[k].busy > simulation->stages[stage].busy)
            stage = k;
    return stage;
}

/* ---- All changes ---- */

static bool alike(const struct tp_group *a, const struct tp_group *b)
{
    return a->sequences == b->sequences && a->slices.count == b->slices.count &&
           memcmp(a->slices.lengths, b->slices.lengths,
                  (size_t)a->slices.count * sizeof *a->slices.lengths) == 0;
}

/* The groups from one on that are alike. */
static struct range range_from(const struct tp_plan *plan, int first)
{
    struct range range = {first, first + 1};

    while (range.end < plan->n_groups && alike(&plan->groups[first], &plan->groups[range.end]))
        range.end++;
    return range;
}

static bool goes_on(const struct refiner *r)
{
    return r->left > 0;
}

/* The cuts of a range's slices. */
static enum tp_status improve_slices(struct refiner *r, struct range range, int step, bool *better)
{
    for (int i = 0; i < r->best.plan->groups[range.first].slices.count; i++) {
        const struct cut cuts[] = {
            {SHIFT, i, step}, {SHIFT, i, -step}, {JOIN, i, 0}, {HALVE, i, 0}};
        for (int c = 0; c < 4 && goes_on(r); c++) {
            bool helps = false;
            if (i >= r->best.plan->groups[range.first].slices.count)
                break;
            TP_TRY(try_cut(r, &range, &cuts[c], &helps));
            *better = *better || helps;
        }
    }
    return TP_OK;
}

/* Groups that are alike together, then the first and the last of them alone. */
static enum tp_status improve_cuts(struct refiner *r, int step, bool *better)
{
    for (int g = 0; g < r->best.plan->n_groups; g = range_from(r->best.plan, g).end) {
        const struct range all = range_from(r->best.plan, g);
        TP_TRY(improve_slices(r, all, step, better));
        if (all.end - all.first == 1)
            continue;
        TP_TRY(improve_slices(r, (struct range){all.first, all.first + 1}, step, better));
        TP_TRY(improve_slices(r, (struct range){all.end - 1, all.end}, step, better));
    }
    return TP_OK;
}

/* Groups that are alike together, then the first of them and the last with its neighbour. */
static enum tp_status improve_range(struct refiner *r, int first, enum regroup kind, bool *better)
{
    const struct range all = range_from(r->best.plan, first);
    const int size = kind == HALVE_GROUPS ? 1 : 2;
    const struct range ranges[] = {
        all, {all.first, all.first + size}, {all.end - 1, all.end - 1 + size}};

    for (int i = 0; i < 3 && goes_on(r); i++) {
        bool helps = false;
        if (ranges[i].end <= r->best.plan->n_groups)
            TP_TRY(try_regroup(r, &ranges[i], kind, &helps));
        *better = *better || helps;
        if (helps)
            break;
    }
    return TP_OK;
}

static enum tp_status improve_groups(struct refiner *r, bool *better)
{
    for (int g = 0; g < r->best.plan->n_groups; g = range_from(r->best.plan, g).end) {
        for (int kind = 0; kind < REGROUPS && g < r->best.plan->n_groups; kind++)
            TP_TRY(improve_range(r, g, kind, better));
        if (g >= r->best.plan->n_groups)
            break;
    }
    return TP_OK;
}

/* A layer to a neighbour, or from the busiest stage to any. */
static enum tp_status improve_stages(struct refiner *r, bool *better)
{
    const int n_stages = r->best.plan->n_stages;

    for (int k = 0; k < n_stages && goes_on(r); k++) {
        const int moves[][2] = {{k, k + 1}, {k, k - 1}, {busiest(&r->best.simulation), k}};
        for (int m = 0; m < 3; m++) {
            bool helps = false;
            if (moves[m][1] >= 0 && moves[m][1] < n_stages)
                TP_TRY(try_layer(r, moves[m][0], moves[m][1], &helps));
            *better = *better || helps;
        }
    }
    return TP_OK;
}

/* Until nothing helps at that step. */
static enum tp_status improve(struct refiner *r, int step)
{
    const struct tp_refine_task *task = r->task;
    bool better = true;

    while (better && goes_on(r)) {
        better = false;
        if (task->may_layer)
            TP_TRY(improve_stages(r, &better));
        if (task->may_group)
            TP_TRY(improve_groups(r, &better));
        if (task->may_cut && !tp_schedule_is_whole(r->best.plan->schedule))
            TP_TRY(improve_cuts(r, step, &better));
    }
    return TP_OK;
}

static enum tp_status run(struct refiner *r, const struct tp_plan *const *starts, int n_starts)
{
    int step = r->task->grain;
    bool better;

    for (int i = 0; i < n_starts; i++) {
        struct tp_plan *plan;
        TP_TRY(copy(starts[i], &plan));
        TP_TRY(judge(r, plan, &better));
    }
    r->left = r->task->work;
    while (step <= r->best.plan->seq_len / 8)
        step *= 2;
    for (; step >= r->task->grain && goes_on(r); step /= 2)
        TP_TRY(improve(r, step));
    return TP_OK;
}

enum tp_status tp_refine(const struct tp_refine_task *task, const struct tp_plan *const *starts,
                         int n_starts, struct tp_refined *refined)
{
    struct refiner refiner = {.task = task};

    TP_ASSERT(n_starts > 0);
    enum tp_status status = run(&refiner, starts, n_starts);
    if (status == TP_OK)
        *refined = refiner.best;
    else if (refiner.best.plan != NULL)
        tp_refined_fini(&refiner.best);
    return status;
}

void tp_refined_fini(struct tp_refined *refined)
{
    tp_simulation_fini(&refined->simulation);
    tp_plan_free(refined->plan);
    refined->plan = NULL;
}
