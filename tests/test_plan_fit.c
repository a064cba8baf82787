/* SPDX-License-Identifier: Apache-2.0 */
/* Fits of measurements that are made up: of a known law, a known noise, on a drifting machine. */
#include "config.h"

#include <math.h>

#include "base/rng.h"
#include "expect.h"
#include "plan/fit.h"

enum { T = 1024, MOST = 4096 };

/* ---- Making them up ---- */

struct measurements {
    int count;
    uint64_t drawn;
    double noise;
    double speed; /* of the machine at the moment */
    struct tp_sample samples[MOST];
};

static const double law[4] = {2e-5, 1e-8, 2e-8, 3e-10};

static double base_law(int b, int s)
{
    return 1e-4 + 4e-6 * b * s + 2e-10 * b * s * s;
}

static double true_time(int b, int s, int c)
{
    const double rows = (double)b * s;
    return base_law(b, s) +
           (c > 0 ? law[0] + law[1] * rows + law[2] * b * c + law[3] * rows * c : 0);
}

/* In [-1, 1). */
static double draw(struct measurements *m)
{
    const struct tp_rng rng = {.seed = 7, .use = TP_RNG_SAMPLE};
    return 2 * tp_rng_uniform(&rng, m->drawn++) - 1;
}

static void measure(struct measurements *m, int b, int s, int c, bool held_out)
{
    ck_assert_int_lt(m->count, MOST);
    m->samples[m->count++] =
        (struct tp_sample){.sequences = b,
                           .tokens = s,
                           .context = c,
                           .seconds = true_time(b, s, c) * (1 + m->noise * draw(m)) / m->speed,
                           .reference = 2e-3 / m->speed,
                           .held_out = held_out};
}

static void measure_round(struct measurements *m)
{
    for (int b = 1; b <= 4; b *= 2) {
        for (int s = 8; b * s <= T; s *= 2)
            measure(m, b, s, 0, false);
        for (int s = 32; b * s <= T / 2; s *= 2)
            for (int c = 128; s + c <= T; c += 256)
                measure(m, b, s, c, c == 384);
    }
}

static struct measurements *measure_rounds(int rounds, double noise)
{
    struct measurements *m = calloc(1, sizeof *m);
    m->noise = noise;
    for (int round = 0; round < rounds; round++) {
        m->speed = round % 3 == 1 ? 0.4 : 1; /* another program takes the machine */
        measure_round(m);
    }
    return m;
}

static void fini(struct tp_layer_times *times)
{
    for (int i = 0; i < times->base.count; i++)
        free(times->base.rows[i].by_tokens.points);
    free(times->base.rows);
}

static double fitted_time(const struct tp_layer_times *times, int b, int s, int c)
{
    const struct tp_table_row *row = times->base.rows;
    while (row->sequences != b)
        row++;
    const double *a = times->context, rows = (double)b * s;
    return tp_curve_at(&row->by_tokens, s) +
           (c > 0 ? a[0] + a[1] * rows + a[2] * b * c + a[3] * rows * c : 0);
}

static double worst_error(const struct tp_layer_times *times)
{
    double worst = 0;
    for (int b = 1; b <= 4; b *= 2)
        for (int s = 8; s <= T; s += 8)
            for (int c = 0; s + c <= T; c += 8)
                worst = fmax(worst, fabs(fitted_time(times, b, s, c) / true_time(b, s, c) - 1));
    return worst;
}

/* ---- Tests ---- */

START_TEST(a_law_without_noise_is_found)
{
    struct measurements *m = measure_rounds(1, 0);
    struct tp_layer_times times = {.context = {0}};
    struct tp_fit_error error;

    ck_assert_int_eq(tp_fit_layer(m->samples, m->count, T, 2e-3, &times, &error), TP_OK);
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol(times.context[i] / law[i], 1, 1e-4);
    ck_assert_int_eq(times.base.count, 3);
    ck_assert_int_gt(error.pairs, 5);
    ck_assert_double_lt(error.largest, 1e-6);
    ck_assert_double_lt(worst_error(&times), 0.06); /* of interpolating a square */
    fini(&times);
    free(m);
}
END_TEST

START_TEST(noise_and_drift_are_seen_through)
{
    struct measurements *m = measure_rounds(9, 0.05);
    struct tp_layer_times times = {.context = {0}};
    struct tp_fit_error error;
    const double reference = tp_fit_reference(m->samples, m->count);

    ck_assert_double_eq_tol(reference, 2e-3, 1e-9);
    ck_assert_int_eq(tp_fit_layer(m->samples, m->count, T, reference, &times, &error), TP_OK);
    ck_assert_double_gt(error.median, 0);
    ck_assert_double_lt(error.median, 0.03);
    ck_assert_double_lt(error.median, error.largest);
    ck_assert_double_lt(error.largest, 0.10);
    ck_assert_double_lt(worst_error(&times), 0.10);
    fini(&times);
    free(m);
}
END_TEST

/* On all seeds of noise so large that some coefficients come out wrong, no slice does. */
START_TEST(no_time_is_negative)
{
    for (uint64_t seed = 0; seed < 30; seed++) {
        struct measurements *m = calloc(1, sizeof *m);
        struct tp_layer_times times = {.context = {0}};
        struct tp_fit_error error;
        *m = (struct measurements){.noise = 0.8, .speed = 1, .drawn = seed * 1000};
        measure_round(m);
        ck_assert_int_eq(tp_fit_layer(m->samples, m->count, T, 2e-3, &times, &error), TP_OK);
        for (int b = 1; b <= 4; b *= 2)
            for (int s = 1; s <= T; s++) {
                ck_assert_double_gt(fitted_time(&times, b, s, 0), 0);
                ck_assert(s == T || fitted_time(&times, b, s, 1) > 0);
                ck_assert(s == T || fitted_time(&times, b, s, T - s) > 0);
            }
        fini(&times);
        free(m);
    }
}
END_TEST

/* Of few measurements, the longest may have been the fastest. */
START_TEST(more_tokens_take_no_less_time)
{
    static const double seconds[] = {3e-3, 5e-3, 4e-3, 4.5e-3, 3.9e-3};
    struct tp_layer_times times = {.context = {0}};
    struct tp_sample samples[5];
    struct tp_fit_error error;

    for (int count = 1; count <= 5; count++) {
        double sum = 0, fitted = 0;
        for (int i = 0; i < count; i++)
            samples[i] = (struct tp_sample){
                .sequences = 1, .tokens = 8 << i, .seconds = seconds[i], .reference = 1e-3};
        ck_assert_int_eq(tp_fit_layer(samples, count, T, 1e-3, &times, &error), TP_OK);
        for (int s = 2; s <= T; s++)
            ck_assert_double_ge(fitted_time(&times, 1, s, 0), fitted_time(&times, 1, s - 1, 0));
        for (int i = 0; i < count; i++) {
            sum += seconds[i];
            fitted += fitted_time(&times, 1, 8 << i, 0);
        }
        if (count < 5) /* fewer are not smoothed; the mean stays */
            ck_assert_double_eq_tol(fitted, sum, 1e-12);
        fini(&times);
        times = (struct tp_layer_times){.context = {0}};
    }
}
END_TEST

START_TEST(terms_that_cannot_be_told_apart_are_left_out)
{
    struct measurements *m = calloc(1, sizeof *m);
    struct tp_layer_times times = {.context = {0}};
    struct tp_fit_error error;
    int used = 0;

    m->speed = 1;
    for (int s = 8; s <= 512; s *= 2) {
        measure(m, 1, s, 0, false);
        measure(m, 1, s, 512, false); /* one context: b c is a constant, b s c a multiple of b s */
    }
    ck_assert_int_eq(tp_fit_layer(m->samples, m->count, T, 2e-3, &times, &error), TP_OK);
    for (int i = 0; i < 4; i++)
        used += times.context[i] != 0;
    ck_assert_int_eq(used, 2);
    for (int s = 8; s <= 512; s *= 2)
        ck_assert_double_eq_tol(fitted_time(&times, 1, s, 512) / true_time(1, s, 512), 1, 1e-6);
    ck_assert_int_eq(error.pairs, 0);
    fini(&times);
    free(m);
}
END_TEST

START_TEST(without_pairs_context_is_free)
{
    struct measurements *m = calloc(1, sizeof *m);
    struct tp_layer_times times = {.context = {0}};
    struct tp_fit_error error;

    m->speed = 1;
    measure(m, 1, T, 0, false); /* S = T: there is no context */
    ck_assert_int_eq(tp_fit_layer(m->samples, m->count, T, 2e-3, &times, &error), TP_OK);
    ck_assert_double_eq_tol(fitted_time(&times, 1, T, 0), true_time(1, T, 0), 1e-12);
    for (int i = 0; i < 4; i++)
        ck_assert(times.context[i] == 0);
    fini(&times);
    free(m);
}
END_TEST

START_TEST(long_lengths_of_several_come_from_one)
{
    struct measurements *m = measure_rounds(1, 0);
    struct tp_layer_times times = {.context = {0}};
    struct tp_fit_error error;

    ck_assert_int_eq(tp_fit_layer(m->samples, m->count, T, 2e-3, &times, &error), TP_OK);
    for (int i = 0; i < times.base.count; i++) {
        const struct tp_curve *curve = &times.base.rows[i].by_tokens;
        const int b = times.base.rows[i].sequences;
        ck_assert(curve->points[curve->count - 1].at == T);
        ck_assert_double_eq_tol(tp_curve_at(curve, T) / base_law(b, T), 1, 0.05);
    }
    fini(&times);
    free(m);
}
END_TEST

START_TEST(a_table_has_the_medians)
{
    const double seconds[] = {5, 1, 2, 9, 3};
    struct tp_sample samples[6];
    struct tp_table table = {.count = 0};

    for (int i = 0; i < 5; i++)
        samples[i] = (struct tp_sample){
            .sequences = 1, .tokens = 8, .seconds = seconds[i] * (i + 1), .reference = i + 1};
    samples[5] = (struct tp_sample){
        .sequences = 1, .tokens = 8, .context = 8, .seconds = 100, .reference = 1};
    ck_assert_int_eq(tp_fit_table(samples, 6, 1, &table), TP_OK);
    ck_assert_int_eq(table.count, 1);
    ck_assert_int_eq(table.rows[0].by_tokens.count, 1);
    ck_assert_double_eq_tol(table.rows[0].by_tokens.points[0].seconds, 3, 1e-12);
    free(table.rows[0].by_tokens.points);
    free(table.rows);
}
END_TEST

START_TEST(times_that_cannot_be_are_refused)
{
    const double wrong[] = {0, -1, NAN, INFINITY};
    struct tp_layer_times times = {.context = {0}};
    struct tp_fit_error error;
    struct tp_sample sample = {.sequences = 1, .tokens = 8, .seconds = 1, .reference = 1};

    for (int i = 0; i < 4; i++) {
        sample.seconds = wrong[i];
        expect_fail(TP_ERR_INPUT, "1 x 8 tokens", tp_fit_table(&sample, 1, 1, &times.base));
        sample.seconds = 1;
        sample.reference = wrong[i];
        expect_fail(TP_ERR_INPUT, "1 x 8 tokens", tp_fit_layer(&sample, 1, T, 1, &times, &error));
        sample.reference = 1;
    }
    sample.context = 8;
    expect_fail(TP_ERR_INPUT, "without context", tp_fit_layer(&sample, 1, T, 1, &times, &error));
    expect_fail(TP_ERR_INPUT, "without context", tp_fit_layer(&sample, 0, T, 1, &times, &error));
    ck_assert(tp_fit_reference(&sample, 0) == 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan/fit");
    TCase *tests = tcase_create("fit");

    tcase_add_test(tests, a_law_without_noise_is_found);
    tcase_add_test(tests, noise_and_drift_are_seen_through);
    tcase_add_test(tests, no_time_is_negative);
    tcase_add_test(tests, more_tokens_take_no_less_time);
    tcase_add_test(tests, terms_that_cannot_be_told_apart_are_left_out);
    tcase_add_test(tests, without_pairs_context_is_free);
    tcase_add_test(tests, long_lengths_of_several_come_from_one);
    tcase_add_test(tests, a_table_has_the_medians);
    tcase_add_test(tests, times_that_cannot_be_are_refused);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
