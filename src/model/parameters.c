/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/footprint.h"
#include "base/rng.h"
#include "base/share.h"

/* What a side of a tensor is as long as. */
enum extent { NONE, WIDTH, WIDTH_3, INNER, VOCABULARY, POSITIONS };

static size_t extent_of(const struct tp_model *model, enum extent extent)
{
    switch (extent) {
    case WIDTH:
        return (size_t)model->n_embd;
    case WIDTH_3:
        return 3 * (size_t)model->n_embd;
    case INNER:
        return (size_t)model->n_inner;
    case VOCABULARY:
        return (size_t)model->vocab_size;
    case POSITIONS:
        return (size_t)model->n_positions;
    case NONE:
        break;
    }
    return 1;
}

/* A tensor's kind: NORMAL_RESIDUAL are the projections that end a residual branch. */
enum kind { ZERO, ONE, NORMAL, NORMAL_RESIDUAL };

/* How op ranks share a tensor (Megatron-LM, arXiv 1909.08053): before the heads and before GELU by
 * columns, behind them by rows. */
enum split { WHOLE, BY_ROWS, BY_COLUMNS, BY_HEADS };

struct tensor {
    const char *name;
    enum extent rows, columns; /* columns NONE: one dimension */
    enum kind kind;
    enum split split;
};

static const struct tensor layer_tensors[TP_LAYER_TENSORS] = {
    [TP_LN_1_WEIGHT] = {"ln_1.weight", WIDTH, NONE, ONE, WHOLE},
    [TP_LN_1_BIAS] = {"ln_1.bias", WIDTH, NONE, ZERO, WHOLE},
    [TP_ATTN_WEIGHT] = {"attn.c_attn.weight", WIDTH, WIDTH_3, NORMAL, BY_HEADS},
    [TP_ATTN_BIAS] = {"attn.c_attn.bias", WIDTH_3, NONE, ZERO, BY_HEADS},
    [TP_ATTN_PROJ_WEIGHT] = {"attn.c_proj.weight", WIDTH, WIDTH, NORMAL_RESIDUAL, BY_ROWS},
    [TP_ATTN_PROJ_BIAS] = {"attn.c_proj.bias", WIDTH, NONE, ZERO, WHOLE},
    [TP_LN_2_WEIGHT] = {"ln_2.weight", WIDTH, NONE, ONE, WHOLE},
    [TP_LN_2_BIAS] = {"ln_2.bias", WIDTH, NONE, ZERO, WHOLE},
    [TP_FC_WEIGHT] = {"mlp.c_fc.weight", WIDTH, INNER, NORMAL, BY_COLUMNS},
    [TP_FC_BIAS] = {"mlp.c_fc.bias", INNER, NONE, ZERO, BY_ROWS},
    [TP_MLP_PROJ_WEIGHT] = {"mlp.c_proj.weight", INNER, WIDTH, NORMAL_RESIDUAL, BY_ROWS},
    [TP_MLP_PROJ_BIAS] = {"mlp.c_proj.bias", WIDTH, NONE, ZERO, WHOLE},
};

static const struct tensor embed_tensors[] = {
    [TP_PARAMETER_WTE] = {"wte.weight", VOCABULARY, WIDTH, NORMAL, BY_ROWS},
    [TP_PARAMETER_WPE] = {"wpe.weight", POSITIONS, WIDTH, NORMAL, WHOLE},
};

static const struct tensor final_tensors[] = {
    {"ln_f.weight", WIDTH, NONE, ONE, WHOLE},
    {"ln_f.bias", WIDTH, NONE, ZERO, WHOLE},
};

enum {
    EMBED_TENSORS = sizeof embed_tensors / sizeof *embed_tensors,
    FINAL_TENSORS = sizeof final_tensors / sizeof *final_tensors
};

int tp_parameter_of_layer(int layer, enum tp_layer_tensor tensor)
{
    return EMBED_TENSORS + layer * TP_LAYER_TENSORS + (int)tensor;
}

int tp_parameter_final_norm(const struct tp_model *model)
{
    return tp_parameter_of_layer(model->n_layer, 0);
}

/* Place and layer of a row; gives the tensor of its place. */
static const struct tensor *locate(const struct tp_model *model, int row,
                                   struct tp_parameter *parameter)
{
    const struct tensor *tensor;

    parameter->layer = -1;
    if (row < EMBED_TENSORS) {
        parameter->place = TP_PLACE_EMBED;
        tensor = &embed_tensors[row];
    } else if (row >= tp_parameter_final_norm(model)) {
        parameter->place = TP_PLACE_FINAL;
        tensor = &final_tensors[row - tp_parameter_final_norm(model)];
    } else {
        parameter->place = TP_PLACE_LAYER;
        parameter->layer = (row - EMBED_TENSORS) / TP_LAYER_TENSORS;
        tensor = &layer_tensors[(row - EMBED_TENSORS) % TP_LAYER_TENSORS];
    }
    return tensor;
}

static void set_initial(const struct tp_model *model, enum kind kind,
                        struct tp_parameter *parameter)
{
    static const enum tp_initial initial[] = {
        [ZERO] = TP_INITIAL_ZERO,
        [ONE] = TP_INITIAL_ONE,
        [NORMAL] = TP_INITIAL_NORMAL,
        [NORMAL_RESIDUAL] = TP_INITIAL_NORMAL,
    };

    parameter->initial = initial[kind];
    if (kind == NORMAL)
        parameter->std = model->initializer_range;
    if (kind == NORMAL_RESIDUAL)
        parameter->std = model->initializer_range / sqrt(2.0 * model->n_layer);
}

/* The tensor as [outer, length, inner], of which op ranks share the length. */
static void set_split(const struct tensor *tensor, struct tp_parameter *parameter)
{
    const size_t rows = parameter->shape[0], columns = parameter->shape[1];

    parameter->split = tensor->split != WHOLE;
    switch (tensor->split) {
    case WHOLE:
    case BY_ROWS:
        parameter->outer = 1;
        parameter->length = rows;
        break;
    case BY_COLUMNS:
        parameter->outer = rows;
        parameter->length = columns;
        break;
    case BY_HEADS:
        parameter->length = parameter->ndim == 1 ? rows / 3 : columns / 3;
        parameter->outer = parameter->count / parameter->length;
        break;
    }
    parameter->inner = parameter->count / (parameter->outer * parameter->length);
}

void tp_parameter_describe(const struct tp_model *model, int row, struct tp_parameter *parameter)
{
    *parameter = (struct tp_parameter){0};

    const struct tensor *tensor = locate(model, row, parameter);
    parameter->ndim = tensor->columns == NONE ? 1 : 2;
    parameter->shape[0] = extent_of(model, tensor->rows);
    parameter->shape[1] = extent_of(model, tensor->columns);
    parameter->count = parameter->shape[0] * parameter->shape[1];
    parameter->decay = parameter->ndim == 2;
    parameter->tied = row == TP_PARAMETER_WTE;
    set_initial(model, tensor->kind, parameter);
    set_split(tensor, parameter);
}

static void set_name(const struct tp_model *model, int row, struct tp_parameter *parameter)
{
    const struct tensor *tensor = locate(model, row, parameter);

    if (parameter->place == TP_PLACE_LAYER)
        snprintf(parameter->name, sizeof parameter->name, "h.%d.%s", parameter->layer,
                 tensor->name);
    else
        snprintf(parameter->name, sizeof parameter->name, "%s", tensor->name);
}

enum tp_status tp_parameters_init(struct tp_parameters *parameters, const struct tp_model *model)
{
    int count = tp_parameter_final_norm(model) + FINAL_TENSORS;
    struct tp_parameter *rows = calloc((size_t)count, sizeof *rows);

    if (!rows)
        return tp_fail(TP_ERR_MEMORY, "no memory for a table of %d parameters", count);
    for (int i = 0; i < count; i++) {
        tp_parameter_describe(model, i, &rows[i]);
        set_name(model, i, &rows[i]);
    }
    parameters->count = count;
    parameters->at = rows;
    return TP_OK;
}

void tp_parameters_fini(struct tp_parameters *parameters)
{
    free(parameters->at);
    *parameters = (struct tp_parameters){0};
}

bool tp_stage_is_first(const struct tp_stage_layers *stage)
{
    return stage->first_layer == 0;
}

bool tp_stage_is_last(const struct tp_stage_layers *stage, const struct tp_model *model)
{
    return stage->first_layer + stage->n_layer == model->n_layer;
}

bool tp_parameter_on_stage(const struct tp_parameter *parameter, const struct tp_model *model,
                           const struct tp_stage_layers *stage)
{
    int layer = parameter->layer - stage->first_layer;

    switch (parameter->place) {
    case TP_PLACE_EMBED:
        return tp_stage_is_first(stage) || (parameter->tied && tp_stage_is_last(stage, model));
    case TP_PLACE_LAYER:
        return layer >= 0 && layer < stage->n_layer;
    case TP_PLACE_FINAL:
        break;
    }
    return tp_stage_is_last(stage, model);
}

bool tp_parameter_owned(const struct tp_parameter *parameter, const struct tp_model *model,
                        const struct tp_stage_layers *stage)
{
    if (parameter->place == TP_PLACE_EMBED)
        return tp_stage_is_first(stage);
    return tp_parameter_on_stage(parameter, model, stage);
}

bool tp_parameter_counted(const struct tp_parameter *parameter, const struct tp_model *model,
                          const struct tp_stage_layers *stage, int op_rank)
{
    return tp_parameter_owned(parameter, model, stage) && (parameter->split || op_rank == 0);
}

/* ---- The part of an op rank ---- */

/* The rank's share of a parameter's length. */
static struct tp_share share_of(const struct tp_parameter *parameter, int op, int rank)
{
    return parameter->split && op > 1 ? tp_share_of(parameter->length, op, rank)
                                      : (struct tp_share){0, parameter->length};
}

size_t tp_parameter_held(const struct tp_parameter *parameter, int op, int rank)
{
    return parameter->outer * share_of(parameter, op, rank).count * parameter->inner;
}

void tp_parameter_take(const struct tp_parameter *parameter, int op, int rank, const float *whole,
                       float *part)
{
    const struct tp_share share = share_of(parameter, op, rank);
    const size_t inner = parameter->inner, run = share.count * inner;

    for (size_t i = 0; i < parameter->outer; i++)
        memcpy(part + i * run, whole + (i * parameter->length + share.first) * inner,
               run * sizeof *part);
}

void tp_parameter_put(const struct tp_parameter *parameter, int op, int rank, const float *part,
                      float *whole)
{
    const struct tp_share share = share_of(parameter, op, rank);
    const size_t inner = parameter->inner, run = share.count * inner;

    for (size_t i = 0; i < parameter->outer; i++)
        memcpy(whole + (i * parameter->length + share.first) * inner, part + i * run,
               run * sizeof *part);
}

/* ---- Buckets ---- */

/* What two ranges have in common. */
static struct tp_share overlap(struct tp_share a, struct tp_share b)
{
    const size_t a_end = a.first + a.count, b_end = b.first + b.count;
    const size_t first = a.first > b.first ? a.first : b.first, end = a_end < b_end ? a_end : b_end;

    return (struct tp_share){first, first < end ? end - first : 0};
}

struct tp_share tp_parameter_shard(const struct tp_model *model, int row, int op, int rank,
                                   int shards, int shard)
{
    struct tp_parameter parameter;
    struct tp_bucket bucket;
    struct tp_share tensor = {0, 0}; /* in the bucket */

    tp_bucket_describe(model, tp_bucket_of(model, row), op, rank, &bucket);
    for (int i = bucket.row; i <= row; i++) {
        tensor.first += i > bucket.row ? tp_bucket_room(&parameter, op, rank) : 0;
        tp_parameter_describe(model, i, &parameter);
    }
    tensor.count = tp_parameter_held(&parameter, op, rank);
    struct tp_share mine = overlap(tensor, tp_share_of(bucket.count, shards, shard));
    mine.first -= mine.count > 0 ? tensor.first : mine.first;
    return mine;
}

int tp_bucket_count(const struct tp_model *model)
{
    return EMBED_TENSORS + model->n_layer + 1;
}

int tp_bucket_of(const struct tp_model *model, int row)
{
    if (row < EMBED_TENSORS)
        return row;
    if (row >= tp_parameter_final_norm(model))
        return EMBED_TENSORS + model->n_layer;
    return EMBED_TENSORS + (row - EMBED_TENSORS) / TP_LAYER_TENSORS;
}

size_t tp_bucket_room(const struct tp_parameter *parameter, int op, int rank)
{
    return (tp_parameter_held(parameter, op, rank) + TP_LANES - 1) / TP_LANES * TP_LANES;
}

void tp_bucket_describe(const struct tp_model *model, int bucket, int op, int rank,
                        struct tp_bucket *described)
{
    const int layer = bucket - EMBED_TENSORS;
    struct tp_parameter parameter;

    *described = (struct tp_bucket){.row = bucket, .n_rows = 1};
    if (layer >= 0) {
        described->row = tp_parameter_of_layer(layer, 0);
        described->n_rows = layer < model->n_layer ? TP_LAYER_TENSORS : FINAL_TENSORS;
    }
    for (int i = 0; i < described->n_rows; i++) {
        tp_parameter_describe(model, described->row + i, &parameter);
        described->count += tp_bucket_room(&parameter, op, rank);
    }
}

void tp_parameter_initial(const struct tp_parameters *parameters, int row, uint64_t seed,
                          size_t first, size_t count, float *out)
{
    const struct tp_parameter *parameter = &parameters->at[row];
    struct tp_rng rng = {.seed = seed, .use = TP_RNG_INIT, .stream = (uint32_t)row};

    if (parameter->initial == TP_INITIAL_NORMAL) {
        tp_rng_normal(&rng, first, count, parameter->std, out);
        return;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = parameter->initial == TP_INITIAL_ONE ? 1 : 0;
}
