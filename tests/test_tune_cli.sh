#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# terapipe tune as a user meets it, as far as that takes no compilation: each mistake ends it with
# one line that names the option, the promised status, and no file.
# Usage: test_tune_cli.sh, in the build folder.

export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}" # MPI and drivers keep memory
terapipe=$PWD/terapipe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
failures=0

# fails STATUS PATTERN ARGUMENT...: tune fails so, with one line, and leaves nothing.
fails()
{
    status=$1 pattern=$2
    shift 2
    "$terapipe" tune "$@" >out 2>err
    got=$?
    if [ $got -ne "$status" ] || [ "$(grep -c 'error: ' err)" -ne 1 ] ||
        ! grep 'error: ' err | grep -Eq -- "$pattern" || [ -e tuning.json ]; then
        echo "FAILED: tune $*: should end with $status and say $pattern; ended with $got:"
        cat out err
        failures=$((failures + 1))
    fi
}

fails 2 '--hidden-size 64.*--model' --model gpt2 --hidden-size 64
fails 2 '--seq-length' --seq-length 0
fails 2 '--budget' --budget 0
fails 1 'no-model' --model no-model
fails 1 'nowhere/tuning.json' -o nowhere/tuning.json
(
    OCL_ICD_VENDORS=$work/none
    export OCL_ICD_VENDORS
    fails 1 'OpenCL.*install' -o tuning.json
    exit $failures
) || failures=$((failures + 1))
if "$terapipe" doctor >/dev/null 2>&1; then
    fails 2 '--device voodoo' --device voodoo -o tuning.json
    fails 1 '--budget 0.1' --budget 0.1 -o tuning.json

    # Broken off while the first kernels are built, which takes long without a cache; 143: before it listens.
    mkdir cold
    XDG_CACHE_HOME=$work/cold POCL_CACHE_DIR=$work/cold "$terapipe" tune -o tuning.json >out 2>err &
    sleep 1
    kill -TERM $!
    wait $!
    got=$?
    if [ $got -ne 143 ] && ! { [ $got -eq 1 ] && grep -q 'error: interrupted before' err; }; then
        echo "FAILED: tune, broken off, should say so; ended with $got:"
        cat out err
        failures=$((failures + 1))
    fi
fi

echo "$failures failed"
[ $failures -eq 0 ]
