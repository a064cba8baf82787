/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "device_test.h"

enum tp_kernel_style test_style;

void test_cpu_style(void)
{
    test_style = TP_KERNELS_CPU;
}

void test_gpu_style(void)
{
    test_style = TP_KERNELS_GPU;
}

const struct tp_device_info *test_device(void)
{
    static struct tp_device_info info;
    struct tp_device_info *infos;
    int count, chosen;

    tp_device_limit_threads(2);
    if (tp_devices_list(&infos, &count) != TP_OK || count == 0) {
        fprintf(stderr, "no OpenCL device\n");
        return NULL;
    }
    if (tp_device_select(getenv("TP_TEST_DEVICE"), 0, infos, count, &chosen) != TP_OK)
        exit(EXIT_FAILURE);
    info = infos[chosen];
    free(infos);
    return &info;
}

int device_run(Suite *suite)
{
    SRunner *runner = srunner_create(suite);

    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_ENV);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
