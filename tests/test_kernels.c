/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels against plain double precision where the cell's comparison with the oracle does not
 * reach: odd lengths, extreme numbers, numbers that are none. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/share.h"
#include "device/kernels.h"
#include "device_test.h"

enum { MOST = 20000 };

static const struct tp_device_info *info;
static struct tp_device *device;
static struct tp_arena *arena;

static void open_device(int head_width)
{
    const struct tp_device_options options = {
        .index = info->index, .threads = 1, .head_width = head_width, .kernels = test_style};
    ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
    ck_assert_int_eq(tp_device_kernels(device), test_style);
}

static void close_device(void)
{
    tp_device_close(device);
}

static struct tp_view upload(const float *values, size_t count)
{
    struct tp_view view;
    ck_assert_int_eq(tp_arena_take(arena, "test", count, &view), TP_OK);
    ck_assert_int_eq(tp_memory_write(device, view, values, count), TP_OK);
    return view;
}

static struct tp_view zeros(size_t count)
{
    struct tp_view view;
    ck_assert_int_eq(tp_arena_take(arena, "test", count, &view), TP_OK);
    return view;
}

static void download(float *values, struct tp_view view, size_t count)
{
    ck_assert_int_eq(tp_memory_read(device, values, view, count), TP_OK);
}

static float wave(size_t i, double size)
{
    return (float)(size * sin(1.0 + 12.9898 * (double)i));
}

static const size_t lengths[] = {1, 15, 16, 17, 31, 64, 100, 4095, 4096, 4097, 12345};
enum { N_LENGTHS = sizeof(lengths) / sizeof(lengths[0]) };

static void open_narrow(void)
{
    open_device(12);
}

static void setup(void)
{
    ck_assert_int_eq(tp_arena_new(device, 0, &arena), TP_OK);
}

static void teardown(void)
{
    tp_arena_free(arena);
}

START_TEST(flat_kernels_touch_their_elements_only)
{
    const size_t n = lengths[_i];
    static float x[MOST], y[MOST], got[MOST], partial[16];
    for (size_t i = 0; i < n + 2; i++) {
        x[i] = wave(i, 1.0);
        y[i] = wave(i + 7, 2.0);
    }
    struct tp_view dx = upload(x, n + 2), dy = upload(y, n + 2), sums = zeros(16);
    ck_assert_int_eq(tp_add(device, tp_view_at(dy, 1), tp_view_at(dx, 1), n), TP_OK);
    download(got, dy, n + 2);
    ck_assert(got[0] == y[0] && got[n + 1] == y[n + 1]);
    for (size_t i = 1; i <= n; i++)
        ck_assert(got[i] == x[i] + y[i]);

    double expected = 0, sum = 0;
    ck_assert_int_eq(tp_sum_squares(device, tp_view_at(sums, 1), tp_view_at(dx, 1), n), TP_OK);
    download(partial, sums, 16);
    for (size_t i = 1; i <= n; i++)
        expected += (double)x[i] * (double)x[i];
    const size_t blocks = (n + TP_SUM_BLOCK - 1) / TP_SUM_BLOCK;
    for (size_t i = 1; i <= blocks; i++)
        sum += (double)partial[i];
    ck_assert(partial[0] == 0.0f && partial[blocks + 1] == 0.0f);
    ck_assert_double_eq_tol(sum / expected, 1, 1e-6);

    ck_assert_int_eq(tp_fill(device, tp_view_at(dx, 1), 3.5f, n), TP_OK);
    download(got, dx, n + 2);
    ck_assert(got[0] == x[0] && got[n + 1] == x[n + 1]);
    for (size_t i = 1; i <= n; i++)
        ck_assert(got[i] == 3.5f);
}
END_TEST

START_TEST(adamw_is_the_formula)
{
    const size_t n = lengths[_i];
    static float w[MOST], m[MOST], v[MOST], g[MOST], got[MOST];
    const struct tp_adamw_step step = {0.999f, 1e-3f, 0.25f, 0.9f, 0.95f, 1e-8f, 0.5f};
    for (size_t i = 0; i < n; i++) {
        w[i] = wave(i, 1.0);
        m[i] = wave(i + 3, 0.1);
        v[i] = fabsf(wave(i + 5, 0.01));
        g[i] = wave(i + 9, 0.3);
    }
    struct tp_view dw = upload(w, n), dm = upload(m, n), dv = upload(v, n), dg = upload(g, n);
    ck_assert_int_eq(tp_adamw(device, dw, dm, dv, dg, &step, n), TP_OK);
    download(got, dw, n);
    for (size_t i = 0; i < n; i++) {
        const double s = (double)step.scale * (double)g[i];
        const double m1 = (double)step.beta1 * (double)m[i] + (1 - (double)step.beta1) * s;
        const double v1 = (double)step.beta2 * (double)v[i] + (1 - (double)step.beta2) * s * s;
        const double expected = (double)step.shrink * (double)w[i] -
                                (double)step.rate * m1 / (sqrt(v1) / (double)step.root + 1e-8);
        ck_assert_double_eq_tol((double)got[i], expected, 1e-6);
    }
}
END_TEST

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
}

/* The whole range, also where e^x leaves the range of a float. */
START_TEST(gelu_holds_everywhere)
{
    enum { N = 4001 };
    static float h[N], ones[N], bias[N], y[N], dh[N];
    for (int i = 0; i < N; i++) {
        h[i] = (float)(i - N / 2) * (i % 2 ? 0.005f : 0.5f);
        ones[i] = 1.0f;
    }
    struct tp_view dev_h = upload(h, N), dev_b = upload(bias, N), dev_y = zeros(N),
                   dev_dh = upload(ones, N);
    ck_assert_int_eq(tp_bias_gelu_forward(device, dev_y, dev_h, dev_b, 1, N), TP_OK);
    download(y, dev_y, N);
    ck_assert_int_eq(tp_gelu_backward(device, dev_y, dev_dh, dev_h, 1, N), TP_OK);
    download(dh, dev_dh, N);
    for (int i = 0; i < N; i++) {
        const double x = (double)h[i], e = 1e-5;
        ck_assert_double_eq_tol((double)y[i], gelu(x), 2e-6 * (1 + fabs(x)));
        ck_assert_double_eq_tol((double)dh[i], (gelu(x + e) - gelu(x - e)) / (2 * e), 1e-5);
    }
}
END_TEST

/* One row of logits; its loss, and its gradient when there is a scale. The columns are dealt out to
 * so many op ranks, whose maxima and sums are combined by hand as they would be by messages. */
static float loss_of(float *logits, int V, int target, float scale, int ranks)
{
    const int32_t targets[1] = {target};
    const struct tp_tokens_at where = {.sequences = 1, .S = 1, .P = 0, .T = 1};
    struct tp_view dev_logits[4], dev_loss = zeros(1), dev_targets = zeros(1), top = zeros(1),
                                  sums = zeros(2);
    struct tp_vocabulary own[4];
    float most = -INFINITY, all[2] = {0, 0}, loss[4];

    ck_assert_int_eq(tp_memory_write(device, dev_targets, targets, 1), TP_OK);
    for (int r = 0; r < ranks; r++) {
        const struct tp_share share = tp_share_of((size_t)V, ranks, r);
        float here;
        own[r] = (struct tp_vocabulary){(int)share.first, (int)share.count};
        dev_logits[r] = upload(logits + share.first, share.count);
        ck_assert_int_eq(tp_logits_max(device, top, dev_logits[r], 1, own[r].count), TP_OK);
        download(&here, top, 1);
        most = fmaxf(most, here);
    }
    ck_assert_int_eq(tp_memory_write(device, top, &most, 1), TP_OK);
    for (int r = 0; r < ranks; r++) {
        float here[2];
        ck_assert_int_eq(tp_logits_exp(device, sums, dev_logits[r], top, dev_targets, &where, 0, 1,
                                       &own[r], scale != 0),
                         TP_OK);
        download(here, sums, 2);
        all[0] += here[0];
        all[1] += here[1];
    }
    ck_assert_int_eq(tp_memory_write(device, sums, all, 2), TP_OK);
    for (int r = 0; r < ranks; r++) {
        ck_assert_int_eq(tp_logits_gradient(device, dev_loss, dev_logits[r], sums, dev_targets,
                                            &where, 0, 1, &own[r], scale),
                         TP_OK);
        download(&loss[r], dev_loss, 1);
        download(logits + own[r].first, dev_logits[r], (size_t)own[r].count);
        ck_assert_mem_eq(&loss[r], &loss[0], sizeof loss[0]);
    }
    return loss[0];
}

START_TEST(cross_entropy_holds_for_any_size_and_offset)
{
    const int V = (int)lengths[_i], target = V / 2;
    const double bases[] = {0, 1000, -1000, 3e4};
    static float logits[MOST], before[MOST];
    for (int b = 0; b < 12; b++) {
        const int ranks = V < 4 ? 1 : 1 + b / 4;
        double sum = 0;
        for (int i = 0; i < V; i++)
            before[i] = logits[i] = (float)bases[b % 4] + wave((size_t)i, 50.0);
        for (int i = 0; i < V; i++)
            sum += exp((double)before[i] - (double)before[target]);
        ck_assert_double_eq_tol((double)loss_of(logits, V, target, 0.0f, ranks), log(sum),
                                1e-5 * (1 + log(sum)));
        for (int i = 0; i < V; i++)
            ck_assert(logits[i] == before[i]); /* scale 0 leaves them alone */
        loss_of(logits, V, target, 0.25f, ranks);
        for (int i = 0; i < V; i++) {
            const double p = exp((double)before[i] - (double)before[target]) / sum;
            ck_assert_double_eq_tol((double)logits[i], 0.25 * (p - (i == target)), 1e-6);
        }
    }
}
END_TEST

/* What is not finite has to show in the loss: a skipped step depends on it. The first is infinite,
 * others are NaNs of all kinds. */
static const uint32_t not_finite[] = {0x7f800000, 0x7fc00000, 0xffc00000, 0x7fc00001,
                                      0x7f800001, 0xffffffff, 0x7fffffff, 0x7fc000ff};
enum { N_NOT_FINITE = sizeof(not_finite) / sizeof(not_finite[0]) };

START_TEST(cross_entropy_shows_what_is_not_finite)
{
    static float logits[100];
    for (int place = 0; place < 100; place += 9) {
        for (int i = 0; i < 100; i++)
            logits[i] = wave((size_t)i, 1.0);
        memcpy(&logits[place], &not_finite[_i], sizeof(float));
        ck_assert(!isfinite(loss_of(logits, 100, 40, 0.1f, 1 + place % 4)) ||
                  (_i == 0 && place == 40));
    }
}
END_TEST

static struct tp_dropout dropout_with(double p, enum tp_dropout_place place)
{
    return (struct tp_dropout){.key = tp_dropout_key(1337, 1234567890123, place, 3),
                               .threshold = (uint32_t)(p * 0x1p32),
                               .scale = (float)(1 / (1 - p)),
                               .first_sequence = 5};
}

static float mask(const struct tp_dropout *dropout, int sequence, int token, int index)
{
    const uint32_t bits =
        tp_dropout_bits(dropout->key, dropout->first_sequence + sequence, token, (uint32_t)index);
    return bits < dropout->threshold ? 0.0f : dropout->scale;
}

static const struct tp_tokens_at cuts[] = {
    /* sequences, S, P, T */
    {3, 21, 0, 21}, {3, 1, 0, 21},       {3, 13, 5, 21},
    {3, 1, 20, 21}, {1, 30, 1000, 1030}, {5, 1, 0, 1},
};
enum { N_CUTS = sizeof(cuts) / sizeof(cuts[0]) };

/* Masks are the host's, whichever way a sequence is cut: alone, in place, and at a branch's end. */
START_TEST(dropout_is_the_hosts)
{
    static const int widths[] = {1, 16, 37, 100};
    static float x[MOST], y[MOST], residual[MOST], bias[100];
    const struct tp_tokens_at *where = &cuts[_i];
    const struct tp_dropout dropout = dropout_with(0.3, TP_DROPOUT_MLP),
                            none = dropout_with(0, TP_DROPOUT_MLP);

    for (int i = 0; i < MOST; i++) {
        x[i] = wave((size_t)i, 1.0);
        residual[i] = wave((size_t)i + 5, 2.0);
    }
    for (int i = 0; i < 100; i++)
        bias[i] = wave((size_t)i + 9, 0.5);
    for (int w = 0; w < 4; w++) {
        const int C = widths[w], rows = where->sequences * where->S;
        const size_t n = (size_t)(rows * C);
        struct tp_view dev_x = upload(x, n + 1), dev_y = zeros(n + 1), again = upload(x, n),
                       end = upload(x, n), plain = upload(x, n), dev_residual = upload(residual, n),
                       dev_bias = upload(bias, (size_t)C);
        static float in_place[MOST], dropped[MOST], kept[MOST];
        ck_assert_int_eq(tp_dropout(device, dev_y, dev_x, where, C, &dropout), TP_OK);
        ck_assert_int_eq(tp_dropout(device, again, again, where, C, &dropout), TP_OK);
        ck_assert_int_eq(tp_bias_residual(device, end, dev_residual, dev_bias, where, C, &dropout),
                         TP_OK);
        ck_assert_int_eq(tp_bias_residual(device, plain, dev_residual, dev_bias, where, C, &none),
                         TP_OK);
        download(y, dev_y, n + 1);
        download(in_place, again, n);
        download(dropped, end, n);
        download(kept, plain, n);
        ck_assert(y[n] == 0.0f);
        ck_assert_mem_eq(in_place, y, n * sizeof(float));
        for (size_t i = 0; i < n; i++) {
            const int row = (int)i / C, c = (int)i % C;
            const float m = mask(&dropout, row / where->S, where->P + row % where->S, c);
            ck_assert(y[i] == x[i] * m);
            ck_assert(kept[i] == x[i] + bias[c] + residual[i]);
            ck_assert_double_eq_tol((double)dropped[i],
                                    (double)((x[i] + bias[c]) * m) + (double)residual[i], 1e-6);
        }
    }
}
END_TEST

/* An element is dropped from the threshold on that is just above its 32 bits. */
START_TEST(dropout_compares_all_bits)
{
    enum { C = 21 };
    const struct tp_tokens_at where = {.sequences = 1, .S = 1, .P = 2147483000, .T = 1};
    struct tp_dropout dropout = {.key = 0xfedcba9876543210, .scale = 2, .first_sequence = 70000};
    float ones[C], y[C];

    for (int c = 0; c < C; c++)
        ones[c] = 1.0f;
    struct tp_view dev_x = upload(ones, C), dev_y = zeros(C);
    for (int c = 0; c < C; c++)
        for (uint32_t above = 0; above < 2; above++) {
            dropout.threshold =
                tp_dropout_bits(dropout.key, 70000, 2147483000, (uint32_t)c) + above;
            ck_assert_int_eq(tp_dropout(device, dev_y, dev_x, &where, C, &dropout), TP_OK);
            download(y, dev_y, C);
            ck_assert(y[c] == (above ? 0.0f : 2.0f));
        }
}
END_TEST

START_TEST(dropout_drops_its_share)
{
    enum { ROWS = 200, C = 100 };
    static const double shares[] = {0.1, 0.5, 0.9};
    static float x[ROWS * C], y[ROWS * C];
    const struct tp_tokens_at where = {.sequences = 1, .S = ROWS, .P = 0, .T = ROWS};
    const double p = shares[_i];
    const struct tp_dropout dropout = dropout_with(p, TP_DROPOUT_EMBEDDING);
    int dropped = 0;

    for (int i = 0; i < ROWS * C; i++)
        x[i] = 1.0f;
    struct tp_view dev_x = upload(x, ROWS * C), dev_y = zeros(ROWS * C);
    ck_assert_int_eq(tp_dropout(device, dev_y, dev_x, &where, C, &dropout), TP_OK);
    download(y, dev_y, ROWS * C);
    for (int i = 0; i < ROWS * C; i++)
        dropped += y[i] == 0.0f;
    ck_assert_double_eq_tol(dropped / (double)(ROWS * C), p, 4 * sqrt(p * (1 - p) / (ROWS * C)));
}
END_TEST

/* Ranks with a part of the table each, and the positions once, add up to the whole embedding. */
START_TEST(embeddings_of_parts_add_up)
{
    enum { C = 19, V = 23, T = 9, P = 2, S = 5, SEQUENCES = 2, ROWS = SEQUENCES * S };
    static float wte[V * C], wpe[T * C], whole[ROWS * C], part[ROWS * C], sum[ROWS * C];
    static float dwte[V * C], dwpe[T * C], dpart[V * C];
    int32_t tokens[SEQUENCES * T];
    const struct tp_tokens_at where = {.sequences = SEQUENCES, .S = S, .P = P, .T = T};
    const struct tp_vocabulary all = {0, V};

    for (int i = 0; i < SEQUENCES * T; i++)
        tokens[i] = (7 * i + 3) % V;
    for (size_t i = 0; i < V * C; i++)
        wte[i] = wave(i, 2.0);
    for (size_t i = 0; i < T * C; i++)
        wpe[i] = wave(i, 1.0);
    struct tp_view dev_wte = upload(wte, V * C), dev_wpe = upload(wpe, T * C),
                   dev_x = zeros(ROWS * C), dev_tokens = zeros(SEQUENCES * T);
    struct tp_view dev_dwte = zeros(V * C), dev_dwpe = zeros(T * C);
    ck_assert_int_eq(tp_memory_write(device, dev_tokens, tokens, SEQUENCES * T), TP_OK);
    ck_assert_int_eq(
        tp_embedding_forward(device, dev_x, dev_tokens, dev_wte, dev_wpe, &where, C, &all, true),
        TP_OK);
    download(whole, dev_x, ROWS * C);
    for (int i = 0; i < ROWS * C; i++) {
        const int row = i / C, c = i % C, place = P + row % S;
        ck_assert(whole[i] == wte[tokens[row / S * T + place] * C + c] + wpe[place * C + c]);
    }
    ck_assert_int_eq(
        tp_embedding_backward(device, dev_dwte, dev_dwpe, dev_tokens, dev_x, &where, C, &all),
        TP_OK);
    download(dwte, dev_dwte, V * C);
    download(dwpe, dev_dwpe, T * C);
    for (int ranks = 2; ranks <= 3; ranks++) {
        memset(sum, 0, sizeof sum);
        for (int r = 0; r < ranks; r++) {
            const struct tp_share share = tp_share_of(V, ranks, r);
            const struct tp_vocabulary own = {(int)share.first, (int)share.count};
            struct tp_view dev_part = tp_view_at(dev_wte, share.first * C), dx = zeros(ROWS * C);
            struct tp_view dev_dpart = zeros(share.count * C), dev_dall = zeros(T * C);
            ck_assert_int_eq(tp_embedding_forward(device, dx, dev_tokens, dev_part, dev_wpe, &where,
                                                  C, &own, r == 0),
                             TP_OK);
            download(part, dx, ROWS * C);
            for (int i = 0; i < ROWS * C; i++)
                sum[i] += part[i];
            ck_assert_int_eq(tp_embedding_backward(device, dev_dpart, dev_dall, dev_tokens, dev_x,
                                                   &where, C, &own),
                             TP_OK);
            download(dpart, dev_dpart, share.count * C);
            ck_assert_mem_eq(dpart, dwte + share.first * C, share.count * C * sizeof(float));
            download(dpart, dev_dall, T * C);
            ck_assert_mem_eq(dpart, dwpe, sizeof dwpe);
        }
        ck_assert_mem_eq(sum, whole, sizeof whole);
    }
}
END_TEST

/* Equal numbers have no deviation; large means must not drown small deviations. */
START_TEST(layer_norm_holds_for_constant_and_offset_rows)
{
    const int C = (int)lengths[_i];
    static float x[2 * MOST], ones[MOST], bias[MOST], y[2 * MOST], statistics[4];
    for (int i = 0; i < C; i++) {
        x[i] = 3.0f;
        x[C + i] = 100.0f + wave((size_t)i, 1.0);
        ones[i] = 1.0f;
    }
    struct tp_view dev_y = zeros(2 * (size_t)C), dev_s = zeros(4);
    ck_assert_int_eq(tp_layer_norm_forward(device, dev_y, dev_s, upload(x, 2 * (size_t)C),
                                           upload(ones, (size_t)C), upload(bias, (size_t)C), 2, C,
                                           1e-5),
                     TP_OK);
    download(y, dev_y, 2 * (size_t)C);
    download(statistics, dev_s, 4);
    double mean = 0, variance = 0;
    for (int i = 0; i < C; i++)
        mean += (double)x[C + i] / C;
    for (int i = 0; i < C; i++)
        variance += ((double)x[C + i] - mean) * ((double)x[C + i] - mean) / C;
    ck_assert_double_eq_tol((double)statistics[2], mean, 1e-4);
    for (int i = 0; i < C; i++) {
        ck_assert_double_eq_tol((double)y[i], 0, 1e-3);
        ck_assert_double_eq_tol((double)y[C + i], ((double)x[C + i] - mean) / sqrt(variance + 1e-5),
                                2e-4);
    }
}
END_TEST

/* --- attention with dropped weights, against plain loops in double precision */

enum { HEADS = 3, SEQUENCES = 2, TOKENS = 45, WIDEST = 256 };

/* One slice's numbers: rows are [row][head][d], caches [sequence][head][token][stride]. */
struct attention_case {
    struct tp_attention where;
    int stride;
    float query[SEQUENCES * TOKENS * HEADS * WIDEST], dout[SEQUENCES * TOKENS * HEADS * WIDEST];
    float key[SEQUENCES * HEADS * TOKENS * WIDEST], value[SEQUENCES * HEADS * TOKENS * WIDEST];
    double out[SEQUENCES * TOKENS * HEADS * WIDEST], dquery[SEQUENCES * TOKENS * HEADS * WIDEST];
    double dkey[SEQUENCES * HEADS * TOKENS * WIDEST], dvalue[SEQUENCES * HEADS * TOKENS * WIDEST];
};

static size_t row_count(const struct tp_attention *where)
{
    return (size_t)(where->sequences * where->S * where->H * where->D);
}

static size_t cache_count(const struct attention_case *a)
{
    return (size_t)(SEQUENCES * HEADS * TOKENS * a->stride);
}

static void fill_case(struct attention_case *a)
{
    const struct tp_attention *w = &a->where;

    const double one = w->D <= 64 ? 1 : 8 / sqrt(w->D); /* products are no larger in wide heads */

    a->stride = (w->D + 15) / 16 * 16;
    for (size_t i = 0; i < row_count(w); i++) {
        a->query[i] = wave(i, 1.5 * one);
        a->dout[i] = wave(i + 3, one);
    }
    for (size_t i = 0; i < cache_count(a); i++) {
        const bool there = (int)i % a->stride < w->D;
        a->key[i] = there ? wave(i + 11, 1.5 * one) : 0.0f;
        a->value[i] = there ? wave(i + 17, one) : 0.0f;
        a->dkey[i] = a->dvalue[i] = there ? 0.25 : 0; /* what later slices added */
    }
}

/* One query's part. At: of the row's elements; first: of the cache's elements at token 0. */
static void attend(struct attention_case *a, const struct tp_dropout *dropout, int sequence,
                   int head, int position, size_t at, size_t first)
{
    const struct tp_attention *w = &a->where;
    const int D = w->D, mask_stride = (w->positions + 3) / 4 * 4;
    double p[TOKENS], kept[TOKENS], total = 0, delta = 0;

    for (int s = 0; s <= position; s++) {
        double score = 0;
        for (int d = 0; d < D; d++)
            score += (double)a->query[at + d] * (double)a->key[first + s * a->stride + d];
        p[s] = exp(score / sqrt(D));
        total += p[s];
        kept[s] =
            (double)mask(dropout, sequence, position, (w->first_head + head) * mask_stride + s);
    }
    for (int d = 0; d < D; d++) {
        a->out[at + d] = a->dquery[at + d] = 0;
        for (int s = 0; s <= position; s++)
            a->out[at + d] += p[s] / total * kept[s] * (double)a->value[first + s * a->stride + d];
        delta += a->out[at + d] * (double)a->dout[at + d];
    }
    for (int s = 0; s <= position; s++) {
        const size_t there = first + s * a->stride;
        double dp = 0;
        for (int d = 0; d < D; d++) {
            dp += kept[s] * (double)a->dout[at + d] * (double)a->value[there + d];
            a->dvalue[there + d] += p[s] / total * kept[s] * (double)a->dout[at + d];
        }
        for (int d = 0; d < D; d++) {
            const double ds = p[s] / total * (dp - delta) / sqrt(D);
            a->dquery[at + d] += ds * (double)a->key[there + d];
            a->dkey[there + d] += ds * (double)a->query[at + d];
        }
    }
}

static void attend_all(struct attention_case *a, const struct tp_dropout *dropout)
{
    const struct tp_attention *w = &a->where;

    for (int row = 0; row < w->sequences * w->S; row++)
        for (int h = 0; h < w->H; h++)
            attend(a, dropout, row / w->S, h, w->P + row % w->S, (size_t)((row * w->H + h) * w->D),
                   (size_t)((row / w->S * w->H + h) * w->T * a->stride));
}

/* All numbers are of order 1, a single key's query gradient, which is 0, of differences of such. */
static void expect_near(const char *name, struct tp_view found, const double *expected,
                        size_t count)
{
    static float values[SEQUENCES * TOKENS * HEADS * WIDEST];
    double squares = 0;

    download(values, found, count);
    for (size_t i = 0; i < count; i++)
        squares += ((double)values[i] - expected[i]) * ((double)values[i] - expected[i]);
    const double error = sqrt(squares / (double)count);
    ck_assert_msg(error <= 1e-6, "%s: differs by %g", name, error);
}

/* The numbers that later slices left in a gradient's cache. */
static struct tp_view started(const double *gradient, size_t count)
{
    static float start[SEQUENCES * HEADS * TOKENS * WIDEST];

    for (size_t i = 0; i < count; i++)
        start[i] = (float)gradient[i];
    return upload(start, count);
}

static void check_attention(struct attention_case *a, double p)
{
    const struct tp_attention *w = &a->where;
    const struct tp_dropout dropout = dropout_with(p, TP_DROPOUT_WEIGHTS);

    fill_case(a);
    const size_t rows = row_count(w), cache = cache_count(a);
    struct tp_view query = upload(a->query, rows), key = upload(a->key, cache),
                   value = upload(a->value, cache), dout = upload(a->dout, rows), out = zeros(rows),
                   lse = zeros(rows), dquery = zeros(rows), dkey = started(a->dkey, cache),
                   dvalue = started(a->dvalue, cache);
    attend_all(a, &dropout);
    ck_assert_int_eq(tp_attention_forward(device, out, lse, query, key, value, w, &dropout), TP_OK);
    ck_assert_int_eq(tp_attention_backward(device, dquery, dkey, dvalue, dout, out, lse, query, key,
                                           value, w, &dropout),
                     TP_OK);
    expect_near("out", out, a->out, rows);
    expect_near("dquery", dquery, a->dquery, rows);
    expect_near("dkey", dkey, a->dkey, cache);
    expect_near("dvalue", dvalue, a->dvalue, cache);
}

static const int head_widths[] = {4, 24, 64, 80, 256};
enum { N_HEAD_WIDTHS = sizeof head_widths / sizeof *head_widths };

/* Slices anywhere; the heads of an op rank that is not the first; positions that are no multiple of
 * 4. */
START_TEST(attention_drops_the_hosts_weights)
{
    static const int slices[][2] = {{0, 45}, {0, 16}, {7, 13}, {33, 12}, {44, 1}, {0, 1}}; /* P S */
    static struct attention_case a;

    open_device(head_widths[_i]);
    for (size_t i = 0; i < sizeof slices / sizeof *slices; i++)
        for (int dropped = 0; dropped < 2; dropped++) {
            setup();
            a.where = (struct tp_attention){.sequences = SEQUENCES,
                                            .S = slices[i][1],
                                            .P = slices[i][0],
                                            .T = TOKENS,
                                            .H = HEADS,
                                            .D = head_widths[_i],
                                            .first_head = 5 * dropped,
                                            .positions = TOKENS + 1};
            check_attention(&a, 0.3 * dropped);
            teardown();
        }
    close_device();
}
END_TEST

/* Case names are for CK_RUN_CASE. */
static void add_cases(Suite *suite, void (*use_style)(void), const char *kernels,
                      const char *attending)
{
    TCase *test = tcase_create(kernels);
    tcase_add_unchecked_fixture(test, use_style, NULL);
    tcase_add_unchecked_fixture(test, open_narrow, close_device);
    tcase_add_checked_fixture(test, setup, teardown);
    tcase_add_loop_test(test, flat_kernels_touch_their_elements_only, 0, N_LENGTHS);
    tcase_add_loop_test(test, adamw_is_the_formula, 0, N_LENGTHS);
    tcase_add_test(test, gelu_holds_everywhere);
    tcase_add_loop_test(test, cross_entropy_holds_for_any_size_and_offset, 0, N_LENGTHS);
    tcase_add_loop_test(test, cross_entropy_shows_what_is_not_finite, 0, N_NOT_FINITE);
    tcase_add_loop_test(test, dropout_is_the_hosts, 0, N_CUTS);
    tcase_add_test(test, dropout_compares_all_bits);
    tcase_add_loop_test(test, dropout_drops_its_share, 0, 3);
    tcase_add_test(test, embeddings_of_parts_add_up);
    tcase_add_loop_test(test, layer_norm_holds_for_constant_and_offset_rows, 0, N_LENGTHS);
    tcase_set_timeout(test, 300);
    suite_add_tcase(suite, test);
    TCase *attention = tcase_create(attending); /* opens a device for each head width */
    tcase_add_unchecked_fixture(attention, use_style, NULL);
    tcase_add_loop_test(attention, attention_drops_the_hosts_weights, 0, N_HEAD_WIDTHS);
    tcase_set_timeout(attention, 300);
    suite_add_tcase(suite, attention);
}

int main(void)
{
    info = test_device();
    if (info == NULL)
        return SKIPPED;
    Suite *suite = suite_create("kernels");
    add_cases(suite, test_cpu_style, "cpu", "cpu_attention");
    add_cases(suite, test_gpu_style, "gpu", "gpu_attention");
    return device_run(suite);
}
