/* SPDX-License-Identifier: Apache-2.0 */
/* Two processes beside this one: CLBlast as it comes, and the candidate of the moment. They compute
 * in turns, so that what disturbs the machine disturbs both; this process only asks, and never
 * calls OpenCL (cli/child.h says why). */
#include "config.h"

#include <limits.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/median.h"
#include "cli/child.h"
#include "cli/command.h"
#include "device/gemm.h"
#include "device/kernels.h"
#include "device/memory.h"
#include "device/tuning.h"
#include "model/model.h"
#include "train/cores.h"
#include "train/tuner.h"

enum { PRODUCTS = 12, ROUNDS = 3, REPEATS = 3 };

/* Seconds for all unless --budget says otherwise; those after which a candidate's answer is no
 * longer waited for. Building its kernels takes 15 to 50 with PoCL on a core. */
static const double default_budget = 600, patience = 120;

/* A candidate whose first product takes longer than this many times the default's is not looked at
 * any further. */
static const double too_slow = 1.2;

/* ---- What is computed: all products of a layer ---- */

struct layer {
    size_t rows, width, inner;
};

/* Of each weight matrix the forward, the input's gradient and the weights' gradient. */
static void list_products(const struct layer *layer, struct tp_gemm products[PRODUCTS])
{
    const size_t S = layer->rows, C = layer->width, N = layer->inner;
    const struct {
        size_t k, n;
    } weights[] = {{C, 3 * C}, {C, C}, {C, N}, {N, C}};

    for (int w = 0; w < PRODUCTS / 3; w++) {
        const size_t k = weights[w].k, n = weights[w].n;
        *products++ = (struct tp_gemm){.m = S, .n = n, .k = k};
        *products++ = (struct tp_gemm){.b_transposed = true, .m = S, .n = k, .k = n};
        *products++ = (struct tp_gemm){.a_transposed = true, .m = k, .n = n, .k = S, .beta = 1};
    }
}

static double layer_flops(const struct layer *layer)
{
    struct tp_gemm products[PRODUCTS];
    double flops = 0;

    list_products(layer, products);
    for (int p = 0; p < PRODUCTS; p++)
        flops += 2.0 * (double)products[p].m * (double)products[p].n * (double)products[p].k;
    return flops;
}

/* Shapes that no tile divides: the kernels for edges have to be right too. */
static const struct tp_gemm odd[] = {
    {.m = 193, .n = 61, .k = 127},
    {.b_transposed = true, .m = 67, .n = 127, .k = 61},
    {.a_transposed = true, .m = 61, .n = 193, .k = 67, .beta = 1},
};

/* ---- In the children ---- */

enum question {
    DESCRIBE, /* the device, opened as without this command */
    FIRST,    /* opens it, checks the first product and gives its time */
    CHECK,    /* checks all products */
    ROUND     /* gives the time of all products */
};

struct answer {
    struct tp_device_info device;
    enum tp_gemm_provider gemm; /* that auto takes */
    double seconds;
};

struct worker {
    const struct tp_settings *settings;
    int threads;
    const struct tp_tuning *set; /* NULL: CLBlast as it comes */
    struct tp_gemm products[PRODUCTS];

    struct tp_device *device;
    struct tp_view a, b, c;
};

static enum tp_status open_device(const struct worker *worker, enum tp_gemm_provider gemm,
                                  struct tp_device **device)
{
    struct tp_device_info *infos;
    int count, chosen;

    tp_device_limit_threads(worker->threads);
    TP_TRY(tp_devices_list(&infos, &count));
    enum tp_status status = tp_device_select(worker->settings->device, 0, infos, count, &chosen);
    if (status == TP_OK) {
        struct tp_device_options options = {.index = infos[chosen].index,
                                            .threads = worker->threads,
                                            .head_width = 64,
                                            .gemm = gemm,
                                            .untuned = true};
        status = tp_device_open(&options, device);
    }
    free(infos);
    return status;
}

static enum tp_status describe(const struct worker *worker, struct answer *answer)
{
    struct tp_device *device;

    TP_TRY(open_device(worker, TP_GEMM_AUTO, &device));
    answer->device = *tp_device_describe(device);
    answer->gemm = tp_device_gemm(device);
    tp_device_close(device);
    return TP_OK;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Operands for the largest product, of numbers that are not zero: some devices are fast with those.
 * They are there as long as the process. */
static enum tp_status take_operands(struct worker *worker)
{
    size_t n_a = 0, n_b = 0, n_c = 0;
    struct tp_arena *arena;

    for (int p = 0; p < PRODUCTS; p++) {
        const struct tp_gemm *product = &worker->products[p];
        n_a = larger(n_a, product->m * product->k);
        n_b = larger(n_b, product->k * product->n);
        n_c = larger(n_c, product->m * product->n);
    }
    TP_TRY(tp_arena_new(worker->device, 0, &arena));
    TP_TRY(tp_arena_take(arena, "a", n_a, &worker->a));
    TP_TRY(tp_arena_take(arena, "b", n_b, &worker->b));
    TP_TRY(tp_arena_take(arena, "c", n_c, &worker->c));
    TP_TRY(tp_fill(worker->device, worker->a, 0.5f, n_a));
    return tp_fill(worker->device, worker->b, 0.25f, n_b);
}

static enum tp_status begin(struct worker *worker)
{
    TP_TRY(open_device(worker, TP_GEMM_CLBLAST, &worker->device));
    if (worker->set)
        TP_TRY(tp_tuning_apply(worker->device, worker->set));
    return take_operands(worker);
}

static enum tp_status time_products(struct worker *worker, int count, double *seconds)
{
    TP_TRY(tp_device_finish(worker->device));
    const double began = tp_clock_now();
    for (int p = 0; p < count; p++)
        TP_TRY(tp_gemm(worker->device, worker->c, worker->a, worker->b, &worker->products[p]));
    TP_TRY(tp_device_finish(worker->device));
    *seconds = tp_clock_now() - began;
    return TP_OK;
}

/* The shortest of a few times of the first product. */
static enum tp_status try_first(struct worker *worker, double *shortest)
{
    double error, seconds;

    if (!worker->device)
        TP_TRY(begin(worker));
    TP_TRY(tp_gemm_check(worker->device, &worker->products[0], &error));
    for (int i = 0; i < REPEATS; i++) {
        TP_TRY(time_products(worker, 1, &seconds));
        if (i == 0 || seconds < *shortest)
            *shortest = seconds;
    }
    return TP_OK;
}

static enum tp_status check_products(struct worker *worker)
{
    double error;

    for (int p = 0; p < PRODUCTS; p++)
        TP_TRY(tp_gemm_check(worker->device, &worker->products[p], &error));
    for (size_t p = 0; p < sizeof odd / sizeof *odd; p++)
        TP_TRY(tp_gemm_check(worker->device, &odd[p], &error));
    return TP_OK;
}

/* A tp_child_body. */
static enum tp_status answer_question(void *self, int question, void *to)
{
    struct worker *worker = self;
    struct answer *answer = to;

    switch ((enum question)question) {
    case DESCRIBE:
        return describe(worker, answer);
    case FIRST:
        return try_first(worker, &answer->seconds);
    case CHECK:
        return check_products(worker);
    case ROUND:
        return time_products(worker, PRODUCTS, &answer->seconds);
    }
    return TP_ERR_USAGE;
}

/* ---- In the parent ---- */

struct tune {
    const struct tp_settings *settings;
    struct layer layer;
    int threads;
    double budget, end; /* seconds; when it is over */
    struct worker plain_worker;
    struct tp_child plain;           /* CLBlast as it comes */
    double plain_first, plain_round; /* seconds */
    int printed;
};

/* Asks a child, for so many seconds at most, and within the budget. Its end is no fault of the
 * child: then, as after an interrupt, *over. */
static enum tp_child_outcome ask(struct tune *tune, struct tp_child *child, enum question question,
                                 double seconds, struct answer *answer, enum tp_status *status,
                                 char *reason, bool *over)
{
    const double left = tune->end - tp_clock_now();
    enum tp_child_outcome outcome =
        tp_child_ask(child, (int)question, left < seconds ? left : seconds, answer, status, reason);

    *over = outcome == TP_CHILD_STOPPED || (outcome == TP_CHILD_LATE && left <= seconds);
    return outcome;
}

/* Asks the default's process, without which there is nothing to compare with. */
static enum tp_status ask_plain(struct tune *tune, enum question question, struct answer *answer,
                                bool *over)
{
    char reason[TP_CHILD_REASON];
    enum tp_status status;
    enum tp_child_outcome outcome =
        ask(tune, &tune->plain, question, tune->budget, answer, &status, reason, over);

    if (outcome == TP_CHILD_ANSWERED || *over)
        return TP_OK;
    if (outcome == TP_CHILD_FAILED) /* it has said why */
        return status;
    return tp_fail(TP_ERR_DEVICE, "CLBlast with its own parameters: %s", reason);
}

/* Asks a candidate; when that ends it, *ended, and the trial has the reason unless it is *over. */
static void ask_candidate(struct tune *tune, struct tp_child *child, enum question question,
                          struct answer *answer, struct tp_trial *trial, bool *ended, bool *over)
{
    char reason[TP_CHILD_REASON] = "";
    enum tp_status status;

    *ended =
        ask(tune, child, question, patience, answer, &status, reason, over) != TP_CHILD_ANSWERED;
    if (*ended)
        snprintf(trial->reason, sizeof trial->reason, "%s", reason);
}

/* Rounds of both in turns. */
static enum tp_status compare(struct tune *tune, struct tp_child *child, struct tp_trial *trial,
                              bool *over)
{
    double ratios[ROUNDS], seconds[ROUNDS];
    bool ended;

    for (int i = 0; i < ROUNDS; i++) {
        struct answer plain, mine;
        TP_TRY(ask_plain(tune, ROUND, &plain, over));
        if (*over)
            return TP_OK;
        ask_candidate(tune, child, ROUND, &mine, trial, &ended, over);
        if (ended)
            return TP_OK;
        ratios[i] = plain.seconds / mine.seconds;
        seconds[i] = mine.seconds;
    }
    trial->ratio = tp_median(ratios, ROUNDS);
    trial->gflops = 1e-9 * layer_flops(&tune->layer) / tp_median(seconds, ROUNDS);
    return TP_OK;
}

static enum tp_status try_in(struct tune *tune, struct tp_child *child, struct tp_trial *trial,
                             bool *over)
{
    struct answer answer;
    bool ended;

    ask_candidate(tune, child, FIRST, &answer, trial, &ended, over);
    if (ended)
        return TP_OK;
    if (answer.seconds > too_slow * tune->plain_first) {
        snprintf(trial->reason, sizeof trial->reason, "slow: its first product is %.2f of it",
                 tune->plain_first / answer.seconds);
        return TP_OK;
    }
    ask_candidate(tune, child, CHECK, &answer, trial, &ended, over);
    return ended ? TP_OK : compare(tune, child, trial, over);
}

static void print_trial(struct tune *tune, const struct tp_trial *trial)
{
    char text[TP_TUNING_TEXT];

    if (tune->printed++ == 0)
        printf("   # GFLOP/s  ratio  parameters and verdict\n");
    tp_tuning_print(&trial->set, text);
    if (trial->reason[0])
        printf("%4d       -      -  %s: %s\n", tune->printed, text, trial->reason);
    else
        printf("%4d %7.1f %6.2f  %s: verified\n", tune->printed, trial->gflops, trial->ratio, text);
}

/* A tp_trier's. */
static enum tp_status try_candidate(void *self, struct tp_trial *trial, bool *over)
{
    struct tune *tune = self;
    struct worker worker = tune->plain_worker;
    struct tp_child child;

    *trial = (struct tp_trial){.set = trial->set};
    worker.set = &trial->set;
    TP_TRY(tp_child_start(&child, answer_question, &worker, sizeof(struct answer), true));
    enum tp_status status = try_in(tune, &child, trial, over);
    tp_child_end(&child);
    if (status == TP_OK && !*over)
        print_trial(tune, trial);
    return status;
}

/* Starts CLBlast as it comes, and has it checked and measured. */
static enum tp_status begin_plain(struct tune *tune, struct answer *device, bool *over)
{
    struct answer answer;

    TP_TRY(tp_child_start(&tune->plain, answer_question, &tune->plain_worker, sizeof(struct answer),
                          false));
    TP_TRY(ask_plain(tune, DESCRIBE, device, over));
    if (!*over)
        TP_TRY(ask_plain(tune, FIRST, &answer, over));
    if (!*over)
        TP_TRY(ask_plain(tune, CHECK, &answer, over));
    if (*over)
        return TP_OK;
    TP_TRY(ask_plain(tune, FIRST, &answer, over)); /* again, now that all is built */
    tune->plain_first = answer.seconds;
    TP_TRY(ask_plain(tune, ROUND, &answer, over));
    tune->plain_round = answer.seconds;
    return TP_OK;
}

static void print_begin(const struct tune *tune, const struct answer *device)
{
    printf("device %s, %s (%s, driver %s)\n", device->device.index, device->device.name,
           device->device.platform, device->device.driver);
    printf("CLBlast %s by itself: %.1f GFLOP/s over the products of a layer, %zu rows, width %zu, "
           "inner %zu\n",
           tp_tuning_library(), 1e-9 * layer_flops(&tune->layer) / tune->plain_round,
           tune->layer.rows, tune->layer.width, tune->layer.inner);
    if (device->gemm != TP_GEMM_CLBLAST)
        tp_log(TP_LOG_INFO,
               "on this device --gemm auto takes what is faster; what is found here is for "
               "--gemm clblast");
}

/* Keeps the best, if it is worth it, and says so. */
static enum tp_status end_search(const struct tp_tuner *tuner, const char *path)
{
    const struct tp_trial *best = tp_tuner_best(tuner);
    char text[TP_TUNING_TEXT];

    if (!best || best->ratio < 1)
        return tp_fail(TP_ERR_DEVICE,
                       "none of the %d sets of parameters tried is right and as fast as CLBlast's "
                       "own; expected one, or a longer --budget",
                       tuner->count);
    TP_TRY(tp_tuning_save(path, &tuner->device, &best->set, best->gflops, best->ratio));
    tp_tuning_print(&best->set, text);
    printf("wrote %s; kernels are built with it at its first use\n", path);
    printf("best of %d: %.2f times CLBlast by itself, %.1f GFLOP/s: %s\n", tuner->count,
           best->ratio, best->gflops, text);
    return TP_OK;
}

/* The search, with its file beside the one of the result. */
static enum tp_status search(struct tune *tune, struct tp_tuner *tuner, const char *path)
{
    const struct tp_trier trier = {.self = tune, .try = try_candidate};
    const size_t size = strlen(path) + sizeof ".trials";
    char *trials = malloc(size);

    if (!trials)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its name", path);
    snprintf(trials, size, "%s.trials", path);
    enum tp_status status = tp_tuner_resume(tuner, trials);
    if (status == TP_OK && tuner->count > 0)
        tp_log(TP_LOG_INFO, "%s: goes on behind the %d sets that were tried before", trials,
               tuner->count);
    tune->printed = tuner->count;
    if (status == TP_OK)
        status = tp_tuner_run(tuner, trials, &trier);
    free(trials);
    return status == TP_OK ? end_search(tuner, path) : status;
}

/* Where the result goes, malloc'd. -o has been tried before. */
static enum tp_status find_path(const struct tp_settings *settings,
                                const struct tp_device_info *device, char **path)
{
    char *found = settings->output ? strdup(settings->output) : tp_tuning_path(device);
    enum tp_status status = TP_OK;

    if (!found)
        return tp_fail(TP_ERR_IO, "no cache folder: neither HOME nor XDG_CACHE_HOME is set; "
                                  "expected one of them, or -o FILE");
    if (!settings->output) {
        status = tp_file_make_parent(found);
        if (status == TP_OK)
            status = tp_file_probe(found);
    }
    if (status == TP_OK)
        *path = found;
    else
        free(found);
    return status;
}

static enum tp_status tune_device(struct tune *tune)
{
    const struct layer *layer = &tune->layer;
    struct answer device;
    struct tp_tuner tuner;
    char task[128], *path = NULL;
    bool over;

    TP_TRY(begin_plain(tune, &device, &over));
    if (over && tp_child_stop)
        return tp_fail(TP_ERR_DEVICE,
                       "interrupted before CLBlast's own kernels were built and measured");
    if (over)
        return tp_fail(TP_ERR_DEVICE,
                       "--budget %g: over before CLBlast's own kernels were built and measured; "
                       "expected more seconds",
                       tune->budget);
    print_begin(tune, &device);
    TP_TRY(find_path(tune->settings, &device.device, &path));
    snprintf(task, sizeof task, "%zu rows, width %zu, inner %zu, %d threads", layer->rows,
             layer->width, layer->inner, tune->threads);
    tp_tuner_init(&tuner, &device.device, task, tune->settings->seed);
    enum tp_status status = search(tune, &tuner, path);
    tp_tuner_fini(&tuner);
    free(path);
    return status;
}

/* ---- The command ---- */

static enum tp_status find_layer(const struct tp_settings *settings, struct layer *layer)
{
    struct tp_model model = {.n_embd = settings->n_embd ? settings->n_embd : 768};

    if (settings->model && settings->n_embd)
        return tp_fail(TP_ERR_USAGE, "--hidden-size %d: expected it without --model",
                       settings->n_embd);
    model.n_inner = 4 * model.n_embd;
    if (settings->model &&
        (tp_model_is_preset(settings->model) || !tp_file_exists(settings->model)))
        TP_TRY(tp_model_preset(settings->model, &model));
    else if (settings->model)
        TP_TRY(tp_model_load(settings->model, &model));
    *layer = (struct layer){.rows = settings->seq_len ? (size_t)settings->seq_len : 256,
                            .width = (size_t)model.n_embd,
                            .inner = (size_t)model.n_inner};
    return TP_OK;
}

static void stop(int signal)
{
    (void)signal;
    tp_child_stop = 1;
}

static enum tp_status run(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    const double budget = settings->budget > 0 ? settings->budget : default_budget;
    struct tune tune = {.settings = settings, .budget = budget, .end = tp_clock_now() + budget};
    struct tp_cores cores;

    (void)world;
    *alone = false;
    TP_TRY(find_layer(settings, &tune.layer));
    if (settings->output)
        TP_TRY(tp_file_probe(settings->output));
    TP_TRY(tp_cores_count(&cores));
    tune.threads = settings->threads ? settings->threads : tp_cores_share(&cores, 1);
    tune.plain_worker = (struct worker){.settings = settings, .threads = tune.threads};
    list_products(&tune.layer, tune.plain_worker.products);
    signal(SIGINT, stop);
    signal(SIGTERM, stop);
    enum tp_status status = tune_device(&tune);
    tp_child_end(&tune.plain);
    return status;
}

static const struct tp_option own[] = {
    {.name = "hidden-size",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct tp_settings, n_embd),
     .min = 1,
     .max = 65536,
     .argument = "N",
     .help = "width of the layer whose products are computed (768 when not given)"},
    {.name = "seq-length",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct tp_settings, seq_len),
     .min = 1,
     .max = 65536,
     .argument = "TOKENS",
     .help = "rows of the products: tokens of a slice (256 when not given)"},
    {.name = "budget",
     .type = TP_OPTION_DOUBLE,
     .offset = offsetof(struct tp_settings, budget),
     .min = 0.1,
     .max = 1e6,
     .argument = "SEC",
     .help = "time for all; a later call goes on (600 when not given)"},
    {.name = "o",
     .type = TP_OPTION_STRING,
     .offset = offsetof(struct tp_settings, output),
     .argument = "FILE",
     .help = "the file to write (the one that training looks for when not given)"},
    {.name = NULL},
};

const struct tp_command tp_command_tune = {
    .name = "tune",
    .summary = "find CLBlast's fastest parameters for a device, verified",
    .options = (const char *const[]){"model", "hidden-size", "seq-length", "budget", "device",
                                     "threads", "seed", "o", NULL},
    .required = (const char *const[]){NULL},
    .own = own,
    .local = true,
    .run = run,
};
