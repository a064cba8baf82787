#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one MPI test with every number of ranks that its source asks for in a line
#     /* TEST np: 1 2 4 */
# Status 77 (skipped) only if every number of ranks was skipped. Works as root and with fewer cores
# than ranks.
# Usage: run_mpi.sh tests/NAME.mpi [ARGUMENT...]

program=$1
shift
srcdir=${srcdir:-$(dirname "$0")/..}
name=$(basename "$program" .mpi)
sizes=$(sed -n 's|^/\* TEST np: \([0-9 ]*\) \*/$|\1|p' "$srcdir/tests/$name.c")
if [ -z "$sizes" ]; then
    echo "$srcdir/tests/$name.c: expected a line like /* TEST np: 1 2 4 */" >&2
    exit 99
fi

. "$srcdir/scripts/mpi.sh"
export MPIEXEC_TIMEOUT="${MPIEXEC_TIMEOUT:-300}" # seconds
# MPI libraries keep memory until the process ends; leaks are looked for in the unit tests.
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}"

verdict=77
for size in $sizes; do
    echo "== $name, $size ranks"
    status=0
    "${MPIEXEC:-mpiexec}" -n "$size" "$program" "$@" || status=$?
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
