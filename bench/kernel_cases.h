/* SPDX-License-Identifier: Apache-2.0 */
/* The launchers of device/kernels.h at the shapes of a layer, each with the same in plain loops of
 * double precision. */
#ifndef TP_BENCH_KERNEL_CASES_H
#define TP_BENCH_KERNEL_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "device/kernels.h"

/* One slice of S tokens after P of one sequence. */
struct shape {
    int S, P, T, C, H, D, N, V;
    int head_rows; /* rows of logits */
};

/* Elements of an operand, by the shape. */
enum size {
    NONE,
    ROWS_C,
    ROWS_3C,
    ROWS_N,
    ROWS_2,
    ROWS_H,
    WIDTH,
    WIDTH_3,
    INNER,
    MATRIX,  /* C N: a weight */
    BLOCKS,  /* partial sums of its squares */
    CACHE,   /* keys or values of the whole sequence */
    SEEN,    /* of them those that the slice's queries see */
    WRITTEN, /* and those of the slice itself */
    TABLE,   /* V C */
    POSITIONS,
    TOKENS, /* of the sequence, and its losses */
    LOGITS,
    LOGITS_1,
    LOGITS_2
};
size_t size_of(const struct shape *shape, enum size size);

/* What an operand holds at first. */
enum start { NUMBERS, POSITIVE, TOKEN_NUMBERS };

enum use { IN, OUT, CHANGED };

struct operand {
    enum size size;
    enum use use;
    enum start start;
    enum size touched; /* what a launch reads or writes of it; NONE: all */
};

enum { MOST_OPERANDS = 9 };

struct kernel {
    const char *name;
    struct operand operands[MOST_OPERANDS]; /* in the order of the launcher; NONE ends them */

    /* Launches it on them. */
    enum tp_status (*launch)(struct tp_device *device, const struct shape *shape,
                             const struct tp_view *at);

    /* What it leaves: in[] are the operands before, out[] those that it changes, the same at first
     * and NULL of others. */
    void (*expect)(const struct shape *shape, const float *const *in, double *const *out);

    double flops; /* of each channel of each pair of query and key; 0: not what it is limited by */
    bool fades;   /* run on its own results it comes to numbers of another kind: it gets new ones */

    /* Makes operands that depend on others; NULL: none do. */
    enum tp_status (*prepare)(struct tp_device *device, const struct shape *shape,
                              const struct tp_view *at);
};

extern const struct kernel kernels[];
extern const int n_kernels;

#endif
