#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Prints the man page, whose options are those that a built program lists:
#     sh scripts/man.sh build/terapipe >doc/terapipe.1
# A test compares the two.
set -eu
program=$1

# Lines of --help to troff: "  --name VALUE   text" becomes a tagged paragraph.
options()
{
    "$program" "$1" --help | sed -n '
        s/\\/\\e/g
        s/-/\\-/g
        s/^usage: \(.*\)/.B \1\n.PP/p
        /^[a-z]/{/^usage/!p}
        s/^  \(\\-[^ ].*[^ ]\)   *\(.*\)$/.TP\n.B \1\n\2/p'
}

cat <<'END'
.\" SPDX-License-Identifier: Apache-2.0
.TH TERAPIPE 1
.SH NAME
terapipe \- train GPT\-like language models over OpenCL devices and MPI ranks
.SH SYNOPSIS
.B terapipe
.I COMMAND
.RI [ OPTION ...]
.br
.B mpirun \-n
.I RANKS
.B terapipe
.I COMMAND
.RI [ OPTION ...]
.SH DESCRIPTION
terapipe spreads the layers of a model over pipeline stages, one for each MPI rank, and cuts every sequence
into token slices that flow through the stages one behind the other. Attention is causal, so a stage can work
on the next slice while the stage behind it works on this one. Training is synchronous: the result is that of one
device.
.PP
Devices are OpenCL's, of any maker and mixed; PoCL makes a CPU one. The slices, the groups of sequences and the
schedule are planned from measured times unless they are given.
.SH COMMANDS
Option names are not abbreviated.
.B terapipe \-\-version
prints the version.
END
for command in doctor train eval generate profile plan simulate tune; do
    printf '.SS %s\n' "$command"
    options "$command"
done
cat <<'END'
.SH FILES
A model is a folder with
.I config.json
and
.I model.safetensors
in Hugging Face's GPT\-2 layout. A run's folder
.RB ( \-\-save )
holds
.IR config.json ,
.IR options.json ,
.IR plan.json ,
.IR profile.json ,
.IR gemm.json ,
.I metrics.jsonl
and
.IR checkpoints/step\-* ,
each a model folder with what a resume needs.
.PP
Token files are raw uint16
.RI ( .bin ),
with llm.c's header or without one, or text, whose bytes are the tokens.
.PP
Built kernels, measured profiles and CLBlast's parameters found by
.B tune
.RI ( *.tuning.json ,
with the trials so far beside them in
.IR *.trials )
are kept in
.I $XDG_CACHE_HOME/terapipe
or
.IR ~/.cache/terapipe .
Without a
.I *.tuning.json
CLBlast keeps its own parameters; with another one the bits of results change.
.SH EXIT STATUS
0 when all went well, 2 for a mistaken command line, 1 for everything else.
.SH EXAMPLES
.nf
terapipe doctor
mpirun \-n 2 terapipe train \-\-model tiny \-\-data\-path text.txt \-\-train\-iters 1000 \-\-save run
terapipe generate \-\-load run \-\-prompt "Once upon" \-\-max\-new\-tokens 100
terapipe plan \-\-model gpt3\-175b \-\-hardware v100\-25gbe \-\-devices 384 \-\-global\-batch\-size 2
terapipe simulate plan.json \-\-hardware v100\-25gbe \-\-trace trace.json
terapipe tune \-\-device gpu \-\-model gpt2 \-\-seq\-length 256
.fi
.SH SEE ALSO
.BR mpirun (1),
.BR clinfo (1)
END
