/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "train/phase.h"
#include "train/tracer.h"

enum { TAG = 2 };

/* An event as it travels: a name is a place in the engine's table of them. */
struct record {
    double begin, end;
    int64_t flow;
    int32_t pid, track, name, group, start, length;
};

enum tp_status tp_tracer_begin(struct tp_worker *worker, struct tp_trace **trace)
{
    tp_phase_begin();
    struct tp_trace *made = NULL;
    enum tp_status status = tp_trace_new(&made);
    if (status == TP_OK)
        status = tp_device_finish(worker->device);
    status = tp_phase_end(worker->world, status);
    if (status != TP_OK) {
        tp_trace_free(made);
        return status;
    }
    tp_engine_trace(worker->engine, made, tp_clock_now());
    *trace = made;
    return TP_OK;
}

static int name_of(const char *name)
{
    int i = 0;

    while (strcmp(tp_engine_event_names[i], name) != 0)
        i++;
    return i;
}

static struct record *pack(const struct tp_trace *trace, size_t *count)
{
    const struct tp_trace_event *events = tp_trace_events(trace, count);
    struct record *records = calloc(*count + 1, sizeof *records);

    for (size_t i = 0; records != NULL && i < *count; i++) {
        const struct tp_trace_event *e = &events[i];
        records[i] = (struct record){.begin = e->begin,
                                     .end = e->end,
                                     .flow = e->flow,
                                     .pid = e->pid,
                                     .track = (int32_t)e->track,
                                     .name = name_of(e->name),
                                     .group = e->group,
                                     .start = e->start,
                                     .length = e->length};
    }
    return records;
}

static void unpack(const struct record *records, size_t count, struct tp_trace *trace)
{
    for (size_t i = 0; i < count; i++) {
        const struct record *r = &records[i];
        const struct tp_trace_event event = {.pid = r->pid,
                                             .track = (enum tp_track)r->track,
                                             .name = tp_engine_event_names[r->name],
                                             .begin = r->begin,
                                             .end = r->end,
                                             .group = r->group,
                                             .start = r->start,
                                             .length = r->length,
                                             .flow = r->flow};
        tp_trace_add(trace, &event);
    }
}

/* Messages count floats. */
static size_t floats(size_t records)
{
    return records * (sizeof(struct record) / sizeof(float));
}

/* Rank 0 takes the others' records, one rank after the other, in a buffer for the largest. */
static enum tp_status collect(struct tp_comm *world, const int64_t *counts, struct record *records,
                              struct tp_trace *trace)
{
    const int rank = tp_comm_rank(world);
    struct tp_request request;

    if (rank > 0) {
        TP_TRY(tp_comm_isend(world, (const float *)(const void *)records,
                             floats((size_t)counts[rank]), 0, TAG, &request));
        return tp_comm_wait(&request);
    }
    for (int from = 1; from < tp_comm_size(world); from++) {
        const size_t count = (size_t)counts[from];
        TP_TRY(tp_comm_irecv(world, (float *)(void *)records, floats(count), from, TAG, &request));
        TP_TRY(tp_comm_wait(&request));
        unpack(records, count, trace);
    }
    return TP_OK;
}

/* Room for the records of any rank: on rank 0 the largest list's. */
static enum tp_status share_counts(struct tp_comm *world, size_t mine, int64_t *counts,
                                   struct record **records)
{
    counts[tp_comm_rank(world)] = (int64_t)mine;
    TP_TRY(tp_comm_allgather(world, counts, sizeof *counts));
    size_t most = mine;
    for (int i = 0; i < tp_comm_size(world) && tp_comm_rank(world) == 0; i++)
        most = most < (size_t)counts[i] ? (size_t)counts[i] : most;
    tp_phase_begin();
    struct record *larger = realloc(*records, (most + 1) * sizeof **records);
    if (larger != NULL)
        *records = larger;
    return tp_phase_end(world,
                        larger != NULL ? TP_OK : tp_fail(TP_ERR_MEMORY, "no memory for a trace"));
}

enum tp_status tp_tracer_end(struct tp_worker *worker, struct tp_trace *trace, const char *path)
{
    struct tp_comm *world = worker->world;
    const double began = tp_clock_now();
    tp_phase_begin();
    enum tp_status status = tp_device_finish(worker->device);
    tp_engine_trace_update(worker->engine, began);
    tp_engine_trace(worker->engine, NULL, 0);

    int64_t *counts = calloc((size_t)tp_comm_size(world), sizeof *counts);
    size_t mine;
    struct record *records = pack(trace, &mine);
    if (status == TP_OK && (counts == NULL || records == NULL))
        status = tp_fail(TP_ERR_MEMORY, "%s: no memory for it", path);
    status = tp_phase_end(world, status);
    if (status == TP_OK)
        status = share_counts(world, mine, counts, &records);
    if (status == TP_OK)
        status = collect(world, counts, records, trace);
    if (status == TP_OK) {
        tp_phase_begin();
        status = tp_comm_rank(world) == 0 ? tp_trace_save(trace, path) : TP_OK;
        status = tp_phase_end(world, status);
    }
    free(counts);
    free(records);
    tp_trace_free(trace);
    return status;
}
