/* SPDX-License-Identifier: Apache-2.0 */
/* What devices fix about memory: how regions are rounded and how kernels cut arrays. Planning and
 * computing have to agree on it, so it lies below both. */
#ifndef TP_BASE_FOOTPRINT_H
#define TP_BASE_FOOTPRINT_H

#include <stddef.h>
#include <stdint.h>

/* What a device adds to a region's bytes. */
struct tp_footprint {
    size_t align;      /* every region is rounded up to a multiple, bytes */
    int element_bytes; /* of activations and weights */
    int panel;         /* columns of the panels that weights are packed into; 0: they are not */
};

/* Bytes of a region or tensor of that many elements, rounded up; SIZE_MAX when they are more than a
 * size_t holds. Local. */
static inline size_t tp_footprint_bytes(const struct tp_footprint *footprint, size_t count)
{
    const size_t element = (size_t)footprint->element_bytes, align = footprint->align;
    if (count > (SIZE_MAX - align) / element)
        return SIZE_MAX;
    return (count * element + align - 1) / align * align;
}

/* Elements whose squares make one partial sum; fixed, so that sums do not depend on a device's
 * parallelism or on the stage. */
#define TP_SUM_BLOCK 4096

/* Lanes of the kernels' vectors: keys and values are cached in rows of multiples of it. */
#define TP_LANES 16

#endif
