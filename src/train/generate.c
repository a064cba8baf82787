/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "train/generate.h"
#include "train/phase.h"

/* Bytes are the tokens, so that no other can be picked. */
enum { BYTES = 256 };

/* ---- Schedules ---- */

/* The forward schedule of one sequence of length tokens, cut as a whole window is: the same slices
 * from the left, the last one shorter. */
static enum tp_status schedule_of(const struct tp_generator *generator, int length,
                                  struct tp_schedule **schedule)
{
    const struct tp_worker *worker = &generator->worker;
    int slice = (worker->seq_len + 3) / 4, count = (length + slice - 1) / slice;
    struct tp_slices slices = {.count = count};
    struct tp_plan *plan, *forward;

    slices.lengths = malloc((size_t)count * sizeof *slices.lengths);
    if (!slices.lengths)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d slices", count);
    for (int i = 0; i < count; i++)
        slices.lengths[i] = i < count - 1 ? slice : length - i * slice;
    enum tp_status status = tp_plan_default(&worker->model, length, 1, worker->grid.pipe_size,
                                            TP_SCHEDULE_TERAPIPE, 0, &slices, &plan);
    tp_slices_fini(&slices);
    if (status != TP_OK)
        return status;
    status = tp_plan_shrink(plan, 1, TP_SCHEDULE_FORWARD, &forward);
    tp_plan_free(plan);
    if (status != TP_OK)
        return status;
    status = tp_worker_schedule(worker, forward, schedule);
    tp_plan_free(forward);
    return status;
}

/* ---- Opening ---- */

static enum tp_status check_tokenizer(const struct tp_generator *generator)
{
    const struct tp_worker *worker = &generator->worker;
    const struct tp_source *source = &worker->source;

    if (worker->model.vocab_size == BYTES || worker->settings->tokenizer == TP_TOKENIZER_BYTES ||
        (source->resume && source->state.tokenizer == TP_TOKENIZER_BYTES))
        return TP_OK;
    return tp_fail(TP_ERR_INPUT,
                   "%s: the model has %d tokens, expected %d, the bytes; --tokenizer bytes takes "
                   "them all the same",
                   source->folder, worker->model.vocab_size, BYTES);
}

static enum tp_status check_prompt(const char *prompt, int vocab_size)
{
    if (!prompt[0])
        return tp_fail(TP_ERR_USAGE, "--prompt: expected a text of at least one byte");
    for (size_t i = 0; prompt[i]; i++)
        if ((unsigned char)prompt[i] >= vocab_size)
            return tp_fail(
                TP_ERR_INPUT,
                "--prompt: byte %d at %zu, expected less than %d, the model's vocabulary",
                (unsigned char)prompt[i], i, vocab_size);
    return TP_OK;
}

/* All that can be checked without a device. */
static enum tp_status prepare(struct tp_generator *generator)
{
    struct tp_worker *worker = &generator->worker;
    const struct tp_settings *settings = worker->settings;
    int vocab_size = worker->model.vocab_size;

    if (worker->grid.data > 1)
        return tp_fail(TP_ERR_USAGE,
                       "%d ranks were started, expected %d: a text has no use for replicas",
                       tp_comm_size(worker->world), worker->grid.pipe_size * worker->grid.op);
    TP_TRY(check_tokenizer(generator));
    TP_TRY(check_prompt(settings->prompt, vocab_size));
    TP_TRY(tp_plan_default(&worker->model, worker->seq_len, 1, worker->grid.pipe_size,
                           TP_SCHEDULE_TERAPIPE, 0, NULL, &generator->plan));
    TP_TRY(schedule_of(generator, worker->seq_len, &generator->window));
    TP_TRY(schedule_of(generator, 1, &generator->one));
    TP_TRY(tp_picker_init(&generator->picker, vocab_size < BYTES ? vocab_size : BYTES,
                          settings->temperature, settings->top_k, settings->top_p));
    generator->inputs = calloc((size_t)worker->seq_len, sizeof *generator->inputs);
    generator->logits = malloc((size_t)vocab_size * sizeof *generator->logits);
    if (!generator->inputs || !generator->logits)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d tokens and %d logits", worker->seq_len,
                       vocab_size);
    return TP_OK;
}

enum tp_status tp_generator_init(struct tp_generator *generator, const struct tp_settings *settings,
                                 struct tp_comm *world)
{
    *generator =
        (struct tp_generator){.rng = {.seed = settings->seed, .use = TP_RNG_SAMPLE, .stream = 0}};
    TP_TRY(tp_worker_init(&generator->worker, settings, world));
    tp_phase_begin();
    enum tp_status status = tp_phase_end(world, prepare(generator));
    if (status == TP_OK) {
        const struct tp_schedule *schedules[] = {generator->window, generator->one};
        struct tp_work work = {.plan = generator->plan, .schedules = schedules, .n_schedules = 2};
        status = tp_worker_open(&generator->worker, &work);
    }
    if (status != TP_OK)
        tp_generator_fini(generator);
    return status;
}

void tp_generator_fini(struct tp_generator *generator)
{
    tp_worker_fini(&generator->worker);
    tp_plan_free(generator->plan);
    tp_schedule_free(generator->window);
    tp_schedule_free(generator->one);
    tp_schedule_free(generator->prefill);
    tp_picker_fini(&generator->picker);
    free(generator->inputs);
    free(generator->logits);
}

/* ---- One token ---- */

/* Runs a schedule over the window's tokens, [cached, length) of them new. */
static enum tp_status run(struct tp_generator *generator, const struct tp_schedule *schedule)
{
    struct tp_worker *worker = &generator->worker;
    struct tp_cell_step step = {.sequences = 1};
    struct tp_step_result result;

    if (tp_worker_is_first(worker))
        step.inputs = generator->inputs;
    TP_TRY(tp_engine_set_schedule(worker->engine, schedule));
    TP_TRY(tp_cell_begin_step(worker->cell, &step));
    return tp_engine_run(worker->engine, NULL, 0, &result);
}

/* Takes the window's tokens in that the stages do not have yet. *unit is the last one that ran. */
static enum tp_status take_in(struct tp_generator *generator, int length, struct tp_unit *unit)
{
    struct tp_schedule *schedule = generator->one;

    if (generator->cached > 0 && generator->cached == length - 1) {
        schedule->units[0].slice.start = generator->cached;
    } else {
        TP_TRY(schedule_of(generator, length, &schedule));
        tp_schedule_free(generator->prefill);
        generator->prefill = schedule;
    }
    TP_TRY(run(generator, schedule));
    generator->cached = length;
    *unit = schedule->units[schedule->n_units - 1];
    return TP_OK;
}

/* What the last stage tells the others. */
struct verdict {
    int32_t token;
    bool finite;
};

static enum tp_status pick(struct tp_generator *generator, const struct tp_unit *unit, size_t n,
                           struct verdict *verdict)
{
    struct tp_picker *picker = &generator->picker;

    TP_TRY(tp_cell_logits(generator->worker.cell, unit, generator->logits));
    verdict->finite = true;
    for (int i = 0; i < picker->vocab_size; i++)
        verdict->finite = verdict->finite && isfinite(generator->logits[i]);
    if (verdict->finite)
        verdict->token =
            tp_picker_pick(picker, generator->logits, tp_rng_uniform(&generator->rng, n));
    return TP_OK;
}

/* Tokens that are taken in again when the positions are full. */
static int window_of(const struct tp_generator *generator)
{
    const int half = generator->worker.seq_len / 2;

    return half > 1 ? half : 1;
}

/* Moves the window to the last half of T tokens when the text has outgrown it. */
static void place_window(struct tp_generator *generator, size_t n)
{
    const size_t T = (size_t)generator->worker.seq_len;

    if (n > generator->first && n - generator->first <= T)
        return;
    generator->first = n <= T ? 0 : n - (size_t)window_of(generator);
    generator->cached = 0;
}

enum tp_status tp_generator_next(struct tp_generator *generator, const int32_t *text, size_t n,
                                 int32_t *token)
{
    struct tp_comm *pipe = generator->worker.grid.pipe;
    int last = generator->worker.grid.pipe_size - 1;
    struct verdict verdict = {.token = 0};
    struct tp_unit unit;

    place_window(generator, n);
    int length = (int)(n - generator->first);
    memcpy(generator->inputs, text + generator->first, (size_t)length * sizeof *text);
    TP_TRY(take_in(generator, length, &unit));
    if (tp_worker_is_last(&generator->worker))
        TP_TRY(pick(generator, &unit, n, &verdict));
    TP_TRY(tp_comm_bcast(pipe, &verdict, sizeof verdict, last));
    if (!verdict.finite) {
        if (tp_comm_rank(generator->worker.world) == 0)
            tp_log(TP_LOG_ERROR, "%s: the model's logits after %zu tokens are not finite numbers",
                   generator->worker.source.folder, n);
        return TP_ERR_NONFINITE;
    }
    *token = verdict.token;
    return TP_OK;
}

void tp_generator_forget(struct tp_generator *generator)
{
    generator->first = 0;
    generator->cached = 0;
}

/* ---- The command ---- */

/* --prompt as tokens, with room for those that follow. */
static enum tp_status read_prompt(const struct tp_settings *settings, int32_t **text, size_t *n)
{
    size_t length = strlen(settings->prompt);
    int32_t *tokens = malloc((length + (size_t)settings->max_new_tokens) * sizeof *tokens);

    if (!tokens)
        return tp_fail(TP_ERR_MEMORY, "--max-new-tokens %d: no memory for them",
                       settings->max_new_tokens);
    for (size_t i = 0; i < length; i++)
        tokens[i] = (unsigned char)settings->prompt[i];
    *text = tokens;
    *n = length;
    return TP_OK;
}

/* Rank 0 prints tokens as soon as they are there. */
static enum tp_status print_tokens(const struct tp_generator *generator, const int32_t *tokens,
                                   size_t n)
{
    enum tp_status status = TP_OK;

    tp_phase_begin();
    if (tp_comm_rank(generator->worker.world) == 0) {
        for (size_t i = 0; i < n; i++)
            putchar(tokens[i]);
        if (fflush(stdout) != 0)
            status = tp_fail(TP_ERR_IO, "standard output: cannot write: %s", strerror(errno));
    }
    return tp_phase_end(generator->worker.world, status);
}

/* Says, before the text and not in its midst, that it will outgrow the model. */
static void announce_length(const struct tp_generator *generator, size_t n)
{
    const int T = generator->worker.seq_len;
    const size_t taken = n + (size_t)generator->worker.settings->max_new_tokens - 1;

    if (taken > (size_t)T && tp_comm_rank(generator->worker.world) == 0)
        tp_log(TP_LOG_INFO,
               "the text will be longer than the model's %d positions: the last %d tokens are "
               "taken in again whenever they are full",
               T, window_of(generator));
}

static enum tp_status continue_text(struct tp_generator *generator, int32_t *text, size_t n)
{
    const int32_t end = '\n';

    announce_length(generator, n);
    TP_TRY(print_tokens(generator, text, n));
    for (int i = 0; i < generator->worker.settings->max_new_tokens; i++, n++) {
        TP_TRY(tp_generator_next(generator, text, n, &text[n]));
        tp_comm_set_watchdog(generator->worker.settings->watchdog); /* the first one compiles */
        TP_TRY(print_tokens(generator, &text[n], 1));
    }
    return print_tokens(generator, &end, 1);
}

enum tp_status tp_generate(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    struct tp_generator generator;
    int32_t *text = NULL;
    size_t n = 0;

    *alone = false;
    TP_TRY(tp_generator_init(&generator, settings, world));
    tp_phase_begin();
    enum tp_status status = tp_phase_end(world, read_prompt(settings, &text, &n));
    if (status == TP_OK) {
        status = continue_text(&generator, text, n);
        *alone = status != TP_OK && status != TP_ERR_IO && status != TP_ERR_NONFINITE;
    }
    if (*alone)
        return status;
    tp_comm_set_watchdog(0);
    free(text);
    tp_generator_fini(&generator);
    return status;
}
