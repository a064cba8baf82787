/* SPDX-License-Identifier: Apache-2.0 */
/* What our costs, simulation and optimiser make of the settings of the TeraPipe paper (arXiv
 * 2102.07988), beside what it published. Prints tables in Markdown and writes what the figures are
 * drawn from. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/options.h"
#include "plan/hardware.h"
#include "plan/optimal.h"
#include "plan/profile.h"
#include "plan/simulate.h"
#include "published.h"

struct settings {
    const char *data, *out;
};

static const struct tp_option rows[] = {
    {.name = "data",
     .type = TP_OPTION_STRING,
     .offset = offsetof(struct settings, data),
     .argument = "DIR",
     .help = "folder of the published numbers",
     .required = true},
    {.name = "o",
     .type = TP_OPTION_STRING,
     .offset = offsetof(struct settings, out),
     .initial = "paper",
     .argument = "DIR",
     .help = "folder for the figures' numbers"},
};
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]) };

enum { GRAIN = 8, MOST_ERRORS = 2 * MOST_SETTINGS };

/* --- Errors --------------------------------------------------------------------------------------
 */

struct errors {
    int count;
    double at[MOST_ERRORS]; /* relative, without sign */
};

/* Notes and returns ours / theirs - 1. */
static double errors_add(struct errors *errors, double ours, double theirs)
{
    const double error = ours / theirs - 1;

    if (errors->count < MOST_ERRORS)
        errors->at[errors->count++] = fabs(error);
    return error;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them; the one at a share of the way from the smallest (0) to the largest (1). */
static double errors_at(struct errors *errors, double share)
{
    qsort(errors->at, (size_t)errors->count, sizeof *errors->at, ascending);
    return errors->count == 0 ? 0 : errors->at[(int)(share * (errors->count - 1) + 0.5)];
}

/* Results that miss their aims, in all. */
static int missed;

static const char *verdict(bool met)
{
    missed += !met;
    return met ? "met" : "**missed**";
}

/* What cannot be otherwise unless something is wrong. */
static int wrong;

static const char *check(bool right)
{
    wrong += !right;
    return right ? "" : " **wrong**";
}

/* --- Steps ---------------------------------------------------------------------------------------
 */

/* The paper measured the layers alone: almost no vocabulary. */
static struct tp_model model_of(const struct setting *s)
{
    return (struct tp_model){.n_layer = s->n_layer,
                             .n_embd = s->n_embd,
                             .n_head = s->n_head,
                             .n_inner = 4 * s->n_embd,
                             .vocab_size = 1,
                             .n_positions = s->seq_len};
}

static enum tp_status simulate(const struct setting *s, struct tp_plan *plan,
                               const struct tp_cost *cost, double *seconds)
{
    struct tp_simulation simulation;

    plan->data = s->data;
    plan->op = s->op;
    TP_TRY(tp_simulate(plan, cost, NULL, &simulation));
    *seconds = simulation.step_seconds;
    tp_simulation_fini(&simulation);
    return TP_OK;
}

/* Seconds of a step when every sequence is a group and all are cut alike. */
static enum tp_status step_of(const struct setting *s, const struct tp_cost *cost,
                              const struct tp_slices *slices, double *seconds)
{
    const struct tp_model model = model_of(s);
    struct tp_plan *plan;

    TP_TRY(tp_plan_default(&model, s->seq_len, s->batch, s->pipe, TP_SCHEDULE_TERAPIPE, 1, slices,
                           &plan));
    enum tp_status status = simulate(s, plan, cost, seconds);
    tp_plan_free(plan);
    return status;
}

static enum tp_status step_of_uniform(const struct setting *s, const struct tp_cost *cost,
                                      int count, double *seconds)
{
    struct tp_slices slices;

    TP_TRY(tp_slices_uniform(s->seq_len, count, &slices));
    enum tp_status status = step_of(s, cost, &slices, seconds);
    tp_slices_fini(&slices);
    return status;
}

/* The published scheme, "776 640 632". */
static enum tp_status scheme_of(const struct setting *s, struct tp_slices *slices)
{
    char text[512];

    if (strchr(s->slices, ' ') == NULL) /* one number: the whole sequence */
        return tp_slices_uniform(s->seq_len, 1, slices);
    snprintf(text, sizeof text, "%s", s->slices);
    for (char *at = text; *at != '\0'; at++)
        if (*at == ' ')
            *at = ',';
    return tp_slices_parse(text, s->seq_len, slices);
}

static enum tp_status step_of_scheme(const struct setting *s, const struct tp_cost *cost,
                                     double *seconds)
{
    struct tp_slices slices;

    TP_TRY(scheme_of(s, &slices));
    enum tp_status status = step_of(s, cost, &slices, seconds);
    tp_slices_fini(&slices);
    return status;
}

/* --- Planning ------------------------------------------------------------------------------------
 */

/* A cost whose layers carry a share of the messages after them. The closed form has no links, but a
 * pipeline that is long beside its units pays for messages as it pays for its longest unit. */
struct linked {
    const struct tp_cost *cost;
    int n_layer, n_embd;
    double latency, byte; /* of all boundaries together */
};

static double linked_layer(const void *self, int device, enum tp_direction direction, int b, int s,
                           int c)
{
    const struct linked *l = self;
    const double bytes =
        (double)b * s * l->n_embd * l->cost->devices[device].footprint.element_bytes;

    return l->cost->layer(l->cost->self, device, direction, b, s, c) +
           (l->latency + bytes * l->byte) / l->n_layer;
}

static bool linked_has_group(const void *self, int device, int b)
{
    const struct linked *l = self;
    return l->cost->has_group(l->cost->self, device, b);
}

static void linked_init(struct linked *linked, const struct setting *s, const struct tp_cost *cost,
                        struct tp_cost *with)
{
    const size_t bytes = 1 << 20;

    *linked = (struct linked){.cost = cost, .n_layer = s->n_layer, .n_embd = s->n_embd};
    for (int boundary = 0; boundary + 1 < s->pipe; boundary++) {
        const double latency = cost->link(cost->self, boundary, 0);
        linked->latency += latency;
        linked->byte += (cost->link(cost->self, boundary, bytes) - latency) / (double)bytes;
    }
    *with = *cost;
    with->self = linked;
    with->layer = linked_layer;
    with->has_group = linked_has_group;
}

static enum tp_status solve(const struct setting *s, const struct tp_cost *cost,
                            enum tp_objective objective, int max_group, double epsilon,
                            struct tp_optimal *optimal)
{
    const struct tp_optimal_task task = {.cost = cost,
                                         .n_layer = s->n_layer / s->pipe,
                                         .n_stages = s->pipe,
                                         .seq_len = s->seq_len,
                                         .batch = s->batch,
                                         .grain = GRAIN,
                                         .max_group = max_group,
                                         .objective = objective,
                                         .epsilon = epsilon};
    return tp_optimal_solve(&task, optimal);
}

/* The best plan that was found, by simulation. */
struct planned {
    struct tp_plan *plan;
    double seconds;
};

/* Keeps the plan if it is the best so far; owns it in any case. */
static enum tp_status consider(const struct setting *s, const struct tp_cost *cost,
                               struct tp_plan *plan, struct planned *best)
{
    double seconds;
    enum tp_status status = simulate(s, plan, cost, &seconds);

    if (status != TP_OK || (best->plan != NULL && seconds >= best->seconds)) {
        tp_plan_free(plan);
        return status;
    }
    tp_plan_free(best->plan);
    *best = (struct planned){.plan = plan, .seconds = seconds};
    return TP_OK;
}

static enum tp_status consider_uniform(const struct setting *s, const struct tp_cost *cost,
                                       int count, struct planned *best)
{
    const struct tp_model model = model_of(s);
    struct tp_slices slices;
    struct tp_plan *plan;

    TP_TRY(tp_slices_uniform(s->seq_len, count, &slices));
    enum tp_status status = tp_plan_default(&model, s->seq_len, s->batch, s->pipe,
                                            TP_SCHEDULE_TERAPIPE, 1, &slices, &plan);
    tp_slices_fini(&slices);
    return status == TP_OK ? consider(s, cost, plan, best) : status;
}

static enum tp_status plan_of(const struct setting *s, struct tp_optimal *optimal,
                              struct tp_plan **out)
{
    const struct tp_plan facts = {.model = model_of(s),
                                  .seq_len = s->seq_len,
                                  .batch = s->batch,
                                  .data = s->data,
                                  .pipe = s->pipe,
                                  .op = s->op,
                                  .schedule = TP_SCHEDULE_TERAPIPE,
                                  .n_stages = s->pipe,
                                  .n_flights = 1};
    struct tp_plan *plan;

    TP_TRY(tp_plan_new(&facts, optimal->n_groups, &plan));
    plan->flights[0] = optimal->n_groups;
    tp_stages_even(s->n_layer, s->pipe, plan->stages);
    for (int g = 0; g < optimal->n_groups; g++) {
        plan->groups[g] = optimal->groups[g]; /* with its slices */
        optimal->groups[g].slices = (struct tp_slices){0};
    }
    *out = plan;
    return TP_OK;
}

static enum tp_status consider_optimal(const struct setting *s, const struct tp_cost *cost,
                                       const struct tp_cost *closed, enum tp_objective objective,
                                       int max_group, struct planned *best)
{
    struct tp_optimal optimal;
    struct tp_plan *plan;

    TP_TRY(solve(s, closed, objective, max_group, 0, &optimal));
    enum tp_status status = plan_of(s, &optimal, &plan);
    tp_optimal_fini(&optimal);
    return status == TP_OK ? consider(s, cost, plan, best) : status;
}

/* The closed form's best plans, with and without a share of the links, and uniform slices: which of
 * them simulates fastest. The published scheme is not looked at. */
static enum tp_status plan_best(const struct setting *s, const struct tp_cost *cost, int max_group,
                                struct planned *best)
{
    struct tp_cost with;
    struct linked linked;
    enum tp_status status = TP_OK;

    linked_init(&linked, s, cost, &with);
    *best = (struct planned){0};
    for (int count = 1; count <= MOST_SLICES && status == TP_OK; count++)
        status = consider_uniform(s, cost, count, best);
    for (int objective = 0; objective < 2 && status == TP_OK; objective++) {
        status = consider_optimal(s, cost, cost, (enum tp_objective)objective, max_group, best);
        if (status == TP_OK)
            status =
                consider_optimal(s, cost, &with, (enum tp_objective)objective, max_group, best);
    }
    if (status != TP_OK)
        tp_plan_free(best->plan);
    return status;
}

static void print_slices(const struct tp_slices *slices)
{
    for (int i = 0, same; i < slices->count; i += same) {
        for (same = 1; i + same < slices->count; same++)
            if (slices->lengths[i + same] != slices->lengths[i])
                break;
        printf("%s", i > 0 ? " " : "");
        if (same > 1)
            printf("%d·", same);
        printf("%d", slices->lengths[i]);
    }
}

static bool same_group(const struct tp_group *a, const struct tp_group *b)
{
    return a->sequences == b->sequences && a->slices.count == b->slices.count &&
           memcmp(a->slices.lengths, b->slices.lengths,
                  (size_t)a->slices.count * sizeof *a->slices.lengths) == 0;
}

/* "8 × (2·1024)", groups of more than one sequence as "4 × [2] (2048)". */
static void print_groups(const struct tp_group *groups, int count)
{
    for (int i = 0, same; i < count; i += same) {
        for (same = 1; i + same < count; same++)
            if (!same_group(&groups[i + same], &groups[i]))
                break;
        printf("%s%d × ", i > 0 ? ", " : "", same);
        if (groups[i].sequences > 1)
            printf("[%d] ", groups[i].sequences);
        printf("(");
        print_slices(&groups[i].slices);
        printf(")");
    }
}

/* --- What the analytic costs make of a setting ---------------------------------------------------
 */

/* The analytic costs of a setting; they stay where they are. */
struct estimated {
    struct tp_estimate estimate;
    struct tp_cost cost;
};

static enum tp_status estimate(const struct setting *s, struct estimated *e)
{
    const struct tp_model model = model_of(s);
    struct tp_hardware hardware;

    TP_TRY(tp_hardware_find("v100-25gbe", &hardware));
    tp_estimate_init(&e->estimate, &hardware, &model, s->pipe, s->op, &e->cost);
    return TP_OK;
}

/* Seconds of a step; the scheme 0 where none was published. */
struct predicted {
    double gpipe, scheme;
    struct planned best; /* groups of one sequence, as published */
    struct planned free; /* of any */
};

static enum tp_status predict(const struct setting *s, struct predicted *out)
{
    struct estimated e;

    *out = (struct predicted){0};
    TP_TRY(estimate(s, &e));
    TP_TRY(step_of_uniform(s, &e.cost, 1, &out->gpipe));
    if (s->slices[0] != '\0')
        TP_TRY(step_of_scheme(s, &e.cost, &out->scheme));
    TP_TRY(plan_best(s, &e.cost, 1, &out->best));
    return plan_best(s, &e.cost, 0, &out->free);
}

/* --- Files for the figures -----------------------------------------------------------------------
 */

static enum tp_status figure_open(const char *folder, const char *name, FILE **out)
{
    char *path = tp_file_join(folder, name);

    if (path == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a path");
    *out = fopen(path, "w");
    enum tp_status status =
        *out != NULL ? TP_OK : tp_fail(TP_ERR_IO, "%s: cannot be written", path);
    free(path);
    return status;
}

static enum tp_status figure_close(FILE *out, const char *name)
{
    const bool bad = ferror(out) != 0;

    if (fclose(out) != 0 || bad)
        return tp_fail(TP_ERR_IO, "%s: cannot be written", name);
    return TP_OK;
}

/* --- a: profiles of the recovered times ----------------------------------------------------------
 */

/* Which profile is made of a setting's recovered times; the same for both settings. Times between
 * measured lengths are on straight lines; or all are on one line with the least squares of relative
 * errors. Context costs nothing apart: uniform runs only tell the mean over a sequence. */
enum fit { FIT_POINTS, FIT_LINE };

/* seconds = at[0] + at[1] length. */
static void fit_line(const struct layer_time *const *times, int count, double at[2])
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0;

    for (int i = 0; i < count; i++) {
        const double weight = 1 / (times[i]->seconds * times[i]->seconds);
        w += weight;
        x += weight * times[i]->length;
        y += weight * times[i]->seconds;
        xx += weight * times[i]->length * times[i]->length;
        xy += weight * times[i]->length * times[i]->seconds;
    }
    at[1] = (w * xy - x * y) / (w * xx - x * x);
    at[0] = (y - at[1] * x) / w;
}

/* The two directions of a slice. How they share its time does not matter here as long as all slices
 * do it alike; backward is twice forward. */
static enum tp_status add_time(struct tp_profile *profile, int length, double seconds)
{
    for (int d = 0; d < 2; d++)
        TP_TRY(tp_table_add(&profile->devices[0].layer[d].base, "recovered times", 1, length,
                            seconds * (d == TP_FORWARD ? 1 : 2) / 3));
    return TP_OK;
}

/* A profile of the times that were recovered for a setting, without those of a length (0: with
 * all). */
static enum tp_status recover(const struct published *p, const char *setting, enum fit fit,
                              int without, struct tp_profile **out)
{
    const struct layer_time *times[MOST_ROWS];
    struct tp_profile *profile;
    char ending[16];
    int count = 0;
    double line[2];

    snprintf(ending, sizeof ending, " cfg%s", setting);
    for (int i = 0; i < p->n_times; i++) {
        const char *end = strstr(p->times[i].setting, ending);
        if (end != NULL && strcmp(end, ending) == 0 && p->times[i].length != without)
            times[count++] = &p->times[i];
    }
    if (count < 2)
        return tp_fail(TP_ERR_INPUT, "%s: setting %s has %d times, expected 2 or more",
                       p->tables[2].path, setting, count);
    TP_TRY(tp_profile_new(1, &profile));
    fit_line(times, count, line);
    enum tp_status status = TP_OK;
    for (int i = 0; i < count && status == TP_OK; i++)
        status =
            add_time(profile, times[i]->length,
                     fit == FIT_POINTS ? times[i]->seconds : line[0] + line[1] * times[i]->length);
    if (status == TP_OK)
        *out = profile;
    else
        tp_profile_free(profile);
    return status;
}

/* Seconds of a step with such a profile: of uniform slices, or, count 0, of the published scheme.
 */
static enum tp_status recovered_step(const struct published *p, const struct setting *s,
                                     enum fit fit, int without, int count, double *seconds)
{
    struct tp_profile *profile;
    struct tp_cost cost;

    TP_TRY(recover(p, s->name, fit, without, &profile));
    tp_profile_cost(profile, &cost);
    enum tp_status status =
        count > 0 ? step_of_uniform(s, &cost, count, seconds) : step_of_scheme(s, &cost, seconds);
    tp_profile_free(profile);
    return status;
}

static enum tp_status report_recovered(const struct published *p, const struct setting *s,
                                       double aim)
{
    struct errors none = {0};
    double points, left_out, line;

    for (int i = 0; i < p->n_runs; i++) {
        const struct uniform_run *run = &p->runs[i];
        if (strcmp(run->setting, s->name) != 0)
            continue;
        TP_TRY(recovered_step(p, s, FIT_POINTS, 0, run->slices, &points));
        TP_TRY(recovered_step(p, s, FIT_POINTS, s->seq_len / run->slices, run->slices, &left_out));
        TP_TRY(recovered_step(p, s, FIT_LINE, 0, run->slices, &line));
        printf("| %s | %d uniform | %.3f | %.3f | %+.1f %% | %+.1f %% | %+.1f %% | |\n", s->name,
               run->slices, run->seconds, points, 100 * errors_add(&none, points, run->seconds),
               100 * errors_add(&none, left_out, run->seconds),
               100 * errors_add(&none, line, run->seconds));
    }
    TP_TRY(recovered_step(p, s, FIT_POINTS, 0, 0, &points));
    TP_TRY(recovered_step(p, s, FIT_LINE, 0, 0, &line));
    const double error = points / s->terapipe - 1;
    printf("| %s | **scheme** | %.3f | %.3f | **%+.1f %%** | | %+.1f %% | %.0f %%: %s |\n", s->name,
           s->terapipe, points, 100 * error, 100 * (line / s->terapipe - 1), 100 * aim,
           verdict(fabs(error) <= aim));
    return TP_OK;
}

static enum tp_status part_a(const struct published *p)
{
    static const struct {
        const char *setting;
        double aim;
    } schemes[] = {{"8", 0.15}, {"9", 0.10}};

    printf("### a. Published schemes from recovered stage times\n\n"
           "| setting | slices | published s | ours s | error | left out | straight line | aim |\n"
           "|---|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        const struct setting *s = published_setting(p, schemes[i].setting);
        if (s != NULL)
            TP_TRY(report_recovered(p, s, schemes[i].aim));
    }
    return TP_OK;
}

/* --- b: the U-shape ------------------------------------------------------------------------------
 */

/* Index 1 .. MOST_SLICES with the least number above 0; all: also where nothing was published. */
static int least_at(const double *seconds, const double *published, bool all)
{
    int least = 0;

    for (int i = 1; i <= MOST_SLICES; i++)
        if (seconds[i] > 0 && (all || published[i] > 0) &&
            (least == 0 || seconds[i] < seconds[least]))
            least = i;
    return least;
}

static enum tp_status report_u_shape(const struct published *p, const struct setting *s,
                                     double planned, FILE *out)
{
    double published[MOST_SLICES + 1] = {0}, recovered[MOST_SLICES + 1] = {0};
    double analytic[MOST_SLICES + 1] = {0};
    struct estimated e;

    TP_TRY(estimate(s, &e));
    fprintf(out, "# slices, seconds: published (0: not), recovered times, analytic, published "
                 "scheme, planned\n");
    for (int count = 1; count <= MOST_SLICES; count++) {
        published[count] = published_uniform(p, s, count);
        TP_TRY(recovered_step(p, s, FIT_POINTS, 0, count, &recovered[count]));
        TP_TRY(step_of_uniform(s, &e.cost, count, &analytic[count]));
        fprintf(out, "%d %.6f %.6f %.6f %.6f %.6f\n", count, published[count], recovered[count],
                analytic[count], s->terapipe, planned);
        if ((count & (count - 1)) != 0)
            continue;
        printf("| %s | %d | ", s->name, count);
        printf(published[count] > 0 ? "%.3f" : "–", published[count]);
        printf(" | %.3f | %.3f |\n", recovered[count], analytic[count]);
    }
    const double least = published[least_at(published, published, false)];
    const int ours[] = {least_at(recovered, published, false),
                        least_at(analytic, published, false)};
    printf("| %s | least of the published | ", s->name);
    for (int count = 1; count <= MOST_SLICES; count++)
        if (published[count] > 0 && published[count] == least)
            printf("at %d ", count);
    for (int i = 0; i < 2; i++)
        printf("| at %d: %s ", ours[i], verdict(published[ours[i]] == least));
    printf("|\n| %s | least of 1 … %d | | at %d | at %d |\n", s->name, MOST_SLICES,
           least_at(recovered, published, true), least_at(analytic, published, true));
    return TP_OK;
}

static enum tp_status part_b(const struct published *p, const struct predicted *predicted,
                             const char *folder)
{
    static const char *const names[] = {"8", "9"};

    printf("\n### b. Uniform slices\n\n"
           "| setting | slices | published s | recovered times s | analytic s |\n"
           "|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct setting *s = published_setting(p, names[i]);
        char name[32];
        FILE *out;
        if (s == NULL)
            continue;
        snprintf(name, sizeof name, "fig6-%s.dat", s->name);
        TP_TRY(figure_open(folder, name, &out));
        enum tp_status status = report_u_shape(p, s, predicted[s - p->settings].best.seconds, out);
        enum tp_status closed = figure_close(out, name);
        TP_TRY(status != TP_OK ? status : closed);
    }
    return TP_OK;
}

/* --- c: analytic latencies -----------------------------------------------------------------------
 */

/* The uniform runs of figure 6, which count apart. */
static enum tp_status part_c_uniform(const struct published *p, struct errors *errors)
{
    for (int i = 0; i < p->n_runs; i++) {
        const struct uniform_run *run = &p->runs[i];
        const struct setting *s = published_setting(p, run->setting);
        struct estimated e;
        double seconds;
        if (s == NULL || run->slices == 1) /* one slice: among the others */
            continue;
        TP_TRY(estimate(s, &e));
        TP_TRY(step_of_uniform(s, &e.cost, run->slices, &seconds));
        printf("| %s, %d uniform | | | | %.3f | %.3f | %+.1f %% |\n", s->name, run->slices,
               run->seconds, seconds, 100 * errors_add(errors, seconds, run->seconds));
    }
    return TP_OK;
}

static enum tp_status part_c(const struct published *p, const struct predicted *predicted)
{
    struct errors errors = {0}, uniform = {0};

    printf("\n### c. Latencies from the analytic V100\n\n"
           "| setting | w/o slices: published s | ours s | error | with slices: published s | "
           "ours s | error |\n|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < p->n_settings; i++) {
        const struct setting *s = &p->settings[i];
        printf("| %s | %.3f | %.3f | %+.1f %% | %.3f | ", s->name, s->gpipe, predicted[i].gpipe,
               100 * errors_add(&errors, predicted[i].gpipe, s->gpipe), s->terapipe);
        if (predicted[i].scheme > 0)
            printf("%.3f | %+.1f %% |\n", predicted[i].scheme,
                   100 * errors_add(&errors, predicted[i].scheme, s->terapipe));
        else
            printf("%.3f (planned) | (%+.1f %%) |\n", predicted[i].best.seconds,
                   100 * (predicted[i].best.seconds / s->terapipe - 1));
    }
    TP_TRY(part_c_uniform(p, &uniform));
    const double median = errors_at(&errors, 0.5);
    printf("\n%d latencies with a scheme: median error %.1f %% (aim 15 %%: %s), nine tenths below "
           "%.1f %%, largest %.1f %%. %d uniform runs: median %.1f %%, largest %.1f %%.\n",
           errors.count, 100 * median, verdict(median < 0.15), 100 * errors_at(&errors, 0.9),
           100 * errors_at(&errors, 1), uniform.count, 100 * errors_at(&uniform, 0.5),
           100 * errors_at(&uniform, 1));
    return TP_OK;
}

/* --- d: planning ---------------------------------------------------------------------------------
 */

static void part_d(const struct published *p, const struct predicted *predicted)
{
    static const char *const aims[] = {"2", "3", "9", "10"};

    printf(
        "\n### d. Planning with the analytic V100\n\n"
        "| setting | published scheme, our model s | planned s | speed-up: published | planned | "
        "error | planned, any groups s | planned scheme |\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < p->n_settings; i++) {
        const struct setting *s = &p->settings[i];
        const struct predicted *our = &predicted[i];
        const double speedup = s->gpipe / s->terapipe, ours = our->gpipe / our->best.seconds;
        bool aimed = false;
        for (size_t j = 0; j < sizeof aims / sizeof *aims; j++)
            aimed = aimed || strcmp(aims[j], s->name) == 0;
        printf("| %s | ", s->name);
        printf(our->scheme > 0 ? "%.4f" : "–", our->scheme);
        printf(" | %.4f", our->best.seconds);
        if (our->scheme > 0)
            printf("%s", check(our->best.seconds <= our->scheme * (1 + 1e-12)));
        printf(" | %.2f | %.2f | %+.1f %%", speedup, ours, 100 * (ours / speedup - 1));
        if (aimed)
            printf(" (15 %%: %s)", verdict(fabs(ours / speedup - 1) <= 0.15));
        printf(" | %.4f | ", our->free.seconds);
        print_groups(our->best.plan->groups, our->best.plan->n_groups);
        printf(" |\n");
    }
}

/* The same for the settings whose stage times are known: planned with these. */
static enum tp_status part_d_recovered(const struct published *p)
{
    static const char *const names[] = {"8", "9", "10"};

    printf("\nWith the recovered stage times of the setting:\n\n"
           "| setting | published scheme s | planned s | speed-up: published | planned | error | "
           "planned scheme |\n|---|---|---|---|---|---|---|\n");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct setting *s = published_setting(p, names[i]);
        struct tp_profile *profile;
        struct tp_cost cost;
        struct planned best;
        double scheme = 0, gpipe = 0;
        if (s == NULL)
            continue;
        TP_TRY(recover(p, s->name, FIT_POINTS, 0, &profile));
        tp_profile_cost(profile, &cost);
        enum tp_status status = step_of_scheme(s, &cost, &scheme);
        if (status == TP_OK)
            status = step_of_uniform(s, &cost, 1, &gpipe);
        if (status == TP_OK)
            status = plan_best(s, &cost, 1, &best);
        tp_profile_free(profile);
        TP_TRY(status);
        const double published = s->gpipe / s->terapipe, ours = gpipe / best.seconds;
        printf("| %s | %.4f | %.4f%s | %.2f | %.2f | %+.1f %% | ", s->name, scheme, best.seconds,
               check(best.seconds <= scheme * (1 + 1e-12)), published, ours,
               100 * (ours / published - 1));
        print_groups(best.plan->groups, best.plan->n_groups);
        printf(" |\n");
        tp_plan_free(best.plan);
    }
    return TP_OK;
}

/* --- The paper's epsilon -------------------------------------------------------------------------
 */

static bool same_scheme(const struct tp_optimal *a, const struct tp_optimal *b)
{
    if (a->n_groups != b->n_groups)
        return false;
    for (int g = 0; g < a->n_groups; g++)
        if (!same_group(&a->groups[g], &b->groups[g]))
            return false;
    return true;
}

/* One row: the schemes of three epsilons, and how much worse they are than the best. */
static enum tp_status report_epsilon(const struct setting *s, const char *source,
                                     const struct tp_cost *cost)
{
    static const double epsilons[] = {0, 1e-5, 1e-4};
    struct tp_optimal optimal[3];
    enum tp_status status = TP_OK;
    bool all_same = true;
    int solved = 0;

    while (solved < 3 && status == TP_OK) {
        status = solve(s, cost, TP_OBJECTIVE_PAPER, 1, epsilons[solved], &optimal[solved]);
        solved += status == TP_OK;
    }
    if (status == TP_OK) {
        printf("| %s | %s | %.6f | ", s->name, source, optimal[0].seconds);
        for (int i = 1; i < 3; i++) {
            const bool same = same_scheme(&optimal[i], &optimal[0]);
            all_same = all_same && same;
            if (same)
                printf("same | ");
            else
                printf("another (%+.2f %%) | ",
                       100 * (optimal[i].seconds / optimal[0].seconds - 1));
        }
        printf("%s |\n", verdict(all_same));
    }
    while (solved > 0)
        tp_optimal_fini(&optimal[--solved]);
    return status;
}

static enum tp_status part_epsilon(const struct published *p)
{
    printf("\n### The paper's tolerance\n\n"
           "| setting | times | objective at ε = 0 s | 0.01 ms | 0.1 ms | |\n"
           "|---|---|---|---|---|---|\n");
    for (int i = 0; i < p->n_settings; i++) {
        struct estimated e;
        TP_TRY(estimate(&p->settings[i], &e));
        TP_TRY(report_epsilon(&p->settings[i], "analytic", &e.cost));
    }
    static const char *const names[] = {"8", "9"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const struct setting *s = published_setting(p, names[i]);
        struct tp_profile *profile;
        struct tp_cost cost;
        if (s == NULL)
            continue;
        TP_TRY(recover(p, s->name, FIT_POINTS, 0, &profile));
        tp_profile_cost(profile, &cost);
        enum tp_status status = report_epsilon(s, "recovered", &cost);
        tp_profile_free(profile);
        TP_TRY(status);
    }
    return TP_OK;
}

/* --- e: the numbers of the figures ---------------------------------------------------------------
 */

/* A layer of GPT3-1B on one device: tokens, milliseconds of its forward, tokens a millisecond. */
static enum tp_status figure_3(const struct published *p, FILE *out)
{
    struct setting one;
    struct estimated e;

    one = p->settings[0];
    one.pipe = one.op = 1;
    TP_TRY(estimate(&one, &e));
    fprintf(out, "# tokens, forward ms, tokens/ms of a layer of width %d\n", one.n_embd);
    for (int tokens = GRAIN; tokens <= one.seq_len; tokens += GRAIN) {
        const double ms = 1e3 * e.cost.layer(e.cost.self, 0, TP_FORWARD, 1, tokens, 0);
        fprintf(out, "%d %.6f %.3f\n", tokens, ms, tokens / ms);
    }
    return TP_OK;
}

/* The recovered times of a setting's layer beside the analytic ones at the mean context: tokens,
 * milliseconds recovered, analytic with the messages, analytic without. */
static enum tp_status figure_3_recovered(const struct published *p, const struct setting *s,
                                         FILE *out)
{
    struct tp_profile *profile;
    struct tp_cost cost;
    struct estimated e;

    TP_TRY(recover(p, s->name, FIT_POINTS, 0, &profile));
    tp_profile_cost(profile, &cost);
    enum tp_status status = estimate(s, &e);
    fprintf(out, "# tokens, ms of forward and backward: recovered, analytic\n");
    for (int slices = MOST_SLICES; slices >= 1 && status == TP_OK; slices--) {
        const int tokens = s->seq_len / slices, context = (s->seq_len - tokens) / 2;
        double recovered = 0, analytic = 0;
        if (s->seq_len % slices != 0)
            continue;
        for (int d = 0; d < 2; d++) {
            const enum tp_direction direction = (enum tp_direction)d;
            recovered += cost.layer(cost.self, 0, direction, 1, tokens, 0);
            analytic += e.cost.layer(e.cost.self, 0, direction, 1, tokens, context);
        }
        const bool known = published_uniform(p, s, slices) > 0;
        fprintf(out, "%d %.6f %.6f\n", tokens, known ? 1e3 * recovered : NAN, 1e3 * analytic);
    }
    tp_profile_free(profile);
    return status;
}

/* Latencies of all settings, and those of setting 5 by sequence length. */
static void figures_5_and_7(const struct published *p, const struct predicted *predicted,
                            FILE *five, FILE *seven)
{
    fprintf(five, "# setting, seconds: gpipe published, ours, terapipe published, ours, planned\n");
    fprintf(seven, "# tokens, seconds: gpipe published, ours, terapipe published, ours, planned\n");
    for (int i = 0; i < p->n_settings; i++) {
        const struct setting *s = &p->settings[i];
        const struct predicted *our = &predicted[i];
        char numbers[256];
        snprintf(numbers, sizeof numbers, "%.6f %.6f %.6f %.6f %.6f", s->gpipe, our->gpipe,
                 s->terapipe, our->scheme > 0 ? our->scheme : NAN, our->best.seconds);
        if (strchr(s->name, '-') == NULL)
            fprintf(five, "%s %s\n", s->name, numbers);
        if (s->name[0] == '5')
            fprintf(seven, "%d %s\n", s->seq_len, numbers);
    }
}

static enum tp_status part_e(const struct published *p, const struct predicted *predicted,
                             const char *folder)
{
    static const char *const names[] = {"fig3.dat", "fig3-8.dat", "fig3-9.dat", "fig5.dat",
                                        "fig7.dat"};
    FILE *out[5] = {NULL};
    enum tp_status status = TP_OK;

    for (int i = 0; i < 5 && status == TP_OK; i++)
        status = figure_open(folder, names[i], &out[i]);
    if (status == TP_OK)
        status = figure_3(p, out[0]);
    if (status == TP_OK && published_setting(p, "8") != NULL)
        status = figure_3_recovered(p, published_setting(p, "8"), out[1]);
    if (status == TP_OK && published_setting(p, "9") != NULL)
        status = figure_3_recovered(p, published_setting(p, "9"), out[2]);
    if (status == TP_OK)
        figures_5_and_7(p, predicted, out[3], out[4]);
    for (int i = 0; i < 5; i++)
        if (out[i] != NULL) {
            enum tp_status closed = figure_close(out[i], names[i]);
            status = status != TP_OK ? status : closed;
        }
    return status;
}

/* --- All -----------------------------------------------------------------------------------------
 */

static enum tp_status run(const struct published *p, const char *folder)
{
    struct predicted predicted[MOST_SETTINGS] = {0};
    enum tp_status status = tp_file_make_folder(folder);

    for (int i = 0; i < p->n_settings && status == TP_OK; i++)
        status = predict(&p->settings[i], &predicted[i]);
    if (status == TP_OK)
        status = part_a(p);
    if (status == TP_OK)
        status = part_b(p, predicted, folder);
    if (status == TP_OK)
        status = part_c(p, predicted);
    if (status == TP_OK) {
        part_d(p, predicted);
        status = part_d_recovered(p);
    }
    if (status == TP_OK)
        status = part_epsilon(p);
    if (status == TP_OK)
        status = part_e(p, predicted, folder);
    for (int i = 0; i < p->n_settings; i++) {
        tp_plan_free(predicted[i].best.plan);
        tp_plan_free(predicted[i].free.plan);
    }
    if (status == TP_OK)
        printf("\nAims missed: %d. Checks failed: %d.\n", missed, wrong);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};
    struct tp_options options;
    struct published published;

    if (tp_options_parse(&options, rows, N_ROWS, &s, argc, argv) != TP_OK)
        return 2;
    if (options.help) {
        tp_options_help(rows, N_ROWS, stdout);
        return 0;
    }
    if (tp_options_refuse_arguments(&options) != TP_OK)
        return 2;
    enum tp_status status = published_load(s.data, &published);
    if (status == TP_OK) {
        status = run(&published, s.out);
        published_fini(&published);
    }
    tp_options_fini(&options);
    return status == TP_OK && wrong == 0 ? 0 : 1;
}
