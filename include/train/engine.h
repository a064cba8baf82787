/* SPDX-License-Identifier: Apache-2.0 */
/* Runs one rank's schedule: a stage's computing and the messages between stages. */
#ifndef TP_TRAIN_ENGINE_H
#define TP_TRAIN_ENGINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/trace.h"
#include "cell/reduce.h"
#include "cell/stage.h"
#include "comm/grid.h"
#include "plan/schedule.h"

struct tp_engine;

/* grid: its pipe has as many stages as the schedule says. All must outlive the engine. watchdog:
 * seconds without progress after which a step is given up, 0 for never; it is armed after the first
 * step that is run. Local. TP_ERR_MEMORY; TP_ERR_INPUT when there are more units than message tags.
 */
enum tp_status tp_engine_new(const struct tp_grid *grid, const struct tp_stage *stage,
                             const struct tp_schedule *schedule, double watchdog,
                             struct tp_engine **engine);

/* Withdraws what a failed run left under way; nothing else may be done with its engine, and the
 * stage's memory should stay until the job has ended. */
void tp_engine_free(struct tp_engine *engine);

/* What a cell that op ranks share needs of the engine; valid as long as it. Local. */
void tp_engine_reduce(struct tp_engine *engine, struct tp_reduce *reduce);

/* From now on what this rank computes, sends and receives is added to the trace, pid = its rank, in
 * seconds since the origin (of tp_clock_now()); NULL: no more. Names are those of the table, which
 * NULL ends. Local. */
void tp_engine_trace(struct tp_engine *engine, struct tp_trace *trace, double origin);
extern const char *const tp_engine_event_names[];

/* Adds the update that has just ended: the list ends as soon as it is enqueued. Local. */
void tp_engine_trace_update(struct tp_engine *engine, double began);

struct tp_step_result {
    double loss; /* over all stages and replicas; the same number on each rank */
    double norm; /* of the gradient, before clipping; 0 in evaluation */
    bool finite; /* loss and norm are; if not, nothing was updated, on any rank */
};

/* Runs the list once, without ever blocking in MPI or on the device: what cannot go on is looked at
 * again and again with pauses between (tp_comm_pause()). Computing is enqueued in the order of the
 * list and finishes in it. A message starts to move when all computing listed before its post is
 * done; then a send's result is there, and nothing on the device reads or writes a receive's
 * memory. With reduce and update in it: clip is the largest norm (0: no clipping): gradients are
 * scaled by clip / (norm + 1e-6) when that is below 1; adamw NULL: there is no update. Gradients
 * are summed over replicas bucket by bucket while the last backward runs. Without (a forward list):
 * the loss is summed after the list. Collective over the grid. TP_ERR_STUCK says who waits for
 * what, as "rank 2 waits for slice 5 of group 0 from rank 1"; TP_ERR_COMM, TP_ERR_DEVICE: the job
 * has to end. */
enum tp_status tp_engine_run(struct tp_engine *engine, const struct tp_adamw *adamw, double clip,
                             struct tp_step_result *result);

/* The same over another list for the same stage and ranks (evaluation between steps); the new
 * schedule's units must fit the stage's memory. Local. TP_ERR_MEMORY. */
enum tp_status tp_engine_set_schedule(struct tp_engine *engine, const struct tp_schedule *schedule);

#endif
