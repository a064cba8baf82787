/* SPDX-License-Identifier: Apache-2.0 */
/* The parameter table: every tensor of a model, in the order of the file and of every sum.
 * Initialisation, AdamW, norm, exchange and checkpoints are loops over it. It also says how the op
 * ranks of a stage share a tensor, and which tensors replicas exchange together. */
#ifndef TP_MODEL_PARAMETERS_H
#define TP_MODEL_PARAMETERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/share.h"
#include "base/status.h"
#include "model/model.h"

/* The tensors of one layer, in the order of the table. */
enum tp_layer_tensor {
    TP_LN_1_WEIGHT,
    TP_LN_1_BIAS,
    TP_ATTN_WEIGHT, /* c_attn: [C, 3C] */
    TP_ATTN_BIAS,
    TP_ATTN_PROJ_WEIGHT, /* [C, C] */
    TP_ATTN_PROJ_BIAS,
    TP_LN_2_WEIGHT,
    TP_LN_2_BIAS,
    TP_FC_WEIGHT, /* [C, n_inner] */
    TP_FC_BIAS,
    TP_MLP_PROJ_WEIGHT, /* [n_inner, C] */
    TP_MLP_PROJ_BIAS,
    TP_LAYER_TENSORS
};

/* Where a tensor lives: with the embedding, in a layer, with the final norm. */
enum tp_place { TP_PLACE_EMBED, TP_PLACE_LAYER, TP_PLACE_FINAL };

/* How a tensor starts. */
enum tp_initial { TP_INITIAL_ZERO, TP_INITIAL_ONE, TP_INITIAL_NORMAL };

struct tp_parameter {
    char name[48]; /* Hugging Face's, without "transformer." */
    int ndim;
    size_t shape[2];
    size_t count; /* elements */
    enum tp_place place;
    int layer;                   /* for TP_PLACE_LAYER, else -1 */
    bool tied;                   /* held by the last stage too, as the head: wte */
    bool decay;                  /* weight decay applies: two dimensions */
    bool split;                  /* op ranks have a part each; else each of them has it whole */
    size_t outer, length, inner; /* the tensor as [outer, length, inner], which is split by length;
                                    the heads of Q, K and V lie in each of 3 such lengths */
    enum tp_initial initial;
    double std; /* for TP_INITIAL_NORMAL */
};

struct tp_parameters {
    int count;
    struct tp_parameter *at; /* wte, wpe, layers in order, ln_f.weight, ln_f.bias */
};

/* Makes one row of a checked model's table, but for its name: planners ask for many. Local. */
void tp_parameter_describe(const struct tp_model *model, int row, struct tp_parameter *parameter);

/* Makes the table of a checked model. Local. TP_ERR_MEMORY. */
enum tp_status tp_parameters_init(struct tp_parameters *parameters, const struct tp_model *model);
void tp_parameters_fini(struct tp_parameters *parameters);

/* Rows of the table. Local. */
#define TP_PARAMETER_WTE 0
#define TP_PARAMETER_WPE 1
int tp_parameter_of_layer(int layer, enum tp_layer_tensor tensor);
int tp_parameter_final_norm(const struct tp_model *model); /* ln_f.weight; ln_f.bias is next */

/* Layers [first_layer, first_layer + n_layer) of a model: one pipeline stage. */
struct tp_stage_layers {
    int first_layer, n_layer;
};
bool tp_stage_is_first(const struct tp_stage_layers *stage);
bool tp_stage_is_last(const struct tp_stage_layers *stage, const struct tp_model *model);

/* Does the stage hold the parameter? wte is held by the first stage (embedding) and by the last
 * one (tied head). Local. */
bool tp_parameter_on_stage(const struct tp_parameter *parameter, const struct tp_model *model,
                           const struct tp_stage_layers *stage);

/* Is the stage the one that counts it in the norm and writes it to a checkpoint: the first that
 * holds it? Local. */
bool tp_parameter_owned(const struct tp_parameter *parameter, const struct tp_model *model,
                        const struct tp_stage_layers *stage);

/* Is it this op rank of the stage that counts it, where each element of a model counts once: on the
 * stage that owns it, every rank its part, and the first of them what each has whole? Local. */
bool tp_parameter_counted(const struct tp_parameter *parameter, const struct tp_model *model,
                          const struct tp_stage_layers *stage, int op_rank);

/* ---- The part of an op rank (tp_share_of() of the length) ---- */

/* Elements that op rank number rank of op has of a parameter. Local. */
size_t tp_parameter_held(const struct tp_parameter *parameter, int op, int rank);

/* Copies the rank's part, tp_parameter_held() elements in the tensor's layout, out of the whole
 * tensor, and back into it. Local. */
void tp_parameter_take(const struct tp_parameter *parameter, int op, int rank, const float *whole,
                       float *part);
void tp_parameter_put(const struct tp_parameter *parameter, int op, int rank, const float *part,
                      float *whole);

/* ---- Buckets: what replicas exchange together ---- */

/* Neighbours in the table, one behind the other in memory, each rounded up to whole vectors: wte
 * (bucket 0), wpe (1), each layer's tensors, the final norm's. They do not depend on the stages. */
struct tp_bucket {
    int row, n_rows; /* of the table */
    size_t count;    /* elements of an op rank */
};
int tp_bucket_count(const struct tp_model *model);
void tp_bucket_describe(const struct tp_model *model, int bucket, int op, int rank,
                        struct tp_bucket *described);
int tp_bucket_of(const struct tp_model *model, int row);

/* Which elements of an op rank's part of a parameter have their moments with replica number shard,
 * when shards of them share each bucket's. Local. */
struct tp_share tp_parameter_shard(const struct tp_model *model, int row, int op, int rank,
                                   int shards, int shard);

/* Elements that a tensor takes in its bucket. Local. */
size_t tp_bucket_room(const struct tp_parameter *parameter, int op, int rank);

/* Elements [first, first + count) of a parameter's initial value as GPT-2 does: normal with
 * initializer_range, residual projections scaled by 1/sqrt(2 L). Depends on seed, parameter and
 * element alone. row is the parameter's row in the table. Local. */
void tp_parameter_initial(const struct tp_parameters *parameters, int row, uint64_t seed,
                          size_t first, size_t count, float *out);

#endif
