/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between ranks. The only layer that knows MPI (besides the program's main). Nothing here
 * blocks in MPI: waiting is a loop of tests and short sleeps, since a rank blocked in MPI takes a
 * core that another rank computes on. */
#ifndef TP_COMM_COMM_H
#define TP_COMM_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tp_comm;

/* A duplicate of MPI_COMM_WORLD with errors returned. MPI is initialised already (by main or a
 * test). Collective over the world. TP_ERR_COMM. */
enum tp_status tp_comm_world(struct tp_comm **comm);

/* Ranks with one color, ordered by key then rank; color < 0: *out is NULL. Collective over comm. */
enum tp_status tp_comm_split(struct tp_comm *comm, int color, int key, struct tp_comm **out);

/* The ranks of comm that share a node. Collective over comm. */
enum tp_status tp_comm_split_node(struct tp_comm *comm, struct tp_comm **out);

/* Collective over comm. */
void tp_comm_free(struct tp_comm *comm);

int tp_comm_rank(const struct tp_comm *comm);
int tp_comm_size(const struct tp_comm *comm);

/* Number of a rank of comm in the whole job, for messages to people. Local. */
int tp_comm_job_rank(const struct tp_comm *comm, int rank);

/* Largest tag of a message. Local. */
int tp_comm_max_tag(void);

/* Send with synchronous semantics (MPI_Issend) from now on: a send completes only once its receive
 * is matched. For tests: a program that runs so does not lean on buffering. Local. */
void tp_comm_set_synchronous(struct tp_comm *comm, bool synchronous);

/* An operation under way. Plain memory that may be copied; done when tp_comm_test says so. */
struct tp_request {
    _Alignas(8) unsigned char handle[8];
    int expect; /* floats that a receive has to bring; -1 for other operations */
};

/* Start to send or receive count floats from or into the caller's memory, which must stay until the
 * request is done. count <= INT_MAX; a message of another length is an error when its receive is
 * done. Local. TP_ERR_COMM. */
enum tp_status tp_comm_isend(struct tp_comm *comm, const float *data, size_t count, int peer,
                             int tag, struct tp_request *request);
enum tp_status tp_comm_irecv(struct tp_comm *comm, float *data, size_t count, int peer, int tag,
                             struct tp_request *request);

/* Start an all-reduce in place: a sum of doubles, a sum or the largest of floats. Every rank gets
 * the same bits. Collective over comm; done by tests. count <= INT_MAX. TP_ERR_COMM. */
enum tp_status tp_comm_iallreduce_sum(struct tp_comm *comm, double *data, int count,
                                      struct tp_request *request);
enum tp_status tp_comm_iallreduce_floats(struct tp_comm *comm, bool largest, float *data,
                                         size_t count, struct tp_request *request);

/* Has it finished? A finished request may be tested again. Local. TP_ERR_COMM. */
enum tp_status tp_comm_test(struct tp_request *request, bool *done);

/* What a loop that waits does between two looks. since: tp_clock_now() when the waiting began;
 * computing: this process's device does, which ends the wait soonest, on the core of a look. Local. */
void tp_comm_pause(double since, bool computing);

/* Tests and pauses until it has. Local. TP_ERR_COMM; TP_ERR_STUCK from the watchdog. */
enum tp_status tp_comm_wait(struct tp_request *request);

/* From now on a wait, in the collectives too, that takes so many seconds is an error: another rank
 * is stuck. 0, as at the start: never. Local. */
void tp_comm_set_watchdog(double seconds);

/* Gives up an operation that will not be waited for (a failed step): a receive is withdrawn, a send
 * left to its fate, so its memory should stay. Not for all-reduces. Local. */
void tp_comm_cancel(struct tp_request *request);

/* Waiting politely, each Collective over comm. */
enum tp_status tp_comm_barrier(const struct tp_comm *comm);
enum tp_status tp_comm_bcast(struct tp_comm *comm, void *data, size_t bytes, int root);
enum tp_status tp_comm_allreduce_max(struct tp_comm *comm, int64_t *data, int count);
/* data[size * bytes], own part filled in. */
enum tp_status tp_comm_allgather(struct tp_comm *comm, void *data, size_t bytes);
/* data[count], own share (tp_share_of()) filled in. count <= INT_MAX. */
enum tp_status tp_comm_allgather_shares(struct tp_comm *comm, float *data, size_t count);

/* Do all ranks go on? Every rank hands in its own status; *agreed is TP_OK when all are, else the
 * status of the lowest failing rank, whose number is *rank (the size when there is none).
 * Collective over comm. TP_ERR_COMM. */
enum tp_status tp_comm_agree(struct tp_comm *comm, enum tp_status mine, enum tp_status *agreed,
                             int *rank);

/* MPI's library version and the like, one line, for doctor. Local. */
const char *tp_comm_library(void);

#endif
