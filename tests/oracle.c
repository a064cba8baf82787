/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/rng.h"
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SQRT_2_OVER_PI 0.79788456080286535588

/* What one layer's forward leaves for its backward. */
struct trail {
    double *input;         /* [T, C] residual stream */
    double *norm_1;        /* [T, C] */
    double *qkv;           /* [T, 3C] */
    double *probabilities; /* [H, T, T] */
    double *attention;     /* [T, C] */
    double *middle;        /* [T, C] residual stream between attention and MLP */
    double *norm_2;        /* [T, C] */
    double *hidden;        /* [T, n_inner] before GELU */
    double *gelu;          /* [T, n_inner] */
};

static void *allocate(size_t count, size_t size)
{
    void *memory = calloc(count > 0 ? count : 1, size);
    if (memory == NULL) {
        fprintf(stderr, "oracle: no memory\n");
        exit(EXIT_FAILURE);
    }
    return memory;
}

static double *numbers(size_t count)
{
    return allocate(count, sizeof(double));
}

/* --- masks */

/* Those of one place of one layer, for one sequence. p 0: all ones. */
struct masks {
    double p;
    uint64_t key;
    int sequence;
};

static struct masks masks_of(const struct oracle *oracle, enum tp_dropout_place place, int layer,
                             int sequence)
{
    const struct oracle_dropout *dropout = &oracle->dropout;
    return (struct masks){dropout->p, tp_dropout_key(dropout->seed, dropout->step, place, layer),
                          dropout->first_sequence + sequence};
}

static double mask(const struct masks *masks, int token, int index)
{
    if (masks->p == 0)
        return 1;
    bool dropped = tp_dropout_bits(masks->key, masks->sequence, token, (uint32_t)index) <
                   (uint32_t)(masks->p * 0x1p32);
    return dropped ? 0 : 1 / (1 - masks->p);
}

/* x[T, C] with channels dropped. */
static void drop(const struct masks *masks, int T, int C, double *x)
{
    for (int t = 0; t < T; t++)
        for (int c = 0; c < C; c++)
            x[t * C + c] *= mask(masks, t, c);
}

/* --- pieces: forward, and backward that adds to the gradients of weights */

/* y[rows, out] = x[rows, in] w[in, out] + b[out] */
static void linear(const double *x, const double *w, const double *b, int rows, int in, int out,
                   double *y)
{
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < out; o++) {
            double sum = b[o];
            for (int i = 0; i < in; i++)
                sum += x[r * in + i] * w[i * out + o];
            y[r * out + o] = sum;
        }
}

/* Writes dx; adds to dw and db. */
static void linear_backward(const double *x, const double *w, const double *dy, int rows, int in,
                            int out, double *dx, double *dw, double *db)
{
    for (int r = 0; r < rows; r++) {
        for (int i = 0; i < in; i++) {
            double sum = 0;
            for (int o = 0; o < out; o++) {
                sum += dy[r * out + o] * w[i * out + o];
                dw[i * out + o] += x[r * in + i] * dy[r * out + o];
            }
            dx[r * in + i] = sum;
        }
        for (int o = 0; o < out; o++)
            db[o] += dy[r * out + o];
    }
}

/* Mean and reciprocal standard deviation of a row. */
static void moments(const double *x, int C, double epsilon, double *mean, double *rstd)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < C; i++)
        sum += x[i];
    *mean = sum / C;
    for (int i = 0; i < C; i++)
        squares += (x[i] - *mean) * (x[i] - *mean);
    *rstd = 1 / sqrt(squares / C + epsilon);
}

static void layer_norm(const double *x, const double *w, const double *b, int rows, int C,
                       double epsilon, double *y)
{
    for (int r = 0; r < rows; r++, x += C, y += C) {
        double mean, rstd;
        moments(x, C, epsilon, &mean, &rstd);
        for (int i = 0; i < C; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    }
}

/* Adds to dx (the residual stream's gradient goes around the norm), dw and db. */
static void layer_norm_backward(const double *x, const double *w, const double *dy, int rows, int C,
                                double epsilon, double *dx, double *dw, double *db)
{
    for (int r = 0; r < rows; r++, x += C, dy += C, dx += C) {
        double mean, rstd, sum = 0, product = 0;
        moments(x, C, epsilon, &mean, &rstd);
        for (int i = 0; i < C; i++) {
            double normed = (x[i] - mean) * rstd;
            dw[i] += dy[i] * normed;
            db[i] += dy[i];
            sum += dy[i] * w[i];
            product += dy[i] * w[i] * normed;
        }
        for (int i = 0; i < C; i++) {
            double normed = (x[i] - mean) * rstd;
            dx[i] += rstd * (dy[i] * w[i] - sum / C - normed * product / C);
        }
    }
}

/* Causal attention of T tokens: qkv[T, 3C] holds queries, keys, values; a head's are D wide. A
 * head's masks are stride apart. */
static void attention(const double *qkv, const struct masks *masks, int stride, int T, int C, int H,
                      double *probabilities, double *y)
{
    int D = C / H;
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            const double *q = qkv + t * 3 * C + h * D;
            double *p = probabilities + ((size_t)h * T + t) * T;
            double largest = -INFINITY, total = 0;
            for (int s = 0; s <= t; s++) {
                const double *k = qkv + s * 3 * C + C + h * D;
                double score = 0;
                for (int d = 0; d < D; d++)
                    score += q[d] * k[d];
                p[s] = score / sqrt(D);
                largest = fmax(largest, p[s]);
            }
            for (int s = 0; s <= t; s++) {
                p[s] = exp(p[s] - largest);
                total += p[s];
            }
            for (int d = 0; d < D; d++)
                y[t * C + h * D + d] = 0;
            for (int s = 0; s <= t; s++) {
                const double *v = qkv + s * 3 * C + 2 * C + h * D;
                p[s] /= total;
                for (int d = 0; d < D; d++)
                    y[t * C + h * D + d] += p[s] * mask(masks, t, h * stride + s) * v[d];
            }
        }
}

/* Writes dqkv. */
static void attention_backward(const double *qkv, const double *probabilities,
                               const struct masks *masks, int stride, const double *dy, int T,
                               int C, int H, double *dqkv)
{
    int D = C / H;
    memset(dqkv, 0, (size_t)T * 3 * C * sizeof *dqkv);
    for (int h = 0; h < H; h++)
        for (int t = 0; t < T; t++) {
            const double *p = probabilities + ((size_t)h * T + t) * T;
            const double *dout = dy + t * C + h * D;
            const double *q = qkv + t * 3 * C + h * D;
            double *dq = dqkv + t * 3 * C + h * D;
            double expected = 0; /* of dp under p */
            for (int s = 0; s <= t; s++)
                for (int d = 0; d < D; d++)
                    expected += p[s] * mask(masks, t, h * stride + s) * dout[d] *
                                qkv[s * 3 * C + 2 * C + h * D + d];
            for (int s = 0; s <= t; s++) {
                const double *k = qkv + s * 3 * C + C + h * D, *v = k + C;
                double *dk = dqkv + s * 3 * C + C + h * D, *dv = dk + C;
                double kept = mask(masks, t, h * stride + s), dp = 0;
                for (int d = 0; d < D; d++) {
                    dp += kept * dout[d] * v[d];
                    dv[d] += kept * p[s] * dout[d];
                }
                double dscore = p[s] * (dp - expected) / sqrt(D);
                for (int d = 0; d < D; d++) {
                    dq[d] += dscore * k[d];
                    dk[d] += dscore * q[d];
                }
            }
        }
}

/* GELU in its tanh form. */
static double gelu(double x)
{
    return 0.5 * x * (1 + tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x)));
}

static double gelu_slope(double x)
{
    double t = tanh(SQRT_2_OVER_PI * (x + 0.044715 * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * SQRT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
}

static void add(double *x, const double *y, size_t count)
{
    for (size_t i = 0; i < count; i++)
        x[i] += y[i];
}

/* --- a layer */

static double *weight(const struct oracle *oracle, int layer, enum tp_layer_tensor tensor)
{
    return oracle->weights[tp_parameter_of_layer(layer, tensor)];
}

static double *gradient(const struct oracle *oracle, int layer, enum tp_layer_tensor tensor)
{
    return oracle->gradients[tp_parameter_of_layer(layer, tensor)];
}

static int stride_of(const struct oracle *oracle)
{
    return (oracle->model.n_positions + 3) / 4 * 4;
}

/* x[T, C] of a sequence goes through the layer in place. */
static void layer_forward(const struct oracle *oracle, int layer, int number, int T, double *x,
                          struct trail *trail)
{
    const struct masks weights = masks_of(oracle, TP_DROPOUT_WEIGHTS, layer, number);
    const struct masks end_1 = masks_of(oracle, TP_DROPOUT_ATTENTION, layer, number);
    const struct masks end_2 = masks_of(oracle, TP_DROPOUT_MLP, layer, number);
    const struct tp_model *model = &oracle->model;
    int C = model->n_embd, inner = model->n_inner;
    size_t count = (size_t)T * C;
    double *branch = numbers(count);

    memcpy(trail->input, x, count * sizeof *x);
    layer_norm(x, weight(oracle, layer, TP_LN_1_WEIGHT), weight(oracle, layer, TP_LN_1_BIAS), T, C,
               model->layer_norm_epsilon, trail->norm_1);
    linear(trail->norm_1, weight(oracle, layer, TP_ATTN_WEIGHT),
           weight(oracle, layer, TP_ATTN_BIAS), T, C, 3 * C, trail->qkv);
    attention(trail->qkv, &weights, stride_of(oracle), T, C, model->n_head, trail->probabilities,
              trail->attention);
    linear(trail->attention, weight(oracle, layer, TP_ATTN_PROJ_WEIGHT),
           weight(oracle, layer, TP_ATTN_PROJ_BIAS), T, C, C, branch);
    drop(&end_1, T, C, branch);
    add(x, branch, count);

    memcpy(trail->middle, x, count * sizeof *x);
    layer_norm(x, weight(oracle, layer, TP_LN_2_WEIGHT), weight(oracle, layer, TP_LN_2_BIAS), T, C,
               model->layer_norm_epsilon, trail->norm_2);
    linear(trail->norm_2, weight(oracle, layer, TP_FC_WEIGHT), weight(oracle, layer, TP_FC_BIAS), T,
           C, inner, trail->hidden);
    for (int i = 0; i < T * inner; i++)
        trail->gelu[i] = gelu(trail->hidden[i]);
    linear(trail->gelu, weight(oracle, layer, TP_MLP_PROJ_WEIGHT),
           weight(oracle, layer, TP_MLP_PROJ_BIAS), T, inner, C, branch);
    drop(&end_2, T, C, branch);
    add(x, branch, count);
    free(branch);
}

/* dx[T, C], the gradient of the residual stream, goes back through the layer in place. */
static void layer_backward(struct oracle *oracle, int layer, int number, int T,
                           const struct trail *trail, double *dx)
{
    const struct masks weights = masks_of(oracle, TP_DROPOUT_WEIGHTS, layer, number);
    const struct masks end_1 = masks_of(oracle, TP_DROPOUT_ATTENTION, layer, number);
    const struct masks end_2 = masks_of(oracle, TP_DROPOUT_MLP, layer, number);
    const struct tp_model *model = &oracle->model;
    int C = model->n_embd, inner = model->n_inner;
    double *dhidden = numbers((size_t)T * inner);
    double *dnorm = numbers((size_t)T * C), *dqkv = numbers((size_t)T * 3 * C);
    double *dbranch = numbers((size_t)T * C);

    memcpy(dbranch, dx, (size_t)T * C * sizeof *dx);
    drop(&end_2, T, C, dbranch);
    linear_backward(trail->gelu, weight(oracle, layer, TP_MLP_PROJ_WEIGHT), dbranch, T, inner, C,
                    dhidden, gradient(oracle, layer, TP_MLP_PROJ_WEIGHT),
                    gradient(oracle, layer, TP_MLP_PROJ_BIAS));
    for (int i = 0; i < T * inner; i++)
        dhidden[i] *= gelu_slope(trail->hidden[i]);
    linear_backward(trail->norm_2, weight(oracle, layer, TP_FC_WEIGHT), dhidden, T, C, inner, dnorm,
                    gradient(oracle, layer, TP_FC_WEIGHT), gradient(oracle, layer, TP_FC_BIAS));
    layer_norm_backward(trail->middle, weight(oracle, layer, TP_LN_2_WEIGHT), dnorm, T, C,
                        model->layer_norm_epsilon, dx, gradient(oracle, layer, TP_LN_2_WEIGHT),
                        gradient(oracle, layer, TP_LN_2_BIAS));

    double *dattention = dnorm; /* its former content is used up */
    memcpy(dbranch, dx, (size_t)T * C * sizeof *dx);
    drop(&end_1, T, C, dbranch);
    linear_backward(trail->attention, weight(oracle, layer, TP_ATTN_PROJ_WEIGHT), dbranch, T, C, C,
                    dattention, gradient(oracle, layer, TP_ATTN_PROJ_WEIGHT),
                    gradient(oracle, layer, TP_ATTN_PROJ_BIAS));
    attention_backward(trail->qkv, trail->probabilities, &weights, stride_of(oracle), dattention, T,
                       C, model->n_head, dqkv);
    linear_backward(trail->norm_1, weight(oracle, layer, TP_ATTN_WEIGHT), dqkv, T, C, 3 * C, dnorm,
                    gradient(oracle, layer, TP_ATTN_WEIGHT), gradient(oracle, layer, TP_ATTN_BIAS));
    layer_norm_backward(trail->input, weight(oracle, layer, TP_LN_1_WEIGHT), dnorm, T, C,
                        model->layer_norm_epsilon, dx, gradient(oracle, layer, TP_LN_1_WEIGHT),
                        gradient(oracle, layer, TP_LN_1_BIAS));
    free(dhidden);
    free(dnorm);
    free(dqkv);
    free(dbranch);
}

/* --- embedding, head, a sequence */

static void embed(const struct oracle *oracle, const int32_t *inputs, int T, double *x)
{
    int C = oracle->model.n_embd;
    const double *wte = oracle->weights[TP_PARAMETER_WTE];
    const double *wpe = oracle->weights[TP_PARAMETER_WPE];
    for (int t = 0; t < T; t++)
        for (int i = 0; i < C; i++)
            x[t * C + i] = wte[inputs[t] * C + i] + wpe[t * C + i];
}

static void embed_backward(struct oracle *oracle, const int32_t *inputs, int T, const double *dx)
{
    int C = oracle->model.n_embd;
    for (int t = 0; t < T; t++) {
        add(oracle->gradients[TP_PARAMETER_WTE] + inputs[t] * C, dx + t * C, C);
        add(oracle->gradients[TP_PARAMETER_WPE] + t * C, dx + t * C, C);
    }
}

/* Sum of the cross-entropies of the logits x[T, C] wte^T; when dx is given, times scale its
 * gradient: written to dx, added to that of wte. */
static double head(struct oracle *oracle, const double *x, const int32_t *targets, int T,
                   double scale, double *dx)
{
    int C = oracle->model.n_embd, V = oracle->model.vocab_size;
    const double *wte = oracle->weights[TP_PARAMETER_WTE];
    double *dwte = oracle->gradients[TP_PARAMETER_WTE];
    double *logits = numbers(V), loss = 0;
    if (dx != NULL)
        memset(dx, 0, (size_t)T * C * sizeof *dx);
    for (int t = 0; t < T; t++, x += C) {
        double largest = -INFINITY, total = 0;
        for (int v = 0; v < V; v++) {
            logits[v] = 0;
            for (int i = 0; i < C; i++)
                logits[v] += x[i] * wte[v * C + i];
            largest = fmax(largest, logits[v]);
        }
        for (int v = 0; v < V; v++)
            total += exp(logits[v] - largest);
        loss += largest + log(total) - logits[targets[t]];
        for (int v = 0; v < V && dx != NULL; v++) {
            double dlogit = scale * (exp(logits[v] - largest) / total - (v == targets[t]));
            for (int i = 0; i < C; i++) {
                dx[t * C + i] += dlogit * wte[v * C + i];
                dwte[v * C + i] += dlogit * x[i];
            }
        }
    }
    free(logits);
    return loss;
}

/* Sum of the cross-entropies of one sequence; with gradients, scale times its gradient is added. */
static double sequence(struct oracle *oracle, int number, const int32_t *inputs,
                       const int32_t *targets, int T, double scale, bool gradients,
                       struct trail *trails)
{
    const struct masks start = masks_of(oracle, TP_DROPOUT_EMBEDDING, 0, number);
    int C = oracle->model.n_embd, L = oracle->model.n_layer;
    int final = tp_parameter_final_norm(&oracle->model);
    double epsilon = oracle->model.layer_norm_epsilon;
    double *x = numbers((size_t)T * C), *normed = numbers((size_t)T * C);
    double *dnormed = gradients ? numbers((size_t)T * C) : NULL;

    embed(oracle, inputs, T, x);
    drop(&start, T, C, x);
    for (int layer = 0; layer < L; layer++)
        layer_forward(oracle, layer, number, T, x, &trails[layer]);
    layer_norm(x, oracle->weights[final], oracle->weights[final + 1], T, C, epsilon, normed);
    double loss = head(oracle, normed, targets, T, scale, dnormed);

    if (gradients) {
        double *dx = numbers((size_t)T * C);
        layer_norm_backward(x, oracle->weights[final], dnormed, T, C, epsilon, dx,
                            oracle->gradients[final], oracle->gradients[final + 1]);
        for (int layer = L - 1; layer >= 0; layer--)
            layer_backward(oracle, layer, number, T, &trails[layer], dx);
        drop(&start, T, C, dx);
        embed_backward(oracle, inputs, T, dx);
        free(dx);
    }
    free(x);
    free(normed);
    free(dnormed);
    return loss;
}

/* --- the interface */

static double **tensors(const struct tp_parameters *parameters)
{
    double **at = allocate(parameters->count, sizeof *at);
    for (int row = 0; row < parameters->count; row++)
        at[row] = numbers(parameters->at[row].count);
    return at;
}

static void free_tensors(double **at, int count)
{
    for (int row = 0; row < count; row++)
        free(at[row]);
    free(at);
}

struct oracle *oracle_new(const struct tp_model *model)
{
    struct oracle *oracle = allocate(1, sizeof *oracle);
    oracle->model = *model;
    if (tp_parameters_init(&oracle->parameters, model) != TP_OK)
        exit(EXIT_FAILURE);
    oracle->weights = tensors(&oracle->parameters);
    oracle->gradients = tensors(&oracle->parameters);
    oracle->moments_1 = tensors(&oracle->parameters);
    oracle->moments_2 = tensors(&oracle->parameters);
    return oracle;
}

void oracle_free(struct oracle *oracle)
{
    if (oracle == NULL)
        return;
    int count = oracle->parameters.count;
    free_tensors(oracle->weights, count);
    free_tensors(oracle->gradients, count);
    free_tensors(oracle->moments_1, count);
    free_tensors(oracle->moments_2, count);
    tp_parameters_fini(&oracle->parameters);
    free(oracle);
}

static struct trail *trails_new(const struct tp_model *model, int T)
{
    size_t C = model->n_embd, inner = model->n_inner, H = model->n_head;
    struct trail *trails = allocate(model->n_layer, sizeof *trails);
    for (int layer = 0; layer < model->n_layer; layer++)
        trails[layer] = (struct trail){
            .input = numbers(T * C),
            .norm_1 = numbers(T * C),
            .qkv = numbers(T * 3 * C),
            .probabilities = numbers(H * T * T),
            .attention = numbers(T * C),
            .middle = numbers(T * C),
            .norm_2 = numbers(T * C),
            .hidden = numbers(T * inner),
            .gelu = numbers(T * inner),
        };
    return trails;
}

static void trails_free(struct trail *trails, int n_layer)
{
    for (struct trail *trail = trails; trail < trails + n_layer; trail++) {
        free(trail->input);
        free(trail->norm_1);
        free(trail->qkv);
        free(trail->probabilities);
        free(trail->attention);
        free(trail->middle);
        free(trail->norm_2);
        free(trail->hidden);
        free(trail->gelu);
    }
    free(trails);
}

static double batch(struct oracle *oracle, const int32_t *inputs, const int32_t *targets, int B,
                    int T, bool gradients)
{
    struct trail *trails = trails_new(&oracle->model, T);
    double scale = 1.0 / ((double)B * T), loss = 0;
    for (int b = 0; b < B; b++)
        loss += sequence(oracle, b, inputs + b * T, targets + b * T, T, scale, gradients, trails);
    trails_free(trails, oracle->model.n_layer);
    return loss * scale;
}

double oracle_loss(struct oracle *oracle, const int32_t *inputs, const int32_t *targets, int B,
                   int T)
{
    return batch(oracle, inputs, targets, B, T, false);
}

double oracle_loss_and_gradients(struct oracle *oracle, const int32_t *inputs,
                                 const int32_t *targets, int B, int T)
{
    for (int row = 0; row < oracle->parameters.count; row++)
        memset(oracle->gradients[row], 0, oracle->parameters.at[row].count * sizeof(double));
    return batch(oracle, inputs, targets, B, T, true);
}

double oracle_norm(const struct oracle *oracle)
{
    double squares = 0;
    for (int row = 0; row < oracle->parameters.count; row++)
        for (size_t i = 0; i < oracle->parameters.at[row].count; i++)
            squares += oracle->gradients[row][i] * oracle->gradients[row][i];
    return sqrt(squares);
}

double oracle_adamw(struct oracle *oracle, const struct tp_adamw *adamw, double clip)
{
    double norm = oracle_norm(oracle);
    double scale = clip > 0 ? fmin(1, clip / (norm + 1e-6)) : 1;
    double correction_1 = 1 - pow(adamw->beta1, (double)adamw->step);
    double correction_2 = 1 - pow(adamw->beta2, (double)adamw->step);
    for (int row = 0; row < oracle->parameters.count; row++) {
        const struct tp_parameter *parameter = &oracle->parameters.at[row];
        double decay = parameter->decay ? adamw->weight_decay : 0;
        double *w = oracle->weights[row], *g = oracle->gradients[row];
        double *m = oracle->moments_1[row], *v = oracle->moments_2[row];
        for (size_t i = 0; i < parameter->count; i++) {
            double scaled = scale * g[i];
            m[i] = adamw->beta1 * m[i] + (1 - adamw->beta1) * scaled;
            v[i] = adamw->beta2 * v[i] + (1 - adamw->beta2) * scaled * scaled;
            double update = m[i] / correction_1 / (sqrt(v[i] / correction_2) + adamw->eps);
            w[i] -= adamw->lr * (update + decay * w[i]);
        }
    }
    return norm;
}
