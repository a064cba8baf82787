/* SPDX-License-Identifier: Apache-2.0 */
/* The seam between a cell and the op ranks that share its stage: what it needs of them in the
 * middle of its work. The engine implements it over MPI; the ranks call alike, in the same order.
 */
#ifndef TP_CELL_REDUCE_H
#define TP_CELL_REDUCE_H

#include <stddef.h>

#include "base/status.h"

enum tp_reduction { TP_REDUCE_SUM, TP_REDUCE_MAX };

struct tp_reduce {
    void *self;

    /* The sum, or the largest, of each of data[count] over the op ranks, in place and with the same
     * bits on all of them. Returns when done. */
    enum tp_status (*all)(void *self, enum tp_reduction reduction, float *data, size_t count);

    /* What to do while the device is busy: looks once at all that is under way besides, and pauses.
     * since: when the waiting began. */
    enum tp_status (*idle)(void *self, double since);
};

#endif
