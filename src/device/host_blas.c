/* SPDX-License-Identifier: Apache-2.0 */
/* The host's BLAS as commands of an OpenCL queue. */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif
#ifdef HAVE_CBLAS
#include <cblas.h>
#endif

#include "opencl.h"

#ifdef HAVE_CBLAS

/* A call as the queue copies it. Addresses and not memory objects: PoCL 3 hands over wrong ones for
 * those. */
struct call {
    float *c;
    const float *a, *b;
    struct tp_gemm shape;
};

static void CL_CALLBACK call_cblas(void *arguments)
{
    const struct call *call = arguments;
    const struct tp_gemm *shape = &call->shape;
    cblas_sgemm(CblasRowMajor, shape->a_transposed ? CblasTrans : CblasNoTrans,
                shape->b_transposed ? CblasTrans : CblasNoTrans, (int)shape->m, (int)shape->n,
                (int)shape->k, 1.0f, call->a, (int)tp_gemm_stride_a(shape), call->b,
                (int)tp_gemm_stride_b(shape), shape->beta, call->c, (int)shape->n);
}

enum tp_status tp_host_blas_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                                 struct tp_view b, const struct tp_gemm *shape)
{
    struct call call = {tp_view_host(c), tp_view_host(a), tp_view_host(b), *shape};
    TP_CL(clEnqueueNativeKernel(device->queue, call_cblas, &call, sizeof(call), 0, NULL, NULL, 0,
                                NULL, NULL));
    return TP_OK;
}

bool tp_host_blas_init(const struct tp_device *device, int threads)
{
    if (!device->direct)
        return false;
#ifdef HAVE_OPENBLAS_SET_NUM_THREADS
    openblas_set_num_threads(threads);
#else
    (void)threads;
#endif
    return true;
}

#else

enum tp_status tp_host_blas_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                                 struct tp_view b, const struct tp_gemm *shape)
{
    (void)c, (void)a, (void)b, (void)shape;
    return tp_fail(TP_ERR_DEVICE, "%s: built without a host BLAS", device->info.name);
}

bool tp_host_blas_init(const struct tp_device *device, int threads)
{
    (void)device, (void)threads;
    return false;
}

#endif

#if defined(HAVE_OPENBLAS_SET_NUM_THREADS) && defined(__x86_64__) && defined(__linux__)

/* The kernels that OpenBLAS should have taken, when it took those of a processor without AVX
 * although this one has more; NULL when its choice is good. */
static const char *better_kernels(void)
{
    static const char *const old[] = {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem"};
    const char *chosen = openblas_get_corename();
    for (size_t i = 0; i < sizeof(old) / sizeof(old[0]); i++) {
        if (strcmp(chosen, old[i]) != 0)
            continue;
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
            return "SkylakeX";
        return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? "Haswell" : NULL;
    }
    return NULL;
}

/* Gives a variable that is not set a value, unless that is NULL. Did it? */
static bool set(const char *variable, const char *value)
{
    return value != NULL && getenv(variable) == NULL && setenv(variable, value, 0) == 0;
}

/* The process runs another file than was asked for when the dynamic loader was started as a
 * program, as bundles with a C library of their own do: it would take our first argument for the
 * program. */
static bool starts_by_loader(void)
{
    const char *asked = (const char *)getauxval(AT_EXECFN);
    struct stat wanted, runs;

    return asked != NULL && stat(asked, &wanted) == 0 && stat("/proc/self/exe", &runs) == 0 &&
           (wanted.st_dev != runs.st_dev || wanted.st_ino != runs.st_ino);
}

/* By its own path, after which the process is named; that fails where the file is gone. Returns
 * when both do, or would start something else: then all goes on, slowly. */
static void restart(char **argv)
{
    char path[PATH_MAX];
    const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);

    if (starts_by_loader())
        return;
    if (length > 0) {
        path[length] = '\0';
        execv(path, argv);
    }
    execv("/proc/self/exe", argv);
}

void tp_device_prepare(char **argv)
{
    bool changed = set("OPENBLAS_CORETYPE", better_kernels());
    changed = set("OPENBLAS_THREAD_TIMEOUT", "4") || changed; /* 2^4 cycles */
    if (changed)
        restart(argv);
}

#else

void tp_device_prepare(char **argv)
{
    (void)argv;
}

#endif

const char *tp_device_libraries(void)
{
    static char text[256];
#if defined(HAVE_OPENBLAS_SET_NUM_THREADS)
    const char *config = openblas_get_config(), *core = openblas_get_corename();
#elif defined(HAVE_CBLAS)
    const char *config = "a CBLAS", *core = "its own";
#else
    const char *config = "no host BLAS", *core = "no";
#endif
    snprintf(text, sizeof(text), "OpenCL by the ICD loader; CLBlast; %s, %s kernels", config, core);
    return text;
}
