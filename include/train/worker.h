/* SPDX-License-Identifier: Apache-2.0 */
/* A rank at work: its place among the ranks, the model, and its stage of it on a device. What
 * training, evaluation and generation have in common. */
#ifndef TP_TRAIN_WORKER_H
#define TP_TRAIN_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "cell/cell.h"
#include "comm/comm.h"
#include "comm/grid.h"
#include "data/tokens.h"
#include "device/device.h"
#include "model/model.h"
#include "model/parameters.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "train/engine.h"
#include "train/gemm_table.h"
#include "train/placement.h"
#include "train/settings.h"
#include "train/source.h"

struct tp_worker {
    const struct tp_settings *settings;
    struct tp_comm *world;
    struct tp_grid grid;
    struct tp_source source;
    struct tp_model model;
    int seq_len; /* T */
    struct tp_parameters parameters;
    struct tp_placement *placements; /* [ranks] */
    struct tp_device *device;
    struct tp_gemm_table *tables; /* [n_tables] of each kind of device, on all ranks */
    int n_tables;
    struct tp_cell *cell;
    struct tp_stage stage;
    struct tp_engine *engine;
};

/* Takes its place and finds the model; no device is opened. settings and world must outlive the
 * worker. Collective over world; the ranks fail together, with one line. TP_ERR_USAGE, TP_ERR_INPUT
 * and what the layers say. */
enum tp_status tp_worker_init(struct tp_worker *worker, const struct tp_settings *settings,
                              struct tp_comm *world);

/* Frees what there is, also after a failure. Collective over world. */
void tp_worker_fini(struct tp_worker *worker);

/* This rank's layers under a plan. Local. */
const struct tp_stage_layers *tp_worker_layers(const struct tp_worker *worker,
                                               const struct tp_plan *plan);
bool tp_worker_is_first(const struct tp_worker *worker);
bool tp_worker_is_last(const struct tp_worker *worker);

/* Sequences of a step that the largest replica has. Local. */
int tp_worker_largest_share(const struct tp_worker *worker);

/* This replica's part of so many sequences of the global batch, which replicas have in order.
 * Local. */
struct tp_share tp_worker_share(const struct tp_worker *worker, int sequences);

/* Memory for the largest tensor, and for a part of it, to be freed. Local. TP_ERR_MEMORY. */
enum tp_status tp_worker_buffers(const struct tp_worker *worker, float **whole, float **part);

/* The plan that the settings ask for, for the largest replica. Local. TP_ERR_USAGE, TP_ERR_MEMORY.
 */
enum tp_status tp_worker_plan(const struct tp_worker *worker, struct tp_plan **plan);

/* This rank's schedule of a plan, after all ranks' were checked against each other. Local.
 * TP_ERR_MEMORY; TP_ERR_INPUT when the check fails, which is our bug. */
enum tp_status tp_worker_schedule(const struct tp_worker *worker, const struct tp_plan *plan,
                                  struct tp_schedule **schedule);

/* Opens token files for this model. Text, whose bytes are the tokens, is for a model with that
 * many, unless --tokenizer or the run that is loaded says so. Local. TP_ERR_INPUT names the file.
 */
enum tp_status tp_worker_tokens(const struct tp_worker *worker, const struct tp_option_list *paths,
                                struct tp_tokens **tokens);

/* Chooses a device and opens it (on each node one rank first, which builds the kernels for all),
 * for training or for forward only. Collective over world; the ranks fail together. TP_ERR_DEVICE,
 * TP_ERR_USAGE, TP_ERR_MEMORY. */
enum tp_status tp_worker_open_device(struct tp_worker *worker, bool train);

/* Bytes of its open device that this rank may take: its share of what --memory says, else of what
 * the device has. Local. */
size_t tp_worker_memory(const struct tp_worker *worker);

/* What a stage runs. */
struct tp_work {
    const struct tp_plan *plan;                 /* its stages, batch and sequence length */
    const struct tp_schedule *const *schedules; /* [n]; memory is made for the largest of each */
    int n_schedules;
    bool train;
};

/* Opens the device unless it is, checks its gemm, takes the memory of the stage, reads its weights
 * or makes initial ones, and makes an engine for schedules[0]. All of the work must outlive the
 * worker. Collective over world; the ranks fail together. TP_ERR_DEVICE, TP_ERR_MEMORY, TP_ERR_IO.
 */
enum tp_status tp_worker_open(struct tp_worker *worker, const struct tp_work *work);

#endif
