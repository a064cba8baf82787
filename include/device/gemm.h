/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products behind one call: CLBlast, or the host's BLAS inside the OpenCL queue. */
#ifndef TP_DEVICE_GEMM_H
#define TP_DEVICE_GEMM_H

#include <stdbool.h>

#include "base/status.h"
#include "device/memory.h"

/* c[M, N] = op(a) op(b) + beta c, row-major without gaps; op(a) is [M, K]: a is [K, M] when
 * a_transposed; op(b) is [K, N]: b is [N, K] when b_transposed. Enqueued. TP_ERR_DEVICE. */
struct tp_gemm {
    bool a_transposed, b_transposed;
    size_t m, n, k;
    float beta;
};
enum tp_status tp_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                       struct tp_view b, const struct tp_gemm *shape);

/* Computes one product of that shape on random numbers and compares with double precision: sampled
 * elements, and that nothing is written beside c. *error is the largest difference relative to
 * sum |a| |b|. Waits. TP_ERR_DEVICE when wrong, naming device, provider and shape; TP_ERR_MEMORY.
 */
enum tp_status tp_gemm_check(struct tp_device *device, const struct tp_gemm *shape, double *error);

#endif
