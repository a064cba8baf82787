/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of a training step, AdamW and all, for several schedules and cuts of the sequences, in turn
 * round by round with a large sgemm; one stage a rank. Beside each speed the difference of loss and
 * gradient norm from those of the first row. */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/rng.h"
#include "mpi_main.h"
#include "plan/profile.h"
#include "plan/search.h"
#include "report.h"
#include "sgemm.h"
#include "train/phase.h"
#include "train/reference.h"
#include "train/worker.h"

enum { MOST_CUTS = 16, MOST_RANKS = 256, REFERENCES = 16 };

struct settings {
    struct tp_settings train;
    struct tp_option_list cuts;
    const char *profile;
    int rounds;
    struct report_options report;
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
    {.name = "slices", .type = TP_OPTION_LIST, .offset = FIELD(cuts), .argument = "CUT...", .help = "rows: slices, as 8 or 200,160,152 or plan, under terapipe or SCHEDULE:CUT; gpipe and 1f1b leave sequences whole (default 1 2 4 8)"},
    {.name = "delay-wgrad-compute", .type = TP_OPTION_FLAG, .offset = FIELD(train.delay_wgrad), .help = "weight gradients of a group together, after its last backward"},
    {.name = "gemm", .type = TP_OPTION_CHOICE, .offset = FIELD(train.gemm), .initial = "auto", .choices = tp_gemm_choices, .argument = "NAME", .help = "gemm provider"},
    {.name = "threads", .type = TP_OPTION_INT, .offset = FIELD(train.threads), .min = 1, .max = 4096, .argument = "N", .help = "threads of a rank (default: its share of the cores)"},
    {.name = "device", .type = TP_OPTION_STRING, .offset = FIELD(train.device), .argument = "SEL", .help = "OpenCL device by index, name or type"},
    {.name = "profile", .type = TP_OPTION_STRING, .offset = FIELD(profile), .argument = "FILE", .help = "predict each step from this profile, and allow the cut \"plan\": the fastest by it"},
    {.name = "rounds", .type = TP_OPTION_INT, .offset = FIELD(rounds), .initial = "5", .min = 1, .max = MOST_ROUNDS, .argument = "N", .help = "rounds; medians are printed"},
    REPORT_OPTIONS(struct settings, report),
};
/* clang-format on */
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

struct cut {
    const char *text;
    struct tp_plan *plan;
    struct tp_schedule *schedule;
    struct rounds rounds;
    struct rounds products; /* seconds that the step's operations would take as a large sgemm */
    struct rounds scaled;   /* at the speed of the profile's reference */
    double predicted;       /* seconds, 0 without a profile */
    struct tp_step_result result; /* of the first round */
};

struct bench {
    struct settings settings;
    struct tp_worker worker;
    struct tp_profile *profile; /* NULL: nothing is predicted */
    struct tp_cost cost;
    struct tp_reference reference;
    struct sgemm sgemm;
    double sgemm_rate;  /* of all ranks at once, the latest one */
    double peak_memory; /* bytes, of all ranks */
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

/* The sum over all ranks. */
static enum tp_status sum(struct bench *bench, double *value)
{
    struct tp_comm *world = bench->worker.world;
    double all[MOST_RANKS] = {0};

    all[tp_comm_rank(world)] = *value;
    TP_TRY(tp_comm_allgather(world, all, sizeof(double)));
    *value = 0;
    for (int i = 0; i < tp_comm_size(world); i++)
        *value += all[i];
    return TP_OK;
}

/* Seconds of the reference product now: the mean over all ranks of some 50 milliseconds of it. */
static enum tp_status time_reference(struct bench *bench, double *seconds)
{
    *seconds = 0;
    for (int i = 0; i < REFERENCES; i++) {
        TP_TRY(tp_reference_time(&bench->reference));
        *seconds += bench->reference.seconds / bench->reference.count / REFERENCES;
    }
    TP_TRY(sum(bench, seconds));
    *seconds /= tp_comm_size(bench->worker.world);
    return TP_OK;
}

/* All ranks multiply at once. */
static enum tp_status time_sgemm(struct bench *bench)
{
    TP_TRY(tp_comm_barrier(bench->worker.world));
    TP_TRY(sgemm_rate(&bench->sgemm, &bench->sgemm_rate));
    return sum(bench, &bench->sgemm_rate);
}

static double step_flops(const struct bench *bench)
{
    const struct tp_settings *s = &bench->settings.train;
    return tp_model_step_flops(&bench->worker.model, s->seq_len, s->batch);
}

/* One step: how long it takes as it is, how long its operations would take at the speed of the
 * sgemm around it, and its time at the speed of the profile's reference. */
static enum tp_status time_step(struct bench *bench, struct cut *cut)
{
    const double rate = bench->sgemm_rate;
    struct tp_step_result result;
    double before = 0, after = 0;
    if (bench->profile != NULL)
        TP_TRY(time_reference(bench, &before));
    TP_TRY(tp_comm_barrier(bench->worker.world));
    const double begin = tp_clock_now();
    TP_TRY(run_step(bench, cut, &result));
    TP_TRY(tp_comm_barrier(bench->worker.world));
    const double seconds = tp_clock_now() - begin;
    rounds_add(&cut->rounds, seconds);
    if (bench->profile != NULL) {
        TP_TRY(time_reference(bench, &after));
        rounds_add(&cut->scaled, seconds * TP_REFERENCE_FLOPS / ((before + after) / 2) /
                                     bench->profile->devices[0].reference_flops);
    }
    TP_TRY(time_sgemm(bench));
    rounds_add(&cut->products, step_flops(bench) / ((rate + bench->sgemm_rate) / 2));
    return TP_OK;
}

/* Resident memory at its highest. */
static enum tp_status measure_memory(struct bench *bench)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    bench->peak_memory = (double)usage.ru_maxrss * 1024;
    return sum(bench, &bench->peak_memory);
}

/* The first step of each cut is not counted: it compiles and touches memory. The sgemm's memory is
 * taken after the peak was looked at. */
static enum tp_status measure(struct bench *bench)
{
    const struct tp_worker *worker = &bench->worker;
    const int threads = worker->placements[tp_comm_rank(worker->world)].threads;

    for (int c = 0; c < bench->n_cuts; c++)
        TP_TRY(run_step(bench, &bench->cuts[c], &bench->cuts[c].result));
    TP_TRY(measure_memory(bench));
    TP_TRY(sgemm_init(&bench->sgemm, tp_device_describe(worker->device), threads));
    TP_TRY(time_sgemm(bench));
    for (int round = 0; round < bench->settings.rounds; round++)
        for (int c = 0; c < bench->n_cuts; c++)
            TP_TRY(time_step(bench, &bench->cuts[c]));
    return TP_OK;
}

static const struct report_column columns[] = {
    {REPORT_KEY, "cut", "", 0, 0},
    {REPORT_TIME, "step", "ms", 2, 1e3},
    {REPORT_FIGURE, "tokens/s", "", 0, 0},
    {REPORT_FIGURE, "speed", "GFLOP/s", 1, 0},
    {REPORT_FIGURE, "share", "of sgemm", 3, 0},
    {REPORT_FIGURE, "ratio", "to first", 3, 0},
    {REPORT_ERROR, "loss off", "", 0, 0},
    {REPORT_ERROR, "norm off", "", 0, 0},
    /* with a profile: */
    {REPORT_FIGURE, "predicted", "ms", 2, 0},
    {REPORT_TIME, "scaled", "ms", 2, 1e3},
    {REPORT_FIGURE, "off", "%", 1, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]), N_PROFILE_COLUMNS = 3 };

/* Relative; cuts add the same numbers in other orders. */
#define BOUND 1e-5

static enum tp_status report_cut(struct bench *bench, struct cut *cut, struct report *report)
{
    const struct tp_settings *s = &bench->settings.train;
    const struct tp_step_result *whole = &bench->cuts[0].result;
    const double median = rounds_at(&cut->rounds, 0.5);
    const double scaled = bench->profile != NULL ? rounds_at(&cut->scaled, 0.5) : 0;

    return report_add(report, (struct report_cell[N_COLUMNS]){
                                  report_text(cut->text), report_time(&cut->rounds, 1),
                                  report_number((double)s->batch * s->seq_len / median),
                                  report_number(step_flops(bench) / median * 1e-9),
                                  report_number(rounds_at(&cut->products, 0.5) / median),
                                  report_number(median / rounds_at(&bench->cuts[0].rounds, 0.5)),
                                  report_error(fabs(cut->result.loss / whole->loss - 1), BOUND),
                                  report_error(fabs(cut->result.norm / whole->norm - 1), BOUND),
                                  report_number(1e3 * cut->predicted), report_time(&cut->scaled, 1),
                                  report_number(100 * (scaled / cut->predicted - 1))});
}

static enum tp_status report_all(struct bench *bench, struct report *report)
{
    const struct tp_settings *s = &bench->settings.train;
    const struct tp_worker *worker = &bench->worker;

    TP_TRY(report_fact(report, "model", "L = %d, C = %d, H = %d, V = %d", s->n_layer, s->n_embd,
                       s->n_head, s->vocab_size));
    TP_TRY(report_fact(report, "step", "T = %d, B = %d, groups of %d", s->seq_len, s->batch,
                       s->group_size));
    TP_TRY(report_fact(report, "ranks", "%d", tp_comm_size(worker->world)));
    TP_TRY(report_fact(report, "gemm", "%s", tp_gemm_choices[tp_device_gemm(worker->device)]));
    TP_TRY(report_fact(report, "sgemm", "%.1f GFLOP/s", 1e-9 * bench->sgemm_rate));
    TP_TRY(report_fact(report, "peak memory", "%.0f MiB", bench->peak_memory / (1 << 20)));
    TP_TRY(report_fact(report, "MPI", "%s", tp_comm_library()));
    TP_TRY(
        report_device(report, tp_device_describe(worker->device), worker->placements[0].threads));
    for (int c = 0; c < bench->n_cuts; c++)
        TP_TRY(report_cut(bench, &bench->cuts[c], report));
    return report_finish(report);
}

/* What a cut's text says: a schedule's name, a colon, and how sequences are cut; or one of both. */
static const char *parse_cut(const char *text, int *schedule)
{
    const size_t length = strcspn(text, ":");

    for (int i = 0; tp_schedule_choices[i] != NULL; i++)
        if (strlen(tp_schedule_choices[i]) == length &&
            strncmp(text, tp_schedule_choices[i], length) == 0) {
            *schedule = i;
            return text[length] == ':' ? text + length + 1 : "1";
        }
    *schedule = TP_SCHEDULE_TERAPIPE;
    return text;
}

/* The plan of a cut: as its text says, or the fastest by the profile. */
static enum tp_status plan_cut(struct bench *bench, struct cut *cut)
{
    struct tp_settings *s = &bench->settings.train;
    const char *slices = parse_cut(cut->text, &s->schedule);
    if (strcmp(slices, "plan") != 0 || bench->profile == NULL) {
        s->slices = slices;
        return tp_worker_plan(&bench->worker, &cut->plan);
    }
    const struct tp_search_task task = {.model = &bench->worker.model,
                                        .cost = &bench->cost,
                                        .seq_len = s->seq_len,
                                        .batch = s->batch,
                                        .data = 1,
                                        .pipe = tp_comm_size(bench->worker.world),
                                        .schedule = s->schedule,
                                        .group_size = s->group_size,
                                        .delay_wgrad = s->delay_wgrad,
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
    sgemm_fini(&bench->sgemm);
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

/* Rank 0 has the report; the others wait for its word. */
static enum tp_status open_report(struct bench *bench, struct tp_comm *world,
                                  struct report **report)
{
    const int without = bench->settings.profile == NULL ? N_PROFILE_COLUMNS : 0;
    enum tp_status status = TP_OK;

    tp_phase_begin();
    if (tp_comm_rank(world) == 0)
        status = report_open(&bench->settings.report, "step", columns, N_COLUMNS - without, report);
    return tp_phase_end(world, status);
}

static enum tp_status run(const void *settings, struct tp_comm *world)
{
    static struct bench bench;
    struct report *report = NULL;

    bench.settings = *(const struct settings *)settings;
    take_cuts(&bench);
    enum tp_status status = open_report(&bench, world, &report);
    if (status != TP_OK)
        return status;
    status = open_bench(&bench, world);
    if (status == TP_OK)
        status = measure(&bench);
    if (status == TP_OK && report != NULL)
        status = report_all(&bench, report);
    report_close(report);
    close_bench(&bench);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    return mpi_main(rows, N_ROWS, &s, argc, argv, run);
}
