/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a training on stdout, and on a terminal a bar with the time left below them. */
#ifndef TP_TRAIN_PROGRESS_H
#define TP_TRAIN_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "train/run.h"

struct tp_progress {
    int64_t first, steps; /* the run goes from first up to steps */
    double began;         /* clock */
    bool bar;             /* stdout is a terminal */
};

/* Begins with step first of steps. Local. */
void tp_progress_init(struct tp_progress *progress, int64_t first, int64_t steps);

/* After a step: its line when print is true, and the bar. Local. */
void tp_progress_step(struct tp_progress *progress, const struct tp_step_metrics *metrics,
                      bool print);

/* A line of an evaluation after `done` steps. Local. */
void tp_progress_validation(struct tp_progress *progress, int64_t done, double loss);

/* Takes the bar away. Local. */
void tp_progress_end(struct tp_progress *progress);

#endif
