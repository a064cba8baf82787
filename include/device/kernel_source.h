/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' source, made from the files of cl by the build. */
#ifndef TP_DEVICE_KERNEL_SOURCE_H
#define TP_DEVICE_KERNEL_SOURCE_H

#include <stddef.h>

#include "device/device.h"

/* All lines of a style's files, each ending in a newline, with a #line before each file so that a
 * build log names it. */
struct tp_kernel_source {
    const char *const *lines;
    size_t count;
};
extern const struct tp_kernel_source tp_kernel_sources[]; /* by style, but for auto */

#endif
