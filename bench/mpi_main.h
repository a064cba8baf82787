/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_BENCH_MPI_MAIN_H
#define TP_BENCH_MPI_MAIN_H

#include "base/options.h"
#include "base/status.h"
#include "comm/comm.h"

/* The main of a benchmark over all ranks, as report_main() is of one on one rank. A rank waits for
 * the others ten minutes at most: one that failed does not come. */
int mpi_main(const struct tp_option *rows, int n_rows, void *settings, int argc, char **argv,
             enum tp_status (*run)(const void *settings, struct tp_comm *world));

#endif
