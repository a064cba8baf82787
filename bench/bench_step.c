/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of a training step, AdamW and all, for several cuts of the sequences, in turn round by
 * round; one stage a rank. Beside each speed the difference of loss and gradient norm from those of
 * whole sequences. */
#include "config.h"

#include <math.h>
#include <mpi.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "plan/profile.h"
#include "plan/search.h"
#include "rounds.h"
#include "train/reference.h"
#include "train/worker.h"

enum { MOST_CUTS = 16, MOST_RANKS = 256, REFERENCES = 16 };

struct settings {
    struct tp_settings train;
    struct tp_option_list cuts;
    const char *profile;
    int rounds;
};

/* clang-format off */
#define FIELD(name) offsetof(struct settings, name)
static const struct tp_option rows[] = {
    {.name = "num-layers", .type = TP_OPTION_INT, .offset = FIELD(train.n_layer), .initial = "4", .min = 1, .max = 1000, .argument = "L", .help = "layers"},
    {.name = "hidden-size", .type = TP_OPTION_INT, .offset = FIELD(train.n_embd), .initial = "256", .min = 1, .max = 65536, .argument = "C", .help = "width"},
    {.name = "num-attention-heads", .type = TP_OPTION_INT, .offset = FIELD(train.n_head), .initial = "4", .min = 1, .max = 1024, .argument = "H", .help = "heads"},
    {.name = "vocab-size", .type = TP_OPTION_INT, .offset = FIELD(train.vocab_size), .initial = "256", .min = 1, .max = 1000000, .argument = "V", .help = "tokens of the vocabulary"},
    {.name = "seq-length", .type = TP_OPTION_INT, .offset = FIELD(train.seq_len), .initial = "512", .min = 1, .max = 1000000, .argument = "T", .help = "tokens of a sequence"},
    {.name = "global-batch-size", .type = TP_OPTION_INT, .offset = FIELD(train.batch), .initial = "1", .min = 1, .max = 100000, .argument = "B", .help = "sequences of a step"},
    {.name = "group-size", .type = TP_OPTION_INT, .offset = FIELD(train.group_size), .initial = "1", .min = 1, .max = 100000, .argument = "N", .help = "sequences of a group"},
    {.name = "slices", .type = TP_OPTION_LIST, .offset = FIELD(cuts), .argument = "CUT...", .help = "numbers of slices, or lengths such as 200,160,152, or plan (default 1 2 4 8)"},
    {.name = "gemm", .type = TP_OPTION_CHOICE, .offset = FIELD(train.gemm), .initial = "auto", .choices = tp_gemm_choices, .argument = "NAME", .help = "gemm provider"},
    {.name = "threads", .type = TP_OPTION_INT, .offset = FIELD(train.threads), .min = 1, .max = 4096, .argument = "N", .help = "threads of a rank (default: its share of the cores)"},
    {.name = "device", .type = TP_OPTION_STRING, .offset = FIELD(train.device), .argument = "SEL", .help = "OpenCL device by index, name or type"},
    {.name = "profile", .type = TP_OPTION_STRING, .offset = FIELD(profile), .argument = "FILE", .help = "predict each step from this profile, and allow the cut \"plan\": the fastest by it"},
    {.name = "rounds", .type = TP_OPTION_INT, .offset = FIELD(rounds), .initial = "5", .min = 1, .max = MOST_ROUNDS, .argument = "N", .help = "rounds; medians are printed"},
};
/* clang-format on */
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

struct cut {
    const char *text;
    struct tp_plan *plan;
    struct tp_schedule *schedule;
    struct rounds rounds, scaled; /* seconds; the same at the speed of the profile's reference */
    double predicted;             /* seconds, 0 without a profile */
    struct tp_step_result result; /* of the first round */
};

struct bench {
    struct settings settings;
    struct tp_worker worker;
    struct tp_profile *profile; /* NULL: nothing is predicted */
    struct tp_cost cost;
    struct tp_reference reference;
    struct cut cuts[MOST_CUTS];
    int n_cuts;
    int32_t *inputs, *targets;
};

/* A step over the same tokens each time. lr is 0: all steps have the same loss and gradient. */
static enum tp_status run_step(struct bench *bench, struct cut *cut, struct tp_step_result *result)
{
    const struct tp_settings *s = &bench->settings.train;
    const struct tp_adamw adamw = {0, 0.9, 0.95, 1e-8, 0.1, 1};
    const struct tp_cell_step step = {.inputs = bench->inputs,
                                      .targets = bench->targets,
                                      .sequences = s->batch,
                                      .scale = 1.0 / ((double)s->batch * s->seq_len),
                                      .train = true};
    TP_TRY(tp_engine_set_schedule(bench->worker.engine, cut->schedule));
    TP_TRY(tp_cell_begin_step(bench->worker.cell, &step));
    TP_TRY(tp_engine_run(bench->worker.engine, &adamw, 1.0, result));
    return tp_device_finish(bench->worker.device);
}

/* Seconds of the reference product now: the mean over all ranks of some 50 milliseconds of it. */
static enum tp_status time_reference(struct bench *bench, double *seconds)
{
    struct tp_comm *world = bench->worker.world;
    double times[MOST_RANKS] = {0};
    const int rank = tp_comm_rank(world), size = tp_comm_size(world);
    for (int i = 0; i < REFERENCES; i++) {
        TP_TRY(tp_reference_time(&bench->reference));
        times[rank] += bench->reference.seconds / bench->reference.count / REFERENCES;
    }
    TP_TRY(tp_comm_allgather(world, times, sizeof(double)));
    *seconds = 0;
    for (int i = 0; i < size; i++)
        *seconds += times[i] / size;
    return TP_OK;
}

/* One step, and how long it takes as it is and at the reference's speed around it. */
static enum tp_status time_step(struct bench *bench, struct cut *cut)
{
    struct tp_step_result result;
    double before, after;
    TP_TRY(time_reference(bench, &before));
    TP_TRY(tp_comm_barrier(bench->worker.world));
    const double begin = tp_clock_now();
    TP_TRY(run_step(bench, cut, &result));
    TP_TRY(tp_comm_barrier(bench->worker.world));
    const double seconds = tp_clock_now() - begin;
    TP_TRY(time_reference(bench, &after));
    rounds_add(&cut->rounds, seconds);
    if (bench->profile != NULL)
        rounds_add(&cut->scaled, seconds * TP_REFERENCE_FLOPS / ((before + after) / 2) /
                                     bench->profile->devices[0].reference_flops);
    return TP_OK;
}

static enum tp_status measure(struct bench *bench)
{
    for (int c = 0; c < bench->n_cuts; c++) /* not counted: compiles and touches memory */
        TP_TRY(run_step(bench, &bench->cuts[c], &bench->cuts[c].result));
    for (int round = 0; round < bench->settings.rounds; round++)
        for (int c = 0; c < bench->n_cuts; c++)
            TP_TRY(time_step(bench, &bench->cuts[c]));
    return TP_OK;
}

/* What the profile said, beside what was measured at the speed that it is for. */
static void report_predictions(struct bench *bench)
{
    printf("slices       predicted ms  scaled ms  fastest .. slowest       off\n");
    for (int c = 0; c < bench->n_cuts; c++) {
        struct cut *cut = &bench->cuts[c];
        const double median = rounds_at(&cut->scaled, 0.5);
        printf("%-12s %12.2f %10.2f %8.2f .. %-8.2f %+8.1f %%\n", cut->text, cut->predicted * 1e3,
               median * 1e3, rounds_at(&cut->scaled, 0) * 1e3, rounds_at(&cut->scaled, 1) * 1e3,
               100 * (median / cut->predicted - 1));
    }
}

/* Prints the table; false when a cut changed the result. */
static bool report(struct bench *bench)
{
    const struct tp_settings *s = &bench->settings.train;
    const double tokens = (double)s->batch * s->seq_len;
    const double flops = tp_model_step_flops(&bench->worker.model, s->seq_len, s->batch);
    const struct tp_step_result *whole = &bench->cuts[0].result;
    const double first = rounds_at(&bench->cuts[0].rounds, 0.5);
    bool right = true;

    printf("step of L = %d, C = %d, H = %d, V = %d, T = %d, B = %d; ranks = stages = %d; %s, gemm "
           "%s\n",
           s->n_layer, s->n_embd, s->n_head, s->vocab_size, s->seq_len, s->batch,
           tp_comm_size(bench->worker.world), tp_device_describe(bench->worker.device)->name,
           tp_gemm_choices[tp_device_gemm(bench->worker.device)]);
    printf("slices          ms/step  fastest .. slowest    tokens/s  GFLOP/s  speed  loss off  "
           "norm off\n");
    for (int c = 0; c < bench->n_cuts; c++) {
        struct cut *cut = &bench->cuts[c];
        const double median = rounds_at(&cut->rounds, 0.5);
        const double loss = fabs(cut->result.loss / whole->loss - 1);
        const double norm = fabs(cut->result.norm / whole->norm - 1);
        printf("%-12s %10.2f %8.2f .. %-8.2f %11.0f %8.1f %6.2f  %8.1e  %8.1e\n", cut->text,
               median * 1e3, rounds_at(&cut->rounds, 0) * 1e3, rounds_at(&cut->rounds, 1) * 1e3,
               tokens / median, flops / median * 1e-9, first / median, loss, norm);
        right = right && loss < 1e-5 && norm < 1e-5;
    }
    if (bench->profile != NULL)
        report_predictions(bench);
    return right;
}

/* The plan of a cut: as its text says, or the fastest by the profile. */
static enum tp_status plan_cut(struct bench *bench, struct cut *cut)
{
    struct tp_settings *s = &bench->settings.train;
    if (strcmp(cut->text, "plan") != 0 || bench->profile == NULL) {
        s->slices = cut->text;
        return tp_worker_plan(&bench->worker, &cut->plan);
    }
    const struct tp_search_task task = {.model = &bench->worker.model,
                                        .cost = &bench->cost,
                                        .seq_len = s->seq_len,
                                        .batch = s->batch,
                                        .data = 1,
                                        .pipe = tp_comm_size(bench->worker.world),
                                        .schedule = TP_SCHEDULE_TERAPIPE,
                                        .group_size = s->group_size,
                                        .grain = 8,
                                        .memory = (size_t)-1,
                                        .work = TP_SEARCH_WORK};
    struct tp_found found;
    TP_TRY(tp_search_plan(&task, &found));
    cut->plan = found.plan;
    found.plan = NULL;
    tp_found_fini(&found);
    return TP_OK;
}

static enum tp_status predict(struct bench *bench, struct cut *cut)
{
    struct tp_simulation simulation;
    if (bench->profile == NULL)
        return TP_OK;
    TP_TRY(tp_simulate(cut->plan, &bench->cost, NULL, &simulation));
    cut->predicted = simulation.step_seconds;
    tp_simulation_fini(&simulation);
    return TP_OK;
}

static enum tp_status load_profile(struct bench *bench)
{
    const char *path = bench->settings.profile;
    if (path == NULL)
        return TP_OK;
    TP_TRY(tp_profile_load(path, &bench->profile));
    TP_TRY(tp_profile_check(bench->profile, path, &bench->worker.model, 1));
    if (bench->profile->devices[0].reference_flops == 0)
        return tp_fail(TP_ERR_INPUT, "%s: reference_flops: expected, as terapipe profile writes it",
                       path);
    tp_profile_cost(bench->profile, &bench->cost);
    return TP_OK;
}

static enum tp_status open_bench(struct bench *bench, struct tp_comm *world)
{
    struct tp_settings *s = &bench->settings.train;
    const struct tp_schedule *schedules[MOST_CUTS];
    const size_t tokens = (size_t)s->batch * (size_t)s->seq_len;

    s->schedule = TP_SCHEDULE_TERAPIPE;
    TP_TRY(tp_worker_init(&bench->worker, s, world));
    TP_TRY(load_profile(bench));
    for (int c = 0; c < bench->n_cuts; c++) {
        TP_TRY(plan_cut(bench, &bench->cuts[c]));
        TP_TRY(predict(bench, &bench->cuts[c]));
        TP_TRY(tp_worker_schedule(&bench->worker, bench->cuts[c].plan, &bench->cuts[c].schedule));
        schedules[c] = bench->cuts[c].schedule;
    }
    const struct tp_work work = {bench->cuts[0].plan, schedules, bench->n_cuts, true};
    TP_TRY(tp_worker_open(&bench->worker, &work));
    TP_TRY(tp_reference_init(&bench->reference, bench->worker.device));

    const struct tp_rng rng = {.seed = 1, .use = TP_RNG_SHUFFLE};
    bench->inputs = malloc(tokens * sizeof(int32_t));
    bench->targets = malloc(tokens * sizeof(int32_t));
    if (bench->inputs == NULL || bench->targets == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %zu tokens", tokens);
    for (size_t i = 0; i < tokens; i++) {
        bench->inputs[i] = (int32_t)tp_rng_below(&rng, 2 * i, (uint64_t)s->vocab_size);
        bench->targets[i] = (int32_t)tp_rng_below(&rng, 2 * i + 1, (uint64_t)s->vocab_size);
    }
    return TP_OK;
}

static void close_bench(struct bench *bench)
{
    tp_reference_fini(&bench->reference);
    tp_profile_free(bench->profile);
    tp_worker_fini(&bench->worker);
    for (int c = 0; c < bench->n_cuts; c++) {
        tp_schedule_free(bench->cuts[c].schedule);
        tp_plan_free(bench->cuts[c].plan);
    }
    free(bench->inputs);
    free(bench->targets);
}

static void take_cuts(struct bench *bench)
{
    static const char *const usual[] = {"1", "2", "4", "8"};
    const struct tp_option_list *given = &bench->settings.cuts;
    bench->n_cuts = given->count ? given->count : 4;
    if (bench->n_cuts > MOST_CUTS)
        bench->n_cuts = MOST_CUTS;
    for (int c = 0; c < bench->n_cuts; c++)
        bench->cuts[c].text = given->count ? given->at[c] : usual[c];
}

/* 0: measured and right; 1: not; 2: a mistaken command line. */
static int run(int argc, char **argv, struct tp_comm *world)
{
    static struct bench bench;
    struct tp_options options;
    if (tp_options_parse(&options, rows, N_ROWS, &bench.settings, argc, argv) != TP_OK)
        return 2;
    const bool talks = tp_comm_rank(world) == 0;
    if (options.help) {
        if (talks)
            tp_options_help(rows, N_ROWS, stdout);
        return 0;
    }
    take_cuts(&bench);
    bool right = open_bench(&bench, world) == TP_OK && measure(&bench) == TP_OK;
    if (right && talks)
        right = report(&bench);
    close_bench(&bench);
    tp_options_fini(&options);
    return right ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct tp_comm *world = NULL;
    tp_device_prepare(argv);
    MPI_Init(&argc, &argv);
    int status = 1;
    if (tp_comm_world(&world) == TP_OK)
        status = run(argc, argv, world);
    tp_comm_free(world);
    MPI_Finalize();
    return status;
}
