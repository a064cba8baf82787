/* SPDX-License-Identifier: Apache-2.0 */
/* Plans judged by simulation and improved by small changes: for all that the closed form of
 * plan/optimal.h does not see, which is unequal stages, embedding and head, links, other schedules
 * and memory. */
#ifndef TP_PLAN_REFINE_H
#define TP_PLAN_REFINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/simulate.h"

/* Where a plan lacks most memory. It fits when need <= limit. */
struct tp_shortage {
    int stage;
    size_t need, limit; /* bytes of a rank; limit SIZE_MAX: none */
};

/* Of a simulated plan. memory: bytes that each rank may take; 0: what its device has. Local. */
void tp_shortage_find(const struct tp_plan *plan, const struct tp_cost *cost, size_t memory,
                      const struct tp_simulation *simulation, struct tp_shortage *shortage);

struct tp_refine_task {
    const struct tp_cost *cost;
    size_t memory; /* as above */
    int grain;     /* borders move by multiples of it */
    bool may_cut;  /* slices may change; ignored where sequences stay whole */
    bool may_group;
    bool may_layer;
    int64_t work; /* turns of stages that may be simulated beyond the starts */
};

/* A plan that fits is better than one that does not, one that lacks less memory is better than
 * one that lacks more, then one that is faster is better. */
struct tp_refined {
    struct tp_plan *plan; /* the caller's, with tp_plan_free() */
    struct tp_simulation simulation;
    struct tp_shortage shortage; /* need > limit: no plan that fits was found */
    int64_t simulated;           /* plans */
};

/* Takes the best of the starts, which all belong to one schedule and have one flight, and improves
 * it: moves tokens between neighbouring slices, by large steps first and at last by a grain; halves
 * and joins slices; joins, halves and exchanges groups and moves a sequence between them; moves a
 * layer between stages. Ends when nothing helps or the work is done; the result is no worse than
 * any start. It depends on the arguments alone. Local. TP_ERR_INPUT as tp_simulate();
 * TP_ERR_MEMORY.
 */
enum tp_status tp_refine(const struct tp_refine_task *task, const struct tp_plan *const *starts,
                         int n_starts, struct tp_refined *refined);
void tp_refined_fini(struct tp_refined *refined);

#endif
