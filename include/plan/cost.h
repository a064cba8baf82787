/* SPDX-License-Identifier: Apache-2.0 */
/* What work costs: the seam between planning and where its numbers come from, a measured profile
 * (plan/profile.h) or an analytic estimate (plan/hardware.h). */
#ifndef TP_PLAN_COST_H
#define TP_PLAN_COST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/footprint.h"
#include "model/slice.h"

/* One kind of device. */
struct tp_cost_device {
    const char *name;
    size_t memory;     /* bytes; 0: unlimited */
    double peak_flops; /* 0: unknown */
    struct tp_footprint footprint;
};

struct tp_cost {
    const void *self;
    int op; /* op degree that the numbers are for */

    /* Kinds of devices, and which one a rank of a replica (k * op + o) has; ranks beyond the list
     * have the last one's. NULL: all have device 0. */
    int n_devices;
    const struct tp_cost_device *devices;
    int n_ranks;
    const int *device_of_rank;

    /* Are there numbers for groups of b sequences? */
    bool (*has_group)(const void *self, int device, int b);

    /* Seconds of one layer on a device, op sums included, for s tokens of b sequences after c
     * tokens each of context (TeraPipe, section 3.3). */
    double (*layer)(const void *self, int device, enum tp_direction direction, int b, int s, int c);

    /* Seconds that the embedding adds on the first stage and the head on the last. */
    double (*embed)(const void *self, int device, enum tp_direction direction, int b, int s);
    double (*head)(const void *self, int device, enum tp_direction direction, int b, int s);

    /* Seconds of a message from stage boundary to the next one, or back. */
    double (*link)(const void *self, int boundary, size_t bytes);

    /* Seconds of an all-reduce of that many bytes over ranks. 0 where unknown. */
    double (*allreduce)(const void *self, int ranks, size_t bytes);

    double update_seconds_per_parameter;
};

/* Device of a rank of a replica. Local. */
static inline int tp_cost_device_of(const struct tp_cost *cost, int rank)
{
    if (cost->device_of_rank == NULL || cost->n_ranks == 0)
        return 0;
    return cost->device_of_rank[rank < cost->n_ranks ? rank : cost->n_ranks - 1];
}

#endif
