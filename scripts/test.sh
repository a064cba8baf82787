#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds in build/ and runs all tests there. The last line says
#     N passed, N failed, N skipped
# and the exit status is 0 only if none failed. Failed tests show their output.
set -eu
cd "$(dirname "$0")/.."

sh scripts/build.sh
cd build
make -s -j "$(nproc)" check TESTS= >check.log 2>&1 || {
    cat check.log
    echo "0 passed, 1 failed, 0 skipped"
    exit 1
}
status=0
make check >check.log 2>&1 || status=$?

count()
{
    sed -n "s/^# $1: *//p" check.log | head -n 1
}
passed=$(count PASS)
failed=$(($(count FAIL) + $(count ERROR) + $(count XPASS)))
skipped=$(($(count SKIP) + $(count XFAIL)))
grep -E '^(PASS|FAIL|SKIP|ERROR|XPASS|XFAIL): ' check.log || cat check.log
if [ "$status" -ne 0 ]; then
    [ ! -e test-suite.log ] || cat test-suite.log
    [ "$failed" -gt 0 ] || failed=1
fi
echo "${passed:-0} passed, $failed failed, $skipped skipped"
exit "$status"
