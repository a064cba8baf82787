#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man page lists the options that the program has.
set -u
srcdir=${srcdir:-$(dirname "$0")/..}
if sh "$srcdir/scripts/man.sh" ./terapipe >test_man.out && cmp test_man.out "$srcdir/doc/terapipe.1"; then
    rm -f test_man.out
    exit 0
fi
echo "doc/terapipe.1 is not what scripts/man.sh prints: run it again" >&2
exit 1
