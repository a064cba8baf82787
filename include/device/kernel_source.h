/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels' source, made from the files of cl by the build. */
#ifndef TP_DEVICE_KERNEL_SOURCE_H
#define TP_DEVICE_KERNEL_SOURCE_H

#include <stddef.h>

/* All lines of all files, each ending in a newline, with a #line before each file so that a build
 * log names it. */
extern const char *const tp_kernel_source[];
extern const size_t tp_kernel_source_lines;

#endif
