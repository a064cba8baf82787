/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/file.h"
#include "base/trace.h"

struct tp_trace {
    struct tp_trace_event *events;
    size_t count, room;
    bool broken; /* some event did not fit into memory */
};

static const char *const track_names[] = {
    [TP_TRACK_COMPUTE] = "compute",
    [TP_TRACK_SEND] = "send",
    [TP_TRACK_RECEIVE] = "receive",
    [TP_TRACK_COPY] = "copy",
};

enum tp_status tp_trace_new(struct tp_trace **out)
{
    struct tp_trace *trace = calloc(1, sizeof *trace);

    if (trace == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a trace");
    *out = trace;
    return TP_OK;
}

void tp_trace_free(struct tp_trace *trace)
{
    if (trace == NULL)
        return;
    free(trace->events);
    free(trace);
}

void tp_trace_add(struct tp_trace *trace, const struct tp_trace_event *event)
{
    if (trace->count == trace->room) {
        size_t room = trace->room == 0 ? 1024 : 2 * trace->room;
        struct tp_trace_event *events = realloc(trace->events, room * sizeof *events);
        if (events == NULL) {
            trace->broken = true;
            return;
        }
        trace->events = events;
        trace->room = room;
    }
    trace->events[trace->count++] = *event;
}

const struct tp_trace_event *tp_trace_events(const struct tp_trace *trace, size_t *count)
{
    *count = trace->count;
    return trace->events;
}

/* ---- Writing ----
 *
 * Viewers draw the slices of one thread nested or not at all. Messages of one rank overlap, so a
 * track has as many lanes, each a thread, as it has slices at one time. */

enum { LANES = 1 << 12 };

/* By rank and track, in order of time. */
static int compare(const void *a, const void *b)
{
    const struct tp_trace_event *x = a, *y = b;

    if (x->pid != y->pid)
        return x->pid < y->pid ? -1 : 1;
    if (x->track != y->track)
        return x->track < y->track ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

struct writer {
    FILE *out;
    const char *separator;
    int pid, track; /* of the last slice */
    int lanes;      /* of that track */
    double end[LANES];
};

/* The first lane that is free by then; a new one is announced. Past the last all share it. */
static int find_lane(struct writer *writer, const struct tp_trace_event *event)
{
    int lane = 0;

    while (lane < writer->lanes && writer->end[lane] > event->begin)
        lane++;
    if (lane == LANES)
        return LANES - 1;
    writer->end[lane] = event->end;
    if (lane < writer->lanes)
        return lane;
    writer->lanes++;
    const int thread = (int)event->track * LANES + lane;
    fprintf(writer->out,
            "%s{\"ph\": \"M\", \"name\": \"thread_name\", \"pid\": %d, \"tid\": %d, "
            "\"args\": {\"name\": \"%s\"}},\n"
            "{\"ph\": \"M\", \"name\": \"thread_sort_index\", \"pid\": %d, \"tid\": %d, "
            "\"args\": {\"sort_index\": %d}}",
            writer->separator, event->pid, thread, track_names[event->track], event->pid, thread,
            thread);
    writer->separator = ",\n";
    return lane;
}

/* A slice, times in microseconds, and the arrow that begins or ends in it. */
static void write_event(struct writer *writer, const struct tp_trace_event *event)
{
    FILE *out = writer->out;

    if (event->pid != writer->pid)
        fprintf(out,
                "%s{\"ph\": \"M\", \"name\": \"process_name\", \"pid\": %d, "
                "\"args\": {\"name\": \"rank %d\"}}",
                writer->separator, event->pid, event->pid);
    if (event->pid != writer->pid || (int)event->track != writer->track)
        writer->lanes = 0;
    writer->separator = ",\n";
    writer->pid = event->pid;
    writer->track = (int)event->track;

    const int thread = (int)event->track * LANES + find_lane(writer, event);
    const double begin = event->begin * 1e6, length = (event->end - event->begin) * 1e6;
    fprintf(out,
            ",\n{\"ph\": \"X\", \"name\": \"%s\", \"pid\": %d, \"tid\": %d, \"ts\": %.15g, "
            "\"dur\": %.15g",
            event->name, event->pid, thread, begin, length);
    if (event->group >= 0)
        fprintf(out, ", \"args\": {\"group\": %d, \"start\": %d, \"length\": %d}", event->group,
                event->start, event->length);
    fputs("}", out);
    if (event->flow >= 0)
        fprintf(out,
                ",\n{\"ph\": \"%s\", \"bp\": \"e\", \"name\": \"message\", \"cat\": \"message\", "
                "\"id\": %" PRId64 ", \"pid\": %d, \"tid\": %d, \"ts\": %.15g}",
                event->track == TP_TRACK_SEND ? "s" : "f", event->flow, event->pid, thread,
                event->track == TP_TRACK_SEND ? begin : begin + length);
}

/* The file's text. Sorts a copy, since whoever saves may go on adding. */
static bool write_trace(const struct tp_trace *trace, FILE *out)
{
    struct writer *writer = calloc(1, sizeof *writer);
    struct tp_trace_event *sorted = calloc(trace->count + 1, sizeof *sorted);
    bool written = writer != NULL && sorted != NULL;

    if (written) {
        for (size_t i = 0; i < trace->count; i++)
            sorted[i] = trace->events[i];
        qsort(sorted, trace->count, sizeof *sorted, compare);
        *writer = (struct writer){.out = out, .separator = "", .pid = -1, .track = -1};
        fputs("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n", out);
        for (size_t i = 0; i < trace->count; i++)
            write_event(writer, &sorted[i]);
        fputs("\n]}\n", out);
        written = !ferror(out);
    }
    free(sorted);
    free(writer);
    return written;
}

enum tp_status tp_trace_save(const struct tp_trace *trace, const char *path)
{
    char *text = NULL;
    size_t size;
    FILE *out = trace->broken ? NULL : open_memstream(&text, &size);
    bool whole = out != NULL && write_trace(trace, out);

    whole = (out == NULL || fclose(out) == 0) && whole;
    enum tp_status status = whole ? tp_file_write(path, text, size)
                                  : tp_fail(TP_ERR_MEMORY, "%s: no memory for the trace", path);
    free(text);
    return status;
}
