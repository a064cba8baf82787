/* SPDX-License-Identifier: Apache-2.0 */
/* TEST np: 8 */
/* Every dimension with every other: stages, op ranks, replicas, schedules, slices, groups,
 * recompute, flights, dropout and shared moments. Each row of the table trains a small model, and
 * has to agree with one rank and whole sequences and with the double-precision oracle, and, in
 * every bit, with all rows of the same slices, groups, op ranks and replicas. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/share.h"
#include "cell/cell.h"
#include "device/device.h"
#include "mpi_test.h"
#include "oracle.h"
#include "plan/schedule.h"
#include "train/engine.h"

/* Five sequences: no number of replicas or group size but 1 and 5 divides them. */
enum { T = 24, B = 5, STEPS = 5, MOST_UNITS = 64 };

/* Four layers over up to four stages, four heads; 70 and 61 that no number of op ranks divides. */
static const struct tp_model model = {
    .n_layer = 5,
    .n_embd = 32,
    .n_head = 4,
    .n_inner = 70,
    .vocab_size = 61,
    .n_positions = T + 3,
    .layer_norm_epsilon = 1e-5,
    .initializer_range = 0.2,
};

/* An epsilon that hides the noise of gradients that are zero but for rounding: the keys' bias. */
static const struct tp_adamw adamw = {
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.1};

static const double clip = 1.0;

struct row {
    int K, O, D;
    enum tp_schedule_kind schedule;
    const char *slices;
    int group_size, flights;
    bool recompute, dropout, zero, delay;
};

#define GPIPE TP_SCHEDULE_GPIPE
#define TERAPIPE TP_SCHEDULE_TERAPIPE
#define F1B TP_SCHEDULE_1F1B
#define SEQ TP_SCHEDULE_SEQ1F1B

static const struct row rows[] = {
    /* K  O  D  schedule slices     group flights recompute dropout zero, delayed gradients */
    {1, 1, 1, GPIPE, "1", 5, 1, false, false, false, false},
    {1, 1, 1, GPIPE, "1", 5, 1, false, true, false, false},

    {1, 1, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {2, 1, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {3, 1, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {4, 1, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {5, 1, 1, TERAPIPE, "7,1,11,5", 2, 1, true, false, false, false},
    {1, 1, 1, SEQ, "7,1,11,5", 2, 1, false, false, false, false},
    {2, 1, 1, SEQ, "7,1,11,5", 2, 1, false, false, false, false},
    {3, 1, 1, SEQ, "7,1,11,5", 2, 1, true, false, false, false},
    {4, 1, 1, SEQ, "7,1,11,5", 2, 1, false, false, false, false},
    {1, 1, 1, TERAPIPE, "7,1,11,5", 2, 2, false, false, false, false},
    {2, 1, 1, TERAPIPE, "7,1,11,5", 2, 3, true, false, false, false},
    {4, 1, 1, SEQ, "7,1,11,5", 2, 2, true, false, false, false},
    {2, 1, 1, SEQ, "7,1,11,5", 2, 3, false, false, false, false},

    {1, 1, 1, TERAPIPE, "5", 1, 1, false, true, false, false},
    {2, 1, 1, TERAPIPE, "5", 1, 1, true, true, false, false},
    {4, 1, 1, SEQ, "5", 1, 1, true, true, false, false},
    {5, 1, 1, SEQ, "5", 1, 5, false, true, false, false},
    {3, 1, 1, TERAPIPE, "5", 1, 2, true, true, false, false},

    {2, 1, 1, GPIPE, "1", 2, 1, false, false, false, false},
    {2, 1, 1, F1B, "1", 2, 1, false, false, false, false},
    {4, 1, 1, F1B, "1", 2, 1, true, false, false, false},
    {4, 1, 1, F1B, "1", 2, 2, false, false, false, false},
    {3, 1, 1, GPIPE, "1", 2, 3, true, false, false, false},
    {4, 1, 1, F1B, "1", 1, 1, false, false, false, false},
    {2, 1, 1, GPIPE, "1", 1, 1, true, false, false, false},
    {5, 1, 1, F1B, "1", 1, 5, true, false, false, false},

    {1, 2, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {2, 2, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {4, 2, 1, TERAPIPE, "7,1,11,5", 2, 1, true, false, false, false},
    {3, 2, 1, SEQ, "7,1,11,5", 2, 1, false, false, false, false},
    {4, 2, 1, SEQ, "7,1,11,5", 2, 2, true, false, false, false},
    {1, 4, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {2, 4, 1, SEQ, "7,1,11,5", 2, 1, true, false, false, false},
    {2, 4, 1, TERAPIPE, "7,1,11,5", 2, 2, false, false, false, false},
    {1, 2, 1, GPIPE, "1", 5, 1, false, true, false, false},
    {2, 2, 1, F1B, "1", 5, 1, true, true, false, false},
    {4, 2, 1, GPIPE, "1", 5, 1, true, true, false, false},
    {1, 4, 1, TERAPIPE, "24", 3, 1, false, true, false, false},
    {2, 4, 1, SEQ, "24", 3, 1, true, true, false, false},

    {1, 1, 2, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {1, 1, 2, TERAPIPE, "7,1,11,5", 2, 1, false, false, true, false},
    {2, 1, 2, TERAPIPE, "7,1,11,5", 2, 1, true, false, true, false},
    {3, 1, 2, SEQ, "7,1,11,5", 2, 1, false, false, false, false},
    {4, 1, 2, SEQ, "7,1,11,5", 2, 2, true, false, true, false},
    {4, 1, 2, TERAPIPE, "7,1,11,5", 2, 2, false, false, false, false},
    {1, 1, 3, TERAPIPE, "13,11", 1, 1, false, false, false, false},
    {2, 1, 3, SEQ, "13,11", 1, 1, true, false, true, false},
    {2, 1, 3, TERAPIPE, "13,11", 1, 1, false, false, true, false},
    {1, 1, 4, GPIPE, "1", 2, 1, false, false, false, false},
    {2, 1, 4, F1B, "1", 2, 1, true, false, true, false},
    {2, 1, 4, GPIPE, "1", 2, 1, false, false, false, false},
    {1, 1, 4, TERAPIPE, "3", 1, 1, false, true, true, false},
    {2, 1, 4, SEQ, "3", 1, 2, true, true, false, false},

    {1, 2, 2, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, false},
    {2, 2, 2, TERAPIPE, "7,1,11,5", 2, 1, false, false, true, false},
    {2, 2, 2, SEQ, "7,1,11,5", 2, 1, true, false, false, false},
    {2, 2, 2, SEQ, "7,1,11,5", 2, 2, true, false, true, false},
    {1, 2, 2, TERAPIPE, "8", 3, 1, false, true, true, false},
    {2, 2, 2, SEQ, "8", 3, 1, true, true, false, false},
    {2, 2, 2, F1B, "1", 1, 1, true, false, true, false},
    {1, 2, 2, GPIPE, "1", 1, 3, false, false, false, false},
    {1, 4, 2, TERAPIPE, "23,1", 2, 1, false, true, true, false},
    {1, 4, 2, SEQ, "23,1", 2, 1, true, true, false, false},
    {1, 2, 4, TERAPIPE, "12,12", 1, 1, false, false, true, false},
    {1, 2, 4, SEQ, "12,12", 1, 2, true, false, false, false},

    {1, 1, 1, TERAPIPE, "7,1,11,5", 2, 1, false, false, false, true},
    {3, 1, 1, TERAPIPE, "7,1,11,5", 2, 2, false, false, false, true},
    {4, 1, 1, SEQ, "7,1,11,5", 2, 1, false, false, false, true},
    {2, 1, 1, SEQ, "7,1,11,5", 2, 3, false, false, false, true},
    {1, 1, 1, GPIPE, "1", 5, 1, false, true, false, true},
    {2, 1, 1, SEQ, "5", 1, 1, false, true, false, true},
    {5, 1, 1, TERAPIPE, "5", 1, 2, false, true, false, true},
    {4, 1, 1, F1B, "1", 2, 1, false, false, false, true},
    {2, 2, 2, TERAPIPE, "7,1,11,5", 2, 1, false, false, true, true},
    {2, 2, 2, SEQ, "7,1,11,5", 2, 2, false, false, false, true},
    {1, 4, 2, TERAPIPE, "23,1", 2, 1, false, true, true, true},
    {2, 1, 3, SEQ, "13,11", 1, 1, false, false, true, true},
};
enum { ROWS = sizeof rows / sizeof *rows };

/* ---- The data, and what is expected of it ---- */

static struct tp_parameters parameters;
static size_t n_numbers;  /* of all parameters */
static size_t place[128]; /* where each begins */
static struct tp_device *device;

/* What a run gives: everything that is compared. On rank 0. */
struct outcome {
    double loss[STEPS], norm[STEPS];
    float *gradients, *weights; /* [n_numbers] of step 0, after the last step */
};

static void outcome_init(struct outcome *outcome)
{
    *outcome = (struct outcome){.gradients = calloc(n_numbers, sizeof(float)),
                                .weights = calloc(n_numbers, sizeof(float))};
    ck_assert(outcome->gradients != NULL && outcome->weights != NULL);
}

static void outcome_fini(struct outcome *outcome)
{
    free(outcome->gradients);
    free(outcome->weights);
}

/* Tokens [B, T] of a step: inputs, and targets one further. */
static void draw_tokens(int step, int32_t *inputs, int32_t *targets)
{
    const struct tp_rng rng = {.seed = 7, .use = TP_RNG_SHUFFLE, .stream = (uint32_t)step};

    for (uint64_t b = 0; b < B; b++)
        for (uint64_t t = 0; t < T; t++) {
            inputs[b * T + t] = (int32_t)tp_rng_below(&rng, b * (T + 1) + t, 61);
            targets[b * T + t] = (int32_t)tp_rng_below(&rng, b * (T + 1) + t + 1, 61);
        }
}

static const double probability = 0.2;

/* The oracle's run: the same for all rows with dropout, and for all without. */
static void run_oracle(bool dropout, struct outcome *outcome)
{
    int32_t inputs[B * T], targets[B * T];
    struct oracle *oracle = oracle_new(&model);

    outcome_init(outcome);
    for (int row = 0; row < parameters.count; row++) {
        const size_t count = parameters.at[row].count;
        float *initial = malloc(count * sizeof *initial);
        tp_parameter_initial(&parameters, row, 1337, 0, count, initial);
        for (size_t i = 0; i < count; i++)
            oracle->weights[row][i] = initial[i];
        free(initial);
    }
    for (int step = 0; step < STEPS; step++) {
        struct tp_adamw rate = adamw;
        rate.step = step + 1;
        draw_tokens(step, inputs, targets);
        oracle->dropout = (struct oracle_dropout){
            .p = dropout ? probability : 0, .seed = 1337, .step = step, .first_sequence = 0};
        outcome->loss[step] = oracle_loss_and_gradients(oracle, inputs, targets, B, T);
        for (int row = 0; row < parameters.count && step == 0; row++)
            for (size_t i = 0; i < parameters.at[row].count; i++)
                outcome->gradients[place[row] + i] = (float)oracle->gradients[row][i];
        outcome->norm[step] = oracle_adamw(oracle, &rate, clip);
    }
    for (int row = 0; row < parameters.count; row++)
        for (size_t i = 0; i < parameters.at[row].count; i++)
            outcome->weights[place[row] + i] = (float)oracle->weights[row][i];
    oracle_free(oracle);
}

/* ---- One row of the table on its ranks ---- */

struct run {
    const struct row *row;
    struct tp_grid grid;
    struct tp_plan *plan; /* of this replica */
    struct tp_schedule *schedule;
    struct tp_cell *cell;
    struct tp_stage stage;
    struct tp_engine *engine;
    struct tp_share share; /* of the sequences */
    float *whole, *part;
};

/* The replica's plan, in as many flights as it has groups for. */
static bool make_plan(struct run *run)
{
    const struct row *row = run->row;
    struct tp_slices slices;
    struct tp_plan *one;

    if (!EXPECT(tp_slices_parse(row->slices, T, &slices) == TP_OK) ||
        !EXPECT(tp_plan_default(&model, T, (int)run->share.count, row->K, row->schedule,
                                row->group_size, &slices, &one) == TP_OK))
        return false;
    one->data = row->D;
    one->op = row->O;
    one->recompute = row->recompute;
    one->delay_wgrad = row->delay;
    const int flights = row->flights < one->n_groups ? row->flights : one->n_groups;
    const bool good = EXPECT(tp_plan_in_flights(one, flights, &run->plan) == TP_OK);
    tp_slices_fini(&slices);
    tp_plan_free(one);
    return good;
}

static bool make_schedule(struct run *run)
{
    struct tp_schedule *all[8];
    bool good = true;

    for (int k = 0; k < run->row->K; k++)
        good = good && EXPECT(tp_schedule_new(run->plan, k, &all[k]) == TP_OK);
    good = good &&
           EXPECT(tp_schedule_check((const struct tp_schedule *const *)all, run->row->K) == TP_OK);
    for (int k = 0; k < run->row->K && good; k++)
        if (k == run->grid.k)
            run->schedule = all[k];
        else
            tp_schedule_free(all[k]);
    return good;
}

static const struct tp_stage_layers *layers_of(const struct run *run)
{
    return &run->plan->stages[run->grid.k];
}

/* Memory of exactly the size that a planner predicts. */
static bool make_cell(struct run *run)
{
    const struct tp_grid *grid = &run->grid;
    struct tp_stage_shape shape;
    struct tp_footprint footprint;

    tp_plan_stage_shape(run->plan, run->schedule->units, grid->k, &shape);
    shape.op = grid->op;
    shape.op_rank = grid->o;
    shape.shards = run->row->zero ? grid->data : 1;
    shape.shard = run->row->zero ? grid->d : 0;
    if (!EXPECT(tp_cell_new(device, &shape, &parameters, 0, &run->cell) == TP_OK))
        return false;
    tp_device_footprint(device, &footprint);
    tp_cell_stage(run->cell, &run->stage);
    return EXPECT(tp_cell_bytes(run->cell) == tp_stage_bytes(&shape, &footprint));
}

static bool fill_weights(struct run *run)
{
    bool good = true;

    for (int i = 0; i < parameters.count && good; i++) {
        const struct tp_parameter *parameter = &parameters.at[i];
        if (!tp_parameter_on_stage(parameter, &model, layers_of(run)))
            continue;
        tp_parameter_initial(&parameters, i, 1337, 0, parameter->count, run->whole);
        tp_parameter_take(parameter, run->grid.op, run->grid.o, run->whole, run->part);
        good = EXPECT(tp_cell_write(run->cell, i, TP_WEIGHT, run->part) == TP_OK);
    }
    return good;
}

static bool run_init(struct run *run, const struct row *row, struct tp_comm *ranks)
{
    struct tp_reduce reduce;

    *run = (struct run){.row = row,
                        .whole = malloc(n_numbers * sizeof(float)),
                        .part = malloc(n_numbers * sizeof(float))};
    if (!EXPECT(tp_grid_init(&run->grid, ranks, row->D, row->K, row->O) == TP_OK))
        return false;
    tp_comm_set_synchronous(run->grid.pipe, true);
    run->share = tp_share_of(B, row->D, run->grid.d);
    if (!make_plan(run) || !make_schedule(run) || !make_cell(run) || !fill_weights(run) ||
        !EXPECT(tp_engine_new(&run->grid, &run->stage, run->schedule, 60, &run->engine) == TP_OK))
        return false;
    tp_engine_reduce(run->engine, &reduce);
    tp_cell_set_reduce(run->cell, &reduce);
    return true;
}

static void run_fini(struct run *run)
{
    tp_engine_free(run->engine);
    tp_cell_free(run->cell);
    tp_schedule_free(run->schedule);
    tp_plan_free(run->plan);
    tp_grid_fini(&run->grid);
    free(run->whole);
    free(run->part);
}

/* One step; the result is the same on all ranks. */
static bool run_step(struct run *run, int step, struct tp_step_result *result)
{
    int32_t inputs[B * T], targets[B * T];
    struct tp_adamw rate = adamw;
    const struct tp_cell_step of = {
        .inputs = inputs + run->share.first * T,
        .targets = targets + run->share.first * T,
        .sequences = (int)run->share.count,
        .scale = 1.0 / (B * T),
        .train = true,
        .exchange = run->grid.data > 1,
        .dropout = run->row->dropout ? probability : 0,
        .seed = 1337,
        .step = step,
        .first_sequence = (int)run->share.first,
    };

    rate.step = step + 1;
    draw_tokens(step, inputs, targets);
    return EXPECT(tp_cell_begin_step(run->cell, &of) == TP_OK) &&
           EXPECT(tp_engine_run(run->engine, &rate, clip, result) == TP_OK);
}

/* Puts the first replica's parts of a kind together: a sum of one number and zeros. All ranks have
 * the result. */
static bool gather(struct run *run, enum tp_kind kind, float *numbers)
{
    const struct tp_grid *grid = &run->grid;
    struct tp_request request;
    bool good = true, done = false;

    memset(run->whole, 0, n_numbers * sizeof(float));
    for (int i = 0; i < parameters.count && good; i++) {
        const struct tp_parameter *parameter = &parameters.at[i];
        if (grid->d > 0 || !tp_parameter_counted(parameter, &model, layers_of(run), grid->o))
            continue;
        good = EXPECT(tp_cell_read(run->cell, i, kind, run->part) == TP_OK);
        tp_parameter_put(parameter, grid->op, grid->o, run->part, run->whole + place[i]);
    }
    good = good && EXPECT(tp_comm_iallreduce_floats(grid->world, false, run->whole, n_numbers,
                                                    &request) == TP_OK);
    while (good && !done)
        good = EXPECT(tp_comm_test(&request, &done) == TP_OK);
    memcpy(numbers, run->whole, n_numbers * sizeof(float));
    return good;
}

/* Do all ranks that hold a weight hold the same? Replicas, op ranks of what is not split, and both
 * ends of the tied matrix. whole: what gather() gave. */
static bool copies_agree(struct run *run, const float *whole)
{
    bool good = true;

    for (int i = 0; i < parameters.count && good; i++) {
        const struct tp_parameter *parameter = &parameters.at[i];
        if (!tp_parameter_on_stage(parameter, &model, layers_of(run)))
            continue;
        float *expected = run->whole;
        const size_t held = tp_parameter_held(parameter, run->grid.op, run->grid.o);
        tp_parameter_take(parameter, run->grid.op, run->grid.o, whole + place[i], expected);
        good = EXPECT(tp_cell_read(run->cell, i, TP_WEIGHT, run->part) == TP_OK) &&
               EXPECT(memcmp(run->part, expected, held * sizeof(float)) == 0);
    }
    return good;
}

/* Ranks that go on alone would wait for ever. */
static bool all_good(struct tp_comm *ranks, bool good)
{
    int64_t failed = !good;
    return EXPECT(tp_comm_allreduce_max(ranks, &failed, 1) == TP_OK) && failed == 0;
}

static bool run_row(const struct row *row, struct tp_comm *ranks, struct outcome *outcome)
{
    struct run run;
    bool good = all_good(ranks, run_init(&run, row, ranks));

    for (int step = 0; step < STEPS && good; step++) {
        struct tp_step_result result;
        good = run_step(&run, step, &result) && EXPECT(result.finite);
        outcome->loss[step] = result.loss;
        outcome->norm[step] = result.norm;
        if (step == 0)
            good = good && gather(&run, TP_GRADIENT, outcome->gradients);
    }
    good =
        good && gather(&run, TP_WEIGHT, outcome->weights) && copies_agree(&run, outcome->weights);
    run_fini(&run);
    return good;
}

/* ---- Comparing ---- */

/* ||a - b|| / ||b|| over a tensor; the keys' third of c_attn.bias has no gradient but rounding, and
 * does not count where gradients are compared. */
static double apart(int row, const float *a, const float *b, bool gradients)
{
    const size_t count = parameters.at[row].count;
    const bool keys = gradients && strstr(parameters.at[row].name, "c_attn.bias") != NULL;
    double difference = 0, size = 0;

    for (size_t i = 0; i < count; i++) {
        if (keys && i >= count / 3 && i < 2 * count / 3)
            continue;
        const double x = a[place[row] + i], y = b[place[row] + i];
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return sqrt(difference) / sqrt(size);
}

static bool agree(const struct outcome *a, const struct outcome *b)
{
    bool good = true;

    for (int step = 0; step < STEPS; step++) {
        good &= EXPECT(fabs(a->loss[step] - b->loss[step]) <= 1e-5 * b->loss[step]);
        good &= EXPECT(fabs(a->norm[step] - b->norm[step]) <= 1e-5 * b->norm[step]);
    }
    for (int row = 0; row < parameters.count; row++) {
        const double gradient = apart(row, a->gradients, b->gradients, true);
        const double weight = apart(row, a->weights, b->weights, false);
        if (!EXPECT(gradient <= 1e-5) || !EXPECT(weight <= 1e-5)) {
            fprintf(stderr, "%s: gradient %.2e apart, weight %.2e\n", parameters.at[row].name,
                    gradient, weight);
            good = false;
        }
    }
    return good;
}

static bool same_bits(const struct outcome *a, const struct outcome *b)
{
    return EXPECT(memcmp(a->loss, b->loss, sizeof a->loss) == 0) &
           EXPECT(memcmp(a->norm, b->norm, sizeof a->norm) == 0) &
           EXPECT(memcmp(a->gradients, b->gradients, n_numbers * sizeof(float)) == 0) &
           EXPECT(memcmp(a->weights, b->weights, n_numbers * sizeof(float)) == 0);
}

/* Must two rows give the same bits? */
static bool alike(const struct row *a, const struct row *b)
{
    return a->O == b->O && a->D == b->D && a->group_size == b->group_size &&
           a->dropout == b->dropout && a->delay == b->delay && strcmp(a->slices, b->slices) == 0;
}

static void describe(const struct row *row)
{
    fprintf(stderr, "K %d, O %d, D %d, %s, slices %s, groups of %d, %d flights%s%s%s%s\n", row->K,
            row->O, row->D, tp_schedule_name(row->schedule), row->slices, row->group_size,
            row->flights, row->recompute ? ", recompute" : "", row->dropout ? ", dropout" : "",
            row->zero ? ", shared moments" : "", row->delay ? ", delayed gradients" : "");
}

static struct outcome oracles[2], outcomes[ROWS];

static bool check_row(int i)
{
    const struct row *row = &rows[i];
    bool good = agree(&outcomes[i], &oracles[row->dropout]) &
                agree(&outcomes[i], &outcomes[row->dropout]); /* the first two rows */

    for (int before = 0; before < i; before++)
        if (alike(row, &rows[before])) {
            good &= same_bits(&outcomes[i], &outcomes[before]);
            break;
        }
    return good;
}

START_TEST(everything_composes)
{
    const int rank = tp_comm_rank(mpi_world), n_ranks = rows[_i].K * rows[_i].O * rows[_i].D;
    struct tp_comm *ranks;

    if (rank == 0)
        describe(&rows[_i]);
    outcome_init(&outcomes[_i]);
    mpi_assert(EXPECT(tp_comm_split(mpi_world, rank < n_ranks ? 0 : -1, rank, &ranks) == TP_OK));
    bool good = ranks == NULL || run_row(&rows[_i], ranks, &outcomes[_i]);
    if (good && rank == 0)
        good = check_row(_i);
    tp_comm_free(ranks);
    mpi_assert(good);
}
END_TEST

/* ---- What other systems got wrong ---- */

static const struct row both_ends = {2, 2, 2, SEQ, "7,1,11,5", 2, 1, false, false, true, false};

static bool train_long(struct tp_comm *ranks, int steps)
{
    struct outcome outcome;
    struct run run;
    bool good = all_good(ranks, run_init(&run, &both_ends, ranks));

    outcome_init(&outcome);
    for (int step = 0; step < steps && good; step++) {
        struct tp_step_result result;
        good = run_step(&run, step, &result) && EXPECT(result.finite);
    }
    good = good && gather(&run, TP_WEIGHT, outcome.weights) && copies_agree(&run, outcome.weights);
    outcome_fini(&outcome);
    run_fini(&run);
    return good;
}

START_TEST(copies_stay_equal)
{
    mpi_assert(train_long(mpi_world, 50));
}
END_TEST

/* One rank's weight is infinite: loss and norm are no numbers, all ranks know it, and none of them
 * updates anything. */
static bool skip_together(struct tp_comm *ranks)
{
    const int row = tp_parameter_of_layer(0, TP_FC_BIAS);
    struct outcome before, after;
    struct tp_step_result result;
    struct run run;
    bool good =
        run_init(&run, &both_ends, ranks) && run_step(&run, 0, &result) && EXPECT(result.finite);

    outcome_init(&before);
    outcome_init(&after);
    const struct tp_grid *grid = &run.grid;
    if (good && grid->d == 1 && grid->k == 0 && grid->o == 1) {
        good = EXPECT(tp_cell_read(run.cell, row, TP_WEIGHT, run.part) == TP_OK);
        run.part[3] = INFINITY;
        good = good && EXPECT(tp_cell_write(run.cell, row, TP_WEIGHT, run.part) == TP_OK);
    }
    good = good && gather(&run, TP_WEIGHT, before.weights) && run_step(&run, 1, &result) &&
           EXPECT(!result.finite) && gather(&run, TP_WEIGHT, after.weights) &&
           EXPECT(memcmp(before.weights, after.weights, n_numbers * sizeof(float)) == 0);
    outcome_fini(&before);
    outcome_fini(&after);
    run_fini(&run);
    return good;
}

START_TEST(all_ranks_skip_the_same_step)
{
    mpi_assert(skip_together(mpi_world));
}
END_TEST

/* ---- Frame ---- */

static bool open_device(void)
{
    struct tp_device_info *infos;
    int count, index;

    tp_device_limit_threads(1);
    if (!EXPECT(tp_devices_list(&infos, &count) == TP_OK) ||
        !EXPECT(tp_device_select(NULL, 0, infos, count, &index) == TP_OK))
        return false;
    const struct tp_device_options options = {.index = infos[index].index,
                                              .threads = 1,
                                              .head_width = model.n_embd / model.n_head,
                                              .gemm = TP_GEMM_AUTO};
    const bool opened = EXPECT(tp_device_open(&options, &device) == TP_OK) &&
                        EXPECT(tp_cell_rehearse(device, &model, true) == TP_OK);
    free(infos);
    return opened;
}

/* One rank compiles, the others find it compiled. */
static void setup(void)
{
    const bool first = tp_comm_rank(mpi_world) == 0;
    bool good = EXPECT(tp_parameters_init(&parameters, &model) == TP_OK);

    for (int row = 0; row < parameters.count; row++) {
        place[row] = n_numbers;
        n_numbers += parameters.at[row].count;
    }
    good = good && (!first || open_device());
    mpi_assert(good);
    mpi_assert(first || open_device());
    for (int dropout = 0; dropout < 2 && first; dropout++)
        run_oracle(dropout, &oracles[dropout]);
}

static void teardown(void)
{
    for (int i = 0; i < ROWS; i++)
        outcome_fini(&outcomes[i]);
    outcome_fini(&oracles[0]);
    outcome_fini(&oracles[1]);
    tp_device_close(device);
    tp_parameters_fini(&parameters);
}

int main(int argc, char **argv)
{
    tp_device_prepare(argv);
    Suite *suite = suite_create("compose");
    TCase *tests = tcase_create("compose");
    tcase_set_timeout(tests, 0);
    tcase_add_unchecked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, everything_composes, 0, ROWS);
    tcase_add_test(tests, copies_stay_equal);
    tcase_add_test(tests, all_ranks_skip_the_same_step);
    suite_add_tcase(suite, tests);
    return mpi_run(suite, &argc, &argv);
}
