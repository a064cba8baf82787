/* SPDX-License-Identifier: Apache-2.0 */
/* The search over data, pipe and op degrees. Degrees are looked at in the order of a lower bound,
 * what the busiest stage computes in whichever groups and slices are cheapest; once enough plans
 * are known, those whose bound is above the worst of them are not planned at all. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/schedule.h"
#include "plan/search.h"

enum { SLICES = 2 * 1 << 20 /* times of slices that a bound may look at */ };

struct walk {
    const struct tp_degrees_task *task;
    struct tp_degrees_list list;
};

/* The task of one of all degrees. The estimate has to stay while the cost is used. */
struct single {
    struct tp_search_task search;
    struct tp_estimate estimate;
    struct tp_cost cost;
};

static const struct tp_cost *find_cost(const struct tp_cost_source *source,
                                       const struct tp_degrees *degrees)
{
    for (int i = 0; i < source->n_costs; i++)
        if (tp_cost_fits(&source->costs[i], degrees->pipe, degrees->op))
            return &source->costs[i];
    return NULL;
}

/* False: there are no costs for these degrees. */
static bool single_init(const struct walk *walk, const struct tp_degrees *degrees,
                        struct single *single)
{
    const struct tp_degrees_task *task = walk->task;
    const struct tp_cost *measured = find_cost(&task->source, degrees);

    single->search = task->search;
    single->search.cost = &single->cost;
    single->search.data = degrees->data;
    single->search.pipe = degrees->pipe;
    single->search.batch = (task->search.batch - 1) / degrees->data + 1;
    if (task->source.hardware == NULL) {
        if (measured != NULL)
            single->cost = *measured;
        return measured != NULL;
    }
    tp_estimate_init(&single->estimate, task->source.hardware, task->search.model, degrees->pipe,
                     degrees->op, &single->cost);
    if (task->search.delay_wgrad)
        tp_estimate_delay(&single->estimate, &single->cost);
    return true;
}

/* ---- Listing ---- */

static bool is_wanted(int value, int only)
{
    return only == 0 || value == only;
}

static int list_degrees(const struct tp_degrees_task *task, struct tp_degrees *at)
{
    const struct tp_model *model = task->search.model;
    int count = 0;

    for (int op = 1; op <= model->n_head && op <= task->devices; op++) {
        if (task->devices % op != 0 || model->n_head % op != 0 || !is_wanted(op, task->op))
            continue;
        for (int pipe = 1; pipe <= model->n_layer && pipe <= task->devices / op; pipe++) {
            const int data = task->devices / op / pipe;
            if (task->devices / op % pipe != 0 || data > task->search.batch ||
                !is_wanted(pipe, task->pipe) || !is_wanted(data, task->data))
                continue;
            if (at != NULL)
                at[count] = (struct tp_degrees){.data = data, .pipe = pipe, .op = op};
            count++;
        }
    }
    return count;
}

/* ---- Bounds ---- */

/* Bytes of a stage at least, whatever the plan: one grain of one sequence alive. */
static enum tp_status check_memory(const struct single *single, struct tp_degrees *degrees)
{
    const struct tp_search_task *search = &single->search;
    const int grain = search->grain < search->seq_len ? search->grain : search->seq_len;
    struct tp_stage_shape shape = {.model = *search->model,
                                   .seq_len = search->seq_len,
                                   .batch = 1,
                                   .group = 1,
                                   .rows = (size_t)grain,
                                   .unit_rows = (size_t)grain,
                                   .slots = 1,
                                   .train = true,
                                   .op = degrees->op,
                                   .shards = search->zero ? degrees->data : 1,
                                   .recompute = search->recompute != TP_RECOMPUTE_NONE};
    const struct tp_cost_device *device =
        &single->cost.devices[tp_cost_device_of(&single->cost, 0)];
    const size_t limit = search->memory > 0 ? search->memory : device->memory;

    shape.layers.n_layer = (search->model->n_layer - 1) / degrees->pipe + 1;
    shape.layers.first_layer = (search->model->n_layer - shape.layers.n_layer) / 2;
    const size_t need = tp_stage_bytes(&shape, &device->footprint);
    if (single->cost.n_devices > 1 || limit == 0 || need <= limit)
        return TP_OK;
    degrees->outcome = TP_DEGREES_REFUSED;
    snprintf(degrees->why, sizeof degrees->why,
             "a stage of %d layers needs %zu bytes at least, the limit is %zu",
             shape.layers.n_layer, need, limit);
    return TP_OK;
}

/* Gradients' exchange and update of some stage with most layers. */
static double end_seconds(const struct single *single, const struct tp_degrees *degrees,
                          int n_layer)
{
    const struct tp_cost *cost = &single->cost;
    const struct tp_stage_shape shape = {
        .model = *single->search.model, .layers = {1, n_layer}, .op = degrees->op};
    const size_t parameters =
        n_layer < single->search.model->n_layer ? tp_stage_parameters(&shape) : 0;
    double seconds = cost->update_seconds_per_parameter * (double)parameters;

    if (degrees->data > 1)
        seconds += cost->allreduce(cost->self, degrees->data,
                                   parameters * (size_t)cost->devices[0].footprint.element_bytes);
    return seconds;
}

/* The cheapest way to compute the layers of the stage that has most of them, on the fastest kind of
 * device: with one stage the closed form has no bottlenecks. */
static enum tp_status find_bound(const struct single *single, struct tp_degrees *degrees)
{
    const struct tp_search_task *search = &single->search;
    const int n_layer = (search->model->n_layer - 1) / degrees->pipe + 1;
    const bool free_layers = single->cost.n_devices > 1; /* the slowest device may have few */
    struct tp_optimal_task task = {.cost = &single->cost,
                                   .n_layer = free_layers ? 1 : n_layer,
                                   .n_stages = 1,
                                   .seq_len = search->seq_len,
                                   .batch = search->batch,
                                   .grain = search->grain};
    struct tp_optimal optimal;

    for (double units;; task.grain += search->grain) {
        units = ceil((double)search->seq_len / task.grain);
        task.max_sizes = (int)(SLICES / (units * units / 2));
        if (task.max_sizes >= 1)
            break;
    }
    TP_TRY(tp_optimal_solve(&task, &optimal));
    degrees->bound = optimal.seconds + end_seconds(single, degrees, n_layer);
    tp_optimal_fini(&optimal);
    return TP_OK;
}

static int compare_bounds(const void *a, const void *b)
{
    const struct tp_degrees *x = a, *y = b;

    return (x->bound > y->bound) - (x->bound < y->bound);
}

/* ---- Planning ---- */

static int compare_degrees(const void *a, const void *b)
{
    const struct tp_degrees *x = a, *y = b;
    const double s = x->found.simulation.step_seconds, t = y->found.simulation.step_seconds;

    if (x->outcome != y->outcome)
        return (x->outcome > y->outcome) - (x->outcome < y->outcome);
    if (x->outcome == TP_DEGREES_PLANNED)
        return (s > t) - (s < t);
    return compare_bounds(a, b);
}

/* The worst of the planned ones; NULL as long as more are wanted. */
static struct tp_degrees *find_worst(struct walk *walk, int count)
{
    struct tp_degrees *worst = NULL;
    int planned = 0;

    for (int i = 0; i < count; i++) {
        struct tp_degrees *at = &walk->list.at[i];
        if (at->outcome != TP_DEGREES_PLANNED)
            continue;
        planned++;
        if (worst == NULL || compare_degrees(at, worst) > 0)
            worst = at;
    }
    return planned < walk->task->keep ? NULL : worst;
}

static void refuse(struct tp_degrees *degrees)
{
    const struct tp_shortage *shortage = &degrees->found.shortage;

    degrees->outcome = TP_DEGREES_REFUSED;
    snprintf(degrees->why, sizeof degrees->why,
             "stage %d needs %zu bytes, the limit is %zu (schedule %s%s)", shortage->stage,
             shortage->need, shortage->limit, tp_schedule_name(degrees->found.plan->schedule),
             degrees->found.plan->recompute ? ", recompute" : "");
    tp_found_fini(&degrees->found);
}

/* Plans the degrees at a place of the list; all before it are decided. */
static enum tp_status plan_degrees(struct walk *walk, int place)
{
    struct tp_degrees *degrees = &walk->list.at[place], *worst = find_worst(walk, place);
    struct single single;

    if (degrees->outcome == TP_DEGREES_REFUSED)
        return TP_OK;
    degrees->outcome = TP_DEGREES_SLOWER;
    if (worst != NULL && degrees->bound >= worst->found.simulation.step_seconds)
        return TP_OK;
    single_init(walk, degrees, &single);
    TP_TRY(tp_search_plan(&single.search, &degrees->found));
    if (degrees->found.shortage.need > degrees->found.shortage.limit) {
        refuse(degrees);
        return TP_OK;
    }
    degrees->outcome = TP_DEGREES_PLANNED;
    if (worst == NULL)
        return TP_OK;
    struct tp_degrees *loser = compare_degrees(degrees, worst) > 0 ? degrees : worst;
    loser->outcome = TP_DEGREES_SLOWER;
    tp_found_fini(&loser->found);
    return TP_OK;
}

/* Why there are no costs. */
static void explain(const struct tp_cost_source *source, struct tp_degrees *degrees)
{
    snprintf(degrees->why, sizeof degrees->why, "there is no profile for op %d", degrees->op);
    for (int i = 0; i < source->n_costs; i++)
        if (source->costs[i].op == degrees->op)
            snprintf(degrees->why, sizeof degrees->why,
                     "the profile for op %d lists ranks or links of other degrees", degrees->op);
}

static enum tp_status prepare(struct walk *walk, struct tp_degrees *degrees)
{
    struct single single;

    if (!single_init(walk, degrees, &single)) {
        degrees->outcome = TP_DEGREES_REFUSED;
        explain(&walk->task->source, degrees);
        return TP_OK;
    }
    if (single.search.flights > single.search.batch) {
        degrees->outcome = TP_DEGREES_REFUSED;
        snprintf(degrees->why, sizeof degrees->why, "%d flights of %d sequences",
                 single.search.flights, single.search.batch);
        return TP_OK;
    }
    TP_TRY(check_memory(&single, degrees));
    return degrees->outcome == TP_DEGREES_REFUSED ? TP_OK : find_bound(&single, degrees);
}

static enum tp_status run(struct walk *walk)
{
    struct tp_degrees_list *list = &walk->list;

    for (int i = 0; i < list->count; i++)
        TP_TRY(prepare(walk, &list->at[i]));
    qsort(list->at, (size_t)list->count, sizeof *list->at, compare_bounds);
    for (int i = 0; i < list->count; i++)
        TP_TRY(plan_degrees(walk, i));
    qsort(list->at, (size_t)list->count, sizeof *list->at, compare_degrees);
    while (list->planned < list->count && list->at[list->planned].outcome == TP_DEGREES_PLANNED)
        list->planned++;
    return TP_OK;
}

enum tp_status tp_search_degrees(const struct tp_degrees_task *task, struct tp_degrees_list *list)
{
    struct walk walk = {.task = task};

    walk.list.count = list_degrees(task, NULL);
    if (walk.list.count == 0)
        return tp_fail(TP_ERR_USAGE,
                       "--devices %d: expected data times pipe times op, where pipe is at most %d, "
                       "op a divisor of %d, and data at most %d",
                       task->devices, task->search.model->n_layer, task->search.model->n_head,
                       task->search.batch);
    walk.list.at = calloc((size_t)walk.list.count, sizeof *walk.list.at);
    if (walk.list.at == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a list of degrees");
    list_degrees(task, walk.list.at);
    enum tp_status status = run(&walk);
    if (status == TP_OK)
        *list = walk.list;
    else
        tp_degrees_list_fini(&walk.list);
    return status;
}

void tp_degrees_list_fini(struct tp_degrees_list *list)
{
    for (int i = 0; i < list->count; i++)
        tp_found_fini(&list->at[i].found);
    free(list->at);
    *list = (struct tp_degrees_list){.count = 0};
}
