/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a device: an arena of regions of 4-byte elements, and the host's access to them. */
#ifndef TP_DEVICE_MEMORY_H
#define TP_DEVICE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "device/device.h"

struct tp_buffer;

/* A place in a region: what kernels take. Elements are floats or int32. */
struct tp_view {
    struct tp_buffer *buffer;
    size_t offset; /* elements */
};

static inline struct tp_view tp_view_at(struct tp_view view, size_t offset)
{
    view.offset += offset;
    return view;
}

struct tp_arena;

/* An arena that may take limit bytes (0: as the device allows). Local. TP_ERR_MEMORY. */
enum tp_status tp_arena_new(struct tp_device *device, size_t limit, struct tp_arena **arena);

/* Frees all regions. Nothing may be running on them. NULL is fine. */
void tp_arena_free(struct tp_arena *arena);

/* A zeroed region of count elements, rounded up as tp_footprint_bytes() says. name is for errors.
 * count 0 gives a view without buffer. Local. TP_ERR_MEMORY names the region, the need and the
 * limit. */
enum tp_status tp_arena_take(struct tp_arena *arena, const char *name, size_t count,
                             struct tp_view *view);

/* Bytes taken so far. Local. */
size_t tp_arena_bytes(const struct tp_arena *arena);

/* Copies between host memory and a region, waiting for what was enqueued before and for the copy.
 */
enum tp_status tp_memory_write(struct tp_device *device, struct tp_view to, const void *from,
                               size_t count);
enum tp_status tp_memory_read(struct tp_device *device, void *to, struct tp_view from,
                              size_t count);

/* Copies count elements between regions. Enqueued. TP_ERR_DEVICE. */
enum tp_status tp_memory_copy(struct tp_device *device, struct tp_view to, struct tp_view from,
                              size_t count);

/* The host's turn on a part of a region, for messages. No copy where the device shares the host's
 * memory; elsewhere the driver copies on a second queue, beside the computing. */
struct tp_mapping {
    struct tp_device *device;
    struct tp_view view;
    void *event;
    float *data; /* valid once tp_mapping_ready() says so */
};

enum tp_access {
    TP_ACCESS_READ,   /* what the commands enqueued so far leave there */
    TP_ACCESS_CHANGE, /* the same, and changes in place */
    TP_ACCESS_WRITE   /* old contents are lost; no enqueued command may use the part */
};

/* Begins the host's turn; enqueued, not waited for: rings the process's bell when it has begun.
 * With count 0 there is only the waiting for what was enqueued so far. TP_ERR_DEVICE. */
enum tp_status tp_mapping_begin(struct tp_device *device, struct tp_view view, size_t count,
                                enum tp_access access, struct tp_mapping *mapping);
/* Has it begun? Never waits. TP_ERR_DEVICE also when a command before it failed. */
enum tp_status tp_mapping_ready(struct tp_mapping *mapping, bool *ready);
/* Waits until it has begun. TP_ERR_DEVICE. */
enum tp_status tp_mapping_wait(struct tp_mapping *mapping);
/* Ends it: commands enqueued from now on see what the host wrote. */
enum tp_status tp_mapping_end(struct tp_mapping *mapping);

#endif
