/* SPDX-License-Identifier: Apache-2.0 */
/* Speed of the simulator on a large plan, and of the search over all degrees of a cluster. The
 * simulation is checked against the closed form for equal stages, the plan that is found against
 * its own simulation and against uniform slices under the same degrees. */
#include "config.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"
#include "plan/search.h"
#include "report.h"

struct settings {
    struct report_options report;
};

static const struct tp_option rows[] = {REPORT_OPTIONS(struct settings, report)};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

static const struct report_column columns[] = {
    {REPORT_KEY, "what", "", 0, 0},    {REPORT_TIME, "time", "s", 3, 1},
    {REPORT_FIGURE, "aim", "s", 2, 0}, {REPORT_FIGURE, "step", "s", 3, 0},
    {REPORT_ERROR, "off", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Stages, groups and slices of the simulated plan; rounds of it. */
enum { STAGES = 96, GROUPS = 8, SLICES = 64, ROUNDS = 7 };

/* Times without links and ends, so that the closed form holds. */
static bool any_group(const void *self, int device, int b)
{
    return self == NULL && device >= 0 && b > 0;
}

static double layer_seconds(const void *self, int device, enum tp_direction direction, int b, int s,
                            int c)
{
    (void)self, (void)device;
    return (direction == TP_FORWARD ? 1.0 : 2.1) * b * (1e-3 + s * (1e-5 + 1e-9 * c));
}

static double no_part(const void *self, int device, enum tp_direction direction, int b, int s)
{
    (void)self, (void)device, (void)direction, (void)b, (void)s;
    return 0;
}

static double no_link(const void *self, int boundary, size_t bytes)
{
    (void)self, (void)boundary, (void)bytes;
    return 0;
}

static const struct tp_cost_device device = {.name = "closed form", .footprint = {4096, 4}};
static const struct tp_cost plain = {.op = 1,
                                     .n_devices = 1,
                                     .devices = &device,
                                     .has_group = any_group,
                                     .layer = layer_seconds,
                                     .embed = no_part,
                                     .head = no_part,
                                     .link = no_link,
                                     .allreduce = no_link};

static double closed_form(const struct tp_plan *plan)
{
    double seconds = 0;
    for (int direction = 0; direction < 2; direction++) {
        double sum = 0, most = 0;
        for (int g = 0; g < plan->n_groups; g++) {
            const struct tp_group *group = &plan->groups[g];
            for (int i = 0, start = 0; i < group->slices.count;
                 start += group->slices.lengths[i++]) {
                const double t = layer_seconds(NULL, 0, (enum tp_direction)direction,
                                               group->sequences, group->slices.lengths[i], start);
                sum += t;
                most = fmax(most, t);
            }
        }
        seconds += sum + (plan->pipe - 1) * most;
    }
    return seconds;
}

static enum tp_status bench_simulation(const struct tp_model *model, struct report *report)
{
    struct tp_slices slices;
    struct tp_plan *plan;
    struct rounds rounds = {0};
    double error = 0, step = 0;
    TP_TRY(tp_slices_uniform(model->n_positions, SLICES, &slices));
    enum tp_status status = tp_plan_default(model, model->n_positions, GROUPS, STAGES,
                                            TP_SCHEDULE_TERAPIPE, 1, &slices, &plan);
    tp_slices_fini(&slices);
    TP_TRY(status);
    for (int i = 0; i < ROUNDS && status == TP_OK; i++) {
        struct tp_simulation simulation;
        const double begin = tp_clock_now();
        status = tp_simulate(plan, &plain, NULL, &simulation);
        if (status != TP_OK)
            break;
        rounds_add(&rounds, tp_clock_now() - begin);
        step = simulation.makespan;
        error = fabs(step / closed_form(plan) - 1);
        tp_simulation_fini(&simulation);
    }
    tp_plan_free(plan);
    TP_TRY(status);
    return report_add(report, (struct report_cell[N_COLUMNS]){
                                  report_text("simulation of 96 stages, 8 groups of 64 slices"),
                                  report_time(&rounds, 1), report_number(0.05), report_number(step),
                                  report_error(error, 1e-9)});
}

/* Seconds of the same degrees, schedule and stages with single sequences in uniform slices: the
 * best of 1, 2, 4, ... of them. */
static enum tp_status best_uniform(const struct tp_hardware *hardware, const struct tp_plan *found,
                                   double *seconds)
{
    struct tp_estimate estimate;
    struct tp_cost cost;
    tp_estimate_init(&estimate, hardware, &found->model, found->pipe, found->op, &cost);
    *seconds = INFINITY;
    for (int count = 1; count <= 128; count *= 2) {
        struct tp_slices slices;
        struct tp_plan *plan;
        struct tp_simulation simulation;
        TP_TRY(tp_slices_uniform(found->seq_len, count, &slices));
        enum tp_status status =
            tp_plan_default(&found->model, found->seq_len, found->batch, found->pipe,
                            TP_SCHEDULE_TERAPIPE, 1, &slices, &plan);
        tp_slices_fini(&slices);
        TP_TRY(status);
        plan->op = found->op;
        plan->data = found->data;
        status = tp_simulate(plan, &cost, NULL, &simulation);
        tp_plan_free(plan);
        TP_TRY(status);
        *seconds = fmin(*seconds, simulation.step_seconds);
        tp_simulation_fini(&simulation);
    }
    return TP_OK;
}

/* How much slower the best plan is than uniform slices under its degrees, or than another one of
 * the list: 0 when it is not. */
static enum tp_status slower_by(const struct tp_hardware *hardware,
                                const struct tp_degrees_list *list, double *error)
{
    const double step = list->at[0].found.simulation.step_seconds;
    double least;
    TP_TRY(best_uniform(hardware, list->at[0].found.plan, &least));
    for (int i = 1; i < list->planned; i++)
        least = fmin(least, list->at[i].found.simulation.step_seconds);
    *error = fmax(step / least - 1, 0);
    return TP_OK;
}

static enum tp_status bench_degrees(const struct tp_model *model, int devices, int batch,
                                    struct report *report)
{
    enum { BEST = 10 };
    struct tp_hardware hardware;
    struct tp_degrees_list list;
    struct rounds rounds = {0};
    double error = 0, step = 0;
    TP_TRY(tp_hardware_find("v100-25gbe", &hardware));
    const struct tp_degrees_task task = {.search = {.model = model,
                                                    .seq_len = model->n_positions,
                                                    .batch = batch,
                                                    .schedule = TP_SEARCH_AUTO,
                                                    .recompute = TP_RECOMPUTE_NEEDED,
                                                    .grain = 8,
                                                    .work = TP_SEARCH_WORK / BEST},
                                         .source = {.hardware = &hardware},
                                         .devices = devices,
                                         .keep = BEST};
    const double begin = tp_clock_now();
    TP_TRY(tp_search_degrees(&task, &list));
    rounds_add(&rounds, tp_clock_now() - begin);
    enum tp_status status =
        list.planned > 0 ? slower_by(&hardware, &list, &error)
                         : tp_fail(TP_ERR_INPUT, "no plan for %d devices was found", devices);
    if (status == TP_OK)
        step = list.at[0].found.simulation.step_seconds;
    tp_degrees_list_fini(&list);
    TP_TRY(status);
    return report_add(report, (struct report_cell[N_COLUMNS]){
                                  report_text("search of all degrees of 384 devices, B = 2"),
                                  report_time(&rounds, 1), report_number(30), report_number(step),
                                  report_error(error, 1e-9)});
}

static enum tp_status run(const void *settings)
{
    const struct settings *s = settings;
    struct tp_model model;
    struct report *report = NULL;

    enum tp_status status = report_open(&s->report, "search", columns, N_COLUMNS, &report);
    if (status == TP_OK)
        status = tp_model_preset("gpt3-175b", &model);
    if (status == TP_OK)
        status = bench_simulation(&model, report);
    if (status == TP_OK)
        status = bench_degrees(&model, 384, 2, report);
    if (status == TP_OK)
        status = report_finish(report);
    report_close(report);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    return report_main(rows, N_ROWS, &s, argc, argv, run);
}
