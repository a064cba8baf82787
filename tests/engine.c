/* TEST np: 1 2 3 4 */
/* SPDX-License-Identifier: Apache-2.0 */
/* The engine over host memory: any number of stages gives, bit for bit, what a plain loop gives. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "capture.h"
#include "host_stage.h"
#include "mpi_test.h"
#include "train/engine.h"

enum { LAYERS = 5 };

static const struct tp_model model = {
    .n_layer = LAYERS, .n_embd = 8, .n_head = 1, .n_inner = 8, .vocab_size = 8, .n_positions = 64};
static const struct tp_adamw adamw = {.lr = 1e-3, .step = 1};

/* What is run: sequences, how they are grouped and cut, floats of a row. */
struct grid {
    int batch, group_size;
    enum tp_schedule_kind kind;
    int flights; /* 0: one */
    struct tp_slices slices;
    int width;
    bool synchronous, delay_wgrad;
};

/* One stage of a pipeline, and all of it on one rank to compare with. */
struct bench {
    struct tp_comm *pipe;
    struct tp_grid ranks;
    struct tp_schedule *train, *evaluate, *train_alone, *evaluate_alone;
    struct host_stage *host, *alone;
    struct tp_stage seam;
    struct tp_engine *engine;
};

static int sum_of(const struct tp_slices *slices)
{
    int sum = 0;
    for (int i = 0; i < slices->count; i++)
        sum += slices->lengths[i];
    return sum;
}

/* The same plan in so many flights, or as many as it has groups. */
static struct tp_plan *in_flights(struct tp_plan *plan, int flights)
{
    const int n = flights < 1 ? 1 : flights < plan->n_groups ? flights : plan->n_groups;
    struct tp_plan *dealt = NULL;
    EXPECT(tp_plan_in_flights(plan, n, &dealt) == TP_OK);
    tp_plan_free(plan);
    return dealt;
}

/* The lists of a stage to train and to evaluate one sequence less, and its memory. The plain loop
 * keeps everything until its backwards begin, as these schedules do. */
static bool prepare(const struct grid *grid, bool alone, int n_stages, int stage,
                    struct tp_schedule **train, struct tp_schedule **evaluate,
                    struct host_stage **host)
{
    struct tp_plan *plan, *shrunk;
    const int fewer = grid->batch > 1 ? grid->batch - 1 : 1;
    const enum tp_schedule_kind kind = !alone                             ? grid->kind
                                       : tp_schedule_is_whole(grid->kind) ? TP_SCHEDULE_GPIPE
                                                                          : TP_SCHEDULE_TERAPIPE;
    if (tp_plan_default(&model, sum_of(&grid->slices), grid->batch, n_stages, kind,
                        grid->group_size, &grid->slices, &plan) != TP_OK ||
        (plan = in_flights(plan, alone ? 1 : grid->flights)) == NULL)
        return false;
    plan->delay_wgrad = grid->delay_wgrad && !alone;
    if (tp_plan_shrink(plan, fewer, TP_SCHEDULE_FORWARD, &shrunk) != TP_OK ||
        tp_schedule_new(plan, stage, train) != TP_OK ||
        tp_schedule_new(shrunk, stage, evaluate) != TP_OK)
        return false;
    const struct tp_stage_layers *layers = &plan->stages[stage];
    struct tp_stage_shape memory = {.batch = 0};
    tp_schedule_widen(*train, &memory);
    tp_schedule_widen(*evaluate, &memory);
    const struct host_shape shape = {
        .n_layer = LAYERS,
        .first_layer = layers->first_layer,
        .last_layer = layers->first_layer + layers->n_layer - 1,
        .width = grid->width,
        .rows = memory.rows,
        .input_rows = memory.input_rows,
        .unit_rows = memory.unit_rows,
        .caches = memory.caches,
        .slots = memory.slots,
        .units = (*train)->n_units,
        .delay_wgrad = plan->delay_wgrad,
    };
    *host = host_stage_new(&shape, (uint32_t)(stage + 100 * grid->batch));
    tp_plan_free(plan);
    tp_plan_free(shrunk);
    return true;
}

static bool bench_init(struct bench *bench, struct tp_comm *pipe, const struct grid *grid,
                       double watchdog)
{
    bench->pipe = pipe;
    tp_comm_set_synchronous(pipe, grid->synchronous);
    if (!EXPECT(prepare(grid, false, tp_comm_size(pipe), tp_comm_rank(pipe), &bench->train,
                        &bench->evaluate, &bench->host)) ||
        !EXPECT(
            prepare(grid, true, 1, 0, &bench->train_alone, &bench->evaluate_alone, &bench->alone)))
        return false;
    bench->seam = host_stage_seam(bench->host);
    return EXPECT(tp_grid_init(&bench->ranks, pipe, 1, tp_comm_size(pipe), 1) == TP_OK) &&
           EXPECT(tp_engine_new(&bench->ranks, &bench->seam, bench->train, watchdog,
                                &bench->engine) == TP_OK);
}

static void bench_fini(struct bench *bench)
{
    tp_engine_free(bench->engine);
    tp_grid_fini(&bench->ranks);
    host_stage_free(bench->host);
    host_stage_free(bench->alone);
    tp_schedule_free(bench->train);
    tp_schedule_free(bench->evaluate);
    tp_schedule_free(bench->train_alone);
    tp_schedule_free(bench->evaluate_alone);
}

/* Runs the list that was set, and the same alone: equal in every bit? */
static bool run_step(struct bench *bench, int step, bool train, double clip)
{
    double loss, norm;
    struct tp_step_result result;
    host_stage_begin_step(bench->host, step, train);
    if (!EXPECT(tp_engine_run(bench->engine, &adamw, clip, &result) == TP_OK))
        return false;
    host_stage_step_alone(bench->alone, train ? bench->train_alone : bench->evaluate_alone, step,
                          train, &adamw, clip, &loss, &norm);
    const char *broken = host_stage_broken(bench->host);
    if (broken != NULL)
        fprintf(stderr, "rank %d: %s\n", tp_comm_rank(bench->pipe), broken);
    return EXPECT(broken == NULL) && EXPECT(result.finite) && EXPECT(result.loss == loss) &&
           EXPECT(result.norm == norm) && EXPECT(loss > 0) && EXPECT(train == (norm > 0));
}

static bool run_grid(struct tp_comm *pipe, const struct grid *grid)
{
    struct bench bench;
    if (!bench_init(&bench, pipe, grid, 60))
        return false;
    bool good = run_step(&bench, 0, true, 1) && run_step(&bench, 1, true, 0) &&
                EXPECT(tp_engine_set_schedule(bench.engine, bench.evaluate) == TP_OK) &&
                run_step(&bench, 2, false, 0) && run_step(&bench, 3, false, 0) &&
                EXPECT(tp_engine_set_schedule(bench.engine, bench.train) == TP_OK) &&
                run_step(&bench, 4, true, 1e9);
    if (!good)
        fprintf(stderr,
                "stage %d of %d, %s, batch %d, groups of %d, %d flights, %d slices, synchronous "
                "%d\n",
                tp_comm_rank(pipe), tp_comm_size(pipe), tp_schedule_name(grid->kind), grid->batch,
                grid->group_size, grid->flights, grid->slices.count, grid->synchronous);
    bench_fini(&bench);
    return good;
}

/* Runs it on all ranks, in pipelines of at most n_stages each. */
static bool run_pipelines(int n_stages, const struct grid *grid)
{
    struct tp_comm *pipe;
    const int rank = tp_comm_rank(mpi_world);
    if (!EXPECT(tp_comm_split(mpi_world, rank / n_stages, rank, &pipe) == TP_OK))
        return false;
    bool good = run_grid(pipe, grid);
    tp_comm_free(pipe);
    return good;
}

/* _i: stages - 1. */
START_TEST(stages_do_not_show)
{
    static const int counts[] = {1, 2, 3, 5, 8};
    static int lengths[] = {3, 1, 7, 2, 2, 5, 1, 4};
    const int n_stages = _i + 1;
    bool good = true;
    if (n_stages > tp_comm_size(mpi_world))
        return;
    for (int how = 0; how < 4; how++)
        for (int batch = 1; batch <= 3; batch++)
            for (int group_size = 1; group_size <= batch; group_size++)
                for (int i = 0; i < 20 && good; i++) {
                    const int count = counts[i % 5], flights = 1 + i / 10 * (batch - 1);
                    const bool early = i / 5 % 2 != 0;
                    const struct grid grid = {
                        .batch = batch,
                        .group_size = group_size,
                        .kind = count == 1 ? (early ? TP_SCHEDULE_1F1B : TP_SCHEDULE_GPIPE)
                                : early    ? TP_SCHEDULE_SEQ1F1B
                                           : TP_SCHEDULE_TERAPIPE,
                        .flights = flights,
                        .slices = {.count = count, .lengths = lengths},
                        .width = 8,
                        .synchronous = how % 2 != 0,
                        .delay_wgrad = how / 2 != 0,
                    };
                    good = run_pipelines(n_stages, &grid);
                }
    mpi_assert(good);
}
END_TEST

START_TEST(large_messages_arrive)
{
    const struct grid grid = {
        .batch = 1,
        .group_size = 1,
        .kind = TP_SCHEDULE_TERAPIPE,
        .slices = {.count = 2, .lengths = (int[]){9, 1}},
        .width = 250000, /* 9 MB for 9 rows */
        .synchronous = _i != 0,
    };
    struct bench bench;
    if (tp_comm_size(mpi_world) == 1)
        return;
    bool good = bench_init(&bench, mpi_world, &grid, 60) && run_step(&bench, 0, true, 1) &&
                run_step(&bench, 1, true, 1);
    bench_fini(&bench);
    mpi_assert(good);
}
END_TEST

static const struct grid small = {
    .batch = 2,
    .group_size = 1,
    .kind = TP_SCHEDULE_TERAPIPE,
    .slices = {.count = 3, .lengths = (int[]){4, 3, 2}},
    .width = 8,
};

/* One stage's sums are not numbers: nobody updates, and the next step is as if nothing had been. */
START_TEST(nan_is_skipped_by_all)
{
    struct bench bench;
    struct tp_step_result result;
    const int last = tp_comm_size(mpi_world) - 1;
    bool good = bench_init(&bench, mpi_world, &small, 60) && run_step(&bench, 0, true, 1);
    host_stage_make_nan(bench.host, tp_comm_rank(mpi_world) == last);
    host_stage_begin_step(bench.host, 1, true);
    good &= EXPECT(tp_engine_run(bench.engine, &adamw, 1, &result) == TP_OK);
    good &= EXPECT(!result.finite) && EXPECT(isnan(result.norm)) && EXPECT(isfinite(result.loss));
    good &= EXPECT(host_stage_updates(bench.host) == 1);
    host_stage_make_nan(bench.host, false);
    good &= run_step(&bench, 1, true, 1);
    good &= EXPECT(host_stage_updates(bench.host) == 2);
    bench_fini(&bench);
    mpi_assert(good);
}
END_TEST

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* A second step in which a device never computes a unit: does this rank say what it waits for,
 * after the watchdog's time and without using its core? */
static bool run_stuck(const struct grid *grid, int stage, enum tp_direction direction, int unit,
                      const char *says)
{
    const double watchdog = 2;
    struct bench bench;
    struct tp_step_result result = {.loss = 42};
    struct tp_comm *pipe; /* its own, for what a failed step leaves must not reach another test */
    if (!EXPECT(tp_comm_split(mpi_world, 0, 0, &pipe) == TP_OK) ||
        !bench_init(&bench, pipe, grid, watchdog) || !run_step(&bench, 0, true, 1))
        return false;
    if (tp_comm_rank(mpi_world) == stage)
        host_stage_hang(bench.host, direction, unit);
    host_stage_begin_step(bench.host, 1, true);

    const double wall = tp_clock_now(), cpu = cpu_seconds();
    capture_begin();
    enum tp_status status = tp_engine_run(bench.engine, &adamw, 1, &result);
    const char *line = capture_end();
    const double share = (cpu_seconds() - cpu) / (tp_clock_now() - wall);
    printf("rank %d: %.1f %% of a core; %s", tp_comm_rank(mpi_world), 100 * share, line);
    bool good = EXPECT(status == TP_ERR_STUCK) && EXPECT(strstr(line, says) != NULL) &&
                EXPECT(result.loss == 42) && EXPECT(share < 0.1) &&
                EXPECT(tp_clock_now() - wall < 10 * watchdog);
    tp_comm_barrier(mpi_world); /* all have given up */
    bench_fini(&bench);
    tp_comm_free(pipe);
    return good;
}

/* Four slices, the third hangs on the second stage (the only one). */
START_TEST(stuck_forward_is_named)
{
    static const char *const says[] = {
        "rank 0 waits for the gradient of slice 3 of group 0 from rank 1",
        "rank 1 waits for its device to compute slice 2 of group 0",
        "rank 2 waits for slice 2 of group 0 from rank 1",
        "rank 3 waits for slice 2 of group 0 from rank 2",
    };
    const struct grid grid = {
        .batch = 1,
        .group_size = 1,
        .kind = TP_SCHEDULE_TERAPIPE,
        .slices = {.count = 4, .lengths = (int[]){4, 3, 2, 1}},
        .width = 8,
    };
    const int rank = tp_comm_rank(mpi_world);
    if (tp_comm_size(mpi_world) == 1)
        mpi_assert(run_stuck(&grid, 0, TP_FORWARD, 2,
                             "rank 0 waits for its device to compute slice 2 of group 0"));
    else
        mpi_assert(run_stuck(&grid, 1, TP_FORWARD, 2, says[rank]));
}
END_TEST

/* The first of twelve slices hangs on the second stage, so the fifth is never taken there. */
START_TEST(stuck_send_is_named)
{
    static const char *const says[] = {
        "rank 0 waits for rank 1 to take slice 4 of group 0",
        "rank 1 waits for its device to compute slice 0 of group 0",
        "rank 2 waits for slice 0 of group 0 from rank 1",
        "rank 3 waits for slice 0 of group 0 from rank 2",
    };
    const struct grid grid = {
        .batch = 1,
        .group_size = 1,
        .kind = TP_SCHEDULE_TERAPIPE,
        .slices = {.count = 12, .lengths = (int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
        .width = 8,
        .synchronous = true,
    };
    if (tp_comm_size(mpi_world) > 1)
        mpi_assert(run_stuck(&grid, 1, TP_FORWARD, 0, says[tp_comm_rank(mpi_world)]));
}
END_TEST

/* The last backward hangs on the first stage: the others are done and wait for its norm; the last
 * one for its part of the tied matrix. */
START_TEST(stuck_reduce_is_named)
{
    const int rank = tp_comm_rank(mpi_world), last = tp_comm_size(mpi_world) - 1;
    const char *says = rank == 0 ? "rank 0 waits for its device to compute the gradient of slice 0"
                       : rank == last ? "the other part of the tied matrix's gradient"
                                      : "all stages to hand in their loss and norm";
    mpi_assert(run_stuck(&small, 0, TP_BACKWARD, 3, says));
}
END_TEST

int main(int argc, char **argv)
{
    Suite *suite = suite_create("engine");
    TCase *tests = tcase_create("engine");
    tcase_set_timeout(tests, 0);
    tcase_add_loop_test(tests, stages_do_not_show, 0, 4);
    tcase_add_loop_test(tests, large_messages_arrive, 0, 2);
    tcase_add_test(tests, nan_is_skipped_by_all);
    tcase_add_test(tests, stuck_forward_is_named);
    tcase_add_test(tests, stuck_send_is_named);
    tcase_add_test(tests, stuck_reduce_is_named);
    suite_add_tcase(suite, tests);
    return mpi_run(suite, &argc, &argv);
}
