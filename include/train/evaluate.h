/* SPDX-License-Identifier: Apache-2.0 */
/* Mean loss of a model over token files, by forward passes alone. */
#ifndef TP_TRAIN_EVALUATE_H
#define TP_TRAIN_EVALUATE_H

#include <stdint.h>

#include "base/status.h"
#include "data/tokens.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "train/worker.h"

struct tp_evaluation {
    struct tp_tokens *tokens;
    int64_t samples; /* that are looked at: the first ones of the stream */
    int batch, rest; /* sequences of a batch, and of the last one when it is smaller, else 0 */
    struct tp_schedule *whole, *last; /* for the replica's share; last is NULL without a rest */
    int32_t *inputs, *targets;        /* [share, T], each NULL where no stage needs it */
};

/* Opens the files and makes the schedules; batches have as many sequences as a step, or as there
 * are. iters: batches that are looked at, 0 for all whole samples. Local. TP_ERR_INPUT,
 * TP_ERR_MEMORY. */
enum tp_status tp_evaluation_init(struct tp_evaluation *evaluation, const struct tp_worker *worker,
                                  const struct tp_plan *plan, const struct tp_option_list *paths,
                                  int iters);
void tp_evaluation_fini(struct tp_evaluation *evaluation);

/* The mean cross-entropy of all targets, in nats, the same on all ranks. The engine keeps the
 * evaluation's schedule. Collective over the world; the ranks fail together with TP_ERR_INPUT (a
 * token beyond the vocabulary) and TP_ERR_IO, any other error leaves this rank alone. */
enum tp_status tp_evaluation_run(struct tp_evaluation *evaluation, struct tp_worker *worker,
                                 double *loss);

/* The command: evaluates what --load holds on --data-path and prints loss, perplexity and samples.
 * *alone: the error is this rank's alone, the job has to be ended. Collective over world. */
enum tp_status tp_evaluate(const struct tp_settings *settings, struct tp_comm *world, bool *alone);

#endif
