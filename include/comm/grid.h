/* SPDX-License-Identifier: Apache-2.0 */
/* The grid of ranks: rank = (d * K + k) * O + o in the order of the communicator. */
#ifndef TP_COMM_GRID_H
#define TP_COMM_GRID_H

#include "base/status.h"
#include "comm/comm.h"

struct tp_grid {
    struct tp_comm *world;    /* all ranks of the grid; not owned, as the others are */
    struct tp_comm *pipe;     /* the K stages of my replica with my o: rank = stage */
    struct tp_comm *ops;      /* the O ranks that share my stage: rank = o */
    struct tp_comm *replicas; /* the D ranks with my stage and o: rank = d */
    struct tp_comm *node;     /* ranks of the grid on my node */
    int data, pipe_size, op;  /* degrees D, K, O */
    int d, k, o;              /* my place */
    int node_rank, node_size;
};

/* Numbers in world of the ranks with those places. Local. */
int tp_grid_rank(const struct tp_grid *grid, int d, int k, int o);

/* Makes the grid of a communicator whose size is D * K * O. Collective over world.
 * TP_ERR_USAGE when the ranks do not fit; TP_ERR_COMM. */
enum tp_status tp_grid_init(struct tp_grid *grid, struct tp_comm *world, int data, int pipe,
                            int op);
/* Collective over world. */
void tp_grid_fini(struct tp_grid *grid);

#endif
