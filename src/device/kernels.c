/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/kernels.h"

#include "launch.h"

static cl_int set_argument(cl_kernel kernel, cl_uint *index, const struct argument *argument)
{
    switch (argument->type) {
    case VIEW: {
        const cl_ulong offset = argument->as.view.offset;
        cl_mem memory = argument->as.view.buffer->memory;
        cl_int code = clSetKernelArg(kernel, (*index)++, sizeof(memory), &memory);
        return code != CL_SUCCESS ? code
                                  : clSetKernelArg(kernel, (*index)++, sizeof(offset), &offset);
    }
    case INT:
        return clSetKernelArg(kernel, (*index)++, sizeof(cl_int), &argument->as.integer);
    case UINT:
        return clSetKernelArg(kernel, (*index)++, sizeof(cl_uint), &argument->as.natural);
    case SIZE:
        return clSetKernelArg(kernel, (*index)++, sizeof(cl_ulong), &argument->as.size);
    case FLOAT:
        return clSetKernelArg(kernel, (*index)++, sizeof(cl_float), &argument->as.number);
    }
    return CL_INVALID_ARG_VALUE;
}

enum tp_status tp_launch(struct tp_device *device, enum tp_kernel which, size_t shares,
                         const struct argument *arguments, size_t count)
{
    cl_kernel kernel = device->kernels[which];
    const size_t local = device->local;
    const size_t groups = device->style == TP_KERNELS_GPU ? shares : blocks(shares, local);
    const size_t global = groups * local;
    cl_uint index = 0;
    cl_int code = CL_SUCCESS;
    if (shares == 0)
        return TP_OK;
    for (size_t i = 0; i < count && code == CL_SUCCESS; i++)
        code = set_argument(kernel, &index, &arguments[i]);
    if (code == CL_SUCCESS)
        code =
            clEnqueueNDRangeKernel(device->queue, kernel, 1, NULL, &global, &local, 0, NULL, NULL);
    return code == CL_SUCCESS ? TP_OK
                              : tp_cl_fail(tp_kernel_names[which], code, __FILE__, __LINE__);
}

/* Most kernels' shares are rows, or blocks of a flat array. Where the styles differ: columns of a
 * block in kernels that sum over rows, and queries of a tile, as in cl/cpu/ and cl/gpu/. */
static const struct {
    size_t columns, queries;
} shares[] = {
    [TP_KERNELS_CPU] = {.columns = 64, .queries = TP_LANES},
    [TP_KERNELS_GPU] = {.columns = 16, .queries = 32},
};

enum tp_status tp_layer_norm_forward(struct tp_device *device, struct tp_view y,
                                     struct tp_view statistics, struct tp_view x,
                                     struct tp_view weight, struct tp_view bias, size_t rows, int C,
                                     double epsilon)
{
    return LAUNCH(device, TP_KERNEL_LAYER_NORM_FORWARD, rows, VIEW(y), VIEW(statistics), VIEW(x),
                  VIEW(weight), VIEW(bias), SIZE(rows), INT(C), FLOAT(epsilon));
}

enum tp_status tp_layer_norm_again(struct tp_device *device, struct tp_view y, struct tp_view x,
                                   struct tp_view statistics, struct tp_view weight,
                                   struct tp_view bias, size_t rows, int C)
{
    return LAUNCH(device, TP_KERNEL_LAYER_NORM_AGAIN, rows, VIEW(y), VIEW(x), VIEW(statistics),
                  VIEW(weight), VIEW(bias), SIZE(rows), INT(C));
}

enum tp_status tp_layer_norm_backward(struct tp_device *device, struct tp_view dx,
                                      struct tp_view dweight, struct tp_view dbias,
                                      struct tp_view dy, struct tp_view x,
                                      struct tp_view statistics, struct tp_view weight, size_t rows,
                                      int C, float beta)
{
    TP_TRY(LAUNCH(device, TP_KERNEL_LAYER_NORM_BACKWARD_WEIGHT, blocks((size_t)C, TP_LANES),
                  VIEW(dweight), VIEW(dbias), VIEW(dy), VIEW(x), VIEW(statistics), SIZE(rows),
                  INT(C)));
    return LAUNCH(device, TP_KERNEL_LAYER_NORM_BACKWARD, rows, VIEW(dx), VIEW(dy), VIEW(x),
                  VIEW(statistics), VIEW(weight), SIZE(rows), INT(C), FLOAT(beta));
}

/* Masks as arguments, as kernels that drop out end. */
#define DROPOUT(d) SIZE((d)->key), UINT((d)->threshold), FLOAT((d)->scale), INT((d)->first_sequence)

enum tp_status tp_bias_residual(struct tp_device *device, struct tp_view y, struct tp_view x,
                                struct tp_view bias, const struct tp_tokens_at *where, int C,
                                const struct tp_dropout *dropout)
{
    return LAUNCH(device, TP_KERNEL_BIAS_RESIDUAL, (size_t)where->sequences * (size_t)where->S,
                  VIEW(y), VIEW(x), VIEW(bias), INT(where->sequences), INT(where->S), INT(where->P),
                  INT(C), DROPOUT(dropout));
}

enum tp_status tp_dropout(struct tp_device *device, struct tp_view y, struct tp_view x,
                          const struct tp_tokens_at *where, int C, const struct tp_dropout *dropout)
{
    return LAUNCH(device, TP_KERNEL_DROPOUT, (size_t)where->sequences * (size_t)where->S, VIEW(y),
                  VIEW(x), INT(where->sequences), INT(where->S), INT(where->P), INT(C),
                  DROPOUT(dropout));
}

enum tp_status tp_bias_gelu_forward(struct tp_device *device, struct tp_view y, struct tp_view h,
                                    struct tp_view bias, size_t rows, int N)
{
    return LAUNCH(device, TP_KERNEL_BIAS_GELU_FORWARD, rows, VIEW(y), VIEW(h), VIEW(bias),
                  SIZE(rows), INT(N));
}

enum tp_status tp_gelu_backward(struct tp_device *device, struct tp_view y, struct tp_view dh,
                                struct tp_view h, size_t rows, int N)
{
    return LAUNCH(device, TP_KERNEL_GELU_BACKWARD, rows, VIEW(y), VIEW(dh), VIEW(h), SIZE(rows),
                  INT(N));
}

enum tp_status tp_bias_backward(struct tp_device *device, struct tp_view dbias, struct tp_view dy,
                                size_t rows, int N)
{
    return LAUNCH(device, TP_KERNEL_BIAS_BACKWARD, blocks((size_t)N, shares[device->style].columns),
                  VIEW(dbias), VIEW(dy), SIZE(rows), INT(N));
}

static size_t unit_rows(const struct tp_attention *where)
{
    return (size_t)where->sequences * (size_t)where->S;
}

static size_t unit_heads(const struct tp_attention *where)
{
    return (size_t)where->sequences * (size_t)where->H;
}

/* The place of a slice as arguments, as all attention kernels end; some then need masks. */
#define WHERE(w) INT((w)->sequences), INT((w)->S), INT((w)->P), INT((w)->T), INT((w)->H)
#define MASKS(w, d) INT((w)->first_head), INT(mask_stride(w)), DROPOUT(d)

/* Indices of a head's masks begin at multiples of 4, so that 4 keys share a block of numbers. */
static int mask_stride(const struct tp_attention *where)
{
    return (where->positions + 3) / 4 * 4;
}

enum tp_status tp_qkv_split(struct tp_device *device, struct tp_view query, struct tp_view key,
                            struct tp_view value, struct tp_view qkv, struct tp_view bias,
                            const struct tp_attention *where)
{
    return LAUNCH(device, TP_KERNEL_QKV_SPLIT, unit_rows(where), VIEW(query), VIEW(key),
                  VIEW(value), VIEW(qkv), VIEW(bias), WHERE(where));
}

enum tp_status tp_qkv_merge(struct tp_device *device, struct tp_view dqkv, struct tp_view dquery,
                            struct tp_view dkey, struct tp_view dvalue,
                            const struct tp_attention *where)
{
    return LAUNCH(device, TP_KERNEL_QKV_MERGE, unit_rows(where), VIEW(dqkv), VIEW(dquery),
                  VIEW(dkey), VIEW(dvalue), WHERE(where));
}

enum tp_status tp_attention_forward(struct tp_device *device, struct tp_view out,
                                    struct tp_view lse, struct tp_view query, struct tp_view key,
                                    struct tp_view value, const struct tp_attention *where,
                                    const struct tp_dropout *dropout)
{
    const size_t tiles = blocks((size_t)where->S, shares[device->style].queries);
    return LAUNCH(device, TP_KERNEL_ATTENTION_FORWARD, unit_heads(where) * tiles, VIEW(out),
                  VIEW(lse), VIEW(query), VIEW(key), VIEW(value), WHERE(where),
                  MASKS(where, dropout));
}

enum tp_status tp_attention_backward(struct tp_device *device, struct tp_view dquery,
                                     struct tp_view dkey, struct tp_view dvalue,
                                     struct tp_view dout, struct tp_view out, struct tp_view lse,
                                     struct tp_view query, struct tp_view key, struct tp_view value,
                                     const struct tp_attention *where,
                                     const struct tp_dropout *dropout)
{
    /* A share has its keys for itself: all of a head in a work-item, a tile of them in a group. */
    const size_t tiles =
        device->style == TP_KERNELS_GPU
            ? blocks((size_t)where->P + (size_t)where->S, shares[device->style].queries)
            : 1;
    return LAUNCH(device, TP_KERNEL_ATTENTION_BACKWARD, unit_heads(where) * tiles, VIEW(dquery),
                  VIEW(dkey), VIEW(dvalue), VIEW(dout), VIEW(out), VIEW(lse), VIEW(query),
                  VIEW(key), VIEW(value), WHERE(where), MASKS(where, dropout));
}

enum tp_status tp_embedding_forward(struct tp_device *device, struct tp_view x,
                                    struct tp_view tokens, struct tp_view wte, struct tp_view wpe,
                                    const struct tp_tokens_at *where, int C,
                                    const struct tp_vocabulary *own, bool positions)
{
    return LAUNCH(device, TP_KERNEL_EMBEDDING_FORWARD, (size_t)where->sequences * (size_t)where->S,
                  VIEW(x), VIEW(tokens), VIEW(wte), VIEW(wpe), INT(where->sequences), INT(where->S),
                  INT(where->P), INT(where->T), INT(C), INT(own->first), INT(own->count),
                  INT(positions));
}

enum tp_status tp_embedding_backward(struct tp_device *device, struct tp_view dwte,
                                     struct tp_view dwpe, struct tp_view tokens, struct tp_view dx,
                                     const struct tp_tokens_at *where, int C,
                                     const struct tp_vocabulary *own)
{
    /* A share has rows of the tables for itself: some of all their columns, or those of a token. */
    const size_t rows = (size_t)where->sequences * (size_t)where->S;
    return LAUNCH(
        device, TP_KERNEL_EMBEDDING_BACKWARD,
        device->style == TP_KERNELS_GPU ? rows : blocks((size_t)C, shares[device->style].columns),
        VIEW(dwte), VIEW(dwpe), VIEW(tokens), VIEW(dx), INT(where->sequences), INT(where->S),
        INT(where->P), INT(where->T), INT(C), INT(own->first), INT(own->count));
}

enum tp_status tp_logits_max(struct tp_device *device, struct tp_view top, struct tp_view logits,
                             size_t rows, int V)
{
    return LAUNCH(device, TP_KERNEL_LOGITS_MAX, rows, VIEW(top), VIEW(logits), SIZE(rows), INT(V));
}

enum tp_status tp_logits_exp(struct tp_device *device, struct tp_view sums, struct tp_view logits,
                             struct tp_view top, struct tp_view targets,
                             const struct tp_tokens_at *where, size_t first, size_t rows,
                             const struct tp_vocabulary *own, bool gradient)
{
    return LAUNCH(device, TP_KERNEL_LOGITS_EXP, rows, VIEW(sums), VIEW(logits), VIEW(top),
                  VIEW(targets), INT(where->S), INT(where->P), INT(where->T), SIZE(first),
                  SIZE(rows), INT(own->first), INT(own->count), INT(gradient));
}

enum tp_status tp_logits_gradient(struct tp_device *device, struct tp_view loss,
                                  struct tp_view logits, struct tp_view sums,
                                  struct tp_view targets, const struct tp_tokens_at *where,
                                  size_t first, size_t rows, const struct tp_vocabulary *own,
                                  float scale)
{
    return LAUNCH(device, TP_KERNEL_LOGITS_GRADIENT, rows, VIEW(loss), VIEW(logits), VIEW(sums),
                  VIEW(targets), INT(where->S), INT(where->P), INT(where->T), SIZE(first),
                  SIZE(rows), INT(own->first), INT(own->count), FLOAT(scale));
}

enum tp_status tp_fill(struct tp_device *device, struct tp_view x, float value, size_t count)
{
    return LAUNCH(device, TP_KERNEL_FILL, blocks(count, TP_SUM_BLOCK), VIEW(x), FLOAT(value),
                  SIZE(count));
}

enum tp_status tp_add(struct tp_device *device, struct tp_view y, struct tp_view x, size_t count)
{
    return LAUNCH(device, TP_KERNEL_ADD, blocks(count, TP_SUM_BLOCK), VIEW(y), VIEW(x),
                  SIZE(count));
}

enum tp_status tp_sum_squares(struct tp_device *device, struct tp_view partial, struct tp_view x,
                              size_t count)
{
    return LAUNCH(device, TP_KERNEL_SUM_SQUARES, blocks(count, TP_SUM_BLOCK), VIEW(partial),
                  VIEW(x), SIZE(count));
}

enum tp_status tp_adamw(struct tp_device *device, struct tp_view w, struct tp_view m,
                        struct tp_view v, struct tp_view gradient, const struct tp_adamw_step *step,
                        size_t count)
{
    return LAUNCH(device, TP_KERNEL_ADAMW, blocks(count, TP_SUM_BLOCK), VIEW(w), VIEW(m), VIEW(v),
                  VIEW(gradient), FLOAT(step->shrink), FLOAT(step->rate), FLOAT(step->root),
                  FLOAT(step->beta1), FLOAT(step->beta2), FLOAT(step->eps), FLOAT(step->scale),
                  SIZE(count));
}
