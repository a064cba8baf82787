#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# One pipeline over the drivers of two makers: its losses are those of one driver alone, with the kernels
# of one style and, where each device has the style that suits it, of both. Skipped where only one platform has a device; Mesa's rusticl on the CPU is one to have.
# Usage: test_two_platforms.sh, in the build folder.

srcdir=${srcdir:-$(dirname "$0")/..}
. "$srcdir/scripts/mpi.sh"
export RUSTICL_ENABLE="${RUSTICL_ENABLE:-llvmpipe}"
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}" # MPI keeps memory
terapipe=$PWD/terapipe
text=$(cd "$srcdir" && pwd)/LICENSE
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99

"$terapipe" doctor >doctor 2>&1
one=$(sed -n 's/^device \([0-9]*:[0-9]*\) .*/\1/p' doctor | head -n 1)
two=$(sed -n 's/^device \([0-9]*:[0-9]*\) .*/\1/p' doctor | grep -v "^${one%:*}:" | head -n 1)
if [ -z "$two" ]; then
    echo "skipped: there are no two platforms with a device"
    exit 77
fi

# losses FILE KERNELS DEVICES: of 20 steps.
losses()
{
    "${MPIEXEC:-mpiexec}" -n 2 "$terapipe" train --num-layers 4 --hidden-size 64 --num-attention-heads 4 \
        --seq-length 64 --global-batch-size 2 --schedule terapipe --group-size 1 --slices 27,37 \
        --dropout 0.1 --data-path "$text" --train-iters 20 --metrics metrics --kernels "$2" \
        --device "$3" >log 2>&1 || {
        cat log
        exit 1
    }
    sed 's/.*"loss": \([^,]*\),.*/\1/' metrics >"$1"
    [ "$(wc -l <"$1")" -eq 20 ] || exit 1
}

losses alone auto "0=$one,1=$one"
for kernels in auto gpu; do
    losses both "$kernels" "0=$one,1=$two"
    paste alone both | awk -v kernels="$kernels" '
        { off = ($1 - $2) / $1; if (off < 0) off = -off; if (off > most) most = off }
        END {
            printf "kernels %s: losses at most %.1e apart\n", kernels, most
            exit !(most <= 1e-5)
        }' || exit 1
done
