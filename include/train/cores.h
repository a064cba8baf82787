/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_TRAIN_CORES_H
#define TP_TRAIN_CORES_H

#include "base/status.h"

/* Cores of this node, by hwloc. */
struct tp_cores {
    int allowed; /* that the system lets this job use */
    int bound;   /* of these, what this process is bound to (mpirun does that) */
};

/* Local. TP_ERR_IO when hwloc cannot tell, TP_ERR_MEMORY. */
enum tp_status tp_cores_count(struct tp_cores *cores);

/* Threads for one of `ranks` ranks on the node: its share of the cores, at least one, but not more
 * than it is bound to. Local. */
int tp_cores_share(const struct tp_cores *cores, int ranks);

#endif
