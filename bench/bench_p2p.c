/* SPDX-License-Identifier: Apache-2.0 */
/* A message between two ranks: by MPI alone, by the comm layer, whose waits sleep, and from device
 * to device. Two ranks answer each other, at once or after a pause: a receiver that has waited long
 * looks less often. Beside each time what a waiting rank takes of its core, and whether the
 * messages arrived as they were sent. */
#include "config.h"

#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "comm/grid.h"
#include "device/device.h"
#include "device/memory.h"
#include "mpi_main.h"
#include "report.h"
#include "train/phase.h"

struct settings {
    int rounds;
    const char *device;
    struct report_options report;
};

/* clang-format off */
#define FIELD(name) offsetof(struct settings, name)
static const struct tp_option rows[] = {
    {.name = "rounds", .type = TP_OPTION_INT, .offset = FIELD(rounds), .initial = "9", .min = 1, .max = MOST_ROUNDS, .argument = "N", .help = "rounds; medians are printed"},
    {.name = "device", .type = TP_OPTION_STRING, .offset = FIELD(device), .argument = "SEL", .help = "OpenCL device by index, name or type"},
    REPORT_OPTIONS(struct settings, report),
};
/* clang-format on */
enum { N_ROWS = sizeof(rows) / sizeof(rows[0]), TAG = 7 };

/* Floats of a message: a number; tokens of a slice times a width of 768. */
static const size_t counts[] = {2, 1024, 16 * 768, 64 * 768, 256 * 768, 1024 * 768};
enum { N_COUNTS = sizeof(counts) / sizeof(counts[0]), MOST_COUNT = 1024 * 768 };

/* Seconds that each rank does something else, and so the other one waits. */
static const double pauses[] = {0, 1e-3, 10e-3};
enum { N_PAUSES = sizeof(pauses) / sizeof(pauses[0]) };

/* The shortest message and a usual one show what pauses change. */
static bool is_measured(int count, int pause)
{
    return pause == 0 || count == 0 || count == 4;
}

enum path { PATH_MPI, PATH_COMM, PATH_DEVICE, PATH_STAGED, N_PATHS };
static const char *const path_names[] = {
    [PATH_MPI] = "MPI", [PATH_COMM] = "comm", [PATH_DEVICE] = "device", [PATH_STAGED] = "staged"};

/* Memory of a device; staged: treated as one that does not share the host's. */
struct place {
    struct tp_device *device;
    struct tp_arena *arena;
    struct tp_view message;
};

struct row {
    struct rounds rounds; /* seconds of a message */
    double waited, used;  /* seconds in all: that this rank waited, and of the core meanwhile */
    int64_t wrong;        /* floats that were not as they were sent */
};

struct bench {
    struct tp_comm *world;
    int rank, peer;
    float *message;
    struct place places[N_PATHS];
    struct row rows[N_PATHS][N_COUNTS][N_PAUSES];
    struct report *report;
};

/* ---- One message ---- */

static enum tp_status send_by_mpi(struct bench *b, const float *data, size_t count)
{
    return MPI_Send(data, (int)count, MPI_FLOAT, b->peer, TAG, MPI_COMM_WORLD) == MPI_SUCCESS
               ? TP_OK
               : TP_ERR_COMM;
}

static enum tp_status receive_by_mpi(struct bench *b, float *data, size_t count)
{
    return MPI_Recv(data, (int)count, MPI_FLOAT, b->peer, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE) ==
                   MPI_SUCCESS
               ? TP_OK
               : TP_ERR_COMM;
}

static enum tp_status send_by_comm(struct bench *b, const float *data, size_t count)
{
    struct tp_request request;
    TP_TRY(tp_comm_isend(b->world, data, count, b->peer, TAG, &request));
    return tp_comm_wait(&request);
}

static enum tp_status receive_by_comm(struct bench *b, float *data, size_t count)
{
    struct tp_request request;
    TP_TRY(tp_comm_irecv(b->world, data, count, b->peer, TAG, &request));
    return tp_comm_wait(&request);
}

static enum tp_status send_from(struct bench *b, const struct place *place, size_t count)
{
    struct tp_mapping mapping;
    TP_TRY(tp_mapping_begin(place->device, place->message, count, TP_ACCESS_READ, &mapping));
    TP_TRY(tp_mapping_wait(&mapping));
    TP_TRY(send_by_comm(b, mapping.data, count));
    return tp_mapping_end(&mapping);
}

static enum tp_status receive_into(struct bench *b, const struct place *place, size_t count)
{
    struct tp_mapping mapping;
    TP_TRY(tp_mapping_begin(place->device, place->message, count, TP_ACCESS_WRITE, &mapping));
    TP_TRY(tp_mapping_wait(&mapping));
    TP_TRY(receive_by_comm(b, mapping.data, count));
    TP_TRY(tp_mapping_end(&mapping));
    return tp_device_finish(place->device);
}

static enum tp_status send(struct bench *b, enum path path, size_t count)
{
    switch (path) {
    case PATH_MPI:
        return send_by_mpi(b, b->message, count);
    case PATH_COMM:
        return send_by_comm(b, b->message, count);
    default:
        return send_from(b, &b->places[path], count);
    }
}

static enum tp_status receive(struct bench *b, enum path path, size_t count)
{
    switch (path) {
    case PATH_MPI:
        return receive_by_mpi(b, b->message, count);
    case PATH_COMM:
        return receive_by_comm(b, b->message, count);
    default:
        return receive_into(b, &b->places[path], count);
    }
}

/* ---- Payloads: what arrives is what the other rank wrote in that round ---- */

static float number_of(int rank, int round, size_t i)
{
    return (float)((i * 31 + (size_t)round * 7 + (size_t)rank) % 8191);
}

static enum tp_status write_payload(struct bench *b, enum path path, size_t count, int round)
{
    const struct place *place = &b->places[path];

    for (size_t i = 0; i < count; i++)
        b->message[i] = number_of(b->rank, round, i);
    if (place->device == NULL)
        return TP_OK;
    return tp_memory_write(place->device, place->message, b->message, count);
}

static enum tp_status check_payload(struct bench *b, enum path path, size_t count, int round,
                                    int64_t *wrong)
{
    const struct place *place = &b->places[path];

    if (place->device != NULL)
        TP_TRY(tp_memory_read(place->device, b->message, place->message, count));
    for (size_t i = 0; i < count; i++)
        *wrong += b->message[i] != number_of(b->peer, round, i);
    return TP_OK;
}

/* ---- Measuring ---- */

static double core_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
           1e-6 * ((double)usage.ru_utime.tv_usec + (double)usage.ru_stime.tv_usec);
}

/* Rank 0 sends first; each answers, after a pause. Adds the seconds of a message, all pauses left
 * out. */
static enum tp_status play(struct bench *b, enum path path, size_t count, double pause,
                           struct row *row)
{
    const int messages = pause > 0 ? 6 : count < 10000 ? 40 : 10;
    double paused = 0;
    bool mine = b->rank == 0;

    TP_TRY(tp_comm_barrier(b->world));
    const double began = tp_clock_now(), core = core_seconds();
    for (int i = 0; i < messages; i++, mine = !mine) {
        if (!mine) {
            TP_TRY(receive(b, path, count));
            continue;
        }
        const double before = tp_clock_now();
        tp_clock_sleep(pause);
        paused += tp_clock_now() - before;
        TP_TRY(send(b, path, count));
    }
    const double elapsed = tp_clock_now() - began;
    row->used += core_seconds() - core;
    row->waited += elapsed - paused;
    double all[2][2] = {{0}};
    all[b->rank][0] = elapsed;
    all[b->rank][1] = paused;
    TP_TRY(tp_comm_allgather(b->world, all, sizeof(all[0])));
    const double whole = all[0][0] > all[1][0] ? all[0][0] : all[1][0];
    rounds_add(&row->rounds, (whole - all[0][1] - all[1][1]) / messages);
    return TP_OK;
}

/* One message each way with numbers of their own, which are looked at. */
static enum tp_status exchange(struct bench *b, enum path path, size_t count, int round,
                               struct row *row)
{
    if (b->rank == 0) {
        TP_TRY(write_payload(b, path, count, round));
        TP_TRY(send(b, path, count));
        TP_TRY(receive(b, path, count));
        return check_payload(b, path, count, round, &row->wrong);
    }
    TP_TRY(receive(b, path, count));
    TP_TRY(check_payload(b, path, count, round, &row->wrong));
    TP_TRY(write_payload(b, path, count, round));
    return send(b, path, count);
}

static enum tp_status measure(struct bench *b, int n_rounds)
{
    for (int round = 0; round < n_rounds; round++)
        for (int c = 0; c < N_COUNTS; c++)
            for (int p = 0; p < N_PAUSES; p++)
                for (int path = 0; path < N_PATHS && is_measured(c, p); path++) {
                    struct row *row = &b->rows[path][c][p];
                    TP_TRY(exchange(b, (enum path)path, counts[c], round, row));
                    TP_TRY(play(b, (enum path)path, counts[c], pauses[p], row));
                }
    return TP_OK;
}

/* ---- Report ---- */

static const struct report_column columns[] = {
    {REPORT_KEY, "path", "", 0, 0},           {REPORT_KEY, "bytes", "", 0, 0},
    {REPORT_KEY, "pause", "ms", 0, 0},        {REPORT_TIME, "message", "us", 1, 1e6},
    {REPORT_FIGURE, "speed", "GB/s", 2, 0},   {REPORT_FIGURE, "waiting", "% of core", 1, 0},
    {REPORT_ERROR, "wrong floats", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

/* Over both ranks. */
static enum tp_status gather(struct bench *b, const struct row *row, double *share, double *wrong)
{
    double all[2][3] = {{0}};

    all[b->rank][0] = row->used;
    all[b->rank][1] = row->waited;
    all[b->rank][2] = (double)row->wrong;
    TP_TRY(tp_comm_allgather(b->world, all, sizeof(all[0])));
    *share = 100 * (all[0][0] + all[1][0]) / (all[0][1] + all[1][1]);
    *wrong = all[0][2] + all[1][2];
    return TP_OK;
}

static enum tp_status report_row(struct bench *b, int path, int c, int p)
{
    struct row *row = &b->rows[path][c][p];
    const double bytes = sizeof(float) * (double)counts[c];
    double share, wrong;

    TP_TRY(gather(b, row, &share, &wrong));
    if (b->report == NULL)
        return TP_OK;
    return report_add(b->report,
                      (struct report_cell[N_COLUMNS]){
                          report_text(path_names[path]), report_number(bytes),
                          report_number(1e3 * pauses[p]), report_time(&row->rounds, 1),
                          report_number(1e-9 * bytes / rounds_at(&row->rounds, 0.5)),
                          p > 0 ? report_number(share) : report_none(), report_error(wrong, 0)});
}

static enum tp_status report_all(struct bench *b)
{
    for (int p = 0; p < N_PAUSES; p++)
        for (int c = 0; c < N_COUNTS; c++)
            for (int path = 0; path < N_PATHS && is_measured(c, p); path++)
                TP_TRY(report_row(b, path, c, p));
    if (b->report == NULL)
        return TP_OK;
    TP_TRY(report_fact(b->report, "MPI", "%s", tp_comm_library()));
    TP_TRY(report_device(b->report, tp_device_describe(b->places[PATH_DEVICE].device), 1));
    return report_finish(b->report);
}

/* ---- Life ---- */

static enum tp_status open_place(const char *index, bool indirect, struct place *place)
{
    const struct tp_device_options options = {
        .index = index, .threads = 1, .head_width = 64, .indirect = indirect};
    TP_TRY(tp_device_open(&options, &place->device));
    TP_TRY(tp_arena_new(place->device, 0, &place->arena));
    return tp_arena_take(place->arena, "message", MOST_COUNT, &place->message);
}

static enum tp_status open_devices(struct bench *b, const char *select, int node_rank)
{
    struct tp_device_info *infos;
    int count, index;

    tp_device_limit_threads(1);
    TP_TRY(tp_devices_list(&infos, &count));
    enum tp_status status = tp_device_select(select, node_rank, infos, count, &index);
    if (status == TP_OK)
        status = open_place(infos[index].index, false, &b->places[PATH_DEVICE]);
    if (status == TP_OK)
        status = open_place(infos[index].index, true, &b->places[PATH_STAGED]);
    free(infos);
    return status;
}

/* This rank's own part of opening: what the others need not wait for. */
static enum tp_status open_mine(struct bench *b, const struct settings *s, int node_rank)
{
    if (tp_comm_size(b->world) != 2)
        return tp_fail(TP_ERR_USAGE, "%d ranks: expected 2 (start with mpirun -n 2)",
                       tp_comm_size(b->world));
    b->message = malloc(MOST_COUNT * sizeof(*b->message));
    if (b->message == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d numbers", MOST_COUNT);
    if (b->rank == 0)
        TP_TRY(report_open(&s->report, "p2p", columns, N_COLUMNS, &b->report));
    return open_devices(b, s->device, node_rank);
}

static enum tp_status open_bench(struct bench *b, const struct settings *s)
{
    struct tp_comm *node;

    b->rank = tp_comm_rank(b->world);
    b->peer = 1 - b->rank;
    TP_TRY(tp_comm_split_node(b->world, &node));
    tp_phase_begin();
    const enum tp_status status = open_mine(b, s, tp_comm_rank(node));
    tp_comm_free(node);
    return tp_phase_end(b->world, status);
}

static void close_bench(struct bench *b)
{
    for (int path = 0; path < N_PATHS; path++) {
        tp_arena_free(b->places[path].arena);
        tp_device_close(b->places[path].device);
    }
    free(b->message);
    report_close(b->report);
}

static enum tp_status run(const void *settings, struct tp_comm *world)
{
    static struct bench bench;
    const struct settings *s = settings;

    bench.world = world;
    enum tp_status status = open_bench(&bench, s);
    if (status == TP_OK)
        status = measure(&bench, s->rounds);
    if (status == TP_OK)
        status = report_all(&bench);
    close_bench(&bench);
    return status;
}

int main(int argc, char **argv)
{
    struct settings s = {0};

    return mpi_main(rows, N_ROWS, &s, argc, argv, run);
}
