#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds in build/ and runs all tests there. The last line says
#     N passed, N failed, N skipped
# and the exit status is 0 only if none failed. Failed tests show their output.
set -eu
cd "$(dirname "$0")/.."

sh scripts/build.sh
cd build
make -s -j "$(nproc)" check TESTS= # builds the tests

status=0
make check >check.log 2>&1 || status=$?
grep -E '^(PASS|SKIP|XFAIL|FAIL|XPASS|ERROR): ' check.log || cat check.log
[ "$status" -eq 0 ] || cat test-suite.log

count()
{
    grep -cE "^($1): " check.log || true
}
echo "$(count 'PASS|XFAIL') passed, $(count 'FAIL|XPASS|ERROR') failed, $(count SKIP) skipped"
exit "$status"
