/* SPDX-License-Identifier: Apache-2.0 */
/* Check programs over OpenCL devices. */
#ifndef TP_TESTS_DEVICE_TEST_H
#define TP_TESTS_DEVICE_TEST_H

#include <check.h>

/* Status of a test that was skipped. */
enum { SKIPPED = 77 };

/* Index of the first device, as --device takes it; NULL, which is said, when there is none. */
const char *first_device(void);

/* Runs the suite in this process: a device's threads do not survive a fork. The program's status.
 */
int device_run(Suite *suite);

#endif
