/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of each kernel at the shapes of a layer, beside the largest error of its results against
 * double precision. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "kernel_cases.h"
#include "report.h"

struct settings {
    int width, heads, tokens, context, vocabulary, rounds, threads;
    int kernels; /* enum tp_kernel_style */
    const char *device;
    struct report_options report;
};

/* clang-format off */
#define FIELD(name) offsetof(struct settings, name)
static const struct tp_option rows[] = {
    {.name = "hidden-size", .type = TP_OPTION_INT, .offset = FIELD(width), .initial = "768", .min = 1, .max = 65536, .argument = "C", .help = "width of the layer"},
    {.name = "num-attention-heads", .type = TP_OPTION_INT, .offset = FIELD(heads), .initial = "12", .min = 1, .max = 1024, .argument = "H", .help = "heads"},
    {.name = "tokens", .type = TP_OPTION_INT, .offset = FIELD(tokens), .initial = "1024", .min = 1, .max = 65536, .argument = "S", .help = "tokens of the slice"},
    {.name = "context", .type = TP_OPTION_INT, .offset = FIELD(context), .initial = "0", .min = 0, .max = 65536, .argument = "P", .help = "tokens before it"},
    {.name = "vocab-size", .type = TP_OPTION_INT, .offset = FIELD(vocabulary), .initial = "50257", .min = 1, .max = 1000000, .argument = "V", .help = "tokens of the vocabulary"},
    {.name = "rounds", .type = TP_OPTION_INT, .offset = FIELD(rounds), .initial = "9", .min = 1, .max = MOST_ROUNDS, .argument = "N", .help = "rounds; medians are printed"},
    {.name = "threads", .type = TP_OPTION_INT, .offset = FIELD(threads), .initial = "1", .min = 1, .max = 4096, .argument = "N", .help = "threads of a CPU device"},
    {.name = "kernels", .type = TP_OPTION_CHOICE, .offset = FIELD(kernels), .initial = "auto", .choices = tp_kernel_styles, .argument = "STYLE", .help = "a row a work-item or a work-group: cpu, gpu, auto (as the device is)"},
    {.name = "device", .type = TP_OPTION_STRING, .offset = FIELD(device), .argument = "SEL", .help = "OpenCL device by index, name or type"},
    REPORT_OPTIONS(struct settings, report),
};
/* clang-format on */
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), MOST_KERNELS = 32 };

/* A kernel with its operands, on the device and as they were at first. */
struct run {
    const struct kernel *kernel;
    int n_operands;
    size_t counts[MOST_OPERANDS];
    struct tp_view at[MOST_OPERANDS];
    float *initial[MOST_OPERANDS];
    double error;
    struct rounds rounds;
};

struct bench {
    struct shape shape;
    struct tp_device *device;
    struct tp_arena *arena;
    struct run runs[MOST_KERNELS];
    struct report *report;
};

/* ---- Operands ---- */

/* Random numbers, drawn once and repeated: each would take too long. */
static void fill(float *out, size_t count, uint32_t stream, bool positive)
{
    enum { DRAWN = 9973 }; /* a prime, so that rows of a matrix differ */
    const struct tp_rng rng = {.seed = 3, .use = TP_RNG_INIT, .stream = stream};
    const size_t drawn = count < DRAWN ? count : DRAWN;

    tp_rng_normal(&rng, 0, drawn, 0.5, out);
    for (size_t i = 0; i < count; i++)
        out[i] = i < drawn && positive ? fabsf(out[i]) + 0.1f : out[i < drawn ? i : i % drawn];
}

static void fill_tokens(float *out, size_t count, int vocabulary)
{
    const struct tp_rng rng = {.seed = 3, .use = TP_RNG_SHUFFLE};
    int32_t *tokens = (int32_t *)(void *)out;

    for (size_t i = 0; i < count; i++)
        tokens[i] = (int32_t)tp_rng_below(&rng, i, (uint64_t)vocabulary);
}

/* Caches have zeros beyond each head's width. */
static void clear_padding(float *cache, size_t count, int D)
{
    const size_t stride = (size_t)((D + TP_LANES - 1) / TP_LANES * TP_LANES);

    for (size_t i = 0; i < count; i++)
        if (i % stride >= (size_t)D)
            cache[i] = 0;
}

static void fill_operand(const struct bench *b, const struct run *run, int i)
{
    const struct operand *operand = &run->kernel->operands[i];

    if (operand->start == TOKEN_NUMBERS)
        fill_tokens(run->initial[i], run->counts[i], b->shape.V);
    else
        fill(run->initial[i], run->counts[i], (uint32_t)i, operand->start == POSITIVE);
    if (operand->size == CACHE)
        clear_padding(run->initial[i], run->counts[i], b->shape.D);
}

static enum tp_status write_operands(const struct bench *b, const struct run *run)
{
    for (int i = 0; i < run->n_operands; i++)
        TP_TRY(tp_memory_write(b->device, run->at[i], run->initial[i], run->counts[i]));
    return TP_OK;
}

static enum tp_status prepare(const struct bench *b, struct run *run)
{
    if (run->kernel->prepare == NULL)
        return TP_OK;
    TP_TRY(run->kernel->prepare(b->device, &b->shape, run->at));
    for (int i = 0; i < run->n_operands; i++)
        TP_TRY(tp_memory_read(b->device, run->initial[i], run->at[i], run->counts[i]));
    return TP_OK;
}

static enum tp_status open_run(struct bench *b, const struct kernel *kernel, struct run *run)
{
    run->kernel = kernel;
    for (int i = 0; i < MOST_OPERANDS && kernel->operands[i].size != NONE; i++) {
        run->counts[i] = size_of(&b->shape, kernel->operands[i].size);
        run->initial[i] = malloc(run->counts[i] * sizeof(float));
        if (run->initial[i] == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for %zu numbers", run->counts[i]);
        run->n_operands++;
        TP_TRY(tp_arena_take(b->arena, kernel->name, run->counts[i], &run->at[i]));
        fill_operand(b, run, i);
    }
    TP_TRY(write_operands(b, run));
    return prepare(b, run);
}

static void close_run(struct run *run)
{
    for (int i = 0; i < run->n_operands; i++)
        free(run->initial[i]);
}

/* ---- Errors ---- */

/* The largest difference of an element, relative to the root mean square of what is expected. */
static double difference(const float *got, const double *expected, size_t count)
{
    double square = 0, largest = 0;

    for (size_t i = 0; i < count; i++) {
        const double off = fabs((double)got[i] - expected[i]);
        square += expected[i] * expected[i];
        largest = off <= largest ? largest : off; /* keeps what is no number */
    }
    return largest / (sqrt(square / (double)count) + 1e-30);
}

static enum tp_status compare_outputs(const struct bench *b, struct run *run,
                                      double *const *expected)
{
    for (int i = 0; i < run->n_operands; i++) {
        if (expected[i] == NULL)
            continue;
        float *got = malloc(run->counts[i] * sizeof(float));
        if (got == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for %zu numbers", run->counts[i]);
        const enum tp_status status = tp_memory_read(b->device, got, run->at[i], run->counts[i]);
        const double off = status == TP_OK ? difference(got, expected[i], run->counts[i]) : 0;
        free(got);
        TP_TRY(status);
        run->error = off <= run->error ? run->error : off;
    }
    return TP_OK;
}

static enum tp_status expect_and_compare(const struct bench *b, struct run *run, double **expected)
{
    for (int i = 0; i < run->n_operands; i++) {
        if (run->kernel->operands[i].use == IN)
            continue;
        expected[i] = malloc(run->counts[i] * sizeof(double));
        if (expected[i] == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for %zu numbers", run->counts[i]);
        for (size_t j = 0; j < run->counts[i]; j++)
            expected[i][j] = (double)run->initial[i][j];
    }
    run->kernel->expect(&b->shape, (const float *const *)run->initial, expected);
    return compare_outputs(b, run, expected);
}

static enum tp_status check(const struct bench *b, struct run *run)
{
    double *expected[MOST_OPERANDS] = {NULL};

    TP_TRY(run->kernel->launch(b->device, &b->shape, run->at));
    const enum tp_status status = expect_and_compare(b, run, expected);
    for (int i = 0; i < MOST_OPERANDS; i++)
        free(expected[i]);
    return status;
}

/* ---- Measuring ---- */

/* One launch, waited for. */
static enum tp_status measure(const struct bench *b, struct run *run)
{
    if (run->kernel->fades)
        TP_TRY(write_operands(b, run));
    TP_TRY(tp_device_finish(b->device));
    const double began = tp_clock_now();
    TP_TRY(run->kernel->launch(b->device, &b->shape, run->at));
    TP_TRY(tp_device_finish(b->device));
    rounds_add(&run->rounds, tp_clock_now() - began);
    return TP_OK;
}

/* What a launch reads and writes, and the elements of the largest operand. */
static void count_traffic(const struct bench *b, const struct run *run, double *bytes,
                          double *elements)
{
    *bytes = *elements = 0;
    for (int i = 0; i < run->n_operands; i++) {
        const struct operand *o = &run->kernel->operands[i];
        const double count = (double)size_of(&b->shape, o->touched != NONE ? o->touched : o->size);
        *bytes += sizeof(float) * count * (o->use == CHANGED ? 2 : 1);
        *elements = fmax(*elements, count);
    }
}

static const struct report_column columns[] = {
    {REPORT_KEY, "kernel", "", 0, 0},          {REPORT_TIME, "launch", "us", 1, 1e6},
    {REPORT_FIGURE, "element", "ns", 3, 0},    {REPORT_FIGURE, "memory", "GB/s", 1, 0},
    {REPORT_FIGURE, "speed", "GFLOP/s", 1, 0}, {REPORT_ERROR, "error", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Of the worst element, relative to the size of all: sums of a thousand numbers, and in attention's
 * backward sums of such sums, round off by so much. */
#define BOUND 5e-5

static enum tp_status report_run(const struct bench *b, struct run *run)
{
    const struct shape *s = &b->shape;
    const double pairs = (double)s->S * s->P + 0.5 * s->S * (s->S + 1.0);
    const double seconds = rounds_at(&run->rounds, 0.5);
    double bytes, elements;

    count_traffic(b, run, &bytes, &elements);
    const bool by_flops = run->kernel->flops > 0;
    return report_add(
        b->report, (struct report_cell[N_COLUMNS]){
                       report_text(run->kernel->name), report_time(&run->rounds, 1),
                       report_number(1e9 * seconds / elements),
                       by_flops ? report_none() : report_number(1e-9 * bytes / seconds),
                       by_flops ? report_number(1e-9 * run->kernel->flops * pairs * s->C / seconds)
                                : report_none(),
                       report_error(run->error, BOUND)});
}

static enum tp_status open_device(struct bench *b, const struct settings *s)
{
    struct tp_device_info *infos;
    int count, index;

    tp_device_limit_threads(s->threads);
    TP_TRY(tp_devices_list(&infos, &count));
    enum tp_status status = tp_device_select(s->device, 0, infos, count, &index);
    if (status == TP_OK) {
        const struct tp_device_options options = {.index = infos[index].index,
                                                  .threads = s->threads,
                                                  .head_width = b->shape.D,
                                                  .kernels = (enum tp_kernel_style)s->kernels};
        status = tp_device_open(&options, &b->device);
    }
    free(infos);
    TP_TRY(status);
    return tp_arena_new(b->device, 0, &b->arena);
}

static enum tp_status choose_shape(const struct settings *s, struct shape *shape)
{
    const int fit = (8 << 20) / s->vocabulary; /* 32 MiB, as a cell has */

    if (s->width % s->heads != 0)
        return tp_fail(TP_ERR_USAGE, "--num-attention-heads %d: expected a divisor of %d", s->heads,
                       s->width);
    *shape = (struct shape){.S = s->tokens,
                            .P = s->context,
                            .T = s->context + s->tokens,
                            .C = s->width,
                            .H = s->heads,
                            .D = s->width / s->heads,
                            .N = 4 * s->width,
                            .V = s->vocabulary,
                            .head_rows = fit < 16 ? 16 : fit};
    if (shape->head_rows > s->tokens)
        shape->head_rows = s->tokens;
    return TP_OK;
}

static enum tp_status measure_and_report(struct bench *b, const struct settings *s)
{
    TP_TRY(choose_shape(s, &b->shape));
    TP_TRY(report_open(&s->report, "kernels", columns, N_COLUMNS, &b->report));
    TP_TRY(open_device(b, s));
    TP_TRY(report_fact(b->report, "shape", "C = %d, H = %d, S = %d, P = %d, V = %d", s->width,
                       s->heads, s->tokens, s->context, s->vocabulary));
    TP_TRY(report_device(b->report, tp_device_describe(b->device), s->threads));
    for (int i = 0; i < n_kernels; i++) {
        TP_TRY(open_run(b, &kernels[i], &b->runs[i]));
        TP_TRY(check(b, &b->runs[i]));
    }
    for (int round = 0; round < s->rounds; round++)
        for (int i = 0; i < n_kernels; i++)
            TP_TRY(measure(b, &b->runs[i]));
    for (int i = 0; i < n_kernels; i++)
        TP_TRY(report_run(b, &b->runs[i]));
    return report_finish(b->report);
}

static enum tp_status run(const void *settings)
{
    static struct bench bench;
    const enum tp_status status = measure_and_report(&bench, settings);

    for (int i = 0; i < MOST_KERNELS; i++)
        close_run(&bench.runs[i]);
    tp_arena_free(bench.arena);
    tp_device_close(bench.device);
    report_close(bench.report);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    tp_device_prepare(argv);
    return report_main(rows, N_ROWS, &s, argc, argv, run);
}
