/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "data/weights.h"
#include "model/parameters.h"
#include "train/source.h"

enum tp_status tp_source_file(const struct tp_source *source, const char *name, char **path)
{
    char *joined = tp_file_join(source->folder, name);

    if (!joined)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for the name of a file in it", source->folder);
    *path = joined;
    return TP_OK;
}

/* Does the folder hold a file (or folder) of this name? */
static bool holds(const char *folder, const char *name)
{
    char *path = tp_file_join(folder, name);
    bool found = path && tp_file_exists(path);

    free(path);
    return found;
}

/* Opens and closes a file of weights or moments. */
static enum tp_status check_weights(const struct tp_source *source, const char *name,
                                    const struct tp_parameters *parameters)
{
    struct tp_weights *weights;
    char *path = NULL;

    TP_TRY(tp_source_file(source, name, &path));
    enum tp_status status = tp_weights_open(path, parameters, &weights);
    if (status == TP_OK)
        tp_weights_close(weights);
    free(path);
    return status;
}

enum tp_status tp_source_check(const struct tp_source *source,
                               const struct tp_parameters *parameters)
{
    TP_TRY(check_weights(source, TP_FILE_WEIGHTS, parameters));
    if (!source->resume)
        return TP_OK;
    TP_TRY(check_weights(source, TP_FILE_MOMENT_1, parameters));
    return check_weights(source, TP_FILE_MOMENT_2, parameters);
}

/* Takes a checkpoint's folder when all of it is there. */
static enum tp_status take_checkpoint(const char *folder, struct tp_source *source)
{
    struct tp_source found = {.resume = true};
    struct tp_parameters parameters;
    struct tp_model model;
    char *path = NULL;

    snprintf(found.folder, sizeof found.folder, "%s", folder);
    TP_TRY(tp_source_file(&found, TP_FILE_STATE, &path));
    enum tp_status status = tp_state_load(path, &found.state);
    free(path);
    if (status != TP_OK)
        return status;
    TP_TRY(tp_model_load(folder, &model));
    TP_TRY(tp_parameters_init(&parameters, &model));
    status = tp_source_check(&found, &parameters);
    tp_parameters_fini(&parameters);
    if (status == TP_OK)
        *source = found;
    return status;
}

static int by_step(const void *a, const void *b)
{
    const long *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

/* The step of "step-00000012", or -1 for any other name. */
static long step_of(const char *name)
{
    char again[32];
    long step;

    if (sscanf(name, "step-%ld", &step) != 1 || step < 0)
        return -1;
    snprintf(again, sizeof again, "step-%08ld", step);
    return strcmp(name, again) == 0 ? step : -1;
}

enum tp_status tp_source_steps(const char *checkpoints, long **steps, int *count)
{
    DIR *directory = opendir(checkpoints);
    enum tp_status status = TP_OK;
    struct dirent *entry;
    long *found = NULL;
    int n = 0;

    if (!directory)
        return tp_fail(TP_ERR_IO, "%s: cannot open: %s", checkpoints, strerror(errno));
    while ((entry = readdir(directory))) {
        long step = step_of(entry->d_name);
        if (step < 0)
            continue;
        long *more = realloc(found, (size_t)(n + 1) * sizeof *found);
        if (!more) {
            free(found);
            status = tp_fail(TP_ERR_MEMORY, "%s: no memory to list it", checkpoints);
            goto close_directory;
        }
        found = more;
        found[n++] = step;
    }
    if (n > 0)
        qsort(found, (size_t)n, sizeof *found, by_step);
    *steps = found;
    *count = n;
close_directory:
    closedir(directory);
    return status;
}

char *tp_source_step_folder(const char *checkpoints, long step)
{
    char name[32];

    snprintf(name, sizeof name, "step-%08ld", step);
    return tp_file_join(checkpoints, name);
}

/* Tries one checkpoint of a run. What is wrong with it is not the error of this job. */
static enum tp_status try_step(const char *checkpoints, long step, struct tp_source *source)
{
    char *folder = tp_source_step_folder(checkpoints, step);

    if (!folder)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its name", checkpoints);
    enum tp_status status = take_checkpoint(folder, source);
    if (status != TP_OK)
        tp_log_demote();
    free(folder);
    return status;
}

static enum tp_status take_newest(const char *run, const char *checkpoints,
                                  struct tp_source *source)
{
    enum tp_status status = TP_ERR_INPUT;
    long *steps;
    int count;

    TP_TRY(tp_source_steps(checkpoints, &steps, &count));
    for (int i = count - 1; i >= 0 && status != TP_OK; i--)
        status = try_step(checkpoints, steps[i], source);
    free(steps);
    if (status != TP_OK)
        return tp_fail(TP_ERR_INPUT,
                       "--load %s: expected a checkpoint, none of the run's %d is "
                       "whole",
                       run, count);
    return TP_OK;
}

enum tp_status tp_source_find(const char *load, struct tp_source *source)
{
    struct tp_source found = {.resume = false};

    if (!load) {
        *source = found;
        return TP_OK;
    }
    if (strlen(load) + 64 > sizeof found.folder)
        return tp_fail(TP_ERR_INPUT, "--load: expected a shorter path");
    if (!tp_file_is_folder(load))
        return tp_fail(TP_ERR_INPUT,
                       "--load %s: expected a folder with a model, a checkpoint or a "
                       "run",
                       load);
    if (holds(load, "checkpoints")) {
        char *checkpoints = tp_file_join(load, "checkpoints");
        if (!checkpoints)
            return tp_fail(TP_ERR_MEMORY, "%s: no memory for its name", load);
        enum tp_status status = take_newest(load, checkpoints, source);
        free(checkpoints);
        return status;
    }
    if (holds(load, TP_FILE_STATE))
        return take_checkpoint(load, source);
    snprintf(found.folder, sizeof found.folder, "%s", load);
    *source = found;
    return TP_OK;
}

/* A model whose sizes were given one by one. */
static enum tp_status model_of_options(const struct tp_settings *settings, int n_positions,
                                       struct tp_model *model)
{
    struct tp_model made = {.n_layer = settings->n_layer,
                            .n_embd = settings->n_embd,
                            .n_head = settings->n_head,
                            .n_inner = 4 * settings->n_embd,
                            .vocab_size = settings->vocab_size,
                            .n_positions = n_positions,
                            .layer_norm_epsilon = 1e-5,
                            .initializer_range = 0.02};

    if (!made.vocab_size)
        made.vocab_size = 256;
    enum tp_status status = tp_model_check(&made, "--num-layers and the other sizes");
    if (status != TP_OK)
        return status == TP_ERR_INPUT ? TP_ERR_USAGE : status;
    *model = made;
    return TP_OK;
}

/* The model that the options ask for. *free_length: its n_positions is T, whatever T is. */
static enum tp_status model_asked(const struct tp_settings *settings, int n_positions,
                                  struct tp_model *model, bool *free_length)
{
    const char *name = settings->model;

    *free_length = true;
    if (!name) {
        if (!n_positions)
            return tp_fail(TP_ERR_USAGE, "--seq-length: expected it beside --num-layers");
        return model_of_options(settings, n_positions, model);
    }
    if (tp_model_is_preset(name) || !tp_file_exists(name))
        return tp_model_preset(name, model);
    *free_length = false;
    return tp_model_load(name, model);
}

/* Refuses weights whose configuration is not the one that was asked for. */
static enum tp_status compare(const struct tp_source *source, const struct tp_model *asked,
                              const struct tp_model *loaded, bool free_length)
{
    const struct {
        const char *key;
        int asked, loaded;
    } sizes[] = {{"n_layer", asked->n_layer, loaded->n_layer},
                 {"n_embd", asked->n_embd, loaded->n_embd},
                 {"n_head", asked->n_head, loaded->n_head},
                 {"n_inner", asked->n_inner, loaded->n_inner},
                 {"vocab_size", asked->vocab_size, loaded->vocab_size},
                 {"n_positions", free_length ? loaded->n_positions : asked->n_positions,
                  loaded->n_positions}};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].asked != sizes[i].loaded)
            return tp_fail(TP_ERR_INPUT, "%s: %s is %d, expected the %d that the options ask for",
                           source->folder, sizes[i].key, sizes[i].loaded, sizes[i].asked);
    return TP_OK;
}

enum tp_status tp_source_model(const struct tp_source *source, const struct tp_settings *settings,
                               struct tp_model *model, int *seq_len)
{
    bool asks = settings->model || settings->n_layer, free_length = false;
    struct tp_model asked, loaded;

    if (source->folder[0]) {
        TP_TRY(tp_model_load(source->folder, &loaded));
        if (asks) {
            TP_TRY(model_asked(settings, loaded.n_positions, &asked, &free_length));
            TP_TRY(compare(source, &asked, &loaded, free_length));
        }
        free_length = false;
    } else {
        TP_TRY(model_asked(settings, settings->seq_len, &loaded, &free_length));
    }
    int length = settings->seq_len ? settings->seq_len : loaded.n_positions;
    if (free_length) {
        loaded.n_positions = length;
        TP_TRY(tp_model_check(&loaded, "--seq-length"));
    }
    if (length > loaded.n_positions)
        return tp_fail(TP_ERR_USAGE,
                       "--seq-length %d: expected at most %d, the model's n_positions", length,
                       loaded.n_positions);
    *model = loaded;
    *seq_len = length;
    return TP_OK;
}
