/* SPDX-License-Identifier: Apache-2.0 */
/* The plan of a training: as options say, from a file, or the fastest by what devices measure. */
#ifndef TP_TRAIN_PLANNER_H
#define TP_TRAIN_PLANNER_H

#include <stdbool.h>

#include "base/status.h"
#include "plan/plan.h"
#include "plan/profile.h"
#include "plan/simulate.h"
#include "train/settings.h"
#include "train/worker.h"

/* A plan and where it comes from. The latter two are rank 0's. */
struct tp_planned {
    struct tp_plan *plan;
    struct tp_profile *profile;     /* NULL: none was needed */
    struct tp_simulation predicted; /* n_stages 0: nothing is */
};

/* Fills in what --plan says and no other option does: batch, sequence length, stages. Local.
 * TP_ERR_INPUT, TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_planner_settle(const struct tp_settings *settings, struct tp_settings *settled);

/* The plan of --plan, or what schedule, slices and group size say; what of these is not given is as
 * without a planner, and tp_planner_search() finds a better one. Local. TP_ERR_USAGE for options
 * that contradict each other or the plan, which are named; TP_ERR_INPUT when the plan is for
 * another model or cannot be run; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_planner_given(const struct tp_worker *worker, struct tp_plan **plan);

/* Is something left to plan? Local. */
bool tp_planner_is_needed(const struct tp_settings *settings);

/* Finds what is left to plan by a profile: that of --profile, or measured in --budget seconds, or
 * measured before. Opens the device. planned is empty at first and to be freed also after an error.
 * Collective over the worker's ranks, which fail together. TP_ERR_INPUT when nothing fits into
 * memory, and as tp_profiler_cached() and tp_profile_load(). */
enum tp_status tp_planner_search(struct tp_worker *worker, struct tp_planned *planned);
void tp_planned_fini(struct tp_planned *planned);

#endif
