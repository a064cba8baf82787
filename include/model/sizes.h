/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory a stage takes, region by region. The same numbers size the arena of a cell and
 * let a planner predict it. */
#ifndef TP_MODEL_SIZES_H
#define TP_MODEL_SIZES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/footprint.h"
#include "base/share.h"
#include "model/model.h"
#include "model/parameters.h"

/* What a stage has to hold. */
struct tp_stage_shape {
    struct tp_model model;
    struct tp_stage_layers layers;
    int seq_len;       /* T */
    int batch;         /* sequences of a step */
    int caches;        /* sequences with live keys and values at once */
    int group;         /* sequences of the largest group */
    size_t rows;       /* tokens with live activations at once */
    size_t input_rows; /* and those whose input to the stage is there, or on its way */
    size_t unit_rows;  /* tokens of the largest unit */
    int slots;         /* message slots per direction */
    bool train;        /* with gradients, moments and backward memory */
    bool recompute;    /* of activations only the stage's input lives on until the backward */
    bool delay_wgrad;  /* a group's weight gradients come together, after its last backward */
    bool alternates;   /* some forward comes after a backward of its flight */
    int op, op_rank;   /* ranks that share the stage, each with a part of every layer's heads and
                          inner width and of the vocabulary, and which of them this is: the first
                          one's part is largest; op 0 or 1: none do */
    int shards, shard; /* ranks that share the optimizer's moments, and which of them this is; 0 or
                          1: none do */
    int panel;         /* of the footprint: set by what sizes a stage for a device, 0 until then */
};

/* The matrices that a stage multiplies by: of each layer, and the tied head's. */
enum tp_matrix {
    TP_MATRIX_QKV,       /* [C, 3C] */
    TP_MATRIX_ATTENTION, /* [C, C] the projection behind attention */
    TP_MATRIX_FC,        /* [C, n_inner] */
    TP_MATRIX_MLP,       /* [n_inner, C] */
    TP_MATRIX_HEAD,      /* [C, V] kept transposed, as wte */
    TP_MATRICES
};

/* A rank's part of one: y[rows, n] = x[rows, k] W. Local. */
struct tp_matrix_size {
    size_t k, n;
};
struct tp_matrix_size tp_matrix_size(const struct tp_stage_shape *shape, enum tp_matrix matrix);

/* Elements of its panels (device/packed.h), enough for W, by which a forward multiplies, and for
 * its transpose, by which a backward does. Local. */
size_t tp_matrix_panels(const struct tp_stage_shape *shape, enum tp_matrix matrix);

/* Regions of memory besides parameters. Names say what a row of the region is, with the rank's own
 * part of H, n_inner, V and of heads' columns where op ranks share them; TP_REGION_LAYER_*
 * exist once per layer, and have unit_rows in place of rows when layers are recomputed; gradients,
 * BACKWARD, TIED and SUMS exist in training only. */
enum tp_region {
    TP_REGION_INPUT,           /* [input_rows, C] residual stream entering the stage: where messages
                                  arrive */
    TP_REGION_LAYER_INPUT,     /* [rows, C] and entering a layer; of all layers but the first */
    TP_REGION_LAYER_MIDDLE,    /* [rows, C] residual stream between attention and MLP */
    TP_REGION_LAYER_NORM_1,    /* [rows, 2] mean and 1/standard deviation */
    TP_REGION_LAYER_NORM_2,    /* [rows, 2] */
    TP_REGION_LAYER_QUERY,     /* [rows, C] */
    TP_REGION_LAYER_ATTENTION, /* [rows, C] output of attention, before its projection */
    TP_REGION_LAYER_LSE,       /* [rows, H] log-sum-exp of the scores */
    TP_REGION_LAYER_HIDDEN,    /* [rows, n_inner] before GELU */
    TP_REGION_LAYER_KEY,       /* [caches, H, T, D'] D' is D rounded up to 16 */
    TP_REGION_LAYER_VALUE,
    TP_REGION_LAYER_KEY_GRADIENT, /* [group, H, T, D'] */
    TP_REGION_LAYER_VALUE_GRADIENT,
    TP_REGION_LAYER_QKV_GRADIENT, /* [rows, 3C] of the four products' results, until they meet what
                                     was multiplied, where weight gradients are delayed */
    TP_REGION_LAYER_BRANCH_GRADIENT, /* [rows, C] of attention's projection */
    TP_REGION_LAYER_HIDDEN_GRADIENT, /* [rows, n_inner] */
    TP_REGION_LAYER_OUTPUT_GRADIENT, /* [rows, C] of the MLP's projection */
    TP_REGION_OUTPUT,          /* [rows, C] on the last stage; else [slots, unit_rows, C] to send */
    TP_REGION_BACKWARD,        /* [slots, unit_rows, C] gradient of the residual stream: received,
                                  changed in place, sent */
    TP_REGION_NORMED,          /* [unit_rows, C] scratch: a layer norm's output */
    TP_REGION_NORMED_GRADIENT, /* [unit_rows, C] scratch */
    TP_REGION_QKV, /* [unit_rows, 3C] scratch: queries, keys, values or their gradient */
    TP_REGION_ATTENTION_GRADIENT, /* [unit_rows, C] scratch */
    TP_REGION_QUERY_GRADIENT,     /* [unit_rows, C] scratch */
    TP_REGION_GELU,               /* [unit_rows, n_inner] scratch: GELU's output */
    TP_REGION_GELU_GRADIENT,      /* [unit_rows, n_inner] scratch; none where it is delayed */
    TP_REGION_INPUT_TOKENS,       /* [batch, T] int32, first stage */
    TP_REGION_TARGET_TOKENS,      /* [batch, T] int32, last stage */
    TP_REGION_FINAL_NORM,         /* [rows, 2] last stage */
    TP_REGION_FINAL_GRADIENT,     /* [rows, C] last stage: gradient of the final norm's output */
    TP_REGION_LOGITS,             /* [head_rows, V] last stage: one chunk of logits */
    TP_REGION_LOGIT_SUMS, /* [head_rows, 3] last stage: the largest logit of each row, then the sum
                             of exponentials and the target's logit */
    TP_REGION_LAYER_PANELS, /* panels of the layer's matrices, in their order, where there are any;
                               of their transposes while a flight goes backward */
    TP_REGION_LAYER_PANELS_BACKWARD, /* those apart, in training whose directions alternate */
    TP_REGION_HEAD_PANELS,           /* last stage */
    TP_REGION_HEAD_PANELS_BACKWARD,
    TP_REGION_GRADIENT_PANELS, /* [unit_rows, or of a group's, most columns] scratch: a product's
                                  right side, in training */
    TP_REGION_LOSS,            /* [batch, T] last stage: cross-entropy of each target */
    TP_REGION_HEAD_GRADIENT,   /* [V, C] the head's part of wte's gradient, when one stage is first
                                  and last; the last of several has it in the gradient itself */
    TP_REGION_TIED, /* [V, C] the other stage's part, on the first and the last of several stages */
    TP_REGION_SUMS, /* partial sums of squares of all the stage's gradients, back to back in the
                       order of the table: ceil(count / TP_SUM_BLOCK) of each */
    TP_REGION_COUNT
};

/* An op rank's part of a whole (heads, n_inner, vocab_size), and a replica's of a bucket's moments.
 * Local. */
struct tp_share tp_stage_share(const struct tp_stage_shape *shape, int whole);
struct tp_share tp_stage_shard(const struct tp_stage_shape *shape, size_t count);

/* What errors call a region, whether layers have one each, and how many a stage has of it: one, or
 * as many as layers have one. Local. */
const char *tp_region_name(enum tp_region region);
bool tp_region_is_per_layer(enum tp_region region);
size_t tp_region_copies(enum tp_region region, const struct tp_stage_shape *shape);

/* 4-byte elements of one region; 0 when this stage has none; SIZE_MAX when there are more than
 * size_t holds, as in all functions here. Local. */
size_t tp_region_count(enum tp_region region, const struct tp_stage_shape *shape);

/* Bytes of a rank of a stage: regions, weights, gradients and moments. Local. */
size_t tp_stage_bytes(const struct tp_stage_shape *shape, const struct tp_footprint *footprint);

/* Parameters that a rank of a stage holds, tied ones on both of their stages. Local. */
size_t tp_stage_parameters(const struct tp_stage_shape *shape);

/* Head width as it is stored in key and value caches: D rounded up to the vector of 16. Local. */
int tp_head_stride(const struct tp_model *model);

/* Tokens at most whose weight gradients are one product: a unit's, or a group's where they are
 * delayed. Local. */
size_t tp_gradient_rows(const struct tp_stage_shape *shape);

/* Rows of logits that exist at once: up to 32 MiB of them, at least 16 rows, at most a unit's.
 * Local. */
size_t tp_head_rows(const struct tp_stage_shape *shape);

#endif
