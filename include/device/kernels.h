/* SPDX-License-Identifier: Apache-2.0 */
/* Launchers of the kernels in cl/, one per kernel and for both styles, in the order outputs,
 * inputs, sizes. Each enqueues and does not wait; each returns TP_ERR_DEVICE when the call fails.
 * Views point at row-major float matrices unless said otherwise. A unit's rows are
 * [sequences][tokens] as in model/slice.h. */
#ifndef TP_DEVICE_KERNELS_H
#define TP_DEVICE_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "device/memory.h"

/* y[rows, C] = (x - mean) * rstd * weight + bias; statistics[rows, 2] = mean, rstd. */
enum tp_status tp_layer_norm_forward(struct tp_device *device, struct tp_view y,
                                     struct tp_view statistics, struct tp_view x,
                                     struct tp_view weight, struct tp_view bias, size_t rows, int C,
                                     double epsilon);

/* y again, from stored statistics. */
enum tp_status tp_layer_norm_again(struct tp_device *device, struct tp_view y, struct tp_view x,
                                   struct tp_view statistics, struct tp_view weight,
                                   struct tp_view bias, size_t rows, int C);

/* dx[rows, C] = beta dx + gradient through the norm, beta 0 or 1; dweight[C] and dbias[C] are added
 * to, summing rows in one order. */
enum tp_status tp_layer_norm_backward(struct tp_device *device, struct tp_view dx,
                                      struct tp_view dweight, struct tp_view dbias,
                                      struct tp_view dy, struct tp_view x,
                                      struct tp_view statistics, struct tp_view weight, size_t rows,
                                      int C, float beta);

/* Tokens of a unit lie in tokens[., T] (int32), sequence after sequence, at [P, P + S) of each. */
struct tp_tokens_at {
    int sequences, S, P, T;
};

/* Inverted dropout (Srivastava et al., JMLR 15, 2014): an element is dropped when the bits that
 * tp_dropout_bits() (base/rng.h) gives it are below the threshold, others are scaled. */
struct tp_dropout {
    uint64_t key;       /* tp_dropout_key() of the step, place and layer */
    uint32_t threshold; /* p 2^32; 0: nothing is dropped */
    float scale;        /* 1 / (1 - p) */
    int first_sequence; /* number of the unit's first sequence in the global batch */
};

/* y[rows, C] = x[rows, C], which may be y, with channels dropped. */
enum tp_status tp_dropout(struct tp_device *device, struct tp_view y, struct tp_view x,
                          const struct tp_tokens_at *where, int C,
                          const struct tp_dropout *dropout);

/* y[rows, C] = (y + bias[C], with channels dropped) + x[rows, C]. */
enum tp_status tp_bias_residual(struct tp_device *device, struct tp_view y, struct tp_view x,
                                struct tp_view bias, const struct tp_tokens_at *where, int C,
                                const struct tp_dropout *dropout);

/* h[rows, N] += bias[N], y = gelu(h), the tanh form (Hendrycks and Gimpel, arXiv 1606.08415). */
enum tp_status tp_bias_gelu_forward(struct tp_device *device, struct tp_view y, struct tp_view h,
                                    struct tp_view bias, size_t rows, int N);

/* y = gelu(h) again; dh[rows, N] *= gelu'(h). h has its bias. */
enum tp_status tp_gelu_backward(struct tp_device *device, struct tp_view y, struct tp_view dh,
                                struct tp_view h, size_t rows, int N);

/* dbias[N] += sum over rows of dy[rows, N], in one order. */
enum tp_status tp_bias_backward(struct tp_device *device, struct tp_view dbias, struct tp_view dy,
                                size_t rows, int N);

/* Where a slice stands: sequences x S tokens after P tokens, of T at most. Caches are
 * [sequences, H, T, D'] with D' = tp_head_stride(), zero beyond D. */
struct tp_attention {
    int sequences, S, P, T, H, D;
    int first_head, positions; /* for masks: number of head 0 in the model, its n_positions */
};

/* query[rows, C], and keys and values at [P, P + S) of the caches, from qkv[rows, 3C] + bias[3C].
 */
enum tp_status tp_qkv_split(struct tp_device *device, struct tp_view query, struct tp_view key,
                            struct tp_view value, struct tp_view qkv, struct tp_view bias,
                            const struct tp_attention *where);

/* dqkv[rows, 3C] from dquery[rows, C] and the gradients of keys and values at [P, P + S). */
enum tp_status tp_qkv_merge(struct tp_device *device, struct tp_view dqkv, struct tp_view dquery,
                            struct tp_view dkey, struct tp_view dvalue,
                            const struct tp_attention *where);

/* Causal attention of the slice's queries on tokens [0, P + S): out[rows, C], and the log-sum-exp
 * of each score row, lse[rows, H]. Scores are not stored (Dao et al., arXiv 2205.14135). Weights
 * may be dropped: the key's index in a head's masks is its position. */
enum tp_status tp_attention_forward(struct tp_device *device, struct tp_view out,
                                    struct tp_view lse, struct tp_view query, struct tp_view key,
                                    struct tp_view value, const struct tp_attention *where,
                                    const struct tp_dropout *dropout);

/* dquery[rows, C]; dkey and dvalue (caches) are added to at [0, P + S), in place. */
enum tp_status tp_attention_backward(struct tp_device *device, struct tp_view dquery,
                                     struct tp_view dkey, struct tp_view dvalue,
                                     struct tp_view dout, struct tp_view out, struct tp_view lse,
                                     struct tp_view query, struct tp_view key, struct tp_view value,
                                     const struct tp_attention *where,
                                     const struct tp_dropout *dropout);

/* The rows [first, first + count) of wte, and columns of logits, that are here. */
struct tp_vocabulary {
    int first, count;
};

/* x[rows, C] = wte[token - first], or 0 for a token that is not here; with positions
 * + wpe[position]. */
enum tp_status tp_embedding_forward(struct tp_device *device, struct tp_view x,
                                    struct tp_view tokens, struct tp_view wte, struct tp_view wpe,
                                    const struct tp_tokens_at *where, int C,
                                    const struct tp_vocabulary *own, bool positions);

/* dwte[token - first] += dx for tokens that are here, dwpe[position] += dx, rows in order. */
enum tp_status tp_embedding_backward(struct tp_device *device, struct tp_view dwte,
                                     struct tp_view dwpe, struct tp_view tokens, struct tp_view dx,
                                     const struct tp_tokens_at *where, int C,
                                     const struct tp_vocabulary *own);

/* Cross-entropy in three steps, so that op ranks can combine, between them, top by its maximum and
 * sums by addition. Rows [first, first + rows) of a unit, logits[rows, own->count]:
 * top[rows], the largest logit;
 * sums[rows, 2], the sum of e^(logit - top), and the target's logit - top or, when it is not here,
 *   0; with gradient the exponentials take the logits' place;
 * loss[., T] at the targets' places, and from exponentials the gradient times scale, in place;
 *   scale 0: no gradient. */
enum tp_status tp_logits_max(struct tp_device *device, struct tp_view top, struct tp_view logits,
                             size_t rows, int V);
enum tp_status tp_logits_exp(struct tp_device *device, struct tp_view sums, struct tp_view logits,
                             struct tp_view top, struct tp_view targets,
                             const struct tp_tokens_at *where, size_t first, size_t rows,
                             const struct tp_vocabulary *own, bool gradient);
enum tp_status tp_logits_gradient(struct tp_device *device, struct tp_view loss,
                                  struct tp_view logits, struct tp_view sums,
                                  struct tp_view targets, const struct tp_tokens_at *where,
                                  size_t first, size_t rows, const struct tp_vocabulary *own,
                                  float scale);

/* x[count] = value; y[count] += x[count]. */
enum tp_status tp_fill(struct tp_device *device, struct tp_view x, float value, size_t count);
enum tp_status tp_add(struct tp_device *device, struct tp_view y, struct tp_view x, size_t count);

/* partial[i] = sum of squares of block i of x (TP_SUM_BLOCK elements, the last one shorter). */
enum tp_status tp_sum_squares(struct tp_device *device, struct tp_view partial, struct tp_view x,
                              size_t count);

/* AdamW (Loshchilov and Hutter, arXiv 1711.05101) as PyTorch orders it: w *= 1 - lr decay;
 * m = beta1 m + (1 - beta1) g; v = beta2 v + (1 - beta2) g g;
 * w -= rate m / (sqrt(v) / root + eps), where g = scale gradient, rate = lr / (1 - beta1^t) and
 * root = sqrt(1 - beta2^t). */
struct tp_adamw_step {
    float shrink; /* 1 - lr decay */
    float rate, root, beta1, beta2, eps, scale;
};
enum tp_status tp_adamw(struct tp_device *device, struct tp_view w, struct tp_view m,
                        struct tp_view v, struct tp_view gradient, const struct tp_adamw_step *step,
                        size_t count);

#endif
