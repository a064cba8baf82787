/* SPDX-License-Identifier: Apache-2.0 */
/* A run's folder: what was asked for, what ran, its metrics and its checkpoints. Rank 0 alone works
 * on it. */
#ifndef TP_TRAIN_RUN_H
#define TP_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "plan/plan.h"
#include "train/planner.h"
#include "train/worker.h"

struct tp_metrics_file {
    FILE *file; /* NULL: none */
    char *path;
};

struct tp_run {
    char *folder, *checkpoints;        /* NULL without --save */
    int lock;                          /* on the folder, -1: none */
    struct tp_metrics_file metrics[2]; /* the run's own and --metrics */
};

/* Makes the folder of --save, keeps other runs out of it, and makes sure that all files can be
 * written. What an earlier run left there stays as it is. Ranks that do not lead take the names
 * alone. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_run_open(struct tp_run *run, const struct tp_settings *settings, bool leads);
void tp_run_close(struct tp_run *run);

/* Opens the metrics; called by the leading rank when nothing is left that could keep the run from
 * starting. first is the step that will run first: a run that starts anew puts checkpoints that are
 * there aside, with a note, and metrics of steps from first on are dropped. Local. TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status tp_run_begin(struct tp_run *run, const struct tp_settings *settings, int64_t first);

/* Writes config.json, options.json, plan.json, gemm.json and, if there is one, profile.json. Local.
 * TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_run_describe(const struct tp_run *run, const struct tp_worker *worker,
                               const struct tp_planned *planned);

struct tp_step_metrics {
    int64_t step; /* counted from 0 */
    double loss, grad_norm, lr, seconds, tokens_per_second;
};

/* Adds one line to the metrics, null standing for what is not a number. Local. TP_ERR_IO. */
enum tp_status tp_run_add(struct tp_run *run, const struct tp_step_metrics *metrics);

#endif
