/* SPDX-License-Identifier: Apache-2.0 */
/* The cell as the stage that an engine drives. */
#include "config.h"

#include "cell/stage.h"

#include <math.h>

#include "parts.h"

/* Where a layer's forward leaves the residual stream. */
static struct tp_view layer_output(const struct tp_cell *cell, int layer,
                                   const struct tp_unit *unit)
{
    if (layer + 1 == cell->shape.layers.n_layer)
        return tp_cell_output(cell, unit);
    return tp_cell_input(cell, layer + 1, unit);
}

/* A backward changes the gradient of the residual stream in place. */
static struct tp_view residual_gradient(const struct tp_cell *cell, const struct tp_unit *unit)
{
    return tp_cell_slot(cell, TP_REGION_BACKWARD, TP_BACKWARD, unit);
}

static enum tp_status compute_forward(struct tp_cell *cell, enum tp_part part, int layer,
                                      const struct tp_unit *unit)
{
    if (part == TP_PART_EMBED)
        return tp_embed_forward(cell, unit);
    if (part == TP_PART_HEAD)
        return tp_head_forward(cell, unit);
    return tp_layer_forward(cell, layer, unit, layer_output(cell, layer, unit));
}

static enum tp_status compute_backward(struct tp_cell *cell, enum tp_part part, int layer,
                                       const struct tp_unit *unit)
{
    struct tp_view dx = residual_gradient(cell, unit);
    if (part == TP_PART_GRADIENTS)
        return tp_layer_gradients(cell, layer, unit, tp_unit_rows(unit));
    if (part == TP_PART_EMBED)
        return tp_embed_backward(cell, unit, dx);
    if (part == TP_PART_HEAD)
        return tp_head_backward(cell, unit, dx);
    return tp_layer_backward(cell, layer, unit, dx);
}

enum tp_status tp_cell_compute(struct tp_cell *cell, enum tp_part part, int layer,
                               enum tp_direction direction, const struct tp_unit *unit)
{
    return direction == TP_FORWARD ? compute_forward(cell, part, layer, unit)
                                   : compute_backward(cell, part, layer, unit);
}

static enum tp_status forward(struct tp_cell *cell, const struct tp_unit *unit)
{
    if (cell->first)
        TP_TRY(compute_forward(cell, TP_PART_EMBED, 0, unit));
    for (int i = 0; i < cell->shape.layers.n_layer; i++)
        TP_TRY(compute_forward(cell, TP_PART_LAYER, i, unit));
    return cell->last ? compute_forward(cell, TP_PART_HEAD, 0, unit) : TP_OK;
}

/* The forward of all layers once more, but for what leaves the last one: the backward needs no more
 * than that. */
static enum tp_status recompute(struct tp_cell *cell, const struct tp_unit *unit)
{
    const struct tp_view nowhere = {.buffer = NULL};
    const int last = cell->shape.layers.n_layer - 1;

    if (!cell->shape.recompute)
        return TP_OK;
    for (int i = 0; i < last; i++)
        TP_TRY(compute_forward(cell, TP_PART_LAYER, i, unit));
    return tp_layer_forward(cell, last, unit, nowhere);
}

/* Is a unit the one whose backward ends the step? */
static bool ends_step(const struct tp_cell *cell, const struct tp_unit *unit)
{
    return unit->number == 0 && unit->first_sequence + unit->sequences == cell->step.sequences;
}

/* Lends a bucket to the replicas, from when what was enqueued so far is computed. */
static enum tp_status lend_bucket(struct tp_cell *cell, enum tp_kind kind, int bucket)
{
    struct tp_cell_bucket *b = &cell->buckets[bucket];
    return tp_mapping_begin(cell->device, b->views[kind], b->of.count, TP_ACCESS_CHANGE,
                            &b->mapping);
}

/* The backward finishes one bucket after the other; *next is the one that is at its turn. */
static enum tp_status finish_bucket(struct tp_cell *cell, const struct tp_unit *unit, int *next)
{
    if (!cell->step.exchange || !ends_step(cell, unit))
        return TP_OK;
    return lend_bucket(cell, TP_GRADIENT, (*next)++);
}

/* Gives memory back that is still out: of a unit whose result nobody asked for. */
static enum tp_status end_if_open(struct tp_mapping *mapping)
{
    if (mapping->device == NULL)
        return TP_OK;
    TP_TRY(tp_mapping_end(mapping));
    mapping->device = NULL;
    return TP_OK;
}

/* What of a backward its message does not wait for, where weight gradients are delayed: those of
 * the group whose last one it is. *next as for finish_bucket(). */
static enum tp_status add_gradients(struct tp_cell *cell, const struct tp_unit *unit, int *next)
{
    const size_t rows = (size_t)unit->sequences * (size_t)cell->shape.seq_len;

    if (!cell->shape.delay_wgrad || unit->number > 0)
        return TP_OK;
    for (int i = cell->shape.layers.n_layer - 1; i >= 0; i--) {
        TP_TRY(tp_layer_gradients(cell, i, unit, rows));
        TP_TRY(finish_bucket(cell, unit, next));
    }
    if (cell->first)
        TP_TRY(finish_bucket(cell, unit, next));
    struct tp_mapping *mapping = &cell->gradients[unit->slot[TP_BACKWARD]];
    TP_TRY(end_if_open(mapping));
    return tp_mapping_begin(cell->device, tp_cell_region(cell, TP_REGION_SUMS, 0), 0,
                            TP_ACCESS_READ, mapping);
}

/* Up to what the message waits for. */
static enum tp_status backward(struct tp_cell *cell, const struct tp_unit *unit, int *next)
{
    const bool at_once = !cell->shape.delay_wgrad;

    TP_TRY(recompute(cell, unit));
    if (cell->last) {
        TP_TRY(compute_backward(cell, TP_PART_HEAD, 0, unit));
        TP_TRY(finish_bucket(cell, unit, next));
    }
    for (int i = cell->shape.layers.n_layer - 1; i >= 0; i--) {
        TP_TRY(compute_backward(cell, TP_PART_LAYER, i, unit));
        if (at_once)
            TP_TRY(finish_bucket(cell, unit, next));
    }
    if (!cell->first)
        return TP_OK;
    TP_TRY(compute_backward(cell, TP_PART_EMBED, 0, unit));
    return at_once ? finish_bucket(cell, unit, next) : TP_OK;
}

/* Elements of a unit's message. */
static size_t message_count(const struct tp_cell *cell, const struct tp_unit *unit)
{
    return tp_unit_rows(unit) * (size_t)cell->shape.model.n_embd;
}

static bool sends(const struct tp_cell *cell, enum tp_direction direction)
{
    return direction == TP_FORWARD ? !cell->last : !cell->first;
}

static struct tp_mapping *mapping_of(struct tp_mapping *const mappings[2],
                                     enum tp_direction direction, const struct tp_unit *unit)
{
    return &mappings[direction][unit->slot[direction]];
}

static enum tp_status stage_begin(void *self, enum tp_direction direction,
                                  const struct tp_unit *unit)
{
    struct tp_cell *cell = self;
    struct tp_mapping *mapping = mapping_of(cell->outgoing, direction, unit);
    TP_TRY(end_if_open(mapping));
    int next = 0; /* bucket */
    TP_TRY(direction == TP_FORWARD ? forward(cell, unit) : backward(cell, unit, &next));
    struct tp_view result =
        direction == TP_FORWARD ? tp_cell_output(cell, unit) : residual_gradient(cell, unit);
    TP_TRY(tp_mapping_begin(cell->device, result,
                            sends(cell, direction) ? message_count(cell, unit) : 0, TP_ACCESS_READ,
                            mapping));
    return direction == TP_FORWARD ? TP_OK : add_gradients(cell, unit, &next);
}

static enum tp_status stage_poll(void *self, enum tp_direction direction,
                                 const struct tp_unit *unit, bool *done)
{
    struct tp_cell *cell = self;
    return tp_mapping_ready(mapping_of(cell->outgoing, direction, unit), done);
}

static enum tp_status stage_poll_gradients(void *self, const struct tp_unit *unit, bool *done)
{
    struct tp_cell *cell = self;
    return tp_mapping_ready(&cell->gradients[unit->slot[TP_BACKWARD]], done);
}

static enum tp_status stage_message_in(void *self, enum tp_direction direction,
                                       const struct tp_unit *unit, float **data, size_t *count)
{
    struct tp_cell *cell = self;
    struct tp_mapping *mapping = mapping_of(cell->incoming, direction, unit);
    const size_t n = message_count(cell, unit);
    struct tp_view memory =
        direction == TP_FORWARD ? tp_cell_input(cell, 0, unit) : residual_gradient(cell, unit);
    TP_TRY(tp_mapping_begin(cell->device, memory, n, TP_ACCESS_WRITE, mapping));
    TP_TRY(tp_mapping_wait(mapping));
    *data = mapping->data;
    *count = n;
    return TP_OK;
}

static enum tp_status stage_message_in_done(void *self, enum tp_direction direction,
                                            const struct tp_unit *unit)
{
    struct tp_cell *cell = self;
    return end_if_open(mapping_of(cell->incoming, direction, unit));
}

static enum tp_status stage_message_out(void *self, enum tp_direction direction,
                                        const struct tp_unit *unit, const float **data,
                                        size_t *count)
{
    struct tp_cell *cell = self;
    *data = mapping_of(cell->outgoing, direction, unit)->data;
    *count = message_count(cell, unit);
    return TP_OK;
}

static enum tp_status stage_message_out_done(void *self, enum tp_direction direction,
                                             const struct tp_unit *unit)
{
    struct tp_cell *cell = self;
    return end_if_open(mapping_of(cell->outgoing, direction, unit));
}

static bool shares_tied(const struct tp_cell *cell)
{
    return cell->first != cell->last;
}

static enum tp_status stage_tied(void *self, const float **mine, float **theirs, size_t *count)
{
    struct tp_cell *cell = self;
    const size_t n = tp_cell_held(cell, TP_PARAMETER_WTE);
    *mine = NULL;
    *theirs = NULL;
    *count = 0;
    if (!shares_tied(cell))
        return TP_OK;
    TP_TRY(tp_mapping_begin(cell->device, cell->tensors[TP_GRADIENT][TP_PARAMETER_WTE], n,
                            TP_ACCESS_READ, &cell->tied[0]));
    TP_TRY(tp_mapping_begin(cell->device, tp_cell_region(cell, TP_REGION_TIED, 0), n,
                            TP_ACCESS_WRITE, &cell->tied[1]));
    TP_TRY(tp_mapping_wait(&cell->tied[0]));
    TP_TRY(tp_mapping_wait(&cell->tied[1]));
    *mine = cell->tied[0].data;
    *theirs = cell->tied[1].data;
    *count = n;
    return TP_OK;
}

/* Adds the embedding's and the head's part of wte's gradient. A sum of two has one value in either
 * order, so both copies stay equal, and equal to that of one stage. */
static enum tp_status stage_tied_done(void *self)
{
    struct tp_cell *cell = self;
    if (!cell->first && !cell->last)
        return TP_OK;
    if (shares_tied(cell)) {
        TP_TRY(end_if_open(&cell->tied[0]));
        TP_TRY(end_if_open(&cell->tied[1]));
    }
    TP_TRY(tp_add(
        cell->device, cell->tensors[TP_GRADIENT][TP_PARAMETER_WTE],
        tp_cell_region(cell, shares_tied(cell) ? TP_REGION_TIED : TP_REGION_HEAD_GRADIENT, 0),
        tp_cell_held(cell, TP_PARAMETER_WTE)));
    return cell->step.exchange ? lend_bucket(cell, TP_GRADIENT, cell->n_buckets - 1) : TP_OK;
}

static enum tp_status stage_bucket(void *self, enum tp_kind kind, int bucket, float **data,
                                   size_t *count)
{
    struct tp_cell *cell = self;
    struct tp_cell_bucket *b = &cell->buckets[bucket];
    bool ready;
    *data = NULL;
    *count = b->of.count;
    if (kind == TP_WEIGHT && b->mapping.device == NULL)
        TP_TRY(lend_bucket(cell, kind, bucket));
    if (b->mapping.device == NULL)
        return TP_OK;
    TP_TRY(tp_mapping_ready(&b->mapping, &ready));
    if (ready)
        *data = b->mapping.data;
    return TP_OK;
}

static enum tp_status stage_bucket_done(void *self, int bucket)
{
    struct tp_cell *cell = self;
    return end_if_open(&cell->buckets[bucket].mapping);
}

static bool counts(const struct tp_cell *cell, int row)
{
    return tp_parameter_counted(&cell->parameters->at[row], &cell->shape.model, &cell->shape.layers,
                                cell->shape.op_rank);
}

static size_t partial_count(const struct tp_cell *cell, int row)
{
    return (tp_cell_held(cell, row) + TP_SUM_BLOCK - 1) / TP_SUM_BLOCK;
}

static enum tp_status stage_loss(void *self, double *loss)
{
    struct tp_cell *cell = self;
    const size_t count = (size_t)cell->step.sequences * (size_t)cell->shape.seq_len;
    *loss = 0;
    if (!cell->has_targets || cell->shape.op_rank > 0)
        return TP_OK;
    TP_TRY(
        tp_memory_read(cell->device, cell->losses, tp_cell_region(cell, TP_REGION_LOSS, 0), count));
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)cell->losses[i];
    *loss = sum * cell->step.scale;
    return TP_OK;
}

static enum tp_status stage_sums(void *self, double *sums)
{
    struct tp_cell *cell = self;
    struct tp_view partial = tp_cell_region(cell, TP_REGION_SUMS, 0);
    size_t used = 0;
    for (int row = 0; row < cell->parameters->count; row++)
        if (counts(cell, row)) {
            TP_TRY(tp_sum_squares(cell->device, tp_view_at(partial, used),
                                  cell->tensors[TP_GRADIENT][row], tp_cell_held(cell, row)));
            used += partial_count(cell, row);
        }
    TP_ASSERT(used <= cell->n_sums);
    TP_TRY(tp_memory_read(cell->device, cell->sums, partial, used));
    const float *next = cell->sums;
    for (int row = 0; row < cell->parameters->count; row++) {
        sums[row] = 0;
        if (counts(cell, row))
            for (size_t i = 0; i < partial_count(cell, row); i++)
                sums[row] += (double)*next++;
    }
    return stage_loss(cell, &sums[cell->parameters->count]);
}

static enum tp_status stage_update(void *self, const struct tp_adamw *adamw, double scale)
{
    struct tp_cell *cell = self;
    const double t = (double)adamw->step;
    struct tp_adamw_step step = {
        .rate = (float)(adamw->lr / (1 - pow(adamw->beta1, t))),
        .root = (float)sqrt(1 - pow(adamw->beta2, t)),
        .beta1 = (float)adamw->beta1,
        .beta2 = (float)adamw->beta2,
        .eps = (float)adamw->eps,
        .scale = (float)scale,
    };
    for (int row = 0; row < cell->parameters->count; row++) {
        const struct tp_parameter *parameter = &cell->parameters->at[row];
        if (cell->tensors[TP_MOMENT_1][row].buffer == NULL)
            continue;
        const struct tp_share mine = tp_cell_elements(cell, row, TP_MOMENT_1);
        step.shrink = parameter->decay ? (float)(1 - adamw->lr * adamw->weight_decay) : 1.0f;
        TP_TRY(tp_adamw(cell->device, tp_view_at(cell->tensors[TP_WEIGHT][row], mine.first),
                        cell->tensors[TP_MOMENT_1][row], cell->tensors[TP_MOMENT_2][row],
                        tp_view_at(cell->tensors[TP_GRADIENT][row], mine.first), &step,
                        mine.count));
    }
    tp_cell_weights_changed(cell);
    return TP_OK;
}

void tp_cell_stage(struct tp_cell *cell, struct tp_stage *stage)
{
    *stage = (struct tp_stage){
        .self = cell,
        .begin = stage_begin,
        .poll = stage_poll,
        .poll_gradients = stage_poll_gradients,
        .message_in = stage_message_in,
        .message_in_done = stage_message_in_done,
        .message_out = stage_message_out,
        .message_out_done = stage_message_out_done,
        .tied = stage_tied,
        .tied_done = stage_tied_done,
        .n_buckets = cell->n_buckets,
        .sharded = cell->shape.shards > 1,
        .bucket = stage_bucket,
        .bucket_done = stage_bucket_done,
        .n_sums = cell->parameters->count + 1,
        .sums = stage_sums,
        .loss = stage_loss,
        .update = stage_update,
    };
}
