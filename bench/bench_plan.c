/* SPDX-License-Identifier: Apache-2.0 */
/* Time and passes that the exact optimiser takes, on one core, for times as a profile has them.
 * Beside each: the error of its objective, how much worse the best uniform cut is (never below 1),
 * and, for the same sequence at a coarse grain, the difference from trying every pair of
 * bottlenecks. */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "plan/optimal.h"
#include "plan/profile.h"
#include "report.h"

struct settings {
    int rounds, objective;
    struct report_options report;
};

static const struct tp_option rows[] = {
    {.name = "rounds",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct settings, rounds),
     .initial = "7",
     .min = 1,
     .max = MOST_ROUNDS,
     .argument = "N",
     .help = "rounds; medians are printed"},
    {.name = "objective",
     .type = TP_OPTION_CHOICE,
     .offset = offsetof(struct settings, objective),
     .initial = "exact",
     .choices = tp_objective_choices,
     .argument = "NAME",
     .help = "what is minimised"},
    REPORT_OPTIONS(struct settings, report),
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

/* --- Times of a layer of width 2048 on a fast device ---------------------------------------------
 */

static const int lengths[] = {1,   8,   16,  32,   48,   64,   96,   128,   192,   256,
                              384, 512, 768, 1024, 2048, 4096, 8192, 32768, 131072};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]), MOST_SEQUENCES = 32, UNITS = 24 };

/* Adds the rows of one direction. Measured tables are uneven; these are as well. */
static enum tp_status add_rows(struct tp_layer_times *times, int direction)
{
    static const double context[2][4] = {{4e-6, 1e-9, 2e-9, 6e-11}, {7e-6, 1e-9, 5e-9, 1.4e-10}};
    memcpy(times->context, context[direction], sizeof times->context);
    for (int b = 1; b <= MOST_SEQUENCES; b++)
        for (int i = 0; i < N_LENGTHS; i++) {
            const double tokens = (double)b * lengths[i], ratio = direction == 0 ? 1 : 2.05;
            const double uneven = 1 + 0.01 * sin(7.0 * i + 3.0 * b + 5.0 * direction);
            const double filled = fmax(tokens, 40); /* a short slice does not fill the device */
            const double seconds = 3e-5 + 1.2e-6 * filled + 3e-11 * tokens * fmin(lengths[i], 4096);
            TP_TRY(tp_table_add(&times->base, "base", b, lengths[i], uneven * ratio * seconds));
        }
    return TP_OK;
}

static enum tp_status make_profile(struct tp_profile **profile)
{
    TP_TRY(tp_profile_new(1, profile));
    for (int direction = 0; direction < 2; direction++)
        TP_TRY(add_rows(&(*profile)->devices[0].layer[direction], direction));
    return TP_OK;
}

/* --- Checks --------------------------------------------------------------------------------------
 */

struct outcome {
    double sum, max_f, max_b;
};

static void add_slice(struct outcome *outcome, const struct tp_optimal_task *task, int b, int s,
                      int c)
{
    double f = task->n_layer * task->cost->layer(task->cost->self, 0, TP_FORWARD, b, s, c);
    double back = task->n_layer * task->cost->layer(task->cost->self, 0, TP_BACKWARD, b, s, c);
    if (task->objective == TP_OBJECTIVE_PAPER) {
        f += back;
        back = 0;
    }
    outcome->sum += f + back;
    outcome->max_f = fmax(outcome->max_f, f);
    outcome->max_b = fmax(outcome->max_b, back);
}

static double seconds_of(const struct outcome *outcome, const struct tp_optimal_task *task)
{
    return outcome->sum + (task->n_stages - 1) * (outcome->max_f + outcome->max_b);
}

static double objective_error(const struct tp_optimal_task *task, const struct tp_optimal *optimal)
{
    struct outcome outcome = {0};
    for (int g = 0; g < optimal->n_groups; g++) {
        const struct tp_slices *slices = &optimal->groups[g].slices;
        int start = 0;
        for (int i = 0; i < slices->count; start += slices->lengths[i++])
            add_slice(&outcome, task, optimal->groups[g].sequences, slices->lengths[i], start);
    }
    return fabs(optimal->seconds - seconds_of(&outcome, task)) / optimal->seconds;
}

/* The best of all cuts into slices of one length, for groups of one size. */
static double best_uniform(const struct tp_optimal_task *task)
{
    double best = INFINITY;
    for (int b = 1; b <= task->batch; b++)
        for (int length = task->grain; length <= task->seq_len; length += task->grain) {
            struct outcome outcome = {0};
            if (task->batch % b != 0)
                continue;
            for (int start = 0; start < task->seq_len; start += length)
                add_slice(&outcome, task, b,
                          start + length < task->seq_len ? length : task->seq_len - start, start);
            outcome.sum *= task->batch / b;
            best = fmin(best, seconds_of(&outcome, task));
        }
    return best;
}

/* Slices of a sequence of UNITS grains, in groups of one and of two. */
struct slices {
    int count;
    double f[2 * UNITS * UNITS], b[2 * UNITS * UNITS];
};

static double least_sum(const struct tp_optimal_task *task, const struct slices *slices,
                        double max_f, double max_b)
{
    double sums[2];
    int slice = 0;
    for (int b = 0; b < task->batch; b++) {
        double least[UNITS + 1] = {0};
        for (int j = 1; j <= UNITS; j++) {
            least[j] = INFINITY;
            for (int i = 0; i < j; i++, slice++)
                if (slices->f[slice] <= max_f && slices->b[slice] <= max_b)
                    least[j] = fmin(least[j], least[i] + slices->f[slice] + slices->b[slice]);
        }
        sums[b] = least[UNITS];
    }
    return task->batch == 1 ? sums[0] : fmin(2 * sums[0], sums[1]);
}

static double every_bottleneck(const struct tp_optimal_task *task)
{
    static struct slices slices;
    double best = INFINITY;
    slices.count = 0;
    for (int b = 1; b <= task->batch; b++)
        for (int j = 1; j <= UNITS; j++)
            for (int i = 0; i < j; i++, slices.count++) {
                struct outcome slice = {0};
                add_slice(&slice, task, b, (j - i) * task->grain, i * task->grain);
                slices.f[slices.count] = slice.max_f;
                slices.b[slices.count] = slice.max_b;
            }
    for (int x = 0; x < slices.count; x++)
        for (int y = 0; y < slices.count; y++) {
            const double most = (task->n_stages - 1) * (slices.f[x] + slices.b[y]);
            if (most < best)
                best = fmin(best, least_sum(task, &slices, slices.f[x], slices.b[y]) + most);
        }
    return best;
}

/* Difference from every_bottleneck() at a coarse grain, for at most two sequences. */
static enum tp_status coarse_error(const struct tp_optimal_task *task, double *error)
{
    struct tp_optimal_task coarse = *task;
    struct tp_optimal optimal;
    coarse.grain = task->seq_len / UNITS;
    coarse.seq_len = coarse.grain * UNITS;
    coarse.batch = task->batch < 2 ? task->batch : 2;
    TP_TRY(tp_optimal_solve(&coarse, &optimal));
    const double seconds = every_bottleneck(&coarse);
    *error = fabs(optimal.seconds - seconds) / seconds;
    tp_optimal_fini(&optimal);
    return TP_OK;
}

/* --- Rows ----------------------------------------------------------------------------------------
 */

struct row {
    int seq_len, grain, n_stages, batch;
    double limit; /* seconds that it may take */
    struct rounds rounds;
};

static enum tp_status measure(const struct tp_optimal_task *task, struct rounds *rounds,
                              struct tp_optimal *optimal)
{
    const double begin = tp_clock_now();
    TP_TRY(tp_optimal_solve(task, optimal));
    rounds_add(rounds, tp_clock_now() - begin);
    return TP_OK;
}

static const struct report_column columns[] = {
    {REPORT_KEY, "T", "tokens", 0, 0},
    {REPORT_KEY, "grain", "tokens", 0, 0},
    {REPORT_KEY, "K", "", 0, 0},
    {REPORT_KEY, "B", "", 0, 0},
    {REPORT_KEY, "objective", "", 0, 0},
    {REPORT_TIME, "time", "s", 3, 1},
    {REPORT_FIGURE, "aim", "s", 1, 0},
    {REPORT_FIGURE, "passes", "", 0, 0},
    {REPORT_FIGURE, "groups", "", 0, 0},
    {REPORT_FIGURE, "slices", "", 0, 0},
    {REPORT_FIGURE, "best uniform", "of ours", 4, 0},
    {REPORT_ERROR, "objective off", "", 0, 0},
    {REPORT_ERROR, "coarse off", "", 0, 0},
    {REPORT_ERROR, "uniform better by", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* All sums are of the same times in another order. */
#define BOUND 1e-12

static enum tp_status report_case(const struct tp_optimal_task *task, struct row *row,
                                  struct report *report)
{
    struct tp_optimal optimal;
    double coarse;
    TP_TRY(coarse_error(task, &coarse));
    TP_TRY(measure(task, &row->rounds, &optimal));
    const double uniform = best_uniform(task) / optimal.seconds;
    int slices = 0;
    for (int g = 0; g < optimal.n_groups; g++)
        slices += optimal.groups[g].slices.count;
    const struct report_cell cells[N_COLUMNS] = {
        report_number(row->seq_len),
        report_number(row->grain),
        report_number(row->n_stages),
        report_number(row->batch),
        report_text(tp_objective_choices[task->objective]),
        report_time(&row->rounds, 1),
        report_number(row->limit),
        report_number((double)optimal.passes),
        report_number(optimal.n_groups),
        report_number(slices),
        report_number(uniform),
        report_error(objective_error(task, &optimal), BOUND),
        report_error(coarse, BOUND),
        report_error(fmax(1 - uniform, 0), BOUND),
    };
    tp_optimal_fini(&optimal);
    return report_add(report, cells);
}

static struct tp_optimal_task task_of(const struct row *row, const struct tp_cost *cost,
                                      int objective)
{
    return (struct tp_optimal_task){.cost = cost,
                                    .n_layer = 1,
                                    .n_stages = row->n_stages,
                                    .seq_len = row->seq_len,
                                    .batch = row->batch,
                                    .grain = row->grain,
                                    .objective = (enum tp_objective)objective};
}

static enum tp_status measure_all(const struct settings *s, const struct tp_cost *cost,
                                  struct report *report)
{
    static struct row cases[] = {{.seq_len = 2048, .grain = 1, .n_stages = 96, .batch = 2, 2},
                                 {.seq_len = 2048, .grain = 8, .n_stages = 40, .batch = 32, 0.2},
                                 {.seq_len = 8192, .grain = 8, .n_stages = 40, .batch = 2, 0.2},
                                 {.seq_len = 131072, .grain = 128, .n_stages = 128, .batch = 1, 2}};
    enum { N_CASES = sizeof(cases) / sizeof(cases[0]) };
    for (int round = 1; round < s->rounds; round++) /* report_case() adds one */
        for (int i = 0; i < N_CASES; i++) {
            const struct tp_optimal_task task = task_of(&cases[i], cost, s->objective);
            struct tp_optimal optimal;
            TP_TRY(measure(&task, &cases[i].rounds, &optimal));
            tp_optimal_fini(&optimal);
        }
    for (int i = 0; i < N_CASES; i++) {
        const struct tp_optimal_task task = task_of(&cases[i], cost, s->objective);
        TP_TRY(report_case(&task, &cases[i], report));
    }
    return report_finish(report);
}

static enum tp_status run(const void *settings)
{
    const struct settings *s = settings;
    struct tp_profile *profile = NULL;
    struct report *report = NULL;
    struct tp_cost cost;

    enum tp_status status = report_open(&s->report, "plan", columns, N_COLUMNS, &report);
    if (status == TP_OK)
        status = make_profile(&profile);
    if (status == TP_OK) {
        tp_profile_cost(profile, &cost);
        status = measure_all(s, &cost, report);
    }
    tp_profile_free(profile);
    report_close(report);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    return report_main(rows, N_ROWS, &s, argc, argv, run);
}
