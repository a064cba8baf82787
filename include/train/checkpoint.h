/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: the tensors of all stages gathered into files. */
#ifndef TP_TRAIN_CHECKPOINT_H
#define TP_TRAIN_CHECKPOINT_H

#include "base/status.h"
#include "train/state.h"
#include "train/worker.h"

/* Writes one kind of number of every parameter, as a safetensors file in the order of the table.
 * Tensors come to rank 0 one at a time. There whole or not at all. plan: the stages. Collective
 * over the world; the ranks fail together with TP_ERR_IO and TP_ERR_MEMORY, any other error leaves
 * this rank alone. */
enum tp_status tp_checkpoint_gather(struct tp_worker *worker, const struct tp_plan *plan,
                                    enum tp_kind kind, const char *path);

/* Writes checkpoints/step-%08d: configuration, weights, moments, state and which gemm ran. It is
 * there whole or not at all. Collective and failing as above. */
enum tp_status tp_checkpoint_save(struct tp_worker *worker, const struct tp_plan *plan,
                                  const char *checkpoints, const struct tp_state *state);

/* Deletes all but the newest `keep` checkpoints of a run. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_checkpoint_prune(const char *checkpoints, int keep);

#endif
