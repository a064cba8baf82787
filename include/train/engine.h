/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one rank's schedule: a stage's computing and the messages between stages. */
#ifndef TP_TRAIN_ENGINE_H
#define TP_TRAIN_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cell/stage.h"
#include "comm/comm.h"
#include "plan/schedule.h"

struct tp_engine;

/* pipe: the stages, rank = stage, as many as the schedule says. All must outlive the engine.
 * watchdog: seconds without progress after which a step is given up, 0 for never; it is armed after
 * the first step that is run. Local. TP_ERR_MEMORY. */
enum tp_status tp_engine_new(struct tp_comm *pipe, const struct tp_stage *stage,
                             const struct tp_schedule *schedule, double watchdog,
                             struct tp_engine **engine);
void tp_engine_free(struct tp_engine *engine);

struct tp_step_result {
    double loss; /* over all stages; the same number on each */
    double norm; /* of the gradient, before clipping; 0 in evaluation */
    bool finite; /* loss and norm are; if not, nothing was updated, on any stage */
};

/* Runs the list once. With reduce and update in it: clip is the largest norm (0: no clipping):
 * gradients are scaled by clip / (norm + 1e-6) when that is below 1. Without (a forward list): the
 * loss is summed over the stages after the list. Collective over pipe. TP_ERR_STUCK says who waits
 * for what, as "rank 2 waits for slice 5 of group 0 from rank 1"; TP_ERR_COMM, TP_ERR_DEVICE: the
 * job has to end. */
enum tp_status tp_engine_run(struct tp_engine *engine, const struct tp_adamw *adamw, double clip,
                             struct tp_step_result *result);

/* The same over another list for the same stage and ranks (evaluation between steps); the new
 * schedule's units must fit the stage's memory. Local. TP_ERR_MEMORY. */
enum tp_status tp_engine_set_schedule(struct tp_engine *engine, const struct tp_schedule *schedule);

#endif
