#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one MPI test with every number of ranks that its source asks for in a line
#     /* TEST np: 1 2 4 */
# Status 77 (skipped) only if every number of ranks was skipped. Works as root and with fewer cores
# than ranks, under Open MPI 4 and 5 and MPICH.
# Usage: run_mpi.sh tests/NAME.mpi [ARGUMENT...]

program=$1
shift
name=$(basename "$program" .mpi)
source=${srcdir:-$(dirname "$0")/..}/tests/$name.c
sizes=$(sed -n 's|^/\* TEST np: \([0-9 ]*\) \*/$|\1|p' "$source")
if [ -z "$sizes" ]; then
    echo "$source: expected a line like /* TEST np: 1 2 4 */" >&2
    exit 99
fi

MPIEXEC_TIMEOUT=${MPIEXEC_TIMEOUT:-300}            # seconds, all launchers
OMPI_MCA_rmaps_base_oversubscribe=1                # Open MPI 4
PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe # Open MPI 5
OMPI_MCA_plm_rsh_agent=/bin/false                  # no remote shell is needed or looked for
export MPIEXEC_TIMEOUT OMPI_MCA_rmaps_base_oversubscribe OMPI_MCA_plm_rsh_agent
export PRTE_MCA_rmaps_default_mapping_policy
if [ "$(id -u)" -eq 0 ]; then
    OMPI_ALLOW_RUN_AS_ROOT=1
    OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM
fi
# MPI libraries keep memory until the process ends; leaks are looked for in the unit tests.
ASAN_OPTIONS=detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}
export ASAN_OPTIONS

verdict=77
for size in $sizes; do
    echo "== $name, $size ranks"
    "${MPIEXEC:-mpiexec}" -n "$size" "$program" "$@"
    status=$?
    case $status in
    0) verdict=0 ;;
    77) echo "== $name, $size ranks: skipped" ;;
    *)
        echo "== $name, $size ranks: failed with status $status" >&2
        exit "$status"
        ;;
    esac
done
exit "$verdict"
