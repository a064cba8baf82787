/* SPDX-License-Identifier: Apache-2.0 */
/* A pipeline stage over host memory, to test engine and schedules without a device. Its layers mix
 * checksums of what a real layer depends on: the message, the layer's weight, the unit, the slices
 * before it (forward) or behind it (backward), and the activations that the forward left. So a
 * wrong order, slice, direction or memory that is used too early shows in the loss or the norm.
 *
 * It computes as late as a device may: a unit that was begun is computed after some number of
 * polls, reads its memory only then, but its result's memory is spoilt at once. Memory that nobody
 * may read is spoilt, memory that is lent must not be asked for again. Where weight gradients are
 * delayed, a group's memory is in use for some more polls, unless something later is computed. */
#ifndef TP_TESTS_HOST_STAGE_H
#define TP_TESTS_HOST_STAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "cell/stage.h"
#include "plan/schedule.h"

/* Elements of the tied matrix. */
enum { HOST_TIED = 61 };

struct host_shape {
    int n_layer;                        /* of the model */
    int first_layer, last_layer;        /* of this stage, inclusive */
    int width;                          /* floats of a row */
    size_t rows, input_rows, unit_rows; /* as struct tp_schedule has them, at least */
    int caches, slots, units;
    bool delay_wgrad;
};

struct host_stage;

/* Without memory the program ends. seed: of the number of polls, not of the results. */
struct host_stage *host_stage_new(const struct host_shape *shape, uint32_t seed);
void host_stage_free(struct host_stage *host);
struct tp_stage host_stage_seam(struct host_stage *host);

/* Before each run of a list. */
void host_stage_begin_step(struct host_stage *host, int step, bool train);

/* What broke the seam's rules first; NULL when nothing did. */
const char *host_stage_broken(const struct host_stage *host);

/* From now on one of this stage's sums is not a number; this unit is never computed. */
void host_stage_make_nan(struct host_stage *host, bool nan);
void host_stage_hang(struct host_stage *host, enum tp_direction direction, int unit);

int host_stage_updates(const struct host_stage *host);

/* Loss and norm of a step as the stages together have them, and the update, for a stage that holds
 * all layers: a plain loop, without engine and schedule's actions. */
void host_stage_step_alone(struct host_stage *host, const struct tp_schedule *schedule, int step,
                           bool train, const struct tp_adamw *adamw, double clip, double *loss,
                           double *norm);

#endif
