/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this layer share: a cell's memory, and the parts of its forward and backward.
 */
#ifndef TP_CELL_PARTS_H
#define TP_CELL_PARTS_H

#include "base/rng.h"
#include "cell/cell.h"
#include "device/gemm.h"
#include "device/kernels.h"
#include "device/memory.h"

/* A bucket of the stage. */
struct tp_cell_bucket {
    struct tp_bucket of;
    struct tp_view views[TP_KINDS]; /* of moments the replica's share */
    struct tp_mapping mapping;      /* while replicas exchange it */
};

/* The state of a matrix's panels. */
struct tp_panels {
    bool used;    /* some product goes by them */
    bool current; /* they hold the weights as they are */
};

struct tp_cell {
    struct tp_device *device;
    struct tp_arena *arena;
    struct tp_stage_shape shape;
    const struct tp_parameters *parameters;
    bool first, last; /* the stage has the embedding, the head */
    struct tp_reduce reduce;
    struct tp_cell_bucket *buckets; /* [n_buckets], the last of the table first */
    int n_buckets;
    struct tp_view *tensors[TP_KINDS]; /* [parameters->count] first element of tp_cell_elements(),
                                          without buffer where there are none */
    struct tp_share *moments;          /* [parameters->count] which these are of moments */
    struct tp_view *regions[TP_REGION_COUNT]; /* [1], or [layers] where a region is per layer */
    struct tp_panels *panels; /* [layers, TP_MATRICES, 2] of each matrix, forward and backward */
    float *sums;              /* [partial sums] on the host */
    size_t n_sums;
    float *losses;                                /* [batch, T] on the host, last stage */
    struct tp_mapping *incoming[2], *outgoing[2]; /* [slots], per direction */
    struct tp_mapping tied[2];                    /* my part and the other's */
    struct tp_mapping *gradients; /* [slots] there is only the waiting for delayed ones */
    struct tp_cell_step step;     /* the present one, its tokens taken over */
    bool has_targets;
};

/* Elements of the op rank's part of a parameter. */
static inline size_t tp_cell_held(const struct tp_cell *cell, int row)
{
    return tp_parameter_held(&cell->parameters->at[row], cell->shape.op, cell->shape.op_rank);
}

/* A region of the stage, or of its layer-th layer. */
static inline struct tp_view tp_cell_region(const struct tp_cell *cell, enum tp_region region,
                                            int layer)
{
    return cell->regions[region][layer];
}

/* Where a unit's residual stream enters a layer: with the stage's input, or where the layer before
 * leaves it. */
struct tp_view tp_cell_input(const struct tp_cell *cell, int layer, const struct tp_unit *unit);

/* Rows of a region with C columns that belong to a unit; layers that are recomputed have memory for
 * one unit. */
static inline struct tp_view tp_cell_rows(const struct tp_cell *cell, enum tp_region region,
                                          int layer, const struct tp_unit *unit, size_t columns)
{
    const bool one = cell->shape.recompute && tp_region_is_per_layer(region);
    return tp_view_at(cell->regions[region][layer], one ? 0 : unit->row * columns);
}

/* A unit's message slot in OUTPUT or BACKWARD. */
static inline struct tp_view tp_cell_slot(const struct tp_cell *cell, enum tp_region region,
                                          enum tp_direction direction, const struct tp_unit *unit)
{
    const size_t slot = (size_t)unit->slot[direction] * cell->shape.unit_rows;
    return tp_view_at(cell->regions[region][0], slot * (size_t)cell->shape.model.n_embd);
}

/* Where a unit's forward leaves the residual stream: kept on the last stage, sent elsewhere. */
struct tp_view tp_cell_output(const struct tp_cell *cell, const struct tp_unit *unit);

/* Where a unit's tokens lie. */
static inline struct tp_tokens_at tp_cell_tokens_at(const struct tp_cell *cell,
                                                    const struct tp_unit *unit)
{
    return (struct tp_tokens_at){.sequences = unit->sequences,
                                 .S = unit->slice.length,
                                 .P = unit->slice.start,
                                 .T = cell->shape.seq_len};
}

/* The products with a matrix of the stage: y = x W, dx = dy W^T, and dW += x^T dy. */
enum tp_product { TP_PRODUCT_FORWARD, TP_PRODUCT_BACKWARD, TP_PRODUCT_GRADIENT, TP_PRODUCTS };
struct tp_gemm tp_product_shape(const struct tp_stage_shape *shape, enum tp_matrix matrix,
                                enum tp_product product, size_t rows);

/* The first or second of them, from x to y, for so many rows; the head's layer is 0. */
enum tp_status tp_cell_multiply(struct tp_cell *cell, enum tp_matrix matrix, int layer,
                                enum tp_product product, struct tp_view y, struct tp_view x,
                                size_t rows);

/* The third, added to dw. */
enum tp_status tp_cell_add_product(struct tp_cell *cell, enum tp_matrix matrix, struct tp_view dw,
                                   struct tp_view x, struct tp_view dy, size_t rows);

/* Weights have changed: panels are to be packed anew; packs those that products go by. */
void tp_cell_weights_changed(struct tp_cell *cell);
enum tp_status tp_cell_pack(struct tp_cell *cell);

/* Sums count floats, or takes the largest of each, over the op ranks, when there are some: waits
 * for what was enqueued, and until it is done. */
enum tp_status tp_cell_reduce(struct tp_cell *cell, enum tp_reduction reduction,
                              struct tp_view data, size_t count);

/* The masks of a place of a layer (0 for the embedding) for a unit: none in evaluation. */
struct tp_dropout tp_cell_dropout(const struct tp_cell *cell, enum tp_dropout_place place,
                                  int layer, const struct tp_unit *unit);

/* Embedding of a unit into the first layer's input, and its gradient. First stage. */
enum tp_status tp_embed_forward(struct tp_cell *cell, const struct tp_unit *unit);
enum tp_status tp_embed_backward(struct tp_cell *cell, const struct tp_unit *unit,
                                 struct tp_view dx);

/* One layer, counted from 0 within the stage: from its input rows to y; and from the gradient of y
 * to that of its input, both in dx. For a y without buffer only what a backward needs is computed.
 */
enum tp_status tp_layer_forward(struct tp_cell *cell, int layer, const struct tp_unit *unit,
                                struct tp_view y);
enum tp_status tp_layer_backward(struct tp_cell *cell, int layer, const struct tp_unit *unit,
                                 struct tp_view dx);

/* Adds the weight gradients of so many rows from this unit's on, whose backwards are computed,
 * where they are delayed. */
enum tp_status tp_layer_gradients(struct tp_cell *cell, int layer, const struct tp_unit *first,
                                  size_t rows);

/* Final norm, tied head and loss of a unit, chunk by chunk of logits; in training with the
 * gradients of wte and of the norm's output. Then the norm's own gradient, which begins a backward.
 * Last stage. */
enum tp_status tp_head_forward(struct tp_cell *cell, const struct tp_unit *unit);
enum tp_status tp_head_backward(struct tp_cell *cell, const struct tp_unit *unit,
                                struct tp_view dx);

#endif
