/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products behind one call: CLBlast, or the host's BLAS inside the OpenCL queue; and which
 * products panels (device/packed.h) are for. */
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

/* Computes one product of that shape, by panels where those are the choice, on random numbers and
 * compares with double precision: sampled elements, and that nothing is written beside c. *error is
 * the largest difference relative to sum |a| |b|. Waits. TP_ERR_DEVICE when wrong, naming device,
 * provider and shape; TP_ERR_MEMORY.
 */
enum tp_status tp_gemm_check(struct tp_device *device, const struct tp_gemm *shape, double *error);

/* ---- Plain or by panels ---- */

/* What a kind of product took: plain, by panels (device/packed.h), and packing its panels. Kinds
 * are told apart by all but beta and the number of rows (m, or k when a is transposed), which is
 * rounded up to a power of two, 16 at least: tp_gemm_kind(). */
struct tp_gemm_times {
    struct tp_gemm kind;
    double plain, packed, packing; /* seconds */
    bool by_panels;                /* what follows from that */
};
struct tp_gemm tp_gemm_kind(const struct tp_gemm *shape);
bool tp_gemm_is_kind(const struct tp_gemm *a, const struct tp_gemm *b); /* are they one? */

/* Measures a product of that kind, with at most 64 MiB of b, in some milliseconds; plain only on a
 * device without panels; by_panels is left to the caller. Waits. TP_ERR_DEVICE, TP_ERR_MEMORY. */
enum tp_status tp_gemm_measure(struct tp_device *device, const struct tp_gemm *kind,
                               struct tp_gemm_times *times);

/* Where what was measured on this device is kept, for the products that a text tells from others;
 * NULL: nowhere. malloc'd. Local. */
char *tp_gemm_cache_path(const struct tp_device *device, const char *products);

/* Sets what products with the right side in panels do on a device that was opened with auto. Kinds
 * that are not listed go by panels. Local. TP_ERR_MEMORY. */
enum tp_status tp_gemm_choose(struct tp_device *device, const struct tp_gemm_times *times,
                              int count);

/* Does a product go by panels, where its right side has some? Local. */
bool tp_gemm_is_packed(const struct tp_device *device, const struct tp_gemm *shape);

#endif
