/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "parts.h"

/* One layer's view of a unit: sizes, and the tensors by name. */
struct layer {
    struct tp_cell *cell;
    struct tp_device *device;
    const struct tp_unit *unit;
    int layer;   /* within the stage */
    bool delays; /* weight gradients wait for the group's last backward */
    size_t rows;
    int C, W, N; /* n_embd; the op rank's part of it by heads, and of n_inner */
    struct tp_attention where;
    struct tp_tokens_at tokens;
};

static struct layer layer_of(struct tp_cell *cell, int layer, const struct tp_unit *unit)
{
    const struct tp_model *model = &cell->shape.model;
    const struct tp_share heads = tp_stage_share(&cell->shape, model->n_head);
    const int D = model->n_embd / model->n_head;
    return (struct layer){
        .cell = cell,
        .device = cell->device,
        .unit = unit,
        .layer = layer,
        .delays = cell->shape.delay_wgrad,
        .rows = tp_unit_rows(unit),
        .C = model->n_embd,
        .W = (int)heads.count * D,
        .N = (int)tp_stage_share(&cell->shape, model->n_inner).count,
        .where = {.sequences = unit->sequences,
                  .S = unit->slice.length,
                  .P = unit->slice.start,
                  .T = cell->shape.seq_len,
                  .H = (int)heads.count,
                  .D = D,
                  .first_head = (int)heads.first,
                  .positions = model->n_positions},
        .tokens = tp_cell_tokens_at(cell, unit),
    };
}

static struct tp_view tensor(const struct layer *l, enum tp_kind kind, enum tp_layer_tensor which)
{
    const int layer = l->cell->shape.layers.first_layer + l->layer;
    return l->cell->tensors[kind][tp_parameter_of_layer(layer, which)];
}

static struct tp_view weight(const struct layer *l, enum tp_layer_tensor which)
{
    return tensor(l, TP_WEIGHT, which);
}

static struct tp_view gradient(const struct layer *l, enum tp_layer_tensor which)
{
    return tensor(l, TP_GRADIENT, which);
}

/* The unit's rows of a region of this layer; the whole of a scratch region. */
static struct tp_view rows_of(const struct layer *l, enum tp_region region, int columns)
{
    return tp_cell_rows(l->cell, region, l->layer, l->unit, (size_t)columns);
}

static struct tp_view scratch(const struct layer *l, enum tp_region region)
{
    return tp_cell_region(l->cell, region, 0);
}

/* The group's part of a cache region; gradients are kept for one group at a time. */
static struct tp_view cache(const struct layer *l, enum tp_region region)
{
    const bool of_batch = region == TP_REGION_LAYER_KEY || region == TP_REGION_LAYER_VALUE;
    const size_t sequence =
        (size_t)l->where.H * (size_t)l->where.T * (size_t)tp_head_stride(&l->cell->shape.model);
    return tp_view_at(tp_cell_region(l->cell, region, l->layer),
                      of_batch ? (size_t)l->unit->cache * sequence : 0);
}

/* y = x W */
static enum tp_status project(const struct layer *l, struct tp_view y, struct tp_view x,
                              enum tp_matrix matrix)
{
    return tp_cell_multiply(l->cell, matrix, l->layer, TP_PRODUCT_FORWARD, y, x, l->rows);
}

/* dx = dy W^T */
static enum tp_status project_input(const struct layer *l, struct tp_view dx, struct tp_view dy,
                                    enum tp_matrix matrix)
{
    return tp_cell_multiply(l->cell, matrix, l->layer, TP_PRODUCT_BACKWARD, dx, dy, l->rows);
}

/* Where the result of a product has its gradient: kept with the unit's rows while weight gradients
 * wait for it, else in scratch. */
static struct tp_view result_gradient(const struct layer *l, enum tp_region kept,
                                      enum tp_region passing, int columns)
{
    return l->delays ? rows_of(l, kept, columns) : scratch(l, passing);
}

/* dW += x^T dy, and the bias of n columns, which follows its matrix in the table. */
static enum tp_status project_weight(const struct layer *l, enum tp_matrix matrix,
                                     enum tp_layer_tensor w, struct tp_view x, struct tp_view dy,
                                     int n)
{
    TP_TRY(tp_cell_add_product(l->cell, matrix, gradient(l, w), x, dy, l->rows));
    return tp_bias_backward(l->device, gradient(l, (enum tp_layer_tensor)(w + 1)), dy, l->rows, n);
}

/* The MLP's weight gradients: of what was multiplied, and of what came out. */
static enum tp_status mlp_gradients(const struct layer *l, struct tp_view gelu, struct tp_view dy,
                                    struct tp_view normed, struct tp_view dhidden)
{
    TP_TRY(project_weight(l, TP_MATRIX_MLP, TP_MLP_PROJ_WEIGHT, gelu, dy, l->C));
    return project_weight(l, TP_MATRIX_FC, TP_FC_WEIGHT, normed, dhidden, l->N);
}

/* Attention's. */
static enum tp_status attention_gradients(const struct layer *l, struct tp_view attention,
                                          struct tp_view dy, struct tp_view normed,
                                          struct tp_view dqkv)
{
    TP_TRY(project_weight(l, TP_MATRIX_ATTENTION, TP_ATTN_PROJ_WEIGHT, attention, dy, l->C));
    return project_weight(l, TP_MATRIX_QKV, TP_ATTN_WEIGHT, normed, dqkv, 3 * l->W);
}

/* The sum over op ranks of the unit's rows of the residual stream's width. */
static enum tp_status sum_over_ops(const struct layer *l, struct tp_view x)
{
    return tp_cell_reduce(l->cell, TP_REDUCE_SUM, x, l->rows * (size_t)l->C);
}

static struct tp_dropout dropout_of(const struct layer *l, enum tp_dropout_place place)
{
    return tp_cell_dropout(l->cell, place, l->layer, l->unit);
}

/* y = dropout(x W + bias) + residual. Each op rank has a part of the product. */
static enum tp_status end_branch(const struct layer *l, struct tp_view y, struct tp_view x,
                                 enum tp_matrix matrix, enum tp_layer_tensor bias,
                                 struct tp_view residual, enum tp_dropout_place place)
{
    const struct tp_dropout dropout = dropout_of(l, place);

    TP_TRY(project(l, y, x, matrix));
    TP_TRY(sum_over_ops(l, y));
    return tp_bias_residual(l->device, y, residual, weight(l, bias), &l->tokens, l->C, &dropout);
}

/* The gradient at a branch's end: the residual stream's, dropped out as the branch was. Where
 * nothing is dropped that is dx itself, as long as dx stays; NORMED_GRADIENT is free until a norm's
 * gradient comes. */
static enum tp_status begin_branch_backward(const struct layer *l, struct tp_view dx,
                                            enum tp_region kept, enum tp_dropout_place place,
                                            struct tp_view *dy)
{
    const struct tp_dropout dropout = dropout_of(l, place);

    *dy = result_gradient(l, kept, TP_REGION_NORMED_GRADIENT, l->C);
    if (dropout.threshold != 0)
        return tp_dropout(l->device, *dy, dx, &l->tokens, l->C, &dropout);
    if (l->delays)
        return tp_memory_copy(l->device, *dy, dx, l->rows * (size_t)l->C);
    *dy = dx;
    return TP_OK;
}

/* middle = input + projection of attention(norm(input)) */
static enum tp_status attention_forward(const struct layer *l)
{
    const int C = l->C, W = l->W;
    const struct tp_dropout dropout = dropout_of(l, TP_DROPOUT_WEIGHTS);
    struct tp_view input = tp_cell_input(l->cell, l->layer, l->unit);
    struct tp_view middle = rows_of(l, TP_REGION_LAYER_MIDDLE, C);
    struct tp_view query = rows_of(l, TP_REGION_LAYER_QUERY, W);
    struct tp_view attention = rows_of(l, TP_REGION_LAYER_ATTENTION, W);
    struct tp_view key = cache(l, TP_REGION_LAYER_KEY), value = cache(l, TP_REGION_LAYER_VALUE);
    struct tp_view normed = scratch(l, TP_REGION_NORMED), qkv = scratch(l, TP_REGION_QKV);

    TP_TRY(tp_layer_norm_forward(l->device, normed, rows_of(l, TP_REGION_LAYER_NORM_1, 2), input,
                                 weight(l, TP_LN_1_WEIGHT), weight(l, TP_LN_1_BIAS), l->rows, C,
                                 l->cell->shape.model.layer_norm_epsilon));
    TP_TRY(project(l, qkv, normed, TP_MATRIX_QKV));
    TP_TRY(tp_qkv_split(l->device, query, key, value, qkv, weight(l, TP_ATTN_BIAS), &l->where));
    TP_TRY(tp_attention_forward(l->device, attention, rows_of(l, TP_REGION_LAYER_LSE, l->where.H),
                                query, key, value, &l->where, &dropout));
    return end_branch(l, middle, attention, TP_MATRIX_ATTENTION, TP_ATTN_PROJ_BIAS, input,
                      TP_DROPOUT_ATTENTION);
}

/* y = middle + projection of gelu(expansion of norm(middle)) */
static enum tp_status mlp_forward(const struct layer *l, struct tp_view y)
{
    const int C = l->C, N = l->N;
    struct tp_view middle = rows_of(l, TP_REGION_LAYER_MIDDLE, C);
    struct tp_view hidden = rows_of(l, TP_REGION_LAYER_HIDDEN, N);
    struct tp_view normed = scratch(l, TP_REGION_NORMED), gelu = scratch(l, TP_REGION_GELU);

    TP_TRY(tp_layer_norm_forward(l->device, normed, rows_of(l, TP_REGION_LAYER_NORM_2, 2), middle,
                                 weight(l, TP_LN_2_WEIGHT), weight(l, TP_LN_2_BIAS), l->rows, C,
                                 l->cell->shape.model.layer_norm_epsilon));
    TP_TRY(project(l, hidden, normed, TP_MATRIX_FC));
    TP_TRY(tp_bias_gelu_forward(l->device, gelu, hidden, weight(l, TP_FC_BIAS), l->rows, N));
    if (y.buffer == NULL)
        return TP_OK;
    return end_branch(l, y, gelu, TP_MATRIX_MLP, TP_MLP_PROJ_BIAS, middle, TP_DROPOUT_MLP);
}

enum tp_status tp_layer_forward(struct tp_cell *cell, int layer, const struct tp_unit *unit,
                                struct tp_view y)
{
    const struct layer l = layer_of(cell, layer, unit);
    TP_TRY(attention_forward(&l));
    return mlp_forward(&l, y);
}

/* The gradient at a norm's output, in NORMED_GRADIENT on each op rank in part, joins the residual
 * stream's in dx. */
static enum tp_status norm_backward(const struct layer *l, struct tp_view dx,
                                    enum tp_layer_tensor w, struct tp_view x,
                                    struct tp_view statistics)
{
    struct tp_view dnormed = scratch(l, TP_REGION_NORMED_GRADIENT);

    TP_TRY(sum_over_ops(l, dnormed));
    return tp_layer_norm_backward(l->device, dx, gradient(l, w),
                                  gradient(l, (enum tp_layer_tensor)(w + 1)), dnormed, x,
                                  statistics, weight(l, w), l->rows, l->C, 1.0f);
}

/* What a norm made of x again, into y. */
static enum tp_status norm_again(const struct layer *l, struct tp_view y, enum tp_layer_tensor w,
                                 struct tp_view x, struct tp_view statistics)
{
    return tp_layer_norm_again(l->device, y, x, statistics, weight(l, w),
                               weight(l, (enum tp_layer_tensor)(w + 1)), l->rows, l->C);
}

/* With delayed weight gradients, GELU's output and the norm's take the places of their inputs,
 * which nothing needs after this. */
static enum tp_status mlp_backward(const struct layer *l, struct tp_view dx)
{
    const int C = l->C, N = l->N;
    struct tp_view middle = rows_of(l, TP_REGION_LAYER_MIDDLE, C);
    struct tp_view hidden = rows_of(l, TP_REGION_LAYER_HIDDEN, N);
    struct tp_view statistics = rows_of(l, TP_REGION_LAYER_NORM_2, 2);
    struct tp_view normed = l->delays ? middle : scratch(l, TP_REGION_NORMED);
    struct tp_view gelu = l->delays ? hidden : scratch(l, TP_REGION_GELU);
    struct tp_view dhidden =
        result_gradient(l, TP_REGION_LAYER_HIDDEN_GRADIENT, TP_REGION_GELU_GRADIENT, N);
    struct tp_view dy;

    TP_TRY(begin_branch_backward(l, dx, TP_REGION_LAYER_OUTPUT_GRADIENT, TP_DROPOUT_MLP, &dy));
    TP_TRY(project_input(l, dhidden, dy, TP_MATRIX_MLP));
    TP_TRY(tp_gelu_backward(l->device, gelu, dhidden, hidden, l->rows, N));
    if (!l->delays) {
        TP_TRY(norm_again(l, normed, TP_LN_2_WEIGHT, middle, statistics));
        TP_TRY(mlp_gradients(l, gelu, dy, normed, dhidden));
    }
    TP_TRY(project_input(l, scratch(l, TP_REGION_NORMED_GRADIENT), dhidden, TP_MATRIX_FC));
    TP_TRY(norm_backward(l, dx, TP_LN_2_WEIGHT, middle, statistics));
    return l->delays ? norm_again(l, normed, TP_LN_2_WEIGHT, middle, statistics) : TP_OK;
}

/* Each slice adds to the gradients of all keys and values it attended to. The last slice of a
 * sequence comes first and starts them. */
static enum tp_status start_cache_gradients(const struct layer *l)
{
    if (l->where.P + l->where.S != l->where.T)
        return TP_OK;
    const size_t count = (size_t)l->where.sequences * (size_t)l->where.H * (size_t)l->where.T *
                         (size_t)tp_head_stride(&l->cell->shape.model);
    TP_TRY(tp_fill(l->device, cache(l, TP_REGION_LAYER_KEY_GRADIENT), 0.0f, count));
    return tp_fill(l->device, cache(l, TP_REGION_LAYER_VALUE_GRADIENT), 0.0f, count);
}

static enum tp_status attention_backward(const struct layer *l, struct tp_view dx)
{
    const int W = l->W;
    const struct tp_dropout dropout = dropout_of(l, TP_DROPOUT_WEIGHTS);
    struct tp_view input = tp_cell_input(l->cell, l->layer, l->unit);
    struct tp_view statistics = rows_of(l, TP_REGION_LAYER_NORM_1, 2);
    struct tp_view query = rows_of(l, TP_REGION_LAYER_QUERY, W);
    struct tp_view attention = rows_of(l, TP_REGION_LAYER_ATTENTION, W);
    struct tp_view dattention = scratch(l, TP_REGION_ATTENTION_GRADIENT);
    struct tp_view dquery = scratch(l, TP_REGION_QUERY_GRADIENT);
    struct tp_view dqkv = result_gradient(l, TP_REGION_LAYER_QKV_GRADIENT, TP_REGION_QKV, 3 * W);
    struct tp_view dkey = cache(l, TP_REGION_LAYER_KEY_GRADIENT);
    struct tp_view dvalue = cache(l, TP_REGION_LAYER_VALUE_GRADIENT);
    struct tp_view normed = l->delays ? input : scratch(l, TP_REGION_NORMED), dy;

    TP_TRY(
        begin_branch_backward(l, dx, TP_REGION_LAYER_BRANCH_GRADIENT, TP_DROPOUT_ATTENTION, &dy));
    TP_TRY(project_input(l, dattention, dy, TP_MATRIX_ATTENTION));
    TP_TRY(start_cache_gradients(l));
    TP_TRY(tp_attention_backward(l->device, dquery, dkey, dvalue, dattention, attention,
                                 rows_of(l, TP_REGION_LAYER_LSE, l->where.H), query,
                                 cache(l, TP_REGION_LAYER_KEY), cache(l, TP_REGION_LAYER_VALUE),
                                 &l->where, &dropout));
    TP_TRY(tp_qkv_merge(l->device, dqkv, dquery, dkey, dvalue, &l->where));
    if (!l->delays) {
        TP_TRY(norm_again(l, normed, TP_LN_1_WEIGHT, input, statistics));
        TP_TRY(attention_gradients(l, attention, dy, normed, dqkv));
    }
    TP_TRY(project_input(l, scratch(l, TP_REGION_NORMED_GRADIENT), dqkv, TP_MATRIX_QKV));
    TP_TRY(norm_backward(l, dx, TP_LN_1_WEIGHT, input, statistics));
    return l->delays ? norm_again(l, normed, TP_LN_1_WEIGHT, input, statistics) : TP_OK;
}

enum tp_status tp_layer_backward(struct tp_cell *cell, int layer, const struct tp_unit *unit,
                                 struct tp_view dx)
{
    const struct layer l = layer_of(cell, layer, unit);
    TP_TRY(mlp_backward(&l, dx));
    return attention_backward(&l, dx);
}

/* A group's rows are one piece, whose beginning its first slice has. */
enum tp_status tp_layer_gradients(struct tp_cell *cell, int layer, const struct tp_unit *first,
                                  size_t rows)
{
    struct layer l = layer_of(cell, layer, first);
    const int C = l.C, W = l.W, N = l.N;

    l.rows = rows;
    TP_TRY(mlp_gradients(
        &l, rows_of(&l, TP_REGION_LAYER_HIDDEN, N), rows_of(&l, TP_REGION_LAYER_OUTPUT_GRADIENT, C),
        rows_of(&l, TP_REGION_LAYER_MIDDLE, C), rows_of(&l, TP_REGION_LAYER_HIDDEN_GRADIENT, N)));
    return attention_gradients(&l, rows_of(&l, TP_REGION_LAYER_ATTENTION, W),
                               rows_of(&l, TP_REGION_LAYER_BRANCH_GRADIENT, C),
                               tp_cell_input(cell, layer, first),
                               rows_of(&l, TP_REGION_LAYER_QKV_GRADIENT, 3 * W));
}
