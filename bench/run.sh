#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make bench` runs, from the build folder: a few minutes on two cores. Each program takes options
# of its own (--help) for other sizes.
set -e
. "$(dirname "$0")/../scripts/mpi.sh"
mpiexec=${MPIEXEC:-mpiexec}

bench/bench_plan
bench/bench_search
echo
sh "$(dirname "$0")/paper.sh"
echo
bench/bench_gemm --hidden-size 768 --seconds 0.05 --rounds 3
echo
"$mpiexec" -n 1 bench/bench_step
echo
"$mpiexec" -n 2 bench/bench_step
