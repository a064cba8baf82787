/* SPDX-License-Identifier: Apache-2.0 */
/* The seam between the engine and what it drives: a pipeline stage as a struct of functions. The
 * cell implements it over OpenCL; tests implement it over host memory. */
#ifndef TP_CELL_STAGE_H
#define TP_CELL_STAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "model/slice.h"

/* What is kept of each parameter. */
enum tp_kind { TP_WEIGHT, TP_GRADIENT, TP_MOMENT_1, TP_MOMENT_2, TP_KINDS };

/* Hyper-parameters of one update. */
struct tp_adamw {
    double lr, beta1, beta2, eps, weight_decay;
    int64_t step; /* t of the bias correction: 1 for the first update */
};

struct tp_stage {
    void *self;

    /* Enqueues the forward or backward of a unit; its message has arrived (message_in_done) where
     * the stage gets one. Does not wait. */
    enum tp_status (*begin)(void *self, enum tp_direction direction, const struct tp_unit *unit);

    /* Is what begin enqueued for the unit computed? Never waits. Asked until done, at most once
     * after. A stage that can rings the process's bell when it is. */
    enum tp_status (*poll)(void *self, enum tp_direction direction, const struct tp_unit *unit,
                           bool *done);

    /* The same of what begin enqueued behind the unit's message: its group's weight gradients,
     * where they are delayed; the unit is the group's first slice. NULL: this stage delays none. */
    enum tp_status (*poll_gradients)(void *self, const struct tp_unit *unit, bool *done);

    /* Host memory for the unit's incoming message (count floats), valid until message_in_done,
     * which says that the message is there and gives the memory back to the stage. */
    enum tp_status (*message_in)(void *self, enum tp_direction direction,
                                 const struct tp_unit *unit, float **data, size_t *count);
    enum tp_status (*message_in_done)(void *self, enum tp_direction direction,
                                      const struct tp_unit *unit);

    /* Host memory with the unit's outgoing message, once poll said done; valid until
     * message_out_done, which says that it is sent and gives the memory back. */
    enum tp_status (*message_out)(void *self, enum tp_direction direction,
                                  const struct tp_unit *unit, const float **data, size_t *count);
    enum tp_status (*message_out_done)(void *self, enum tp_direction direction,
                                       const struct tp_unit *unit);

    /* The tied matrix, when another stage holds it too: my part of its gradient and where the
     * other's part belongs; both NULL and *count 0 where nothing is shared. Everything is computed
     * by then. tied_done says that both messages are over; the parts are then added. Always called
     * in pairs. */
    enum tp_status (*tied)(void *self, const float **mine, float **theirs, size_t *count);
    enum tp_status (*tied_done)(void *self);

    /* Where there are replicas: host memory with a bucket (model/parameters.h) of gradients, to be
     * summed over them in place, or of weights after an update of which each replica did its share,
     * to be completed. Buckets are numbered in the order in which the last backward finishes them;
     * the tied matrix, last, is there after tied_done. *data is NULL until it is there; never
     * waits. Valid until bucket_done, which gives it back. */
    int n_buckets;
    bool sharded; /* an update does the replica's share alone */
    enum tp_status (*bucket)(void *self, enum tp_kind kind, int bucket, float **data,
                             size_t *count);
    enum tp_status (*bucket_done)(void *self, int bucket);

    /* What all stages and op ranks add up: n_sums numbers, zero where another rank counts: the
     * squares of each parameter's gradient in the order of the parameter table, then the loss.
     * After tied_done and all buckets in training; in evaluation the loss alone is asked for
     * (loss). Waits for the device. */
    int n_sums;
    enum tp_status (*sums)(void *self, double *sums);
    enum tp_status (*loss)(void *self, double *loss);

    /* Applies AdamW with gradients times scale. Enqueued. */
    enum tp_status (*update)(void *self, const struct tp_adamw *adamw, double scale);
};

#endif
