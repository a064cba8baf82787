/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/parameters.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

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

struct tensor {
    const char *name;
    enum extent rows, columns; /* columns NONE: one dimension */
    enum kind kind;
};

static const struct tensor layer_tensors[TP_LAYER_TENSORS] = {
    [TP_LN_1_WEIGHT] = {"ln_1.weight", WIDTH, NONE, ONE},
    [TP_LN_1_BIAS] = {"ln_1.bias", WIDTH, NONE, ZERO},
    [TP_ATTN_WEIGHT] = {"attn.c_attn.weight", WIDTH, WIDTH_3, NORMAL},
    [TP_ATTN_BIAS] = {"attn.c_attn.bias", WIDTH_3, NONE, ZERO},
    [TP_ATTN_PROJ_WEIGHT] = {"attn.c_proj.weight", WIDTH, WIDTH, NORMAL_RESIDUAL},
    [TP_ATTN_PROJ_BIAS] = {"attn.c_proj.bias", WIDTH, NONE, ZERO},
    [TP_LN_2_WEIGHT] = {"ln_2.weight", WIDTH, NONE, ONE},
    [TP_LN_2_BIAS] = {"ln_2.bias", WIDTH, NONE, ZERO},
    [TP_FC_WEIGHT] = {"mlp.c_fc.weight", WIDTH, INNER, NORMAL},
    [TP_FC_BIAS] = {"mlp.c_fc.bias", INNER, NONE, ZERO},
    [TP_MLP_PROJ_WEIGHT] = {"mlp.c_proj.weight", INNER, WIDTH, NORMAL_RESIDUAL},
    [TP_MLP_PROJ_BIAS] = {"mlp.c_proj.bias", WIDTH, NONE, ZERO},
};

static const struct tensor embed_tensors[] = {
    [TP_PARAMETER_WTE] = {"wte.weight", VOCABULARY, WIDTH, NORMAL},
    [TP_PARAMETER_WPE] = {"wpe.weight", POSITIONS, WIDTH, NORMAL},
};

static const struct tensor final_tensors[] = {
    {"ln_f.weight", WIDTH, NONE, ONE},
    {"ln_f.bias", WIDTH, NONE, ZERO},
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

/* Place, layer and name of a row; gives the tensor of its place. */
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
    if (parameter->place == TP_PLACE_LAYER)
        snprintf(parameter->name, sizeof parameter->name, "h.%d.%s", parameter->layer,
                 tensor->name);
    else
        snprintf(parameter->name, sizeof parameter->name, "%s", tensor->name);
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
}

enum tp_status tp_parameters_init(struct tp_parameters *parameters, const struct tp_model *model)
{
    int count = tp_parameter_final_norm(model) + FINAL_TENSORS;
    struct tp_parameter *rows = calloc((size_t)count, sizeof *rows);

    if (!rows)
        return tp_fail(TP_ERR_MEMORY, "no memory for a table of %d parameters", count);
    for (int i = 0; i < count; i++)
        tp_parameter_describe(model, i, &rows[i]);
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
