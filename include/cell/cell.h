/* SPDX-License-Identifier: Apache-2.0 */
/* A cell: consecutive layers of the model over one token slice at a time, with their keys and
 * values; with the embedding on the first stage and the tied head on the last. */
#ifndef TP_CELL_CELL_H
#define TP_CELL_CELL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "cell/reduce.h"
#include "cell/stage.h"
#include "device/device.h"
#include "device/gemm.h"
#include "model/parameters.h"
#include "model/sizes.h"

struct tp_cell;

/* Takes all memory of the stage (tp_stage_bytes() of it, limit bytes at most; 0: as the device
 * allows). device and parameters must outlive the cell. Local. TP_ERR_MEMORY, TP_ERR_DEVICE. */
enum tp_status tp_cell_new(struct tp_device *device, const struct tp_stage_shape *shape,
                           const struct tp_parameters *parameters, size_t limit,
                           struct tp_cell **cell);
void tp_cell_free(struct tp_cell *cell);

/* The seam, for the engine; valid as long as the cell. n_sums is parameters->count + 1. Local. */
void tp_cell_stage(struct tp_cell *cell, struct tp_stage *stage);

/* What a cell whose shape has op ranks sums its parts with, before it computes anything; kept by
 * value. Local. */
void tp_cell_set_reduce(struct tp_cell *cell, const struct tp_reduce *reduce);

/* Bytes the cell took. Local. */
size_t tp_cell_bytes(const struct tp_cell *cell);

/* Which elements of an op rank's part of a parameter (row of the table, held by this stage) the
 * cell has of a kind: all, but for moments that replicas share. Local. */
struct tp_share tp_cell_elements(const struct tp_cell *cell, int row, enum tp_kind kind);

/* Copies these elements from or to host memory that has room for all of the part. Waits. Moments
 * and gradients exist in training only. TP_ERR_DEVICE. */
enum tp_status tp_cell_write(struct tp_cell *cell, int row, enum tp_kind kind, const float *part);
enum tp_status tp_cell_read(struct tp_cell *cell, int row, enum tp_kind kind, float *part);

/* Begins a step over sequences of tokens: inputs[sequences, T] on the first stage,
 * targets[sequences, T] on the last one (NULL elsewhere; targets NULL on the last stage: no loss,
 * for generation). Gradients are zeroed when train. The loss is the sum of cross-entropies times
 * scale: 1 / (number of targets of the whole step). Waits for earlier work. */
struct tp_cell_step {
    const int32_t *inputs, *targets;
    int sequences;
    double scale;
    bool train;
    bool exchange; /* gradients will be summed over replicas: buckets will be asked for */

    /* Dropout, in training: its probability, and what masks depend on besides the place, the
     * layer, the token and the channel or key. */
    double dropout;
    uint64_t seed;
    int64_t step;
    int first_sequence; /* of the replica, in the global batch */
};
enum tp_status tp_cell_begin_step(struct tp_cell *cell, const struct tp_cell_step *step);

/* Logits of the last token of the first sequence of a unit whose forward was the latest begun; last
 * stage. logits[V]. Waits. TP_ERR_DEVICE. */
enum tp_status tp_cell_logits(struct tp_cell *cell, const struct tp_unit *unit, float *logits);

/* Enqueues one part of a unit's forward or backward alone, for measuring; the stage has that part,
 * delayed weight gradients in the backward only. layer counts from 0 within the stage.
 * TP_ERR_DEVICE. */
enum tp_part { TP_PART_EMBED, TP_PART_LAYER, TP_PART_HEAD, TP_PART_GRADIENTS };
enum tp_status tp_cell_compute(struct tp_cell *cell, enum tp_part part, int layer,
                               enum tp_direction direction, const struct tp_unit *unit);

/* Runs one small step, training or forward only, of a model with the same head width: drivers that
 * compile a kernel when it first runs do so now, and one rank of a node can do it for all. Waits.
 * TP_ERR_DEVICE, TP_ERR_MEMORY. */
enum tp_status tp_cell_rehearse(struct tp_device *device, const struct tp_model *model, bool train);

/* The kinds of products (tp_gemm_kind()) with the matrices of a stage, and with the head's, of
 * units of up to so many rows; each once. Returns their number. Local. */
#define TP_CELL_KINDS 128
int tp_cell_gemm_kinds(const struct tp_stage_shape *shape, size_t rows,
                       struct tp_gemm kinds[TP_CELL_KINDS]);

/* Checks the gemm provider on every shape that the units run (tp_gemm_check). Waits. */
enum tp_status tp_cell_check_gemm(struct tp_device *device, const struct tp_stage_shape *shape,
                                  const struct tp_unit *units, int n_units);

#endif
