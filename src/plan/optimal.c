/* SPDX-License-Identifier: Apache-2.0 */
/* The exact optimiser. A plan is what the objective sees of it: the sum of its slices' times and
 * its bottlenecks, max f and max b. The least sum whose slices all stay below given limits comes
 * from a dynamic program over tokens for each group size inside a knapsack over group sizes. It
 * never falls when limits fall, so one such evaluation settles many bottlenecks: with least sum G,
 * nothing below the limits with max f + max b >= (best - G) / (K-1) beats the best plan known.
 *
 * So the search walks down: evaluate, lower the limit of f + b to that bound (f + b of a slice is
 * at most max f + max b of its plan), evaluate again. Where a plan's bottlenecks are different
 * slices it may pass all limits still; then the region is split at a value of max f such that
 * neither part has the plan. A good plan that is known beforehand makes the steps long. */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/optimal.h"

const char *const tp_objective_choices[] = {"exact", "paper", NULL};

enum {
    WIDTH = 8,        /* slices of a block */
    BUCKETS = 8192,   /* of max f, see least_b_from() */
    REFINEMENTS = 10, /* of the first plan, see guess() */
    ROUNDS = 4        /* of passes for what the knapsack uses, then for all, see refresh() */
};

/* What slices must stay below. */
struct limits {
    double f, b, sum;
};

/* Times of slices with one start and consecutive ends; infinite beyond the last token. */
struct block {
    double f[WIDTH], b[WIDTH];
};

/* The slices of groups of one size. Those from border i are in the blocks of row i. */
struct table {
    int sequences;
    struct block *blocks;
    double *floors; /* [blocks] least f + b of this block and those behind it in its row */
    double *least;  /* [borders + WIDTH] least sum up to each border, under the last limits */
    bool fresh;     /* least is for the limits that are being evaluated */
    int *counts;    /* [borders] fewest slices that have the least sum */
    int *starts;    /* [borders] start of the last one of them */
};

/* A set of plans: those below the limits with at least these bottlenecks. */
struct region {
    struct limits limits;
    double least_f, least_b;
};

/* A plan as the objective sees it. */
struct outcome {
    double sum, max_f, max_b;
    double max_slice; /* largest f + b of a slice */
};

struct search {
    const struct tp_optimal_task *task;
    int units;       /* pieces of a sequence between borders, the last one maybe shorter */
    size_t n_blocks; /* of a table */
    size_t *rows;    /* [units] first block of each row */
    int n_tables;
    struct table *tables; /* ascending sequences */
    double *least;        /* [batch + 1] of the knapsack */
    int *last;            /* [batch + 1] table of the last group, -1 where nothing adds up */
    int *counts;          /* [batch + 1] fewest slices that have the least sum */
    double *guess;        /* [n_tables] least sums for the first guesses */
    double *least_b;      /* [BUCKETS] see least_b_from() */
    double bucket;        /* seconds of max f in a bucket */
    int depth, n_regions;
    struct region *regions; /* stack; n_regions fit */
    double *sums; /* [n_regions][n_tables] no group of that table has a smaller sum there */
    double best;  /* seconds of the best plan known */
    struct limits bottlenecks; /* max f and max b that it may have */
    bool bounded;              /* there are sizes of groups without a table */
    int64_t passes;
};

static int border(const struct search *s, int unit)
{
    return unit == s->units ? s->task->seq_len : unit * s->task->grain;
}

/* --- Times of all slices -------------------------------------------------------------------------
 */

static double seconds_of(const struct tp_optimal_task *task, enum tp_direction direction, int b,
                         int length, int start)
{
    return task->n_layer *
           task->cost->layer(task->cost->self, task->device, direction, b, length, start);
}

static enum tp_status check_seconds(const struct tp_optimal_task *task, enum tp_direction direction,
                                    int b, int length, int start, double seconds)
{
    char place[TP_COST_PLACE];

    if (seconds >= 0 && seconds < INFINITY)
        return TP_OK;
    return tp_fail(
        TP_ERR_INPUT,
        "%s%s of %d tokens of %d sequences after %d tokens takes %g s: expected a time "
        "of 0 or more",
        tp_cost_layer_place(task->cost, task->device, direction, b, length, start, place),
        direction == TP_FORWARD ? "forward" : "backward", length, b, start, seconds);
}

/* Times of all slices from border i. */
static enum tp_status row_init(const struct search *s, struct table *table, int i)
{
    const bool paper = s->task->objective == TP_OBJECTIVE_PAPER; /* f alone, with b in it */
    const int start = border(s, i);
    for (int j = i + 1; j <= s->units; j++) {
        const int sequences = table->sequences, length = border(s, j) - start, k = j - i - 1;
        const double f = seconds_of(s->task, TP_FORWARD, sequences, length, start);
        const double b = seconds_of(s->task, TP_BACKWARD, sequences, length, start);
        TP_TRY(check_seconds(s->task, TP_FORWARD, sequences, length, start, f));
        TP_TRY(check_seconds(s->task, TP_BACKWARD, sequences, length, start, b));
        struct block *block = &table->blocks[s->rows[i] + (size_t)(k / WIDTH)];
        block->f[k % WIDTH] = paper ? f + b : f;
        block->b[k % WIDTH] = paper ? 0 : b;
    }
    return TP_OK;
}

/* Fills the row's last block up, and the floors. */
static void row_pad(const struct search *s, struct table *table, int i)
{
    const int count = s->units - i, n = (count + WIDTH - 1) / WIDTH;
    struct block *blocks = &table->blocks[s->rows[i]];
    for (int k = count; k < n * WIDTH; k++)
        blocks[n - 1].f[k % WIDTH] = blocks[n - 1].b[k % WIDTH] = INFINITY;
    double floor = INFINITY;
    for (int block = n - 1; block >= 0; block--) {
        for (int k = 0; k < WIDTH; k++)
            floor = fmin(floor, blocks[block].f[k] + blocks[block].b[k]);
        table->floors[s->rows[i] + (size_t)block] = floor;
    }
}

static enum tp_status table_init(const struct search *s, struct table *table)
{
    table->blocks = malloc(s->n_blocks * sizeof *table->blocks);
    table->floors = malloc(s->n_blocks * sizeof *table->floors);
    table->least = malloc((size_t)(s->units + 1 + WIDTH) * sizeof *table->least);
    table->counts = malloc((size_t)(s->units + 1) * sizeof *table->counts);
    table->starts = malloc((size_t)(s->units + 1) * sizeof *table->starts);
    if (table->blocks == NULL || table->floors == NULL || table->least == NULL ||
        table->counts == NULL || table->starts == NULL)
        return tp_fail(TP_ERR_MEMORY,
                       "no memory for the times of all slices of %d tokens at a grain of %d: a "
                       "larger grain needs less",
                       s->task->seq_len, s->task->grain);
    for (int i = 0; i < s->units; i++) {
        TP_TRY(row_init(s, table, i));
        row_pad(s, table, i);
    }
    return TP_OK;
}

static void table_fini(struct table *table)
{
    free(table->blocks);
    free(table->floors);
    free(table->least);
    free(table->counts);
    free(table->starts);
}

static inline void slice_seconds(const struct search *s, const struct table *table, int i, int j,
                                 double *f, double *b)
{
    const int k = j - i - 1;
    const struct block *block = &table->blocks[s->rows[i] + (size_t)(k / WIDTH)];
    *f = block->f[k % WIDTH];
    *b = block->b[k % WIDTH];
}

static inline bool fits(double f, double b, const struct limits *limits)
{
    return f < limits->f && b < limits->b && f + b < limits->sum;
}

/* --- The least sum below limits ------------------------------------------------------------------
 */

/* Reaches the ends of a block's slices from their start. Branches measured no slower than vectors
 * of selects: which slices fit changes rarely along a row. */
static inline void relax(double *restrict ends, const struct block *restrict block, double start,
                         struct limits limits)
{
    for (int k = 0; k < WIDTH; k++) {
        const double f = block->f[k], b = block->b[k], end = start + (f + b);
        if (fits(f, b, &limits) && end < ends[k])
            ends[k] = end;
    }
}

/* A pass: the least sum of one group. */
static void pass(struct search *s, struct table *table, const struct limits *limits)
{
    double *least = table->least;
    least[0] = 0;
    for (int i = 1; i <= s->units + WIDTH; i++)
        least[i] = INFINITY;
    for (int i = 0; i < s->units; i++) {
        const struct block *blocks = &table->blocks[s->rows[i]];
        const double *floors = &table->floors[s->rows[i]];
        const int n = (s->units - i + WIDTH - 1) / WIDTH;
        if (least[i] == INFINITY)
            continue;
        for (int block = 0; block < n && floors[block] < limits->sum; block++)
            relax(&least[i + 1 + block * WIDTH], &blocks[block], least[i], *limits);
    }
    s->passes++;
}

/* The batch from groups with the least sum. Infinite when nothing adds up. */
static double knapsack(struct search *s, const double *sums)
{
    s->least[0] = 0;
    for (int batch = 1; batch <= s->task->batch; batch++) {
        s->least[batch] = INFINITY;
        s->last[batch] = -1;
        for (int t = 0; t < s->n_tables && s->tables[t].sequences <= batch; t++) {
            const double sum = s->least[batch - s->tables[t].sequences] + sums[t];
            if (sum < s->least[batch]) {
                s->least[batch] = sum;
                s->last[batch] = t;
            }
        }
    }
    return s->least[s->task->batch];
}

/* Start of the last slice of a least sum that ends at border j, after a pass; and its times. */
static int slice_start(const struct search *s, const struct table *table, int j,
                       const struct limits *limits, double *f, double *b)
{
    int i = j;
    do
        slice_seconds(s, table, --i, j, f, b);
    while (i > 0 && !(fits(*f, *b, limits) && table->least[i] + (*f + *b) == table->least[j]));
    return i;
}

/* Adds a group's slices to the bottlenecks. */
static void group_outcome(const struct search *s, const struct table *table,
                          const struct limits *limits, struct outcome *outcome)
{
    for (int j = s->units; j > 0;) {
        double f, b;
        j = slice_start(s, table, j, limits, &f, &b);
        outcome->max_f = fmax(outcome->max_f, f);
        outcome->max_b = fmax(outcome->max_b, b);
        outcome->max_slice = fmax(outcome->max_slice, f + b);
    }
}

/* Runs a table's pass if its sum is only a bound. */
static bool refresh_table(struct search *s, const struct limits *limits, int t, double *sums)
{
    struct table *table = &s->tables[t];
    if (table->fresh)
        return false;
    pass(s, table, limits);
    sums[t] = table->least[s->units];
    return table->fresh = true;
}

/* Runs the passes of the tables that the knapsack's result uses and whose sums are only bounds. Few
 * tables may be enough; where they are not, nearly all are needed, and a knapsack for each round of
 * one or two costs far more than their passes. */
static bool refresh(struct search *s, const struct limits *limits, int round, double *sums)
{
    bool stale = false;
    for (int batch = s->task->batch; batch > 0; batch -= s->tables[s->last[batch]].sequences)
        stale = refresh_table(s, limits, s->last[batch], sums) || stale;
    for (int t = 0; t < s->n_tables && stale && round >= ROUNDS; t++)
        refresh_table(s, limits, t, sums);
    return stale;
}

/* The plan of least sum below the limits; false when there is none. sums[n_tables]: lower bounds of
 * each table's sum, raised here as far as was needed. Keeps the best plan. */
static bool evaluate(struct search *s, const struct limits *limits, double *sums,
                     struct outcome *outcome)
{
    for (int t = 0; t < s->n_tables; t++)
        s->tables[t].fresh = false;
    *outcome = (struct outcome){0};
    int round = 0;
    do
        outcome->sum = knapsack(s, sums);
    while (outcome->sum < INFINITY && refresh(s, limits, ++round, sums));
    if (outcome->sum == INFINITY)
        return false;
    for (int batch = s->task->batch; batch > 0;) {
        const struct table *table = &s->tables[s->last[batch]];
        group_outcome(s, table, limits, outcome);
        batch -= table->sequences;
    }
    const double seconds =
        outcome->sum + (s->task->n_stages - 1) * (outcome->max_f + outcome->max_b);
    if (seconds < s->best) {
        s->best = seconds;
        s->bottlenecks.f = outcome->max_f;
        s->bottlenecks.b = outcome->max_b;
    }
    return true;
}

/* --- The search over bottlenecks -----------------------------------------------------------------
 */

/* Evaluates a limit of f + b alone. Returns it when it gave the best plan so far, else at, the
 * limit that did. sums[n_tables] are those without limits. */
static double better_limit(struct search *s, double at, double limit, const double *sums,
                           double *sum)
{
    const struct limits limits = {INFINITY, INFINITY, limit};
    const double best = s->best;
    struct outcome outcome;
    memcpy(s->guess, sums, (size_t)s->n_tables * sizeof *sums);
    evaluate(s, &limits, s->guess, &outcome);
    *sum = outcome.sum;
    return s->best < best ? limit : at;
}

/* A good plan to begin with: halves the limit, at first what the plan of least sum needs, as long
 * as that may help; then looks around the best limit in smaller and smaller steps. */
static void guess(struct search *s, double start, const double *sums)
{
    double at = start, sum = 0, step = 2;
    for (double limit = start / 2; sum < s->best; limit /= 2)
        at = better_limit(s, at, limit, sums, &sum);
    for (int i = 0; i < REFINEMENTS; i++) {
        step = sqrt(step);
        at = better_limit(s, at, at * step, sums, &sum);
        at = better_limit(s, at, at / step, sums, &sum);
    }
}

/* Fills least_b[k]: the least b of slices with f in bucket k or a later one. */
static void buckets_init(struct search *s, const struct limits *limits)
{
    s->bucket = limits->sum / BUCKETS;
    for (int k = 0; k < BUCKETS; k++)
        s->least_b[k] = INFINITY;
    for (int t = 0; t < s->n_tables; t++)
        for (size_t block = 0; block < s->n_blocks; block++)
            for (int k = 0; k < WIDTH; k++) {
                const double f = s->tables[t].blocks[block].f[k];
                const double b = s->tables[t].blocks[block].b[k];
                const double bucket = f / s->bucket;
                if (!fits(f, b, limits))
                    continue;
                double *least_b = &s->least_b[bucket < BUCKETS ? (int)bucket : BUCKETS - 1];
                *least_b = fmin(*least_b, b);
            }
    for (int k = BUCKETS - 2; k >= 0; k--)
        s->least_b[k] = fmin(s->least_b[k], s->least_b[k + 1]);
}

/* A plan with max f of at least f has a max b of at least this. */
static double least_b_from(const struct search *s, double f)
{
    const double bucket = f / s->bucket;
    return s->least_b[bucket < BUCKETS ? (int)bucket : BUCKETS - 1];
}

/* Lowers the limits of a region in which no plan has a smaller sum to those of plans that beat the
 * best one; false when none are left. */
static bool region_cut(const struct search *s, struct region *region, double sum)
{
    struct limits *limits = &region->limits;
    limits->sum = fmin(limits->sum, (s->best - sum) / (s->task->n_stages - 1));
    limits->f = fmin(limits->f, limits->sum - region->least_b);
    limits->b = fmin(limits->b, limits->sum - region->least_f);
    return region->least_f + region->least_b < limits->sum;
}

static enum tp_status regions_reserve(struct search *s, int count)
{
    if (count <= s->n_regions)
        return TP_OK;
    const size_t n = 2 * (size_t)count;
    struct region *regions = realloc(s->regions, n * sizeof *regions);
    if (regions != NULL)
        s->regions = regions;
    double *sums = realloc(s->sums, n * (size_t)s->n_tables * sizeof *sums);
    if (sums != NULL)
        s->sums = sums;
    if (regions == NULL || sums == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for the search of the best slices");
    s->n_regions = (int)n;
    return TP_OK;
}

static double *region_sums(const struct search *s, int region)
{
    return &s->sums[(size_t)region * (size_t)s->n_tables];
}

/* Splits the uppermost region at a max f such that neither part has the outcome: max f is too small
 * for it in one, max b in the other. */
static enum tp_status region_split(struct search *s, const struct outcome *outcome)
{
    TP_TRY(regions_reserve(s, s->depth + 1));
    struct region *low = &s->regions[s->depth - 1], *high = &s->regions[s->depth];
    const double sum = low->limits.sum;
    const double at = fmin(outcome->max_f, (outcome->max_f + sum - outcome->max_b) / 2);
    *high = *low;
    high->least_f = fmax(high->least_f, at);
    high->least_b = fmax(high->least_b, least_b_from(s, at));
    high->limits.b = fmin(high->limits.b, fmin(outcome->max_b, sum - at));
    low->limits.f = fmin(low->limits.f, at);
    memcpy(region_sums(s, s->depth), region_sums(s, s->depth - 1),
           (size_t)s->n_tables * sizeof *s->sums);
    s->depth++;
    return TP_OK;
}

/* Evaluates the uppermost region; what is left of it is smaller, or split, or nothing. */
static enum tp_status region_step(struct search *s)
{
    struct region *region = &s->regions[s->depth - 1];
    double *sums = region_sums(s, s->depth - 1);
    struct outcome outcome;
    if (!region_cut(s, region, knapsack(s, sums)) ||
        !evaluate(s, &region->limits, sums, &outcome)) {
        s->depth--;
        return TP_OK;
    }
    struct limits *limits = &region->limits;
    limits->sum = fmin(limits->sum, outcome.max_f + outcome.max_b - s->task->epsilon);
    if (!region_cut(s, region, outcome.sum)) {
        s->depth--;
        return TP_OK;
    }
    const bool out = outcome.max_slice >= limits->sum || outcome.max_f >= limits->f ||
                     outcome.max_b >= limits->b;
    return out ? TP_OK : region_split(s, &outcome);
}

static enum tp_status search_run(struct search *s)
{
    struct outcome outcome;
    TP_TRY(regions_reserve(s, 1));
    s->regions[0] = (struct region){.limits = {INFINITY, INFINITY, INFINITY}};
    for (int t = 0; t < s->n_tables; t++)
        s->sums[t] = 0;
    s->best = INFINITY;
    if (!evaluate(s, &s->regions[0].limits, s->sums, &outcome) || !(s->best < INFINITY))
        return tp_fail(TP_ERR_INPUT, "the times of %d sequences of %d tokens add up to infinity",
                       s->task->batch, s->task->seq_len);
    if (s->task->n_stages == 1) { /* bottlenecks cost nothing */
        s->bottlenecks.f = s->bottlenecks.b = INFINITY;
        return TP_OK;
    }
    guess(s, outcome.max_f + outcome.max_b, s->sums);
    if (!region_cut(s, &s->regions[0], outcome.sum))
        return TP_OK;
    buckets_init(s, &s->regions[0].limits);
    for (s->depth = 1; s->depth > 0;)
        TP_TRY(region_step(s));
    return TP_OK;
}

/* --- The plan ------------------------------------------------------------------------------------
 */

/* The fewest slices of one group among those of least sum, after a pass. */
static void count_slices(const struct search *s, struct table *table, const struct limits *limits)
{
    table->counts[0] = 0;
    for (int j = 1; j <= s->units; j++)
        table->counts[j] = INT_MAX;
    for (int i = 0; i < s->units; i++) {
        const double *floors = &table->floors[s->rows[i]];
        if (table->least[i] == INFINITY)
            continue;
        for (int j = i + 1; j <= s->units && floors[(j - i - 1) / WIDTH] < limits->sum; j++) {
            double f, b;
            slice_seconds(s, table, i, j, &f, &b);
            if (fits(f, b, limits) && table->least[i] + (f + b) == table->least[j] &&
                table->counts[i] + 1 < table->counts[j]) {
                table->counts[j] = table->counts[i] + 1;
                table->starts[j] = i;
            }
        }
    }
}

/* As knapsack(), and among equal sums the fewest slices. */
static void count_groups(struct search *s)
{
    s->least[0] = s->counts[0] = 0;
    for (int batch = 1; batch <= s->task->batch; batch++) {
        s->least[batch] = INFINITY;
        s->counts[batch] = 0;
        for (int t = 0; t < s->n_tables && s->tables[t].sequences <= batch; t++) {
            const int rest = batch - s->tables[t].sequences;
            const double sum = s->least[rest] + s->tables[t].least[s->units];
            if (sum == INFINITY)
                continue;
            const int count = s->counts[rest] + s->tables[t].counts[s->units];
            if (sum < s->least[batch] || (sum == s->least[batch] && count < s->counts[batch])) {
                s->least[batch] = sum;
                s->counts[batch] = count;
                s->last[batch] = t;
            }
        }
    }
}

static enum tp_status group_init(const struct search *s, const struct table *table,
                                 struct tp_group *group)
{
    const int count = table->counts[s->units];
    int *lengths = malloc((size_t)count * sizeof *lengths);
    if (lengths == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d slices", count);
    for (int slice = count - 1, j = s->units; slice >= 0; slice--) {
        lengths[slice] = border(s, j) - border(s, table->starts[j]);
        j = table->starts[j];
    }
    *group = (struct tp_group){table->sequences, {count, lengths}};
    return TP_OK;
}

/* The objective of the groups, from the times of their slices. */
static double objective(const struct search *s)
{
    double sum_f = 0, sum_b = 0, max_f = 0, max_b = 0;
    for (int batch = s->task->batch; batch > 0;) {
        const struct table *table = &s->tables[s->last[batch]];
        for (int j = s->units; j > 0; j = table->starts[j]) {
            double f, b;
            slice_seconds(s, table, table->starts[j], j, &f, &b);
            sum_f += f;
            sum_b += b;
            max_f = fmax(max_f, f);
            max_b = fmax(max_b, b);
        }
        batch -= table->sequences;
    }
    return sum_f + sum_b + (s->task->n_stages - 1) * (max_f + max_b);
}

static void groups_free(int n_groups, struct tp_group *groups)
{
    for (int i = 0; i < n_groups; i++)
        tp_slices_fini(&groups[i].slices);
    free(groups);
}

static int compare_groups(const void *a, const void *b)
{
    const struct tp_group *x = a, *y = b;
    return (x->sequences > y->sequences) - (x->sequences < y->sequences);
}

static enum tp_status groups_new(const struct search *s, int *n_groups, struct tp_group **groups)
{
    int n = 0;
    const size_t most = (size_t)(s->task->batch > 0 ? s->task->batch : 1);
    struct tp_group *made = calloc(most, sizeof *made);
    if (made == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d groups", s->task->batch);
    for (int batch = s->task->batch; batch > 0; n++) {
        const struct table *table = &s->tables[s->last[batch]];
        enum tp_status status = group_init(s, table, &made[n]);
        if (status != TP_OK) {
            groups_free(n, made);
            return status;
        }
        batch -= table->sequences;
    }
    qsort(made, (size_t)n, sizeof *made, compare_groups);
    *n_groups = n;
    *groups = made;
    return TP_OK;
}

/* The best plan again, from its bottlenecks. */
static enum tp_status search_result(struct search *s, struct tp_optimal *optimal)
{
    const struct limits limits = {nextafter(s->bottlenecks.f, INFINITY),
                                  nextafter(s->bottlenecks.b, INFINITY),
                                  nextafter(s->bottlenecks.f + s->bottlenecks.b, INFINITY)};
    struct tp_optimal result;
    for (int t = 0; t < s->n_tables; t++) {
        pass(s, &s->tables[t], &limits);
        count_slices(s, &s->tables[t], &limits);
    }
    count_groups(s);
    TP_TRY(groups_new(s, &result.n_groups, &result.groups));
    result.seconds = objective(s);
    result.passes = s->passes;
    result.bounded = s->bounded;
    *optimal = result;
    return TP_OK;
}

/* --- Beginning and end ---------------------------------------------------------------------------
 */

static enum tp_status task_check(const struct tp_optimal_task *task)
{
    if (task->n_stages < 1 || task->n_layer < 1 || task->batch < 1 || task->seq_len < 1 ||
        task->grain < 1)
        return tp_fail(TP_ERR_INPUT,
                       "%d stages of %d layers, %d sequences of %d tokens at a grain of %d: "
                       "expected 1 or more of each",
                       task->n_stages, task->n_layer, task->batch, task->seq_len, task->grain);
    if (!(task->epsilon >= 0))
        return tp_fail(TP_ERR_INPUT, "epsilon %g s: expected 0 or more", task->epsilon);
    return TP_OK;
}

static bool is_size(const struct tp_optimal_task *task, int b)
{
    return (task->max_group <= 0 || b <= task->max_group) &&
           task->cost->has_group(task->cost->self, task->device, b);
}

/* Binary digits before a number's zeros. */
static int digits_of(int number)
{
    int digits = 0;
    while (number % 2 == 0)
        number /= 2;
    for (; number > 0; number /= 2)
        digits++;
    return digits;
}

/* The most digits with which there are no more sizes than may be tried. */
static int find_digits(const struct tp_optimal_task *task)
{
    int counts[sizeof(int) * CHAR_BIT] = {0}, digits = 0, sum;
    for (int b = 1; b <= task->batch; b++)
        if (is_size(task, b))
            counts[b < task->batch ? digits_of(b) : 0]++;
    for (sum = counts[0]; digits + 1 < (int)(sizeof(int) * CHAR_BIT); digits++)
        if (task->max_sizes > 0 && (sum += counts[digits + 1]) > task->max_sizes)
            break;
    return digits;
}

/* Tables, still empty, for the sizes of groups that the cost has numbers for; where even those of
 * one digit are too many, the smallest ones. */
static int list_tables(const struct tp_optimal_task *task, struct table *tables, bool *bounded)
{
    const int digits = find_digits(task), least = digits > 1 ? digits : 1;
    int n = 0;
    *bounded = false;
    for (int b = 1; b <= task->batch; b++) {
        if (!is_size(task, b))
            continue;
        if ((task->max_sizes <= 0 || n < task->max_sizes) &&
            (digits_of(b) <= least || b == task->batch))
            tables[n++].sequences = b;
        else
            *bounded = true;
    }
    return n;
}

static enum tp_status search_init(struct search *s)
{
    const size_t batch = (size_t)s->task->batch;
    s->units = s->task->whole ? 1 : (s->task->seq_len - 1) / s->task->grain + 1;
    s->rows = malloc((size_t)s->units * sizeof *s->rows);
    s->tables = calloc(batch, sizeof *s->tables);
    s->least = malloc((batch + 1) * sizeof *s->least);
    s->last = malloc((batch + 1) * sizeof *s->last);
    s->counts = malloc((batch + 1) * sizeof *s->counts);
    s->guess = calloc(batch, sizeof *s->guess);
    s->least_b = malloc(BUCKETS * sizeof *s->least_b);
    if (s->rows == NULL || s->tables == NULL || s->least == NULL || s->last == NULL ||
        s->counts == NULL || s->guess == NULL || s->least_b == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory to plan %d sequences of %d tokens", s->task->batch,
                       s->task->seq_len);
    for (int i = 0; i < s->units; i++) {
        s->rows[i] = s->n_blocks;
        s->n_blocks += (size_t)((s->units - i + WIDTH - 1) / WIDTH);
    }
    s->n_tables = list_tables(s->task, s->tables, &s->bounded);
    return TP_OK;
}

static void search_fini(struct search *s)
{
    for (int t = 0; t < s->n_tables; t++)
        table_fini(&s->tables[t]);
    free(s->rows);
    free(s->tables);
    free(s->least);
    free(s->last);
    free(s->counts);
    free(s->guess);
    free(s->least_b);
    free(s->regions);
    free(s->sums);
}

static enum tp_status tables_init(struct search *s)
{
    if (knapsack(s, s->guess) == INFINITY)
        return tp_fail(TP_ERR_INPUT,
                       "no groups add up to %d sequences: there are costs for %d sizes of groups",
                       s->task->batch, s->n_tables);
    for (int t = 0; t < s->n_tables; t++)
        TP_TRY(table_init(s, &s->tables[t]));
    return TP_OK;
}

static enum tp_status solve(struct search *s, struct tp_optimal *optimal)
{
    TP_TRY(search_init(s));
    TP_TRY(tables_init(s));
    TP_TRY(search_run(s));
    return search_result(s, optimal);
}

enum tp_status tp_optimal_solve(const struct tp_optimal_task *task, struct tp_optimal *optimal)
{
    struct search search = {.task = task};
    TP_TRY(task_check(task));
    enum tp_status status = solve(&search, optimal);
    search_fini(&search);
    return status;
}

void tp_optimal_fini(struct tp_optimal *optimal)
{
    groups_free(optimal->n_groups, optimal->groups);
    *optimal = (struct tp_optimal){0};
}
