/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "mpi_main.h"

#include <stdio.h>

#include <mpi.h>

#include "device/device.h"

#define WATCHDOG 600.0 /* seconds */

static int run_command(const struct tp_option *rows, int n_rows, void *settings, int argc,
                       char **argv, struct tp_comm *world,
                       enum tp_status (*run)(const void *settings, struct tp_comm *world))
{
    struct tp_options options;

    if (tp_options_parse(&options, rows, n_rows, settings, argc, argv) != TP_OK)
        return 2;
    enum tp_status status = tp_options_refuse_arguments(&options);
    if (options.help && tp_comm_rank(world) == 0)
        tp_options_help(rows, n_rows, stdout);
    else if (!options.help && status == TP_OK)
        status = run(settings, world);
    tp_options_fini(&options);
    return status == TP_OK ? 0 : status == TP_ERR_USAGE ? 2 : 1;
}

int mpi_main(const struct tp_option *rows, int n_rows, void *settings, int argc, char **argv,
             enum tp_status (*run)(const void *settings, struct tp_comm *world))
{
    struct tp_comm *world = NULL;
    int status = 1;

    tp_device_prepare(argv);
    MPI_Init(&argc, &argv);
    tp_comm_set_watchdog(WATCHDOG);
    if (tp_comm_world(&world) == TP_OK)
        status = run_command(rows, n_rows, settings, argc, argv, world, run);
    tp_comm_free(world);
    MPI_Finalize();
    return status;
}
