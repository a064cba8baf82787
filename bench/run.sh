#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `make bench` runs, from the build folder: a few minutes on two cores. Each program takes options
# of its own (--help) for other sizes. Reports go to bench/reports as JSON, for --compare.
set -e
here=$(dirname "$0")
. "$here/../scripts/mpi.sh"
mpiexec=${MPIEXEC:-mpiexec}
mkdir -p bench/reports

bench/bench_plan --json bench/reports/plan.json
echo
bench/bench_search --json bench/reports/search.json
echo
sh "$here/paper.sh"
echo
bench/bench_gemm --seconds 0.05 --rounds 3 --json bench/reports/gemm.json
echo
bench/bench_kernels --json bench/reports/kernels.json
echo
bench/bench_cell --rounds 3 --lengths 32 128 512 --json bench/reports/cell.json
echo
"$mpiexec" -n 2 bench/bench_p2p --json bench/reports/p2p.json
echo
"$mpiexec" -n 1 bench/bench_step --slices gpipe 2 4 8 --json bench/reports/step-1.json
echo
"$mpiexec" -n 2 bench/bench_step --slices gpipe 2 4 8 seq1f1b:8 --json bench/reports/step-2.json
