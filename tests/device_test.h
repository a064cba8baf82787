/* SPDX-License-Identifier: Apache-2.0 */
/* Check programs over OpenCL devices. */
#ifndef TP_TESTS_DEVICE_TEST_H
#define TP_TESTS_DEVICE_TEST_H

#include <check.h>

#include "device/device.h"

/* Status of a test that was skipped. */
enum { SKIPPED = 77 };

/* The device that TP_TEST_DEVICE selects, as --device does, or the first one; NULL, which is said,
 * when there is none. Ends the program when the selection is mistaken. */
const struct tp_device_info *test_device(void);

/* The style of kernels that is tested, and fixtures that choose it for a case. */
extern enum tp_kernel_style test_style;
void test_cpu_style(void);
void test_gpu_style(void);

/* Runs the suite in this process: a device's threads do not survive a fork. The program's status.
 */
int device_run(Suite *suite);

#endif
