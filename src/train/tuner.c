/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "train/tuner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/log.h"
#include "base/rng.h"

void tp_tuner_init(struct tp_tuner *tuner, const struct tp_device_info *device, const char *task,
                   uint64_t seed)
{
    *tuner = (struct tp_tuner){.device = *device, .seed = seed};
    snprintf(tuner->task, sizeof tuner->task, "%s", task);
}

void tp_tuner_fini(struct tp_tuner *tuner)
{
    free(tuner->trials);
    *tuner = (struct tp_tuner){0};
}

static enum tp_status add_trial(struct tp_tuner *tuner, const struct tp_trial *trial)
{
    struct tp_trial *trials =
        realloc(tuner->trials, ((size_t)tuner->count + 1) * sizeof *tuner->trials);

    if (!trials)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d trials", tuner->count + 1);
    trials[tuner->count++] = *trial;
    tuner->trials = trials;
    return TP_OK;
}

/* ---- The order ---- */

static bool tried(const struct tp_tuner *tuner, const struct tp_tuning *set)
{
    for (int i = 0; i < tuner->count; i++)
        if (tp_tuning_is_same(&tuner->trials[i].set, set))
            return true;
    return false;
}

const struct tp_trial *tp_tuner_best(const struct tp_tuner *tuner)
{
    const struct tp_trial *best = NULL;

    for (int i = 0; i < tuner->count; i++)
        if (!tuner->trials[i].reason[0] && (!best || best->ratio < tuner->trials[i].ratio))
            best = &tuner->trials[i];
    return best;
}

/* The moves in the seed's order (Fisher-Yates). */
static void shuffle_moves(uint64_t seed, int moves[TP_TUNING_MOVES])
{
    const struct tp_rng rng = {.seed = seed, .use = TP_RNG_SHUFFLE};

    for (int i = 0; i < TP_TUNING_MOVES; i++) {
        int other = (int)tp_rng_below(&rng, (uint64_t)i, (uint64_t)i + 1);
        moves[i] = moves[other];
        moves[other] = i;
    }
}

bool tp_tuner_next(const struct tp_tuner *tuner, struct tp_tuning *set)
{
    const struct tp_trial *best = tp_tuner_best(tuner);
    int moves[TP_TUNING_MOVES];
    struct tp_tuning next;

    for (int i = 0; tp_tuning_start(&tuner->device, i, &next); i++)
        if (!tried(tuner, &next)) {
            *set = next;
            return true;
        }
    shuffle_moves(tuner->seed, moves);
    for (int i = 0; best && i < TP_TUNING_MOVES; i++)
        if (tp_tuning_move(&tuner->device, &best->set, moves[i], &next) && !tried(tuner, &next)) {
            *set = next;
            return true;
        }
    return false;
}

/* ---- The file ---- */

static const char format[] = "terapipe-trials";

/* What the trials are about. */
static json_t *subject_json(const struct tp_tuner *tuner)
{
    const struct tp_device_info *device = &tuner->device;

    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s}", "platform", device->platform, "name",
                     device->name, "version", device->version, "driver", device->driver, "clblast",
                     tp_tuning_library(), "task", tuner->task);
}

static json_t *trial_json(const struct tp_trial *trial)
{
    char text[TP_TUNING_TEXT];

    tp_tuning_print(&trial->set, text);
    if (trial->reason[0])
        return json_pack("{s:s, s:s}", "parameters", text, "rejected", trial->reason);
    return json_pack("{s:s, s:f, s:f}", "parameters", text, "gflops", trial->gflops, "ratio",
                     trial->ratio);
}

static enum tp_status save(const struct tp_tuner *tuner, const char *path)
{
    json_t *trials = json_array();

    for (int i = 0; i < tuner->count; i++)
        json_array_append_new(trials, trial_json(&tuner->trials[i]));
    json_t *json = json_pack("{s:s, s:i, s:o, s:o}", "format", format, "version", 1, "of",
                             subject_json(tuner), "trials", trials);
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(json);
    if (!text)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    enum tp_status status = tp_file_write(path, text, strlen(text));
    free(text);
    return status;
}

static bool read_trial(const json_t *json, const struct tp_device_info *device,
                       struct tp_trial *trial)
{
    const char *text = json_string_value(json_object_get(json, "parameters"));
    const char *reason = json_string_value(json_object_get(json, "rejected"));

    *trial = (struct tp_trial){.gflops = json_number_value(json_object_get(json, "gflops")),
                               .ratio = json_number_value(json_object_get(json, "ratio"))};
    snprintf(trial->reason, sizeof trial->reason, "%s", reason ? reason : "");
    return text && tp_tuning_parse(text, &trial->set) && tp_tuning_is_legal(&trial->set, device) &&
           (trial->reason[0] || trial->ratio > 0);
}

/* Takes over what a file holds; *fault is NULL, or why nothing was taken. */
static enum tp_status take_over(struct tp_tuner *tuner, const json_t *json, const char **fault)
{
    const char *said = json_string_value(json_object_get(json, "format"));
    const json_t *trials = json_object_get(json, "trials");
    json_t *subject = subject_json(tuner);
    bool same = subject && json_equal(json_object_get(json, "of"), subject);

    json_decref(subject);
    *fault = NULL;
    if (!said || strcmp(said, format) != 0 ||
        json_integer_value(json_object_get(json, "version")) != 1)
        *fault = "is no file of trials";
    else if (!same)
        *fault = "is for another device, driver, CLBlast or task";
    for (size_t i = 0; !*fault && i < json_array_size(trials); i++) {
        struct tp_trial trial;
        if (!read_trial(json_array_get(trials, i), &tuner->device, &trial))
            *fault = "has a trial that cannot be";
        else
            TP_TRY(add_trial(tuner, &trial));
    }
    if (*fault)
        tuner->count = 0;
    return TP_OK;
}

enum tp_status tp_tuner_resume(struct tp_tuner *tuner, const char *path)
{
    enum tp_status status = TP_OK;
    const char *fault;
    json_error_t error;

    if (!tp_file_exists(path))
        return TP_OK;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (json)
        status = take_over(tuner, json, &fault);
    else
        fault = error.text;
    if (status == TP_OK && fault)
        tp_log(TP_LOG_INFO, "%s: ignored, all is tried anew: %s", path, fault);
    json_decref(json);
    return status;
}

enum tp_status tp_tuner_run(struct tp_tuner *tuner, const char *path, const struct tp_trier *trier)
{
    struct tp_trial trial = {0};
    bool over = false;

    while (tp_tuner_next(tuner, &trial.set)) {
        TP_TRY(trier->try(trier->self, &trial, &over));
        if (over)
            break;
        TP_TRY(add_trial(tuner, &trial));
        TP_TRY(save(tuner, path));
    }
    return TP_OK;
}
