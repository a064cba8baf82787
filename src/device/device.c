/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/device.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "device/packed.h"
#include "opencl.h"

void tp_device_limit_threads(int threads)
{
    char text[16];
    snprintf(text, sizeof(text), "%d", threads);
    setenv("POCL_MAX_PTHREAD_COUNT", text, 1); /* PoCL up to 3 */
    setenv("POCL_CPU_MAX_CU_COUNT", text, 1);  /* PoCL from 4 on */
    /* PoCL's threads, when there is one for each core, stay on their cores: two on one would halve
     * the speed. With fewer, each process would take the same cores. */
    if (threads > 1 && threads == sysconf(_SC_NPROCESSORS_ONLN))
        setenv("POCL_AFFINITY", "1", 0);
}

/* Devices of all platforms, as handles: at most this many are looked at. */
enum { MAX_PLATFORMS = 16, MAX_DEVICES = 64 };

struct handle {
    int platform, device; /* their numbers, as in an index */
    cl_platform_id platform_id;
    cl_device_id id;
};

/* All devices. No platform is no error: the ICD loader reports it as one. */
static enum tp_status list_handles(struct handle *handles, int *count)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint n_platforms = 0;
    *count = 0;
    cl_int code = clGetPlatformIDs(MAX_PLATFORMS, platforms, &n_platforms);
    if (code == -1001 /* CL_PLATFORM_NOT_FOUND_KHR */)
        return TP_OK;
    TP_CL(code);
    if (n_platforms > MAX_PLATFORMS)
        n_platforms = MAX_PLATFORMS;
    for (cl_uint p = 0; p < n_platforms; p++) {
        cl_device_id ids[MAX_DEVICES];
        cl_uint n = 0;
        code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, MAX_DEVICES, ids, &n);
        if (code == CL_DEVICE_NOT_FOUND)
            continue;
        TP_CL(code);
        for (cl_uint d = 0; d < n && d < MAX_DEVICES && *count < MAX_DEVICES; d++)
            handles[(*count)++] = (struct handle){(int)p, (int)d, platforms[p], ids[d]};
    }
    return TP_OK;
}

static const char *type_name(cl_device_type type)
{
    if (type & CL_DEVICE_TYPE_GPU)
        return "gpu";
    return type & CL_DEVICE_TYPE_CPU ? "cpu" : "accelerator";
}

static enum tp_status describe(const struct handle *handle, struct tp_device_info *info)
{
    cl_device_type type;
    cl_uint units;
    cl_ulong memory, max_buffer, local_memory;
    size_t max_group;
    cl_bool unified;
    cl_device_exec_capabilities capabilities;

    *info = (struct tp_device_info){0};
    snprintf(info->index, sizeof(info->index), "%d:%d", handle->platform, handle->device);
    TP_CL(clGetPlatformInfo(handle->platform_id, CL_PLATFORM_NAME, sizeof(info->platform),
                            info->platform, NULL));
#define GET(what, value) clGetDeviceInfo(handle->id, what, sizeof(value), &(value), NULL)
    TP_CL(GET(CL_DEVICE_NAME, info->name));
    TP_CL(GET(CL_DEVICE_VERSION, info->version));
    TP_CL(GET(CL_DRIVER_VERSION, info->driver));
    TP_CL(GET(CL_DEVICE_TYPE, type));
    TP_CL(GET(CL_DEVICE_MAX_COMPUTE_UNITS, units));
    TP_CL(GET(CL_DEVICE_GLOBAL_MEM_SIZE, memory));
    TP_CL(GET(CL_DEVICE_MAX_MEM_ALLOC_SIZE, max_buffer));
    TP_CL(GET(CL_DEVICE_MAX_WORK_GROUP_SIZE, max_group));
    TP_CL(GET(CL_DEVICE_LOCAL_MEM_SIZE, local_memory));
    TP_CL(GET(CL_DEVICE_HOST_UNIFIED_MEMORY, unified));
    TP_CL(GET(CL_DEVICE_EXECUTION_CAPABILITIES, capabilities));
#undef GET
    info->type = type_name(type);
    info->compute_units = (int)units;
    /* A CPU device has the host's memory; drivers report a part of it that varies from run to run.
     */
    info->memory = type & CL_DEVICE_TYPE_CPU
                       ? (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE)
                       : (size_t)memory;
    info->max_buffer = (size_t)max_buffer;
    info->max_group = max_group;
    info->local_memory = (size_t)local_memory;
    info->unified = unified == CL_TRUE;
    info->native_kernels = (capabilities & CL_EXEC_NATIVE_KERNEL) != 0;
    return TP_OK;
}

enum tp_status tp_devices_list(struct tp_device_info **infos, int *count)
{
    struct handle handles[MAX_DEVICES];
    int n;
    TP_TRY(list_handles(handles, &n));
    struct tp_device_info *list = calloc((size_t)n + 1, sizeof(*list));
    if (list == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a list of %d devices", n);
    for (int i = 0; i < n; i++) {
        enum tp_status status = describe(&handles[i], &list[i]);
        if (status != TP_OK) {
            free(list);
            return status;
        }
    }
    *infos = list;
    *count = n;
    return TP_OK;
}

/* Does text occur in name, upper and lower case being one? */
static bool occurs(const char *text, size_t length, const char *name)
{
    for (; strlen(name) >= length; name++) {
        size_t i = 0;
        while (i < length && tolower((unsigned char)name[i]) == tolower((unsigned char)text[i]))
            i++;
        if (i == length)
            return true;
    }
    return false;
}

static bool equals(const char *text, size_t length, const char *word)
{
    return strlen(word) == length && strncmp(text, word, length) == 0;
}

/* Of a list per rank of the node, "0=cpu,1=gpu", the part for this rank; of anything else, all. */
static bool part_for_rank(const char *select, int node_rank, const char **part, size_t *length)
{
    if (strchr(select, '=') == NULL) {
        *part = select;
        *length = strlen(select);
        return true;
    }
    for (const char *at = select; at != NULL; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char *end;
        long rank = strtol(at, &end, 10);
        if (end != at && *end == '=' && rank == node_rank) {
            *part = end + 1;
            *length = strcspn(*part, ",");
            return true;
        }
    }
    return false;
}

/* A platform without devices is one whose driver does not find, or does not like, what it needs. */
static enum tp_status fail_without_devices(void)
{
    cl_platform_id platforms[MAX_PLATFORMS];
    cl_uint count = 0;
    char name[128];

    if (clGetPlatformIDs(MAX_PLATFORMS, platforms, &count) != CL_SUCCESS || count == 0 ||
        clGetPlatformInfo(platforms[0], CL_PLATFORM_NAME, sizeof(name), name, NULL) != CL_SUCCESS)
        return tp_fail(TP_ERR_DEVICE, "no OpenCL device: no platform is installed "
                                      "(on Debian and Ubuntu: apt-get install pocl-opencl-icd)");
    return tp_fail(TP_ERR_DEVICE,
                   "no OpenCL device: %s is installed but has none (PoCL needs a cache folder that "
                   "it can write: POCL_CACHE_DIR, or pocl in XDG_CACHE_HOME or ~/.cache)",
                   name);
}

enum tp_status tp_device_select(const char *select, int node_rank,
                                const struct tp_device_info *infos, int count, int *index)
{
    if (count == 0)
        return fail_without_devices();
    if (select == NULL) {
        *index = node_rank % count;
        return TP_OK;
    }
    const char *part;
    size_t length;
    if (!part_for_rank(select, node_rank, &part, &length))
        return tp_fail(TP_ERR_USAGE, "--device %s: nothing for rank %d of its node", select,
                       node_rank);

    int matches = 0, chosen[MAX_DEVICES];
    for (int i = 0; i < count; i++)
        if (equals(part, length, infos[i].index)) {
            *index = i;
            return TP_OK;
        }
    for (int i = 0; i < count && matches < MAX_DEVICES; i++)
        if (length > 0 &&
            (equals(part, length, infos[i].type) || occurs(part, length, infos[i].name)))
            chosen[matches++] = i;
    if (matches == 0)
        return tp_fail(
            TP_ERR_USAGE,
            "--device %.*s: no such device; expected an index such as %s (%s), part of a "
            "name, or a type (cpu, gpu)",
            (int)length, part, infos[0].index, infos[0].name);
    *index = chosen[node_rank % matches];
    return TP_OK;
}

static enum tp_status find_handle(const char *index, struct handle *handle)
{
    struct handle handles[MAX_DEVICES];
    int n;
    TP_TRY(list_handles(handles, &n));
    for (int i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%d:%d", handles[i].platform, handles[i].device);
        if (strcmp(name, index) == 0) {
            *handle = handles[i];
            return TP_OK;
        }
    }
    return tp_fail(TP_ERR_DEVICE, "OpenCL device %s is not there", index);
}

static enum tp_status open_queues(struct tp_device *device, cl_platform_id platform)
{
    const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM,
                                                (cl_context_properties)platform, 0};
    cl_int code;
    device->context = clCreateContext(properties, 1, &device->id, NULL, NULL, &code);
    TP_CL(code);
    device->queue = clCreateCommandQueue(device->context, device->id, 0, &code);
    TP_CL(code);
    device->transfer = clCreateCommandQueue(device->context, device->id, 0, &code);
    TP_CL(code);
    return TP_OK;
}

/* Without panels it is the host's BLAS where it can be, as that measured 5 to 25 times CLBlast's
 * default speed. Panels are of the kernels for CPUs; there auto is decided product by product. */
static enum tp_status choose_gemm(struct tp_device *device, const struct tp_device_options *options)
{
    const bool cblas = tp_host_blas_init(device, options->threads);
    if (options->gemm == TP_GEMM_CBLAS && !cblas)
        return tp_fail(TP_ERR_USAGE,
                       "--gemm cblas: %s cannot use the host's BLAS; expected auto or clblast",
                       device->info.name);
    const bool panels = device->style == TP_KERNELS_CPU;
    if (options->gemm == TP_GEMM_PACKED && !panels)
        return tp_fail(TP_ERR_USAGE,
                       "--gemm packed: %s runs the kernels for GPUs; expected auto or clblast",
                       device->info.name);
    device->plain = cblas && options->gemm != TP_GEMM_CLBLAST ? TP_GEMM_CBLAS : TP_GEMM_CLBLAST;
    device->gemm = options->gemm == TP_GEMM_AUTO && !panels ? device->plain : options->gemm;
    return TP_OK;
}

const char *const tp_kernel_styles[] = {"auto", "cpu", "gpu", NULL};

/* Work-items of a group of the gpu style: as many as there should be, and as its tiles need. */
enum { MOST_ITEMS = 256, LEAST_ITEMS = 16 };

/* Settles the style, and with it the local size. A CPU without vectors is one that a driver for
 * GPUs emulates: it takes minutes to compile explicit ones. */
static enum tp_status choose_kernels(struct tp_device *device, enum tp_kernel_style asked)
{
    const bool cpu = strcmp(device->info.type, "cpu") == 0;
    size_t most;
    cl_uint width;
    TP_CL(clGetDeviceInfo(device->id, CL_DEVICE_MAX_WORK_GROUP_SIZE, sizeof(most), &most, NULL));
    TP_CL(clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof(width), &width,
                          NULL));
    device->style = asked;
    if (asked == TP_KERNELS_AUTO)
        device->style = (cpu && width > 1) || most < LEAST_ITEMS ? TP_KERNELS_CPU : TP_KERNELS_GPU;
    if (device->style == TP_KERNELS_CPU) {
        device->local = cpu || most < 64 ? 1 : 64;
        return TP_OK;
    }
    if (most < LEAST_ITEMS)
        return tp_fail(TP_ERR_USAGE,
                       "--kernels gpu: %s has %zu work-items in a group; expected %d or more",
                       device->info.name, most, LEAST_ITEMS);
    for (device->local = MOST_ITEMS; device->local > most;)
        device->local /= 2;
    return TP_OK;
}

static enum tp_status open_device(struct tp_device *device, const struct tp_device_options *options)
{
    struct handle handle;
    TP_TRY(find_handle(options->index, &handle));
    TP_TRY(describe(&handle, &device->info));
    device->id = handle.id;
    device->threads = options->threads;
    device->align = 4096;
    TP_TRY(choose_kernels(device, options->kernels));
    TP_TRY(open_queues(device, handle.platform_id));
    device->direct = !options->indirect && tp_memory_is_direct(device);
    TP_TRY(choose_gemm(device, options));
    if (device->plain == TP_GEMM_CLBLAST && !options->untuned)
        tp_tuning_use(device);
    return tp_program_build(device, options->head_width);
}

enum tp_status tp_device_open(const struct tp_device_options *options, struct tp_device **device)
{
    struct tp_device *opened = calloc(1, sizeof(*opened));
    if (opened == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a device");
    enum tp_status status = open_device(opened, options);
    if (status != TP_OK) {
        tp_device_close(opened);
        return status;
    }
    *device = opened;
    return TP_OK;
}

void tp_device_close(struct tp_device *device)
{
    if (device == NULL)
        return;
    tp_program_release(device);
    if (device->transfer != NULL)
        clReleaseCommandQueue(device->transfer);
    if (device->queue != NULL)
        clReleaseCommandQueue(device->queue);
    if (device->context != NULL)
        clReleaseContext(device->context);
    free(device->times);
    free(device);
}

const struct tp_device_info *tp_device_describe(const struct tp_device *device)
{
    return &device->info;
}

enum tp_gemm_provider tp_device_gemm(const struct tp_device *device)
{
    return device->gemm;
}

enum tp_gemm_provider tp_device_plain_gemm(const struct tp_device *device)
{
    return device->plain;
}

const char *tp_device_tuning(const struct tp_device *device)
{
    return device->tuning[0] != '\0' ? device->tuning : NULL;
}

enum tp_kernel_style tp_device_kernels(const struct tp_device *device)
{
    return device->style;
}

void tp_device_footprint(const struct tp_device *device, struct tp_footprint *footprint)
{
    *footprint = (struct tp_footprint){.align = device->align,
                                       .element_bytes = 4,
                                       .panel = tp_device_packs(device) ? TP_PANEL : 0};
}

enum tp_status tp_device_finish(struct tp_device *device)
{
    TP_CL(clFinish(device->queue));
    TP_CL(clFinish(device->transfer));
    return TP_OK;
}
