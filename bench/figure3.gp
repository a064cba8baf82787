# SPDX-License-Identifier: Apache-2.0
# gnuplot -e "folder='...'; providers='auto cblas'" figure3.gp, after figure3.sh has written the numbers.

set terminal svg size 960,420 font "sans,12" background "white"
set output folder . "/figure3.svg"
set multiplot layout 1,2
set logscale x 2
set xlabel "tokens of a slice"
set yrange [0:*]
set key top right
file(provider) = folder . "/figure3-" . provider . ".dat"

# Columns: tokens, microseconds of a token, fastest, slowest, ratio to the whole sequence.
set title "a token in a layer, forward and backward"
set ylabel "us"
plot for [p in providers] file(p) using 1:2:3:4 with yerrorlines linewidth 2 title p
set title "a sequence in slices, by a whole one"
set ylabel "ratio"
plot for [p in providers] file(p) using 1:5 with linespoints linewidth 2 title p, \
     1 with lines linecolor rgb "#999999" dashtype 2 notitle
unset multiplot
