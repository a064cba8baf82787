/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include <mpi.h>

#include "mpi_test.h"

struct tp_comm *mpi_world;

bool mpi_expect(bool holds, const char *what, const char *file, int line)
{
    if (!holds)
        fprintf(stderr, "%s:%d: rank %d: not so: %s\n", file, line, tp_comm_rank(mpi_world), what);
    return holds;
}

void mpi_assert(bool holds)
{
    int64_t failed = !holds;
    ck_assert_int_eq(tp_comm_allreduce_max(mpi_world, &failed, 1), TP_OK);
    ck_assert_int_eq(failed, 0);
}

int mpi_run(Suite *suite, int *argc, char ***argv)
{
    MPI_Init(argc, argv);
    if (tp_comm_world(&mpi_world) != TP_OK)
        MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    SRunner *runner = srunner_create(suite);
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, tp_comm_rank(mpi_world) == 0 ? CK_ENV : CK_SILENT);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    tp_comm_free(mpi_world);
    MPI_Finalize();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
