# SPDX-License-Identifier: Apache-2.0
# Figures 3, 5, 6 and 7 of the TeraPipe paper, ours beside the published numbers:
# gnuplot -e "folder='paper'" paper.gp, after bench_paper has written its numbers there.

set terminal svg size 960,420 font "sans,12" background "white"
set key top left
set style line 1 linecolor rgb "#999999" pointtype 7 linewidth 2
set style line 2 linecolor rgb "#444444" pointtype 5 linewidth 2
set style line 3 linecolor rgb "#1b6ca8" pointtype 9 linewidth 2
set style line 4 linecolor rgb "#c8553d" pointtype 13 linewidth 2
file(name) = folder . "/" . name

# A layer's times: those of figure 3, which was published as a drawing only, by our estimate; and the
# layers whose times follow from figure 6.
set output file("fig3.svg")
set multiplot layout 1,3
set xlabel "tokens of a slice"
set title "GPT3-1B layer, one V100: forward"
set ylabel "ms"
plot file("fig3.dat") using 1:2 with lines linestyle 3 title "ours"
set title "the same: throughput"
set ylabel "tokens / ms"
set key bottom right
plot file("fig3.dat") using 1:3 with lines linestyle 3 title "ours"
set title "layers of settings 8 and 9"
set ylabel "ms, forward and backward"
set logscale xy
set key top left
plot file("fig3-8.dat") using 1:2 with points linestyle 1 title "8, recovered", \
     file("fig3-8.dat") using 1:3 with lines linestyle 3 title "8, ours", \
     file("fig3-9.dat") using 1:2 with points linestyle 2 title "9, recovered", \
     file("fig3-9.dat") using 1:3 with lines linestyle 4 title "9, ours"
unset multiplot
unset logscale

# Latencies of all settings, without token slices and with.
set output file("fig5.svg")
set title "Figure 5: seconds of a step"
set xlabel "setting"
set ylabel "s"
set style data histogram
set style histogram cluster gap 1
set style fill solid 0.9 noborder
set logscale y
set yrange [0.5:30]
set key top left horizontal
plot file("fig5.dat") using 2:xtic(1) linestyle 1 title "GPipe, published", \
     "" using 3 linestyle 2 title "GPipe, ours", \
     "" using 4 linecolor rgb "#9cc3de" title "TeraPipe, published", \
     "" using 5 linestyle 3 title "published scheme, ours", \
     "" using 6 linestyle 4 title "our scheme"
unset logscale
set yrange [*:*]

# Uniform slices against the planned ones.
set output file("fig6.svg")
set multiplot layout 1,2
set style data linespoints
set logscale xy
set key top center vertical
set xrange [1:128]
set xlabel "uniform slices"
do for [setting in "8 9"] {
    set title "Figure 6, setting " . setting . ": seconds of a step"
    plot file("fig6-" . setting . ".dat") using 1:($2 > 0 ? $2 : NaN) with points linestyle 2 \
             title "published", \
         "" using 1:3 with lines linestyle 3 title "from recovered times", \
         "" using 1:4 with lines linestyle 4 title "analytic", \
         "" using 1:5 with lines linestyle 1 title "published scheme", \
         "" using 1:6 with lines linestyle 1 dashtype 2 title "our scheme, analytic"
}
unset multiplot
unset logscale
set xrange [*:*]

# Longer sequences.
set output file("fig7.svg")
set title "Figure 7: GPT3-13B, seconds of a step by sequence length"
set xlabel "tokens of a sequence"
set key top left
set xtics 2048
plot file("fig7.dat") using 1:2 with linespoints linestyle 1 title "GPipe, published", \
     "" using 1:3 with linespoints linestyle 2 title "GPipe, ours", \
     "" using 1:4 with linespoints linecolor rgb "#9cc3de" linewidth 2 pointtype 7 \
         title "TeraPipe, published", \
     "" using 1:5 with linespoints linestyle 3 title "published scheme, ours", \
     "" using 1:6 with linespoints linestyle 4 title "our scheme"
