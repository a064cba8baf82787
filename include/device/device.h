/* SPDX-License-Identifier: Apache-2.0 */
/* OpenCL devices: which there are, which one a rank gets, and an open one with its queue and
 * kernels. No other layer sees OpenCL. Everything is enqueued on one in-order queue and not waited
 * for, unless a comment says otherwise. */
#ifndef TP_DEVICE_DEVICE_H
#define TP_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/footprint.h"
#include "base/status.h"

struct tp_device;

enum tp_gemm_provider { TP_GEMM_AUTO, TP_GEMM_CLBLAST, TP_GEMM_CBLAS, TP_GEMM_PACKED };
extern const char *const tp_gemm_choices[]; /* for options: "auto", ...; NULL-terminated */

/* Kernels come in two styles: a work-item takes a row, with explicit vectors, or a work-group does,
 * with local memory. Both compute the same, each in its own order of sums. */
enum tp_kernel_style { TP_KERNELS_AUTO, TP_KERNELS_CPU, TP_KERNELS_GPU };
extern const char *const tp_kernel_styles[]; /* for options, as above */

struct tp_device_info {
    char index[16]; /* "platform:device", as --device takes it */
    char platform[128], name[128], version[128], driver[64];
    const char *type; /* "cpu", "gpu" or "accelerator" */
    int compute_units;
    size_t memory;       /* bytes */
    size_t max_buffer;   /* bytes of one buffer */
    size_t max_group;    /* work-items of a work-group */
    size_t local_memory; /* bytes of a work-group */
    bool native_kernels; /* runs host functions in its queue: host BLAS can be used */
    bool unified;        /* shares the host's memory */
};

/* Restarts the program, with argv, when the host's BLAS has to know from the environment, which it
 * reads when it is loaded: that its threads shall sleep when they have nothing to do (they wait
 * busily for 20 ms else, on cores that kernels want); and what this processor has, when it was
 * built before it and fell back to instructions of long ago (a Prescott's: 4 times slower). A
 * program calls this first, before MPI. Returns when there is nothing to mend. Local. */
void tp_device_prepare(char **argv);

/* Limits what a CPU device uses to that many threads, for kernels and host BLAS. Sets the
 * environment of the process, so it has to come before the first other call of this layer. Local.
 */
void tp_device_limit_threads(int threads);

/* All devices of all platforms; *infos is malloc'd and the caller's. No platform at all is TP_OK
 * with *count 0. Local. TP_ERR_DEVICE, TP_ERR_MEMORY. */
enum tp_status tp_devices_list(struct tp_device_info **infos, int *count);

/* Which of them does rank node_rank of its node get? select is NULL (round robin), an index "0:0",
 * part of a name, a type, or a list per rank of the node "0=cpu,1=gpu". Local. TP_ERR_USAGE names
 * --device, the text and what there is; TP_ERR_DEVICE when there is no device at all. */
enum tp_status tp_device_select(const char *select, int node_rank,
                                const struct tp_device_info *infos, int count, int *index);

struct tp_device_options {
    const char *index; /* "platform:device" */
    int threads;       /* for host BLAS */
    int head_width;    /* D the kernels are built for */
    enum tp_gemm_provider gemm;
    bool untuned;                 /* CLBlast with its own parameters, whatever has been tuned */
    enum tp_kernel_style kernels; /* auto: cpu on CPUs that have vectors */
    bool
        indirect; /* treat a device that shares the host's memory as one that does not; for tests */
};

/* Opens a device and builds the kernels (from the cache, when the same were built before). Local.
 * TP_ERR_DEVICE with the build log, TP_ERR_MEMORY. TP_ERR_USAGE when the gemm provider is not
 * there or the device cannot run kernels of that style. */
enum tp_status tp_device_open(const struct tp_device_options *options, struct tp_device **device);
void tp_device_close(struct tp_device *device);

const struct tp_device_info *tp_device_describe(const struct tp_device *device);
/* What multiplies: auto where that depends on the product; and what does without panels, never auto
 * nor packed. Local. */
enum tp_gemm_provider tp_device_gemm(const struct tp_device *device);
enum tp_gemm_provider tp_device_plain_gemm(const struct tp_device *device);
/* The parameters that CLBlast has from a file (device/tuning.h), as text; NULL: its own. */
const char *tp_device_tuning(const struct tp_device *device);
enum tp_kernel_style tp_device_kernels(const struct tp_device *device); /* never auto */
void tp_device_footprint(const struct tp_device *device, struct tp_footprint *footprint);

/* Versions and build facts for doctor: OpenCL, CLBlast and CBLAS in one line. Local. */
const char *tp_device_libraries(void);

/* Waits until everything enqueued is done. Sleeps. TP_ERR_DEVICE. */
enum tp_status tp_device_finish(struct tp_device *device);

#endif
