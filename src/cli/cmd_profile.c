/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>
#include <stdio.h>

#include "base/file.h"
#include "cli/command.h"
#include "train/phase.h"
#include "train/profiler.h"
#include "train/worker.h"

/* What profiling says about the devices, a line for each kind. */
static void print_devices(const struct tp_profile *profile)
{
    for (int d = 0; d < profile->n_devices; d++) {
        const struct tp_profile_device *device = &profile->devices[d];
        const struct tp_curve *forward = &device->layer[TP_FORWARD].base.rows[0].by_tokens;
        const struct tp_curve *backward = &device->layer[TP_BACKWARD].base.rows[0].by_tokens;
        const struct tp_point *last = &forward->points[forward->count - 1];
        printf("%s: %.1f GFLOP/s; a layer of %.0f tokens takes %.2f ms forward, %.2f ms backward\n",
               device->name, 1e-9 * device->peak_flops, last->at, 1e3 * last->seconds,
               1e3 * tp_curve_at(backward, last->at));
    }
}

/* Rank 0: the file, and what it says. */
static enum tp_status write_profile(const struct tp_profile *profile,
                                    const struct tp_profiler_report *report, const char *path)
{
    TP_TRY(tp_profile_save(profile, path));
    tp_profiler_print(report);
    print_devices(profile);
    printf("wrote %s\n", path);
    return TP_OK;
}

static enum tp_status profile_worker(struct tp_worker *worker, const char *path)
{
    const double budget = worker->settings->budget;
    const bool leads = tp_comm_rank(worker->world) == 0;
    struct tp_profiler_report report;
    struct tp_profile *profile;

    tp_phase_begin();
    enum tp_status status = leads ? tp_file_probe(path) : TP_OK;
    TP_TRY(tp_phase_end(worker->world, status));
    TP_TRY(tp_profiler_run(worker, budget > 0 ? budget : TP_PROFILER_BUDGET, &profile, &report));
    tp_phase_begin();
    status = leads ? write_profile(profile, &report, path) : TP_OK;
    tp_profile_free(profile);
    return tp_phase_end(worker->world, status);
}

static enum tp_status run(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    struct tp_worker worker;

    *alone = false;
    TP_TRY(tp_worker_init(&worker, settings, world));
    enum tp_status status =
        profile_worker(&worker, settings->output ? settings->output : "profile.json");
    tp_worker_fini(&worker);
    return status;
}

const struct tp_command tp_command_profile = {
    .name = "profile",
    .summary = "measure what devices and links take, for plan and simulate",
    .options = (const char *const[]){"model",
                                     "num-layers",
                                     "hidden-size",
                                     "num-attention-heads",
                                     "vocab-size",
                                     "load",
                                     "seq-length",
                                     "global-batch-size",
                                     "pipeline-model-parallel-size",
                                     "tensor-model-parallel-size",
                                     "data",
                                     "delay-wgrad-compute",
                                     "budget",
                                     "gemm",
                                     "kernels",
                                     "device",
                                     "threads",
                                     "memory",
                                     "o",
                                     NULL},
    .required = (const char *const[]){NULL},
    .run = run,
};
