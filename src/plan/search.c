/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/assign.h"
#include "plan/search.h"

const char *const tp_search_choices[] = {"gpipe", "terapipe", "1f1b", "seq1f1b", "auto", NULL};
const char *const tp_recompute_choices[] = {"none", "cell", NULL};

enum {
    MANY = 16,             /* up to so many uniform slices all numbers are tried, then every few */
    MOST = 128,            /* uniform slices at most */
    SIZES = 32,            /* sizes of groups that are tried at most */
    SLICES = 16 * 1 << 20, /* times of slices that the closed form may keep */
    ALL_SIZES = 256,       /* of groups in the closed form: up to so many all of them, */
    FEW_SIZES = 128,       /* else so many, */
    FEW_SLICES = 4 << 20   /* with so many times of slices */
};

/* Plans to start from, under one schedule. */
struct starts {
    int count, room;
    struct tp_plan **at;
};

static enum tp_status starts_add(struct starts *starts, struct tp_plan *plan)
{
    if (starts->count == starts->room) {
        const int room = starts->room == 0 ? 64 : 2 * starts->room;
        struct tp_plan **at = realloc(starts->at, (size_t)room * sizeof(struct tp_plan *));
        if (at == NULL) {
            tp_plan_free(plan);
            return tp_fail(TP_ERR_MEMORY, "no memory for a list of plans");
        }
        starts->at = at;
        starts->room = room;
    }
    starts->at[starts->count++] = plan;
    return TP_OK;
}

static void starts_fini(struct starts *starts)
{
    for (int i = 0; i < starts->count; i++)
        tp_plan_free(starts->at[i]);
    free(starts->at);
}

/* Closed forms: of each objective, without links and with them. */
enum { FORMS = 4 };

/* One way to make plans: under a schedule, with recompute or without. */
struct way {
    const struct tp_search_task *task;
    enum tp_schedule_kind schedule;
    bool recompute;
    int64_t work;             /* turns that may be simulated for it */
    struct tp_optimal *forms; /* [FORMS] shared by ways that differ in their schedule only */
    struct starts starts;
    struct tp_found best; /* plan NULL: none yet */
};

/* ---- The closed form ---- */

/* A cost that lets all stages carry what the closed form cannot see: embedding and head in equal
 * parts, and links as if their time were computed. */
struct spread {
    const struct tp_cost *cost;
    double layers; /* of the model */
    int n_embd, n_layer;
    bool recompute, links;
};

static bool spread_has_group(const void *self, int device, int b)
{
    const struct spread *spread = self;

    return spread->cost->has_group(spread->cost->self, device, b);
}

static double spread_layer(const void *self, int device, enum tp_direction direction, int b, int s,
                           int c)
{
    const struct spread *spread = self;
    const struct tp_cost *cost = spread->cost;
    const size_t element = (size_t)cost->devices[device].footprint.element_bytes;
    double seconds = cost->layer(cost->self, device, direction, b, s, c);

    if (direction == TP_BACKWARD && spread->recompute)
        seconds += cost->layer(cost->self, device, TP_FORWARD, b, s, c);
    if (!spread->links)
        return seconds;
    seconds += (cost->embed(cost->self, device, direction, b, s) +
                cost->head(cost->self, device, direction, b, s)) /
               spread->layers;
    return seconds +
           cost->link(cost->self, 0, (size_t)b * (size_t)s * (size_t)spread->n_embd * element) /
               spread->n_layer;
}

/* A layer of a whole sequence on a device, for comparison of devices. */
static double whole_layer(const struct tp_search_task *task, int device)
{
    const struct tp_cost *cost = task->cost;
    int b = 1;

    while (b < task->batch && !cost->has_group(cost->self, device, b))
        b++;
    return cost->layer(cost->self, device, TP_FORWARD, b, task->seq_len, 0) +
           cost->layer(cost->self, device, TP_BACKWARD, b, task->seq_len, 0);
}

/* What stands for all stages: the slowest device, and as many layers as it has when all stages
 * take equally long. */
static void find_stage(const struct tp_search_task *task, int *device, int *n_layer)
{
    const struct tp_cost *cost = task->cost;
    double slowest = -INFINITY, speed = 0;

    for (int k = 0; k < task->pipe; k++)
        for (int rank = k * cost->op; rank < (k + 1) * cost->op; rank++) {
            const double seconds = whole_layer(task, tp_cost_device_of(cost, rank));
            if (seconds > slowest) {
                slowest = seconds;
                *device = tp_cost_device_of(cost, rank);
            }
        }
    for (int k = 0; k < task->pipe; k++) {
        double seconds = 0;
        for (int rank = k * cost->op; rank < (k + 1) * cost->op; rank++)
            seconds = fmax(seconds, whole_layer(task, tp_cost_device_of(cost, rank)));
        speed += seconds > 0 ? slowest / seconds : 1;
    }
    const double layers = ceil(task->model->n_layer / speed - 1e-9);
    *n_layer = layers > 1 ? (int)layers : 1;
}

/* What a plan of this way is, apart from its groups. */
static void find_facts(const struct way *way, struct tp_plan *facts)
{
    const struct tp_search_task *task = way->task;

    *facts = (struct tp_plan){.model = *task->model,
                              .seq_len = task->seq_len,
                              .batch = task->batch,
                              .data = task->data,
                              .pipe = task->pipe,
                              .op = task->cost->op,
                              .schedule = way->schedule,
                              .n_stages = task->pipe,
                              .recompute = way->recompute,
                              .zero = task->zero,
                              .delay_wgrad = task->delay_wgrad,
                              .n_flights = 1};
}

/* Takes over the groups of an optimum; sequences beyond those go into groups of their own, cut like
 * the last one. */
static enum tp_status plan_of_optimal(const struct way *way, const struct tp_optimal *optimal,
                                      int rest, struct tp_plan **out)
{
    const int n_groups = optimal->n_groups + (rest > 0);
    struct tp_plan facts, *plan;

    find_facts(way, &facts);
    TP_TRY(tp_plan_new(&facts, n_groups, &plan));
    plan->flights[0] = n_groups;
    tp_stages_even(facts.model.n_layer, facts.n_stages, plan->stages);
    for (int g = 0; g < n_groups; g++) {
        const struct tp_group *from = &optimal->groups[g < optimal->n_groups ? g : g - 1];
        enum tp_status status = tp_slices_copy(&from->slices, &plan->groups[g].slices);
        if (status != TP_OK) {
            tp_plan_free(plan);
            return status;
        }
        plan->groups[g].sequences = g < optimal->n_groups ? from->sequences : rest;
    }
    *out = plan;
    return TP_OK;
}

/* The closed form with all groups of one size: a unit is such a group. */
struct sized {
    const struct tp_cost *cost;
    int size;
};

static bool sized_has_group(const void *self, int device, int b)
{
    const struct sized *sized = self;

    return b == 1 && sized->cost->has_group(sized->cost->self, device, sized->size);
}

static double sized_layer(const void *self, int device, enum tp_direction direction, int b, int s,
                          int c)
{
    const struct sized *sized = self;

    return sized->cost->layer(sized->cost->self, device, direction, b * sized->size, s, c);
}

/* Room for the times of few sizes of groups, or a coarser grain. */
static void limit_tables(struct tp_optimal_task *task)
{
    const int grain = task->grain;
    double slices; /* of a size */

    for (;; task->grain += grain) {
        const double units = ceil((double)task->seq_len / task->grain);
        slices = task->whole ? 1 : units * units / 2;
        if (slices <= SLICES)
            break;
    }
    if (task->batch <= ALL_SIZES && task->batch * slices <= SLICES)
        return;
    task->max_sizes = slices < FEW_SLICES ? (int)(FEW_SLICES / slices) : 1;
    if (task->max_sizes > FEW_SIZES)
        task->max_sizes = FEW_SIZES;
}

static bool has_fixed_groups(const struct tp_search_task *task)
{
    return task->group_size > 0 && task->group_size <= task->batch;
}

static enum tp_status solve_form(const struct way *way, enum tp_objective objective, bool links,
                                 struct tp_optimal *optimal)
{
    const struct tp_search_task *task = way->task;
    struct spread spread = {.cost = task->cost,
                            .layers = task->model->n_layer,
                            .n_embd = task->model->n_embd,
                            .recompute = way->recompute,
                            .links = links};
    struct tp_cost cost = *task->cost;
    cost.self = &spread;
    cost.has_group = spread_has_group;
    cost.layer = spread_layer;
    const struct sized sized = {.cost = &cost, .size = task->group_size};
    struct tp_cost of_groups = cost;
    of_groups.self = &sized;
    of_groups.has_group = sized_has_group;
    of_groups.layer = sized_layer;

    const bool fixed = has_fixed_groups(task);
    struct tp_optimal_task form = {.cost = fixed ? &of_groups : &cost,
                                   .n_stages = task->pipe,
                                   .seq_len = task->seq_len,
                                   .batch = fixed ? task->batch / task->group_size : task->batch,
                                   .grain = task->grain,
                                   .whole = tp_schedule_is_whole(way->schedule),
                                   .objective = objective,
                                   .epsilon = task->epsilon};
    find_stage(task, &form.device, &form.n_layer);
    spread.n_layer = form.n_layer;
    limit_tables(&form);

    TP_TRY(tp_optimal_solve(&form, optimal));
    optimal->bounded = optimal->bounded || form.grain > task->grain;
    for (int g = 0; fixed && g < optimal->n_groups; g++)
        optimal->groups[g].sequences = task->group_size;
    return TP_OK;
}

/* Adds the closed form's plan, and solves it unless another way has done so. */
static enum tp_status add_optimal(struct way *way, enum tp_objective objective, bool links,
                                  const struct tp_optimal **out)
{
    const struct tp_search_task *task = way->task;
    const int rest = has_fixed_groups(task) ? task->batch % task->group_size : 0;
    struct tp_optimal *optimal = &way->forms[2 * (int)objective + links];
    struct tp_plan *plan;

    if (optimal->n_groups == 0)
        TP_TRY(solve_form(way, objective, links, optimal));
    TP_TRY(plan_of_optimal(way, optimal, rest, &plan));
    *out = optimal;
    return starts_add(&way->starts, plan);
}

/* ---- Uniform slices ---- */

static bool is_measured(const struct tp_cost *cost, int sequences)
{
    for (int d = 0; d < cost->n_devices; d++)
        if (!cost->has_group(cost->self, d, sequences))
            return false;
    return true;
}

/* Sizes of groups to try: powers of two, the batch's part for each stage, and the batch; or the one
 * that is asked for. Only those that, with their remainder, have times. */
static int list_sizes(const struct tp_search_task *task, int sizes[SIZES])
{
    const int batch = task->batch, part = (batch - 1) / task->pipe + 1;
    int wanted[SIZES + 2], n = 0, count = 0;

    if (task->group_size > 0) {
        wanted[n++] = task->group_size < batch ? task->group_size : batch;
    } else {
        for (int size = 1; size < batch && n < SIZES - 2; size *= 2)
            wanted[n++] = size;
        wanted[n++] = batch;
        if ((part & (part - 1)) != 0 && part != batch)
            wanted[n++] = part;
    }
    for (int i = 0; i < n; i++)
        if (is_measured(task->cost, wanted[i]) &&
            (batch % wanted[i] == 0 || is_measured(task->cost, batch % wanted[i])))
            sizes[count++] = wanted[i];
    return count;
}

/* So many slices at the grain, as equal as can be. */
static enum tp_status cut_uniformly(const struct tp_search_task *task, int count,
                                    struct tp_slices *slices)
{
    const int grains = (task->seq_len - 1) / task->grain + 1;

    TP_TRY(tp_slices_uniform(grains, count, slices));
    int left = task->seq_len;
    for (int i = 0; i < count; i++) {
        const int length = slices->lengths[i] * task->grain;
        slices->lengths[i] = length < left ? length : left;
        left -= slices->lengths[i];
    }
    return TP_OK;
}

static enum tp_status add_cut(struct way *way, int group_size, const struct tp_slices *slices)
{
    const struct tp_search_task *task = way->task;
    struct tp_plan *plan;

    TP_TRY(tp_plan_default(task->model, task->seq_len, task->batch, task->pipe, way->schedule,
                           group_size, slices, &plan));
    plan->data = task->data;
    plan->op = task->cost->op;
    plan->recompute = way->recompute;
    plan->zero = task->zero;
    plan->delay_wgrad = task->delay_wgrad;
    return starts_add(&way->starts, plan);
}

/* Groups of a size, cut in one slice, two, ..., as long as simulating them takes no more turns. */
static enum tp_status add_uniform(struct way *way, int group_size, int64_t turns)
{
    const struct tp_search_task *task = way->task;
    const int64_t n_groups = (task->batch - 1) / group_size + 1;
    const int grains = (task->seq_len - 1) / task->grain + 1;
    const int most = tp_schedule_is_whole(way->schedule) ? 1 : grains < MOST ? grains : MOST;

    if (task->slices != NULL)
        return add_cut(way, group_size, task->slices);
    for (int count = 1; count <= most && turns > 0; count += 1 + count / MANY) {
        struct tp_slices slices;
        turns -= 2 * task->pipe * n_groups * count;
        TP_TRY(cut_uniformly(task, count, &slices));
        enum tp_status status = add_cut(way, group_size, &slices);
        tp_slices_fini(&slices);
        TP_TRY(status);
    }
    return TP_OK;
}

/* ---- One way ---- */

/* Gives each start's layers to stages by what they take, besides in equal parts. */
static enum tp_status assign_layers(struct way *way)
{
    const int count = way->starts.count;

    if (way->task->pipe == 1)
        return TP_OK;
    for (int i = 0; i < count; i++) {
        const struct tp_plan *from = way->starts.at[i];
        const size_t size = (size_t)from->n_stages * sizeof *from->stages;
        struct tp_plan *plan;
        TP_TRY(tp_plan_shrink(from, from->batch, from->schedule, &plan));
        enum tp_status status = tp_assign(from, way->task->cost, plan->stages);
        if (status == TP_OK && memcmp(from->stages, plan->stages, size) != 0) {
            status = starts_add(&way->starts, plan);
            plan = NULL;
        }
        tp_plan_free(plan);
        TP_TRY(status);
    }
    return TP_OK;
}

/* Refines the starts from one on. */
static enum tp_status refine(struct way *way, int64_t work)
{
    const struct tp_search_task *task = way->task;
    const struct tp_refine_task refine = {.cost = task->cost,
                                          .memory = task->memory,
                                          .grain = task->grain,
                                          .may_cut = task->slices == NULL,
                                          .may_group = task->group_size == 0,
                                          .may_layer = task->pipe > 1,
                                          .work = work};
    struct tp_refined refined;

    TP_TRY(tp_refine(&refine, (const struct tp_plan *const *)way->starts.at, way->starts.count,
                     &refined));
    way->best = (struct tp_found){
        .plan = refined.plan, .simulation = refined.simulation, .shortage = refined.shortage};
    return TP_OK;
}

static bool fits(const struct tp_found *found)
{
    return found->shortage.need <= found->shortage.limit;
}

/* The closed form's plan, if it is known to be the best. *done: it is, or is to be taken as it is.
 */
static enum tp_status try_closed_form(struct way *way, bool *done)
{
    const struct tp_search_task *task = way->task;
    const bool apart = way->schedule == TP_SCHEDULE_GPIPE || way->schedule == TP_SCHEDULE_TERAPIPE;
    const struct tp_optimal *form;

    *done = false;
    if (task->slices != NULL)
        return TP_OK;
    TP_TRY(add_optimal(way, task->objective, false, &form));
    TP_TRY(refine(way, 0));
    const double makespan = way->best.simulation.makespan;
    way->best.exact = task->objective == TP_OBJECTIVE_EXACT && apart && task->epsilon == 0 &&
                      task->cost->n_devices == 1 && !form->bounded &&
                      fabs(makespan - form->seconds) <= 1e-12 * makespan &&
                      (task->group_size == 0 || task->batch % task->group_size == 0);
    *done = task->objective == TP_OBJECTIVE_PAPER || (way->best.exact && fits(&way->best));
    return TP_OK;
}

static enum tp_status add_starts(struct way *way)
{
    const struct tp_search_task *task = way->task;
    const struct tp_optimal *form;
    int sizes[SIZES];

    if (task->slices == NULL && task->pipe > 1) {
        TP_TRY(add_optimal(way, TP_OBJECTIVE_EXACT, true, &form));
        TP_TRY(add_optimal(way, TP_OBJECTIVE_PAPER, true, &form));
    }
    const int n = list_sizes(task, sizes);
    for (int i = 0; i < n; i++)
        TP_TRY(add_uniform(way, sizes[i], way->work / (4 * n)));
    if (way->starts.count == 0)
        return tp_fail(TP_ERR_INPUT,
                       "%d sequences in groups of %d: there are no times for groups "
                       "of that size or of the remainder",
                       task->batch, task->group_size);
    return assign_layers(way);
}

/* The best plan of a way; *first is what memory the first start lacks. */
static enum tp_status go(struct way *way, struct tp_shortage *first)
{
    bool done;
    enum tp_status status = try_closed_form(way, &done);

    *first = way->best.shortage;
    if (status == TP_OK && !done) {
        tp_found_fini(&way->best);
        status = add_starts(way);
        if (status == TP_OK)
            status = refine(way, way->work);
    }
    if (status != TP_OK)
        tp_found_fini(&way->best);
    starts_fini(&way->starts);
    return status;
}

/* ---- All ways ---- */

/* What is found for one flight. */
struct hunt {
    const struct tp_search_task *task;
    int n_kinds;
    enum tp_schedule_kind kinds[2];
    struct tp_found best;     /* plan NULL: none yet */
    struct tp_shortage first; /* of the first plan of all; stage < 0: none yet */
    bool bounded;             /* a closed form did not try all sizes of groups */
};

/* Schedules to try. A plan under terapipe whose sequences are all whole is one under gpipe, and so
 * with seq1f1b and 1f1b. */
static void list_schedules(struct hunt *hunt)
{
    const struct tp_search_task *task = hunt->task;
    const bool automatic = task->schedule == TP_SEARCH_AUTO;

    hunt->kinds[hunt->n_kinds++] =
        automatic ? TP_SCHEDULE_TERAPIPE : (enum tp_schedule_kind)task->schedule;
    if (automatic && task->objective == TP_OBJECTIVE_EXACT)
        hunt->kinds[hunt->n_kinds++] = TP_SCHEDULE_SEQ1F1B;
}

static void name_schedule(struct tp_plan *plan)
{
    for (int g = 0; g < plan->n_groups; g++)
        if (plan->groups[g].slices.count > 1)
            return;
    if (plan->schedule == TP_SCHEDULE_TERAPIPE)
        plan->schedule = TP_SCHEDULE_GPIPE;
    else if (plan->schedule == TP_SCHEDULE_SEQ1F1B)
        plan->schedule = TP_SCHEDULE_1F1B;
}

static size_t lack(const struct tp_shortage *shortage)
{
    return shortage->need > shortage->limit ? shortage->need - shortage->limit : 0;
}

/* Is one plan better than another, which fits as well or lacks as much: clearly faster, or as fast
 * with less memory? */
static bool is_better(const struct tp_found *a, const struct tp_found *b)
{
    const double s = a->simulation.step_seconds;

    if (b->plan == NULL || lack(&a->shortage) != lack(&b->shortage))
        return b->plan == NULL || lack(&a->shortage) < lack(&b->shortage);
    const double t = b->simulation.step_seconds;
    return fabs(s - t) > TP_SEARCH_HAIR * t ? s < t : a->shortage.need < b->shortage.need;
}

/* Adds a sentence to the note. */
static void add_note(struct tp_found *found, const char *sentence)
{
    const size_t length = strlen(found->note);

    snprintf(found->note + length, sizeof found->note - length, "%s%s", length > 0 ? "; " : "",
             sentence);
}

/* Says what was changed for the memory that the first plan lacks. */
static void note_memory(const struct hunt *hunt, struct tp_found *found)
{
    const struct tp_shortage *first = &hunt->first;
    const bool recompute = hunt->task->recompute == TP_RECOMPUTE_CELL;
    char change[96], sentence[256];

    if (lack(first) == 0 || !fits(found))
        return;
    if (found->plan->schedule != hunt->kinds[0] || found->plan->recompute != recompute)
        snprintf(change, sizeof change, "schedule %s%s", tp_schedule_name(found->plan->schedule),
                 found->plan->recompute == recompute ? "" : " with recompute");
    else
        snprintf(change, sizeof change, "other groups and slices");
    snprintf(sentence, sizeof sentence,
             "%s, for memory: the plan that would be made without a limit needs %zu bytes on stage "
             "%d, the limit is %zu",
             change, first->need, first->stage, first->limit);
    add_note(found, sentence);
}

static void note_sizes(const struct hunt *hunt, struct tp_found *found)
{
    char sentence[128];

    if (!hunt->bounded)
        return;
    snprintf(sentence, sizeof sentence,
             "%d sequences are many: some sizes of groups were tried, and none is known to be best",
             hunt->task->batch);
    add_note(found, sentence);
}

/* All schedules, with recompute or without, in so many turns. */
static enum tp_status try_schedules(struct hunt *hunt, bool recompute, int64_t work)
{
    struct tp_optimal forms[FORMS] = {{.n_groups = 0}};
    struct tp_shortage lacking;
    enum tp_status status = TP_OK;

    for (int i = 0; i < hunt->n_kinds && status == TP_OK; i++) {
        struct way way = {.task = hunt->task,
                          .schedule = hunt->kinds[i],
                          .recompute = recompute,
                          .work = work / hunt->n_kinds,
                          .forms = forms};
        status = go(&way, &lacking);
        if (status != TP_OK)
            break;
        if (hunt->first.stage < 0)
            hunt->first = lacking;
        const bool better = is_better(&way.best, &hunt->best);
        tp_found_fini(better ? &hunt->best : &way.best);
        if (better)
            hunt->best = way.best;
    }
    for (int i = 0; i < FORMS; i++) {
        hunt->bounded = hunt->bounded || forms[i].bounded;
        tp_optimal_fini(&forms[i]);
    }
    return status;
}

/* A plan for a step of one flight. */
static enum tp_status search_flight(const struct tp_search_task *task, struct tp_found *found)
{
    struct hunt hunt = {.task = task, .first = {.stage = -1}};

    list_schedules(&hunt);
    enum tp_status status = try_schedules(&hunt, task->recompute == TP_RECOMPUTE_CELL, task->work);
    if (status == TP_OK && task->recompute == TP_RECOMPUTE_NEEDED && !task->delay_wgrad &&
        lack(&hunt.first) > 0)
        status = try_schedules(&hunt, true, task->work / 2);
    if (status != TP_OK) {
        tp_found_fini(&hunt.best);
        return status;
    }
    note_memory(&hunt, &hunt.best);
    note_sizes(&hunt, &hunt.best);
    if (task->schedule == TP_SEARCH_AUTO)
        name_schedule(hunt.best.plan);
    *found = hunt.best;
    return TP_OK;
}

/* ---- Flights ---- */

/* Plans the largest flight and judges the step. */
static enum tp_status search_flights(const struct tp_search_task *task, struct tp_found *found)
{
    struct tp_search_task share = *task;
    struct tp_found one, all;

    share.batch = (task->batch - 1) / task->flights + 1;
    TP_TRY(search_flight(&share, &one));
    all = one;
    all.exact = false;
    enum tp_status status = tp_plan_repeat(one.plan, task->batch, task->flights, &all.plan);
    if (status != TP_OK)
        goto free_one;
    status = tp_simulate(all.plan, task->cost, NULL, &all.simulation);
    if (status == TP_OK) {
        tp_shortage_find(all.plan, task->cost, task->memory, &all.simulation, &all.shortage);
        *found = all;
    } else {
        tp_plan_free(all.plan);
    }
free_one:
    tp_found_fini(&one);
    return status;
}

enum tp_status tp_search_plan(const struct tp_search_task *task, struct tp_found *found)
{
    if (task->pipe > task->model->n_layer)
        return tp_fail(TP_ERR_USAGE,
                       "--pipeline-model-parallel-size %d: expected 1 to %d, the model's layers",
                       task->pipe, task->model->n_layer);
    if (task->flights > task->batch)
        return tp_fail(TP_ERR_USAGE,
                       "--accumulate %d: expected at most %d, the sequences of a step",
                       task->flights, task->batch);
    TP_TRY(tp_cost_check_delay(task->cost, task->delay_wgrad));
    return task->flights > 1 ? search_flights(task, found) : search_flight(task, found);
}

void tp_found_fini(struct tp_found *found)
{
    tp_simulation_fini(&found->simulation);
    tp_plan_free(found->plan);
    *found = (struct tp_found){.plan = NULL};
}

enum tp_status tp_found_check(const struct tp_found *found)
{
    if (fits(found))
        return TP_OK;
    return tp_fail(TP_ERR_INPUT,
                   "memory: stage %d needs %zu bytes, the limit is %zu; no plan that was tried "
                   "needs less (schedule %s)",
                   found->shortage.stage, found->shortage.need, found->shortage.limit,
                   tp_schedule_name(found->plan->schedule));
}
