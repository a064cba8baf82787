/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "plan/bound.h"
#include "plan/schedule.h"

struct bound {
    const struct tp_plan *plan;
    const struct tp_cost *cost;
    int n_units;
    struct tp_unit *units;
    double *layers;  /* [devices][2][n_units] of one layer */
    double *ends[2]; /* [2 * n_units] per direction and unit, of the first and of the last stage */
    double *sums;    /* [devices] of one layer, all units and directions */
    int *layers_between; /* [devices] layers on stages that are neither */
};

/* A stage counts as its first rank: no more than its slowest one. */
static int device_of(const struct bound *bound, int stage)
{
    return tp_cost_device_of(bound->cost, stage * bound->plan->op);
}

static double *layer_seconds(const struct bound *bound, int device, enum tp_direction direction)
{
    return bound->layers + ((size_t)device * 2 + direction) * (size_t)bound->n_units;
}

static double *end_seconds(const struct bound *bound, int last, enum tp_direction direction)
{
    return bound->ends[last] + (size_t)direction * (size_t)bound->n_units;
}

static double sum(const double *seconds, int count)
{
    double result = 0;

    for (int i = 0; i < count; i++)
        result += seconds[i];
    return result;
}

/* How far before a unit one is that takes as long: the same slice of the group before, when they
 * are alike, as most of many groups are; 0: there is none. */
static int find_like(const struct tp_unit *unit)
{
    const int count = unit->last + 1;

    if (unit->index < count)
        return 0;
    const struct tp_unit *before = unit - count;
    const bool same = before->number == unit->number && before->sequences == unit->sequences &&
                      before->slice.start == unit->slice.start &&
                      before->slice.length == unit->slice.length;
    return same ? count : 0;
}

static enum tp_status find_layer_seconds(const struct bound *bound)
{
    const struct tp_cost *cost = bound->cost;

    for (int d = 0; d < cost->n_devices; d++)
        for (int i = 0; i < bound->n_units; i++) {
            const struct tp_unit *unit = &bound->units[i];
            const int b = unit->sequences, s = unit->slice.length, c = unit->slice.start;
            const int like = find_like(unit);
            if (like > 0) {
                layer_seconds(bound, d, TP_FORWARD)[i] =
                    layer_seconds(bound, d, TP_FORWARD)[i - like];
                layer_seconds(bound, d, TP_BACKWARD)[i] =
                    layer_seconds(bound, d, TP_BACKWARD)[i - like];
                continue;
            }
            if (!cost->has_group(cost->self, d, b))
                return tp_fail(TP_ERR_INPUT, "there are no times for groups of %d sequences", b);
            const double forward = cost->layer(cost->self, d, TP_FORWARD, b, s, c);
            const double backward = cost->layer(cost->self, d, TP_BACKWARD, b, s, c);
            layer_seconds(bound, d, TP_FORWARD)[i] = forward;
            layer_seconds(bound, d, TP_BACKWARD)[i] =
                backward + (bound->plan->recompute ? forward : 0);
        }
    for (int d = 0; d < cost->n_devices; d++)
        bound->sums[d] = sum(layer_seconds(bound, d, TP_FORWARD), 2 * bound->n_units);
    return TP_OK;
}

/* What each unit takes on the first and on the last stage. */
static void find_end_seconds(const struct bound *bound)
{
    const struct tp_plan *plan = bound->plan;
    const struct tp_cost *cost = bound->cost;

    for (int last = 0; last < 2; last++) {
        const int stage = last ? plan->n_stages - 1 : 0, device = device_of(bound, stage);
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++)
            for (int i = 0; i < bound->n_units; i++) {
                const int b = bound->units[i].sequences, s = bound->units[i].slice.length;
                double seconds =
                    plan->stages[stage].n_layer * layer_seconds(bound, device, direction)[i];
                if (stage == 0)
                    seconds += cost->embed(cost->self, device, direction, b, s);
                if (stage == plan->n_stages - 1)
                    seconds += cost->head(cost->self, device, direction, b, s);
                end_seconds(bound, last, direction)[i] = seconds;
            }
    }
}

/* A unit on a stage. */
static double unit_seconds(const struct bound *bound, int stage, enum tp_direction direction, int i)
{
    if (stage == 0 || stage == bound->plan->n_stages - 1)
        return end_seconds(bound, stage > 0, direction)[i];
    return bound->plan->stages[stage].n_layer *
           layer_seconds(bound, device_of(bound, stage), direction)[i];
}

static double busy_seconds(const struct bound *bound, int stage)
{
    const int n = bound->n_units;

    if (stage == 0 || stage == bound->plan->n_stages - 1)
        return sum(end_seconds(bound, stage > 0, TP_FORWARD), 2 * n);
    return bound->plan->stages[stage].n_layer * bound->sums[device_of(bound, stage)];
}

/* A stage begins when the first unit has come to it, and what it computes last has to go back. */
static double busy_bound(const struct bound *bound)
{
    const int n = bound->n_units, last = tp_units_at(bound->units, TP_BACKWARD, n - 1);
    double ways = 0, most = 0;

    for (int k = 0; k < bound->plan->n_stages; k++) {
        most = fmax(most, ways + busy_seconds(bound, k));
        ways += unit_seconds(bound, k, TP_FORWARD, 0) + unit_seconds(bound, k, TP_BACKWARD, last);
    }
    return most;
}

/* All links that a unit's message takes. */
static double links_seconds(const struct bound *bound, const struct tp_unit *unit)
{
    const struct tp_cost *cost = bound->cost;
    double seconds = 0;

    for (int k = 0; k + 1 < bound->plan->n_stages; k++) {
        const int element = cost->devices[device_of(bound, k)].footprint.element_bytes;
        seconds +=
            cost->link(cost->self, k,
                       tp_unit_rows(unit) * (size_t)bound->plan->model.n_embd * (size_t)element);
    }
    return seconds;
}

/* The longest way of a unit through all stages in one direction, behind all that come before it on
 * the stage where they enter and before all others on the stage where they leave. */
static double way_bound(const struct bound *bound, enum tp_direction direction)
{
    const int enter = direction == TP_FORWARD ? 0 : 1;
    const double *in = end_seconds(bound, enter, direction);
    const double *out = end_seconds(bound, 1 - enter, direction);
    double before = 0, after = 0, most = -INFINITY;
    int longest = 0;

    if (bound->plan->n_stages == 1)
        return sum(in, bound->n_units);
    after = sum(out, bound->n_units);
    for (int place = 0; place < bound->n_units; place++) {
        const int i = tp_units_at(bound->units, direction, place);
        double between = 0;
        for (int d = 0; d < bound->cost->n_devices; d++)
            between += bound->layers_between[d] * layer_seconds(bound, d, direction)[i];
        before += in[i];
        if (before + between + after > most) {
            most = before + between + after;
            longest = i;
        }
        after -= out[i];
    }
    return most + links_seconds(bound, &bound->units[longest]);
}

static enum tp_status bound_init(struct bound *bound)
{
    const size_t n_units = (size_t)bound->n_units, n_devices = (size_t)bound->cost->n_devices;

    bound->units = calloc(n_units, sizeof *bound->units);
    bound->layers = calloc((n_devices + 2) * 2 * n_units, sizeof *bound->layers);
    bound->sums = calloc(n_devices, sizeof *bound->sums);
    bound->layers_between = calloc(n_devices, sizeof *bound->layers_between);
    if (bound->units == NULL || bound->layers == NULL || bound->sums == NULL ||
        bound->layers_between == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory to look at %zu slices", n_units);
    for (size_t last = 0; last < 2; last++)
        bound->ends[last] = bound->layers + (n_devices + last) * 2 * n_units;
    tp_units_cut(bound->plan, bound->units);
    for (int k = 1; k + 1 < bound->plan->n_stages; k++)
        bound->layers_between[device_of(bound, k)] += bound->plan->stages[k].n_layer;
    return TP_OK;
}

enum tp_status tp_plan_bound(const struct tp_plan *plan, const struct tp_cost *cost,
                             double *seconds)
{
    struct bound bound = {.plan = plan, .cost = cost, .n_units = tp_units_count(plan)};
    const bool apart =
        plan->schedule == TP_SCHEDULE_GPIPE || plan->schedule == TP_SCHEDULE_TERAPIPE;
    enum tp_status status = bound_init(&bound);

    if (status == TP_OK)
        status = find_layer_seconds(&bound);
    if (status == TP_OK) {
        find_end_seconds(&bound);
        *seconds = busy_bound(&bound);
        if (apart && plan->n_flights == 1)
            *seconds =
                fmax(*seconds, way_bound(&bound, TP_FORWARD) + way_bound(&bound, TP_BACKWARD));
    }
    free(bound.units);
    free(bound.layers);
    free(bound.sums);
    free(bound.layers_between);
    return status;
}
