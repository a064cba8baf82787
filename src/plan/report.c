/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "plan/report.h"
#include "plan/schedule.h"

enum { ROWS = 32, COLUMNS = 96, LENGTHS = 16 };

/* ---- Numbers ---- */

double tp_report_utilisation(const struct tp_plan *plan, const struct tp_cost *cost, int sequences,
                             double step_seconds)
{
    const int ranks = plan->pipe * plan->op;
    double peak = 0;

    for (int rank = 0; rank < ranks; rank++) {
        const double here = cost->devices[tp_cost_device_of(cost, rank)].peak_flops;
        if (here <= 0)
            return 0;
        peak += here * plan->data;
    }
    if (step_seconds <= 0)
        return 0;
    return tp_model_step_flops(&plan->model, plan->seq_len, sequences) / (step_seconds * peak);
}

/* A share in percent, "–" when it is not known. */
static const char *percent(char text[16], double share)
{
    if (share <= 0)
        return "–";
    snprintf(text, 16, "%.1f %%", 100 * share);
    return text;
}

static double most_bytes(const struct tp_simulation *simulation)
{
    size_t most = 0;

    for (int k = 0; k < simulation->n_stages; k++)
        most = simulation->stages[k].peak_bytes > most ? simulation->stages[k].peak_bytes : most;
    return (double)most;
}

static int most_slices(const struct tp_plan *plan)
{
    int most = 0;

    for (int g = 0; g < plan->n_groups; g++)
        most = plan->groups[g].slices.count > most ? plan->groups[g].slices.count : most;
    return most;
}

static int sequences_of(const struct tp_plan *plan, int sequences)
{
    return sequences > 0 ? sequences : plan->batch * plan->data;
}

static const char *plural(int count)
{
    return count == 1 ? "" : "s";
}

/* ---- What a plan is ---- */

static void print_head(const struct tp_plan *plan, FILE *out)
{
    fprintf(out,
            "schedule %s%s%s over %d stage%s, %d replica%s, op %d; %d sequence%s of %d tokens a "
            "replica\n",
            tp_schedule_name(plan->schedule), plan->recompute ? " with recompute" : "",
            plan->delay_wgrad ? " with delayed weight gradients" : "", plan->pipe,
            plural(plan->pipe), plan->data, plural(plan->data), plan->op, plan->batch,
            plural(plan->batch), plan->seq_len);
}

static bool alike(const struct tp_group *a, const struct tp_group *b)
{
    return a->sequences == b->sequences && a->slices.count == b->slices.count &&
           memcmp(a->slices.lengths, b->slices.lengths,
                  (size_t)a->slices.count * sizeof *a->slices.lengths) == 0;
}

static void print_slices(const struct tp_slices *slices, FILE *out)
{
    const int shown = slices->count <= LENGTHS ? slices->count : LENGTHS - 1;

    for (int i = 0; i < shown; i++)
        fprintf(out, " %d", slices->lengths[i]);
    if (shown < slices->count)
        fprintf(out, " ... %d (%d slices)", slices->lengths[slices->count - 1], slices->count);
    fputc('\n', out);
}

/* Groups of one flight, neighbours that are alike in one line. */
static void print_groups(const struct tp_group *groups, int n_groups, FILE *out)
{
    for (int g = 0, end; g < n_groups; g = end) {
        for (end = g + 1; end < n_groups && alike(&groups[g], &groups[end]); end++)
            ;
        fprintf(out, "%6d group%s of %d sequence%s:", end - g, plural(end - g), groups[g].sequences,
                plural(groups[g].sequences));
        print_slices(&groups[g].slices, out);
    }
}

/* A flight, whose groups begin at one place, is like another of as many groups. */
static bool alike_flights(const struct tp_group *a, const struct tp_group *b, int n_groups)
{
    for (int g = 0; g < n_groups; g++)
        if (!alike(&a[g], &b[g]))
            return false;
    return true;
}

/* Neighbours that are alike together. */
static void print_flights(const struct tp_plan *plan, FILE *out)
{
    const struct tp_group *groups = plan->groups;

    for (int f = 0, end; f < plan->n_flights; f = end) {
        const struct tp_group *first = groups;
        const int n_groups = plan->flights[f];
        for (end = f; end < plan->n_flights && plan->flights[end] == n_groups &&
                      alike_flights(first, groups, n_groups);
             end++)
            groups += n_groups;
        if (plan->n_flights > 1)
            fprintf(out, "%6d flight%s of\n", end - f, plural(end - f));
        print_groups(first, n_groups, out);
    }
}

/* ---- What its step takes ---- */

static void print_step(const struct tp_plan *plan, const struct tp_cost *cost, int sequences,
                       const struct tp_simulation *s, FILE *out)
{
    const int units = tp_units_count(plan);
    const double least = (double)(plan->pipe - 1) / (units + plan->pipe - 1);
    const double share = tp_report_utilisation(plan, cost, sequences, s->step_seconds);
    const double tokens = (double)sequences * plan->seq_len;
    char text[16];

    fprintf(out, "step %.6g s", s->step_seconds);
    if (s->allreduce_seconds > 0 || s->update_seconds > 0)
        fprintf(out, " (pipeline %.6g, all-reduce %.6g, update %.6g)", s->makespan,
                s->allreduce_seconds, s->update_seconds);
    fprintf(out, " | %.0f tokens/s | model flops utilisation %s\n", tokens / s->step_seconds,
            percent(text, share));
    fprintf(out, "bubble %.1f %%; %d equal slice%s on equal stages have %.1f %%\n", 100 * s->bubble,
            units, plural(units), 100 * least);
}

/* Stages that differ in what is shown are few: neighbours that do not are left out. */
static void print_stages(const struct tp_plan *plan, const struct tp_simulation *s, FILE *out)
{
    bool dots = false;

    fprintf(out, "%6s %8s %12s %8s %8s %10s %16s\n", "stage", "layers", "busy s", "bubble",
            "slices", "tokens", "peak bytes");
    for (int k = 0; k < plan->n_stages; k++) {
        const struct tp_stage_simulation *stage = &s->stages[k];
        const bool shown = plan->n_stages <= ROWS || k < 4 || k >= plan->n_stages - 4;
        if (shown)
            fprintf(out, "%6d %8d %12.6g %6.1f %% %8d %10zu %16zu\n", k, plan->stages[k].n_layer,
                    stage->busy, 100 * stage->bubble, stage->peak_units, stage->peak_tokens,
                    stage->peak_bytes);
        else if (!dots)
            fprintf(out, "%6s\n", "...");
        dots = dots || !shown;
    }
}

/* ---- The timeline ---- */

struct timeline {
    int n_rows, n_stages;
    char rows[ROWS][COLUMNS + 1];
};

/* The row of a stage, or -1: of many stages, rows are spread evenly. */
static int row_of(const struct timeline *timeline, int stage)
{
    const int n = timeline->n_rows, last = timeline->n_stages - 1;

    if (n == timeline->n_stages)
        return stage;
    for (int row = 0; row < n; row++)
        if (row * last / (n - 1) == stage)
            return row;
    return -1;
}

static char mark_of(const struct tp_trace_event *event, int number)
{
    if (strcmp(event->name, "forward") == 0)
        return (char)('0' + number % 10);
    return strcmp(event->name, "backward") == 0 ? (char)('a' + number % 26) : '#';
}

/* Which slice of its group the event is of. */
static int number_of(const struct tp_plan *plan, const struct tp_trace_event *event)
{
    const struct tp_slices *slices = &plan->groups[event->group].slices;
    int number = 0;

    for (int start = 0; start < event->start && number < slices->count - 1; number++)
        start += slices->lengths[number];
    return number;
}

/* Marks the columns whose middle the event covers. */
static void draw(struct timeline *timeline, const struct tp_plan *plan,
                 const struct tp_trace_event *event, double makespan)
{
    const int row = row_of(timeline, event->pid);

    if (row < 0 || event->group < 0 || event->track != TP_TRACK_COMPUTE)
        return;
    const char mark = mark_of(event, number_of(plan, event));
    for (int column = (int)(event->begin / makespan * COLUMNS); column < COLUMNS; column++) {
        const double middle = (column + 0.5) / COLUMNS * makespan;
        if (middle >= event->end)
            break;
        if (middle >= event->begin)
            timeline->rows[row][column] = mark;
    }
}

static void print_timeline(const struct tp_plan *plan, const struct tp_trace *trace,
                           double makespan, FILE *out)
{
    struct timeline timeline = {.n_stages = plan->n_stages};
    size_t count;
    const struct tp_trace_event *events = tp_trace_events(trace, &count);

    timeline.n_rows = plan->n_stages < ROWS ? plan->n_stages : ROWS;
    for (int row = 0; row < timeline.n_rows; row++)
        memset(timeline.rows[row], '.', COLUMNS);
    for (size_t i = 0; i < count && makespan > 0; i++)
        draw(&timeline, plan, &events[i], makespan);
    fprintf(out, "timeline of %.6g s: stages down, digits forward, letters backward%s\n", makespan,
            plan->delay_wgrad ? ", # weight gradients" : "");
    for (int stage = 0; stage < plan->n_stages; stage++)
        if (row_of(&timeline, stage) >= 0)
            fprintf(out, "%6d |%s|\n", stage, timeline.rows[row_of(&timeline, stage)]);
}

static enum tp_status draw_step(const struct tp_plan *plan, const struct tp_cost *cost, FILE *out)
{
    struct tp_simulation simulation;
    struct tp_trace *trace;

    TP_TRY(tp_trace_new(&trace));
    enum tp_status status = tp_simulate(plan, cost, trace, &simulation);
    if (status == TP_OK) {
        print_timeline(plan, trace, simulation.makespan, out);
        tp_simulation_fini(&simulation);
    }
    tp_trace_free(trace);
    return status;
}

enum tp_status tp_report_plan(const struct tp_plan *plan, const struct tp_cost *cost, int sequences,
                              const struct tp_simulation *simulation, FILE *out)
{
    print_head(plan, out);
    print_flights(plan, out);
    print_step(plan, cost, sequences_of(plan, sequences), simulation, out);
    print_stages(plan, simulation, out);
    return draw_step(plan, cost, out);
}

/* ---- All degrees ---- */

static const struct tp_cost *cost_of(const struct tp_degrees_task *task,
                                     const struct tp_degrees *degrees, struct tp_estimate *estimate,
                                     struct tp_cost *cost)
{
    for (int i = 0; i < task->source.n_costs; i++)
        if (task->source.costs[i].op == degrees->op)
            return &task->source.costs[i];
    tp_estimate_init(estimate, task->source.hardware, task->search.model, degrees->pipe,
                     degrees->op, cost);
    return cost;
}

static void print_degrees(const struct tp_degrees *degrees, const struct tp_degrees_task *task,
                          FILE *out)
{
    const struct tp_plan *plan = degrees->found.plan;
    const struct tp_simulation *s = &degrees->found.simulation;
    struct tp_estimate estimate;
    struct tp_cost cost;
    const double share = tp_report_utilisation(plan, cost_of(task, degrees, &estimate, &cost),
                                               task->search.batch, s->step_seconds);
    const double tokens = (double)task->search.batch * plan->seq_len;
    char text[16];

    fprintf(out, "%5d %5d %4d  %-8s %-9s %6d %6d %12.6g %5.1f %% %10.0f %*s %16.0f\n",
            degrees->data, degrees->pipe, degrees->op, tp_schedule_name(plan->schedule),
            plan->recompute ? "cell" : "none", plan->n_groups, most_slices(plan), s->step_seconds,
            100 * s->bubble, tokens / s->step_seconds, share > 0 ? 8 : 10, percent(text, share),
            most_bytes(s));
}

void tp_report_degrees(const struct tp_degrees_list *list, const struct tp_degrees_task *task,
                       FILE *out)
{
    int slower = 0;

    fprintf(out, "%5s %5s %4s  %-8s %-9s %6s %6s %12s %7s %10s %8s %16s\n", "data", "pipe", "op",
            "schedule", "recompute", "groups", "slices", "step s", "bubble", "tokens/s", "mfu",
            "peak bytes");
    for (int i = 0; i < list->planned; i++)
        print_degrees(&list->at[i], task, out);
    for (int i = 0; i < list->planned; i++)
        if (list->at[i].found.note[0] != '\0')
            fprintf(out, "data %d, pipe %d, op %d: %s\n", list->at[i].data, list->at[i].pipe,
                    list->at[i].op, list->at[i].found.note);
    for (int i = list->planned; i < list->count; i++) {
        const struct tp_degrees *degrees = &list->at[i];
        slower += degrees->outcome == TP_DEGREES_SLOWER;
        if (degrees->outcome == TP_DEGREES_REFUSED)
            fprintf(out, "data %d, pipe %d, op %d refused: %s\n", degrees->data, degrees->pipe,
                    degrees->op, degrees->why);
    }
    if (slower > 0)
        fprintf(out, "%d more are slower\n", slower);
}
