/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "train/evaluate.h"
#include "train/phase.h"

/* The forward schedule of the first sequences of a plan. */
static enum tp_status forward_schedule(const struct tp_worker *worker, const struct tp_plan *plan,
                                       int sequences, struct tp_schedule **schedule)
{
    struct tp_plan *forward;

    TP_TRY(tp_plan_shrink(plan, sequences, TP_SCHEDULE_FORWARD, &forward));
    enum tp_status status = tp_worker_schedule(worker, forward, schedule);
    tp_plan_free(forward);
    return status;
}

/* What a replica does of a batch. One without sequences of its own does one that another does too,
 * and does not count it. */
struct share {
    int first, count;
    bool counts;
};

static struct share share_of(const struct tp_worker *worker, int sequences)
{
    const struct tp_share share = tp_worker_share(worker, sequences);

    if (share.count == 0)
        return (struct share){0, 1, false};
    return (struct share){(int)share.first, (int)share.count, true};
}

/* Memory for the tokens of a batch. */
static enum tp_status new_batch(size_t count, int32_t **tokens)
{
    *tokens = malloc(count * sizeof **tokens);
    return *tokens ? TP_OK : tp_fail(TP_ERR_MEMORY, "no memory for %zu tokens", count);
}

enum tp_status tp_evaluation_init(struct tp_evaluation *evaluation, const struct tp_worker *worker,
                                  const struct tp_plan *plan, const struct tp_option_list *paths,
                                  int iters)
{
    struct tp_evaluation made = {.batch = worker->settings->batch};
    enum tp_status status = tp_worker_tokens(worker, paths, &made.tokens);

    if (status != TP_OK)
        return status;
    made.samples = tp_tokens_samples(made.tokens);
    if (iters > 0 && made.samples > (int64_t)iters * made.batch)
        made.samples = (int64_t)iters * made.batch;
    if (made.batch > made.samples)
        made.batch = (int)made.samples;
    made.rest = (int)(made.samples % made.batch);

    const int whole = share_of(worker, made.batch).count;
    size_t count = (size_t)whole * (size_t)worker->seq_len;
    status = forward_schedule(worker, plan, whole, &made.whole);
    if (status == TP_OK && made.rest > 0)
        status = forward_schedule(worker, plan, share_of(worker, made.rest).count, &made.last);
    if (status == TP_OK && tp_worker_is_first(worker))
        status = new_batch(count, &made.inputs);
    if (status == TP_OK && tp_worker_is_last(worker))
        status = new_batch(count, &made.targets);
    if (status == TP_OK)
        *evaluation = made;
    else
        tp_evaluation_fini(&made);
    return status;
}

void tp_evaluation_fini(struct tp_evaluation *evaluation)
{
    tp_tokens_close(evaluation->tokens);
    tp_schedule_free(evaluation->whole);
    tp_schedule_free(evaluation->last);
    free(evaluation->inputs);
    free(evaluation->targets);
    *evaluation = (struct tp_evaluation){.tokens = NULL};
}

static enum tp_status read_batch(struct tp_evaluation *evaluation, const struct tp_worker *worker,
                                 int64_t first, int sequences)
{
    if (!evaluation->inputs && !evaluation->targets)
        return TP_OK;
    for (int b = 0; b < sequences; b++) {
        size_t at = (size_t)b * (size_t)worker->seq_len;
        TP_TRY(tp_tokens_sample(evaluation->tokens, first + b,
                                evaluation->inputs ? evaluation->inputs + at : NULL,
                                evaluation->targets ? evaluation->targets + at : NULL));
    }
    return TP_OK;
}

/* The mean loss of one batch, of which this is the replica's share. */
static enum tp_status run_batch(struct tp_evaluation *evaluation, struct tp_worker *worker,
                                const struct share *share, int sequences, double *loss)
{
    struct tp_cell_step step = {.inputs = evaluation->inputs,
                                .targets = evaluation->targets,
                                .sequences = share->count,
                                .scale = share->counts ? 1.0 / ((double)sequences * worker->seq_len)
                                                       : 0};
    struct tp_step_result result;

    TP_TRY(tp_cell_begin_step(worker->cell, &step));
    TP_TRY(tp_engine_run(worker->engine, NULL, 0, &result));
    *loss = result.loss;
    return TP_OK;
}

enum tp_status tp_evaluation_run(struct tp_evaluation *evaluation, struct tp_worker *worker,
                                 double *loss)
{
    double sum = 0, mean;

    TP_TRY(tp_engine_set_schedule(worker->engine, evaluation->whole));
    for (int64_t done = 0; done < evaluation->samples;) {
        int64_t left = evaluation->samples - done;
        int sequences = left < evaluation->batch ? (int)left : evaluation->batch;
        if (sequences < evaluation->batch)
            TP_TRY(tp_engine_set_schedule(worker->engine, evaluation->last));
        const struct share share = share_of(worker, sequences);
        tp_phase_begin();
        enum tp_status status = read_batch(evaluation, worker, done + share.first, share.count);
        TP_TRY(tp_phase_end(worker->world, status));
        TP_TRY(run_batch(evaluation, worker, &share, sequences, &mean));
        sum += mean * sequences;
        done += sequences;
        tp_comm_set_watchdog(worker->settings->watchdog); /* the first batch compiles */
    }
    *loss = sum / (double)evaluation->samples;
    return TP_OK;
}

/* ---- The command ---- */

static enum tp_status evaluate(struct tp_evaluation *evaluation, struct tp_worker *worker,
                               const struct tp_plan *plan, bool *alone)
{
    const struct tp_schedule *schedules[] = {evaluation->whole, evaluation->last};
    struct tp_work work = {
        .plan = plan, .schedules = schedules, .n_schedules = evaluation->last ? 2 : 1};
    bool leads = tp_comm_rank(worker->world) == 0;
    double loss;

    TP_TRY(tp_worker_open(worker, &work));
    enum tp_status status = tp_evaluation_run(evaluation, worker, &loss);
    *alone = status != TP_OK && status != TP_ERR_INPUT && status != TP_ERR_IO;
    if (status != TP_OK)
        return status;
    if (!isfinite(loss)) { /* for all ranks alike */
        if (leads)
            tp_log(TP_LOG_ERROR, "%s: the mean loss is %g, expected a finite number",
                   worker->source.folder, loss);
        return TP_ERR_NONFINITE;
    }
    if (leads) {
        printf("loss %.6f | perplexity %.4f | %lld samples\n", loss, exp(loss),
               (long long)evaluation->samples);
        fflush(stdout);
    }
    return status;
}

enum tp_status tp_evaluate(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    struct tp_evaluation evaluation = {.tokens = NULL};
    struct tp_plan *plan = NULL;
    struct tp_worker worker;

    *alone = false;
    TP_TRY(tp_worker_init(&worker, settings, world));
    tp_phase_begin();
    enum tp_status status = tp_worker_plan(&worker, &plan);
    if (status == TP_OK)
        status =
            tp_evaluation_init(&evaluation, &worker, plan, &settings->data, settings->eval_iters);
    status = tp_phase_end(world, status);
    if (status == TP_OK)
        status = evaluate(&evaluation, &worker, plan, alone);
    if (*alone)
        return status;
    tp_comm_set_watchdog(0);
    tp_worker_fini(&worker);
    tp_evaluation_fini(&evaluation);
    tp_plan_free(plan);
    return status;
}
