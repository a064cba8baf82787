#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# From nothing to a small trained model in a few minutes: installs packages, builds in build/, trains
# on the C headers of this machine as bytes, over two ranks with token slices, and lets the model
# continue a prompt.
set -eu
cd "$(dirname "$0")/.."

sh scripts/build.sh
. scripts/mpi.sh
terapipe=build/terapipe
work=build/quickstart
text=$work/headers.txt
rm -rf "$work"
mkdir -p "$work"

echo
echo "== Text: the C headers in /usr/include"
find /usr/include -maxdepth 1 -name '*.h' -type f | LC_ALL=C sort | xargs cat | head -c 5000000 >"$text"
echo "$(wc -c <"$text") bytes in $text"

echo
echo "== Training, at most 80 seconds: two ranks, a layer each; sequences of 64 bytes in 4 slices"
set -x
mpirun -n 2 $terapipe train \
    --num-layers 2 --hidden-size 128 --num-attention-heads 4 --vocab-size 256 \
    --seq-length 64 --slices 4 --global-batch-size 8 --data-path "$text" \
    --train-iters 3000 --lr 3e-3 --min-lr 1e-4 --lr-warmup-iters 50 --adam-beta2 0.99 \
    --log-interval 200 --exit-duration-in-mins 1.3 --save "$work/run"
{ set +x; } 2>/dev/null

echo
echo "== What it has learned: the continuation of a prompt"
set -x
$terapipe generate --load "$work/run" --prompt '#include <std' --max-new-tokens 300 \
    --temperature 0.7
{ set +x; } 2>/dev/null

cat <<END

== Next
Train on a file of your own (any text; the longer, the better):

    . scripts/mpi.sh     # once in a shell: more ranks than cores, and root, are fine
    mpirun -n 2 $terapipe train --num-layers 4 --hidden-size 128 --num-attention-heads 4 \\
        --vocab-size 256 --seq-length 64 --slices 4 --global-batch-size 12 --data-path YOUR_TEXT \\
        --train-iters 5000 --lr 1e-3 --min-lr 1e-4 --lr-warmup-iters 100 --save my-run
    $terapipe generate --load my-run --prompt "YOUR PROMPT"

$terapipe doctor shows the devices of this machine; $terapipe train --help all options.
END
