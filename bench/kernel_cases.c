/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernel_cases.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/rng.h"

static int head_stride(const struct shape *s)
{
    return (s->D + TP_LANES - 1) / TP_LANES * TP_LANES;
}

size_t size_of(const struct shape *s, enum size size)
{
    const size_t S = (size_t)s->S, P = (size_t)s->P, T = (size_t)s->T, C = (size_t)s->C;
    const size_t H = (size_t)s->H, N = (size_t)s->N, V = (size_t)s->V;
    const size_t stride = (size_t)head_stride(s), logits = (size_t)s->head_rows;

    switch (size) {
    case NONE:
        return 0;
    case ROWS_C:
        return S * C;
    case ROWS_3C:
        return S * 3 * C;
    case ROWS_N:
        return S * N;
    case ROWS_2:
        return S * 2;
    case ROWS_H:
        return S * H;
    case WIDTH:
        return C;
    case WIDTH_3:
        return 3 * C;
    case INNER:
        return N;
    case MATRIX:
        return C * N;
    case BLOCKS:
        return (C * N + TP_SUM_BLOCK - 1) / TP_SUM_BLOCK;
    case CACHE:
        return H * T * stride;
    case SEEN:
        return H * (P + S) * stride;
    case WRITTEN:
        return H * S * stride;
    case TABLE:
        return V * C;
    case POSITIONS:
        return T * C;
    case TOKENS:
        return T;
    case LOGITS:
        return logits * V;
    case LOGITS_1:
        return logits;
    case LOGITS_2:
        return 2 * logits;
    }
    return 0;
}

static struct tp_tokens_at tokens_of(const struct shape *s)
{
    return (struct tp_tokens_at){.sequences = 1, .S = s->S, .P = s->P, .T = s->T};
}

static struct tp_attention attention_of(const struct shape *s)
{
    return (struct tp_attention){
        .sequences = 1, .S = s->S, .P = s->P, .T = s->T, .H = s->H, .D = s->D, .positions = s->T};
}

static const struct tp_dropout no_dropout = {.scale = 1};

/* ---- Elementwise ---- */

static enum tp_status launch_fill(struct tp_device *device, const struct shape *s,
                                  const struct tp_view *at)
{
    return tp_fill(device, at[0], 0.5f, size_of(s, MATRIX));
}

static void expect_fill(const struct shape *s, const float *const *in, double *const *out)
{
    (void)in;
    for (size_t i = 0; i < size_of(s, MATRIX); i++)
        out[0][i] = 0.5;
}

static enum tp_status launch_add(struct tp_device *device, const struct shape *s,
                                 const struct tp_view *at)
{
    return tp_add(device, at[0], at[1], size_of(s, ROWS_C));
}

static void expect_add(const struct shape *s, const float *const *in, double *const *out)
{
    for (size_t i = 0; i < size_of(s, ROWS_C); i++)
        out[0][i] += (double)in[1][i];
}

static enum tp_status launch_sum_squares(struct tp_device *device, const struct shape *s,
                                         const struct tp_view *at)
{
    return tp_sum_squares(device, at[0], at[1], size_of(s, MATRIX));
}

static void expect_sum_squares(const struct shape *s, const float *const *in, double *const *out)
{
    for (size_t i = 0; i < size_of(s, BLOCKS); i++)
        out[0][i] = 0;
    for (size_t i = 0; i < size_of(s, MATRIX); i++)
        out[0][i / TP_SUM_BLOCK] += (double)in[1][i] * (double)in[1][i];
}

static const struct tp_adamw_step adamw = {.shrink = 0.999f,
                                           .rate = 1e-3f,
                                           .root = 0.25f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.95f,
                                           .eps = 1e-8f,
                                           .scale = 0.5f};

static enum tp_status launch_adamw(struct tp_device *device, const struct shape *s,
                                   const struct tp_view *at)
{
    return tp_adamw(device, at[0], at[1], at[2], at[3], &adamw, size_of(s, MATRIX));
}

static void expect_adamw(const struct shape *s, const float *const *in, double *const *out)
{
    const double beta1 = (double)adamw.beta1, beta2 = (double)adamw.beta2;

    for (size_t i = 0; i < size_of(s, MATRIX); i++) {
        const double g = (double)adamw.scale * (double)in[3][i];
        out[1][i] = beta1 * out[1][i] + (1 - beta1) * g;
        out[2][i] = beta2 * out[2][i] + (1 - beta2) * g * g;
        out[0][i] = (double)adamw.shrink * out[0][i] -
                    (double)adamw.rate * out[1][i] /
                        (sqrt(out[2][i]) / (double)adamw.root + (double)adamw.eps);
    }
}

static struct tp_dropout some_dropout(void)
{
    return (struct tp_dropout){.key = tp_dropout_key(1337, 7, TP_DROPOUT_MLP, 0),
                               .threshold = (uint32_t)(0.1 * 0x1p32),
                               .scale = (float)(1 / 0.9)};
}

static enum tp_status launch_dropout(struct tp_device *device, const struct shape *s,
                                     const struct tp_view *at)
{
    const struct tp_tokens_at where = tokens_of(s);
    const struct tp_dropout dropout = some_dropout();
    return tp_dropout(device, at[0], at[1], &where, s->C, &dropout);
}

static void expect_dropout(const struct shape *s, const float *const *in, double *const *out)
{
    const struct tp_dropout dropout = some_dropout();

    for (int row = 0; row < s->S; row++)
        for (int c = 0; c < s->C; c++) {
            const size_t i = (size_t)row * (size_t)s->C + (size_t)c;
            const uint32_t bits = tp_dropout_bits(dropout.key, 0, s->P + row, (uint32_t)c);
            out[0][i] = bits < dropout.threshold ? 0 : (double)dropout.scale * (double)in[1][i];
        }
}

static enum tp_status launch_bias_residual(struct tp_device *device, const struct shape *s,
                                           const struct tp_view *at)
{
    const struct tp_tokens_at where = tokens_of(s);
    return tp_bias_residual(device, at[0], at[1], at[2], &where, s->C, &no_dropout);
}

static void expect_bias_residual(const struct shape *s, const float *const *in, double *const *out)
{
    for (size_t i = 0; i < size_of(s, ROWS_C); i++)
        out[0][i] += (double)in[1][i] + (double)in[2][i % (size_t)s->C];
}

static enum tp_status launch_bias_backward(struct tp_device *device, const struct shape *s,
                                           const struct tp_view *at)
{
    return tp_bias_backward(device, at[0], at[1], (size_t)s->S, s->N);
}

static void expect_bias_backward(const struct shape *s, const float *const *in, double *const *out)
{
    for (size_t i = 0; i < size_of(s, ROWS_N); i++)
        out[0][i % (size_t)s->N] += (double)in[1][i];
}

/* ---- GELU ---- */

/* tanh of it times sqrt(2 / pi). */
static double gelu_argument(double x)
{
    return 0.79788456080286535588 * (x + 0.044715 * x * x * x);
}

static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(gelu_argument(x)));
}

static double gelu_slope(double x)
{
    const double t = tanh(gelu_argument(x));
    return 0.5 * (1 + t) +
           0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

static enum tp_status launch_gelu_forward(struct tp_device *device, const struct shape *s,
                                          const struct tp_view *at)
{
    return tp_bias_gelu_forward(device, at[0], at[1], at[2], (size_t)s->S, s->N);
}

static void expect_gelu_forward(const struct shape *s, const float *const *in, double *const *out)
{
    for (size_t i = 0; i < size_of(s, ROWS_N); i++) {
        out[1][i] += (double)in[2][i % (size_t)s->N];
        out[0][i] = gelu(out[1][i]);
    }
}

static enum tp_status launch_gelu_backward(struct tp_device *device, const struct shape *s,
                                           const struct tp_view *at)
{
    return tp_gelu_backward(device, at[0], at[1], at[2], (size_t)s->S, s->N);
}

static void expect_gelu_backward(const struct shape *s, const float *const *in, double *const *out)
{
    for (size_t i = 0; i < size_of(s, ROWS_N); i++) {
        out[0][i] = gelu((double)in[2][i]);
        out[1][i] *= gelu_slope((double)in[2][i]);
    }
}

/* ---- Layer norm ---- */

#define EPSILON 1e-5

static enum tp_status launch_norm_forward(struct tp_device *device, const struct shape *s,
                                          const struct tp_view *at)
{
    return tp_layer_norm_forward(device, at[0], at[1], at[2], at[3], at[4], (size_t)s->S, s->C,
                                 EPSILON);
}

static void expect_norm_forward(const struct shape *s, const float *const *in, double *const *out)
{
    const size_t C = (size_t)s->C;

    for (size_t row = 0; row < (size_t)s->S; row++) {
        const float *x = in[2] + row * C;
        double mean = 0, square = 0;
        for (size_t c = 0; c < C; c++)
            mean += (double)x[c] / s->C;
        for (size_t c = 0; c < C; c++)
            square += ((double)x[c] - mean) * ((double)x[c] - mean) / s->C;
        const double rstd = 1 / sqrt(square + EPSILON);
        out[1][2 * row] = mean;
        out[1][2 * row + 1] = rstd;
        for (size_t c = 0; c < C; c++)
            out[0][row * C + c] =
                ((double)x[c] - mean) * rstd * (double)in[3][c] + (double)in[4][c];
    }
}

static enum tp_status launch_norm_again(struct tp_device *device, const struct shape *s,
                                        const struct tp_view *at)
{
    return tp_layer_norm_again(device, at[0], at[1], at[2], at[3], at[4], (size_t)s->S, s->C);
}

static void expect_norm_again(const struct shape *s, const float *const *in, double *const *out)
{
    const size_t C = (size_t)s->C;

    for (size_t i = 0; i < size_of(s, ROWS_C); i++) {
        const double mean = (double)in[2][i / C * 2], rstd = (double)in[2][i / C * 2 + 1];
        out[0][i] = ((double)in[1][i] - mean) * rstd * (double)in[3][i % C] + (double)in[4][i % C];
    }
}

static enum tp_status launch_norm_backward(struct tp_device *device, const struct shape *s,
                                           const struct tp_view *at)
{
    return tp_layer_norm_backward(device, at[0], at[1], at[2], at[3], at[4], at[5], at[6],
                                  (size_t)s->S, s->C, 1.0f);
}

static void expect_norm_backward(const struct shape *s, const float *const *in, double *const *out)
{
    const size_t C = (size_t)s->C;

    for (size_t row = 0; row < (size_t)s->S; row++) {
        const float *dy = in[3] + row * C, *x = in[4] + row * C, *weight = in[6];
        const double mean = (double)in[5][2 * row], rstd = (double)in[5][2 * row + 1];
        double sum = 0, product = 0;
        for (size_t c = 0; c < C; c++) {
            const double normed = ((double)x[c] - mean) * rstd;
            sum += (double)dy[c] * (double)weight[c] / s->C;
            product += (double)dy[c] * (double)weight[c] * normed / s->C;
            out[1][c] += (double)dy[c] * normed;
            out[2][c] += (double)dy[c];
        }
        for (size_t c = 0; c < C; c++)
            out[0][row * C + c] += rstd * ((double)dy[c] * (double)weight[c] - sum -
                                           ((double)x[c] - mean) * rstd * product);
    }
}

/* ---- Attention ---- */

/* Element d of a head at a position of a cache. */
static size_t cached(const struct shape *s, int head, int position, int d)
{
    const size_t stride = (size_t)head_stride(s);
    return ((size_t)head * (size_t)s->T + (size_t)position) * stride + (size_t)d;
}

/* Element d of a head in a row of C. */
static size_t in_row(const struct shape *s, int row, int head, int d)
{
    return (size_t)row * (size_t)s->C + (size_t)(head * s->D + d);
}

static enum tp_status launch_split(struct tp_device *device, const struct shape *s,
                                   const struct tp_view *at)
{
    const struct tp_attention where = attention_of(s);
    return tp_qkv_split(device, at[0], at[1], at[2], at[3], at[4], &where);
}

/* Part 0, 1 or 2 of a row of qkv: its query, key or value. */
static size_t in_qkv(const struct shape *s, int row, int part, int head, int d)
{
    return (size_t)row * 3 * (size_t)s->C + (size_t)(part * s->C + head * s->D + d);
}

static void expect_split(const struct shape *s, const float *const *in, double *const *out)
{
    for (int row = 0; row < s->S; row++)
        for (int part = 0; part < 3; part++)
            for (int h = 0; h < s->H; h++)
                for (int d = 0; d < head_stride(s); d++) {
                    const double sum = d < s->D ? (double)in[3][in_qkv(s, row, part, h, d)] +
                                                      (double)in[4][in_qkv(s, 0, part, h, d)]
                                                : 0;
                    if (part > 0)
                        out[part][cached(s, h, s->P + row, d)] = sum;
                    else if (d < s->D)
                        out[0][in_row(s, row, h, d)] = sum;
                }
}

static enum tp_status launch_merge(struct tp_device *device, const struct shape *s,
                                   const struct tp_view *at)
{
    const struct tp_attention where = attention_of(s);
    return tp_qkv_merge(device, at[0], at[1], at[2], at[3], &where);
}

static void expect_merge(const struct shape *s, const float *const *in, double *const *out)
{
    for (int row = 0; row < s->S; row++)
        for (int part = 0; part < 3; part++)
            for (int h = 0; h < s->H; h++)
                for (int d = 0; d < s->D; d++)
                    out[0][in_qkv(s, row, part, h, d)] =
                        (double)in[1 + part]
                                  [part == 0 ? in_row(s, row, h, d) : cached(s, h, s->P + row, d)];
}

static enum tp_status launch_attention_forward(struct tp_device *device, const struct shape *s,
                                               const struct tp_view *at)
{
    const struct tp_attention where = attention_of(s);
    return tp_attention_forward(device, at[0], at[1], at[2], at[3], at[4], &where, &no_dropout);
}

static double score(const struct shape *s, const float *query, const float *key, int row, int head,
                    int position)
{
    double sum = 0;

    for (int d = 0; d < s->D; d++)
        sum += (double)query[in_row(s, row, head, d)] * (double)key[cached(s, head, position, d)];
    return sum / sqrt(s->D);
}

/* Scores are small here: no maximum is needed in double precision. */
static void expect_attention_forward(const struct shape *s, const float *const *in,
                                     double *const *out)
{
    for (int row = 0; row < s->S; row++)
        for (int h = 0; h < s->H; h++) {
            double sum = 0;
            for (int d = 0; d < s->D; d++)
                out[0][in_row(s, row, h, d)] = 0;
            for (int j = 0; j <= s->P + row; j++) {
                const double e = exp(score(s, in[2], in[3], row, h, j));
                sum += e;
                for (int d = 0; d < s->D; d++)
                    out[0][in_row(s, row, h, d)] += e * (double)in[4][cached(s, h, j, d)];
            }
            for (int d = 0; d < s->D; d++)
                out[0][in_row(s, row, h, d)] /= sum;
            out[1][(size_t)row * (size_t)s->H + (size_t)h] = log(sum);
        }
}

enum { DQUERY, DKEY, DVALUE, DOUT, ATTENDED, LSE, QUERY, KEY, VALUE };

static enum tp_status launch_attention_backward(struct tp_device *device, const struct shape *s,
                                                const struct tp_view *at)
{
    const struct tp_attention where = attention_of(s);
    return tp_attention_backward(device, at[DQUERY], at[DKEY], at[DVALUE], at[DOUT], at[ATTENDED],
                                 at[LSE], at[QUERY], at[KEY], at[VALUE], &where, &no_dropout);
}

static enum tp_status prepare_attention_backward(struct tp_device *device, const struct shape *s,
                                                 const struct tp_view *at)
{
    const struct tp_attention where = attention_of(s);
    return tp_attention_forward(device, at[ATTENDED], at[LSE], at[QUERY], at[KEY], at[VALUE],
                                &where, &no_dropout);
}

/* The gradient of one score of a row, with weight being its softmax. */
static void backward_of_score(const struct shape *s, const float *const *in, double *const *out,
                              int row, int head, int position, double weight, double mean)
{
    double product = 0;

    for (int d = 0; d < s->D; d++)
        product += (double)in[DOUT][in_row(s, row, head, d)] *
                   (double)in[VALUE][cached(s, head, position, d)];
    const double dscore = weight * (product - mean) / sqrt(s->D);
    for (int d = 0; d < s->D; d++) {
        const size_t at = in_row(s, row, head, d), there = cached(s, head, position, d);
        out[DQUERY][at] += dscore * (double)in[KEY][there];
        out[DKEY][there] += dscore * (double)in[QUERY][at];
        out[DVALUE][there] += weight * (double)in[DOUT][at];
    }
}

static void expect_attention_backward(const struct shape *s, const float *const *in,
                                      double *const *out)
{
    for (int row = 0; row < s->S; row++)
        for (int h = 0; h < s->H; h++) {
            double mean = 0;
            for (int d = 0; d < s->D; d++) {
                const size_t at = in_row(s, row, h, d);
                mean += (double)in[DOUT][at] * (double)in[ATTENDED][at];
                out[DQUERY][at] = 0;
            }
            const double lse = (double)in[LSE][(size_t)row * (size_t)s->H + (size_t)h];
            for (int j = 0; j <= s->P + row; j++)
                backward_of_score(s, in, out, row, h, j,
                                  exp(score(s, in[QUERY], in[KEY], row, h, j) - lse), mean);
        }
}

/* ---- Embedding and loss ---- */

static struct tp_vocabulary vocabulary_of(const struct shape *s)
{
    return (struct tp_vocabulary){.first = 0, .count = s->V};
}

static size_t token_at(const struct shape *s, const float *tokens, int row)
{
    return (size_t)((const int32_t *)(const void *)tokens)[s->P + row];
}

static enum tp_status launch_embedding_forward(struct tp_device *device, const struct shape *s,
                                               const struct tp_view *at)
{
    const struct tp_tokens_at where = tokens_of(s);
    const struct tp_vocabulary own = vocabulary_of(s);
    return tp_embedding_forward(device, at[0], at[1], at[2], at[3], &where, s->C, &own, true);
}

static void expect_embedding_forward(const struct shape *s, const float *const *in,
                                     double *const *out)
{
    const size_t C = (size_t)s->C;

    for (int row = 0; row < s->S; row++)
        for (size_t c = 0; c < C; c++)
            out[0][(size_t)row * C + c] = (double)in[2][token_at(s, in[1], row) * C + c] +
                                          (double)in[3][(size_t)(s->P + row) * C + c];
}

static enum tp_status launch_embedding_backward(struct tp_device *device, const struct shape *s,
                                                const struct tp_view *at)
{
    const struct tp_tokens_at where = tokens_of(s);
    const struct tp_vocabulary own = vocabulary_of(s);
    return tp_embedding_backward(device, at[0], at[1], at[2], at[3], &where, s->C, &own);
}

static void expect_embedding_backward(const struct shape *s, const float *const *in,
                                      double *const *out)
{
    const size_t C = (size_t)s->C;

    for (int row = 0; row < s->S; row++)
        for (size_t c = 0; c < C; c++) {
            const double dx = (double)in[3][(size_t)row * C + c];
            out[0][token_at(s, in[2], row) * C + c] += dx;
            out[1][(size_t)(s->P + row) * C + c] += dx;
        }
}

static enum tp_status launch_logits_max(struct tp_device *device, const struct shape *s,
                                        const struct tp_view *at)
{
    return tp_logits_max(device, at[0], at[1], (size_t)s->head_rows, s->V);
}

static void expect_logits_max(const struct shape *s, const float *const *in, double *const *out)
{
    const size_t V = (size_t)s->V;

    for (size_t row = 0; row < (size_t)s->head_rows; row++) {
        out[0][row] = -INFINITY;
        for (size_t v = 0; v < V; v++)
            out[0][row] = fmax(out[0][row], (double)in[1][row * V + v]);
    }
}

static enum tp_status launch_logits_exp(struct tp_device *device, const struct shape *s,
                                        const struct tp_view *at)
{
    const struct tp_tokens_at where = tokens_of(s);
    const struct tp_vocabulary own = vocabulary_of(s);
    return tp_logits_exp(device, at[0], at[1], at[2], at[3], &where, 0, (size_t)s->head_rows, &own,
                         true);
}

static void expect_logits_exp(const struct shape *s, const float *const *in, double *const *out)
{
    const size_t V = (size_t)s->V;

    for (int r = 0; r < s->head_rows; r++) {
        const size_t row = (size_t)r;
        const double top = (double)in[2][row];
        out[0][2 * row] = 0;
        out[0][2 * row + 1] = (double)in[1][row * V + token_at(s, in[3], r)] - top;
        for (size_t v = 0; v < V; v++) {
            out[1][row * V + v] = exp(out[1][row * V + v] - top);
            out[0][2 * row] += out[1][row * V + v];
        }
    }
}

#define LOSS_SCALE 0.25f

static enum tp_status launch_logits_gradient(struct tp_device *device, const struct shape *s,
                                             const struct tp_view *at)
{
    const struct tp_tokens_at where = tokens_of(s);
    const struct tp_vocabulary own = vocabulary_of(s);
    return tp_logits_gradient(device, at[0], at[1], at[2], at[3], &where, 0, (size_t)s->head_rows,
                              &own, LOSS_SCALE);
}

static void expect_logits_gradient(const struct shape *s, const float *const *in,
                                   double *const *out)
{
    const size_t V = (size_t)s->V;

    for (int r = 0; r < s->head_rows; r++) {
        const size_t row = (size_t)r;
        const double sum = (double)in[2][2 * row];
        out[0][s->P + r] = log(sum) - (double)in[2][2 * row + 1];
        for (size_t v = 0; v < V; v++)
            out[1][row * V + v] *= (double)LOSS_SCALE / sum;
        out[1][row * V + token_at(s, in[3], r)] -= (double)LOSS_SCALE;
    }
}

/* ---- The table ---- */

/* clang-format off */
#define OF(kernel) .launch = launch_##kernel, .expect = expect_##kernel
#define GETS(size) {size, IN, NUMBERS, NONE}
#define MAKES(size) {size, OUT, NUMBERS, NONE}
#define CHANGES(size) {size, CHANGED, NUMBERS, NONE}
#define PART(use, size, touched) {size, use, NUMBERS, touched}
#define STARTS(use, size, start) {size, use, start, NONE}

const struct kernel kernels[] = {
    {"fill", {MAKES(MATRIX)}, OF(fill)},
    {"add", {CHANGES(ROWS_C), GETS(ROWS_C)}, OF(add)},
    {"sum of squares", {MAKES(BLOCKS), GETS(MATRIX)}, OF(sum_squares)},
    {"adamw", {CHANGES(MATRIX), CHANGES(MATRIX), STARTS(CHANGED, MATRIX, POSITIVE), GETS(MATRIX)},
     OF(adamw)},
    {"dropout", {MAKES(ROWS_C), GETS(ROWS_C)}, OF(dropout)},
    {"bias, residual", {CHANGES(ROWS_C), GETS(ROWS_C), GETS(WIDTH)}, OF(bias_residual)},
    {"bias backward", {CHANGES(INNER), GETS(ROWS_N)}, OF(bias_backward)},
    {"bias, gelu", {MAKES(ROWS_N), CHANGES(ROWS_N), GETS(INNER)}, OF(gelu_forward)},
    {"gelu backward", {MAKES(ROWS_N), CHANGES(ROWS_N), GETS(ROWS_N)}, OF(gelu_backward),
     .fades = true},
    {"norm", {MAKES(ROWS_C), MAKES(ROWS_2), GETS(ROWS_C), GETS(WIDTH), GETS(WIDTH)},
     OF(norm_forward)},
    {"norm again", {MAKES(ROWS_C), GETS(ROWS_C), GETS(ROWS_2), GETS(WIDTH), GETS(WIDTH)},
     OF(norm_again)},
    {"norm backward", {CHANGES(ROWS_C), CHANGES(WIDTH), CHANGES(WIDTH), GETS(ROWS_C), GETS(ROWS_C),
     GETS(ROWS_2), GETS(WIDTH)}, OF(norm_backward)},
    {"qkv split", {MAKES(ROWS_C), PART(OUT, CACHE, WRITTEN), PART(OUT, CACHE, WRITTEN),
     GETS(ROWS_3C), GETS(WIDTH_3)}, OF(split)},
    {"qkv merge", {MAKES(ROWS_3C), GETS(ROWS_C), PART(IN, CACHE, WRITTEN),
     PART(IN, CACHE, WRITTEN)}, OF(merge)},
    {"attention", {MAKES(ROWS_C), MAKES(ROWS_H), GETS(ROWS_C), PART(IN, CACHE, SEEN),
     PART(IN, CACHE, SEEN)}, OF(attention_forward), .flops = 4},
    {"attention backward", {MAKES(ROWS_C), PART(CHANGED, CACHE, SEEN), PART(CHANGED, CACHE, SEEN),
     GETS(ROWS_C), GETS(ROWS_C), GETS(ROWS_H), GETS(ROWS_C), PART(IN, CACHE, SEEN),
     PART(IN, CACHE, SEEN)}, OF(attention_backward), .flops = 10, .prepare = prepare_attention_backward},
    {"embedding", {MAKES(ROWS_C), STARTS(IN, TOKENS, TOKEN_NUMBERS), PART(IN, TABLE, ROWS_C),
     PART(IN, POSITIONS, ROWS_C)}, OF(embedding_forward)},
    {"embedding backward", {PART(CHANGED, TABLE, ROWS_C), PART(CHANGED, POSITIONS, ROWS_C),
     STARTS(IN, TOKENS, TOKEN_NUMBERS), GETS(ROWS_C)}, OF(embedding_backward)},
    {"logits: max", {MAKES(LOGITS_1), GETS(LOGITS)}, OF(logits_max)},
    {"logits: exp", {MAKES(LOGITS_2), CHANGES(LOGITS), GETS(LOGITS_1),
     STARTS(IN, TOKENS, TOKEN_NUMBERS)}, OF(logits_exp), .fades = true},
    {"logits: gradient", {PART(OUT, TOKENS, LOGITS_1), STARTS(CHANGED, LOGITS, POSITIVE),
     STARTS(IN, LOGITS_2, POSITIVE), STARTS(IN, TOKENS, TOKEN_NUMBERS)}, OF(logits_gradient),
     .fades = true},
};
/* clang-format on */
const int n_kernels = sizeof(kernels) / sizeof(kernels[0]);
