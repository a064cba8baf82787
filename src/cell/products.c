/* SPDX-License-Identifier: Apache-2.0 */
/* A cell's matrix products. Where they go by panels, a matrix is packed when its weights have
 * changed, once for all units of a step. */
#include "config.h"

#include "device/packed.h"
#include "parts.h"

struct tp_gemm tp_product_shape(const struct tp_stage_shape *shape, enum tp_matrix matrix,
                                enum tp_product product, size_t rows)
{
    const struct tp_matrix_size size = tp_matrix_size(shape, matrix);
    const bool transposed = matrix == TP_MATRIX_HEAD; /* wte is [V, C] */

    switch (product) {
    case TP_PRODUCT_FORWARD:
        return (struct tp_gemm){.b_transposed = transposed, .m = rows, .n = size.n, .k = size.k};
    case TP_PRODUCT_BACKWARD:
        return (struct tp_gemm){.b_transposed = !transposed, .m = rows, .n = size.k, .k = size.n};
    default:
        return (struct tp_gemm){.a_transposed = true,
                                .m = transposed ? size.n : size.k,
                                .n = transposed ? size.k : size.n,
                                .k = rows,
                                .beta = 1.0f};
    }
}

static int row_of(const struct tp_cell *cell, enum tp_matrix matrix, int layer)
{
    static const enum tp_layer_tensor tensors[] = {
        [TP_MATRIX_QKV] = TP_ATTN_WEIGHT,
        [TP_MATRIX_ATTENTION] = TP_ATTN_PROJ_WEIGHT,
        [TP_MATRIX_FC] = TP_FC_WEIGHT,
        [TP_MATRIX_MLP] = TP_MLP_PROJ_WEIGHT,
    };
    return matrix == TP_MATRIX_HEAD
               ? TP_PARAMETER_WTE
               : tp_parameter_of_layer(cell->shape.layers.first_layer + layer, tensors[matrix]);
}

/* ---- Panels ---- */

/* Number of a matrix's panels in cell->panels. */
static size_t index_of(enum tp_matrix matrix, int layer, enum tp_product product)
{
    return 2 * ((size_t)layer * TP_MATRICES + matrix) + (product == TP_PRODUCT_BACKWARD);
}

/* Have a matrix's panels of both directions one place? Then one direction's are packed over the
 * other's, when a product needs them. */
static bool share_place(const struct tp_cell *cell, enum tp_matrix matrix)
{
    return matrix != TP_MATRIX_HEAD &&
           tp_region_count(TP_REGION_LAYER_PANELS_BACKWARD, &cell->shape) == 0;
}

static enum tp_product other(enum tp_product product)
{
    return product == TP_PRODUCT_FORWARD ? TP_PRODUCT_BACKWARD : TP_PRODUCT_FORWARD;
}

static struct tp_view panels_of(const struct tp_cell *cell, enum tp_matrix matrix, int layer,
                                enum tp_product product)
{
    const bool backward = product == TP_PRODUCT_BACKWARD;
    const enum tp_region region = backward && !share_place(cell, matrix)
                                      ? TP_REGION_LAYER_PANELS_BACKWARD
                                      : TP_REGION_LAYER_PANELS;
    size_t at = 0;

    if (matrix == TP_MATRIX_HEAD)
        return tp_cell_region(cell,
                              backward ? TP_REGION_HEAD_PANELS_BACKWARD : TP_REGION_HEAD_PANELS, 0);
    for (int before = 0; before < (int)matrix; before++)
        at += tp_matrix_panels(&cell->shape, (enum tp_matrix)before);
    return tp_view_at(tp_cell_region(cell, region, layer), at);
}

static enum tp_status pack(struct tp_cell *cell, enum tp_matrix matrix, int layer,
                           enum tp_product product)
{
    const struct tp_gemm shape = tp_product_shape(&cell->shape, matrix, product, 1);
    struct tp_panels *panels = &cell->panels[index_of(matrix, layer, product)];

    TP_TRY(tp_packed_write(cell->device, panels_of(cell, matrix, layer, product),
                           cell->tensors[TP_WEIGHT][row_of(cell, matrix, layer)], &shape));
    panels->used = true;
    panels->current = true;
    if (share_place(cell, matrix))
        cell->panels[index_of(matrix, layer, other(product))].current = false;
    return TP_OK;
}

static size_t panels_count(const struct tp_cell *cell)
{
    return 2 * (size_t)cell->shape.layers.n_layer * TP_MATRICES;
}

void tp_cell_weights_changed(struct tp_cell *cell)
{
    for (size_t i = 0; i < panels_count(cell); i++)
        cell->panels[i].current = false;
}

enum tp_status tp_cell_pack(struct tp_cell *cell)
{
    for (size_t i = 0; i < panels_count(cell); i++) {
        const enum tp_matrix matrix = (enum tp_matrix)(i / 2 % TP_MATRICES);
        const enum tp_product product = i % 2 ? TP_PRODUCT_BACKWARD : TP_PRODUCT_FORWARD;
        const bool later = product == TP_PRODUCT_BACKWARD && share_place(cell, matrix);
        if (cell->panels[i].used && !cell->panels[i].current && !later)
            TP_TRY(pack(cell, matrix, (int)(i / 2 / TP_MATRICES), product));
    }
    return TP_OK;
}

/* ---- Products ---- */

enum tp_status tp_cell_multiply(struct tp_cell *cell, enum tp_matrix matrix, int layer,
                                enum tp_product product, struct tp_view y, struct tp_view x,
                                size_t rows)
{
    const struct tp_gemm shape = tp_product_shape(&cell->shape, matrix, product, rows);

    if (!tp_gemm_is_packed(cell->device, &shape))
        return tp_gemm(cell->device, y, x, cell->tensors[TP_WEIGHT][row_of(cell, matrix, layer)],
                       &shape);
    if (!cell->panels[index_of(matrix, layer, product)].current)
        TP_TRY(pack(cell, matrix, layer, product));
    return tp_packed_gemm(cell->device, y, x, panels_of(cell, matrix, layer, product), &shape);
}

enum tp_status tp_cell_add_product(struct tp_cell *cell, enum tp_matrix matrix, struct tp_view dw,
                                   struct tp_view x, struct tp_view dy, size_t rows)
{
    const struct tp_gemm shape = tp_product_shape(&cell->shape, matrix, TP_PRODUCT_GRADIENT, rows);
    const bool transposed = matrix == TP_MATRIX_HEAD;
    struct tp_view a = transposed ? dy : x, b = transposed ? x : dy;
    struct tp_view panels = tp_cell_region(cell, TP_REGION_GRADIENT_PANELS, 0);

    if (!tp_gemm_is_packed(cell->device, &shape))
        return tp_gemm(cell->device, dw, a, b, &shape);
    TP_TRY(tp_packed_write(cell->device, panels, b, &shape));
    return tp_packed_gemm(cell->device, dw, a, panels, &shape);
}

/* ---- Before they run ---- */

static bool contains(const struct tp_gemm *kinds, int count, const struct tp_gemm *kind)
{
    for (int i = 0; i < count; i++)
        if (tp_gemm_is_kind(&kinds[i], kind))
            return true;
    return false;
}

/* Tokens of a product at most. */
static size_t most_rows(const struct tp_stage_shape *shape, enum tp_matrix matrix,
                        enum tp_product product)
{
    if (matrix == TP_MATRIX_HEAD)
        return tp_head_rows(shape);
    return product == TP_PRODUCT_GRADIENT ? tp_gradient_rows(shape) : shape->unit_rows;
}

int tp_cell_gemm_kinds(const struct tp_stage_shape *shape, size_t rows,
                       struct tp_gemm kinds[TP_CELL_KINDS])
{
    const int products = shape->train ? TP_PRODUCTS : TP_PRODUCT_BACKWARD;
    struct tp_stage_shape largest = *shape;
    int count = 0;

    largest.unit_rows = rows;
    for (int matrix = 0; matrix < TP_MATRICES; matrix++)
        for (int product = 0; product < products; product++) {
            const size_t most =
                most_rows(&largest, (enum tp_matrix)matrix, (enum tp_product)product);
            for (size_t at = 1; at < 2 * most && count < TP_CELL_KINDS; at *= 2) {
                const struct tp_gemm gemm =
                    tp_product_shape(shape, (enum tp_matrix)matrix, (enum tp_product)product, at);
                kinds[count] = tp_gemm_kind(&gemm);
                count += !contains(kinds, count, &kinds[count]);
            }
        }
    return count;
}

/* All products with a matrix, the gradient's with tokens of its own. */
static enum tp_status check(struct tp_device *device, const struct tp_stage_shape *shape,
                            enum tp_matrix matrix, size_t rows, size_t gradient_rows)
{
    for (int product = 0; product < (shape->train ? TP_PRODUCTS : TP_PRODUCT_BACKWARD); product++) {
        const bool gradient = product == TP_PRODUCT_GRADIENT;
        const struct tp_gemm gemm = tp_product_shape(shape, matrix, (enum tp_product)product,
                                                     gradient ? gradient_rows : rows);
        double error;
        TP_TRY(tp_gemm_check(device, &gemm, &error));
    }
    return TP_OK;
}

/* Is an earlier unit as large as this one? */
static bool seen_before(const struct tp_unit *units, int index)
{
    for (int i = 0; i < index; i++)
        if (tp_unit_rows(&units[i]) == tp_unit_rows(&units[index]))
            return true;
    return false;
}

enum tp_status tp_cell_check_gemm(struct tp_device *device, const struct tp_stage_shape *shape,
                                  const struct tp_unit *units, int n_units)
{
    const size_t chunk = tp_head_rows(shape);
    for (int i = 0; i < n_units; i++) {
        const size_t rows = tp_unit_rows(&units[i]);
        if (seen_before(units, i))
            continue;
        const size_t whole = (size_t)units[i].sequences * (size_t)shape->seq_len;
        for (int matrix = 0; matrix < TP_MATRIX_HEAD; matrix++)
            TP_TRY(check(device, shape, (enum tp_matrix)matrix, rows,
                         shape->delay_wgrad ? whole : rows));
        if (!tp_stage_is_last(&shape->layers, &shape->model))
            continue;
        const size_t most = rows < chunk ? rows : chunk, rest = rows % chunk;
        TP_TRY(check(device, shape, TP_MATRIX_HEAD, most, most));
        if (rows > chunk && rest != 0)
            TP_TRY(check(device, shape, TP_MATRIX_HEAD, rest, rest));
    }
    return TP_OK;
}
