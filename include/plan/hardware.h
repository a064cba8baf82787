/* SPDX-License-Identifier: Apache-2.0 */
/* Estimated costs: what a cluster that one does not have would take, from a few numbers of its data
 * sheet. */
#ifndef TP_PLAN_HARDWARE_H
#define TP_PLAN_HARDWARE_H

#include "base/status.h"
#include "model/model.h"
#include "plan/cost.h"

/* A cluster of equal nodes with equal devices. Ranks fill node after node. */
struct tp_hardware {
    char name[64];
    double peak_flops;        /* a second, of a device, on elements of that size */
    double memory;            /* bytes of a device */
    double memory_bandwidth;  /* bytes a second */
    double launch_seconds;    /* from the start of one small kernel to the start of the next */
    double element_bytes;     /* of weights and activations */
    double devices_per_node;  /* whole */
    double node_latency;      /* seconds of an empty message within a node */
    double node_bandwidth;    /* bytes a second, of each device in each direction */
    double network_latency;   /* between nodes */
    double network_bandwidth; /* bytes a second, of each node in each direction, for its devices
                                 together */
};

/* A preset ("v100-25gbe", "a100", "h100", "mi250"), or else a file: {"format":
 * "terapipe-hardware", "version": 1, ...} with these members, name optional. Local. TP_ERR_INPUT
 * lists the presets or names the file and the key; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_hardware_find(const char *name, struct tp_hardware *hardware);

/* What the estimates of a cost come from. */
struct tp_estimate {
    struct tp_hardware hardware;
    struct tp_model model;
    int pipe, op;
    bool delay_wgrad;
    struct tp_cost_device device;
};

/* Costs of a model on hardware, cut into pipe stages and each layer's width over op ranks
 * (Megatron, arXiv 1909.08053: two sums over the op ranks per layer and direction). The cost is
 * valid as long as the estimate is, at its place. Local. */
void tp_estimate_init(struct tp_estimate *estimate, const struct tp_hardware *hardware,
                      const struct tp_model *model, int pipe, int op, struct tp_cost *cost);

/* Makes it the cost of plans that delay weight gradients. Local. */
void tp_estimate_delay(struct tp_estimate *estimate, struct tp_cost *cost);

#endif
