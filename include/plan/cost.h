/* SPDX-License-Identifier: Apache-2.0 */
/* What work costs: the seam between planning and where its numbers come from, a measured profile
 * (plan/profile.h) or an analytic estimate (plan/hardware.h). */
#ifndef TP_PLAN_COST_H
#define TP_PLAN_COST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/footprint.h"
#include "base/status.h"
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
    const char *file; /* that the numbers are from, which errors name; NULL: none */
    int op;           /* op degree that the numbers are for */

    /* Kinds of devices, and which one a rank of a replica (k * op + o) has; ranks beyond the list
     * have the last one's. NULL: all have device 0. */
    int n_devices;
    const struct tp_cost_device *devices;
    int n_ranks;
    const int *device_of_rank;

    int n_links; /* stage boundaries with numbers of their own; 0: all have the same */

    /* Are there numbers for groups of b sequences? */
    bool (*has_group)(const void *self, int device, int b);

    /* Seconds of one layer on a device, op sums included, for s tokens of b sequences after c
     * tokens each of context (TeraPipe, section 3.3). */
    double (*layer)(const void *self, int device, enum tp_direction direction, int b, int s, int c);

    /* Seconds that a layer's weight gradients of b sequences of s tokens take where they are
     * delayed: a backward is without them. NULL: it has them, the numbers are not for plans that
     * delay. */
    double (*gradient)(const void *self, int device, int b, int s);

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

/* Are the numbers for these degrees: the op degree, and where ranks or stage boundaries have their
 * own, as many of them? Local. */
bool tp_cost_fits(const struct tp_cost *cost, int pipe, int op);

/* Are the numbers for plans that delay weight gradients, or for those that do not? Local.
 * TP_ERR_INPUT names the file's key. */
enum tp_status tp_cost_check_delay(const struct tp_cost *cost, bool delay_wgrad);

/* Is it 0 or more, and finite? Local. */
bool tp_cost_is_time(double seconds);

/* Where a number is, as errors about it begin: "p.json: devices[1].layer.forward.context: ", or
 * nothing when it is from no file. device: whose key it is; -1: of none. The second function is for
 * a layer's time that is wrong: already without context, or only with it. Local; gives place. */
enum { TP_COST_PLACE = 256 };
const char *tp_cost_place(const struct tp_cost *cost, int device, const char *key,
                          char place[static TP_COST_PLACE]);
const char *tp_cost_layer_place(const struct tp_cost *cost, int device, enum tp_direction direction,
                                int b, int s, int c, char place[static TP_COST_PLACE]);

#endif
