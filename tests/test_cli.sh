#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The program as a user meets it: what it prints when all is well, and that each mistake ends it with
# one line that names the file or the option, the promised status, and nothing half-written.
# Usage: test_cli.sh, in the build folder.

srcdir=${srcdir:-$(dirname "$0")/..}
. "$srcdir/scripts/mpi.sh"
export ASAN_OPTIONS="detect_leaks=0${ASAN_OPTIONS:+:$ASAN_OPTIONS}" # MPI keeps memory
mpiexec=${MPIEXEC:-mpiexec}
terapipe=$PWD/terapipe
reference=$(cd "$srcdir/tests/data/gpt2-tiny" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
failures=0

"$terapipe" doctor >doctor.out 2>doctor.err || {
    cat doctor.out doctor.err
    exit 77 # no device
}

complain()
{
    echo "FAILED: $*"
    sed 's/^/    /' err
    failures=$((failures + 1))
}

# works PATTERN ARGUMENT...: the command succeeds and a line of its output matches.
works()
{
    pattern=$1
    shift
    if ! "$@" >out 2>err; then
        complain "$* should work"
    elif ! grep -Eq -- "$pattern" out; then
        complain "$* should print $pattern"
        cat out
    fi
}

# judge STATUS PATTERN GOT COMMAND...: one error line, which matches, and the status.
judge()
{
    status=$1 pattern=$2 got=$3
    shift 3
    lines=$(grep -c '^terapipe: .*error: ' err)
    if [ "$got" -ne "$status" ]; then
        complain "$* should end with status $status, not $got"
    elif [ "$lines" -ne 1 ]; then
        complain "$* should print one error line, not $lines"
    elif ! grep '^terapipe: .*error: ' err | grep -Eq -- "$pattern"; then
        complain "$* should say $pattern"
    elif [ -e run/checkpoints ] && [ -n "$(ls -A run/checkpoints)" ]; then
        complain "$* should leave no checkpoint"
    fi
    rm -rf run
}

# fails STATUS PATTERN ARGUMENT...: terapipe fails so, alone and under mpiexec.
fails()
{
    status=$1 pattern=$2
    shift 2
    "$terapipe" "$@" >out 2>err
    judge "$status" "$pattern" $? "terapipe $*"
    "$mpiexec" -n 2 "$terapipe" "$@" >out 2>err
    judge "$status" "$pattern" $? "mpiexec -n 2 terapipe $*"
}

train="train --load $reference --data-path $reference/tokens.bin --train-iters 3 --save run"

# --- what works ----------------------------------------------------------------------------------

"$terapipe" >out 2>err
[ $? -eq 2 ] && grep -q '^ *train ' out || complain "terapipe alone should list its commands"
works '^terapipe [0-9]' "$terapipe" --version
works '^ *generate ' "$terapipe" --help
for command in train eval generate profile doctor; do
    works '^ *--help' "$terapipe" $command --help
done
works '^ready to train$' cat doctor.out
loader=/lib64/ld-linux-x86-64.so.2 # as bundles with a C library of their own start programs
[ ! -x $loader ] || works '^ready to train$' $loader "$terapipe" doctor
for style in cpu gpu; do
    works "^rank 0 +kernels as for a $style; gemm by" "$terapipe" doctor --kernels $style
done

head -c 20000 "$srcdir/LICENSE" >text 2>/dev/null || head -c 20000 "$0" >text
number='[0-9]+\.[0-9]+'
works "^step     4/4 \| loss $number \| norm $number \| lr [0-9]\.[0-9]{2}e-[0-9]{2} \| $number ms \| [0-9]+ tok/s.?$" \
    "$mpiexec" -n 2 "$terapipe" train --num-layers 2 --hidden-size 32 --num-attention-heads 2 \
    --seq-length 32 --global-batch-size 3 --data-path text --val-data-path text --eval-iters 2 \
    --train-iters 4 --slices 7,9,16 --save ok --metrics all.jsonl
for file in config.json options.json plan.json gemm.json metrics.jsonl \
    checkpoints/step-00000004/model.safetensors; do
    [ -s ok/$file ] || complain "ok/$file should be there"
done
grep -Eq "^step     4/4 \\| validation loss $number" out || complain 'there should be a validation'
[ "$(grep -c '"loss": [0-9]' all.jsonl)" -eq 4 ] || complain 'all.jsonl should have four steps'
works "^loss $number \| perplexity $number \| [0-9]+ samples.?$" \
    "$mpiexec" -n 2 "$terapipe" eval --load ok --data-path text --global-batch-size 4
works '^Once' "$mpiexec" -n 2 "$terapipe" generate --load ok --prompt Once --max-new-tokens 5
"$terapipe" generate --load ok --prompt ab --max-new-tokens 50 --temperature 0 >one 2>err
"$mpiexec" -n 2 "$terapipe" generate --load ok --prompt ab --max-new-tokens 50 --temperature 0 \
    >two 2>err
cmp -s one two || complain "generate should not depend on the number of stages"
"$mpiexec" -n 2 "$terapipe" generate --load ok --prompt ab --max-new-tokens 50 --temperature 0 \
    --op 2 >two 2>err
cmp -s one two || complain "generate should not depend on the number of op ranks"
[ "$(wc -c <one)" -eq 53 ] || complain "generate should print 2 + 50 bytes and a newline"
[ "$(grep -c 'note: the text will be longer' err)" -eq 1 ] || complain "generate should say once that"

tiny="--num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 64"
works '^wrote profile.json$' "$terapipe" profile $tiny --budget 0.5
works '^wrote two.json$' "$mpiexec" -n 2 "$terapipe" profile $tiny --budget 0.5 -o two.json
grep -q '"format": "terapipe-profile"' profile.json && grep -q '"link"' two.json ||
    complain "profile should write profiles"

# Replicas, op ranks and the rest; and what is measured for them.
short="train $tiny --global-batch-size 4 --data-path text --train-iters 1"
works '^check: loss .* apart at most' "$mpiexec" -n 2 "$terapipe" $short --op 2 --dropout 0.1 \
    --schedule seq1f1b --slices 3 --group-size 1 --accumulate 2 --recompute cell --check
works '^step     1/1' "$mpiexec" -n 4 "$terapipe" $short --op 2 --data 2 --zero --budget 0.5 --save both \
    --trace both.json
[ "$(grep -c '"name": "forward"' both.json)" -ge 4 ] && [ "$(grep -c '"name": "sum"' both.json)" -ge 4 ] &&
    [ "$(grep -c '"name": "update"' both.json)" -eq 4 ] ||
    complain "a trace should show what all ranks did"
grep -q '"op": 2' both/profile.json && grep -q '"allreduce"' both/profile.json &&
    grep -q '"data": 2' both/plan.json || complain "a run should have a plan for op ranks and replicas"
works '^step     1/1' "$mpiexec" -n 4 "$terapipe" $short --plan both/plan.json
"$mpiexec" -n 4 "$terapipe" $short --plan both/plan.json --op 1 >out 2>err
judge 2 '--tensor-model-parallel-size 1: contradicts --plan both/plan.json, whose op is 2' $? \
    "another degree than the plan's"
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --accumulate 2 --budget 0.5 --save flights
tr -d ' \n' <flights/plan.json | grep -q '"flights":\[[0-9]*,[0-9]*\]' ||
    complain "a plan with --accumulate 2 should have two flights"
works '^loss ' "$mpiexec" -n 4 "$terapipe" eval --load both --data-path text --op 2 --data 2 \
    --global-batch-size 4

# Weight gradients that come later: told, planned, contradicted, traced.
works '^check: loss .* apart at most' "$mpiexec" -n 2 "$terapipe" $short --op 2 --dropout 0.1 \
    --schedule seq1f1b --slices 3 --group-size 1 --accumulate 2 --delay-wgrad-compute --check
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --delay-wgrad-compute --budget 0.5 --save later \
    --trace later.json
grep -q '"gradient"' later/profile.json && grep -q '"delay_wgrad": true' later/plan.json ||
    complain "a run with --delay-wgrad-compute should have a profile and a plan of it"
grep -q '"name": "weight gradients"' later.json || complain "a trace should show delayed weight gradients"
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --plan later/plan.json
"$mpiexec" -n 4 "$terapipe" $short --plan both/plan.json --delay-wgrad-compute >out 2>err
judge 2 '--delay-wgrad-compute: contradicts --plan both/plan.json' $? "a plan that delays nothing"
"$mpiexec" -n 2 "$terapipe" $short --profile later/profile.json >out 2>err
judge 1 'later/profile.json: gradient: ' $? "a profile of delayed weight gradients"

# What devices measured decides the plan of a run, which can be run again and not be contradicted.
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --budget 0.5 --save planned
grep -q '"predicted"' planned/plan.json && grep -q terapipe-profile planned/profile.json ||
    complain "a run should have a plan with what is predicted, and a profile"
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --plan planned/plan.json
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --profile planned/profile.json
"$mpiexec" -n 2 "$terapipe" $short --profile planned/profile.json --threads 7 >out 2>err
grep -q 'warning: --profile: threads is [0-9]*, but 7 here' err ||
    complain "a profile with other threads should be a warning"
works '^step     1/1' "$mpiexec" -n 2 "$terapipe" $short --profile both/profile.json planned/profile.json
"$mpiexec" -n 2 "$terapipe" $short --profile both/profile.json >out 2>err
judge 1 'both/profile.json: op is 2, expected 1 as in the run' $? "a profile for another op degree"
sed 's/"op": 1/"op": 1, "ranks": [0, 0, 0]/' planned/profile.json >three.json
"$mpiexec" -n 2 "$terapipe" $short --profile both/profile.json three.json >out 2>err
judge 1 'three.json: ranks lists 3, expected 2' $? "a profile for other ranks"
"$mpiexec" -n 2 "$terapipe" train $tiny --data-path text --train-iters 1 --global-batch-size 3 \
    --plan planned/plan.json >out 2>err
judge 2 "--global-batch-size 3: contradicts --plan planned/plan.json.* 4" $? "a plan for 4 sequences"

# --- a mistaken command line ---------------------------------------------------------------------

fails 2 'voodoo: unknown command' voodoo
fails 2 '--tensor-model-parallel-size 3: expected a divisor of the model.s 4 heads' $train --op 3
fails 2 '--data 2 x --pipeline-model-parallel-size 2 x --tensor-model-parallel-size 2: .*-n 8' \
    $train --data 2 --pipe 2 --op 2 --global-batch-size 2
fails 2 '--global-batch-size 1: expected at least 3' $train --data 3 --pipe 1 --op 1
fails 2 '--accumulate 3: expected at most 2' $train --accumulate 3 --global-batch-size 2 \
    --group-size 1
fails 2 '--recompute.*all.*cell' $train --recompute all
fails 2 '--delay-wgrad-compute: expected it without --recompute cell' $train --recompute cell \
    --delay-wgrad-compute
fails 1 '--memory 600K: [0-9]+ bytes for each rank.*stage [01] needs [0-9]+' $train --memory 600K \
    --schedule seq1f1b --slices 8 --group-size 1
fails 2 '--dropout: .1. is not' $train --dropout 1
fails 2 '--train: unknown option' $train --train 3
fails 2 'surplus' $train surplus
fails 2 '--train-iters.*0' $train --train-iters 0
fails 2 '--lr.*fast' $train --lr fast
fails 2 '--schedule.*2f2b.*seq1f1b' $train --schedule 2f2b
fails 2 '--data-path' train --model tiny --train-iters 3
fails 2 'no model' train --data-path text --train-iters 3
fails 2 '--seq-length 65.*64' $train --seq-length 65
fails 2 '--slices 1,2,3.*64' $train --slices 1,2,3
fails 2 '--slices 65.*64' $train --slices 65
fails 2 '--slices' $train --slices 2 --schedule gpipe
fails 2 '--pipeline-model-parallel-size 5.*4' $train --pipe 5
fails 2 '--pipeline-model-parallel-size 3.*ranks' $train --pipe 3
fails 2 '--save-interval.*--save' train --load "$reference" --data-path text --train-iters 3 \
    --save-interval 1
fails 2 '--memory 1X' $train --memory 1X
fails 2 '--budget.*0' profile $tiny --budget 0
fails 2 'no model' profile
fails 2 '--pipeline-model-parallel-size 3' profile $tiny --pipe 3
fails 1 'nowhere' profile $tiny -o nowhere/profile.json
fails 1 'limit' profile $tiny --memory 1K
fails 2 '--device voodoo' $train --device voodoo
fails 2 '--prompt' generate --load ok --prompt ''
fails 2 'n_embd.*n_head' train --num-layers 2 --hidden-size 10 --num-attention-heads 3 \
    --seq-length 8 --data-path text --train-iters 1

# --- files that are not what they have to be ----------------------------------------------------

# model NAME: a copy of the reference to spoil.
model()
{
    mkdir "$1"
    cp "$reference/config.json" "$reference/model.safetensors" "$1"
    chmod -R u+w "$1"
}
model no-config && rm no-config/config.json
model empty-config && : >empty-config/config.json
model cut-config && head -c 100 "$reference/config.json" >cut-config/config.json
model bad-config && echo '{"model_type": "gpt2", "n_layer": -3}' >bad-config/config.json
model relu && sed 's/gelu_new/relu/' "$reference/config.json" >relu/config.json
model no-weights && rm no-weights/model.safetensors
model empty-weights && : >empty-weights/model.safetensors
model cut-weights && head -c 100000 "$reference/model.safetensors" >cut-weights/model.safetensors
model bad-weights && echo 'no tensors here' >bad-weights/model.safetensors
model other-weights && sed 's/"n_layer": 4/"n_layer": 3/' "$reference/config.json" \
    >other-weights/config.json
for name in no empty cut bad; do
    fails 1 "$name-config/config.json" train --load $name-config --data-path text \
        --train-iters 1 --save run
    fails 1 "$name-weights/model.safetensors" train --load $name-weights \
        --data-path "$reference/tokens.bin" --train-iters 1 --save run
done
fails 1 'relu' train --load relu --data-path text --train-iters 1 --save run
fails 1 'other-weights/model.safetensors' train --load other-weights \
    --data-path "$reference/tokens.bin" --train-iters 1 --save run
fails 1 '--load nowhere' train --load nowhere --data-path text --train-iters 1 --save run
fails 1 'nowhere' train --model nowhere --data-path text --train-iters 1 --save run
fails 1 '--load nowhere' eval --load nowhere --data-path text
fails 1 '--load nowhere' generate --load nowhere

: >empty.bin
head -c 101 "$reference/tokens.bin" >odd.bin
head -c 20 "$reference/tokens.bin" >short.bin
{
    head -c 100 "$reference/tokens.bin"
    printf '\200\001'
    tail -c +103 "$reference/tokens.bin"
} >beyond.bin
for file in missing.bin empty.bin odd.bin short.bin; do
    fails 1 "$file" train --load "$reference" --data-path $file --train-iters 1 --save run
done
fails 1 'beyond.bin.*384.*50' train --load "$reference" --data-path beyond.bin --train-iters 9 \
    --sampler sequential --save run
fails 1 'text.*97.*--tokenizer bytes' train --load "$reference" --data-path text --train-iters 1 \
    --save run
fails 1 '--tokenizer bytes' generate --load "$reference"

# --- a system that does not give what is asked for -----------------------------------------------

OCL_ICD_VENDORS=$work/none
export OCL_ICD_VENDORS
fails 1 'OpenCL.*install' $train
fails 1 'OpenCL.*install' doctor
unset OCL_ICD_VENDORS
case $(cat doctor.out) in
*'Portable Computing Language'*) # the only platform, if the others have no device
    POCL_CACHE_DIR=/dev/null/cache "$terapipe" doctor >out 2>err ||
        judge 1 'OpenCL.*POCL_CACHE_DIR' $? 'terapipe doctor without a cache for PoCL' ;;
esac
fails 1 '/dev/null/run' train --load "$reference" --data-path "$reference/tokens.bin" \
    --train-iters 1 --save /dev/null/run
fails 1 '/dev/full' $train --metrics /dev/full
fails 1 '--memory|limit' $train --memory 1K
fails 1 '--memory|limit' $train --memory 1
for arguments in "eval --load ok --data-path text" doctor "train --help" --version; do
    "$terapipe" $arguments >/dev/full 2>err
    judge 1 'standard output' $? "terapipe $arguments, with a full standard output"
done

# A run that does not start leaves the folder as it was, and so does one that finds it taken.
again="train --num-layers 2 --hidden-size 32 --num-attention-heads 2 --seq-length 32 --data-path text
    --train-iters 1 --save ok"
"$terapipe" $again --memory 1K >out 2>err
judge 1 'limit' $? 'terapipe train --memory 1K into a folder that is there'
[ "$(grep -c . ok/metrics.jsonl)" -eq 4 ] || complain 'the metrics of a run should stay'
[ -d ok/checkpoints/step-00000004 ] || complain 'the checkpoints of a run should stay'
if command -v flock >/dev/null; then
    flock ok "$terapipe" $again >out 2>err
    judge 1 'ok: another process' $? 'terapipe train into a folder that is taken'
fi

# A disk that is full in the middle of a checkpoint: here, a limit on the size of files. MPI needs
# files of its own, so without mpiexec, and the checkpoint is larger than those.
(
    ulimit -f 20000 # of 512 bytes
    exec "$terapipe" train --num-layers 2 --hidden-size 512 --num-attention-heads 4 \
        --seq-length 16 --data-path text --train-iters 1 --save run >out 2>err
)
judge 1 'run/checkpoints/.*(File too large|space)' $? 'terapipe train, with a full disk'

# Numbers that are none: the last of the file, which is a weight.
model poisoned
size=$(wc -c <"$reference/model.safetensors")
{
    head -c $((size - 4)) "$reference/model.safetensors"
    printf '\000\000\300\177'
} >poisoned/model.safetensors
fails 1 'step 0 .*nan' train --load poisoned --data-path "$reference/tokens.bin" --train-iters 3 \
    --save run
fails 1 'finite' generate --load poisoned --tokenizer bytes --prompt '!'
fails 1 'poisoned.*finite' eval --load poisoned --data-path "$reference/tokens.bin"

# --- ranks that are killed or stuck --------------------------------------------------------------

# start ARGUMENT...: a long training with two ranks, in the background; $job is mpiexec, $rank one of
# its ranks, once it has taken steps.
start()
{
    rm -f long.jsonl
    "$mpiexec" -n 2 "$terapipe" train --load "$reference" --data-path "$reference/tokens.bin" \
        --train-iters 1000000 --log-interval 1000000 --metrics long.jsonl "$@" >out 2>err &
    job=$!
    waited=0
    until [ -s long.jsonl ] || [ $waited -ge 100 ]; do
        sleep 0.2
        waited=$((waited + 1))
    done
    rank=$(tr ' ' '\n' <"/proc/$job/task/$job/children" | head -n 1)
}

# ends SECONDS NAME PATTERN: the job ends by then, not well, and says why.
ends()
{
    waited=0
    while kill -0 "$job" 2>/dev/null && [ $waited -lt "$1" ]; do
        sleep 1
        waited=$((waited + 1))
    done
    if kill -0 "$job" 2>/dev/null; then
        complain "$2 should end the job within $1 s"
        kill -9 "$job"
    elif wait "$job"; then
        complain "$2 should end the job with another status than 0"
    elif ! grep -Eiq -- "$3" err; then
        complain "$2 should say $3"
    fi
}

if [ -r "/proc/$$/task/$$/children" ]; then
    start
    kill -KILL "$rank"
    ends 20 'a killed rank' 'killed|signal 9'
    start --watchdog 2
    kill -STOP "$rank"
    ends 20 'a stuck rank' 'error: .*waits for'
fi

echo "$failures failed"
[ $failures -eq 0 ]
