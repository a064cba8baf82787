/* SPDX-License-Identifier: Apache-2.0 */
/* --trace: what all ranks did in one step, in one file. */
#ifndef TP_TRAIN_TRACER_H
#define TP_TRAIN_TRACER_H

#include "base/status.h"
#include "train/worker.h"

/* Lets the engine write down the next step, from a moment on that all ranks agree on, within what a
 * message takes; nothing of the step before is computed then. Collective over the world.
 * TP_ERR_MEMORY and TP_ERR_DEVICE for all ranks; TP_ERR_COMM. */
enum tp_status tp_tracer_begin(struct tp_worker *worker, struct tp_trace **trace);

/* Waits for the update and brings all ranks' events to rank 0, which writes the file, and frees the
 * trace. Collective over the world; the ranks fail together with TP_ERR_DEVICE, TP_ERR_IO and
 * TP_ERR_MEMORY, any other error leaves this rank alone. */
enum tp_status tp_tracer_end(struct tp_worker *worker, struct tp_trace *trace, const char *path);

#endif
