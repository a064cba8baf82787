/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "data/weights.h"
#include "train/checkpoint.h"
#include "train/phase.h"

enum { TAG = 1 };

/* ---- Gathering ---- */

static int owner_of(const struct tp_worker *worker, const struct tp_plan *plan, int row)
{
    for (int k = 0; k < plan->n_stages; k++)
        if (tp_parameter_owned(&worker->parameters.at[row], &worker->model, &plan->stages[k]))
            return k;
    return -1;
}

/* A piece of a tensor: what one replica's op rank has of it, elements of that rank's part. */
struct piece {
    int row;
    enum tp_kind kind;
    int rank; /* that has it */
    struct tp_share elements;
};

/* Brings a piece to its place in rank 0's part; another rank is done once it is on its way. */
static enum tp_status bring_piece(struct tp_worker *worker, const struct piece *piece, float *part)
{
    const int rank = tp_comm_rank(worker->world);
    float *data = part + piece->elements.first;
    struct tp_request request;

    if (piece->elements.count == 0)
        return TP_OK;
    if (rank == piece->rank)
        TP_TRY(tp_cell_read(worker->cell, piece->row, piece->kind, part));
    if (piece->rank == 0)
        return TP_OK;
    if (rank == piece->rank)
        TP_TRY(tp_comm_isend(worker->world, data, piece->elements.count, 0, TAG, &request));
    else if (rank == 0)
        TP_TRY(
            tp_comm_irecv(worker->world, data, piece->elements.count, piece->rank, TAG, &request));
    else
        return TP_OK;
    return tp_comm_wait(&request);
}

/* Brings one tensor to rank 0: the parts of all op ranks that have one, each from the first replica
 * or, what replicas share, from all of them. */
static enum tp_status bring(struct tp_worker *worker, enum tp_kind kind, int row, int owner,
                            float *whole, float *part)
{
    const struct tp_parameter *parameter = &worker->parameters.at[row];
    const struct tp_grid *grid = &worker->grid;
    const bool moment = kind == TP_MOMENT_1 || kind == TP_MOMENT_2;
    const int shards = moment && worker->settings->zero ? grid->data : 1;

    for (int o = 0; o < (parameter->split ? grid->op : 1); o++) {
        for (int d = 0; d < shards; d++) {
            const struct piece piece = {
                row, kind, tp_grid_rank(grid, d, owner, o),
                tp_parameter_shard(&worker->model, row, grid->op, o, shards, d)};
            TP_TRY(bring_piece(worker, &piece, part));
        }
        if (tp_comm_rank(worker->world) == 0)
            tp_parameter_put(parameter, grid->op, o, part, whole);
    }
    return TP_OK;
}

/* Weights that an update drove beyond all numbers must not become the newest checkpoint. */
static enum tp_status check_weights(const struct tp_parameter *parameter, const float *values)
{
    for (size_t i = 0; i < parameter->count; i++)
        if (!isfinite(values[i]))
            return tp_fail(TP_ERR_NONFINITE,
                           "no checkpoint is written: %s has weights that are not finite",
                           parameter->name);
    return TP_OK;
}

/* Runs through the table. Rank 0 goes on receiving after it failed to write (*written), since the
 * others go on sending. */
static enum tp_status gather(struct tp_worker *worker, const struct tp_plan *plan,
                             enum tp_kind kind, struct tp_safetensors_writer *writer, float *whole,
                             float *part, enum tp_status *written)
{
    for (int row = 0; row < worker->parameters.count; row++) {
        TP_TRY(bring(worker, kind, row, owner_of(worker, plan, row), whole, part));
        if (writer && *written == TP_OK && kind == TP_WEIGHT)
            *written = check_weights(&worker->parameters.at[row], whole);
        if (writer && *written == TP_OK)
            *written = tp_safetensors_write(writer, whole, worker->parameters.at[row].count);
    }
    return TP_OK;
}

/* The largest tensor's memory on each rank, and the file on rank 0. */
static enum tp_status prepare(const struct tp_worker *worker, const char *path, float **whole,
                              float **part, struct tp_safetensors_writer **writer)
{
    TP_TRY(tp_worker_buffers(worker, whole, part));
    if (tp_comm_rank(worker->world) == 0)
        return tp_weights_create(path, &worker->parameters, writer);
    return TP_OK;
}

enum tp_status tp_checkpoint_gather(struct tp_worker *worker, const struct tp_plan *plan,
                                    enum tp_kind kind, const char *path)
{
    struct tp_safetensors_writer *writer = NULL;
    float *whole = NULL, *part = NULL;

    tp_phase_begin();
    enum tp_status status =
        tp_phase_end(worker->world, prepare(worker, path, &whole, &part, &writer));
    if (status != TP_OK)
        goto abandon;
    tp_phase_begin();
    enum tp_status written = TP_OK;
    status = gather(worker, plan, kind, writer, whole, part, &written);
    if (status != TP_OK) {
        tp_phase_leave();
        goto abandon;
    }
    if (writer && written == TP_OK) {
        written = tp_safetensors_finish(writer);
        writer = NULL;
    }
    status = tp_phase_end(worker->world, written);
abandon:
    if (writer)
        tp_safetensors_abandon(writer);
    free(whole);
    free(part);
    return status;
}

/* ---- Checkpoints ---- */

static const char *const files[] = {TP_FILE_STATE,    TP_FILE_CONFIG,   TP_FILE_WEIGHTS,
                                    TP_FILE_MOMENT_1, TP_FILE_MOMENT_2, TP_FILE_GEMM};
enum { FILES = sizeof files / sizeof *files };

/* Deletes a checkpoint's folder if it is there, the state first: without it the rest is no
 * checkpoint. Files that we did not write are left, and so is the folder with them. */
static void delete_checkpoint(const char *folder)
{
    for (int i = 0; i < FILES; i++) {
        char *path = tp_file_join(folder, files[i]);
        if (path)
            unlink(path);
        free(path);
    }
    rmdir(folder);
}

/* The names of a checkpoint's folder: at last, while it is written, and of one in its way. */
struct places {
    char *folder, *made, *old;
};

static void places_fini(struct places *places)
{
    free(places->folder);
    free(places->made);
    free(places->old);
    *places = (struct places){.folder = NULL};
}

static enum tp_status places_init(const char *checkpoints, int64_t step, struct places *places)
{
    *places = (struct places){.folder = tp_source_step_folder(checkpoints, (long)step),
                              .made = tp_file_join(checkpoints, ".new"),
                              .old = tp_file_join(checkpoints, ".old")};
    if (places->folder && places->made && places->old)
        return TP_OK;
    places_fini(places);
    return tp_fail(TP_ERR_MEMORY, "%s: no memory for the names of a checkpoint", checkpoints);
}

/* Everything but the tensors, by rank 0. */
static enum tp_status write_small_files(const struct tp_worker *worker, const char *folder,
                                        const struct tp_state *state)
{
    char *config = tp_file_join(folder, TP_FILE_CONFIG);
    char *gemm = tp_file_join(folder, TP_FILE_GEMM);
    char *where = tp_file_join(folder, TP_FILE_STATE);
    enum tp_status status = TP_OK;

    if (!config || !gemm || !where)
        status = tp_fail(TP_ERR_MEMORY, "%s: no memory for the names of its files", folder);
    if (status == TP_OK)
        status = tp_file_make_folder(folder);
    if (status == TP_OK)
        status = tp_model_save(&worker->model, config);
    if (status == TP_OK)
        status = tp_gemm_tables_save(worker->tables, worker->n_tables, gemm);
    if (status == TP_OK)
        status = tp_state_save(state, where);
    free(config);
    free(gemm);
    free(where);
    return status;
}

static enum tp_status write_tensors(struct tp_worker *worker, const struct tp_plan *plan,
                                    const char *folder)
{
    static const struct {
        enum tp_kind kind;
        const char *file;
    } kinds[] = {{TP_WEIGHT, TP_FILE_WEIGHTS},
                 {TP_MOMENT_1, TP_FILE_MOMENT_1},
                 {TP_MOMENT_2, TP_FILE_MOMENT_2}};
    enum tp_status status = TP_OK;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && status == TP_OK; i++) {
        tp_phase_begin();
        char *path = tp_file_join(folder, kinds[i].file);
        status = path ? TP_OK : tp_fail(TP_ERR_MEMORY, "%s: no memory for a name", folder);
        status = tp_phase_end(worker->world, status);
        if (status == TP_OK)
            status = tp_checkpoint_gather(worker, plan, kinds[i].kind, path);
        free(path);
    }
    return status;
}

/* Puts the folder in its place, by rank 0; one that is there gives way only now. */
static enum tp_status put_in_place(const struct places *places, const char *checkpoints)
{
    bool replaces = tp_file_exists(places->folder);

    TP_TRY(tp_file_sync(places->made));
    if (replaces)
        TP_TRY(tp_file_rename(places->folder, places->old));
    TP_TRY(tp_file_rename(places->made, places->folder));
    if (replaces)
        delete_checkpoint(places->old);
    return tp_file_sync(checkpoints);
}

enum tp_status tp_checkpoint_save(struct tp_worker *worker, const struct tp_plan *plan,
                                  const char *checkpoints, const struct tp_state *state)
{
    bool writes = tp_comm_rank(worker->world) == 0;
    enum tp_status status;
    struct places places;

    tp_phase_begin();
    status = places_init(checkpoints, state->step, &places);
    status = tp_phase_end(worker->world, status);
    if (status != TP_OK)
        goto fini_places;

    tp_phase_begin();
    if (writes) {
        delete_checkpoint(places.made);
        delete_checkpoint(places.old);
        status = write_small_files(worker, places.made, state);
    }
    status = tp_phase_end(worker->world, status);
    if (status == TP_OK)
        status = write_tensors(worker, plan, places.made);
    if (status == TP_OK) {
        tp_phase_begin();
        if (writes)
            status = put_in_place(&places, checkpoints);
        status = tp_phase_end(worker->world, status);
    }
    if (status != TP_OK && writes)
        delete_checkpoint(places.made);
fini_places:
    places_fini(&places);
    return status;
}

enum tp_status tp_checkpoint_prune(const char *checkpoints, int keep)
{
    enum tp_status status = TP_OK;
    long *steps;
    int count;

    TP_TRY(tp_source_steps(checkpoints, &steps, &count));
    for (int i = 0; i < count - keep; i++) {
        char *folder = tp_source_step_folder(checkpoints, steps[i]);
        if (!folder) {
            status = tp_fail(TP_ERR_MEMORY, "%s: no memory for a name", checkpoints);
            break;
        }
        delete_checkpoint(folder);
        free(folder);
    }
    free(steps);
    return status;
}
