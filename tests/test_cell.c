/* SPDX-License-Identifier: Apache-2.0 */
/* The cell against the double-precision oracle: all stages in one process, messages copied by hand,
 * for many shapes, cuts and depths, both styles of kernels, both gemm providers, and devices with
 * and without memory of their own. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "cell/cell.h"
#include "device/device.h"
#include "device_test.h"
#include "oracle.h"
#include "plan/schedule.h"

struct setup {
    const char *name;
    struct tp_model model;
    int T, B, K, group;
    const char *slices;
    enum tp_gemm_provider gemm;
    bool indirect;
    double dropout;
    bool recompute;
};

#define MODEL(L, C, H, N, V, P)                                                                    \
    {                                                                                              \
        .n_layer = L, .n_embd = C, .n_head = H, .n_inner = N, .vocab_size = V, .n_positions = P,   \
        .layer_norm_epsilon = 1e-5, .initializer_range = 0.02                                      \
    }

static const struct setup setups[] = {
    {"whole", MODEL(2, 48, 4, 192, 97, 64), 64, 2, 1, 2, "1", TP_GEMM_AUTO, false, 0, false},
    {"uniform", MODEL(2, 48, 4, 192, 97, 64), 64, 2, 1, 2, "4", TP_GEMM_AUTO, false, 0, false},
    {"uneven", MODEL(4, 48, 4, 192, 97, 64), 64, 3, 3, 2, "1,7,32,24", TP_GEMM_AUTO, false, 0,
     false},
    {"one at a time", MODEL(2, 20, 2, 80, 61, 40), 13, 2, 2, 1, "13", TP_GEMM_AUTO, false, 0,
     false},
    {"odd", MODEL(3, 20, 2, 80, 61, 40), 40, 2, 3, 2, "13,13,13,1", TP_GEMM_AUTO, false, 0, false},
    {"one token", MODEL(1, 16, 1, 64, 5, 1), 1, 1, 1, 1, "1", TP_GEMM_AUTO, false, 0, false},
    {"one head of 80", MODEL(1, 80, 1, 96, 17, 37), 37, 1, 1, 1, "17,20", TP_GEMM_AUTO, false, 0,
     false},
    {"narrow heads", MODEL(2, 21, 7, 33, 300, 33), 33, 3, 2, 3, "32,1", TP_GEMM_AUTO, false, 0,
     false},
    {"wide heads", MODEL(1, 512, 2, 64, 11, 24), 24, 1, 1, 1, "3,21", TP_GEMM_AUTO, false, 0,
     false},
    {"indirect", MODEL(3, 48, 4, 192, 97, 64), 64, 3, 3, 2, "1,7,32,24", TP_GEMM_AUTO, true, 0,
     false},
    {"cblas", MODEL(4, 48, 4, 192, 97, 64), 64, 3, 3, 2, "1,7,32,24", TP_GEMM_CBLAS, false, 0,
     false},
    {"clblast", MODEL(2, 48, 4, 192, 97, 64), 64, 2, 2, 1, "40,24", TP_GEMM_CLBLAST, false, 0,
     false},
    {"dropout", MODEL(3, 20, 2, 80, 61, 43), 40, 3, 3, 2, "13,13,13,1", TP_GEMM_AUTO, false, 0.2,
     false},
    {"dropout, wide", MODEL(1, 80, 1, 96, 17, 64), 64, 2, 1, 2, "64", TP_GEMM_AUTO, true, 0.5,
     false},
    {"recompute", MODEL(5, 20, 2, 80, 61, 40), 40, 3, 2, 2, "13,13,13,1", TP_GEMM_AUTO, false, 0.1,
     true},
};

static const struct tp_device_info *info;

/* All stages of a pipeline in one process. */
struct pipeline {
    struct tp_device *device;
    struct tp_parameters parameters;
    struct tp_plan *plan;
    struct tp_schedule *schedules[4];
    struct tp_cell *cells[4];
    struct tp_stage stages[4];
};

static void pipeline_init(struct pipeline *p, const struct setup *s)
{
    struct tp_slices slices;
    ck_assert_int_eq(tp_slices_parse(s->slices, s->T, &slices), TP_OK);
    const enum tp_schedule_kind schedule =
        slices.count == 1 ? TP_SCHEDULE_GPIPE : TP_SCHEDULE_TERAPIPE;
    ck_assert_int_eq(
        tp_plan_default(&s->model, s->T, s->B, s->K, schedule, s->group, &slices, &p->plan), TP_OK);
    p->plan->recompute = s->recompute;
    tp_slices_fini(&slices);
    ck_assert_int_eq(tp_parameters_init(&p->parameters, &s->model), TP_OK);
    const struct tp_device_options options = {.index = info->index,
                                              .threads = 2,
                                              .kernels = test_style,
                                              .head_width = s->model.n_embd / s->model.n_head,
                                              .gemm = s->gemm,
                                              .indirect = s->indirect};
    ck_assert_int_eq(tp_device_open(&options, &p->device), TP_OK);
    for (int k = 0; k < s->K; k++) {
        ck_assert_int_eq(tp_schedule_new(p->plan, k, &p->schedules[k]), TP_OK);
        struct tp_stage_shape shape;
        tp_plan_stage_shape(p->plan, p->schedules[k]->units, k, &shape);
        ck_assert_int_eq(tp_cell_new(p->device, &shape, &p->parameters, 0, &p->cells[k]), TP_OK);
        struct tp_footprint footprint; /* the planner's bytes are the arena's, exactly */
        tp_device_footprint(p->device, &footprint);
        ck_assert_uint_eq(tp_cell_bytes(p->cells[k]), tp_stage_bytes(&shape, &footprint));
        tp_cell_stage(p->cells[k], &p->stages[k]);
    }
}

static void pipeline_fini(struct pipeline *p, const struct setup *s)
{
    for (int k = 0; k < s->K; k++) {
        tp_cell_free(p->cells[k]);
        tp_schedule_free(p->schedules[k]);
    }
    tp_device_close(p->device);
    tp_parameters_fini(&p->parameters);
    tp_plan_free(p->plan);
}

/* Computes a unit on stage k; its message comes from stage from (none below 0). */
static void run_unit(struct pipeline *p, int k, int from, enum tp_direction direction,
                     const struct tp_unit *unit)
{
    struct tp_stage *stage = &p->stages[k];
    if (from >= 0) {
        struct tp_stage *other = &p->stages[from];
        float *in;
        const float *out;
        size_t n_in, n_out;
        ck_assert_int_eq(stage->message_in(stage->self, direction, unit, &in, &n_in), TP_OK);
        ck_assert_int_eq(other->message_out(other->self, direction, unit, &out, &n_out), TP_OK);
        ck_assert_uint_eq(n_in, n_out);
        memcpy(in, out, n_in * sizeof(float));
        ck_assert_int_eq(stage->message_in_done(stage->self, direction, unit), TP_OK);
        ck_assert_int_eq(other->message_out_done(other->self, direction, unit), TP_OK);
    }
    ck_assert_int_eq(stage->begin(stage->self, direction, unit), TP_OK);
    for (bool done = false; !done;)
        ck_assert_int_eq(stage->poll(stage->self, direction, unit, &done), TP_OK);
}

static void exchange_tied(struct pipeline *p, int K)
{
    struct tp_stage *first = &p->stages[0], *last = &p->stages[K - 1];
    const float *mine[2];
    float *theirs[2];
    size_t count[2] = {0, 0};
    ck_assert_int_eq(first->tied(first->self, &mine[0], &theirs[0], &count[0]), TP_OK);
    if (K > 1) {
        ck_assert_int_eq(last->tied(last->self, &mine[1], &theirs[1], &count[1]), TP_OK);
        ck_assert_uint_eq(count[0], count[1]);
        memcpy(theirs[0], mine[1], count[0] * sizeof(float));
        memcpy(theirs[1], mine[0], count[0] * sizeof(float));
    }
    ck_assert_uint_eq(count[0] != 0, K > 1);
    for (int k = 0; k < K; k++) {
        if (k > 0 && k < K - 1)
            ck_assert_int_eq(p->stages[k].tied(p->stages[k].self, &mine[0], &theirs[0], &count[0]),
                             TP_OK);
        ck_assert_int_eq(p->stages[k].tied_done(p->stages[k].self), TP_OK);
    }
}

/* One step up to the update; loss and norm. */
static void run_step(struct pipeline *p, const struct setup *s, const int32_t *inputs,
                     const int32_t *targets, double *loss, double *norm)
{
    const struct tp_schedule *schedule = p->schedules[0];
    const struct tp_cell_step step = {.inputs = inputs,
                                      .targets = targets,
                                      .sequences = s->B,
                                      .scale = 1.0 / (s->B * s->T),
                                      .train = true,
                                      .dropout = s->dropout,
                                      .seed = 11,
                                      .step = 3,
                                      .first_sequence = 4};
    for (int k = 0; k < s->K; k++)
        ck_assert_int_eq(tp_cell_begin_step(p->cells[k], &step), TP_OK);
    for (int i = 0; i < schedule->n_units; i++)
        for (int k = 0; k < s->K; k++)
            run_unit(p, k, k - 1, TP_FORWARD,
                     &schedule->units[tp_schedule_unit_at(schedule, TP_FORWARD, i)]);
    for (int i = 0; i < schedule->n_units; i++)
        for (int k = s->K - 1; k >= 0; k--)
            run_unit(p, k, k + 1 < s->K ? k + 1 : -1, TP_BACKWARD,
                     &schedule->units[tp_schedule_unit_at(schedule, TP_BACKWARD, i)]);
    exchange_tied(p, s->K);

    const int n = p->parameters.count + 1;
    double *sums = calloc((size_t)n, sizeof(double)), *part = calloc((size_t)n, sizeof(double));
    for (int k = 0; k < s->K; k++) {
        ck_assert_int_eq(p->stages[k].n_sums, n);
        ck_assert_int_eq(p->stages[k].sums(p->stages[k].self, part), TP_OK);
        for (int i = 0; i < n; i++) {
            ck_assert(part[i] == 0 || sums[i] == 0); /* counted once */
            sums[i] += part[i];
        }
    }
    *norm = 0;
    for (int i = 0; i < n - 1; i++)
        *norm += sums[i];
    *norm = sqrt(*norm);
    *loss = sums[n - 1];
    free(sums);
    free(part);
}

/* The largest relative difference of a kind of tensor over the stages that hold it. */
static double difference(struct pipeline *p, const struct setup *s, int row, enum tp_kind kind,
                         const double *expected)
{
    const struct tp_parameter *parameter = &p->parameters.at[row];
    float *got = malloc(parameter->count * sizeof(float));
    double largest = 0;
    for (int k = 0; k < s->K; k++) {
        if (!tp_parameter_on_stage(parameter, &s->model, &p->plan->stages[k]))
            continue;
        double square = 0, size = 0;
        ck_assert_int_eq(tp_cell_read(p->cells[k], row, kind, got), TP_OK);
        for (size_t i = 0; i < parameter->count; i++) {
            square += ((double)got[i] - expected[i]) * ((double)got[i] - expected[i]);
            size += expected[i] * expected[i];
        }
        /* A gradient that is zero but for rounding is compared with a small absolute size. */
        const double relative = sqrt(square) / (sqrt(size) + 1e-7);
        largest = relative > largest ? relative : largest;
    }
    free(got);
    return largest;
}

/* Gives the oracle the cells' own gradients: AdamW divides a gradient by its size, and makes full
 * updates of what is zero but for rounding. */
static void adopt_gradients(struct pipeline *p, const struct setup *s, struct oracle *oracle)
{
    for (int row = 0; row < p->parameters.count; row++) {
        const struct tp_parameter *parameter = &p->parameters.at[row];
        float *values = malloc(parameter->count * sizeof(float));
        int k = 0;
        while (!tp_parameter_on_stage(parameter, &s->model, &p->plan->stages[k]))
            k++;
        ck_assert_int_eq(tp_cell_read(p->cells[k], row, TP_GRADIENT, values), TP_OK);
        for (size_t i = 0; i < parameter->count; i++)
            oracle->gradients[row][i] = (double)values[i];
        free(values);
    }
}

static void set_weights(struct pipeline *p, const struct setup *s, struct oracle *oracle)
{
    for (int row = 0; row < p->parameters.count; row++) {
        const struct tp_parameter *parameter = &p->parameters.at[row];
        const struct tp_rng rng = {.seed = 5, .use = TP_RNG_INIT, .stream = (uint32_t)row};
        float *values = malloc(parameter->count * sizeof(float));
        tp_rng_normal(&rng, 0, parameter->count, 0.1, values);
        for (size_t i = 0; i < parameter->count; i++) {
            values[i] += parameter->initial == TP_INITIAL_ONE ? 1.0f : 0.0f;
            oracle->weights[row][i] = (double)values[i];
        }
        for (int k = 0; k < s->K; k++)
            if (tp_parameter_on_stage(parameter, &s->model, &p->plan->stages[k]))
                ck_assert_int_eq(tp_cell_write(p->cells[k], row, TP_WEIGHT, values), TP_OK);
        free(values);
    }
}

/* A device that runs no host functions, or a build without a host BLAS, has no cblas. */
static bool can_multiply(const struct setup *s)
{
#ifdef HAVE_CBLAS
    const bool has_cblas = info->native_kernels;
#else
    const bool has_cblas = false;
#endif
    return s->gemm != TP_GEMM_CBLAS || has_cblas;
}

START_TEST(agrees_with_oracle)
{
    const struct setup *s = &setups[_i];
    if (!can_multiply(s))
        return;
    const struct tp_adamw adamw = {1e-2, 0.9, 0.95, 1e-8, 0.1, 1};
    const size_t tokens = (size_t)s->B * (size_t)s->T;
    const struct tp_rng rng = {.seed = 7, .use = TP_RNG_SHUFFLE};
    int32_t *inputs = malloc(tokens * sizeof(*inputs)),
            *targets = malloc(tokens * sizeof(*targets));
    struct oracle *oracle = oracle_new(&s->model);
    struct pipeline p;
    double loss, norm;

    for (size_t i = 0; i < tokens; i++) {
        inputs[i] = (int32_t)tp_rng_below(&rng, 2 * i, (uint64_t)s->model.vocab_size);
        targets[i] = (int32_t)tp_rng_below(&rng, 2 * i + 1, (uint64_t)s->model.vocab_size);
    }
    pipeline_init(&p, s);
    ck_assert_int_eq(
        tp_cell_check_gemm(p.device,
                           &(struct tp_stage_shape){.model = s->model,
                                                    .layers = p.plan->stages[s->K - 1],
                                                    .unit_rows = p.schedules[0]->unit_rows,
                                                    .train = true},
                           p.schedules[0]->units, p.schedules[0]->n_units),
        TP_OK);
    set_weights(&p, s, oracle);
    oracle->dropout = (struct oracle_dropout){s->dropout, 11, 3, 4};
    for (int repeat = 0; repeat < 2;
         repeat++) { /* the second step over memory that has been used */
        run_step(&p, s, inputs, targets, &loss, &norm);
        const double expected = oracle_loss_and_gradients(oracle, inputs, targets, s->B, s->T);
        ck_assert_double_eq_tol(loss / expected, 1, 1e-6);
        ck_assert_double_eq_tol(norm / oracle_norm(oracle), 1, 1e-5);
    }
    for (int row = 0; row < p.parameters.count; row++) {
        const double error = difference(&p, s, row, TP_GRADIENT, oracle->gradients[row]);
        ck_assert_msg(error < 1e-5, "%s: gradient of %s is off by %.3g", s->name,
                      p.parameters.at[row].name, error);
    }
    adopt_gradients(&p, s, oracle);
    const double scale = 1.0 / (oracle_norm(oracle) + 1e-6);
    for (int k = 0; k < s->K; k++)
        ck_assert_int_eq(p.stages[k].update(p.stages[k].self, &adamw, scale < 1 ? scale : 1),
                         TP_OK);
    oracle_adamw(oracle, &adamw, 1.0);
    for (int row = 0; row < p.parameters.count; row++) {
        const double error = difference(&p, s, row, TP_WEIGHT, oracle->weights[row]);
        ck_assert_msg(error < 1e-5, "%s: updated %s is off by %.3g", s->name,
                      p.parameters.at[row].name, error);
    }
    pipeline_fini(&p, s);
    oracle_free(oracle);
    free(inputs);
    free(targets);
}
END_TEST

/* Cross-entropy of the last target alone: mean losses of the text and of the text without its end.
 */
static double last_loss(struct oracle *oracle, const int32_t *inputs, const int32_t *targets, int T)
{
    const double whole = T * oracle_loss(oracle, inputs, targets, 1, T);
    return T == 1 ? whole : whole - (T - 1) * oracle_loss(oracle, inputs, targets, 1, T - 1);
}

/* Prefill and then one token at a time: the logits of each next token are the oracle's. */
START_TEST(continues_as_oracle)
{
    enum { T = 20, PREFILL = 13, V = 61 };
    const struct tp_model model = MODEL(3, 20, 2, 80, V, T);
    const struct setup s = {.name = "continue",
                            .model = model,
                            .T = T,
                            .B = 1,
                            .K = 1,
                            .group = 1,
                            .slices = "1",
                            .indirect = _i};
    int32_t inputs[T], targets[T];
    float logits[V];
    struct oracle *oracle = oracle_new(&model);
    struct pipeline p;

    for (int i = 0; i < T; i++) {
        inputs[i] = (i * 17 + 5) % V;
        targets[i] = (i * 23 + 11) % V;
    }
    pipeline_init(&p, &s);
    set_weights(&p, &s, oracle);
    const struct tp_cell_step step = {.inputs = inputs, .sequences = 1};
    ck_assert_int_eq(tp_cell_begin_step(p.cells[0], &step), TP_OK);
    for (int start = 0, length = PREFILL; start < T; start += length, length = 1) {
        const struct tp_unit unit = {.slice = {.start = start, .length = length}, .sequences = 1};
        const int end = start + length;
        double sum = 0;
        run_unit(&p, 0, -1, TP_FORWARD, &unit);
        ck_assert_int_eq(tp_cell_logits(p.cells[0], &unit, logits), TP_OK);
        for (int v = 0; v < V; v++)
            sum += exp((double)logits[v]);
        const double got = log(sum) - (double)logits[targets[end - 1]];
        ck_assert_double_eq_tol(got, last_loss(oracle, inputs, targets, end), 1e-5);
    }
    pipeline_fini(&p, &s);
    oracle_free(oracle);
}
END_TEST

/* ---- Memory ---- */

/* Four stages, four sequences of 512 tokens, a group each. */
enum { STAGES = 4 };
static const struct tp_model deep = MODEL(8, 32, 2, 128, 50, 512);

/* What lives from a unit's forward to its backward, and keys and values, in elements. */
static size_t kept(const struct tp_stage_shape *shape)
{
    size_t sum = 0;
    for (int region = TP_REGION_INPUT; region <= TP_REGION_LAYER_VALUE; region++)
        sum += tp_region_count(region, shape) * tp_region_copies(region, shape);
    return sum;
}

/* The cell of each stage takes what is predicted for it. */
static void measure_stages(struct tp_device *device, enum tp_schedule_kind kind,
                           struct tp_stage_shape shapes[STAGES])
{
    struct tp_slices slices;
    struct tp_parameters parameters;
    struct tp_footprint footprint;
    struct tp_plan *plan;

    ck_assert_int_eq(tp_slices_uniform(512, tp_schedule_is_whole(kind) ? 1 : 8, &slices), TP_OK);
    ck_assert_int_eq(tp_plan_default(&deep, 512, 4, STAGES, kind, 1, &slices, &plan), TP_OK);
    ck_assert_int_eq(tp_parameters_init(&parameters, &deep), TP_OK);
    tp_device_footprint(device, &footprint);
    for (int k = 0; k < STAGES; k++) {
        struct tp_schedule *schedule;
        struct tp_stage_shape asked = {
            .model = deep, .layers = plan->stages[k], .seq_len = 512, .train = true, .op = 1};
        struct tp_cell *cell;
        ck_assert_int_eq(tp_schedule_new(plan, k, &schedule), TP_OK);
        ck_assert_int_eq(tp_plan_stage_shape(plan, schedule->units, k, &shapes[k]), TP_OK);
        tp_schedule_widen(schedule, &asked); /* as a rank at work does it */
        ck_assert_int_eq(tp_cell_new(device, &asked, &parameters, 0, &cell), TP_OK);
        ck_assert_uint_eq(tp_cell_bytes(cell), tp_stage_bytes(&shapes[k], &footprint));
        tp_cell_free(cell);
        tp_schedule_free(schedule);
    }
    tp_parameters_fini(&parameters);
    tp_plan_free(plan);
    tp_slices_fini(&slices);
}

START_TEST(schedules_keep_what_they_need)
{
    struct tp_stage_shape gpipe[STAGES], terapipe[STAGES], early[STAGES], slices[STAGES];
    struct tp_device *device;

    const struct tp_device_options options = {.index = info->index, .threads = 2, .head_width = 16};
    ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
    measure_stages(device, TP_SCHEDULE_GPIPE, gpipe);
    measure_stages(device, TP_SCHEDULE_TERAPIPE, terapipe);
    measure_stages(device, TP_SCHEDULE_1F1B, early);
    measure_stages(device, TP_SCHEDULE_SEQ1F1B, slices);
    tp_device_close(device);

    for (int k = 0; k < STAGES; k++) {
        ck_assert_uint_eq(gpipe[k].rows, 4 * 512);
        ck_assert_uint_eq(terapipe[k].rows, 4 * 512);
        ck_assert_uint_eq(early[k].rows, (size_t)(STAGES - k) * 512);
        /* K - k + M - 1 slices of 64: 11 of 32, 34 %, on the first stage, fewer on the others. */
        ck_assert_uint_eq(slices[k].rows, (size_t)(STAGES - k + 7) * 64);
        ck_assert_int_eq(early[k].caches, STAGES - k);
    }
    ck_assert_uint_lt(2 * kept(&slices[0]), kept(&terapipe[0]));
}
END_TEST

/* Case names are for CK_RUN_CASE. */
static void add_cases(Suite *suite, void (*use_style)(void), const char *name)
{
    TCase *test = tcase_create(name);
    tcase_add_unchecked_fixture(test, use_style, NULL);
    tcase_add_loop_test(test, agrees_with_oracle, 0, sizeof(setups) / sizeof(setups[0]));
    tcase_add_loop_test(test, continues_as_oracle, 0, 2);
    tcase_set_timeout(test, 300);
    suite_add_tcase(suite, test);
}

int main(void)
{
    info = test_device();
    if (info == NULL)
        return SKIPPED;
    Suite *suite = suite_create("cell");
    add_cases(suite, test_cpu_style, "cpu");
    add_cases(suite, test_gpu_style, "gpu");
    TCase *memory = tcase_create("memory");
    tcase_add_test(memory, schedules_keep_what_they_need);
    tcase_set_timeout(memory, 300);
    suite_add_tcase(suite, memory);
    return device_run(suite);
}
