/* SPDX-License-Identifier: Apache-2.0 */
/* --check: the gradients of one step in slices, against those of whole sequences. */
#ifndef TP_TRAIN_GRADIENT_CHECK_H
#define TP_TRAIN_GRADIENT_CHECK_H

#include "base/status.h"
#include "train/worker.h"

/* Runs a step under both schedules without an update, and prints, on rank 0, how far the gradients
 * of each tensor are apart: the norm of the difference by that of the whole sequences' gradient.
 * The engine keeps the sliced schedule. Collective over the world; an error leaves this rank alone,
 * but for TP_ERR_MEMORY. */
enum tp_status tp_gradient_check(struct tp_worker *worker, const struct tp_plan *plan,
                                 const struct tp_cell_step *step, const struct tp_schedule *sliced,
                                 const struct tp_schedule *whole);

#endif
