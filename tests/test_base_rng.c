/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/rng.h"

#include <math.h>

#include "expect.h"

/* Random123's published known answers for philox4x32 with 10 rounds (kat_vectors). A counter is
 * position (low, high), stream, use. */
static const struct {
    uint32_t counter[4], key[2], answer[4];
} known[] = {
    {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     {0xffffffff, 0xffffffff},
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     {0xa4093822, 0x299f31d0},
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

START_TEST(known_answers)
{
    uint32_t block[4];

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const uint32_t *c = known[i].counter, *k = known[i].key;
        struct tp_rng rng = {
            .seed = (uint64_t)k[1] << 32 | k[0], .use = (enum tp_rng_use)c[3], .stream = c[2]};
        tp_rng_block(&rng, (uint64_t)c[1] << 32 | c[0], block);
        ck_assert_mem_eq(block, known[i].answer, sizeof block);
    }
}
END_TEST

START_TEST(seed_use_stream_and_position_matter)
{
    const struct tp_rng base = {.seed = 5, .use = TP_RNG_INIT, .stream = 3};
    struct tp_rng other[4] = {base, base, base, base};
    uint32_t a[4], b[4];

    other[0].seed = 6;
    other[1].seed = 5 + (1ULL << 32);
    other[2].use = TP_RNG_SAMPLE;
    other[3].stream = 4;
    tp_rng_block(&base, 9, a);
    for (int i = 0; i < 4; i++) {
        tp_rng_block(&other[i], 9, b);
        ck_assert_mem_ne(a, b, sizeof a);
    }
    tp_rng_block(&base, 9 + (1ULL << 32), b);
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

START_TEST(uniform_fills_the_interval)
{
    struct tp_rng rng = {.seed = 1, .use = TP_RNG_SAMPLE};
    int n = 20000, bins[10] = {0};

    for (int i = 0; i < n; i++) {
        double u = tp_rng_uniform(&rng, (uint64_t)i);
        ck_assert(u >= 0 && u < 1);
        bins[(int)(10 * u)]++;
    }
    for (int i = 0; i < 10; i++) /* 2000 expected, standard deviation 42 */
        ck_assert(abs(bins[i] - n / 10) < 250);
}
END_TEST

START_TEST(below_is_the_high_part_of_a_product)
{
    static const uint64_t bounds[] = {1,          2,          3,          7,         1000,
                                      0xffffffff, 1ULL << 32, 3ULL << 40, UINT64_MAX};
    struct tp_rng rng = {.seed = 77, .use = TP_RNG_SHUFFLE};
    uint32_t block[4];

    for (size_t k = 0; k < sizeof bounds / sizeof *bounds; k++) {
        for (uint64_t i = 0; i < 1000; i++) {
            uint64_t value = tp_rng_below(&rng, i, bounds[k]);
            ck_assert(value < bounds[k]);
            /* The same in floating point, as far as that is exact. */
            tp_rng_block(&rng, i, block);
            long double x = ((uint64_t)block[1] << 32 | block[0]) * 0x1p-64L;
            ck_assert(fabsl((long double)value - floorl(x * bounds[k])) <= 1);
        }
    }
}
END_TEST

START_TEST(normal_has_its_moments)
{
    enum { N = 200000 };
    struct tp_rng rng = {.seed = 3, .use = TP_RNG_INIT};
    float *x = malloc(N * sizeof *x);
    double sum = 0, squares = 0, fourth = 0, neighbours = 0;

    tp_rng_normal(&rng, 0, N, 2, x);
    for (int i = 0; i < N; i++) {
        double z = x[i] / 2.0;
        sum += z;
        squares += z * z;
        fourth += z * z * z * z;
        neighbours += i > 0 ? z * x[i - 1] / 2.0 : 0;
        ck_assert(isfinite(z));
    }
    /* Five standard errors. */
    ck_assert(fabs(sum / N) < 5 / sqrt(N));
    ck_assert(fabs(squares / N - 1) < 5 * sqrt(2.0 / N));
    ck_assert(fabs(fourth / N - 3) < 5 * sqrt(96.0 / N));
    ck_assert(fabs(neighbours / N) < 5 / sqrt(N));
    free(x);
}
END_TEST

START_TEST(normal_does_not_depend_on_the_parts)
{
    struct tp_rng rng = {.seed = 3, .use = TP_RNG_INIT, .stream = 2};
    float whole[64], part[64];

    tp_rng_normal(&rng, 100, 64, 0.02, whole);
    for (size_t first = 0; first < 64; first++) {
        size_t count = 64 - first < 7 ? 64 - first : 7;
        tp_rng_normal(&rng, 100 + first, count, 0.02, part);
        ck_assert_mem_eq(part, whole + first, count * sizeof *part);
    }
}
END_TEST

/* Numbers that another implementation of Philox gave for these counters. */
START_TEST(dropout_is_what_it_was)
{
    const uint64_t key = tp_dropout_key(1337, (7LL << 32) + 12, TP_DROPOUT_ATTENTION, 11);

    ck_assert_uint_eq(key, 0x434e8209a3b76891);
    ck_assert_uint_eq(tp_dropout_key(1337, 0, TP_DROPOUT_EMBEDDING, 0), 0x28aac54ecdb5b95a);
    ck_assert_uint_eq(tp_dropout_bits(key, 5, 1023, 6), 0x96f9e078);
    ck_assert_uint_eq(tp_dropout_bits(0x0123456789abcdef, 70000, 2047, 0xfffffffd), 0x295bb0b1);
}
END_TEST

START_TEST(dropout_bits_are_words_of_blocks)
{
    const struct tp_rng rng = {.seed = 99, .use = TP_RNG_DROPOUT, .stream = 6};
    uint32_t block[4];

    for (uint32_t index = 0; index < 64; index++) {
        tp_rng_block(&rng, index / 4 | 9ULL << 32, block);
        ck_assert_uint_eq(tp_dropout_bits(99, 6, 9, index), block[index % 4]);
    }
}
END_TEST

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return (x > y) - (x < y);
}

/* No two steps, places, layers or seeds have the same masks. */
START_TEST(dropout_keys_differ)
{
    enum { SEEDS = 3, STEPS = 20, LAYERS = 12 };
    uint64_t keys[SEEDS * STEPS * LAYERS * TP_DROPOUT_PLACES];
    size_t n = 0;

    for (uint64_t seed = 0; seed < SEEDS; seed++)
        for (int step = 0; step < STEPS; step++)
            for (int layer = 0; layer < LAYERS; layer++)
                for (int place = 0; place < TP_DROPOUT_PLACES; place++)
                    keys[n++] = tp_dropout_key(seed, step, (enum tp_dropout_place)place, layer);
    ck_assert_uint_eq(n, sizeof keys / sizeof *keys);
    qsort(keys, n, sizeof *keys, compare);
    for (size_t i = 1; i < n; i++)
        ck_assert(keys[i] != keys[i - 1]);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("rng");

    tcase_add_test(cases, known_answers);
    tcase_add_test(cases, seed_use_stream_and_position_matter);
    tcase_add_test(cases, uniform_fills_the_interval);
    tcase_add_test(cases, below_is_the_high_part_of_a_product);
    tcase_add_test(cases, normal_has_its_moments);
    tcase_add_test(cases, normal_does_not_depend_on_the_parts);
    tcase_add_test(cases, dropout_is_what_it_was);
    tcase_add_test(cases, dropout_bits_are_words_of_blocks);
    tcase_add_test(cases, dropout_keys_differ);
    return expect_run(cases);
}
