/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "device/device.h"
#include "device_test.h"

const char *first_device(void)
{
    static char index[sizeof((struct tp_device_info *)0)->index];
    struct tp_device_info *infos;
    int count;

    tp_device_limit_threads(2);
    if (tp_devices_list(&infos, &count) != TP_OK || count == 0) {
        fprintf(stderr, "no OpenCL device\n");
        return NULL;
    }
    snprintf(index, sizeof index, "%s", infos[0].index);
    free(infos);
    return index;
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
