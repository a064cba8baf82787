/* SPDX-License-Identifier: Apache-2.0 */
/* Traces in Chrome's trace-event format (JSON; "Trace Event Format", public document): what each
 * rank did when. Written by the engine and by the simulator alike. */
#ifndef TP_BASE_TRACE_H
#define TP_BASE_TRACE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct tp_trace;

/* Tracks of a rank, in the order in which they are shown. */
enum tp_track { TP_TRACK_COMPUTE, TP_TRACK_SEND, TP_TRACK_RECEIVE, TP_TRACK_COPY };

/* An empty trace. Local. TP_ERR_MEMORY. */
enum tp_status tp_trace_new(struct tp_trace **trace);
void tp_trace_free(struct tp_trace *trace);

/* Adds what pid did on a track from begin to end, in seconds. name is "forward" and the like
 * (static text); group, start and length are those of a slice, or -1. Without memory the trace is
 * marked broken and saving it fails. Local. */
struct tp_trace_event {
    int pid;
    enum tp_track track;
    const char *name;
    double begin, end;
    int group, start, length;
    int64_t flow; /* the same number on a send and on its receive draws an arrow; -1: none */
};
void tp_trace_add(struct tp_trace *trace, const struct tp_trace_event *event);

/* The events, in the order in which they were added; valid until the next one. Local. */
const struct tp_trace_event *tp_trace_events(const struct tp_trace *trace, size_t *count);

/* Writes the file by rename. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_trace_save(const struct tp_trace *trace, const char *path);

#endif
