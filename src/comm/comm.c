/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/clock.h"
#include "base/share.h"
#include "comm/comm.h"

struct tp_comm {
    MPI_Comm mpi;
    int rank, size;
    bool synchronous;
    int *counts, *places; /* [size] of the shares in an all-gather */
};

static enum tp_status check(int error, const char *call, const char *file, int line)
{
    if (error == MPI_SUCCESS)
        return TP_OK;
    char text[MPI_MAX_ERROR_STRING];
    int length;
    if (MPI_Error_string(error, text, &length) != MPI_SUCCESS)
        strcpy(text, "unknown error");
    return tp_fail(TP_ERR_COMM, "%s: %s (%s:%d)", call, text, file, line);
}

/* Status of an MPI call; a failure is reported with the call, what MPI says of it, and the place.
 */
#define TP_MPI(call) check((call), #call, __FILE__, __LINE__)

/* ---- Requests ---- */

_Static_assert(sizeof(MPI_Request) <= sizeof((struct tp_request *)0)->handle,
               "a tp_request has room for an MPI_Request");

static void request_set(struct tp_request *request, MPI_Request handle, int expect)
{
    memcpy(request->handle, &handle, sizeof handle);
    request->expect = expect;
}

static MPI_Request request_get(const struct tp_request *request)
{
    MPI_Request handle;
    memcpy(&handle, request->handle, sizeof handle);
    return handle;
}

/* MPI counts in int. */
static enum tp_status check_count(size_t count, const char *what)
{
    if (count > INT_MAX)
        return tp_fail(TP_ERR_COMM, "%zu %s in one message: MPI counts to %d", count, what,
                       INT_MAX);
    return TP_OK;
}

enum tp_status tp_comm_isend(struct tp_comm *comm, const float *data, size_t count, int peer,
                             int tag, struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(check_count(count, "floats"));
    if (comm->synchronous)
        TP_TRY(TP_MPI(MPI_Issend(data, (int)count, MPI_FLOAT, peer, tag, comm->mpi, &handle)));
    else
        TP_TRY(TP_MPI(MPI_Isend(data, (int)count, MPI_FLOAT, peer, tag, comm->mpi, &handle)));
    request_set(request, handle, -1);
    return TP_OK;
}

enum tp_status tp_comm_irecv(struct tp_comm *comm, float *data, size_t count, int peer, int tag,
                             struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(check_count(count, "floats"));
    TP_TRY(TP_MPI(MPI_Irecv(data, (int)count, MPI_FLOAT, peer, tag, comm->mpi, &handle)));
    request_set(request, handle, (int)count);
    return TP_OK;
}

enum tp_status tp_comm_iallreduce_sum(struct tp_comm *comm, double *data, int count,
                                      struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(
        TP_MPI(MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, comm->mpi, &handle)));
    request_set(request, handle, -1);
    return TP_OK;
}

enum tp_status tp_comm_iallreduce_floats(struct tp_comm *comm, bool largest, float *data,
                                         size_t count, struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(check_count(count, "floats"));
    TP_TRY(TP_MPI(MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT,
                                 largest ? MPI_MAX : MPI_SUM, comm->mpi, &handle)));
    request_set(request, handle, -1);
    return TP_OK;
}

enum tp_status tp_comm_test(struct tp_request *request, bool *done)
{
    MPI_Request handle = request_get(request);
    MPI_Status message;
    int flag;
    if (handle == MPI_REQUEST_NULL) {
        *done = true;
        return TP_OK;
    }
    TP_TRY(TP_MPI(MPI_Test(&handle, &flag, &message)));
    const int expect = request->expect;
    request_set(request, handle, expect);
    if (flag && expect >= 0) {
        int count;
        TP_TRY(TP_MPI(MPI_Get_count(&message, MPI_FLOAT, &count)));
        if (count != expect)
            return tp_fail(TP_ERR_COMM, "a message from rank %d has %d floats, expected %d",
                           message.MPI_SOURCE, count, expect);
    }
    *done = flag;
    return TP_OK;
}

double tp_comm_pause_seconds(double since, double most)
{
    const double pause = (tp_clock_now() - since) / 8;
    if (pause < TP_CLOCK_POLL)
        return TP_CLOCK_POLL;
    return pause < most ? pause : most;
}

void tp_comm_pause(double since)
{
    tp_clock_sleep(tp_comm_pause_seconds(since, TP_COMM_PAUSE_MAX));
}

static double watchdog; /* seconds that a wait may take; 0: any */

void tp_comm_set_watchdog(double seconds)
{
    watchdog = seconds;
}

enum tp_status tp_comm_wait(struct tp_request *request)
{
    const double since = tp_clock_now();
    for (;;) {
        bool done = false;
        TP_TRY(tp_comm_test(request, &done));
        if (done)
            return TP_OK;
        if (watchdog > 0 && tp_clock_now() - since > watchdog)
            return tp_fail(TP_ERR_STUCK,
                           "waits for another rank between two steps, and nothing has "
                           "come for %g s",
                           watchdog);
        tp_comm_pause(since);
    }
}

void tp_comm_cancel(struct tp_request *request)
{
    MPI_Request handle = request_get(request);
    if (handle == MPI_REQUEST_NULL)
        return;
    if (request->expect >= 0)
        MPI_Cancel(&handle);
    MPI_Request_free(&handle);
    request_set(request, MPI_REQUEST_NULL, -1);
}

/* Waits for a collective operation that was started. */
static enum tp_status wait_for(MPI_Request handle)
{
    struct tp_request request;
    request_set(&request, handle, -1);
    return tp_comm_wait(&request);
}

/* ---- Communicators ---- */

/* Making a communicator blocks in MPI: first wait politely until all are here. */
static enum tp_status gather_politely(MPI_Comm mpi)
{
    MPI_Request handle;
    TP_TRY(TP_MPI(MPI_Ibarrier(mpi, &handle)));
    return wait_for(handle);
}

/* Takes over mpi, also when it fails. */
static enum tp_status wrap(MPI_Comm mpi, bool synchronous, struct tp_comm **out)
{
    enum tp_status status = TP_MPI(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN));
    struct tp_comm *comm = malloc(sizeof *comm);
    if (status != TP_OK)
        goto fail;
    if (comm == NULL) {
        status = tp_fail(TP_ERR_MEMORY, "no memory for a communicator");
        goto fail;
    }
    *comm = (struct tp_comm){.mpi = mpi, .synchronous = synchronous};
    if ((status = TP_MPI(MPI_Comm_rank(mpi, &comm->rank))) != TP_OK ||
        (status = TP_MPI(MPI_Comm_size(mpi, &comm->size))) != TP_OK)
        goto fail;
    comm->counts = calloc(2 * (size_t)comm->size, sizeof *comm->counts);
    if (comm->counts == NULL) {
        status = tp_fail(TP_ERR_MEMORY, "no memory for a communicator of %d ranks", comm->size);
        goto fail;
    }
    comm->places = comm->counts + comm->size;
    *out = comm;
    return TP_OK;
fail:
    free(comm);
    MPI_Comm_free(&mpi);
    return status;
}

enum tp_status tp_comm_world(struct tp_comm **comm)
{
    MPI_Comm mpi;
    TP_TRY(gather_politely(MPI_COMM_WORLD));
    TP_TRY(TP_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &mpi)));
    return wrap(mpi, false, comm);
}

enum tp_status tp_comm_split(struct tp_comm *comm, int color, int key, struct tp_comm **out)
{
    MPI_Comm mpi;
    TP_TRY(gather_politely(comm->mpi));
    TP_TRY(TP_MPI(MPI_Comm_split(comm->mpi, color < 0 ? MPI_UNDEFINED : color, key, &mpi)));
    if (mpi == MPI_COMM_NULL) {
        *out = NULL;
        return TP_OK;
    }
    return wrap(mpi, comm->synchronous, out);
}

enum tp_status tp_comm_split_node(struct tp_comm *comm, struct tp_comm **out)
{
    MPI_Comm mpi;
    TP_TRY(gather_politely(comm->mpi));
    TP_TRY(TP_MPI(
        MPI_Comm_split_type(comm->mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &mpi)));
    return wrap(mpi, comm->synchronous, out);
}

void tp_comm_free(struct tp_comm *comm)
{
    if (comm == NULL)
        return;
    MPI_Comm_free(&comm->mpi);
    free(comm->counts);
    free(comm);
}

int tp_comm_rank(const struct tp_comm *comm)
{
    return comm->rank;
}

int tp_comm_size(const struct tp_comm *comm)
{
    return comm->size;
}

int tp_comm_job_rank(const struct tp_comm *comm, int rank)
{
    MPI_Group group, job;
    int job_rank = rank;
    MPI_Comm_group(comm->mpi, &group);
    MPI_Comm_group(MPI_COMM_WORLD, &job);
    MPI_Group_translate_ranks(group, 1, &rank, job, &job_rank);
    MPI_Group_free(&group);
    MPI_Group_free(&job);
    return job_rank;
}

int tp_comm_max_tag(void)
{
    int *max, found;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &max, &found);
    return found ? *max : 32767; /* what MPI promises at least */
}

void tp_comm_set_synchronous(struct tp_comm *comm, bool synchronous)
{
    comm->synchronous = synchronous;
}

/* ---- Collectives ---- */

enum tp_status tp_comm_barrier(struct tp_comm *comm)
{
    return gather_politely(comm->mpi);
}

enum tp_status tp_comm_bcast(struct tp_comm *comm, void *data, size_t bytes, int root)
{
    MPI_Request handle;
    TP_TRY(check_count(bytes, "bytes"));
    TP_TRY(TP_MPI(MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, comm->mpi, &handle)));
    return wait_for(handle);
}

enum tp_status tp_comm_allreduce_max(struct tp_comm *comm, int64_t *data, int count)
{
    MPI_Request handle;
    TP_TRY(TP_MPI(
        MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_MAX, comm->mpi, &handle)));
    return wait_for(handle);
}

enum tp_status tp_comm_allgather(struct tp_comm *comm, void *data, size_t bytes)
{
    MPI_Request handle;
    TP_TRY(check_count(bytes, "bytes"));
    TP_TRY(TP_MPI(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, (int)bytes, MPI_BYTE,
                                 comm->mpi, &handle)));
    return wait_for(handle);
}

enum tp_status tp_comm_allgather_shares(struct tp_comm *comm, float *data, size_t count)
{
    MPI_Request handle;
    TP_TRY(check_count(count, "floats"));
    for (int i = 0; i < comm->size; i++) {
        const struct tp_share share = tp_share_of(count, comm->size, i);
        comm->counts[i] = (int)share.count;
        comm->places[i] = (int)share.first;
    }
    TP_TRY(TP_MPI(MPI_Iallgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, comm->counts,
                                  comm->places, MPI_FLOAT, comm->mpi, &handle)));
    return wait_for(handle);
}

enum tp_status tp_comm_agree(struct tp_comm *comm, enum tp_status mine, enum tp_status *agreed,
                             int *rank)
{
    /* One number says who fails and how; it is largest for the lowest rank, 0 for nobody. */
    int64_t worst = 0;
    if (mine != TP_OK)
        worst = (int64_t)(comm->size - comm->rank) * TP_STATUS_COUNT + (int64_t)mine;
    TP_TRY(tp_comm_allreduce_max(comm, &worst, 1));
    *agreed = (enum tp_status)(worst % TP_STATUS_COUNT);
    *rank = comm->size - (int)(worst / TP_STATUS_COUNT);
    return TP_OK;
}

const char *tp_comm_library(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    if (MPI_Get_library_version(text, &length) != MPI_SUCCESS)
        return "unknown MPI library";
    text[strcspn(text, "\n")] = '\0';
    return text;
}
