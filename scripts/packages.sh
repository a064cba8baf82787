#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what terapipe is built, tested and run with, on Debian and Ubuntu. Says what to run and
# stops when it may not install. On other systems it does nothing: configure names what is missing.
set -eu

packages="gcc make autoconf automake pkg-config
    libopenmpi-dev openmpi-bin
    ocl-icd-opencl-dev pocl-opencl-icd libclblast-dev libopenblas-dev
    libjansson-dev libhwloc-dev libxxhash-dev librandom123-dev check"

command -v dpkg-query >/dev/null && command -v apt-get >/dev/null || exit 0

missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q ' installed$' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
    sudo=sudo
else
    echo "Some packages are missing and installing them needs root. Run this, then start again:"
    echo "    sudo apt-get install --no-install-recommends$missing"
    exit 1
fi
echo "Installing$missing"
$sudo apt-get update -q
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -q -y --no-install-recommends $missing
