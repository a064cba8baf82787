/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/bell.h"
#include "base/clock.h"
#include "base/share.h"
#include "base/shared.h"
#include "comm/comm.h"

struct tp_comm {
    MPI_Comm mpi;
    int rank, size;
    bool synchronous;
    int *counts, *places; /* [size] of the shares in an all-gather */

    struct tp_bell **bells; /* [size] what wakes a rank; NULL: it is on another node */
    struct tp_bell *shared; /* the node's bells, of the world where it has some; else NULL */
    size_t shared_bytes;
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

/* ---- Requests: who starts something that another rank may wait for rings ---- */

static void ring(const struct tp_comm *comm, int rank)
{
    if (comm->bells[rank] != NULL)
        tp_bell_ring(comm->bells[rank]);
}

static void ring_others(const struct tp_comm *comm)
{
    for (int i = 0; i < comm->size; i++)
        if (i != comm->rank)
            ring(comm, i);
}

_Static_assert(sizeof(MPI_Request) <= sizeof((struct tp_request *)0)->handle,
               "a tp_request has room for an MPI_Request");

static int n_moving; /* sends and collective operations under way */

static void request_set(struct tp_request *request, MPI_Request handle)
{
    memcpy(request->handle, &handle, sizeof handle);
}

/* A send or a collective operation is under way. */
static void request_move(struct tp_request *request, MPI_Request handle)
{
    *request = (struct tp_request){.expect = -1};
    request_set(request, handle);
    n_moving++;
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
    request_move(request, handle);
    ring(comm, peer);
    return TP_OK;
}

enum tp_status tp_comm_irecv(struct tp_comm *comm, float *data, size_t count, int peer, int tag,
                             struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(check_count(count, "floats"));
    TP_TRY(TP_MPI(MPI_Irecv(data, (int)count, MPI_FLOAT, peer, tag, comm->mpi, &handle)));
    *request = (struct tp_request){.expect = (int)count};
    request_set(request, handle);
    return TP_OK;
}

enum tp_status tp_comm_iallreduce_sum(struct tp_comm *comm, double *data, int count,
                                      struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(
        TP_MPI(MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_DOUBLE, MPI_SUM, comm->mpi, &handle)));
    request_move(request, handle);
    ring_others(comm);
    return TP_OK;
}

enum tp_status tp_comm_iallreduce_floats(struct tp_comm *comm, bool largest, float *data,
                                         size_t count, struct tp_request *request)
{
    MPI_Request handle;
    TP_TRY(check_count(count, "floats"));
    TP_TRY(TP_MPI(MPI_Iallreduce(MPI_IN_PLACE, data, (int)count, MPI_FLOAT,
                                 largest ? MPI_MAX : MPI_SUM, comm->mpi, &handle)));
    request_move(request, handle);
    ring_others(comm);
    return TP_OK;
}

/* The operation has finished. */
static enum tp_status end(const struct tp_request *request, const MPI_Status *message)
{
    int count;
    if (request->expect < 0) {
        n_moving--;
        return TP_OK;
    }
    TP_TRY(TP_MPI(MPI_Get_count(message, MPI_FLOAT, &count)));
    if (count != request->expect)
        return tp_fail(TP_ERR_COMM, "a message from rank %d has %d floats, expected %d",
                       message->MPI_SOURCE, count, request->expect);
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
    request_set(request, handle);
    if (flag)
        TP_TRY(end(request, &message));
    *done = flag;
    return TP_OK;
}

/* ---- Waiting ---- */

/* Seconds that a wait looks again and again: an answer may be on its way. */
#define SPIN 20e-6

static bool all_near; /* every rank of the job can ring for this one */
static double heard;  /* when the bell rang latest */

/* A part of what was waited so far, within bounds, in seconds. */
static double part_of(double waited, double least, double most)
{
    return fmin(fmax(waited / 4, least), most);
}

/* How long to sleep at most. waited: since the wait began or the bell rang. A message rings when it
 * begins to come; but MPI may need several looks on both sides to move one, and in between none of
 * them rings. */
static double choose_sleep(double waited, bool rung, bool computing)
{
    if (computing)
        return part_of(waited, 0.5e-3, 4e-3);
    if (!all_near)
        return 100e-6;
    if (n_moving == 0 && !rung)
        return 2e-3;
    return part_of(waited, 50e-6, 2e-3);
}

void tp_comm_pause(double since, bool computing)
{
    const bool rung = heard > since;
    const double waited = tp_clock_now() - (rung ? heard : since);

    if (waited < SPIN && !computing)
        sched_yield();
    else if (tp_bell_wait(choose_sleep(waited, rung, computing)))
        heard = tp_clock_now();
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
        tp_comm_pause(since, false);
    }
}

void tp_comm_cancel(struct tp_request *request)
{
    MPI_Request handle = request_get(request);
    if (handle == MPI_REQUEST_NULL)
        return;
    if (request->expect >= 0)
        MPI_Cancel(&handle);
    else
        n_moving--;
    MPI_Request_free(&handle);
    request_set(request, handle);
}

/* Waits for a collective operation over comm that was started. */
static enum tp_status wait_for(const struct tp_comm *comm, MPI_Request handle)
{
    struct tp_request request;
    request_move(&request, handle);
    ring_others(comm);
    return tp_comm_wait(&request);
}

/* ---- Communicators ---- */

/* Number in another communicator of a rank of one. */
static int translate(MPI_Comm from, int rank, MPI_Comm to)
{
    MPI_Group old, new;
    int number = rank;
    MPI_Comm_group(from, &old);
    MPI_Comm_group(to, &new);
    MPI_Group_translate_ranks(old, 1, &rank, new, &number);
    MPI_Group_free(&old);
    MPI_Group_free(&new);
    return number;
}

static enum tp_status make_room(struct tp_comm *comm)
{
    comm->counts = calloc(2 * (size_t)comm->size, sizeof *comm->counts);
    comm->bells = calloc((size_t)comm->size, sizeof(struct tp_bell *));
    if (comm->counts == NULL || comm->bells == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a communicator of %d ranks", comm->size);
    comm->places = comm->counts + comm->size;
    return TP_OK;
}

/* Takes over mpi, also when it fails. parent: NULL for the world. */
static enum tp_status wrap(MPI_Comm mpi, const struct tp_comm *parent, struct tp_comm **out)
{
    enum tp_status status = TP_MPI(MPI_Comm_set_errhandler(mpi, MPI_ERRORS_RETURN));
    struct tp_comm *comm = malloc(sizeof *comm);
    if (comm == NULL) {
        MPI_Comm_free(&mpi);
        return tp_fail(TP_ERR_MEMORY, "no memory for a communicator");
    }
    *comm = (struct tp_comm){.mpi = mpi};
    if (status != TP_OK || (status = TP_MPI(MPI_Comm_rank(mpi, &comm->rank))) != TP_OK ||
        (status = TP_MPI(MPI_Comm_size(mpi, &comm->size))) != TP_OK ||
        (status = make_room(comm)) != TP_OK) {
        tp_comm_free(comm);
        return status;
    }
    if (parent != NULL) {
        comm->synchronous = parent->synchronous;
        for (int i = 0; i < comm->size; i++)
            comm->bells[i] = parent->bells[translate(mpi, i, parent->mpi)];
    }
    *out = comm;
    return TP_OK;
}

/* Memory of all ranks of a node; NULL on all where one of them cannot have it. Not MPI's shared
 * windows: a rank of Open MPI that gets none leaves the others waiting for it for ever. */
static enum tp_status share_bells(struct tp_comm *node, size_t bytes, struct tp_bell **bells)
{
    char name[TP_SHARED_NAME] = "";
    const bool leads = node->rank == 0;
    struct tp_bell *mine = leads ? tp_shared_new(name, bytes) : NULL;
    if (mine == NULL)
        name[0] = '\0';
    enum tp_status status = tp_comm_bcast(node, name, sizeof name, 0);
    if (status == TP_OK && !leads && name[0] != '\0')
        mine = tp_shared_open(name, bytes);
    if (mine != NULL)
        tp_bell_init(&mine[node->rank]);
    int64_t lacking = mine == NULL;
    if (status == TP_OK)
        status = tp_comm_allreduce_max(node, &lacking, 1); /* the others' bells are made too */
    if (leads && name[0] != '\0')
        tp_shared_forget(name);
    if (status != TP_OK || lacking) {
        tp_shared_free(mine, bytes);
        mine = NULL;
    }
    *bells = mine;
    return status;
}

/* Ranks of one node ring for each other: the bells are in memory that they share. Where there is
 * none, they look more often instead. */
static enum tp_status hang_bells(struct tp_comm *world, struct tp_comm *node)
{
    world->shared_bytes = (size_t)node->size * sizeof *world->shared;
    TP_TRY(share_bells(node, world->shared_bytes, &world->shared));
    if (world->shared == NULL)
        return TP_OK;
    for (int i = 0; i < node->size; i++)
        world->bells[translate(node->mpi, i, world->mpi)] = &world->shared[i];
    tp_bell_listen(&world->shared[node->rank]);
    all_near = node->size == world->size;
    return TP_OK;
}

static enum tp_status make_world(struct tp_comm **comm)
{
    struct tp_comm *world, *node;
    MPI_Comm mpi;
    TP_TRY(TP_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &mpi)));
    TP_TRY(wrap(mpi, NULL, &world));
    enum tp_status status = tp_comm_split_node(world, &node);
    if (status == TP_OK) {
        status = hang_bells(world, node);
        tp_comm_free(node);
    }
    if (status == TP_OK)
        *comm = world;
    else
        tp_comm_free(world);
    return status;
}

/* Making a communicator blocks in MPI: first wait politely until all are here. */
enum tp_status tp_comm_world(struct tp_comm **comm)
{
    MPI_Request handle;
    struct tp_request request;
    TP_TRY(TP_MPI(MPI_Ibarrier(MPI_COMM_WORLD, &handle)));
    request_move(&request, handle);
    TP_TRY(tp_comm_wait(&request));
    return make_world(comm);
}

enum tp_status tp_comm_split(struct tp_comm *comm, int color, int key, struct tp_comm **out)
{
    MPI_Comm mpi;
    TP_TRY(tp_comm_barrier(comm));
    TP_TRY(TP_MPI(MPI_Comm_split(comm->mpi, color < 0 ? MPI_UNDEFINED : color, key, &mpi)));
    if (mpi == MPI_COMM_NULL) {
        *out = NULL;
        return TP_OK;
    }
    return wrap(mpi, comm, out);
}

enum tp_status tp_comm_split_node(struct tp_comm *comm, struct tp_comm **out)
{
    MPI_Comm mpi;
    TP_TRY(tp_comm_barrier(comm));
    TP_TRY(TP_MPI(
        MPI_Comm_split_type(comm->mpi, MPI_COMM_TYPE_SHARED, comm->rank, MPI_INFO_NULL, &mpi)));
    return wrap(mpi, comm, out);
}

void tp_comm_free(struct tp_comm *comm)
{
    if (comm == NULL)
        return;
    if (comm->shared != NULL)
        tp_bell_listen(NULL);
    tp_shared_free(comm->shared, comm->shared_bytes);
    MPI_Comm_free(&comm->mpi);
    free(comm->bells);
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
    return translate(comm->mpi, rank, MPI_COMM_WORLD);
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

enum tp_status tp_comm_barrier(const struct tp_comm *comm)
{
    MPI_Request handle;
    TP_TRY(TP_MPI(MPI_Ibarrier(comm->mpi, &handle)));
    return wait_for(comm, handle);
}

enum tp_status tp_comm_bcast(struct tp_comm *comm, void *data, size_t bytes, int root)
{
    MPI_Request handle;
    TP_TRY(check_count(bytes, "bytes"));
    TP_TRY(TP_MPI(MPI_Ibcast(data, (int)bytes, MPI_BYTE, root, comm->mpi, &handle)));
    return wait_for(comm, handle);
}

enum tp_status tp_comm_allreduce_max(struct tp_comm *comm, int64_t *data, int count)
{
    MPI_Request handle;
    TP_TRY(TP_MPI(
        MPI_Iallreduce(MPI_IN_PLACE, data, count, MPI_INT64_T, MPI_MAX, comm->mpi, &handle)));
    return wait_for(comm, handle);
}

enum tp_status tp_comm_allgather(struct tp_comm *comm, void *data, size_t bytes)
{
    MPI_Request handle;
    TP_TRY(check_count(bytes, "bytes"));
    TP_TRY(TP_MPI(MPI_Iallgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, data, (int)bytes, MPI_BYTE,
                                 comm->mpi, &handle)));
    return wait_for(comm, handle);
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
    return wait_for(comm, handle);
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
