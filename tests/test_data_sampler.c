/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/sampler.h"

#include <stdbool.h>

#include "expect.h"

START_TEST(sequential_goes_round)
{
    struct tp_sampler sampler;

    ck_assert_int_eq(tp_sampler_init(&sampler, TP_SAMPLER_SEQUENTIAL, 1, 5), TP_OK);
    for (int64_t n = 0; n < 17; n++)
        ck_assert_int_eq(tp_sampler_at(&sampler, n), n % 5);
    tp_sampler_fini(&sampler);
}
END_TEST

START_TEST(each_epoch_is_a_permutation_of_its_own)
{
    enum { SAMPLES = 101, EPOCHS = 20 };
    struct tp_sampler sampler;
    int64_t epochs[EPOCHS][SAMPLES];

    ck_assert_int_eq(tp_sampler_init(&sampler, TP_SAMPLER_SHUFFLE, 7, SAMPLES), TP_OK);
    for (int e = 0; e < EPOCHS; e++) {
        bool seen[SAMPLES] = {false};
        for (int i = 0; i < SAMPLES; i++) {
            int64_t sample = tp_sampler_at(&sampler, e * SAMPLES + i);
            ck_assert(sample >= 0 && sample < SAMPLES && !seen[sample]);
            seen[sample] = true;
            epochs[e][i] = sample;
        }
        for (int other = 0; other < e; other++)
            ck_assert_mem_ne(epochs[e], epochs[other], sizeof epochs[e]);
    }
    tp_sampler_fini(&sampler);
}
END_TEST

START_TEST(a_function_of_seed_and_number)
{
    struct tp_sampler a, b, other;
    int different = 0;

    ck_assert_int_eq(tp_sampler_init(&a, TP_SAMPLER_SHUFFLE, 7, 50), TP_OK);
    ck_assert_int_eq(tp_sampler_init(&b, TP_SAMPLER_SHUFFLE, 7, 50), TP_OK);
    ck_assert_int_eq(tp_sampler_init(&other, TP_SAMPLER_SHUFFLE, 8, 50), TP_OK);
    int64_t last = tp_sampler_at(&b, 199); /* b jumps about, a goes in order */
    for (int64_t n = 0; n < 200; n++) {
        int64_t sample = tp_sampler_at(&a, n);
        different += sample != tp_sampler_at(&other, n);
        if (n % 37 == 0)
            ck_assert_int_eq(sample, tp_sampler_at(&b, n));
        if (n == 199)
            ck_assert_int_eq(sample, last);
    }
    ck_assert_int_gt(different, 150);
    tp_sampler_fini(&a);
    tp_sampler_fini(&b);
    tp_sampler_fini(&other);
}
END_TEST

/* Every sample comes to every place equally often. */
START_TEST(permutations_are_even)
{
    enum { SAMPLES = 5, EPOCHS = 20000 };
    struct tp_sampler sampler;
    int count[SAMPLES][SAMPLES] = {{0}};

    ck_assert_int_eq(tp_sampler_init(&sampler, TP_SAMPLER_SHUFFLE, 1, SAMPLES), TP_OK);
    for (int64_t n = 0; n < SAMPLES * EPOCHS; n++)
        count[n % SAMPLES][tp_sampler_at(&sampler, n)]++;
    for (int place = 0; place < SAMPLES; place++)
        for (int sample = 0; sample < SAMPLES; sample++) /* standard deviation 57 */
            ck_assert(abs(count[place][sample] - EPOCHS / SAMPLES) < 300);
    tp_sampler_fini(&sampler);
}
END_TEST

START_TEST(one_sample)
{
    struct tp_sampler sampler;

    ck_assert_int_eq(tp_sampler_init(&sampler, TP_SAMPLER_SHUFFLE, 1, 1), TP_OK);
    for (int64_t n = 0; n < 5; n++)
        ck_assert_int_eq(tp_sampler_at(&sampler, n), 0);
    tp_sampler_fini(&sampler);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("sampler");

    tcase_add_test(cases, sequential_goes_round);
    tcase_add_test(cases, each_epoch_is_a_permutation_of_its_own);
    tcase_add_test(cases, a_function_of_seed_and_number);
    tcase_add_test(cases, permutations_are_even);
    tcase_add_test(cases, one_sample);
    return expect_run(cases);
}
