/* SPDX-License-Identifier: Apache-2.0 */
/* Which products go by panels: measured, as it depends on the processor, its host BLAS and the
 * shape. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "device/kernels.h"
#include "device/packed.h"
#include "opencl.h"

static size_t *rows_of(struct tp_gemm *shape)
{
    return shape->a_transposed ? &shape->k : &shape->m;
}

struct tp_gemm tp_gemm_kind(const struct tp_gemm *shape)
{
    enum { LEAST = 16, MOST = 1024 };
    struct tp_gemm kind = *shape;
    size_t rows = LEAST;
    kind.beta = shape->a_transposed ? 1.0f : 0.0f;
    while (rows < *rows_of(&kind) && rows < MOST)
        rows *= 2;
    *rows_of(&kind) = rows;
    return kind;
}

bool tp_gemm_is_kind(const struct tp_gemm *a, const struct tp_gemm *b)
{
    return a->a_transposed == b->a_transposed && a->b_transposed == b->b_transposed &&
           a->m == b->m && a->n == b->n && a->k == b->k;
}

char *tp_gemm_cache_path(const struct tp_device *device, const char *products)
{
    char text[1024];
    snprintf(text, sizeof text, "%s, %s, %d threads, CLBlast %s, %s", PACKAGE_STRING,
             tp_device_libraries(), device->threads, device->tuning, products);
    return tp_cache_path(&device->info, text, "gemm.json");
}

enum tp_status tp_gemm_choose(struct tp_device *device, const struct tp_gemm_times *times,
                              int count)
{
    struct tp_gemm_times *copy = malloc(((size_t)count + 1) * sizeof *copy);
    if (copy == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a table of %d products", count);
    memcpy(copy, times, (size_t)count * sizeof *copy);
    free(device->times);
    device->times = copy;
    device->n_times = count;
    return TP_OK;
}

bool tp_gemm_is_packed(const struct tp_device *device, const struct tp_gemm *shape)
{
    if (device->gemm != TP_GEMM_AUTO)
        return device->gemm == TP_GEMM_PACKED;
    const struct tp_gemm kind = tp_gemm_kind(shape);
    for (int i = 0; i < device->n_times; i++)
        if (tp_gemm_is_kind(&device->times[i].kind, &kind))
            return device->times[i].by_panels;
    return true;
}

/* ---- Measuring ---- */

struct operands {
    struct tp_view c, a, b, panels;
};

static enum tp_status take(struct tp_device *device, struct tp_arena *arena, size_t count,
                           struct tp_view *view)
{
    TP_TRY(tp_arena_take(arena, "gemm measurement", count, view));
    return tp_fill(device, *view, 0.5f, count); /* untouched memory would be one page of zeros */
}

static enum tp_status take_operands(struct tp_device *device, struct tp_arena *arena,
                                    const struct tp_gemm *shape, struct operands *operands)
{
    TP_TRY(take(device, arena, shape->m * shape->n, &operands->c));
    TP_TRY(take(device, arena, shape->m * shape->k, &operands->a));
    TP_TRY(take(device, arena, shape->n * shape->k, &operands->b));
    return take(device, arena, tp_packed_count(shape->n, shape->k), &operands->panels);
}

static enum tp_status run_plain(struct tp_device *device, const struct operands *o,
                                const struct tp_gemm *shape)
{
    return tp_gemm(device, o->c, o->a, o->b, shape);
}

static enum tp_status run_packed(struct tp_device *device, const struct operands *o,
                                 const struct tp_gemm *shape)
{
    return tp_packed_gemm(device, o->c, o->a, o->panels, shape);
}

static enum tp_status run_packing(struct tp_device *device, const struct operands *o,
                                  const struct tp_gemm *shape)
{
    return tp_packed_write(device, o->panels, o->b, shape);
}

typedef enum tp_status run(struct tp_device *device, const struct operands *operands,
                           const struct tp_gemm *shape);

/* Runs it for a while, known to take that long, or once; *seconds is that of one. Nothing waits in
 * between, as in a layer. */
static enum tp_status time_run(struct tp_device *device, run *run, const struct operands *operands,
                               const struct tp_gemm *shape, double known, double *seconds)
{
    static const double enough = 5e-4;
    const int times = known > 0 && known < enough ? (int)(enough / known) : 1;
    TP_TRY(tp_device_finish(device));
    const double began = tp_clock_now();
    for (int i = 0; i < times; i++)
        TP_TRY(run(device, operands, shape));
    TP_TRY(tp_device_finish(device));
    *seconds = (tp_clock_now() - began) / times;
    return TP_OK;
}

/* In turn, so that what disturbs one disturbs all. Medians: a host BLAS whose threads are late now
 * and then is late in a layer too. The first round warms up, and tells how often to run; large
 * products, which vary less, get fewer rounds than small ones. */
static enum tp_status time_all(struct tp_device *device, const struct operands *operands,
                               const struct tp_gemm *shape, struct tp_gemm_times *times)
{
    enum { ROUNDS = 6 };
    static const double enough = 0.05;
    const struct {
        run *run;
        double *median;
    } rows[] = {
        {run_plain, &times->plain}, {run_packing, &times->packing}, {run_packed, &times->packed}};
    const int count = tp_device_packs(device) ? 3 : 1;
    double seconds[3][ROUNDS];
    const double began = tp_clock_now();
    int round = 0;
    for (; round < 2 || (round < ROUNDS && tp_clock_now() - began < enough); round++)
        for (int i = 0; i < count; i++)
            TP_TRY(time_run(device, rows[i].run, operands, shape,
                            round > 0 ? seconds[i][round - 1] : 0, &seconds[i][round]));
    for (int i = 0; i < count; i++)
        *rows[i].median = tp_median(seconds[i] + 1, round - 1);
    return TP_OK;
}

/* With fewer columns where there are very many: their number matters little then. */
static struct tp_gemm measured_shape(const struct tp_gemm *kind)
{
    enum { MOST = 16 << 20 };
    struct tp_gemm shape = *kind;
    if (!shape.a_transposed && shape.n * shape.k > MOST)
        *(shape.n > shape.k ? &shape.n : &shape.k) = MOST / (shape.n > shape.k ? shape.k : shape.n);
    if (shape.a_transposed && shape.m * shape.n > MOST)
        shape.m = MOST / shape.n;
    return shape;
}

enum tp_status tp_gemm_measure(struct tp_device *device, const struct tp_gemm *kind,
                               struct tp_gemm_times *times)
{
    const struct tp_gemm shape = measured_shape(kind);
    struct tp_gemm_times measured = {.kind = *kind};
    struct operands operands;
    struct tp_arena *arena;
    TP_TRY(tp_arena_new(device, 0, &arena));
    enum tp_status status = take_operands(device, arena, &shape, &operands);
    if (status == TP_OK)
        status = time_all(device, &operands, &shape, &measured);
    const enum tp_status finished = tp_device_finish(device);
    tp_arena_free(arena);
    TP_TRY(status);
    TP_TRY(finished);
    *times = measured;
    return TP_OK;
}
