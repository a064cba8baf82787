/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "train/reference.h"

#include "base/clock.h"
#include "device/gemm.h"

static const struct tp_gemm product = {.m = 256, .n = 768, .k = 768};

/* Seconds that a timing takes, about. */
#define TIMING_SECONDS 3e-3

enum tp_status tp_reference_time(struct tp_reference *reference)
{
    const double wanted = TIMING_SECONDS / reference->seconds * reference->count;
    const int count = wanted < 1 ? 1 : wanted < 1e6 ? (int)wanted : 1000000;
    const double began = tp_clock_now();

    for (int i = 0; i < count; i++)
        TP_TRY(tp_gemm(reference->device, reference->c, reference->a, reference->b, &product));
    TP_TRY(tp_device_finish(reference->device));
    reference->seconds = tp_clock_now() - began;
    reference->count = count;
    return TP_OK;
}

static enum tp_status begin(struct tp_reference *reference)
{
    struct tp_arena *arena = reference->arena;

    TP_TRY(tp_arena_take(arena, "reference", product.m * product.k, &reference->a));
    TP_TRY(tp_arena_take(arena, "reference", product.k * product.n, &reference->b));
    TP_TRY(tp_arena_take(arena, "reference", product.m * product.n, &reference->c));
    for (int i = 0; i < 3; i++) /* the first one may compile, the second one tells its time */
        TP_TRY(tp_reference_time(reference));
    return TP_OK;
}

enum tp_status tp_reference_init(struct tp_reference *reference, struct tp_device *device)
{
    *reference = (struct tp_reference){.device = device, .count = 1, .seconds = 1};
    TP_TRY(tp_arena_new(device, 0, &reference->arena));
    enum tp_status status = begin(reference);
    if (status != TP_OK)
        tp_reference_fini(reference);
    return status;
}

void tp_reference_fini(struct tp_reference *reference)
{
    tp_arena_free(reference->arena);
    reference->arena = NULL;
}
