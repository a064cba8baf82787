/* SPDX-License-Identifier: Apache-2.0 */
/* What the first and the last stage have besides layers: the embedding and the tied head. */
#include "config.h"

#include "parts.h"

static struct tp_tokens_at tokens_at(const struct tp_cell *cell, const struct tp_unit *unit)
{
    return (struct tp_tokens_at){.sequences = unit->sequences,
                                 .S = unit->slice.length,
                                 .P = unit->slice.start,
                                 .T = cell->shape.seq_len};
}

/* The unit's group in a region of [batch, T]. */
static struct tp_view group_of(const struct tp_cell *cell, enum tp_region region,
                               const struct tp_unit *unit)
{
    return tp_view_at(tp_cell_region(cell, region, 0),
                      (size_t)unit->first_sequence * (size_t)cell->shape.seq_len);
}

enum tp_status tp_embed_forward(struct tp_cell *cell, const struct tp_unit *unit)
{
    const struct tp_tokens_at where = tokens_at(cell, unit);
    const int C = cell->shape.model.n_embd;
    return tp_embedding_forward(cell->device, tp_cell_input(cell, 0, unit),
                                group_of(cell, TP_REGION_INPUT_TOKENS, unit),
                                cell->tensors[TP_WEIGHT][TP_PARAMETER_WTE],
                                cell->tensors[TP_WEIGHT][TP_PARAMETER_WPE], &where, C);
}

enum tp_status tp_embed_backward(struct tp_cell *cell, const struct tp_unit *unit,
                                 struct tp_view dx)
{
    const struct tp_tokens_at where = tokens_at(cell, unit);
    return tp_embedding_backward(cell->device, cell->tensors[TP_GRADIENT][TP_PARAMETER_WTE],
                                 cell->tensors[TP_GRADIENT][TP_PARAMETER_WPE],
                                 group_of(cell, TP_REGION_INPUT_TOKENS, unit), dx, &where,
                                 cell->shape.model.n_embd);
}

/* The head's part of wte's gradient: apart from the embedding's where one stage has both, so that
 * their sum has one order for any number of stages. */
static struct tp_view head_gradient(const struct tp_cell *cell)
{
    return cell->first ? tp_cell_region(cell, TP_REGION_HEAD_GRADIENT, 0)
                       : cell->tensors[TP_GRADIENT][TP_PARAMETER_WTE];
}

/* Rows [at, at + rows) of a unit: logits[rows, V] = normed wte^T, loss; in training dnormed and
 * dwte. */
static enum tp_status head_chunk(struct tp_cell *cell, const struct tp_unit *unit, size_t at,
                                 size_t rows)
{
    const struct tp_tokens_at where = tokens_at(cell, unit);
    const size_t C = (size_t)cell->shape.model.n_embd, V = (size_t)cell->shape.model.vocab_size;
    struct tp_view wte = cell->tensors[TP_WEIGHT][TP_PARAMETER_WTE];
    struct tp_view normed = tp_view_at(tp_cell_region(cell, TP_REGION_NORMED, 0), at * C);
    struct tp_view logits = tp_cell_region(cell, TP_REGION_LOGITS, 0);

    TP_TRY(tp_gemm(cell->device, logits, normed, wte,
                   &(struct tp_gemm){.b_transposed = true, .m = rows, .n = V, .k = C}));
    TP_TRY(tp_cross_entropy(cell->device, group_of(cell, TP_REGION_LOSS, unit), logits,
                            group_of(cell, TP_REGION_TARGET_TOKENS, unit), &where, at, rows, (int)V,
                            cell->train ? (float)cell->scale : 0.0f));
    if (!cell->train)
        return TP_OK;
    struct tp_view dnormed = tp_cell_rows(cell, TP_REGION_FINAL_GRADIENT, 0, unit, C);
    TP_TRY(tp_gemm(cell->device, tp_view_at(dnormed, at * C), logits, wte,
                   &(struct tp_gemm){.m = rows, .n = C, .k = V}));
    return tp_gemm(
        cell->device, head_gradient(cell), logits, normed,
        &(struct tp_gemm){.a_transposed = true, .m = V, .n = C, .k = rows, .beta = 1.0f});
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
    return TP_OK;
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

enum tp_status tp_cell_logits(struct tp_cell *cell, const struct tp_unit *unit, float *logits)
{
    const size_t C = (size_t)cell->shape.model.n_embd, V = (size_t)cell->shape.model.vocab_size;
    const size_t token = (size_t)unit->slice.length - 1;
    struct tp_view out = tp_cell_region(cell, TP_REGION_LOGITS, 0);
    TP_TRY(tp_gemm(cell->device, out,
                   tp_view_at(tp_cell_region(cell, TP_REGION_NORMED, 0), token * C),
                   cell->tensors[TP_WEIGHT][TP_PARAMETER_WTE],
                   &(struct tp_gemm){.b_transposed = true, .m = 1, .n = V, .k = C}));
    return tp_memory_read(cell->device, logits, out, V);
}
