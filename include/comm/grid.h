/* SPDX-License-Identifier: Apache-2.0 */
/* The grid of ranks: rank = (d * K + k) * O + o in the order of the communicator. */
#ifndef TP_COMM_GRID_H
#define TP_COMM_GRID_H

#include "base/status.h"
#include "comm/comm.h"

struct tp_grid {
    struct tp_comm *world;   /* all ranks of the grid; not owned */
    struct tp_comm *pipe;    /* the K stages of my replica, rank = stage; owned */
    struct tp_comm *node;    /* ranks of the grid on my node; owned */
    int data, pipe_size, op; /* degrees D, K, O */
    int d, k, o;             /* my place */
    int node_rank, node_size;
};

/* Makes the grid of a communicator whose size is D * K * O. Collective over world.
 * TP_ERR_USAGE when the ranks do not fit; TP_ERR_COMM. */
enum tp_status tp_grid_init(struct tp_grid *grid, struct tp_comm *world, int data, int pipe,
                            int op);
/* Collective over world. */
void tp_grid_fini(struct tp_grid *grid);

#endif
