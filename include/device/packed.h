/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products with the right-hand matrix in panels, for CPUs: packed once, such a matrix serves
 * any number of products, and few rows cost little more each than many do. A layer's weights are
 * packed once per step and serve all its slices. */
#ifndef TP_DEVICE_PACKED_H
#define TP_DEVICE_PACKED_H

#include "device/gemm.h"

#define TP_PANEL 48 /* columns of a panel */

/* Elements of a packed matrix op(b) [K, N]: for every so many rows [N / TP_PANEL][rows][TP_PANEL],
 * zeros behind the last column. Local. */
static inline size_t tp_packed_count(size_t n, size_t k)
{
    return (n + TP_PANEL - 1) / TP_PANEL * TP_PANEL * k;
}

/* packed = op(b) of that product in panels; of the shape, n, k and b_transposed matter. packed has
 * tp_packed_count() elements. Enqueued. TP_ERR_DEVICE. */
enum tp_status tp_packed_write(struct tp_device *device, struct tp_view packed, struct tp_view b,
                               const struct tp_gemm *shape);

/* The product of tp_gemm() with b in panels. The order of an element's sum depends on K alone: a row
 * of c is the same bits whatever m is and wherever the row lies. Enqueued. TP_ERR_DEVICE. */
enum tp_status tp_packed_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                              struct tp_view packed, const struct tp_gemm *shape);

/* tp_gemm_check() of packing and product. Waits. TP_ERR_DEVICE when wrong; TP_ERR_MEMORY. */
enum tp_status tp_packed_check(struct tp_device *device, const struct tp_gemm *shape,
                               double *error);

#endif
