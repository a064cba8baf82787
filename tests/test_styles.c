/* SPDX-License-Identifier: Apache-2.0 */
/* The two styles of kernels against each other on one device: the same numbers, of odd shapes, into
 * both. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "device/kernels.h"
#include "device_test.h"

enum { D = 20, MOST_OUTCOMES = 9 };

/* What kernels wrote. */
struct outcome {
    const char *name;
    size_t count;
    float *values;
};

/* One style at work. */
struct side {
    struct tp_device *device;
    struct tp_arena *arena;
    struct outcome outcomes[MOST_OUTCOMES];
    int count;
};

static const struct tp_device_info *info;

static void side_init(struct side *side, enum tp_kernel_style style)
{
    const struct tp_device_options options = {
        .index = info->index, .threads = 1, .head_width = D, .kernels = style};
    *side = (struct side){0};
    ck_assert_int_eq(tp_device_open(&options, &side->device), TP_OK);
    ck_assert_int_eq(tp_arena_new(side->device, 0, &side->arena), TP_OK);
}

static void side_fini(struct side *side)
{
    for (int i = 0; i < side->count; i++)
        free(side->outcomes[i].values);
    tp_arena_free(side->arena);
    tp_device_close(side->device);
}

static struct tp_view take(struct side *side, size_t count)
{
    struct tp_view view;
    ck_assert_int_eq(tp_arena_take(side->arena, "test", count, &view), TP_OK);
    return view;
}

/* The same numbers of order 1 for the same seed. */
static struct tp_view numbers(struct side *side, uint64_t seed, size_t count)
{
    const struct tp_rng rng = {.seed = seed, .use = TP_RNG_INIT};
    struct tp_view view = take(side, count);
    float *values = malloc(count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    tp_rng_normal(&rng, 0, count, 1.0, values);
    ck_assert_int_eq(tp_memory_write(side->device, view, values, count), TP_OK);
    free(values);
    return view;
}

/* Numbers below most, many of them more than once. */
static struct tp_view tokens(struct side *side, size_t count, int most)
{
    const struct tp_rng rng = {.seed = 3, .use = TP_RNG_SHUFFLE};
    struct tp_view view = take(side, count);
    int32_t *values = malloc(count * sizeof *values);
    ck_assert_ptr_nonnull(values);
    for (size_t i = 0; i < count; i++)
        values[i] = (int32_t)tp_rng_below(&rng, i, (uint64_t)most);
    ck_assert_int_eq(tp_memory_write(side->device, view, values, count), TP_OK);
    free(values);
    return view;
}

static void keep(struct side *side, const char *name, struct tp_view view, size_t count)
{
    ck_assert_int_lt(side->count, MOST_OUTCOMES);
    struct outcome *outcome = &side->outcomes[side->count++];
    *outcome = (struct outcome){name, count, malloc(count * sizeof(float))};
    ck_assert_ptr_nonnull(outcome->values);
    ck_assert_int_eq(tp_memory_read(side->device, outcome->values, view, count), TP_OK);
}

static const struct tp_dropout dropout = {
    .key = 0x123456789abcdef0, .threshold = 0x40000000, .scale = 4.0f / 3, .first_sequence = 7};

static void normalise(struct side *s)
{
    enum { ROWS = 37, C = 301 };
    struct tp_view x = numbers(s, 1, ROWS * C), weight = numbers(s, 2, C), bias = numbers(s, 3, C),
                   y = take(s, ROWS * C), statistics = take(s, 2 * ROWS), again = take(s, ROWS * C),
                   dy = numbers(s, 4, ROWS * C), dx = numbers(s, 5, ROWS * C),
                   dweight = numbers(s, 6, C), dbias = numbers(s, 7, C);
    ck_assert_int_eq(
        tp_layer_norm_forward(s->device, y, statistics, x, weight, bias, ROWS, C, 1e-5), TP_OK);
    ck_assert_int_eq(tp_layer_norm_again(s->device, again, x, statistics, weight, bias, ROWS, C),
                     TP_OK);
    ck_assert_int_eq(tp_layer_norm_backward(s->device, dx, dweight, dbias, dy, x, statistics,
                                            weight, ROWS, C, 1),
                     TP_OK);
    keep(s, "y", y, ROWS * C);
    keep(s, "statistics", statistics, 2 * ROWS);
    keep(s, "y again", again, ROWS * C);
    keep(s, "dx", dx, ROWS * C);
    keep(s, "dweight", dweight, C);
    keep(s, "dbias", dbias, C);
}

static void branch(struct side *s)
{
    enum { SEQUENCES = 3, S = 13, ROWS = SEQUENCES * S, N = 333 };
    const struct tp_tokens_at where = {SEQUENCES, S, 5, 18};
    struct tp_view h = numbers(s, 1, ROWS * N), bias = numbers(s, 2, N), y = take(s, ROWS * N),
                   dh = numbers(s, 3, ROWS * N), dbias = numbers(s, 4, N),
                   residual = numbers(s, 5, ROWS * N), out = numbers(s, 6, ROWS * N),
                   dropped = take(s, ROWS * N);
    ck_assert_int_eq(tp_bias_gelu_forward(s->device, y, h, bias, ROWS, N), TP_OK);
    keep(s, "h", h, ROWS * N);
    keep(s, "y", y, ROWS * N);
    ck_assert_int_eq(tp_gelu_backward(s->device, y, dh, h, ROWS, N), TP_OK);
    ck_assert_int_eq(tp_bias_backward(s->device, dbias, dh, ROWS, N), TP_OK);
    ck_assert_int_eq(tp_bias_residual(s->device, out, residual, bias, &where, N, &dropout), TP_OK);
    ck_assert_int_eq(tp_dropout(s->device, dropped, dh, &where, N, &dropout), TP_OK);
    keep(s, "y again", y, ROWS * N);
    keep(s, "dh", dh, ROWS * N);
    keep(s, "dbias", dbias, N);
    keep(s, "out", out, ROWS * N);
    keep(s, "dropped", dropped, ROWS * N);
}

/* A slice of sequences whose context the caches hold; gradients that are begun. Behind what is
 * written by rows lie numbers that must stay: a tile of rows does not end where the slice does. */
static void attend(struct side *s, int sequences, int S, int P, int T)
{
    enum { H = 3, C = H * D, STRIDE = 32, BEHIND = 32 };
    const struct tp_attention where = {sequences, S, P, T, H, D, 2, 85};
    const size_t rows = (size_t)sequences * S, cache = (size_t)sequences * H * T * STRIDE;
    const size_t room = (rows + BEHIND) * C;
    struct tp_view qkv = numbers(s, 1, rows * 3 * C), bias = numbers(s, 2, 3 * C),
                   query = numbers(s, 8, room), key = numbers(s, 3, cache),
                   value = numbers(s, 4, cache), out = numbers(s, 9, room),
                   lse = numbers(s, 10, (rows + BEHIND) * H), dout = numbers(s, 5, rows * C),
                   dquery = numbers(s, 11, room), dkey = numbers(s, 6, cache),
                   dvalue = numbers(s, 7, cache), dqkv = numbers(s, 12, 3 * room);
    ck_assert_int_eq(tp_qkv_split(s->device, query, key, value, qkv, bias, &where), TP_OK);
    ck_assert_int_eq(tp_attention_forward(s->device, out, lse, query, key, value, &where, &dropout),
                     TP_OK);
    ck_assert_int_eq(tp_attention_backward(s->device, dquery, dkey, dvalue, dout, out, lse, query,
                                           key, value, &where, &dropout),
                     TP_OK);
    ck_assert_int_eq(tp_qkv_merge(s->device, dqkv, dquery, dkey, dvalue, &where), TP_OK);
    keep(s, "query", query, room);
    keep(s, "key", key, cache);
    keep(s, "value", value, cache);
    keep(s, "out", out, room);
    keep(s, "lse", lse, (rows + BEHIND) * H);
    keep(s, "dkey", dkey, cache);
    keep(s, "dvalue", dvalue, cache);
    keep(s, "dquery", dquery, room);
    keep(s, "dqkv", dqkv, 3 * room);
}

static void attend_in_the_middle(struct side *s)
{
    attend(s, 2, 41, 35, 83);
}

static void attend_a_tile_in_part(struct side *s)
{
    attend(s, 1, 29, 35, 83);
}

static void attend_from_the_start(struct side *s)
{
    attend(s, 1, 41, 0, 41);
}

static void attend_one_token(struct side *s)
{
    attend(s, 1, 1, 32, 33);
}

/* A part of the table, some of whose tokens occur again and again. */
static void embed(struct side *s)
{
    enum { SEQUENCES = 3, S = 17, P = 4, T = 23, V = 11, C = 101, ROWS = SEQUENCES * S };
    const struct tp_tokens_at where = {SEQUENCES, S, P, T};
    const struct tp_vocabulary own = {3, 6};
    struct tp_view x = take(s, ROWS * C), text = tokens(s, SEQUENCES * T, V),
                   wte = numbers(s, 1, 6 * C), wpe = numbers(s, 2, T * C),
                   dwte = numbers(s, 3, 6 * C), dwpe = numbers(s, 4, T * C),
                   dx = numbers(s, 5, ROWS * C);
    ck_assert_int_eq(tp_embedding_forward(s->device, x, text, wte, wpe, &where, C, &own, true),
                     TP_OK);
    ck_assert_int_eq(tp_embedding_backward(s->device, dwte, dwpe, text, dx, &where, C, &own),
                     TP_OK);
    keep(s, "x", x, ROWS * C);
    keep(s, "dwte", dwte, 6 * C);
    keep(s, "dwpe", dwpe, T * C);
}

/* The last rows of a unit, and targets that are partly elsewhere. */
static void judge(struct side *s)
{
    enum { SEQUENCES = 2, S = 9, P = 2, T = 12, V = 700, FIRST = 5, ROWS = SEQUENCES * S - FIRST };
    const struct tp_tokens_at where = {SEQUENCES, S, P, T};
    const struct tp_vocabulary own = {200, V};
    struct tp_view logits = numbers(s, 1, ROWS * V), targets = tokens(s, SEQUENCES * T, 1100),
                   top = take(s, ROWS), sums = take(s, 2 * ROWS), loss = take(s, SEQUENCES * T);
    ck_assert_int_eq(tp_logits_max(s->device, top, logits, ROWS, V), TP_OK);
    ck_assert_int_eq(
        tp_logits_exp(s->device, sums, logits, top, targets, &where, FIRST, ROWS, &own, true),
        TP_OK);
    ck_assert_int_eq(
        tp_logits_gradient(s->device, loss, logits, sums, targets, &where, FIRST, ROWS, &own, 0.5f),
        TP_OK);
    keep(s, "top", top, ROWS);
    keep(s, "sums", sums, 2 * ROWS);
    keep(s, "loss", loss, SEQUENCES * T);
    keep(s, "gradient", logits, ROWS * V);
}

static void update(struct side *s)
{
    enum { N = 3 * TP_SUM_BLOCK + 77 };
    const struct tp_adamw_step step = {0.99f, 0.1f, 0.5f, 0.9f, 0.95f, 1e-8f, 0.7f};
    struct tp_view w = numbers(s, 1, N), m = numbers(s, 2, N), v = take(s, N), g = numbers(s, 3, N),
                   partial = take(s, 4);
    ck_assert_int_eq(tp_fill(s->device, v, 0.25f, N), TP_OK);
    ck_assert_int_eq(tp_add(s->device, g, m, N), TP_OK);
    ck_assert_int_eq(tp_sum_squares(s->device, partial, g, N), TP_OK);
    ck_assert_int_eq(tp_adamw(s->device, w, m, v, g, &step, N), TP_OK);
    keep(s, "partial", partial, 4);
    keep(s, "w", w, N);
    keep(s, "m", m, N);
    keep(s, "v", v, N);
}

static void (*const works[])(struct side *) = {normalise,
                                               branch,
                                               attend_in_the_middle,
                                               attend_a_tile_in_part,
                                               attend_from_the_start,
                                               attend_one_token,
                                               embed,
                                               judge,
                                               update};
enum { N_WORKS = sizeof works / sizeof *works };

START_TEST(styles_agree)
{
    struct side cpu, gpu;

    side_init(&cpu, TP_KERNELS_CPU);
    side_init(&gpu, TP_KERNELS_GPU);
    works[_i](&cpu);
    works[_i](&gpu);
    for (int i = 0; i < cpu.count; i++) {
        const struct outcome *one = &cpu.outcomes[i], *two = &gpu.outcomes[i];
        double difference = 0, size = 0;
        for (size_t j = 0; j < one->count; j++) {
            const double x = (double)one->values[j], y = (double)two->values[j];
            difference += (x - y) * (x - y);
            size += x * x;
        }
        ck_assert_msg(sqrt(difference) <= 1e-6 * sqrt(size), "%s: differs by %g of %g", one->name,
                      sqrt(difference), sqrt(size));
    }
    side_fini(&cpu);
    side_fini(&gpu);
}
END_TEST

int main(void)
{
    info = test_device();
    if (info == NULL)
        return SKIPPED;
    Suite *suite = suite_create("styles");
    TCase *test = tcase_create("styles");
    tcase_add_loop_test(test, styles_agree, 0, N_WORKS);
    tcase_set_timeout(test, 300);
    suite_add_tcase(suite, test);
    return device_run(suite);
}
