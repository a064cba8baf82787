/* SPDX-License-Identifier: Apache-2.0 */
/* The second interpreter of schedules: replays every stage's list against a cost. */
#ifndef TP_PLAN_SIMULATE_H
#define TP_PLAN_SIMULATE_H

#include <stddef.h>

#include "base/status.h"
#include "base/trace.h"
#include "plan/cost.h"
#include "plan/plan.h"

struct tp_stage_simulation {
    double busy;    /* seconds of computing */
    double bubble;  /* 1 - busy / makespan */
    int peak_units; /* units alive at once at most: from the start of their forward to the end of
                       their backward */
    size_t peak_tokens; /* of those */
    size_t peak_bytes;  /* tp_stage_bytes() of the stage under the plan */
};

struct tp_simulation {
    double
        step_seconds; /* makespan + largest stage's gradient all-reduce + largest stage's update */
    double makespan, allreduce_seconds, update_seconds;
    double bubble; /* mean over stages */
    int n_stages;
    struct tp_stage_simulation *stages; /* owned */
};

/* Simulates a step (all flights) of the largest replica. A stage does one action at a time, in the
 * order of its list; a forward or backward starts when the stage is free and its message is there;
 * a message leaves when its unit is computed, takes link(bytes), and messages of one direction on
 * one link go one at a time, in order. Delayed weight gradients come when their group's last
 * backward is computed, and its message has left. trace may be NULL; else the actions are added to
 * it, pid = stage. Local. TP_ERR_INPUT when the cost has no numbers for a group, or for what the
 * plan delays; TP_ERR_MEMORY. */
enum tp_status tp_simulate(const struct tp_plan *plan, const struct tp_cost *cost,
                           struct tp_trace *trace, struct tp_simulation *simulation);
void tp_simulation_fini(struct tp_simulation *simulation);

#endif
