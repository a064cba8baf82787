/* SPDX-License-Identifier: Apache-2.0 */
/* Timings of things that are compared: rounds in turn, medians and ranges, since machines drift. */
#ifndef TP_BENCH_ROUNDS_H
#define TP_BENCH_ROUNDS_H

#include <stdlib.h>

enum { MOST_ROUNDS = 101 };

struct rounds {
    int count;
    double seconds[MOST_ROUNDS];
};

static inline void rounds_add(struct rounds *rounds, double seconds)
{
    if (rounds->count < MOST_ROUNDS)
        rounds->seconds[rounds->count++] = seconds;
}

static inline int rounds_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts them; the value at a share of the way from the fastest (0) to the slowest (1). */
static inline double rounds_at(struct rounds *rounds, double share)
{
    qsort(rounds->seconds, (size_t)rounds->count, sizeof(double), rounds_compare);
    return rounds->seconds[(int)(share * (rounds->count - 1) + 0.5)];
}

#endif
