/* SPDX-License-Identifier: Apache-2.0 */
/* What the first and the last stage have besides layers: the embedding and the tied head. */
#include "config.h"

#include <string.h>

#include "parts.h"

/* The unit's group in a region of [batch, T]. */
static struct tp_view group_of(const struct tp_cell *cell, enum tp_region region,
                               const struct tp_unit *unit)
{
    return tp_view_at(tp_cell_region(cell, region, 0),
                      (size_t)unit->first_sequence * (size_t)cell->shape.seq_len);
}

/* The rows of wte that the op rank has. */
static struct tp_vocabulary vocabulary_of(const struct tp_cell *cell)
{
    const struct tp_share share = tp_stage_share(&cell->shape, cell->shape.model.vocab_size);
    return (struct tp_vocabulary){(int)share.first, (int)share.count};
}

/* Each op rank embeds its own tokens, and the first one adds the positions: a sum of two numbers
 * and zeros, which has one value. */
enum tp_status tp_embed_forward(struct tp_cell *cell, const struct tp_unit *unit)
{
    const struct tp_tokens_at where = tp_cell_tokens_at(cell, unit);
    const struct tp_vocabulary vocabulary = vocabulary_of(cell);
    const struct tp_dropout dropout = tp_cell_dropout(cell, TP_DROPOUT_EMBEDDING, 0, unit);
    const int C = cell->shape.model.n_embd;
    struct tp_view x = tp_cell_input(cell, 0, unit);
    TP_TRY(tp_embedding_forward(cell->device, x, group_of(cell, TP_REGION_INPUT_TOKENS, unit),
                                cell->tensors[TP_WEIGHT][TP_PARAMETER_WTE],
                                cell->tensors[TP_WEIGHT][TP_PARAMETER_WPE], &where, C, &vocabulary,
                                cell->shape.op_rank == 0));
    TP_TRY(tp_cell_reduce(cell, TP_REDUCE_SUM, x, tp_unit_rows(unit) * (size_t)C));
    return dropout.threshold == 0 ? TP_OK : tp_dropout(cell->device, x, x, &where, C, &dropout);
}

enum tp_status tp_embed_backward(struct tp_cell *cell, const struct tp_unit *unit,
                                 struct tp_view dx)
{
    const struct tp_tokens_at where = tp_cell_tokens_at(cell, unit);
    const struct tp_vocabulary vocabulary = vocabulary_of(cell);
    const struct tp_dropout dropout = tp_cell_dropout(cell, TP_DROPOUT_EMBEDDING, 0, unit);
    const int C = cell->shape.model.n_embd;
    if (dropout.threshold != 0)
        TP_TRY(tp_dropout(cell->device, dx, dx, &where, C, &dropout));
    return tp_embedding_backward(cell->device, cell->tensors[TP_GRADIENT][TP_PARAMETER_WTE],
                                 cell->tensors[TP_GRADIENT][TP_PARAMETER_WPE],
                                 group_of(cell, TP_REGION_INPUT_TOKENS, unit), dx, &where, C,
                                 &vocabulary);
}

/* The head's part of wte's gradient: apart from the embedding's where one stage has both, so that
 * their sum has one order for any number of stages. */
static struct tp_view head_gradient(const struct tp_cell *cell)
{
    return cell->first ? tp_cell_region(cell, TP_REGION_HEAD_GRADIENT, 0)
                       : cell->tensors[TP_GRADIENT][TP_PARAMETER_WTE];
}

/* Cross-entropy of a chunk of logits, whose columns op ranks share: they agree on the largest logit
 * of each row, then on the sum of exponentials and the target's logit. */
static enum tp_status chunk_loss(struct tp_cell *cell, const struct tp_unit *unit, size_t at,
                                 size_t rows)
{
    const struct tp_tokens_at where = tp_cell_tokens_at(cell, unit);
    const struct tp_vocabulary vocabulary = vocabulary_of(cell);
    struct tp_view logits = tp_cell_region(cell, TP_REGION_LOGITS, 0);
    struct tp_view top = tp_cell_region(cell, TP_REGION_LOGIT_SUMS, 0);
    struct tp_view sums = tp_view_at(top, tp_head_rows(&cell->shape));
    struct tp_view targets = group_of(cell, TP_REGION_TARGET_TOKENS, unit);
    struct tp_view loss = group_of(cell, TP_REGION_LOSS, unit);
    const bool train = cell->step.train;

    TP_TRY(tp_logits_max(cell->device, top, logits, rows, vocabulary.count));
    TP_TRY(tp_cell_reduce(cell, TP_REDUCE_MAX, top, rows));
    TP_TRY(tp_logits_exp(cell->device, sums, logits, top, targets, &where, at, rows, &vocabulary,
                         train));
    TP_TRY(tp_cell_reduce(cell, TP_REDUCE_SUM, sums, 2 * rows));
    return tp_logits_gradient(cell->device, loss, logits, sums, targets, &where, at, rows,
                              &vocabulary, train ? (float)cell->step.scale : 0.0f);
}

/* Rows [at, at + rows) of a unit: logits[rows, V] = normed wte^T, loss; in training dnormed and
 * dwte. */
static enum tp_status head_chunk(struct tp_cell *cell, const struct tp_unit *unit, size_t at,
                                 size_t rows)
{
    const size_t C = (size_t)cell->shape.model.n_embd;
    struct tp_view normed = tp_view_at(tp_cell_region(cell, TP_REGION_NORMED, 0), at * C);
    struct tp_view logits = tp_cell_region(cell, TP_REGION_LOGITS, 0);

    TP_TRY(tp_cell_multiply(cell, TP_MATRIX_HEAD, 0, TP_PRODUCT_FORWARD, logits, normed, rows));
    TP_TRY(chunk_loss(cell, unit, at, rows));
    if (!cell->step.train)
        return TP_OK;
    struct tp_view dnormed = tp_cell_rows(cell, TP_REGION_FINAL_GRADIENT, 0, unit, C);
    TP_TRY(tp_cell_multiply(cell, TP_MATRIX_HEAD, 0, TP_PRODUCT_BACKWARD,
                            tp_view_at(dnormed, at * C), logits, rows));
    return tp_cell_add_product(cell, TP_MATRIX_HEAD, head_gradient(cell), normed, logits, rows);
}

enum tp_status tp_head_forward(struct tp_cell *cell, const struct tp_unit *unit)
{
    const struct tp_model *model = &cell->shape.model;
    const int norm = tp_parameter_final_norm(model);
    const size_t rows = tp_unit_rows(unit), chunk = tp_head_rows(&cell->shape);
    TP_TRY(tp_layer_norm_forward(cell->device, tp_cell_region(cell, TP_REGION_NORMED, 0),
                                 tp_cell_rows(cell, TP_REGION_FINAL_NORM, 0, unit, 2),
                                 tp_cell_output(cell, unit), cell->tensors[TP_WEIGHT][norm],
                                 cell->tensors[TP_WEIGHT][norm + 1], rows, model->n_embd,
                                 model->layer_norm_epsilon));
    if (!cell->has_targets)
        return TP_OK;
    for (size_t at = 0; at < rows; at += chunk)
        TP_TRY(head_chunk(cell, unit, at, rows - at < chunk ? rows - at : chunk));
    if (!cell->step.train)
        return TP_OK;
    const size_t C = (size_t)model->n_embd;
    return tp_cell_reduce(cell, TP_REDUCE_SUM,
                          tp_cell_rows(cell, TP_REGION_FINAL_GRADIENT, 0, unit, C), rows * C);
}

enum tp_status tp_head_backward(struct tp_cell *cell, const struct tp_unit *unit, struct tp_view dx)
{
    const int norm = tp_parameter_final_norm(&cell->shape.model);
    const size_t C = (size_t)cell->shape.model.n_embd;
    return tp_layer_norm_backward(
        cell->device, dx, cell->tensors[TP_GRADIENT][norm], cell->tensors[TP_GRADIENT][norm + 1],
        tp_cell_rows(cell, TP_REGION_FINAL_GRADIENT, 0, unit, C), tp_cell_output(cell, unit),
        tp_cell_rows(cell, TP_REGION_FINAL_NORM, 0, unit, 2), cell->tensors[TP_WEIGHT][norm],
        tp_unit_rows(unit), (int)C, 0.0f);
}

/* Each op rank has the logits of its own tokens; summed, with zeros at the others', they are all.
 */
enum tp_status tp_cell_logits(struct tp_cell *cell, const struct tp_unit *unit, float *logits)
{
    const struct tp_vocabulary vocabulary = vocabulary_of(cell);
    const size_t C = (size_t)cell->shape.model.n_embd, V = (size_t)cell->shape.model.vocab_size;
    const size_t own = (size_t)vocabulary.count, token = (size_t)unit->slice.length - 1;
    struct tp_view out = tp_cell_region(cell, TP_REGION_LOGITS, 0);
    TP_TRY(tp_cell_multiply(cell, TP_MATRIX_HEAD, 0, TP_PRODUCT_FORWARD, out,
                            tp_view_at(tp_cell_region(cell, TP_REGION_NORMED, 0), token * C), 1));
    memset(logits, 0, V * sizeof *logits);
    TP_TRY(tp_memory_read(cell->device, logits + vocabulary.first, out, own));
    if (cell->shape.op <= 1)
        return TP_OK;
    return cell->reduce.all(cell->reduce.self, TP_REDUCE_SUM, logits, V);
}
