/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "base/rng.h"
#include "expect.h"
#include "train/pick.h"

/* Logits whose softmax is known: 0.4, 0.3, 0.2, 0.1 at tokens 2, 0, 3, 1. */
static float known[4];

static void set_known(void)
{
    const double probabilities[] = {0.3, 0.1, 0.4, 0.2};

    for (int i = 0; i < 4; i++)
        known[i] = (float)(log(probabilities[i]) + 5);
}

/* The tokens that stay, as text: "2 0 ". */
static const char *kept(double temperature, int top_k, double top_p, const float *logits, int n)
{
    static char text[256];
    struct tp_picker picker;
    double sum = 0;
    int used = 0;

    ck_assert_int_eq(tp_picker_init(&picker, n, temperature, top_k, top_p), TP_OK);
    int count = tp_picker_keep(&picker, logits);
    text[0] = '\0';
    for (int i = 0; i < count; i++) {
        used +=
            snprintf(text + used, sizeof text - (size_t)used, "%d ", picker.candidates[i].token);
        sum += picker.candidates[i].probability;
    }
    ck_assert_double_eq_tol(sum, 1, 1e-12);
    tp_picker_fini(&picker);
    return text;
}

START_TEST(keeps_exactly_the_set)
{
    const struct {
        int top_k;
        double top_p;
        const char *tokens;
    } cases[] = {
        {0, 1, "2 0 3 1 "},  {1, 1, "2 "},         {2, 1, "2 0 "},        {4, 1, "2 0 3 1 "},
        {9, 1, "2 0 3 1 "},  {0, 0.39, "2 "},      {0, 0.41, "2 0 "},     {0, 0.69, "2 0 "},
        {0, 0.71, "2 0 3 "}, {0, 0.899, "2 0 3 "}, {0, 0.91, "2 0 3 1 "}, {0, 1e-6, "2 "},
        {2, 0.5, "2 "}, /* of 4/7 and 3/7 */
        {2, 0.6, "2 0 "},    {3, 0.77, "2 0 "},    {3, 0.78, "2 0 3 "},
    };

    set_known();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_str_eq(kept(1, cases[i].top_k, cases[i].top_p, known, 4), cases[i].tokens);
}
END_TEST

START_TEST(temperature_sharpens_and_flattens)
{
    set_known();
    /* 0.16 : 0.09 : 0.04 : 0.01 of 0.30 */
    ck_assert_str_eq(kept(0.5, 0, 0.53, known, 4), "2 ");
    ck_assert_str_eq(kept(0.5, 0, 0.54, known, 4), "2 0 ");
    ck_assert_str_eq(kept(1e6, 0, 0.74, known, 4), "2 0 3 ");
    ck_assert_str_eq(kept(1e-3, 0, 0.999, known, 4), "2 ");
}
END_TEST

START_TEST(temperature_zero_takes_the_lowest_of_the_most_likely)
{
    const float logits[] = {-3, 7, 2, 7, 7, 1};
    struct tp_picker picker;

    ck_assert_str_eq(kept(0, 0, 1, logits, 6), "1 ");
    ck_assert_str_eq(kept(0, 3, 0.9, logits, 6), "1 ");
    ck_assert_int_eq(tp_picker_init(&picker, 6, 0, 0, 1), TP_OK);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(tp_picker_pick(&picker, logits, i / 10.0), 1);
    tp_picker_fini(&picker);
}
END_TEST

/* Equal logits at the border of the set: the lower tokens stay. */
START_TEST(ties_go_to_lower_tokens)
{
    const float logits[] = {1, 1, 1, 1, 1};

    ck_assert_str_eq(kept(1, 2, 1, logits, 5), "0 1 ");
    ck_assert_str_eq(kept(1, 0, 0.5, logits, 5), "0 1 2 ");
}
END_TEST

START_TEST(large_logits_do_not_overflow)
{
    const float logits[] = {3e38f, -3e38f, 2.9e38f};

    ck_assert_str_eq(kept(0.01, 0, 1, logits, 3), "0 2 1 ");
    ck_assert_str_eq(kept(1, 0, 0.5, logits, 3), "0 ");
}
END_TEST

START_TEST(picks_by_the_uniform_number)
{
    const struct {
        double uniform;
        int token;
    } cases[] = {{0, 2},     {0.399, 2}, {0.401, 0}, {0.699, 0},
                 {0.701, 3}, {0.899, 3}, {0.901, 1}, {1 - 0x1p-53, 1}};
    struct tp_picker picker;

    set_known();
    ck_assert_int_eq(tp_picker_init(&picker, 4, 1, 0, 1), TP_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_int_eq(tp_picker_pick(&picker, known, cases[i].uniform), cases[i].token);
    tp_picker_fini(&picker);
}
END_TEST

START_TEST(picks_as_often_as_the_probabilities_say)
{
    const struct tp_rng rng = {.seed = 1, .use = TP_RNG_SAMPLE};
    const double expected[] = {0.3, 0.1, 0.4, 0.2};
    const int n = 40000;
    struct tp_picker picker;
    int counts[4] = {0};

    set_known();
    ck_assert_int_eq(tp_picker_init(&picker, 4, 1, 0, 1), TP_OK);
    for (int i = 0; i < n; i++)
        counts[tp_picker_pick(&picker, known, tp_rng_uniform(&rng, (uint64_t)i))]++;
    for (int i = 0; i < 4; i++)
        ck_assert_double_eq_tol((double)counts[i] / n, expected[i], 0.01);
    tp_picker_fini(&picker);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("pick");

    tcase_add_test(cases, keeps_exactly_the_set);
    tcase_add_test(cases, temperature_sharpens_and_flattens);
    tcase_add_test(cases, temperature_zero_takes_the_lowest_of_the_most_likely);
    tcase_add_test(cases, ties_go_to_lower_tokens);
    tcase_add_test(cases, large_logits_do_not_overflow);
    tcase_add_test(cases, picks_by_the_uniform_number);
    tcase_add_test(cases, picks_as_often_as_the_probabilities_say);
    return expect_run(cases);
}
