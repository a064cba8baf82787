/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/file.h"
#include "base/log.h"
#include "device/kernel_source.h"
#include "opencl.h"

const char *const tp_kernel_names[TP_KERNEL_COUNT] = {
    [TP_KERNEL_LAYER_NORM_FORWARD] = "layer_norm_forward",
    [TP_KERNEL_LAYER_NORM_AGAIN] = "layer_norm_again",
    [TP_KERNEL_LAYER_NORM_BACKWARD] = "layer_norm_backward",
    [TP_KERNEL_LAYER_NORM_BACKWARD_WEIGHT] = "layer_norm_backward_weight",
    [TP_KERNEL_BIAS_RESIDUAL] = "bias_residual",
    [TP_KERNEL_BIAS_GELU_FORWARD] = "bias_gelu_forward",
    [TP_KERNEL_GELU_BACKWARD] = "gelu_backward",
    [TP_KERNEL_BIAS_BACKWARD] = "bias_backward",
    [TP_KERNEL_QKV_SPLIT] = "qkv_split",
    [TP_KERNEL_QKV_MERGE] = "qkv_merge",
    [TP_KERNEL_ATTENTION_FORWARD] = "attention_forward",
    [TP_KERNEL_ATTENTION_BACKWARD] = "attention_backward",
    [TP_KERNEL_EMBEDDING_FORWARD] = "embedding_forward",
    [TP_KERNEL_EMBEDDING_BACKWARD] = "embedding_backward",
    [TP_KERNEL_LOGITS_MAX] = "logits_max",
    [TP_KERNEL_LOGITS_EXP] = "logits_exp",
    [TP_KERNEL_LOGITS_GRADIENT] = "logits_gradient",
    [TP_KERNEL_DROPOUT] = "dropout",
    [TP_KERNEL_FILL] = "fill",
    [TP_KERNEL_ADD] = "add",
    [TP_KERNEL_SUM_SQUARES] = "sum_squares",
    [TP_KERNEL_ADAMW] = "adamw",
    [TP_KERNEL_PACKED_GEMM] = "packed_gemm",
    [TP_KERNEL_PACKED_GEMM_TRANSPOSED] = "packed_gemm_transposed",
    [TP_KERNEL_PACKED_WRITE] = "packed_write",
    [TP_KERNEL_PACKED_WRITE_TRANSPOSED] = "packed_write_transposed",
};

/* PoCL keeps what it compiles by itself, and asked for a program's binary it compiles every kernel
 * once more, for groups of any size: 8 to 17 seconds that save nothing. */
static bool keeps_its_own(const struct tp_device *device)
{
    return strcmp(device->info.platform, "Portable Computing Language") == 0;
}

/* Where the built program is kept: a file named for all that it depends on. NULL when there is no
 * place for it or no need. */
static char *cache_path(const struct tp_device *device, const char *options)
{
    if (keeps_its_own(device))
        return NULL;
    XXH64_state_t *hash = XXH64_createState();
    if (hash == NULL)
        return NULL;
    XXH64_reset(hash, 0);
    const struct tp_kernel_source *source = &tp_kernel_sources[device->style];
    char text[32];
    XXH64_update(hash, options, strlen(options) + 1);
    for (size_t i = 0; i < source->count; i++)
        XXH64_update(hash, source->lines[i], strlen(source->lines[i]));
    snprintf(text, sizeof(text), "%016llx", (unsigned long long)XXH64_digest(hash));
    XXH64_freeState(hash);
    return tp_cache_path(&device->info, text, "bin");
}

/* A program from the cache; NULL when it is not there or the driver does not take it. */
static cl_program load_cached(struct tp_device *device, const char *path, const char *options)
{
    char *binary;
    size_t size;
    if (!tp_file_exists(path) || tp_file_read(path, (size_t)1 << 30, &binary, &size) != TP_OK)
        return NULL;
    cl_int code, loaded;
    const unsigned char *bytes = (const unsigned char *)binary;
    cl_program program =
        clCreateProgramWithBinary(device->context, 1, &device->id, &size, &bytes, &loaded, &code);
    free(binary);
    if (code != CL_SUCCESS || loaded != CL_SUCCESS ||
        clBuildProgram(program, 1, &device->id, options, NULL, NULL) != CL_SUCCESS) {
        if (program != NULL)
            clReleaseProgram(program);
        return NULL;
    }
    return program;
}

/* Keeps a built program. That it cannot be kept costs time at the next start and nothing else. */
static void save_cached(cl_program program, const char *path)
{
    size_t size = 0;
    if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(size), &size, NULL) !=
            CL_SUCCESS ||
        size == 0)
        return;
    unsigned char *binary = malloc(size);
    if (binary != NULL &&
        clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binary), &binary, NULL) ==
            CL_SUCCESS &&
        (tp_file_make_parent(path) != TP_OK || tp_file_write(path, binary, size) != TP_OK))
        tp_log(TP_LOG_DEBUG, "%s: built kernels are not kept", path);
    free(binary);
}

static enum tp_status report_build(struct tp_device *device, cl_program program, cl_int code)
{
    size_t size = 0;
    clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
    char *text = calloc(1, size + 1);
    if (text != NULL)
        clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, size, text, NULL);
    enum tp_status status = tp_fail(TP_ERR_DEVICE, "%s cannot build the kernels (%d):\n%s",
                                    device->info.name, code, text ? text : "");
    free(text);
    return status;
}

static enum tp_status build_source(struct tp_device *device, const char *options, cl_program *built)
{
    cl_int code;
    const struct tp_kernel_source *source = &tp_kernel_sources[device->style];
    /* The array of lines is const; OpenCL's parameter is not const all the way down. */
    const char **lines = (const char **)(size_t)source->lines;
    cl_program program =
        clCreateProgramWithSource(device->context, (cl_uint)source->count, lines, NULL, &code);
    TP_CL(code);
    code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
    if (code != CL_SUCCESS) {
        enum tp_status status = report_build(device, program, code);
        clReleaseProgram(program);
        return status;
    }
    *built = program;
    return TP_OK;
}

enum tp_status tp_program_build(struct tp_device *device, int head_width)
{
    char options[160];
    cl_uint vector_width;
    TP_CL(clGetDeviceInfo(device->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, sizeof(vector_width),
                          &vector_width, NULL));
    snprintf(options, sizeof(options),
             "-cl-std=CL1.2 -cl-denorms-are-zero -DHEAD_WIDTH=%d -DHEAD_STRIDE=%d "
             "-DVECTOR_WIDTH=%u -DGROUP=%zu",
             head_width, (head_width + TP_LANES - 1) / TP_LANES * TP_LANES, vector_width,
             device->local);
    char *path = cache_path(device, options);
    if (path != NULL)
        device->program = load_cached(device, path, options);
    enum tp_status status = TP_OK;
    if (device->program == NULL) {
        status = build_source(device, options, &device->program);
        if (status == TP_OK && path != NULL)
            save_cached(device->program, path);
    }
    free(path);
    TP_TRY(status);
    const int kernels = device->style == TP_KERNELS_CPU ? TP_KERNEL_COUNT : TP_KERNEL_BOTH_STYLES;
    for (int i = 0; i < kernels; i++) {
        cl_int code;
        device->kernels[i] = clCreateKernel(device->program, tp_kernel_names[i], &code);
        TP_CL(code);
    }
    return TP_OK;
}

void tp_program_release(struct tp_device *device)
{
    for (int i = 0; i < TP_KERNEL_COUNT; i++)
        if (device->kernels[i] != NULL)
            clReleaseKernel(device->kernels[i]);
    if (device->program != NULL)
        clReleaseProgram(device->program);
}
