/* SPDX-License-Identifier: Apache-2.0 */
/* Which stage has how many layers. */
#ifndef TP_PLAN_ASSIGN_H
#define TP_PLAN_ASSIGN_H

#include "base/status.h"
#include "plan/cost.h"
#include "plan/plan.h"

/* Layers over the stages of a plan, whose other parts are given, so that the stage that computes
 * longest in a step computes as short as can be; of all such ways one in which the others do so
 * too, as far as that goes. What counts is a stage's time for all units, not for the longest: the
 * pipeline cannot be faster than its slowest stage, however many units there are. Embedding, head
 * and each device's own speed count; a stage takes as long as its slowest rank. Equal stages get
 * tp_stages_even(). stages[plan->n_stages]. Local. TP_ERR_INPUT when the cost has no numbers for a
 * group or they are not times; TP_ERR_MEMORY. */
enum tp_status tp_assign(const struct tp_plan *plan, const struct tp_cost *cost,
                         struct tp_stage_layers *stages);

#endif
