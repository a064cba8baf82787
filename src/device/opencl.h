/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this layer share: an open device, and OpenCL's errors. */
#ifndef TP_DEVICE_OPENCL_H
#define TP_DEVICE_OPENCL_H

#include <CL/cl.h>

#include "device/device.h"
#include "device/gemm.h"
#include "device/memory.h"
#include "device/tuning.h"

/* The kernels, by the names they have in cl/. The last ones are for CPUs alone. */
enum tp_kernel {
    TP_KERNEL_LAYER_NORM_FORWARD,
    TP_KERNEL_LAYER_NORM_AGAIN,
    TP_KERNEL_LAYER_NORM_BACKWARD,
    TP_KERNEL_LAYER_NORM_BACKWARD_WEIGHT,
    TP_KERNEL_BIAS_RESIDUAL,
    TP_KERNEL_BIAS_GELU_FORWARD,
    TP_KERNEL_GELU_BACKWARD,
    TP_KERNEL_BIAS_BACKWARD,
    TP_KERNEL_QKV_SPLIT,
    TP_KERNEL_QKV_MERGE,
    TP_KERNEL_ATTENTION_FORWARD,
    TP_KERNEL_ATTENTION_BACKWARD,
    TP_KERNEL_EMBEDDING_FORWARD,
    TP_KERNEL_EMBEDDING_BACKWARD,
    TP_KERNEL_LOGITS_MAX,
    TP_KERNEL_LOGITS_EXP,
    TP_KERNEL_LOGITS_GRADIENT,
    TP_KERNEL_DROPOUT,
    TP_KERNEL_FILL,
    TP_KERNEL_ADD,
    TP_KERNEL_SUM_SQUARES,
    TP_KERNEL_ADAMW,
    TP_KERNEL_BOTH_STYLES,
    TP_KERNEL_PACKED_GEMM = TP_KERNEL_BOTH_STYLES,
    TP_KERNEL_PACKED_GEMM_TRANSPOSED,
    TP_KERNEL_PACKED_WRITE,
    TP_KERNEL_PACKED_WRITE_TRANSPOSED,
    TP_KERNEL_COUNT
};

extern const char *const tp_kernel_names[TP_KERNEL_COUNT];

struct tp_device {
    struct tp_device_info info;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;    /* computing, in order */
    cl_command_queue transfer; /* the host's turns on memory, beside it */
    cl_program program;
    cl_kernel kernels[TP_KERNEL_COUNT];
    enum tp_kernel_style style; /* never auto */
    size_t local; /* work-items of a work-group, the same for every launch: drivers that specialise
                     a kernel for its local size then compile it once */
    bool direct;  /* buffers are host memory that host and device both use as it is */
    size_t align; /* of regions, bytes */
    enum tp_gemm_provider gemm;  /* what was asked for; auto only where there are two */
    enum tp_gemm_provider plain; /* without panels: cblas or clblast */
    int threads;                 /* of host BLAS */
    struct tp_gemm_times *times; /* [n_times] what auto goes by */
    int n_times;
    char tuning[TP_TUNING_TEXT]; /* CLBlast's parameters when they are from a file, else "" */
};

struct tp_buffer {
    struct tp_buffer *next; /* in the arena */
    cl_mem memory;
    void *host; /* mapped pages behind it when the device is direct, else NULL */
    size_t bytes;
};

/* Do products go by panels, some of them at least? */
static inline bool tp_device_packs(const struct tp_device *device)
{
    return device->gemm == TP_GEMM_PACKED || device->gemm == TP_GEMM_AUTO;
}

/* The host address of a view of a direct device. */
static inline float *tp_view_host(struct tp_view view)
{
    return (float *)view.buffer->host + view.offset;
}

/* Reports a failed call: what, the code's name, the place. Never TP_OK. */
enum tp_status tp_cl_fail(const char *call, int code, const char *file, int line);

/* Returns from the calling function when an OpenCL (or CLBlast) call fails. Only while nothing is
 * held. */
#define TP_CL(call)                                                                                \
    do {                                                                                           \
        int tp_cl_code = (int)(call);                                                              \
        if (tp_cl_code != CL_SUCCESS)                                                              \
            return tp_cl_fail(#call, tp_cl_code, __FILE__, __LINE__);                              \
    } while (0)

/* A file of the cache folder for what depends on a device, its driver and a text; its name ends in
 * that. malloc'd; NULL when there is no place for it. */
char *tp_cache_path(const struct tp_device_info *device, const char *text, const char *ending);

/* Gives CLBlast the parameters that have been found for the device, if any. */
void tp_tuning_use(struct tp_device *device);

/* Builds the program for a head width and makes its kernels; from the cache when it can. */
enum tp_status tp_program_build(struct tp_device *device, int head_width);
void tp_program_release(struct tp_device *device);

/* Can the device's queue run host functions on host memory? Runs one over buffers in an order that
 * is not that of their creation, and looks at what it wrote. */
bool tp_memory_is_direct(struct tp_device *device);

/* The host's BLAS inside the queue of a direct device. Is it there? Sets its threads when so. */
bool tp_host_blas_init(const struct tp_device *device, int threads);
/* A product by it: a command of the queue. */
enum tp_status tp_host_blas_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                                 struct tp_view b, const struct tp_gemm *shape);

/* A function that computes a product as tp_gemm() does, and tp_gemm_check() of it. */
typedef enum tp_status tp_product(struct tp_device *device, struct tp_view c, struct tp_view a,
                                  struct tp_view b, const struct tp_gemm *shape);
enum tp_status tp_product_check(struct tp_device *device, tp_product *product, const char *name,
                                const struct tp_gemm *shape, double *error);

/* Elements from one row of a product's operand to the next. */
static inline size_t tp_gemm_stride_a(const struct tp_gemm *shape)
{
    return shape->a_transposed ? shape->m : shape->k;
}
static inline size_t tp_gemm_stride_b(const struct tp_gemm *shape)
{
    return shape->b_transposed ? shape->k : shape->n;
}

#endif
