/* SPDX-License-Identifier: Apache-2.0 */
/* A phase: work that each rank does alone and that may fail on some. Whether the job goes on is
 * decided by all ranks together at its end, so that they end in order and with one line. */
#ifndef TP_TRAIN_PHASE_H
#define TP_TRAIN_PHASE_H

#include "base/status.h"
#include "comm/comm.h"

/* From here on errors are kept and not printed. Local. */
void tp_phase_begin(void);

/* Ends a phase. Each rank hands in its own status; all get TP_OK, or the status of the lowest
 * failing rank, which prints its error. Collective over comm. TP_ERR_COMM. */
enum tp_status tp_phase_end(struct tp_comm *comm, enum tp_status mine);

/* Leaves a phase for good: this rank cannot go on and says why, whatever the others do. Local. */
void tp_phase_leave(void);

#endif
