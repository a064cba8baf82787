/* SPDX-License-Identifier: Apache-2.0 */
/* What a token costs in a layer, forward and backward, by the length of the slice that it comes in:
 * figure 3 of the TeraPipe paper (arXiv 2102.07988), for several gemm providers in turn. Beside
 * each time how far outputs and gradients are from those of the whole sequence with the first
 * provider. */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/rng.h"
#include "cell/cell.h"
#include "report.h"

struct settings {
    int layers, width, heads, seq_len, contexts, rounds, threads;
    const char *device;
    struct tp_option_list gemms, lengths;
    struct report_options report;
};

/* clang-format off */
#define FIELD(name) offsetof(struct settings, name)
static const struct tp_option rows[] = {
    {.name = "num-layers", .type = TP_OPTION_INT, .offset = FIELD(layers), .initial = "2", .min = 1, .max = 100, .argument = "L", .help = "layers of the cell: more than a cache holds"},
    {.name = "hidden-size", .type = TP_OPTION_INT, .offset = FIELD(width), .initial = "768", .min = 1, .max = 65536, .argument = "C", .help = "width"},
    {.name = "num-attention-heads", .type = TP_OPTION_INT, .offset = FIELD(heads), .initial = "12", .min = 1, .max = 1024, .argument = "H", .help = "heads"},
    {.name = "seq-length", .type = TP_OPTION_INT, .offset = FIELD(seq_len), .initial = "1024", .min = 1, .max = 1000000, .argument = "T", .help = "tokens of the sequence"},
    {.name = "lengths", .type = TP_OPTION_LIST, .offset = FIELD(lengths), .argument = "S...", .help = "tokens of a slice (default: 16, 32, 64, ... and the whole sequence, which always comes first)"},
    {.name = "contexts", .type = TP_OPTION_INT, .offset = FIELD(contexts), .initial = "0", .min = 0, .max = 16, .argument = "N", .help = "also single slices: N of each length, from the first of the sequence to the last"},
    {.name = "gemm", .type = TP_OPTION_LIST, .offset = FIELD(gemms), .argument = "NAME...", .help = "gemm providers (default: all but CLBlast that the device has)"},
    {.name = "rounds", .type = TP_OPTION_INT, .offset = FIELD(rounds), .initial = "5", .min = 1, .max = MOST_ROUNDS, .argument = "N", .help = "rounds; medians are printed"},
    {.name = "threads", .type = TP_OPTION_INT, .offset = FIELD(threads), .initial = "1", .min = 1, .max = 4096, .argument = "N", .help = "threads of a CPU device"},
    {.name = "device", .type = TP_OPTION_STRING, .offset = FIELD(device), .argument = "SEL", .help = "OpenCL device by index, name or type"},
    REPORT_OPTIONS(struct settings, report),
};
/* clang-format on */
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

enum { MOST_PROVIDERS = 4, MOST_LENGTHS = 24, MOST_CONTEXTS = 16 };

/* What a pass took, or a single slice. */
struct times {
    struct rounds direction[2], both;
};

/* A length of slices; the last slice of the sequence may be shorter. */
struct cut {
    struct times whole;
    struct times single[MOST_CONTEXTS];
    double output_error, gradient_error;
};

/* The numbers that a cut computes, and is compared by. */
struct result {
    float *output, *input_gradient; /* [T, C] */
    float **gradients;              /* as the parameter table; NULL where the cell has none */
};

struct provider {
    const char *name;
    struct tp_device *device;
    struct tp_cell *cell;
    struct tp_stage stage;
    struct cut cuts[MOST_LENGTHS];
};

struct bench {
    const struct settings *settings;
    struct tp_stage_shape shape;
    struct tp_parameters parameters;
    int lengths[MOST_LENGTHS], n_lengths;
    struct provider providers[MOST_PROVIDERS];
    int n_providers;
    float *input, *output_gradient; /* [T, C] */
    struct result expected, got;
    struct report *report;
};

static size_t rows_count(const struct bench *b)
{
    return (size_t)b->shape.seq_len * (size_t)b->shape.model.n_embd;
}

/* ---- Units: the slices of one sequence ---- */

static int count_units(const struct bench *b, int length)
{
    return (b->shape.seq_len + length - 1) / length;
}

static struct tp_unit unit_of(const struct bench *b, int length, int number)
{
    const int start = number * length, left = b->shape.seq_len - start;
    return (struct tp_unit){.slice = {.start = start, .length = left < length ? left : length},
                            .index = number,
                            .number = number,
                            .last = count_units(b, length) - 1,
                            .sequences = 1,
                            .row = (size_t)start,
                            .input_row = (size_t)start};
}

static enum tp_status begin_step(const struct provider *p)
{
    const struct tp_cell_step step = {.sequences = 1, .scale = 1, .train = true};
    return tp_cell_begin_step(p->cell, &step);
}

/* ---- The check: slice by slice, with its messages ---- */

static enum tp_status give(const struct bench *b, const struct provider *p,
                           enum tp_direction direction, const struct tp_unit *unit)
{
    const float *from = direction == TP_FORWARD ? b->input : b->output_gradient;
    float *data;
    size_t count;

    TP_TRY(p->stage.message_in(p->stage.self, direction, unit, &data, &count));
    memcpy(data, from + unit->row * (size_t)b->shape.model.n_embd, count * sizeof(*data));
    return p->stage.message_in_done(p->stage.self, direction, unit);
}

static enum tp_status take(const struct bench *b, const struct provider *p,
                           enum tp_direction direction, const struct tp_unit *unit,
                           const struct result *result)
{
    float *to = direction == TP_FORWARD ? result->output : result->input_gradient;
    const float *data;
    size_t count;

    TP_TRY(p->stage.message_out(p->stage.self, direction, unit, &data, &count));
    memcpy(to + unit->row * (size_t)b->shape.model.n_embd, data, count * sizeof(*data));
    return p->stage.message_out_done(p->stage.self, direction, unit);
}

static enum tp_status run_unit(const struct bench *b, const struct provider *p,
                               enum tp_direction direction, const struct tp_unit *unit,
                               const struct result *result)
{
    TP_TRY(give(b, p, direction, unit));
    TP_TRY(p->stage.begin(p->stage.self, direction, unit));
    for (bool done = false; !done;) {
        tp_bell_wait(TP_CLOCK_POLL);
        TP_TRY(p->stage.poll(p->stage.self, direction, unit, &done));
    }
    return take(b, p, direction, unit, result);
}

static enum tp_status compute(const struct bench *b, const struct provider *p, int length,
                              const struct result *result)
{
    const int n = count_units(b, length);

    TP_TRY(begin_step(p));
    for (int i = 0; i < n; i++) {
        const struct tp_unit unit = unit_of(b, length, i);
        TP_TRY(run_unit(b, p, TP_FORWARD, &unit, result));
    }
    for (int i = n - 1; i >= 0; i--) {
        const struct tp_unit unit = unit_of(b, length, i);
        TP_TRY(run_unit(b, p, TP_BACKWARD, &unit, result));
    }
    for (int row = 0; row < b->parameters.count; row++)
        if (result->gradients[row] != NULL)
            TP_TRY(tp_cell_read(p->cell, row, TP_GRADIENT, result->gradients[row]));
    return TP_OK;
}

/* Norm of the difference by that of what is expected. */
static double difference(const float *got, const float *expected, size_t count)
{
    double off = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        const double d = (double)got[i] - (double)expected[i];
        off += d * d;
        size += (double)expected[i] * (double)expected[i];
    }
    return sqrt(off / size);
}

static void compare(const struct bench *b, struct cut *cut)
{
    const struct result *got = &b->got, *expected = &b->expected;

    cut->output_error = difference(got->output, expected->output, rows_count(b));
    cut->gradient_error = difference(got->input_gradient, expected->input_gradient, rows_count(b));
    for (int row = 0; row < b->parameters.count; row++) {
        if (got->gradients[row] == NULL)
            continue;
        const double off =
            difference(got->gradients[row], expected->gradients[row], b->parameters.at[row].count);
        if (!(off <= cut->gradient_error)) /* keeps what is no number */
            cut->gradient_error = off;
    }
}

static enum tp_status check_all(struct bench *b)
{
    TP_TRY(compute(b, &b->providers[0], b->shape.seq_len, &b->expected));
    for (int i = 0; i < b->n_providers; i++)
        for (int l = 0; l < b->n_lengths; l++) {
            TP_TRY(compute(b, &b->providers[i], b->lengths[l], &b->got));
            compare(b, &b->providers[i].cuts[l]);
        }
    return TP_OK;
}

/* ---- Measuring: computing alone, enqueued without waiting in between ---- */

static enum tp_status enqueue(const struct bench *b, const struct provider *p,
                              enum tp_direction direction, const struct tp_unit *unit)
{
    const int n = b->shape.layers.n_layer;

    for (int i = 0; i < n; i++)
        TP_TRY(tp_cell_compute(p->cell, TP_PART_LAYER, direction == TP_FORWARD ? i : n - 1 - i,
                               direction, unit));
    return TP_OK;
}

/* Slices [first, first + n) of a length in one direction. */
static enum tp_status pass(const struct bench *b, const struct provider *p, int length, int first,
                           int n, enum tp_direction direction)
{
    for (int i = 0; i < n; i++) {
        const struct tp_unit unit =
            unit_of(b, length, first + (direction == TP_FORWARD ? i : n - 1 - i));
        TP_TRY(enqueue(b, p, direction, &unit));
    }
    return tp_device_finish(p->device);
}

/* All slices have one slot for their gradient, in which it is new for the first of them. */
static enum tp_status renew_gradient(const struct bench *b, const struct provider *p)
{
    const struct tp_unit whole = unit_of(b, b->shape.seq_len, 0);
    TP_TRY(give(b, p, TP_BACKWARD, &whole));
    return tp_device_finish(p->device);
}

/* What a step does once, whatever the slices, belongs to the forward: weights are packed there. */
static enum tp_status time_slices(const struct bench *b, const struct provider *p, int length,
                                  int first, int n, bool step, struct times *times)
{
    TP_TRY(renew_gradient(b, p));
    const double began = tp_clock_now();
    if (step)
        TP_TRY(begin_step(p));
    TP_TRY(pass(b, p, length, first, n, TP_FORWARD));
    const double between = tp_clock_now();
    TP_TRY(pass(b, p, length, first, n, TP_BACKWARD));
    const double ended = tp_clock_now();
    rounds_add(&times->direction[TP_FORWARD], between - began);
    rounds_add(&times->direction[TP_BACKWARD], ended - between);
    rounds_add(&times->both, ended - began);
    return TP_OK;
}

/* Of the whole slices of a length, number i of n, spread from the first to the last. */
static int spread(const struct bench *b, int length, int i, int n)
{
    const int most = b->shape.seq_len / length - 1;
    return n < 2 ? 0 : (int)((long long)most * i / (n - 1));
}

static enum tp_status measure_cut(const struct bench *b, struct provider *p, int l)
{
    const int length = b->lengths[l], n = b->settings->contexts;
    struct cut *cut = &p->cuts[l];

    TP_TRY(time_slices(b, p, length, 0, count_units(b, length), true, &cut->whole));
    for (int i = 0; i < n; i++)
        TP_TRY(time_slices(b, p, length, spread(b, length, i, n), 1, false, &cut->single[i]));
    return TP_OK;
}

static enum tp_status measure_all(struct bench *b)
{
    for (int round = 0; round < b->settings->rounds; round++)
        for (int l = 0; l < b->n_lengths; l++)
            for (int i = 0; i < b->n_providers; i++)
                TP_TRY(measure_cut(b, &b->providers[i], l));
    return TP_OK;
}

/* ---- Report ---- */

static const struct report_column columns[] = {
    {REPORT_KEY, "gemm", "", 0, 0},
    {REPORT_KEY, "slice", "tokens", 0, 0},
    {REPORT_KEY, "context", "tokens", 0, 0},
    {REPORT_TIME, "token", "us", 3, 1e6},
    {REPORT_FIGURE, "forward", "us", 3, 0},
    {REPORT_FIGURE, "backward", "us", 3, 0},
    {REPORT_FIGURE, "speed", "GFLOP/s", 1, 0},
    {REPORT_FIGURE, "ratio", "to whole", 3, 0},
    {REPORT_ERROR, "output off", "", 0, 0},
    {REPORT_ERROR, "gradient off", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* As for every gradient of the program: the norm of a tensor's difference, relative. */
#define BOUND 1e-5

/* Of a token in a layer after so much context on average, forward and backward. */
static double token_flops(const struct bench *b, double context)
{
    const double C = b->shape.model.n_embd;
    return 6 * 12 * C * C + 12 * C * context;
}

struct line {
    const struct provider *provider;
    int l, first, n; /* slices [first, first + n) of length l */
    const char *context;
    struct times *times;
    double ratio;
};

static enum tp_status report_line(const struct bench *b, const struct line *line)
{
    const struct cut *cut = &line->provider->cuts[line->l];
    const int length = b->lengths[line->l], start = line->first * length;
    const int end =
        start + line->n * length < b->shape.seq_len ? start + line->n * length : b->shape.seq_len;
    const double tokens = (double)(end - start) * b->shape.layers.n_layer;

    return report_add(
        b->report,
        (struct report_cell[N_COLUMNS]){
            report_text(line->provider->name), report_number(length), report_text(line->context),
            report_time(&line->times->both, tokens),
            report_number(1e6 * rounds_at(&line->times->direction[TP_FORWARD], 0.5) / tokens),
            report_number(1e6 * rounds_at(&line->times->direction[TP_BACKWARD], 0.5) / tokens),
            report_number(1e-9 * token_flops(b, (start + end) / 2.0) * tokens /
                          rounds_at(&line->times->both, 0.5)),
            line->ratio > 0 ? report_number(line->ratio) : report_none(),
            report_error(cut->output_error, BOUND), report_error(cut->gradient_error, BOUND)});
}

static enum tp_status report_cut(const struct bench *b, struct provider *p, int l)
{
    static char contexts[MOST_LENGTHS][MOST_CONTEXTS][16];
    struct cut *cut = &p->cuts[l];
    const int length = b->lengths[l], n = b->settings->contexts;

    TP_TRY(report_line(b, &(struct line){p, l, 0, count_units(b, length), "all", &cut->whole,
                                         rounds_at(&cut->whole.both, 0.5) /
                                             rounds_at(&p->cuts[0].whole.both, 0.5)}));
    for (int i = 0; i < n; i++) {
        const int first = spread(b, length, i, n);
        if (i > 0 && first == spread(b, length, i - 1, n))
            continue;
        snprintf(contexts[l][i], sizeof(contexts[l][i]), "%d", first * length);
        TP_TRY(report_line(b, &(struct line){p, l, first, 1, contexts[l][i], &cut->single[i], 0}));
    }
    return TP_OK;
}

static enum tp_status report_all(struct bench *b)
{
    for (int i = 0; i < b->n_providers; i++)
        for (int l = 0; l < b->n_lengths; l++)
            TP_TRY(report_cut(b, &b->providers[i], l));
    return report_finish(b->report);
}

/* ---- Opening ---- */

static void fill(float *out, size_t count, uint32_t stream, double size)
{
    const struct tp_rng rng = {.seed = 5, .use = TP_RNG_INIT, .stream = stream};
    tp_rng_normal(&rng, 0, count, size, out);
}

static enum tp_status result_init(const struct bench *b, struct result *result)
{
    result->output = malloc(rows_count(b) * sizeof(float));
    result->input_gradient = malloc(rows_count(b) * sizeof(float));
    result->gradients = calloc((size_t)b->parameters.count, sizeof(float *));
    if (result->output == NULL || result->input_gradient == NULL || result->gradients == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a layer's results");
    for (int row = 0; row < b->parameters.count; row++) {
        const struct tp_parameter *parameter = &b->parameters.at[row];
        if (!tp_parameter_on_stage(parameter, &b->shape.model, &b->shape.layers))
            continue;
        result->gradients[row] = malloc(parameter->count * sizeof(float));
        if (result->gradients[row] == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for the gradient of %s", parameter->name);
    }
    return TP_OK;
}

static void result_fini(const struct bench *b, struct result *result)
{
    free(result->output);
    free(result->input_gradient);
    for (int row = 0; result->gradients != NULL && row < b->parameters.count; row++)
        free(result->gradients[row]);
    free(result->gradients);
}

/* Layers in the middle of a model: what comes in and goes out are messages. */
static enum tp_status make_model(struct bench *b, const struct settings *s)
{
    const struct tp_model model = {.n_layer = s->layers + 2,
                                   .n_embd = s->width,
                                   .n_head = s->heads,
                                   .n_inner = 4 * s->width,
                                   .vocab_size = 2,
                                   .n_positions = s->seq_len,
                                   .layer_norm_epsilon = 1e-5,
                                   .initializer_range = 0.02};
    const size_t T = (size_t)s->seq_len;

    TP_TRY(tp_model_check(&model, "bench_cell"));
    b->shape = (struct tp_stage_shape){.model = model,
                                       .layers = {.first_layer = 1, .n_layer = s->layers},
                                       .seq_len = s->seq_len,
                                       .batch = 1,
                                       .caches = 1,
                                       .group = 1,
                                       .rows = T,
                                       .input_rows = T,
                                       .unit_rows = T,
                                       .slots = 1,
                                       .train = true};
    TP_TRY(tp_parameters_init(&b->parameters, &b->shape.model));
    TP_TRY(result_init(b, &b->expected));
    TP_TRY(result_init(b, &b->got));
    b->input = malloc(rows_count(b) * sizeof(float));
    b->output_gradient = malloc(rows_count(b) * sizeof(float));
    if (b->input == NULL || b->output_gradient == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %zu numbers", rows_count(b));
    fill(b->input, rows_count(b), 1, 1);
    fill(b->output_gradient, rows_count(b), 2, 1e-3);
    return TP_OK;
}

static enum tp_status write_weights(const struct bench *b, const struct provider *p)
{
    enum tp_status status = TP_OK;

    for (int row = 0; row < b->parameters.count && status == TP_OK; row++) {
        const struct tp_parameter *parameter = &b->parameters.at[row];
        if (!tp_parameter_on_stage(parameter, &b->shape.model, &b->shape.layers))
            continue;
        float *values = b->got.gradients[row]; /* not in use yet */
        tp_parameter_initial(&b->parameters, row, 1337, 0, parameter->count, values);
        status = tp_cell_write(p->cell, row, TP_WEIGHT, values);
    }
    return status;
}

static enum tp_status open_provider(struct bench *b, const char *index, int gemm,
                                    struct provider *p)
{
    const struct tp_device_options options = {.index = index,
                                              .threads = b->settings->threads,
                                              .head_width = b->settings->width / b->settings->heads,
                                              .gemm = (enum tp_gemm_provider)gemm};
    p->name = tp_gemm_choices[gemm];
    TP_TRY(tp_device_open(&options, &p->device));
    TP_TRY(tp_cell_new(p->device, &b->shape, &b->parameters, 0, &p->cell));
    tp_cell_stage(p->cell, &p->stage);
    return write_weights(b, p);
}

/* Those that were asked for; else each but CLBlast that the device has. */
static enum tp_status open_named(struct bench *b, const char *index, const char *name)
{
    for (int gemm = 0; tp_gemm_choices[gemm] != NULL; gemm++)
        if (strcmp(tp_gemm_choices[gemm], name) == 0 && b->n_providers < MOST_PROVIDERS)
            return open_provider(b, index, gemm, &b->providers[b->n_providers++]);
    return tp_fail(TP_ERR_USAGE, "--gemm %s: expected names of up to %d gemm providers", name,
                   MOST_PROVIDERS);
}

static enum tp_status open_usual(struct bench *b, const char *index)
{
    for (int gemm = 0; tp_gemm_choices[gemm] != NULL && b->n_providers < MOST_PROVIDERS; gemm++) {
        struct provider *p = &b->providers[b->n_providers];
        if (gemm == TP_GEMM_CLBLAST)
            continue;
        tp_log_hold();
        const enum tp_status status = open_provider(b, index, gemm, p);
        tp_log_release(status != TP_OK && status != TP_ERR_USAGE);
        if (status == TP_OK)
            b->n_providers++;
        else if (status != TP_ERR_USAGE)
            return status;
    }
    return TP_OK;
}

static enum tp_status open_providers(struct bench *b, const char *index)
{
    const struct tp_option_list *names = &b->settings->gemms;

    for (int i = 0; i < names->count; i++)
        TP_TRY(open_named(b, index, names->at[i]));
    return names->count > 0 ? TP_OK : open_usual(b, index);
}

static enum tp_status choose_device(struct bench *b)
{
    const struct settings *s = b->settings;
    struct tp_device_info *infos;
    int count, index;

    tp_device_limit_threads(s->threads);
    TP_TRY(tp_devices_list(&infos, &count));
    enum tp_status status = tp_device_select(s->device, 0, infos, count, &index);
    if (status == TP_OK)
        status = report_device(b->report, &infos[index], s->threads);
    if (status == TP_OK)
        status = open_providers(b, infos[index].index);
    free(infos);
    return status;
}

static enum tp_status choose_lengths(struct bench *b)
{
    const struct settings *s = b->settings;

    b->lengths[b->n_lengths++] = s->seq_len;
    for (int i = 0; i < s->lengths.count && b->n_lengths < MOST_LENGTHS; i++) {
        char *end;
        const long length = strtol(s->lengths.at[i], &end, 10);
        if (*end != '\0' || length < 1 || length > s->seq_len)
            return tp_fail(TP_ERR_USAGE, "--lengths %s: expected 1 to %d tokens", s->lengths.at[i],
                           s->seq_len);
        if (length < s->seq_len)
            b->lengths[b->n_lengths++] = (int)length;
    }
    for (int length = 16; s->lengths.count == 0 && length < s->seq_len; length *= 2)
        b->lengths[b->n_lengths++] = length;
    return TP_OK;
}

static enum tp_status measure_and_report(struct bench *b)
{
    const struct settings *s = b->settings;

    TP_TRY(choose_lengths(b));
    TP_TRY(report_open(&s->report, "cell", columns, N_COLUMNS, &b->report));
    TP_TRY(
        report_fact(b->report, "layer", "C = %d, H = %d, T = %d", s->width, s->heads, s->seq_len));
    TP_TRY(make_model(b, s));
    TP_TRY(choose_device(b));
    TP_TRY(check_all(b));
    TP_TRY(measure_all(b));
    return report_all(b);
}

static enum tp_status run(const void *settings)
{
    static struct bench bench;

    bench.settings = settings;
    const enum tp_status status = measure_and_report(&bench);
    for (int i = 0; i < MOST_PROVIDERS; i++) {
        tp_cell_free(bench.providers[i].cell);
        tp_device_close(bench.providers[i].device);
    }
    result_fini(&bench, &bench.expected);
    result_fini(&bench, &bench.got);
    free(bench.input);
    free(bench.output_gradient);
    tp_parameters_fini(&bench.parameters);
    report_close(bench.report);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    tp_device_prepare(argv);
    return report_main(rows, N_ROWS, &s, argc, argv, run);
}
