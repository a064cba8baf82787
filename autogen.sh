#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes ./configure from a git checkout. Needs autoconf, automake and pkg-config.
set -e
cd "$(dirname "$0")"
command -v autoreconf >/dev/null || {
    echo "autogen.sh: autoreconf is missing: apt-get install autoconf automake pkg-config" >&2
    exit 1
}
autoreconf --install --force
