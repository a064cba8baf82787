/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "expect.h"
#include "train/learning_rate.h"

static const struct tp_learning_rate cosine = {
    .lr = 1e-3, .min = 1e-4, .warmup = 10, .decay = 110, .style = TP_DECAY_COSINE};

START_TEST(warms_up_to_the_rate_and_not_from_zero)
{
    for (int style = TP_DECAY_CONSTANT; style <= TP_DECAY_COSINE; style++) {
        struct tp_learning_rate rate = cosine;
        rate.style = (enum tp_decay_style)style;
        for (int step = 0; step < 10; step++)
            ck_assert_double_eq_tol(tp_learning_rate_at(&rate, step), 1e-3 * (step + 1) / 11,
                                    1e-18);
        ck_assert_double_eq(tp_learning_rate_at(&rate, 10), 1e-3);
    }
}
END_TEST

START_TEST(decays_between_the_warm_up_and_the_end)
{
    const struct {
        int64_t step;
        double constant, linear, cosine;
    } cases[] = {
        {10, 1e-3, 1e-3, 1e-3},
        {35, 1e-3, 7.75e-4, 1e-4 + 0.5 * (1 + sqrt(0.5)) * 9e-4},
        {60, 1e-3, 5.5e-4, 5.5e-4},
        {85, 1e-3, 3.25e-4, 1e-4 + 0.5 * (1 - sqrt(0.5)) * 9e-4},
        {110, 1e-3, 1e-4, 1e-4},
        {111, 1e-3, 1e-4, 1e-4},
        {INT64_C(1) << 40, 1e-3, 1e-4, 1e-4},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_learning_rate rate = cosine;
        rate.style = TP_DECAY_CONSTANT;
        ck_assert_double_eq(tp_learning_rate_at(&rate, cases[i].step), cases[i].constant);
        rate.style = TP_DECAY_LINEAR;
        ck_assert_double_eq_tol(tp_learning_rate_at(&rate, cases[i].step), cases[i].linear, 1e-15);
        rate.style = TP_DECAY_COSINE;
        ck_assert_double_eq_tol(tp_learning_rate_at(&rate, cases[i].step), cases[i].cosine, 1e-15);
    }
}
END_TEST

/* Decay that ends before, or with, the warm-up leaves the lowest rate. */
START_TEST(decay_without_room)
{
    struct tp_learning_rate rate = cosine;

    for (rate.decay = 0; rate.decay <= rate.warmup; rate.decay++) {
        ck_assert_double_eq_tol(tp_learning_rate_at(&rate, 9), 1e-3 * 10 / 11, 1e-18);
        ck_assert_double_eq(tp_learning_rate_at(&rate, 10), 1e-4);
    }
    rate.warmup = 0;
    rate.decay = 1;
    ck_assert_double_eq(tp_learning_rate_at(&rate, 0), 1e-3);
    ck_assert_double_eq(tp_learning_rate_at(&rate, 1), 1e-4);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("learning rate");

    tcase_add_test(cases, warms_up_to_the_rate_and_not_from_zero);
    tcase_add_test(cases, decays_between_the_warm_up_and_the_end);
    tcase_add_test(cases, decay_without_room);
    return expect_run(cases);
}
