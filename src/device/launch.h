/* SPDX-License-Identifier: Apache-2.0 */
/* How this layer's launchers enqueue a kernel: LAUNCH(device, which, shares, VIEW(y), SIZE(count)).
 */
#ifndef TP_DEVICE_LAUNCH_H
#define TP_DEVICE_LAUNCH_H

#include "opencl.h"

/* One argument of a kernel; a view takes two of OpenCL's: buffer and offset. */
struct argument {
    enum { VIEW, INT, UINT, SIZE, FLOAT } type;
    union {
        struct tp_view view;
        cl_int integer;
        cl_uint natural;
        cl_ulong size;
        cl_float number;
    } as;
};

/* clang-format off */
#define VIEW(x) {VIEW, {.view = (x)}}
#define INT(x) {INT, {.integer = (x)}}
#define UINT(x) {UINT, {.natural = (x)}}
#define SIZE(x) {SIZE, {.size = (x)}}
#define FLOAT(x) {FLOAT, {.number = (float)(x)}}
/* clang-format on */

/* Enqueues a kernel over so many shares of its work: a work-item does each, those beyond, up to
 * whole groups, returning at once; in the style of GPUs a work-group does. */
enum tp_status tp_launch(struct tp_device *device, enum tp_kernel which, size_t shares,
                         const struct argument *arguments, size_t count);

#define LAUNCH(device, which, shares, ...)                                                         \
    tp_launch(device, which, shares, (const struct argument[]){__VA_ARGS__},                       \
              sizeof((const struct argument[]){__VA_ARGS__}) / sizeof(struct argument))

/* Shares of kernels that take blocks of a size. */
static inline size_t blocks(size_t count, size_t size)
{
    return (count + size - 1) / size;
}

#endif
