/* SPDX-License-Identifier: Apache-2.0 */
/* Plans for people to read. */
#ifndef TP_PLAN_REPORT_H
#define TP_PLAN_REPORT_H

#include <stdio.h>

#include "base/status.h"
#include "plan/cost.h"
#include "plan/plan.h"
#include "plan/search.h"
#include "plan/simulate.h"

/* Share of the devices' peak that a step of that many sequences over all replicas uses; 0 where the
 * peak is unknown. The devices' mean counts. Local. */
double tp_report_utilisation(const struct tp_plan *plan, const struct tp_cost *cost, int sequences,
                             double step_seconds);

/* What a plan is and what its step takes: stages, groups and slices, the bubble beside the one that
 * as many equal slices have, and a timeline with a row for each stage, digits for forward and
 * letters for backward slices, counted in each group, and dots where the stage waits. sequences: of
 * all replicas; 0: those of the plan on each. Local. TP_ERR_INPUT as tp_simulate(), TP_ERR_MEMORY.
 */
enum tp_status tp_report_plan(const struct tp_plan *plan, const struct tp_cost *cost, int sequences,
                              const struct tp_simulation *simulation, FILE *out);

/* The best plans as a table, and why others were refused. Local. */
void tp_report_degrees(const struct tp_degrees_list *list, const struct tp_degrees_task *task,
                       FILE *out);

#endif
