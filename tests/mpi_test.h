/* SPDX-License-Identifier: Apache-2.0 */
/* A Check program over MPI. A failed assertion leaves a test on one rank only, so ranks agree on
 * what they found before they assert it. */
#ifndef TP_TESTS_MPI_TEST_H
#define TP_TESTS_MPI_TEST_H

#include <stdbool.h>

#include <check.h>

#include "comm/comm.h"

/* All ranks. */
extern struct tp_comm *mpi_world;

/* Says on stderr what is not so. */
bool mpi_expect(bool holds, const char *what, const char *file, int line);
#define EXPECT(what) mpi_expect((what), #what, __FILE__, __LINE__)

/* Did all ranks expect right? Collective. */
void mpi_assert(bool holds);

/* Starts MPI, runs the suite on all ranks, ends MPI. The program's status. */
int mpi_run(Suite *suite, int *argc, char ***argv);

#endif
