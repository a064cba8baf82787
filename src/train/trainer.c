/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "data/sampler.h"
#include "train/checkpoint.h"
#include "train/evaluate.h"
#include "train/gradient_check.h"
#include "train/phase.h"
#include "train/planner.h"
#include "train/progress.h"
#include "train/run.h"
#include "train/tracer.h"
#include "train/trainer.h"

struct trainer {
    struct tp_settings settings;
    struct tp_comm *world;
    bool leads; /* rank 0: it writes and prints */
    struct tp_worker worker;
    struct tp_planned planned;
    struct tp_share share;        /* of each step's sequences that this replica has */
    struct tp_schedule *schedule; /* of the plan, for them */
    struct tp_schedule *whole;    /* with --check: of whole sequences */

    struct tp_tokens *tokens;
    struct tp_sampler sampler;
    int32_t *inputs, *targets; /* [share, T] of the next step, each NULL where no stage needs it */

    struct tp_evaluation evaluation; /* batch 0: there is none */
    struct tp_run run;               /* rank 0's */
    struct tp_progress progress;
    struct tp_state state;
    int64_t first;        /* step that this run begins with */
    int64_t saved;        /* steps done at the latest checkpoint of this run, -1 before */
    int64_t validated;    /* and at the latest evaluation */
    double began, marked; /* clock: the run, the end of the latest step */
};

/* ---- Before the first step ---- */

/* Where the training stands: at the beginning, or where a checkpoint left it. */
static void find_state(struct trainer *t)
{
    const struct tp_settings *s = &t->settings;
    const struct tp_state *was = &t->worker.source.state;
    bool text = tp_tokens_text(t->tokens) != NULL;

    t->state = (struct tp_state){.tokenizer = text ? TP_TOKENIZER_BYTES : TP_TOKENIZER_NONE,
                                 .sampler = s->sampler,
                                 .seq_len = t->worker.seq_len,
                                 .seed = s->seed};
    if (!t->worker.source.resume)
        return;
    t->state.step = was->step;
    t->state.samples = was->samples;
    t->state.skipped = was->skipped;
    if (!text)
        t->state.tokenizer = was->tokenizer;
    if (was->seed != s->seed || was->sampler != s->sampler || was->seq_len != t->worker.seq_len)
        tp_log(TP_LOG_WARNING, "--seed, --sampler or --seq-length is not that of the run that is "
                               "resumed; samples come in another order");
}

/* Memory for the tokens of a step, on the stages that need them. */
static enum tp_status make_batch(struct trainer *t)
{
    size_t count = t->share.count * (size_t)t->worker.seq_len;

    if (tp_worker_is_first(&t->worker))
        t->inputs = malloc(count * sizeof *t->inputs);
    if (tp_worker_is_last(&t->worker))
        t->targets = malloc(count * sizeof *t->targets);
    if ((tp_worker_is_first(&t->worker) && !t->inputs) ||
        (tp_worker_is_last(&t->worker) && !t->targets))
        return tp_fail(TP_ERR_MEMORY, "--global-batch-size %d: no memory for its tokens",
                       t->settings.batch);
    return TP_OK;
}

/* What --check compares with. */
static enum tp_status make_whole(struct trainer *t, const struct tp_plan *mine)
{
    struct tp_plan *whole;

    TP_TRY(tp_plan_whole(mine, &whole));
    enum tp_status status = tp_worker_schedule(&t->worker, whole, &t->whole);
    tp_plan_free(whole);
    return status;
}

/* What a plan is run by. */
static enum tp_status make_schedules(struct trainer *t)
{
    const struct tp_settings *s = &t->settings;
    const struct tp_plan *plan = t->planned.plan;
    struct tp_plan *mine;

    TP_TRY(tp_plan_shrink(plan, (int)t->share.count, plan->schedule, &mine));
    enum tp_status status = tp_worker_schedule(&t->worker, mine, &t->schedule);
    if (status == TP_OK && s->check)
        status = make_whole(t, mine);
    tp_plan_free(mine);
    if (status != TP_OK || s->validation.count == 0)
        return status;
    return tp_evaluation_init(&t->evaluation, &t->worker, plan, &s->validation, s->eval_iters);
}

static void drop_schedules(struct trainer *t)
{
    tp_evaluation_fini(&t->evaluation);
    t->evaluation = (struct tp_evaluation){.batch = 0};
    tp_schedule_free(t->schedule);
    tp_schedule_free(t->whole);
    t->schedule = t->whole = NULL;
}

/* All that can be checked without a device; the plan is a first one where nobody said it all. */
static enum tp_status prepare(struct trainer *t)
{
    const struct tp_settings *s = &t->settings;

    t->share = tp_worker_share(&t->worker, s->batch);
    TP_TRY(tp_planner_given(&t->worker, &t->planned.plan));
    TP_TRY(tp_worker_tokens(&t->worker, &s->data, &t->tokens));
    find_state(t);
    t->first = t->state.step;
    t->saved = t->validated = -1;
    TP_TRY(tp_sampler_init(&t->sampler, (enum tp_sampler_kind)s->sampler, s->seed,
                           tp_tokens_samples(t->tokens)));
    TP_TRY(make_schedules(t));
    TP_TRY(make_batch(t));
    return tp_run_open(&t->run, s, t->leads);
}

/* Plans what is left to plan, now that all else is known to be right. */
static enum tp_status plan(struct trainer *t)
{
    struct tp_planned planned = {.plan = NULL};

    if (!tp_planner_is_needed(&t->settings))
        return TP_OK;
    enum tp_status status = tp_planner_search(&t->worker, &planned);
    if (status != TP_OK) {
        tp_planned_fini(&planned);
        return status;
    }
    drop_schedules(t);
    tp_planned_fini(&t->planned);
    t->planned = planned;
    tp_phase_begin();
    return tp_phase_end(t->world, make_schedules(t));
}

static enum tp_status open_worker(struct trainer *t)
{
    const struct tp_schedule *all[] = {t->schedule, t->whole, t->evaluation.whole,
                                       t->evaluation.last};
    const struct tp_schedule *schedules[sizeof all / sizeof *all];
    struct tp_work work = {.plan = t->planned.plan, .schedules = schedules, .train = true};

    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i])
            schedules[work.n_schedules++] = all[i];
    TP_TRY(tp_worker_open(&t->worker, &work));
    tp_phase_begin();
    enum tp_status status = TP_OK;
    if (t->leads)
        status = tp_run_begin(&t->run, &t->settings, t->first);
    if (status == TP_OK && t->leads && t->run.folder)
        status = tp_run_describe(&t->run, &t->worker, &t->planned);
    return tp_phase_end(t->world, status);
}

/* ---- A step ---- */

/* Reads the tokens of the step that comes next. */
static enum tp_status read_batch(struct trainer *t)
{
    if (!t->inputs && !t->targets)
        return TP_OK;
    for (size_t b = 0; b < t->share.count; b++) {
        int64_t sample =
            tp_sampler_at(&t->sampler, t->state.samples + (int64_t)(t->share.first + b));
        size_t at = b * (size_t)t->worker.seq_len;
        TP_TRY(tp_tokens_sample(t->tokens, sample, t->inputs ? t->inputs + at : NULL,
                                t->targets ? t->targets + at : NULL));
    }
    return TP_OK;
}

static double learning_rate(const struct trainer *t)
{
    const struct tp_settings *s = &t->settings;
    const struct tp_learning_rate rate = {.lr = s->lr,
                                          .min = s->min_lr,
                                          .warmup = s->warmup_iters,
                                          .decay = s->decay_iters ? s->decay_iters : s->train_iters,
                                          .style = (enum tp_decay_style)s->decay_style};

    return tp_learning_rate_at(&rate, t->state.step);
}

/* The step over the batch that was read. */
static struct tp_cell_step step_of(const struct trainer *t)
{
    const struct tp_settings *s = &t->settings;

    return (struct tp_cell_step){.inputs = t->inputs,
                                 .targets = t->targets,
                                 .sequences = (int)t->share.count,
                                 .scale = 1 / ((double)s->batch * t->worker.seq_len),
                                 .train = true,
                                 .exchange = t->worker.grid.data > 1,
                                 .dropout = s->dropout,
                                 .seed = s->seed,
                                 .step = t->state.step,
                                 .first_sequence = (int)t->share.first};
}

/* Forward, backward and update over it. */
static enum tp_status compute(struct trainer *t, struct tp_step_metrics *metrics, bool *finite)
{
    const struct tp_settings *s = &t->settings;
    double tokens = (double)s->batch * t->worker.seq_len;
    struct tp_cell_step step = step_of(t);
    struct tp_adamw adamw = {.lr = learning_rate(t),
                             .beta1 = s->beta1,
                             .beta2 = s->beta2,
                             .eps = s->eps,
                             .weight_decay = s->weight_decay,
                             .step = t->state.step - t->state.skipped + 1};
    struct tp_step_result result;

    TP_TRY(tp_cell_begin_step(t->worker.cell, &step));
    TP_TRY(tp_engine_run(t->worker.engine, &adamw, s->clip_grad, &result));
    double now = tp_clock_now(), seconds = now - t->marked;
    t->marked = now;
    *metrics = (struct tp_step_metrics){.step = t->state.step,
                                        .loss = result.loss,
                                        .grad_norm = result.norm,
                                        .lr = adamw.lr,
                                        .seconds = seconds,
                                        .tokens_per_second = tokens / seconds};
    *finite = result.finite;
    return TP_OK;
}

/* A step whose loss or norm is not a number was not applied, on any stage. All ranks know it. */
static enum tp_status skip(struct trainer *t, const struct tp_step_metrics *metrics)
{
    bool over = t->state.skipped >= t->settings.max_skipped;

    if (t->leads)
        tp_log(over ? TP_LOG_ERROR : TP_LOG_WARNING,
               "step %" PRId64 " (counted from 0): loss %g, gradient norm %g: expected finite "
               "numbers; the step was not applied%s",
               metrics->step, metrics->loss, metrics->grad_norm,
               over ? ", and --max-skipped allows no more" : "");
    if (over)
        return TP_ERR_NONFINITE;
    t->state.skipped++;
    return TP_OK;
}

/* Writes the metrics down and reads the next step's tokens; ranks that fail do so together. */
static enum tp_status record(struct trainer *t, const struct tp_step_metrics *metrics)
{
    enum tp_status status = TP_OK;

    tp_phase_begin();
    if (t->leads)
        status = tp_run_add(&t->run, metrics);
    if (status == TP_OK && t->state.step < t->settings.train_iters)
        status = read_batch(t);
    return tp_phase_end(t->world, status);
}

/* --trace shows the run's third step, since the first two may compile and touch memory for the
 * first time; or the last one of fewer. */
static bool is_traced(const struct trainer *t)
{
    const int64_t last = t->settings.train_iters - 1;
    const int64_t third = t->first + 2 < last ? t->first + 2 : last;

    return t->settings.trace != NULL && t->state.step == third;
}

static enum tp_status compute_traced(struct trainer *t, struct tp_step_metrics *metrics,
                                     bool *finite)
{
    struct tp_trace *trace;

    if (!is_traced(t))
        return compute(t, metrics, finite);
    TP_TRY(tp_tracer_begin(&t->worker, &trace));
    TP_TRY(compute(t, metrics, finite));
    return tp_tracer_end(&t->worker, trace, t->settings.trace);
}

static enum tp_status take_step(struct trainer *t)
{
    const struct tp_settings *s = &t->settings;
    struct tp_step_metrics metrics;
    bool finite;

    TP_TRY(compute_traced(t, &metrics, &finite));
    if (s->save_gradients && t->state.step == t->first)
        TP_TRY(tp_checkpoint_gather(&t->worker, t->planned.plan, TP_GRADIENT, s->save_gradients));
    if (!finite)
        TP_TRY(skip(t, &metrics));
    t->state.step++;
    t->state.samples += s->batch;
    TP_TRY(record(t, &metrics));
    if (t->leads)
        tp_progress_step(&t->progress, &metrics,
                         t->state.step % s->log_interval == 0 || t->state.step == s->train_iters);
    return TP_OK;
}

/* ---- Between steps ---- */

static bool due(const struct trainer *t, int interval)
{
    return interval > 0 && t->state.step % interval == 0;
}

static enum tp_status validate(struct trainer *t)
{
    double loss;

    if (!t->evaluation.batch || t->validated == t->state.step)
        return TP_OK;
    TP_TRY(tp_evaluation_run(&t->evaluation, &t->worker, &loss));
    TP_TRY(tp_engine_set_schedule(t->worker.engine, t->schedule));
    if (t->leads)
        tp_progress_validation(&t->progress, t->state.step, loss);
    t->validated = t->state.step;
    return TP_OK;
}

static enum tp_status save(struct trainer *t)
{
    enum tp_status status = TP_OK;

    if (!t->settings.save || t->saved == t->state.step)
        return TP_OK;
    TP_TRY(tp_checkpoint_save(&t->worker, t->planned.plan, t->run.checkpoints, &t->state));
    t->saved = t->state.step;
    tp_phase_begin();
    if (t->leads && t->settings.keep > 0)
        status = tp_checkpoint_prune(t->run.checkpoints, t->settings.keep);
    return tp_phase_end(t->world, status);
}

/* Is the time that --exit-duration-in-mins gives over? Rank 0's clock says it for all. */
static enum tp_status look_at_clock(const struct trainer *t, bool *over)
{
    double minutes = t->settings.exit_minutes;

    *over = minutes > 0 && tp_clock_now() - t->began >= 60 * minutes;
    return minutes > 0 ? tp_comm_bcast(t->world, over, sizeof *over, 0) : TP_OK;
}

static enum tp_status take_steps(struct trainer *t)
{
    const struct tp_settings *s = &t->settings;
    bool over = false;

    tp_phase_begin();
    enum tp_status status = t->state.step < s->train_iters ? read_batch(t) : TP_OK;
    TP_TRY(tp_phase_end(t->world, status));
    if (t->whole && t->state.step < s->train_iters) {
        const struct tp_cell_step step = step_of(t);
        TP_TRY(tp_gradient_check(&t->worker, t->planned.plan, &step, t->schedule, t->whole));
    }
    t->marked = tp_clock_now();
    while (t->state.step < s->train_iters && !over) {
        TP_TRY(take_step(t));
        tp_comm_set_watchdog(s->watchdog); /* the first step compiles */
        if (due(t, s->eval_interval) || due(t, s->save_interval)) {
            if (due(t, s->eval_interval))
                TP_TRY(validate(t));
            if (due(t, s->save_interval))
                TP_TRY(save(t));
            t->marked = tp_clock_now();
        }
        TP_TRY(look_at_clock(t, &over));
    }
    return TP_OK;
}

/* The weights before a step that went wrong for all ranks alike are worth keeping, and so is the
 * end of the run. */
static enum tp_status end_run(struct trainer *t, enum tp_status status)
{
    if (t->leads)
        tp_progress_end(&t->progress);
    if (status == TP_OK) {
        if (t->state.step == t->first && t->leads)
            tp_log(TP_LOG_INFO,
                   "no step was left: %" PRId64 " of --train-iters %d were done before",
                   t->state.step, t->settings.train_iters);
        TP_TRY(validate(t));
        return save(t);
    }
    if ((status == TP_ERR_NONFINITE || status == TP_ERR_INPUT) && t->state.step > t->first) {
        enum tp_status saved = save(t);
        return saved != TP_OK ? saved : status;
    }
    return status;
}

static bool together(enum tp_status status)
{
    return status == TP_OK || status == TP_ERR_INPUT || status == TP_ERR_IO ||
           status == TP_ERR_NONFINITE;
}

static enum tp_status run(struct trainer *t, bool *alone)
{
    tp_progress_init(&t->progress, t->first, t->settings.train_iters);
    if (tp_comm_size(t->world) > 1)
        tp_log_set_rank(tp_comm_rank(t->world));
    enum tp_status status = take_steps(t);
    if (together(status))
        status = end_run(t, status);
    *alone = !together(status);
    tp_comm_set_watchdog(0);
    if (!*alone)
        tp_log_set_rank(-1);
    return status;
}

enum tp_status tp_train(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    struct trainer t = {
        .world = world, .leads = tp_comm_rank(world) == 0, .run.lock = -1, .began = tp_clock_now()};

    *alone = false;
    tp_phase_begin();
    TP_TRY(tp_phase_end(world, tp_planner_settle(settings, &t.settings)));
    TP_TRY(tp_worker_init(&t.worker, &t.settings, world));
    tp_phase_begin();
    enum tp_status status = tp_phase_end(world, prepare(&t));
    if (status == TP_OK)
        status = plan(&t);
    if (status == TP_OK)
        status = open_worker(&t);
    if (status == TP_OK)
        status = run(&t, alone);
    if (*alone)
        return status;
    tp_worker_fini(&t.worker);
    tp_run_close(&t.run);
    drop_schedules(&t);
    tp_sampler_fini(&t.sampler);
    tp_tokens_close(t.tokens);
    tp_planned_fini(&t.planned);
    free(t.inputs);
    free(t.targets);
    return status;
}
