/* SPDX-License-Identifier: Apache-2.0 */
/* The best cut of a batch for equal stages without links: groups of sequences and the token slices
 * of each group together, exactly. */
#ifndef TP_PLAN_OPTIMAL_H
#define TP_PLAN_OPTIMAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/cost.h"
#include "plan/plan.h"

enum tp_objective {
    TP_OBJECTIVE_EXACT, /* sum f + (K-1) max f + sum b + (K-1) max b: the makespan when all forwards
                           precede all backwards */
    TP_OBJECTIVE_PAPER  /* sum (f+b) + (K-1) max (f+b): TeraPipe, equation 5 */
};
extern const char *const tp_objective_choices[]; /* "exact", "paper", NULL */

struct tp_optimal_task {
    const struct tp_cost *cost;
    int device;    /* whose times are used */
    int n_layer;   /* layers of a stage */
    int n_stages;  /* K */
    int seq_len;   /* T */
    int batch;     /* B */
    int grain;     /* borders are multiples of it; only the last slice may have another length */
    int max_group; /* sequences of a group at most; 0: B */
    int max_sizes; /* sizes of groups at most, which time and memory grow with; 0: any number. When
                      there are more, those with the fewest binary digits before their zeros, and B:
                      small ones all, large ones within a part of themselves */
    bool whole;    /* sequences are not cut (gpipe, 1f1b) */
    enum tp_objective objective;
    double epsilon; /* seconds: bottlenecks closer than it are not told apart, so the result is
                       within (K-1) epsilon of the best; 0: the best */
};

struct tp_optimal {
    int n_groups;
    struct tp_group *groups; /* owned; ascending sequences */
    double seconds;          /* of the objective */
    bool bounded;            /* not all sizes of groups were tried, for max_sizes */
    int64_t passes;          /* runs of the token dynamic program */
};

/* Solves it. Groups of b sequences that the cost has no numbers for are not used. Of all plans with
 * the same sum within the same bottlenecks it is the one with the fewest slices. Local.
 * TP_ERR_INPUT when no group size adds up to B or a slice's time is negative or not finite, naming
 * it; TP_ERR_MEMORY. */
enum tp_status tp_optimal_solve(const struct tp_optimal_task *task, struct tp_optimal *optimal);
void tp_optimal_fini(struct tp_optimal *optimal);

#endif
