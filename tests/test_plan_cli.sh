#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# plan and simulate as a user meets them, without MPI and without any OpenCL platform: what they
# write agrees, limits are obeyed, and bad input ends with one line, the promised status and no file.
# Usage: test_plan_cli.sh, in the build folder.

terapipe=$PWD/terapipe
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
failures=0
OCL_ICD_VENDORS=$work/none
export OCL_ICD_VENDORS

complain()
{
    echo "FAILED: $*"
    cat err
    failures=$((failures + 1))
}

# works PATTERN ARGUMENT...: terapipe succeeds and a line of its output matches.
works()
{
    pattern=$1
    shift
    if ! "$terapipe" "$@" >out 2>err; then
        complain "terapipe $* should work"
    elif ! grep -Eq -- "$pattern" out; then
        complain "terapipe $* should print $pattern"
        cat out
    fi
}

# fails STATUS PATTERN ARGUMENT...: terapipe ends so, with one line that matches, and writes nothing.
fails()
{
    status=$1 pattern=$2
    shift 2
    rm -f plan.json
    "$terapipe" "$@" >out 2>err
    got=$?
    if [ $got -ne "$status" ]; then
        complain "terapipe $* should end with status $status, not $got"
    elif [ "$(wc -l <err)" -ne 1 ] || ! grep -Eq -- "^terapipe: error: .*$pattern" err; then
        complain "terapipe $* should print one line, $pattern"
    elif [ -e plan.json ]; then
        complain "terapipe $* should write nothing"
    fi
}

# profile NAME SCRIPT: a profile, changed by sed.
profile()
{
    sed -e "$2" >"$1" <<'END'
{"format": "terapipe-profile", "version": 1,
 "device": {"name": "fake", "memory": 2000000000, "peak_flops": 1e12},
 "model": {"n_embd": 128, "n_head": 4, "n_inner": 512, "vocab_size": 256},
 "op": 1, "threads": 1, "ranks_per_node": 1,
 "layer": {"forward":  {"base": [[1, 8, 0.001], [1, 256, 0.004], [2, 8, 0.002], [2, 256, 0.007]],
                        "context": [1e-5, 1e-8, 1e-8, 1e-8]},
           "backward": {"base": [[1, 8, 0.002], [1, 256, 0.009], [2, 8, 0.003], [2, 256, 0.016]],
                        "context": [1e-5, 1e-8, 1e-8, 2e-8]}}}
END
}
profile p.json ''
tiny='--model tiny --pipe 4 --global-batch-size 4'

# number KEY FILE: the value of the key in a file.
number()
{
    sed -n "s/.*\"$1\": *\\([0-9.e+-]*\\).*/\\1/p" "$2" | head -n 1
}

works 'with delayed weight gradients' plan $tiny --hardware a100 --delay-wgrad-compute -o delayed.json
works '^ +[0-9] \|.*#.*\|$' simulate delayed.json --hardware a100
works '"step_seconds"' simulate delayed.json --hardware a100 --json
[ "$(number step_seconds out)" = "$(number step_seconds delayed.json)" ] ||
    complain 'plan and simulate should agree on delayed weight gradients'
fails 1 'p.json: gradient: .*--delay-wgrad-compute' plan $tiny --profile p.json --delay-wgrad-compute
works 'delay' plan --model tiny --hardware a100 --devices 4 --global-batch-size 4 --delay-wgrad-compute \
    -o delayed.json
works '^wrote plan.json' plan $tiny --profile p.json
works '"step_seconds"' simulate plan.json --profile p.json --json
[ "$(number step_seconds out)" = "$(number step_seconds plan.json)" ] ||
    complain 'plan and simulate should agree to the last digit'
works '^ +3 \|.*\|$' simulate plan.json --profile p.json --trace trace.json
grep -q traceEvents trace.json || complain 'there should be a trace'
for schedule in gpipe terapipe 1f1b seq1f1b; do
    works "^schedule $schedule over 4 stages" plan $tiny --profile p.json --schedule $schedule -o $schedule.json
done
works '2 groups of 2 sequences: 100 100 56' plan $tiny --profile p.json --schedule terapipe \
    --group-size 2 --slices 100,100,56
works 'op 2' plan --model gpt3-1b --hardware v100-25gbe --pipe 12 --op 2 --data 2 \
    --global-batch-size 3
works '^ +[0-9]+ +[0-9]+ +[0-9]+ .*\.[0-9] %' plan --model gpt2 --hardware a100 --devices 8 \
    --global-batch-size 8
works 'refused: there is no profile for op 2' plan --model tiny --profile p.json --devices 4 \
    --global-batch-size 4
works 'for memory' plan --model tiny --profile p.json --pipe 2 --global-batch-size 64 --memory 60M

works '2 flights of' plan $tiny --profile p.json --global-batch-size 8 --accumulate 3 -o flights.json
works '^step' simulate flights.json --profile p.json
fails 2 '--accumulate 9: expected at most 8' plan $tiny --profile p.json --global-batch-size 8 \
    --accumulate 9
fails 2 'neither is given' plan $tiny
fails 2 'both are given' plan $tiny --profile p.json --hardware a100
fails 2 'PLAN is missing' simulate --profile p.json
fails 2 '--trace gpipe.json' simulate gpipe.json --profile p.json --trace gpipe.json
fails 2 'surplus' plan surplus $tiny --profile p.json
fails 2 '--grain.*0' plan $tiny --profile p.json --grain 0
fails 2 '--pipe.*0' plan --model tiny --pipe 0 --profile p.json
fails 2 '--pipeline-model-parallel-size 5.*4' plan --model tiny --pipe 5 --profile p.json
fails 2 '--pipeline-model-parallel-size is missing' plan --model tiny --profile p.json
fails 2 '--global-batch-size.*0' plan --model tiny --pipe 2 --profile p.json --global-batch-size 0
fails 2 '--data 5.*4' plan $tiny --profile p.json --data 5
fails 2 '--op|--tensor-model-parallel-size 3.*4' plan $tiny --op 3 --hardware a100
fails 2 '--devices 1009' plan --model tiny --profile p.json --devices 1009
fails 2 '--slices' plan $tiny --profile p.json --slices 2 --schedule gpipe
fails 2 '--slices 300' plan $tiny --profile p.json --slices 300
fails 2 '--epsilon' plan $tiny --profile p.json --epsilon nan
fails 2 '--memory 1X' plan $tiny --profile p.json --memory 1X
fails 1 'stage [0-9] needs [0-9]+ bytes, the limit is 1048576' plan $tiny --profile p.json --memory 1M
fails 1 'p.json: op is 1.*2' plan $tiny --op 2 --profile p.json
fails 1 'n_embd' plan --model small --pipe 2 --profile p.json
fails 1 'groups of|no groups|for 3 sequences' plan --model tiny --pipe 2 --profile p.json --global-batch-size 3 --group-size 3
fails 1 'op is 1.*another' plan $tiny --profile p.json p.json

# Each run has the profile of its op degree, with as many ranks and links as it has.
profile two.op.json 's/"op": 1/"op": 2/'
profile ranks.json 's/"op": 1,/"op": 1, "ranks": [0, 0],/'
profile links.json 's/"op": 1,/"op": 1, "links": [[[0, 1e-3]], [[0, 2e-3]]],/'
works 'pipe 4, op 2|op 2' plan $tiny --op 2 --profile p.json two.op.json -o op.json
works 'op 2' simulate op.json --profile p.json two.op.json
fails 1 'p.json: op is 1, two.op.json: op is 2, expected 4' plan $tiny --op 4 --profile p.json two.op.json
fails 1 'p.json: op is 1, expected 2' simulate op.json --profile p.json
fails 1 'ranks.json: ranks lists 2, expected 4' plan $tiny --profile ranks.json
fails 1 'ranks.json: ranks lists 2, expected 4' simulate terapipe.json --profile ranks.json
fails 1 'links.json: links lists 2, expected 3' plan $tiny --profile links.json
fails 1 'links.json: links lists 2, expected 3' simulate terapipe.json --profile links.json
fails 1 'links.json: links lists 2, expected 0' plan --model tiny --pipe 1 --profile links.json
works 'over 2 stages' plan --model tiny --pipe 2 --profile ranks.json
works 'over 3 stages' plan --model tiny --pipe 3 --profile links.json
works 'refused: the profile for op 1 lists ranks or links of other degrees' plan --model tiny \
    --profile ranks.json --devices 4 --global-batch-size 4
fails 1 'no degrees are possible.*of other degrees' plan --model tiny --profile ranks.json --devices 1
fails 1 'nowhere' plan $tiny --profile nowhere
fails 1 'nowhere' plan $tiny --hardware nowhere
fails 1 '/dev/null' plan $tiny --profile p.json -o /dev/null/plan.json
fails 1 'nowhere' simulate nowhere --profile p.json
fails 2 '-o p.json: ' plan $tiny --profile p.json -o p.json
grep -q terapipe-profile p.json || complain 'plan should leave the profile alone'

# Files have names.
fails 2 '-o: the value is empty, expected a file' plan $tiny --profile p.json -o ''
fails 2 '--profile: a value is empty, expected a file' plan $tiny --profile p.json ''
fails 2 '--hardware: the value is empty, expected a name or a file' plan $tiny --hardware ''
fails 2 'PLAN: the value is empty, expected a file' simulate '' --profile p.json
fails 2 '--profile: a value is empty' simulate terapipe.json --profile ''
fails 2 '--trace: the value is empty' simulate terapipe.json --profile p.json --trace ''
fails 2 '--plan: the value is empty, expected a file' train --model tiny --data-path p.json \
    --train-iters 1 --plan ''

# Times after the last backward, and sizes that have no product.
sed 's/"data": 1,/"data": 2,/' terapipe.json >two.json
sed 's/"data": 1,/"data": 2147483647,/' terapipe.json >many.json
profile endless.json 's/"op": 1,/"op": 1, "update_seconds_per_parameter": 1e308,/'
profile shrinking.json 's/"op": 1,/"op": 1, "allreduce": {"2": [[0, 1], [1, 0]]},/'
fails 1 'the step takes inf' plan $tiny --profile endless.json
fails 1 'the step takes inf' simulate terapipe.json --profile endless.json --json
fails 1 'shrinking.json: allreduce.2: the all-reduce of .* takes -' simulate two.json --profile shrinking.json
fails 1 'many.json: data is 2147483647' simulate many.json --profile p.json

# bad NAME PATTERN SCRIPT: a profile spoiled by sed is refused.
bad()
{
    profile "$1.json" "$3"
    fails 1 "$1.json.*$2" plan $tiny --profile "$1.json"
}
bad twice '1.*8' 's/\[1, 256, 0.004\]/[1, 8, 0.004]/'
bad nan '' 's/0.001/NaN/'
bad negative '-0.001|negative|or more' 's/0.001/-0.001/'
bad infinite '' 's/0.001/1e999/'
bad version 'version' 's/"version": 1/"version": 2/'
bad format 'format' 's/terapipe-profile/terapipe-plan/'
bad layer 'layer' 's/"layer"/"layers"/'
bad base 'base' 's/"base": \[\[1, 8, 0.001\]/"bases": [[1, 8, 0.001]/'
bad model 'n_head' 's/"n_head": 4, //'
bad op 'op' 's/"op": 1/"op": "one"/'
bad rows '' 's/\[1, 8, 0.001\]/[1, 8]/'
profile below.json 's|"context": [[]1e-5|"context": [-1|'
fails 1 'below.json: layer.forward.context: .* takes -0.99.* s: expected a time of 0 or more' plan $tiny \
    --profile below.json
fails 1 'below.json: layer.forward.context: ' plan $tiny --profile below.json --slices 2 --schedule terapipe
works 'over 4 stages' plan $tiny --profile below.json --slices 1 -o whole.json
works 'over 4 stages' simulate whole.json --profile below.json
works 'over 4 stages' plan $tiny --profile p.json --slices 2 --group-size 1 --schedule terapipe -o halves.json
fails 1 'below.json: layer.forward.context: the forward of 128 tokens after 128 of 1' simulate halves.json \
    --profile below.json

# Times that fall until they are below 0, which is said where they are used.
profile base.json 's/\[1, 8, 0.002\]/[1, 8, 9], [1, 9, 8]/;s/\[1, 256, 0.009\], //'
profile link.json 's/"op": 1,/"op": 1, "link": [[0, 1], [1, 0]],/'
profile last.json 's/"op": 1,/"op": 1, "links": [[[0, 1]], [[0, 1]], [[0, 1], [1, 0]]],/'
profile head.json 's/"op": 1,/"op": 1, "head": {"forward": [[1, 8, 0]], "backward": [[1, 8, 9], [1, 9, 0]]},/'
fails 1 'base.json: layer.backward.base: ' plan $tiny --profile base.json
fails 1 'base.json: layer.backward.base: the backward of 128 tokens' simulate halves.json --profile base.json
fails 1 'link.json: link: the message of 128 tokens' simulate halves.json --profile link.json
fails 1 'last.json: links.2.: the message of 128 tokens' simulate halves.json --profile last.json
fails 1 'head.json: head.backward: the backward of 128 tokens' simulate halves.json --profile head.json
: >empty.json
echo 'not JSON' >text.json
awk 'BEGIN { for (i = 0; i < 5000000; i++) printf "[" }' >deep.json
head -c 100 p.json >cut.json
for file in empty text deep cut; do
    fails 1 "$file.json" plan $tiny --profile $file.json
    fails 1 "$file.json" plan $tiny --hardware ./$file.json
    fails 1 "$file.json" simulate $file.json --profile p.json
done
mkdir folder
fails 1 folder plan $tiny --profile folder
fails 1 folder simulate folder --profile p.json
sed 's/"sequences": [0-9]*/"sequences": 3/' gpipe.json >groups.json
fails 1 'groups' simulate groups.json --profile p.json

echo "$failures failed"
[ $failures -eq 0 ]
