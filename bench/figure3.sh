#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a token costs by the length of its slice, the TeraPipe paper's figure 3, for several gemm
# providers: bench_cell's table on stdout, and an SVG where gnuplot is installed. From the build folder,
# after `make bench/bench_cell`. The first argument names the folder for figure and numbers,
# bench/figure3 unless given; what follows are options of bench_cell, as --gemm cblas clblast.
set -e
here=$(dirname "$0")
out=${1:-bench/figure3}
[ $# -eq 0 ] || shift

mkdir -p "$out"
bench/bench_cell "$@" >"$out/table.txt" || { cat "$out/table.txt"; exit 1; }
cat "$out/table.txt"

# Rows over the whole sequence: gemm, tokens, "all", median, fastest, "..", slowest, forward, backward,
# speed, ratio.
providers=$(awk '$3 == "all" && !seen[$1]++ { print $1 }' "$out/table.txt")
for provider in $providers; do
    awk -v p="$provider" '$1 == p && $3 == "all" { print $2, $4, $5, $7, $11 }' "$out/table.txt" |
        sort -n >"$out/figure3-$provider.dat"
done
if command -v gnuplot >/dev/null; then
    gnuplot -e "folder='$out'; providers='$(echo $providers)'" "$here/figure3.gp"
    echo "figure: $out/figure3.svg" >&2
else
    echo "no figure: gnuplot is not installed; its numbers are in $out" >&2
fi
