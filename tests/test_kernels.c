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

enum { MOST = 20000 };

static struct tp_device *device;
static struct tp_arena *arena;

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

/* What is not finite has to show in the loss: a skipped step depends on it. */
START_TEST(cross_entropy_shows_what_is_not_finite)
{
    const float bad[] = {NAN, INFINITY};
    static float logits[100];
    for (int place = 0; place < 100; place += 9) {
        for (int i = 0; i < 100; i++)
            logits[i] = wave((size_t)i, 1.0);
        logits[place] = bad[_i];
        ck_assert(!isfinite(loss_of(logits, 100, 40, 0.1f, 1 + place % 4)) ||
                  (_i == 1 && place == 40));
    }
}
END_TEST

/* Masks are the host's, whichever way a sequence is cut. */
START_TEST(dropout_is_the_hosts)
{
    enum { C = 37, T = 21, SEQUENCES = 3 };
    static const int cuts[][3] = {{0, T, 0}, {0, 1, 20}, {5, 13, 3}, {20, 1, 0}}; /* P, S */
    static float x[SEQUENCES * T * C], y[SEQUENCES * T * C];
    const uint64_t key = tp_dropout_key(1337, 1234567890123, TP_DROPOUT_MLP, 3);
    const struct tp_dropout dropout = {
        .key = key, .threshold = (uint32_t)(0.3 * 0x1p32), .scale = 1 / 0.7f, .first_sequence = 5};
    int dropped = 0, count = 0;

    for (int i = 0; i < SEQUENCES * T * C; i++)
        x[i] = 1.0f;
    for (size_t cut = 0; cut < sizeof cuts / sizeof *cuts; cut++) {
        const int P = cuts[cut][0], S = cuts[cut][1];
        const struct tp_tokens_at where = {.sequences = SEQUENCES, .S = S, .P = P, .T = T};
        const size_t n = (size_t)(SEQUENCES * S * C);
        struct tp_view dev_x = upload(x, n), dev_y = zeros(n);
        ck_assert_int_eq(tp_dropout(device, dev_y, dev_x, &where, C, &dropout), TP_OK);
        download(y, dev_y, n);
        for (int row = 0; row < SEQUENCES * S; row++)
            for (int c = 0; c < C; c++) {
                const uint32_t bits = tp_dropout_bits(key, 5 + row / S, P + row % S, (uint32_t)c);
                const bool drop = bits < dropout.threshold;
                ck_assert(y[row * C + c] == (drop ? 0.0f : dropout.scale));
                dropped += drop;
                count++;
            }
    }
    ck_assert_double_eq_tol(dropped / (double)count, 0.3, 4 * sqrt(0.3 * 0.7 / count));
}
END_TEST

/* Ranks with a part of the table each, and the positions once, add up to the whole embedding. */
START_TEST(embeddings_of_parts_add_up)
{
    enum { C = 19, V = 23, T = 9, P = 2, S = 5, SEQUENCES = 2, ROWS = SEQUENCES * S };
    static float wte[V * C], wpe[T * C], whole[ROWS * C], part[ROWS * C], sum[ROWS * C];
    static float dwte[V * C], dpart[V * C];
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
    for (int ranks = 2; ranks <= 3; ranks++) {
        memset(sum, 0, sizeof sum);
        for (int r = 0; r < ranks; r++) {
            const struct tp_share share = tp_share_of(V, ranks, r);
            const struct tp_vocabulary own = {(int)share.first, (int)share.count};
            struct tp_view dev_part = tp_view_at(dev_wte, share.first * C), dx = zeros(ROWS * C);
            struct tp_view dev_dpart = zeros(share.count * C);
            ck_assert_int_eq(tp_embedding_forward(device, dx, dev_tokens, dev_part, dev_wpe, &where,
                                                  C, &own, r == 0),
                             TP_OK);
            download(part, dx, ROWS * C);
            for (int i = 0; i < ROWS * C; i++)
                sum[i] += part[i];
            ck_assert_int_eq(tp_embedding_backward(device, dev_dpart, zeros(T * C), dev_tokens,
                                                   dev_x, &where, C, &own),
                             TP_OK);
            download(dpart, dev_dpart, share.count * C);
            ck_assert_mem_eq(dpart, dwte + share.first * C, share.count * C * sizeof(float));
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

int main(void)
{
    struct tp_device_info *infos;
    int count;
    tp_device_limit_threads(2);
    if (tp_devices_list(&infos, &count) != TP_OK || count == 0) {
        fprintf(stderr, "no OpenCL device\n");
        return 77;
    }
    const struct tp_device_options options = {
        .index = infos[0].index, .threads = 1, .head_width = 12};
    if (tp_device_open(&options, &device) != TP_OK)
        return 1;
    Suite *suite = suite_create("kernels");
    TCase *test = tcase_create("kernels");
    tcase_add_checked_fixture(test, setup, teardown);
    tcase_add_loop_test(test, flat_kernels_touch_their_elements_only, 0, N_LENGTHS);
    tcase_add_loop_test(test, adamw_is_the_formula, 0, N_LENGTHS);
    tcase_add_test(test, gelu_holds_everywhere);
    tcase_add_loop_test(test, cross_entropy_holds_for_any_size_and_offset, 0, N_LENGTHS);
    tcase_add_loop_test(test, cross_entropy_shows_what_is_not_finite, 0, 2);
    tcase_add_test(test, dropout_is_the_hosts);
    tcase_add_test(test, embeddings_of_parts_add_up);
    tcase_add_loop_test(test, layer_norm_holds_for_constant_and_offset_rows, 0, N_LENGTHS);
    tcase_set_timeout(test, 300);
    suite_add_tcase(suite, test);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK); /* the device's threads do not survive a fork */
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    tp_device_close(device);
    free(infos);
    return failed != 0;
}
