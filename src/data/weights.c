/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/weights.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tp_weights {
    struct tp_safetensors *file;
    const struct tp_parameters *parameters;
    const struct tp_tensor_info **tensors; /* [parameters->count] */
};

/* ---- Names ---- */

/* What the file's names may begin with. */
static const char *without_prefix(const char *name)
{
    static const char prefix[] = "transformer.";
    size_t length = sizeof prefix - 1;

    return strncmp(name, prefix, length) == 0 ? name + length : name;
}

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);

    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Tensors that are no parameters: the masks of older files, and the head, which is wte. */
static bool is_skipped(const char *name)
{
    return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
           strcmp(name, "lm_head.weight") == 0;
}

static int find_row(const struct tp_parameters *parameters, const char *name)
{
    for (int row = 0; row < parameters->count; row++)
        if (strcmp(parameters->at[row].name, name) == 0)
            return row;
    return -1;
}

/* ---- Checks ---- */

static void print_shape(int ndim, const size_t *shape, char *out, size_t size)
{
    int used = snprintf(out, size, "[");

    for (int i = 0; i < ndim; i++)
        used += snprintf(out + used, size - (size_t)used, "%s%zu", i > 0 ? ", " : "", shape[i]);
    snprintf(out + used, size - (size_t)used, "]");
}

static enum tp_status check_tensor(const char *path, const struct tp_tensor_info *tensor,
                                   const struct tp_parameter *parameter)
{
    char is[24 * TP_SAFETENSORS_NDIM], expected[64];
    bool same = tensor->ndim == parameter->ndim;

    for (int i = 0; same && i < parameter->ndim; i++)
        same = tensor->shape[i] == parameter->shape[i];
    if (!same) {
        print_shape(tensor->ndim, tensor->shape, is, sizeof is);
        print_shape(parameter->ndim, parameter->shape, expected, sizeof expected);
        return tp_fail(TP_ERR_INPUT, "%s: %s is %s, expected %s", path, tensor->name, is, expected);
    }
    if (strcmp(tensor->dtype, "F32") != 0)
        return tp_fail(TP_ERR_INPUT, "%s: %s is %s, expected F32", path, tensor->name,
                       tensor->dtype);
    return TP_OK;
}

/* Finds the parameter of a tensor of the file. */
static enum tp_status assign(struct tp_weights *weights, const struct tp_tensor_info *tensor)
{
    const char *path = tp_safetensors_path(weights->file);
    const char *name = without_prefix(tensor->name);

    if (is_skipped(name))
        return TP_OK;
    int row = find_row(weights->parameters, name);
    if (row < 0)
        return tp_fail(TP_ERR_INPUT, "%s: %s is no tensor of the model", path, tensor->name);
    if (weights->tensors[row])
        return tp_fail(TP_ERR_INPUT, "%s: %s is there twice, also as %s", path, tensor->name,
                       weights->tensors[row]->name);
    TP_TRY(check_tensor(path, tensor, &weights->parameters->at[row]));
    weights->tensors[row] = tensor;
    return TP_OK;
}

static enum tp_status assign_all(struct tp_weights *weights)
{
    const struct tp_parameters *parameters = weights->parameters;

    for (int i = 0; i < tp_safetensors_count(weights->file); i++)
        TP_TRY(assign(weights, tp_safetensors_at(weights->file, i)));
    for (int row = 0; row < parameters->count; row++)
        if (!weights->tensors[row])
            return tp_fail(TP_ERR_INPUT, "%s: %s is missing", tp_safetensors_path(weights->file),
                           parameters->at[row].name);
    return TP_OK;
}

/* ---- Reading and writing ---- */

enum tp_status tp_weights_open(const char *path, const struct tp_parameters *parameters,
                               struct tp_weights **weights)
{
    struct tp_weights *opened = calloc(1, sizeof *opened);
    enum tp_status status = TP_OK;

    if (opened)
        opened->tensors = calloc((size_t)parameters->count, sizeof(struct tp_tensor_info *));
    if (!opened || !opened->tensors) {
        status = tp_fail(TP_ERR_MEMORY, "%s: no memory to read it", path);
        goto close_weights;
    }
    opened->parameters = parameters;
    status = tp_safetensors_open(path, &opened->file);
    if (status == TP_OK)
        status = assign_all(opened);
    if (status != TP_OK)
        goto close_weights;
    *weights = opened;
    return TP_OK;
close_weights:
    tp_weights_close(opened);
    return status;
}

void tp_weights_close(struct tp_weights *weights)
{
    if (!weights)
        return;
    tp_safetensors_close(weights->file);
    free(weights->tensors);
    free(weights);
}

enum tp_status tp_weights_read(const struct tp_weights *weights, int row, float *out)
{
    return tp_safetensors_read(weights->file, weights->tensors[row], out);
}

enum tp_status tp_weights_create(const char *path, const struct tp_parameters *parameters,
                                 struct tp_safetensors_writer **writer)
{
    struct tp_tensor_info *infos = calloc((size_t)parameters->count, sizeof *infos);

    if (!infos)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    for (int row = 0; row < parameters->count; row++) {
        const struct tp_parameter *parameter = &parameters->at[row];
        infos[row].name = parameter->name;
        infos[row].ndim = parameter->ndim;
        for (int i = 0; i < parameter->ndim; i++)
            infos[row].shape[i] = parameter->shape[i];
    }
    enum tp_status status = tp_safetensors_create(path, infos, parameters->count, writer);
    free(infos);
    return status;
}
