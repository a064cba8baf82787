/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cell/cell.h"

#include <stdio.h>
#include <stdlib.h>

#include "parts.h"

static enum tp_status take_regions(struct tp_cell *cell)
{
    for (int region = 0; region < TP_REGION_COUNT; region++) {
        const size_t count = tp_region_count((enum tp_region)region, &cell->shape);
        const size_t copies = tp_region_copies((enum tp_region)region, &cell->shape);
        cell->regions[region] = calloc(copies + 1, sizeof(struct tp_view));
        if (cell->regions[region] == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for a list of regions");
        for (size_t i = 0; i < copies; i++)
            TP_TRY(tp_arena_take(cell->arena, tp_region_name((enum tp_region)region), count,
                                 &cell->regions[region][i]));
    }
    return TP_OK;
}

static bool on_stage(const struct tp_cell *cell, int row)
{
    return tp_parameter_on_stage(&cell->parameters->at[row], &cell->shape.model,
                                 &cell->shape.layers);
}

static bool is_moment(enum tp_kind kind)
{
    return kind == TP_MOMENT_1 || kind == TP_MOMENT_2;
}

/* Takes a bucket's memory of a kind, and gives each of its tensors its place there. */
static enum tp_status take_bucket(struct tp_cell *cell, struct tp_cell_bucket *bucket,
                                  enum tp_kind kind)
{
    const struct tp_stage_shape *shape = &cell->shape;
    const struct tp_bucket *of = &bucket->of;
    const struct tp_share all = {0, of->count};
    const struct tp_share mine = is_moment(kind) ? tp_stage_shard(shape, of->count) : all;
    size_t at = 0; /* of the tensor in the bucket */

    TP_TRY(tp_arena_take(cell->arena, cell->parameters->at[of->row].name, mine.count,
                         &bucket->views[kind]));
    for (int row = of->row; row < of->row + of->n_rows; row++) {
        const struct tp_share elements = tp_cell_elements(cell, row, kind);
        if (elements.count > 0)
            cell->tensors[kind][row] =
                tp_view_at(bucket->views[kind], at + elements.first - mine.first);
        at += tp_bucket_room(&cell->parameters->at[row], shape->op, shape->op_rank);
    }
    return TP_OK;
}

/* The stage's buckets, in the order in which the last backward finishes them. */
static enum tp_status list_buckets(struct tp_cell *cell)
{
    const struct tp_model *model = &cell->shape.model;
    const int count = tp_bucket_count(model);

    cell->buckets = calloc((size_t)count, sizeof *cell->buckets);
    if (cell->buckets == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a list of parameters");
    for (int i = count - 1; i >= 0; i--) {
        struct tp_bucket *of = &cell->buckets[cell->n_buckets].of;
        tp_bucket_describe(model, i, cell->shape.op, cell->shape.op_rank, of);
        cell->n_buckets += on_stage(cell, of->row);
    }
    return TP_OK;
}

static enum tp_status take_tensors(struct tp_cell *cell)
{
    const int kinds = cell->shape.train ? TP_KINDS : TP_WEIGHT + 1;

    TP_TRY(list_buckets(cell));
    cell->moments = calloc((size_t)cell->parameters->count, sizeof *cell->moments);
    if (cell->moments == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a list of parameters");
    for (int row = 0; row < cell->parameters->count; row++)
        cell->moments[row] =
            tp_parameter_shard(&cell->shape.model, row, cell->shape.op, cell->shape.op_rank,
                               cell->shape.shards > 1 ? cell->shape.shards : 1, cell->shape.shard);
    for (int kind = 0; kind < kinds; kind++) {
        cell->tensors[kind] = calloc((size_t)cell->parameters->count, sizeof(struct tp_view));
        if (cell->tensors[kind] == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for a list of parameters");
        for (int i = 0; i < cell->n_buckets; i++)
            TP_TRY(take_bucket(cell, &cell->buckets[i], (enum tp_kind)kind));
    }
    return TP_OK;
}

/* Host memory for what is read back at the end of a step, and the messages' mappings. */
static enum tp_status take_host_memory(struct tp_cell *cell)
{
    const struct tp_stage_shape *shape = &cell->shape;
    const size_t slots = (size_t)shape->slots;
    cell->n_sums = tp_region_count(TP_REGION_SUMS, shape);
    cell->sums = malloc((cell->n_sums + 1) * sizeof(*cell->sums));
    cell->losses =
        malloc(((size_t)shape->batch * (size_t)shape->seq_len + 1) * sizeof(*cell->losses));
    cell->gradients = calloc(slots, sizeof *cell->gradients);
    bool all = cell->sums != NULL && cell->losses != NULL && cell->gradients != NULL;
    for (int direction = 0; direction < 2; direction++) {
        cell->incoming[direction] = calloc(slots, sizeof(struct tp_mapping));
        cell->outgoing[direction] = calloc(slots, sizeof(struct tp_mapping));
        all = all && cell->incoming[direction] != NULL && cell->outgoing[direction] != NULL;
    }
    return all ? TP_OK : tp_fail(TP_ERR_MEMORY, "no memory for a cell's host side");
}

enum tp_status tp_cell_new(struct tp_device *device, const struct tp_stage_shape *shape,
                           const struct tp_parameters *parameters, size_t limit,
                           struct tp_cell **cell)
{
    struct tp_cell *made = calloc(1, sizeof(*made));
    struct tp_footprint footprint;
    if (made == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a cell");
    made->device = device;
    made->shape = *shape;
    made->parameters = parameters;
    made->first = tp_stage_is_first(&shape->layers);
    made->last = tp_stage_is_last(&shape->layers, &shape->model);
    tp_device_footprint(device, &footprint);
    made->shape.panel = footprint.panel;
    made->panels = calloc(2 * (size_t)shape->layers.n_layer * TP_MATRICES, sizeof *made->panels);
    enum tp_status status = made->panels ? tp_arena_new(device, limit, &made->arena)
                                         : tp_fail(TP_ERR_MEMORY, "no memory for a cell");
    if (status == TP_OK)
        status = take_regions(made);
    if (status == TP_OK)
        status = take_tensors(made);
    if (status == TP_OK)
        status = take_host_memory(made);
    if (status != TP_OK) {
        tp_cell_free(made);
        return status;
    }
    *cell = made;
    return TP_OK;
}

static void end_mappings(struct tp_mapping *mappings, int count)
{
    for (int i = 0; mappings != NULL && i < count; i++)
        if (mappings[i].device != NULL)
            tp_mapping_end(&mappings[i]);
    free(mappings);
}

void tp_cell_free(struct tp_cell *cell)
{
    if (cell == NULL)
        return;
    for (int direction = 0; direction < 2; direction++) {
        end_mappings(cell->incoming[direction], cell->shape.slots);
        end_mappings(cell->outgoing[direction], cell->shape.slots);
    }
    end_mappings(cell->gradients, cell->shape.slots);
    for (int i = 0; i < cell->n_buckets; i++)
        if (cell->buckets[i].mapping.device != NULL)
            tp_mapping_end(&cell->buckets[i].mapping);
    tp_device_finish(cell->device);
    free(cell->panels);
    free(cell->buckets);
    free(cell->moments);
    for (int kind = 0; kind < TP_KINDS; kind++)
        free(cell->tensors[kind]);
    for (int region = 0; region < TP_REGION_COUNT; region++)
        free(cell->regions[region]);
    free(cell->sums);
    free(cell->losses);
    tp_arena_free(cell->arena);
    free(cell);
}

size_t tp_cell_bytes(const struct tp_cell *cell)
{
    return tp_arena_bytes(cell->arena);
}

struct tp_view tp_cell_input(const struct tp_cell *cell, int layer, const struct tp_unit *unit)
{
    const size_t C = (size_t)cell->shape.model.n_embd;

    if (layer == 0)
        return tp_view_at(tp_cell_region(cell, TP_REGION_INPUT, 0), unit->input_row * C);
    return tp_cell_rows(cell, TP_REGION_LAYER_INPUT, layer - 1, unit, C);
}

struct tp_view tp_cell_output(const struct tp_cell *cell, const struct tp_unit *unit)
{
    return cell->last
               ? tp_cell_rows(cell, TP_REGION_OUTPUT, 0, unit, (size_t)cell->shape.model.n_embd)
               : tp_cell_slot(cell, TP_REGION_OUTPUT, TP_FORWARD, unit);
}

struct tp_dropout tp_cell_dropout(const struct tp_cell *cell, enum tp_dropout_place place,
                                  int layer, const struct tp_unit *unit)
{
    const struct tp_cell_step *step = &cell->step;
    const double p = step->train ? step->dropout : 0;

    if (p == 0)
        return (struct tp_dropout){.threshold = 0};
    return (struct tp_dropout){
        .key =
            tp_dropout_key(step->seed, step->step, place, cell->shape.layers.first_layer + layer),
        .threshold = (uint32_t)(p * 0x1p32),
        .scale = (float)(1 / (1 - p)),
        .first_sequence = step->first_sequence + unit->first_sequence,
    };
}

struct tp_share tp_cell_elements(const struct tp_cell *cell, int row, enum tp_kind kind)
{
    const struct tp_share all = {0, tp_cell_held(cell, row)};

    return is_moment(kind) ? cell->moments[row] : all;
}

enum tp_status tp_cell_write(struct tp_cell *cell, int row, enum tp_kind kind, const float *part)
{
    const struct tp_share elements = tp_cell_elements(cell, row, kind);

    if (elements.count == 0)
        return TP_OK;
    if (kind == TP_WEIGHT)
        tp_cell_weights_changed(cell);
    return tp_memory_write(cell->device, cell->tensors[kind][row], part + elements.first,
                           elements.count);
}

enum tp_status tp_cell_read(struct tp_cell *cell, int row, enum tp_kind kind, float *part)
{
    const struct tp_share elements = tp_cell_elements(cell, row, kind);

    if (elements.count == 0)
        return TP_OK;
    return tp_memory_read(cell->device, part + elements.first, cell->tensors[kind][row],
                          elements.count);
}

static enum tp_status zero_gradients(struct tp_cell *cell)
{
    for (int i = 0; i < cell->n_buckets; i++)
        TP_TRY(tp_fill(cell->device, cell->buckets[i].views[TP_GRADIENT], 0.0f,
                       cell->buckets[i].of.count));
    return tp_fill(cell->device, tp_cell_region(cell, TP_REGION_HEAD_GRADIENT, 0), 0.0f,
                   tp_region_count(TP_REGION_HEAD_GRADIENT, &cell->shape));
}

enum tp_status tp_cell_begin_step(struct tp_cell *cell, const struct tp_cell_step *step)
{
    const size_t tokens = (size_t)step->sequences * (size_t)cell->shape.seq_len;
    TP_ASSERT(step->sequences <= cell->shape.batch && (!step->train || cell->shape.train));
    cell->step = *step;
    cell->has_targets = cell->last && step->targets != NULL;
    if (cell->first)
        TP_TRY(tp_memory_write(cell->device, tp_cell_region(cell, TP_REGION_INPUT_TOKENS, 0),
                               step->inputs, tokens));
    if (cell->has_targets)
        TP_TRY(tp_memory_write(cell->device, tp_cell_region(cell, TP_REGION_TARGET_TOKENS, 0),
                               step->targets, tokens));
    TP_TRY(tp_cell_pack(cell));
    return step->train ? zero_gradients(cell) : TP_OK;
}
