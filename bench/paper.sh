#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The results of the TeraPipe paper, ours beside the published ones: tables in Markdown on stdout, and
# its figures 3, 5, 6 and 7 as SVG where gnuplot is installed. From the build folder, after
# `make bench/bench_paper`; doc/paper.md holds the tables. The first argument names the folder for
# the figures and their numbers, bench/paper-figures unless given.
set -e
here=$(dirname "$0")
out=${1:-bench/paper-figures}

bench/bench_paper --data "$here/paper" -o "$out"
if command -v gnuplot >/dev/null; then
    gnuplot -e "folder='$out'" "$here/paper.gp"
    echo "figures: $out/fig3.svg fig5.svg fig6.svg fig7.svg" >&2
else
    echo "no figures: gnuplot is not installed; their numbers are in $out" >&2
fi
