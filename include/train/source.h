/* SPDX-License-Identifier: Apache-2.0 */
/* Where a model comes from: its configuration, and its weights if it has any yet. */
#ifndef TP_TRAIN_SOURCE_H
#define TP_TRAIN_SOURCE_H

#include <stdbool.h>

#include "base/status.h"
#include "model/model.h"
#include "model/parameters.h"
#include "train/settings.h"
#include "train/state.h"

/* What a folder given with --load holds. Plain memory, so that one rank can look and tell the
 * others. */
struct tp_source {
    char folder[4096]; /* with config.json and model.safetensors; "": start from initial weights */
    bool resume;       /* the folder is a checkpoint: it has moments and a state */
    struct tp_state state;
};

/* Files of a checkpoint. */
#define TP_FILE_CONFIG "config.json"
#define TP_FILE_WEIGHTS "model.safetensors"
#define TP_FILE_MOMENT_1 "exp_avg.safetensors"
#define TP_FILE_MOMENT_2 "exp_avg_sq.safetensors"
#define TP_FILE_STATE "state.json"
#define TP_FILE_GEMM "gemm.json"

/* Looks into a folder: a model, a checkpoint, or a run, of which the newest valid checkpoint is
 * taken; others are passed over with a warning. NULL: no folder, a fresh start. Errors are held
 * meanwhile (a phase). Local.
 * TP_ERR_INPUT when there is nothing to load in it. */
enum tp_status tp_source_find(const char *load, struct tp_source *source);

/* Checks that its files are whole and hold the tensors of the table. Local. TP_ERR_INPUT. */
enum tp_status tp_source_check(const struct tp_source *source,
                               const struct tp_parameters *parameters);

/* Path of one of its files; malloc'd and the caller's. Local. TP_ERR_MEMORY. */
enum tp_status tp_source_file(const struct tp_source *source, const char *name, char **path);

/* The model by --model, by sizes, or by what is loaded, all of which have to agree; and T. Local.
 * TP_ERR_USAGE, TP_ERR_INPUT. */
enum tp_status tp_source_model(const struct tp_source *source, const struct tp_settings *settings,
                               struct tp_model *model, int *seq_len);

/* Steps of the checkpoints of a run, in order; malloc'd and the caller's. Folders with other names
 * are not looked at. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_source_steps(const char *checkpoints, long **steps, int *count);

/* "checkpoints/step-00000012", malloc'd and the caller's; NULL without memory. Local. */
char *tp_source_step_folder(const char *checkpoints, long step);

#endif
