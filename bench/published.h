/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of the TeraPipe paper (arXiv 2102.07988), read from the tables of bench/paper. */
#ifndef TP_BENCH_PUBLISHED_H
#define TP_BENCH_PUBLISHED_H

#include "base/status.h"

enum { MOST_SETTINGS = 32, MOST_ROWS = 32, MOST_SLICES = 128 };

/* A small table in CSV without quotes, the first line naming the columns. */
struct csv {
    char *path, *text;
    int columns, rows;  /* rows without the first line */
    const char **cells; /* [1 + rows][columns], into text */
};

struct setting {
    const char *name;
    int n_layer, n_embd, n_head, seq_len, data, pipe, op, batch;
    const char *slices;     /* of every group, which are of one sequence; "": not published */
    double gpipe, terapipe; /* seconds of a step */
};

/* A run of figure 6: a setting with uniform slices. */
struct uniform_run {
    const char *setting;
    int slices; /* 1 .. MOST_SLICES */
    double seconds;
};

/* Forward and backward of one layer on a slice, as recovered from the uniform runs. */
struct layer_time {
    const char *setting; /* "175B op4 cfg9" */
    int length;
    double seconds;
};

struct published {
    struct csv tables[3];
    int n_settings, n_runs, n_times;
    struct setting settings[MOST_SETTINGS];
    struct uniform_run runs[MOST_ROWS];
    struct layer_time times[MOST_ROWS];
};

/* Reads published.csv, fig6_uniform.csv and v100_stage_times.csv of a folder. TP_ERR_INPUT names
 * the file, the row and the column; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status published_load(const char *folder, struct published *published);
void published_fini(struct published *published);

/* A setting by its name; NULL when there is none. */
const struct setting *published_setting(const struct published *published, const char *name);

/* The published latency of so many uniform slices; 0 when there is none. */
double published_uniform(const struct published *published, const struct setting *setting,
                         int count);

#endif
