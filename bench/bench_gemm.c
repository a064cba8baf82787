/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the gemm providers on the products of a layer, forward and both gradients, for several
 * slice lengths, each beside the largest error of its products. */
#include "config.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "device/kernels.h"
#include "device/packed.h"
#include "report.h"

struct settings {
    int width, rounds, threads;
    double seconds;
    const char *device;
    struct report_options report;
};

static const struct tp_option rows[] = {
    {.name = "hidden-size",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct settings, width),
     .initial = "768",
     .min = 1,
     .max = 65536,
     .argument = "C",
     .help = "width of the layer"},
    {.name = "rounds",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct settings, rounds),
     .initial = "5",
     .min = 1,
     .max = MOST_ROUNDS,
     .argument = "N",
     .help = "rounds; medians are printed"},
    {.name = "seconds",
     .type = TP_OPTION_DOUBLE,
     .offset = offsetof(struct settings, seconds),
     .initial = "0.1",
     .min = 0,
     .max = 100,
     .argument = "SEC",
     .help = "least time of one measurement"},
    {.name = "threads",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct settings, threads),
     .initial = "1",
     .min = 1,
     .max = 4096,
     .argument = "N",
     .help = "threads of a CPU device"},
    {.name = "device",
     .type = TP_OPTION_STRING,
     .offset = offsetof(struct settings, device),
     .argument = "SEL",
     .help = "OpenCL device by index, name or type"},
    REPORT_OPTIONS(struct settings, report),
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const int lengths[] = {16, 32, 64, 128, 256, 1024};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]), N_MATRICES = 4 };

enum kind { FORWARD, INPUT_GRADIENT, WEIGHT_GRADIENT, N_KINDS };
static const char *const kinds[] = {"forward", "dx", "dw"};

/* A product of a layer of width C for S tokens: with one of its four matrices, of one kind. */
static struct tp_gemm product_of(enum kind kind, int matrix, size_t C, size_t S)
{
    static const size_t widths[N_MATRICES][2] = {{1, 3}, {1, 1}, {1, 4}, {4, 1}};
    const size_t k = C * widths[matrix][0], n = C * widths[matrix][1];
    switch (kind) {
    case FORWARD:
        return (struct tp_gemm){.m = S, .n = n, .k = k};
    case INPUT_GRADIENT:
        return (struct tp_gemm){.b_transposed = true, .m = S, .n = k, .k = n};
    default:
        return (struct tp_gemm){.a_transposed = true, .m = k, .n = n, .k = S, .beta = 1.0f};
    }
}

/* One provider on one device, with a layer's matrices and rows enough for all products. */
struct provider {
    const char *name;
    struct tp_device *device;
    struct tp_arena *arena;
    bool packed;
    struct tp_view in, out;                                  /* rows */
    struct tp_view weight[N_MATRICES], gradient[N_MATRICES]; /* [K, N] */
    struct tp_view panels[N_KINDS][N_MATRICES]; /* of the weights and of rows, when packed */
    struct rounds rounds[N_KINDS][N_LENGTHS];
    struct rounds packing; /* all four, for forward and backward */
    double errors[N_KINDS][N_LENGTHS];
};

/* A region with numbers in it: untouched memory of a host is one page of zeros, read from the cache
 * as no real matrix is. */
static enum tp_status take(struct provider *p, const char *name, size_t count, struct tp_view *view)
{
    TP_TRY(tp_arena_take(p->arena, name, count, view));
    return tp_fill(p->device, *view, 0.5f, count);
}

static enum tp_status take_panels(struct provider *p, size_t C)
{
    for (int kind = FORWARD; kind < N_KINDS; kind++)
        for (int i = 0; i < N_MATRICES; i++) {
            const struct tp_gemm shape =
                product_of((enum kind)kind, i, C, (size_t)lengths[N_LENGTHS - 1]);
            TP_TRY(take(p, "panels", tp_packed_count(shape.n, shape.k), &p->panels[kind][i]));
        }
    return TP_OK;
}

static enum tp_status provider_open(struct provider *p, const char *index, int threads, size_t C,
                                    enum tp_gemm_provider gemm)
{
    const struct tp_device_options options = {
        .index = index, .threads = threads, .head_width = 64, .gemm = gemm};
    const size_t most = 4 * C * (size_t)lengths[N_LENGTHS - 1];
    TP_TRY(tp_device_open(&options, &p->device));
    p->packed = gemm == TP_GEMM_PACKED;
    p->name = tp_gemm_choices[gemm];
    TP_TRY(tp_arena_new(p->device, 0, &p->arena));
    TP_TRY(take(p, "rows", most, &p->in));
    TP_TRY(take(p, "rows", most, &p->out));
    for (int i = 0; i < N_MATRICES; i++) {
        const struct tp_gemm shape = product_of(FORWARD, i, C, 1);
        TP_TRY(take(p, "weights", shape.n * shape.k, &p->weight[i]));
        TP_TRY(take(p, "gradients", shape.n * shape.k, &p->gradient[i]));
    }
    return p->packed ? take_panels(p, C) : TP_OK;
}

static void provider_close(struct provider *p)
{
    tp_arena_free(p->arena);
    tp_device_close(p->device);
}

static enum tp_status check(struct provider *p, size_t C, enum kind kind, int length)
{
    for (int i = 0; i < N_MATRICES; i++) {
        const struct tp_gemm shape = product_of(kind, i, C, (size_t)lengths[length]);
        double error;
        TP_TRY(tp_gemm_check(p->device, &shape, &error));
        if (error > p->errors[kind][length])
            p->errors[kind][length] = error;
    }
    return TP_OK;
}

static enum tp_status pack(struct provider *p, size_t C)
{
    TP_TRY(tp_device_finish(p->device));
    const double begin = tp_clock_now();
    for (int kind = FORWARD; kind < WEIGHT_GRADIENT; kind++)
        for (int i = 0; i < N_MATRICES; i++) {
            const struct tp_gemm shape = product_of((enum kind)kind, i, C, 1);
            TP_TRY(tp_packed_write(p->device, p->panels[kind][i], p->weight[i], &shape));
        }
    TP_TRY(tp_device_finish(p->device));
    rounds_add(&p->packing, tp_clock_now() - begin);
    return TP_OK;
}

/* Panels of a gradient's product are of its rows, and packed each time. */
static enum tp_status multiply(struct provider *p, enum kind kind, int i,
                               const struct tp_gemm *shape)
{
    const bool gradient = kind == WEIGHT_GRADIENT;
    struct tp_view c = gradient ? p->gradient[i] : p->out, b = gradient ? p->out : p->weight[i];
    if (!p->packed)
        return tp_gemm(p->device, c, p->in, b, shape);
    if (gradient)
        TP_TRY(tp_packed_write(p->device, p->panels[kind][i], b, shape));
    return tp_packed_gemm(p->device, c, p->in, p->panels[kind][i], shape);
}

/* Repeats the products of a kind until the time is up; adds the seconds of one pass. */
static enum tp_status measure(struct provider *p, size_t C, enum kind kind, int length,
                              double seconds)
{
    int passes = 0;
    double elapsed;
    TP_TRY(tp_device_finish(p->device));
    const double begin = tp_clock_now();
    do {
        for (int i = 0; i < N_MATRICES; i++) {
            const struct tp_gemm shape = product_of(kind, i, C, (size_t)lengths[length]);
            TP_TRY(multiply(p, kind, i, &shape));
        }
        TP_TRY(tp_device_finish(p->device));
        passes++;
        elapsed = tp_clock_now() - begin;
    } while (elapsed < seconds);
    rounds_add(&p->rounds[kind][length], elapsed / passes);
    return TP_OK;
}

static enum tp_status measure_all(struct provider *providers, int count, const struct settings *s)
{
    const size_t C = (size_t)s->width;
    for (int p = 0; p < count; p++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int l = 0; l < N_LENGTHS; l++)
                TP_TRY(check(&providers[p], C, (enum kind)kind, l));
    for (int round = 0; round < s->rounds; round++) {
        for (int p = 0; p < count; p++)
            if (providers[p].packed)
                TP_TRY(pack(&providers[p], C));
        for (int l = 0; l < N_LENGTHS; l++)
            for (int kind = 0; kind < N_KINDS; kind++)
                for (int p = 0; p < count; p++)
                    TP_TRY(measure(&providers[p], C, (enum kind)kind, l, s->seconds));
    }
    return TP_OK;
}

static const struct report_column columns[] = {
    {REPORT_KEY, "tokens", "", 0, 0},          {REPORT_KEY, "product", "", 0, 0},
    {REPORT_KEY, "provider", "", 0, 0},        {REPORT_TIME, "layer", "ms", 3, 1e3},
    {REPORT_FIGURE, "speed", "GFLOP/s", 2, 0}, {REPORT_ERROR, "error", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static enum tp_status report_product(struct provider *p, size_t C, enum kind kind, int length,
                                     struct report *report)
{
    struct rounds *r = &p->rounds[kind][length];
    const double gflop = 1e-9 * 2.0 * 12.0 * (double)C * (double)C * lengths[length];
    const double K = (double)(kind == WEIGHT_GRADIENT ? lengths[length] : 4 * (int)C);
    return report_add(report, (struct report_cell[N_COLUMNS]){
                                  report_number(lengths[length]), report_text(kinds[kind]),
                                  report_text(p->name), report_time(r, 1),
                                  report_number(gflop / rounds_at(r, 0.5)),
                                  report_error(p->errors[kind][length], 1e-6 + K * 6e-8)});
}

/* Once a step, whatever the slices: no tokens. */
static enum tp_status report_packing(struct provider *p, struct report *report)
{
    return report_add(report, (struct report_cell[N_COLUMNS]){
                                  report_number(0), report_text("packing"), report_text(p->name),
                                  report_time(&p->packing, 1), report_none(), report_none()});
}

static enum tp_status report_all(struct provider *providers, int count, const struct settings *s,
                                 struct report *report)
{
    for (int l = 0; l < N_LENGTHS; l++)
        for (int kind = 0; kind < N_KINDS; kind++)
            for (int p = 0; p < count; p++)
                TP_TRY(report_product(&providers[p], (size_t)s->width, (enum kind)kind, l, report));
    for (int p = 0; p < count; p++)
        if (providers[p].packed)
            TP_TRY(report_packing(&providers[p], report));
    return report_finish(report);
}

static bool has_host_blas(const struct tp_device_info *info, const struct settings *s)
{
    const struct tp_device_options options = {
        .index = info->index, .threads = s->threads, .head_width = 64};
    struct tp_device *device;
    if (tp_device_open(&options, &device) != TP_OK)
        return false;
    const bool has = tp_device_plain_gemm(device) == TP_GEMM_CBLAS;
    tp_device_close(device);
    return has;
}

/* The host's BLAS where there is one, CLBlast, and panels where kernels are those for CPUs. */
static enum tp_status open_all(struct provider *providers, int *count,
                               const struct tp_device_info *info, const struct settings *s)
{
    const size_t C = (size_t)s->width;
    if (strcmp(info->type, "cpu") == 0 && has_host_blas(info, s))
        TP_TRY(provider_open(&providers[(*count)++], info->index, s->threads, C, TP_GEMM_CBLAS));
    TP_TRY(provider_open(&providers[(*count)++], info->index, s->threads, C, TP_GEMM_CLBLAST));
    if (tp_device_kernels(providers[*count - 1].device) == TP_KERNELS_CPU)
        TP_TRY(provider_open(&providers[(*count)++], info->index, s->threads, C, TP_GEMM_PACKED));
    return TP_OK;
}

struct bench {
    struct provider providers[3];
    int n_providers;
    struct tp_device_info *infos;
    struct report *report;
};

static enum tp_status measure_and_report(struct bench *b, const struct settings *s)
{
    int n_devices, index;

    TP_TRY(report_open(&s->report, "gemm", columns, N_COLUMNS, &b->report));
    tp_device_limit_threads(s->threads);
    TP_TRY(tp_devices_list(&b->infos, &n_devices));
    TP_TRY(tp_device_select(s->device, 0, b->infos, n_devices, &index));
    TP_TRY(report_fact(b->report, "width", "%d", s->width));
    TP_TRY(report_device(b->report, &b->infos[index], s->threads));
    TP_TRY(open_all(b->providers, &b->n_providers, &b->infos[index], s));
    TP_TRY(measure_all(b->providers, b->n_providers, s));
    return report_all(b->providers, b->n_providers, s, b->report);
}

static enum tp_status run(const void *settings)
{
    static struct bench bench;
    const enum tp_status status = measure_and_report(&bench, settings);

    for (int p = 0; p < bench.n_providers; p++)
        if (bench.providers[p].device != NULL)
            provider_close(&bench.providers[p]);
    free(bench.infos);
    report_close(bench.report);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    tp_device_prepare(argv);
    return report_main(rows, N_ROWS, &s, argc, argv, run);
}
