/* SPDX-License-Identifier: Apache-2.0 */
/* From measurements on all ranks to a profile. */
#ifndef TP_TRAIN_PROFILER_H
#define TP_TRAIN_PROFILER_H

#include "base/status.h"
#include "plan/fit.h"
#include "plan/profile.h"
#include "train/worker.h"

/* Where the time of profiling ends unless --budget says otherwise: alone, and inside training. */
#define TP_PROFILER_BUDGET 60.0
#define TP_PROFILER_BUDGET_TRAIN 10.0

/* How the profiling went. */
struct tp_profiler_report {
    double seconds;               /* that it took */
    int rounds;                   /* measurements of each thing at most */
    int measured, left_out;       /* things of the first round: no time was left for some */
    struct tp_fit_error error[2]; /* forward and backward, of the kind of device that fits worst */
};

/* Measures for that many seconds at most, about, after the device is open; opens it when it is not.
 * Rank 0 gets the profile, of one kind of device for all ranks with the same device, driver,
 * threads and gemm; the others get NULL. Groups of 1, 2, 4, 8 and of `settings->batch` sequences,
 * up to 8, are measured. Collective over the worker's ranks, which fail together. TP_ERR_DEVICE,
 * TP_ERR_MEMORY, TP_ERR_COMM. */
enum tp_status tp_profiler_run(struct tp_worker *worker, double seconds,
                               struct tp_profile **profile, struct tp_profiler_report *report);

/* The same, but from a file of the cache folder when the same was measured before: devices, driver,
 * threads, gemm, kernels, shapes and this version of the program are its key; report->seconds is 0
 * then. A new profile is kept there. Collective over the worker's ranks. */
enum tp_status tp_profiler_cached(struct tp_worker *worker, double seconds,
                                  struct tp_profile **profile, struct tp_profiler_report *report);

/* Lines for people about it: its cost and the error on pairs that were held out. Local. */
void tp_profiler_print(const struct tp_profiler_report *report);

#endif
