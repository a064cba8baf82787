/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "train/run.h"

/* ---- Metrics ---- */

enum { METRICS_LIMIT = 1 << 30 };

/* Bytes of the leading lines that are whole and tell of steps before first. */
static size_t lines_before(const char *text, int64_t first)
{
    const char *line = text, *end;
    int64_t step;

    while ((end = strchr(line, '\n')) && sscanf(line, "{\"step\": %" SCNd64 ",", &step) == 1 &&
           step < first)
        line = end + 1;
    return (size_t)(line - text);
}

/* Drops what a run that was ended later than its checkpoint wrote behind it. */
static enum tp_status cut_metrics(const char *path, int64_t first)
{
    size_t size;
    char *text;

    TP_TRY(tp_file_read(path, METRICS_LIMIT, &text, &size));
    enum tp_status status = tp_file_write(path, text, lines_before(text, first));
    free(text);
    return status;
}

/* Begins a file of metrics, or goes on with it. Takes over path. */
static enum tp_status open_metrics(char *path, int64_t first, struct tp_metrics_file *metrics)
{
    enum tp_status status = TP_OK;
    struct stat info;

    if (!path)
        return tp_fail(TP_ERR_MEMORY, "no memory for the name of the metrics");
    if (first > 0 && stat(path, &info) == 0 && S_ISREG(info.st_mode))
        status = cut_metrics(path, first);
    FILE *file = status == TP_OK ? fopen(path, first > 0 ? "a" : "w") : NULL;
    if (status == TP_OK && !file)
        status = tp_fail(TP_ERR_IO, "%s: cannot write metrics: %s", path, strerror(errno));
    if (status == TP_OK)
        *metrics = (struct tp_metrics_file){.file = file, .path = path};
    else
        free(path);
    return status;
}

/* A number, exactly; JSON has no infinities. */
static const char *number(char text[32], double value)
{
    if (!isfinite(value))
        return "null";
    snprintf(text, 32, "%.17g", value);
    return text;
}

enum tp_status tp_run_add(struct tp_run *run, const struct tp_step_metrics *metrics)
{
    char loss[32], norm[32];

    for (int i = 0; i < 2; i++) {
        FILE *file = run->metrics[i].file;
        if (!file)
            continue;
        fprintf(file,
                "{\"step\": %" PRId64 ", \"loss\": %s, \"grad_norm\": %s, \"lr\": %.9g, "
                "\"step_seconds\": %.9g, \"tokens_per_second\": %.9g}\n",
                metrics->step, number(loss, metrics->loss), number(norm, metrics->grad_norm),
                metrics->lr, metrics->seconds, metrics->tokens_per_second);
        if (fflush(file) != 0)
            return tp_fail(TP_ERR_IO, "%s: cannot write the metrics of step %" PRId64 ": %s",
                           run->metrics[i].path, metrics->step, strerror(errno));
    }
    return TP_OK;
}

/* ---- Folder ---- */

/* Gives an earlier run's checkpoints another name: they are not this run's, and the newest of them
 * would be loaded in place of ours. */
static enum tp_status put_aside(const char *checkpoints)
{
    size_t size = strlen(checkpoints) + 16;
    enum tp_status status;
    long *steps;
    int count;

    TP_TRY(tp_source_steps(checkpoints, &steps, &count));
    free(steps);
    if (count == 0)
        return TP_OK;
    char *name = malloc(size);
    if (!name)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for a name", checkpoints);
    int number = 1;
    do
        snprintf(name, size, "%s.%d", checkpoints, number++);
    while (tp_file_exists(name));
    status = tp_file_rename(checkpoints, name);
    if (status == TP_OK)
        tp_log(TP_LOG_INFO, "the checkpoints of an earlier run are in %s now", name);
    free(name);
    return status;
}

static enum tp_status take_names(struct tp_run *run, const char *save)
{
    run->folder = strdup(save);
    run->checkpoints = tp_file_join(save, "checkpoints");
    if (!run->folder || !run->checkpoints)
        return tp_fail(TP_ERR_MEMORY, "--save %s: no memory for its name", save);
    return TP_OK;
}

/* Does the run go on with one of its own checkpoints? */
static bool resumes(const struct tp_run *run, const struct tp_settings *settings, int64_t first)
{
    if (first == 0 || !settings->load)
        return false;
    char *save = realpath(run->folder, NULL), *load = realpath(settings->load, NULL);
    bool inside = save && load && strncmp(load, save, strlen(save)) == 0 &&
                  (load[strlen(save)] == '/' || load[strlen(save)] == '\0');
    free(save);
    free(load);
    return inside;
}

/* The folder itself, first of all, so that it is ours before anything in it is touched. */
static enum tp_status take_folder(struct tp_run *run)
{
    TP_TRY(tp_file_make_folder(run->folder));
    TP_TRY(tp_file_lock_folder(run->folder, &run->lock));
    TP_TRY(tp_file_probe_folder(run->folder));
    TP_TRY(tp_file_make_folder(run->checkpoints));
    return tp_file_probe_folder(run->checkpoints);
}

static enum tp_status try_files(struct tp_run *run, const struct tp_settings *settings)
{
    if (settings->save_gradients)
        TP_TRY(tp_file_probe(settings->save_gradients));
    if (settings->trace)
        TP_TRY(tp_file_probe(settings->trace));
    if (run->folder)
        TP_TRY(take_folder(run));
    return settings->metrics ? tp_file_probe(settings->metrics) : TP_OK;
}

enum tp_status tp_run_open(struct tp_run *run, const struct tp_settings *settings, bool leads)
{
    struct tp_run opened = {.lock = -1};
    enum tp_status status = settings->save ? take_names(&opened, settings->save) : TP_OK;

    if (status == TP_OK && leads)
        status = try_files(&opened, settings);
    if (status == TP_OK)
        *run = opened;
    else
        tp_run_close(&opened);
    return status;
}

enum tp_status tp_run_begin(struct tp_run *run, const struct tp_settings *settings, int64_t first)
{
    if (run->folder) {
        if (!resumes(run, settings, first)) {
            TP_TRY(put_aside(run->checkpoints));
            TP_TRY(tp_file_make_folder(run->checkpoints));
        }
        TP_TRY(open_metrics(tp_file_join(run->folder, "metrics.jsonl"), first, &run->metrics[0]));
    }
    if (settings->metrics)
        TP_TRY(open_metrics(strdup(settings->metrics), first, &run->metrics[1]));
    return TP_OK;
}

void tp_run_close(struct tp_run *run)
{
    for (int i = 0; i < 2; i++) {
        if (run->metrics[i].file)
            fclose(run->metrics[i].file);
        free(run->metrics[i].path);
    }
    if (run->lock >= 0)
        close(run->lock);
    free(run->folder);
    free(run->checkpoints);
    *run = (struct tp_run){.lock = -1};
}

enum tp_status tp_run_describe(const struct tp_run *run, const struct tp_worker *worker,
                               const struct tp_planned *planned)
{
    const char *options = worker->settings->record;
    enum tp_status status = TP_OK;
    char *paths[] = {
        tp_file_join(run->folder, TP_FILE_CONFIG), tp_file_join(run->folder, "plan.json"),
        tp_file_join(run->folder, TP_FILE_GEMM), tp_file_join(run->folder, "options.json"),
        tp_file_join(run->folder, "profile.json")};
    enum { FILES = sizeof paths / sizeof *paths };

    for (int i = 0; i < FILES && status == TP_OK; i++)
        if (!paths[i])
            status =
                tp_fail(TP_ERR_MEMORY, "%s: no memory for the names of its files", run->folder);
    if (status == TP_OK)
        status = tp_model_save(&worker->model, paths[0]);
    if (status == TP_OK)
        status = tp_plan_save(
            planned->plan, planned->predicted.n_stages > 0 ? &planned->predicted : NULL, paths[1]);
    if (status == TP_OK)
        status = tp_gemm_tables_save(worker->tables, worker->n_tables, paths[2]);
    if (status == TP_OK && options)
        status = tp_file_write(paths[3], options, strlen(options));
    if (status == TP_OK && planned->profile)
        status = tp_profile_save(planned->profile, paths[4]);
    for (int i = 0; i < FILES; i++)
        free(paths[i]);
    return status;
}
