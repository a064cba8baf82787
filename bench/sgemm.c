/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sgemm.h"

#include "base/clock.h"
#include "device/gemm.h"
#include "device/kernels.h"

static const struct tp_gemm product = {.m = SGEMM_SIZE, .n = SGEMM_SIZE, .k = SGEMM_SIZE};
enum { COUNT = SGEMM_SIZE * SGEMM_SIZE };

static enum tp_gemm_provider fastest_library(const struct tp_device_info *info)
{
#ifdef HAVE_CBLAS
    if (info->native_kernels && info->unified)
        return TP_GEMM_CBLAS;
#endif
    (void)info;
    return TP_GEMM_CLBLAST;
}

static enum tp_status take(struct sgemm *sgemm, struct tp_view *view)
{
    TP_TRY(tp_arena_take(sgemm->arena, "sgemm", COUNT, view));
    return tp_fill(sgemm->device, *view, 0.5f, COUNT);
}

static enum tp_status begin(struct sgemm *sgemm, const struct tp_device_options *options)
{
    double rate;

    TP_TRY(tp_device_open(options, &sgemm->device));
    TP_TRY(tp_arena_new(sgemm->device, 0, &sgemm->arena));
    TP_TRY(take(sgemm, &sgemm->a));
    TP_TRY(take(sgemm, &sgemm->b));
    TP_TRY(take(sgemm, &sgemm->c));
    return sgemm_rate(sgemm, &rate);
}

enum tp_status sgemm_init(struct sgemm *sgemm, const struct tp_device_info *info, int threads)
{
    const struct tp_device_options options = {
        .index = info->index, .threads = threads, .head_width = 64, .gemm = fastest_library(info)};

    *sgemm = (struct sgemm){.device = NULL};
    const enum tp_status status = begin(sgemm, &options);
    if (status != TP_OK)
        sgemm_fini(sgemm);
    return status;
}

void sgemm_fini(struct sgemm *sgemm)
{
    tp_arena_free(sgemm->arena);
    if (sgemm->device != NULL)
        tp_device_close(sgemm->device);
    *sgemm = (struct sgemm){.device = NULL};
}

enum tp_status sgemm_rate(struct sgemm *sgemm, double *rate)
{
    TP_TRY(tp_device_finish(sgemm->device));
    const double began = tp_clock_now();
    TP_TRY(tp_gemm(sgemm->device, sgemm->c, sgemm->a, sgemm->b, &product));
    TP_TRY(tp_device_finish(sgemm->device));
    *rate = 2.0 * COUNT * SGEMM_SIZE / (tp_clock_now() - began);
    return TP_OK;
}
