/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "plan/fit.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/median.h"

enum { TERMS = 4, SUBSETS = 1 << TERMS };

/* ---- Medians ---- */

double tp_fit_reference(const struct tp_sample *samples, int count)
{
    double *numbers = malloc(((size_t)count + 1) * sizeof *numbers);
    double reference = 0;

    if (numbers == NULL || count == 0) {
        free(numbers);
        return count > 0 ? samples[0].reference : 0;
    }
    for (int i = 0; i < count; i++)
        numbers[i] = samples[i].reference;
    reference = tp_median(numbers, count);
    free(numbers);
    return reference;
}

static int compare_places(const struct tp_sample *a, const struct tp_sample *b)
{
    if (a->sequences != b->sequences)
        return a->sequences < b->sequences ? -1 : 1;
    if (a->tokens != b->tokens)
        return a->tokens < b->tokens ? -1 : 1;
    return (a->context > b->context) - (a->context < b->context);
}

static int compare_samples(const void *a, const void *b)
{
    const struct tp_sample *x = a, *y = b;
    const int places = compare_places(x, y);
    return places != 0 ? places : (x->seconds > y->seconds) - (x->seconds < y->seconds);
}

static bool is_time(double seconds)
{
    return seconds > 0 && isfinite(seconds);
}

/* Scales the samples in place, then leaves one of each place, with the median; returns how many. */
static int take_medians(struct tp_sample *samples, int count, double reference)
{
    int places = 0;

    for (int i = 0; i < count; i++)
        samples[i].seconds *= reference / samples[i].reference;
    qsort(samples, (size_t)count, sizeof *samples, compare_samples);
    for (int first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && !compare_places(&samples[first], &samples[end]);)
            end++;
        const double low = samples[(first + end - 1) / 2].seconds;
        const double high = samples[(first + end) / 2].seconds;
        samples[places] = samples[first];
        samples[places++].seconds = 0.5 * (low + high);
    }
    return places;
}

/* One sample of each place, ascending. *medians is malloc'd. */
static enum tp_status summarise(const struct tp_sample *samples, int count, double reference,
                                struct tp_sample **medians, int *places)
{
    for (int i = 0; i < count; i++)
        if (!is_time(samples[i].seconds) || !is_time(samples[i].reference))
            return tp_fail(TP_ERR_INPUT,
                           "%d x %d tokens after %d were measured to take %g s, beside a "
                           "reference of %g s: expected times above 0",
                           samples[i].sequences, samples[i].tokens, samples[i].context,
                           samples[i].seconds, samples[i].reference);
    struct tp_sample *all = malloc(((size_t)count + 1) * sizeof *all);
    if (all == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d measurements", count);
    memcpy(all, samples, (size_t)count * sizeof *all);
    *places = take_medians(all, count, reference);
    *medians = all;
    return TP_OK;
}

/* ---- Tables ---- */

static enum tp_status add_bases(const struct tp_sample *medians, int places, struct tp_table *table)
{
    for (int i = 0; i < places; i++)
        if (medians[i].context == 0)
            TP_TRY(tp_table_add(table, "measurements", medians[i].sequences, medians[i].tokens,
                                medians[i].seconds));
    return TP_OK;
}

enum tp_status tp_fit_table(const struct tp_sample *samples, int count, double reference,
                            struct tp_table *table)
{
    struct tp_sample *medians;
    int places;

    TP_TRY(summarise(samples, count, reference, &medians, &places));
    enum tp_status status = add_bases(medians, places, table);
    free(medians);
    return status;
}

static const struct tp_curve *curve_of(const struct tp_table *table, int sequences)
{
    for (int i = 0; i < table->count; i++)
        if (table->rows[i].sequences == sequences)
            return &table->rows[i].by_tokens;
    return NULL;
}

/* Lengths of one sequence that are longer than those of several. */
static enum tp_status extend(struct tp_table *table)
{
    const struct tp_curve *one = curve_of(table, 1);

    for (int i = 0; one != NULL && i < table->count; i++) {
        const int sequences = table->rows[i].sequences;
        const struct tp_curve *curve = &table->rows[i].by_tokens;
        const struct tp_point last = curve->points[curve->count - 1];
        const double ratio = last.seconds / tp_curve_at(one, last.at);
        for (int p = 0; p < one->count; p++)
            if (one->points[p].at > last.at)
                TP_TRY(tp_table_add(table, "measurements", sequences, (int)one->points[p].at,
                                    ratio * one->points[p].seconds));
    }
    return TP_OK;
}

/* ---- Context ---- */

static void terms_of(int sequences, int tokens, int context, double terms[TERMS])
{
    const double b = sequences, s = tokens, c = context;
    terms[0] = 1;
    terms[1] = b * s;
    terms[2] = b * c;
    terms[3] = b * s * c;
}

static double time_at(const struct tp_curve *base, const double coefficients[TERMS], int sequences,
                      int tokens, int context)
{
    double terms[TERMS], seconds = tp_curve_at(base, tokens);

    terms_of(sequences, tokens, context, terms);
    for (int i = 0; context > 0 && i < TERMS; i++)
        seconds += coefficients[i] * terms[i];
    return seconds;
}

/* Weighted least squares: sums of products of the columns [terms..., what they have to give]. Each
 * pair's weight is 1 / t^2, so that it is relative errors of t that are squared. */
struct equations {
    int pairs;
    double sums[TERMS + 1][TERMS + 1];
};

static void set_up(const struct tp_sample *medians, int places, const struct tp_table *base,
                   struct equations *equations)
{
    *equations = (struct equations){.pairs = 0};
    for (int i = 0; i < places; i++) {
        const struct tp_sample *m = &medians[i];
        const struct tp_curve *curve = curve_of(base, m->sequences);
        double row[TERMS + 1];
        if (m->context == 0 || m->held_out || curve == NULL)
            continue;
        terms_of(m->sequences, m->tokens, m->context, row);
        row[TERMS] = m->seconds - tp_curve_at(curve, m->tokens);
        for (int p = 0; p <= TERMS; p++)
            for (int q = 0; q <= TERMS; q++)
                equations->sums[p][q] += row[p] * row[q] / (m->seconds * m->seconds);
        equations->pairs++;
    }
}

/* Solves for the terms whose bits are set, the others are 0; false when they cannot be told apart.
 * Gauss's elimination on columns that are scaled to length 1: there, a pivot is what is new in a
 * column. */
static bool solve(const struct equations *equations, int subset, double coefficients[TERMS])
{
    double a[TERMS][TERMS + 1], scale[TERMS];
    int column[TERMS], n = 0;

    for (int i = 0; i < TERMS; i++) {
        coefficients[i] = 0;
        if (subset >> i & 1)
            column[n++] = i;
    }
    for (int i = 0; i < n; i++)
        scale[i] = sqrt(equations->sums[column[i]][column[i]]);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < n; k++)
            a[i][k] = equations->sums[column[i]][column[k]] / (scale[i] * scale[k]);
        a[i][n] = equations->sums[column[i]][TERMS] / scale[i];
    }
    for (int i = 0; i < n; i++) {
        if (!(a[i][i] > 1e-8))
            return false;
        for (int k = i + 1; k < n; k++)
            for (int l = n; l >= i; l--)
                a[k][l] -= a[i][l] * (a[k][i] / a[i][i]);
    }
    for (int i = n - 1; i >= 0; i--) {
        for (int k = i + 1; k < n; k++)
            a[i][n] -= a[i][k] * a[k][n];
        a[i][n] /= a[i][i];
        coefficients[column[i]] = a[i][n] / scale[i];
    }
    return true;
}

/* Sum of squared relative errors. */
static double residue(const struct equations *equations, const double coefficients[TERMS])
{
    double sum = 0, factors[TERMS + 1];

    memcpy(factors, coefficients, TERMS * sizeof *factors);
    factors[TERMS] = -1;
    for (int p = 0; p <= TERMS; p++)
        for (int q = 0; q <= TERMS; q++)
            sum += factors[p] * factors[q] * equations->sums[p][q];
    return sum > 0 ? sum : 0;
}

/* Does every slice take half its time without context, at least? Tried at the ends of the range of
 * contexts, since the law is linear in it, and at many lengths. */
static bool is_sound(const struct tp_table *base, const double coefficients[TERMS], int seq_len)
{
    const int step = seq_len / 1024 + 1;

    for (int i = 0; i < base->count; i++)
        for (int s = 1; s < seq_len; s += step) {
            const struct tp_curve *curve = &base->rows[i].by_tokens;
            const int b = base->rows[i].sequences;
            const double least = 0.5 * tp_curve_at(curve, s);
            if (time_at(curve, coefficients, b, s, 1) < least ||
                time_at(curve, coefficients, b, s, seq_len - s) < least)
                return false;
        }
    return true;
}

/* ---- Noise ---- */

/* c0 + c1 s + c2 s^2, relative errors squared, through a curve's points. */
static bool fit_parabola(const struct tp_curve *curve, double coefficients[TERMS])
{
    struct equations equations = {.pairs = curve->count};

    for (int i = 0; i < curve->count; i++) {
        const double s = curve->points[i].at, t = curve->points[i].seconds;
        const double row[TERMS + 1] = {1, s, s * s, 0, t};
        for (int p = 0; p <= TERMS; p++)
            for (int q = 0; q <= TERMS; q++)
                equations.sums[p][q] += row[p] * row[q] / (t * t);
    }
    return solve(&equations, 7, coefficients);
}

static double parabola_at(const double coefficients[TERMS], double s)
{
    return coefficients[0] + coefficients[1] * s + coefficients[2] * s * s;
}

/* A planner finds the lengths that noise made fast. So what a point lies above or below a parabola
 * through all of them is shared with its neighbours: a law stays as it is, and so does what several
 * neighbours say alike. */
static void smooth(struct tp_curve *curve)
{
    struct tp_point *points = curve->points;
    double law[TERMS];

    if (curve->count < 5 || !fit_parabola(curve, law))
        return;
    for (int i = 0; i < curve->count; i++)
        if (!(parabola_at(law, points[i].at) > 0))
            return;
    for (int i = 0; i < curve->count; i++)
        points[i].seconds /= parabola_at(law, points[i].at);
    double before = points[0].seconds;
    for (int i = 0; i < curve->count; i++) {
        const double here = points[i].seconds;
        const double behind = i + 1 < curve->count ? points[i + 1].seconds : here;
        points[i].seconds = (before + 2 * here + behind) / 4 * parabola_at(law, points[i].at);
        before = here;
    }
}

/* More tokens take no less time, whatever few measurements say: the mean of those that do not rise
 * is the nearest to them that does. A slope below 0 at the end would lead below 0. */
static void rise(struct tp_curve *curve)
{
    struct tp_point *points = curve->points;

    for (int i = 1; i < curve->count; i++) {
        double sum = points[i].seconds;
        int first = i;
        while (first > 0 && points[first - 1].seconds * (i - first + 1) > sum)
            sum += points[--first].seconds;
        for (int k = first; k <= i; k++)
            points[k].seconds = sum / (i - first + 1);
    }
}

static int count_bits(int subset)
{
    int count = 0;

    for (; subset != 0; subset >>= 1)
        count += subset & 1;
    return count;
}

static void fit_context(const struct equations *equations, int seq_len,
                        struct tp_layer_times *times)
{
    /* Errors below a millionth are none. */
    const double nothing = 1e-12 * equations->pairs;
    double best = INFINITY;

    for (int subset = 0; subset < SUBSETS; subset++) {
        double coefficients[TERMS];
        const int terms = count_bits(subset);
        /* Two pairs to a term: else it follows their noise. */
        if (2 * terms > equations->pairs + 1 || !solve(equations, subset, coefficients) ||
            !is_sound(&times->base, coefficients, seq_len))
            continue;
        const double left = residue(equations, coefficients) + nothing;
        const double criterion = equations->pairs * log(left) + 2 * terms;
        if (criterion < best || subset == 0) {
            best = criterion;
            memcpy(times->context, coefficients, sizeof coefficients);
        }
    }
}

/* ---- Held-out pairs ---- */

static enum tp_status judge(const struct tp_sample *medians, int places,
                            const struct tp_layer_times *times, struct tp_fit_error *error)
{
    double *errors = malloc(((size_t)places + 1) * sizeof *errors);
    struct tp_fit_error found = {.pairs = 0};

    if (errors == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for the errors of %d measurements", places);
    for (int i = 0; i < places; i++) {
        const struct tp_sample *m = &medians[i];
        const struct tp_curve *curve = curve_of(&times->base, m->sequences);
        if (m->held_out && curve != NULL)
            errors[found.pairs++] = fabs(
                time_at(curve, times->context, m->sequences, m->tokens, m->context) / m->seconds -
                1);
    }
    if (found.pairs > 0) {
        found.median = tp_median(errors, found.pairs);
        found.largest = errors[found.pairs - 1];
    }
    free(errors);
    *error = found;
    return TP_OK;
}

enum tp_status tp_fit_layer(const struct tp_sample *samples, int count, int seq_len,
                            double reference, struct tp_layer_times *times,
                            struct tp_fit_error *error)
{
    struct tp_sample *medians;
    struct equations equations;
    int places;

    TP_TRY(summarise(samples, count, reference, &medians, &places));
    enum tp_status status = add_bases(medians, places, &times->base);
    if (status == TP_OK && times->base.count == 0)
        status = tp_fail(TP_ERR_INPUT, "nothing was measured without context");
    for (int i = 0; i < times->base.count && status == TP_OK; i++) {
        smooth(&times->base.rows[i].by_tokens);
        rise(&times->base.rows[i].by_tokens);
    }
    if (status == TP_OK)
        status = extend(&times->base);
    if (status == TP_OK) {
        set_up(medians, places, &times->base, &equations);
        fit_context(&equations, seq_len, times);
        status = judge(medians, places, times, error);
    }
    free(medians);
    return status;
}
