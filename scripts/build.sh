#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing (scripts/packages.sh) and builds in build/.
set -eu
cd "$(dirname "$0")/.."

sh scripts/packages.sh
[ -e configure ] || ./autogen.sh
mkdir -p build
cd build
[ -e config.status ] || ../configure --quiet
make -s -j "$(nproc)"
