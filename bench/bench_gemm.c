/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the gemm providers on the products of a layer, forward and both gradients together, for
 * several slice lengths, each beside the largest error of its products. */
#include "config.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "device/gemm.h"
#include "rounds.h"

struct settings {
    int width, rounds, threads;
    double seconds;
    const char *device;
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
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const int lengths[] = {16, 64, 256, 1024};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]), N_PRODUCTS = 12 };

/* The products of a layer of width C for S tokens: four matrices, forward, input and weight
 * gradient. */
static void layer_products(size_t C, size_t S, struct tp_gemm products[N_PRODUCTS])
{
    const size_t matrices[4][2] = {{C, 3 * C}, {C, C}, {C, 4 * C}, {4 * C, C}};
    for (int i = 0; i < 4; i++) {
        const size_t k = matrices[i][0], n = matrices[i][1];
        products[3 * i] = (struct tp_gemm){.m = S, .n = n, .k = k};
        products[3 * i + 1] = (struct tp_gemm){.b_transposed = true, .m = S, .n = k, .k = n};
        products[3 * i + 2] =
            (struct tp_gemm){.a_transposed = true, .m = k, .n = n, .k = S, .beta = 1.0f};
    }
}

/* One provider on one device, with operands large enough for all products. */
struct provider {
    struct tp_device *device;
    struct tp_arena *arena;
    struct tp_view a, b, c;
    struct rounds rounds[N_LENGTHS];
    double errors[N_LENGTHS];
};

static enum tp_status provider_open(struct provider *p, const char *index, int threads, size_t C,
                                    enum tp_gemm_provider gemm)
{
    const struct tp_device_options options = {
        .index = index, .threads = threads, .head_width = 64, .gemm = gemm};
    const size_t most = 4 * C * (C > 1024 ? C : 1024);
    TP_TRY(tp_device_open(&options, &p->device));
    TP_TRY(tp_arena_new(p->device, 0, &p->arena));
    TP_TRY(tp_arena_take(p->arena, "a", most, &p->a));
    TP_TRY(tp_arena_take(p->arena, "b", most, &p->b));
    return tp_arena_take(p->arena, "c", most, &p->c);
}

static void provider_close(struct provider *p)
{
    tp_arena_free(p->arena);
    tp_device_close(p->device);
}

static enum tp_status check(struct provider *p, size_t C, int length)
{
    struct tp_gemm products[N_PRODUCTS];
    layer_products(C, (size_t)lengths[length], products);
    for (int i = 0; i < N_PRODUCTS; i++) {
        double error;
        TP_TRY(tp_gemm_check(p->device, &products[i], &error));
        if (error > p->errors[length])
            p->errors[length] = error;
    }
    return TP_OK;
}

/* Repeats all products until the time is up; adds the seconds of one pass. */
static enum tp_status measure(struct provider *p, size_t C, int length, double seconds)
{
    struct tp_gemm products[N_PRODUCTS];
    int passes = 0;
    double elapsed;
    layer_products(C, (size_t)lengths[length], products);
    TP_TRY(tp_device_finish(p->device));
    const double begin = tp_clock_now();
    do {
        for (int i = 0; i < N_PRODUCTS; i++)
            TP_TRY(tp_gemm(p->device, p->c, p->a, p->b, &products[i]));
        TP_TRY(tp_device_finish(p->device));
        passes++;
        elapsed = tp_clock_now() - begin;
    } while (elapsed < seconds);
    rounds_add(&p->rounds[length], elapsed / passes);
    return TP_OK;
}

static enum tp_status run(struct provider *providers, int count, const struct settings *s)
{
    const size_t C = (size_t)s->width;
    for (int p = 0; p < count; p++)
        for (int l = 0; l < N_LENGTHS; l++)
            TP_TRY(check(&providers[p], C, l));
    for (int round = 0; round < s->rounds; round++)
        for (int l = 0; l < N_LENGTHS; l++)
            for (int p = 0; p < count; p++)
                TP_TRY(measure(&providers[p], C, l, s->seconds));
    for (int l = 0; l < N_LENGTHS; l++)
        for (int p = 0; p < count; p++) {
            struct rounds *r = &providers[p].rounds[l];
            const double flops = 3.0 * 2.0 * 12.0 * (double)C * (double)C * lengths[l];
            printf("%6d  %-8s %8.2f  %7.2f .. %-7.2f %9.1e\n", lengths[l],
                   tp_gemm_choices[tp_device_gemm(providers[p].device)],
                   flops / rounds_at(r, 0.5) * 1e-9, flops / rounds_at(r, 1.0) * 1e-9,
                   flops / rounds_at(r, 0.0) * 1e-9, providers[p].errors[l]);
        }
    return TP_OK;
}

int main(int argc, char **argv)
{
    struct settings s = {0};
    struct tp_options options;
    struct tp_device_info *infos = NULL;
    struct provider providers[2] = {0};
    int n_devices, index;

    tp_device_prepare(argv);
    if (tp_options_parse(&options, rows, N_ROWS, &s, argc, argv) != TP_OK)
        return 2;
    if (options.help) {
        tp_options_help(rows, N_ROWS, stdout);
        return 0;
    }
    tp_device_limit_threads(s.threads);
    if (tp_devices_list(&infos, &n_devices) != TP_OK ||
        tp_device_select(s.device, 0, infos, n_devices, &index) != TP_OK)
        return 1;
    printf("gemm of a layer, C = %d, forward and both gradients; %s, %d thread%s\n", s.width,
           infos[index].name, s.threads, s.threads == 1 ? "" : "s");
    printf("tokens  provider  GFLOP/s  slowest .. fastest  largest error\n");
    enum tp_status status =
        provider_open(&providers[0], infos[index].index, s.threads, (size_t)s.width, TP_GEMM_AUTO);
    int count = 1;
    if (status == TP_OK && tp_device_gemm(providers[0].device) != TP_GEMM_CLBLAST) {
        status = provider_open(&providers[1], infos[index].index, s.threads, (size_t)s.width,
                               TP_GEMM_CLBLAST);
        count = 2;
    }
    if (status == TP_OK)
        status = run(providers, count, &s);
    for (int p = 0; p < count; p++)
        if (providers[p].device != NULL)
            provider_close(&providers[p]);
    free(infos);
    tp_options_fini(&options);
    return status == TP_OK ? 0 : 1;
}
