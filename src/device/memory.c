/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/bell.h"
#include "base/log.h"
#include "opencl.h"

struct tp_arena {
    struct tp_device *device;
    size_t limit, taken; /* bytes */
    struct tp_buffer *buffers;
};

enum tp_status tp_arena_new(struct tp_device *device, size_t limit, struct tp_arena **arena)
{
    struct tp_arena *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for an arena");
    made->device = device;
    made->limit = limit != 0 ? limit : device->info.memory;
    *arena = made;
    return TP_OK;
}

static void buffer_free(struct tp_buffer *buffer)
{
    if (buffer->memory != NULL)
        clReleaseMemObject(buffer->memory);
    if (buffer->host != NULL)
        munmap(buffer->host, buffer->bytes);
    free(buffer);
}

void tp_arena_free(struct tp_arena *arena)
{
    if (arena == NULL)
        return;
    while (arena->buffers != NULL) {
        struct tp_buffer *next = arena->buffers->next;
        buffer_free(arena->buffers);
        arena->buffers = next;
    }
    free(arena);
}

/* Pages of the host, zero and not yet touched: the threads that compute on them touch them first.
 */
static enum tp_status make_direct(struct tp_device *device, struct tp_buffer *buffer, cl_int *code)
{
    void *pages =
        mmap(NULL, buffer->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED)
        return TP_ERR_MEMORY;
    buffer->host = pages;
    buffer->memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR,
                                    buffer->bytes, pages, code);
    return *code == CL_SUCCESS ? TP_OK : TP_ERR_MEMORY;
}

static enum tp_status make_remote(struct tp_device *device, struct tp_buffer *buffer, cl_int *code)
{
    const cl_uint zero = 0;
    buffer->memory = clCreateBuffer(device->context, CL_MEM_READ_WRITE, buffer->bytes, NULL, code);
    if (*code == CL_SUCCESS)
        *code = clEnqueueFillBuffer(device->queue, buffer->memory, &zero, sizeof(zero), 0,
                                    buffer->bytes, 0, NULL, NULL);
    if (*code == CL_SUCCESS)
        *code = clFinish(device->queue);
    return *code == CL_SUCCESS ? TP_OK : TP_ERR_MEMORY;
}

enum tp_status tp_arena_take(struct tp_arena *arena, const char *name, size_t count,
                             struct tp_view *view)
{
    struct tp_device *device = arena->device;
    struct tp_footprint footprint;
    tp_device_footprint(device, &footprint);
    const size_t bytes = tp_footprint_bytes(&footprint, count);
    if (count == 0) {
        *view = (struct tp_view){0};
        return TP_OK;
    }
    if (bytes > arena->limit - arena->taken)
        return tp_fail(TP_ERR_MEMORY,
                       "%s needs %zu bytes beside the %zu taken; the limit of %s is %zu", name,
                       bytes, arena->taken, device->info.name, arena->limit);
    if (bytes > device->info.max_buffer)
        return tp_fail(TP_ERR_MEMORY, "%s needs one buffer of %zu bytes; %s allows %zu", name,
                       bytes, device->info.name, device->info.max_buffer);

    struct tp_buffer *buffer = calloc(1, sizeof(*buffer));
    if (buffer == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for the list of regions");
    buffer->bytes = bytes;
    cl_int code = CL_SUCCESS;
    enum tp_status status =
        device->direct ? make_direct(device, buffer, &code) : make_remote(device, buffer, &code);
    if (status != TP_OK) {
        buffer_free(buffer);
        return tp_fail(TP_ERR_MEMORY, "%s: %s gives no %zu bytes beside the %zu taken (%d)", name,
                       device->info.name, bytes, arena->taken, code);
    }
    buffer->next = arena->buffers;
    arena->buffers = buffer;
    arena->taken += bytes;
    *view = (struct tp_view){.buffer = buffer, .offset = 0};
    return TP_OK;
}

size_t tp_arena_bytes(const struct tp_arena *arena)
{
    return arena->taken;
}

enum tp_status tp_memory_write(struct tp_device *device, struct tp_view to, const void *from,
                               size_t count)
{
    if (device->direct) {
        TP_CL(clFinish(device->queue));
        memcpy(tp_view_host(to), from, count * 4);
        return TP_OK;
    }
    TP_CL(clEnqueueWriteBuffer(device->queue, to.buffer->memory, CL_TRUE, to.offset * 4, count * 4,
                               from, 0, NULL, NULL));
    return TP_OK;
}

enum tp_status tp_memory_read(struct tp_device *device, void *to, struct tp_view from, size_t count)
{
    if (device->direct) {
        TP_CL(clFinish(device->queue));
        memcpy(to, tp_view_host(from), count * 4);
        return TP_OK;
    }
    TP_CL(clEnqueueReadBuffer(device->queue, from.buffer->memory, CL_TRUE, from.offset * 4,
                              count * 4, to, 0, NULL, NULL));
    return TP_OK;
}

enum tp_status tp_memory_copy(struct tp_device *device, struct tp_view to, struct tp_view from,
                              size_t count)
{
    TP_CL(clEnqueueCopyBuffer(device->queue, from.buffer->memory, to.buffer->memory,
                              from.offset * 4, to.offset * 4, count * 4, 0, NULL, NULL));
    return TP_OK;
}

static void CL_CALLBACK ring(cl_event event, cl_int state, void *unused)
{
    (void)event, (void)state, (void)unused;
    tp_bell_ring_own();
}

/* Direct: a marker is all there is to wait for. Else a map on the transfer queue, which for reading
 * begins behind such a marker. */
static enum tp_status begin_map(struct tp_device *device, struct tp_view view, size_t count,
                                enum tp_access access, struct tp_mapping *mapping)
{
    static const cl_map_flags flags[] = {
        [TP_ACCESS_READ] = CL_MAP_READ,
        [TP_ACCESS_CHANGE] = CL_MAP_READ | CL_MAP_WRITE,
        [TP_ACCESS_WRITE] = CL_MAP_WRITE_INVALIDATE_REGION,
    };
    cl_event marker = NULL, event = NULL;
    cl_int code = CL_SUCCESS;
    if (access != TP_ACCESS_WRITE) {
        TP_CL(clEnqueueMarkerWithWaitList(device->queue, 0, NULL, &marker));
        code = clFlush(device->queue);
    }
    if (device->direct) {
        event = marker;
        mapping->data = tp_view_host(view);
    } else if (count == 0) {
        event = marker;
    } else if (code == CL_SUCCESS) {
        mapping->data = clEnqueueMapBuffer(
            device->transfer, view.buffer->memory, CL_FALSE, flags[access], view.offset * 4,
            count * 4, marker != NULL ? 1 : 0, marker != NULL ? &marker : NULL, &event, &code);
        if (marker != NULL)
            clReleaseEvent(marker);
        if (code == CL_SUCCESS)
            code = clFlush(device->transfer);
    }
    mapping->event = event;
    TP_CL(code);
    if (event != NULL) /* a driver that does not call back leaves a wait to its time */
        (void)clSetEventCallback(event, CL_COMPLETE, ring, NULL);
    return TP_OK;
}

enum tp_status tp_mapping_begin(struct tp_device *device, struct tp_view view, size_t count,
                                enum tp_access access, struct tp_mapping *mapping)
{
    *mapping = (struct tp_mapping){.device = device, .view = view};
    return begin_map(device, view, count, access, mapping);
}

enum tp_status tp_mapping_ready(struct tp_mapping *mapping, bool *ready)
{
    if (mapping->event == NULL) {
        *ready = true;
        return TP_OK;
    }
    cl_int state = CL_QUEUED;
    TP_CL(clGetEventInfo(mapping->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof(state), &state,
                         NULL));
    if (state < 0)
        TP_CL(state);
    *ready = state == CL_COMPLETE;
    if (*ready) {
        cl_event event = mapping->event;
        mapping->event = NULL;
        TP_CL(clReleaseEvent(event));
    }
    return TP_OK;
}

enum tp_status tp_mapping_wait(struct tp_mapping *mapping)
{
    bool ready;
    if (mapping->event != NULL) {
        cl_event event = mapping->event;
        TP_CL(clWaitForEvents(1, &event));
    }
    return tp_mapping_ready(mapping, &ready);
}

enum tp_status tp_mapping_end(struct tp_mapping *mapping)
{
    struct tp_device *device = mapping->device;
    if (mapping->event != NULL) { /* given back unread: after a failed step */
        clReleaseEvent(mapping->event);
        mapping->event = NULL;
    }
    if (device->direct || mapping->data == NULL)
        return TP_OK;
    cl_event unmapped;
    TP_CL(clEnqueueUnmapMemObject(device->transfer, mapping->view.buffer->memory, mapping->data, 0,
                                  NULL, &unmapped));
    cl_int code = clFlush(device->transfer);
    if (code == CL_SUCCESS)
        code = clEnqueueBarrierWithWaitList(device->queue, 1, &unmapped, NULL);
    clReleaseEvent(unmapped);
    TP_CL(code);
    return TP_OK;
}

/* What the probe of native kernels hands over: raw addresses, in an order that is not that of the
 * buffers' creation. PoCL 3 hands over wrong ones when asked to translate memory objects. */
struct probe {
    float *sum;
    const float *second, *first;
};

static void CL_CALLBACK add_on_host(void *arguments)
{
    const struct probe *probe = arguments;
    for (int i = 0; i < 4; i++)
        probe->sum[i] = probe->first[i] + 10 * probe->second[i];
}

static bool probe_direct(struct tp_device *device, struct tp_view first, struct tp_view second,
                         struct tp_view sum)
{
    const float one[4] = {1, 2, 3, 4}, two[4] = {5, 6, 7, 8};
    float seen[4];
    struct probe probe = {tp_view_host(sum), tp_view_host(second), tp_view_host(first)};
    /* In by the host's pointers, added natively, out by the device's copy: all see one memory. */
    memcpy(tp_view_host(first), one, sizeof(one));
    return clEnqueueWriteBuffer(device->queue, second.buffer->memory, CL_TRUE, 0, sizeof(two), two,
                                0, NULL, NULL) == CL_SUCCESS &&
           clEnqueueNativeKernel(device->queue, add_on_host, &probe, sizeof(probe), 0, NULL, NULL,
                                 0, NULL, NULL) == CL_SUCCESS &&
           clEnqueueReadBuffer(device->queue, sum.buffer->memory, CL_TRUE, 0, sizeof(seen), seen, 0,
                               NULL, NULL) == CL_SUCCESS &&
           seen[0] == 51 && seen[1] == 62 && seen[2] == 73 && seen[3] == 84;
}

bool tp_memory_is_direct(struct tp_device *device)
{
    if (!device->info.native_kernels || !device->info.unified)
        return false;
    struct tp_arena *arena = NULL;
    struct tp_view sum, first, second;
    if (tp_arena_new(device, 0, &arena) != TP_OK)
        return false;
    device->direct = true;
    const bool direct = tp_arena_take(arena, "probe", 4, &second) == TP_OK &&
                        tp_arena_take(arena, "probe", 4, &sum) == TP_OK &&
                        tp_arena_take(arena, "probe", 4, &first) == TP_OK &&
                        probe_direct(device, first, second, sum);
    device->direct = false;
    tp_arena_free(arena);
    return direct;
}
