/* SPDX-License-Identifier: Apache-2.0 */
/* The map of ranks to devices. */
#ifndef TP_TRAIN_PLACEMENT_H
#define TP_TRAIN_PLACEMENT_H

#include "base/status.h"
#include "comm/comm.h"
#include "comm/grid.h"
#include "train/cores.h"
#include "train/settings.h"

/* Where a rank computes. Plain memory: it is exchanged as bytes. */
struct tp_placement {
    char host[64];
    char index[16], name[128], type[16]; /* of the device */
    struct tp_cores cores;
    int threads; /* that it uses of a CPU device */
    int gemm;    /* enum tp_gemm_provider; auto as long as the device is not open */
};

/* Chooses my threads and my device, opening none. The first call of the device layer. Local.
 * TP_ERR_USAGE for --device, TP_ERR_DEVICE without any. */
enum tp_status tp_placement_choose(const struct tp_settings *settings, const struct tp_grid *grid,
                                   struct tp_placement *mine);

/* all[size of comm]: everybody's, in the order of ranks. Collective over comm. TP_ERR_COMM. */
enum tp_status tp_placement_gather(struct tp_comm *comm, const struct tp_placement *mine,
                                   struct tp_placement *all);

/* Ranks that compute on the device of the given one, itself included. Local. */
int tp_placement_sharing(const struct tp_placement *all, int count, int rank);

/* One note per rank. Local. */
void tp_placement_print(const struct tp_placement *all, int count);

/* Warns, once, when op ranks, neighbours in the order of ranks, are on several nodes. Local. */
void tp_placement_warn(const struct tp_placement *all, int count, int op);

#endif
