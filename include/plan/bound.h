/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_PLAN_BOUND_H
#define TP_PLAN_BOUND_H

#include "base/status.h"
#include "plan/cost.h"
#include "plan/plan.h"

/* Seconds that a step of the plan takes at least, in far less time than a simulation: for each
 * stage, what it computes and the way of the first unit to it and of the last one back; where all
 * forwards precede all backwards also the way of each unit past all stages, with those before it on
 * the first and those after it on the last. Equal stages without links take no longer than that,
 * under these schedules. Without gradients' exchange and update. Local. TP_ERR_INPUT when the cost
 * has no numbers for a group; TP_ERR_MEMORY. */
enum tp_status tp_plan_bound(const struct tp_plan *plan, const struct tp_cost *cost,
                             double *seconds);

#endif
