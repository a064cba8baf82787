/* SPDX-License-Identifier: Apache-2.0 */
/* A large product of single precision, by the fastest library a user would call: what a step's
 * floating-point operations are compared with. */
#ifndef TP_BENCH_SGEMM_H
#define TP_BENCH_SGEMM_H

#include "base/status.h"
#include "device/device.h"
#include "device/memory.h"

#define SGEMM_SIZE 2048 /* M = N = K */

struct sgemm {
    struct tp_device *device; /* its own, so that --gemm does not choose its provider */
    struct tp_arena *arena;
    struct tp_view a, b, c;
};

/* Opens the device of that index for so many threads: the host's BLAS where it runs one, else
 * CLBlast. Runs the product once. TP_ERR_DEVICE, TP_ERR_MEMORY. */
enum tp_status sgemm_init(struct sgemm *sgemm, const struct tp_device_info *info, int threads);
void sgemm_fini(struct sgemm *sgemm);

/* Floating-point operations per second of one product now. Waits. TP_ERR_DEVICE. */
enum tp_status sgemm_rate(struct sgemm *sgemm, double *rate);

#endif
