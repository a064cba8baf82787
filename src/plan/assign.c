/* SPDX-License-Identifier: Apache-2.0 */
/* All layers are alike, so only their number matters. A stage's time rises with its layers; then
 * giving one layer after the other to the stage that is fastest with it is exact: in the order of
 * these times the layers that are given are the first L - K, and any other choice has a later one.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "plan/assign.h"
#include "plan/schedule.h"

/* What all units take on one kind of device. */
struct device_seconds {
    double layer, embed, head;
};

/* A unit's forward and backward. */
static double both(const struct tp_plan *plan, double forward, double backward)
{
    return forward + backward + (plan->recompute ? forward : 0);
}

/* Names a slice's time that is wrong, if it is one. */
static enum tp_status fail_layer(const struct tp_cost *cost, int device,
                                 const struct tp_unit *units, int n_units, double seconds)
{
    char place[TP_COST_PLACE] = "";

    for (int i = 0; i < 2 * n_units && place[0] == '\0'; i++) {
        const enum tp_direction direction = i < n_units ? TP_FORWARD : TP_BACKWARD;
        const struct tp_unit *unit = &units[i % n_units];
        const int b = unit->sequences, s = unit->slice.length, c = unit->slice.start;
        if (!tp_cost_is_time(cost->layer(cost->self, device, direction, b, s, c)))
            tp_cost_layer_place(cost, device, direction, b, s, c, place);
    }
    return tp_fail(TP_ERR_INPUT, "%sa layer takes %g seconds of a step, expected 0 or more", place,
                   seconds);
}

static enum tp_status find_device_seconds(const struct tp_plan *plan, const struct tp_cost *cost,
                                          int device, const struct tp_unit *units, int n_units,
                                          struct device_seconds *seconds)
{
    const void *self = cost->self;

    *seconds = (struct device_seconds){.layer = 0};
    for (int i = 0; i < n_units; i++) {
        const int b = units[i].sequences, s = units[i].slice.length, c = units[i].slice.start;
        if (!cost->has_group(self, device, b))
            return tp_fail(TP_ERR_INPUT, "there are no times for groups of %d sequences", b);
        seconds->layer += both(plan, cost->layer(self, device, TP_FORWARD, b, s, c),
                               cost->layer(self, device, TP_BACKWARD, b, s, c));
        if (plan->delay_wgrad && units[i].number == 0)
            seconds->layer += cost->gradient(self, device, b, plan->seq_len);
        seconds->embed += cost->embed(self, device, TP_FORWARD, b, s) +
                          cost->embed(self, device, TP_BACKWARD, b, s);
        seconds->head += cost->head(self, device, TP_FORWARD, b, s) +
                         cost->head(self, device, TP_BACKWARD, b, s);
    }
    if (!(seconds->layer >= 0) || !isfinite(seconds->layer + seconds->embed + seconds->head))
        return fail_layer(cost, device, units, n_units, seconds->layer);
    return TP_OK;
}

/* What a stage takes with that many layers: as its slowest rank. */
static double stage_seconds(const struct tp_plan *plan, const struct tp_cost *cost,
                            const struct device_seconds *devices, int stage, int n_layer)
{
    double slowest = 0;

    for (int rank = stage * plan->op; rank < (stage + 1) * plan->op; rank++) {
        const struct device_seconds *device = &devices[tp_cost_device_of(cost, rank)];
        double seconds = n_layer * device->layer;
        seconds += stage == 0 ? device->embed : 0;
        seconds += stage == plan->n_stages - 1 ? device->head : 0;
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

/* Gives out the layers beyond the first of each stage. */
static void give_out(const struct tp_plan *plan, const struct tp_cost *cost,
                     const struct device_seconds *devices, struct tp_stage_layers *stages,
                     double *next)
{
    for (int k = 0; k < plan->n_stages; k++) {
        stages[k].n_layer = 1;
        next[k] = stage_seconds(plan, cost, devices, k, 2);
    }
    for (int left = plan->model.n_layer - plan->n_stages; left > 0; left--) {
        int fastest = 0;
        for (int k = 1; k < plan->n_stages; k++)
            if (next[k] < next[fastest])
                fastest = k;
        stages[fastest].n_layer++;
        next[fastest] = stage_seconds(plan, cost, devices, fastest, stages[fastest].n_layer + 1);
    }
    for (int k = 0, first = 0; k < plan->n_stages; first += stages[k++].n_layer)
        stages[k].first_layer = first;
}

enum tp_status tp_assign(const struct tp_plan *plan, const struct tp_cost *cost,
                         struct tp_stage_layers *stages)
{
    const int n_units = tp_units_count(plan);
    struct tp_unit *units = calloc((size_t)n_units, sizeof *units);
    struct device_seconds *devices = calloc((size_t)cost->n_devices, sizeof *devices);
    double *next = calloc((size_t)plan->n_stages, sizeof *next);
    enum tp_status status = TP_OK;

    if (units == NULL || devices == NULL || next == NULL) {
        status = tp_fail(TP_ERR_MEMORY, "no memory to give layers to %d stages", plan->n_stages);
        goto done;
    }
    tp_units_cut(plan, units);
    for (int d = 0; d < cost->n_devices && status == TP_OK; d++)
        status = find_device_seconds(plan, cost, d, units, n_units, &devices[d]);
    if (status == TP_OK)
        give_out(plan, cost, devices, stages, next);
done:
    free(units);
    free(devices);
    free(next);
    return status;
}
