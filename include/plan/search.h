/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan: for given degrees, and over all degrees that a number of devices allows. */
#ifndef TP_PLAN_SEARCH_H
#define TP_PLAN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "plan/cost.h"
#include "plan/hardware.h"
#include "plan/optimal.h"
#include "plan/plan.h"
#include "plan/refine.h"

/* Schedules that one may ask for: all that train, in the order of enum tp_schedule_kind, and
 * "auto". */
extern const char *const tp_search_choices[];
#define TP_SEARCH_AUTO TP_SCHEDULE_FORWARD

/* What backward computes again. */
enum tp_recompute {
    TP_RECOMPUTE_NONE,
    TP_RECOMPUTE_CELL,  /* a stage's layers, from their input */
    TP_RECOMPUTE_NEEDED /* that too, if the best plan does not fit without */
};
extern const char *const tp_recompute_choices[]; /* "none", "cell", NULL */

/* How much a step has to be faster to be: by more than this part. Of plans that are as fast, "auto"
 * takes the one that needs less memory. */
#define TP_SEARCH_HAIR 1e-9

/* Turns of stages that are worth simulating for one plan: seconds. */
#define TP_SEARCH_WORK 40000000

struct tp_search_task {
    const struct tp_model *model;
    const struct tp_cost *cost; /* its op is O */
    int seq_len;                /* T */
    int batch;                  /* B of the largest replica */
    int data, pipe;             /* D, K */
    int schedule;               /* enum tp_schedule_kind or TP_SEARCH_AUTO */
    enum tp_recompute recompute;
    bool zero;                      /* replicas share the optimizer's moments */
    bool delay_wgrad;               /* weight gradients wait for their group's last backward */
    const struct tp_slices *slices; /* that all groups have; NULL: any */
    int group_size; /* sequences of a group, the last one of a flight the remainder; 0: any */
    int flights;    /* of a step; 0: one */
    int grain;      /* borders are multiples of it */
    enum tp_objective objective;
    double epsilon;
    size_t memory; /* bytes that a rank may take; 0: what its device has */
    int64_t work;  /* turns that may be simulated, and as many again of plans to start from */
};

struct tp_found {
    struct tp_plan *plan; /* the caller's */
    struct tp_simulation simulation;
    struct tp_shortage shortage; /* need > limit: nothing that was tried fits; this lacks least */
    bool exact;                  /* no plan under its schedule is faster */
    char note[384];              /* what memory made it change, what was not tried, or "" */
};

/* Makes the best plan. Where stages are equal, without links, embedding and head, that is the
 * closed form's optimum; else it is refined from there, from uniform slices at the grain and from
 * whole sequences, and is no worse than these. For many sequences not all sizes of groups are tried
 * in the closed form, nor all uniform slices. Of several flights the largest one is planned; all
 * have its groups, and those with a sequence less lose it from the end. The paper's objective is
 * for comparison: its plan is taken as it is. Local. TP_ERR_USAGE for more stages than layers,
 * slices of whole sequences, or more flights than sequences; TP_ERR_INPUT when the cost has no
 * numbers for what is asked, TP_ERR_MEMORY. */
enum tp_status tp_search_plan(const struct tp_search_task *task, struct tp_found *found);
void tp_found_fini(struct tp_found *found);

/* Does it fit? Else an error that says what lacks. Local. TP_ERR_INPUT. */
enum tp_status tp_found_check(const struct tp_found *found);

/* ---- Over all degrees ---- */

/* Where costs come from: hardware, whose costs are estimated for any degrees, or costs that were
 * measured, each for its op degree. */
struct tp_cost_source {
    const struct tp_hardware *hardware; /* or NULL */
    int n_costs;
    const struct tp_cost *costs;
};

struct tp_degrees_task {
    struct tp_search_task search; /* cost, data, pipe: any; batch: B of all replicas */
    struct tp_cost_source source;
    int devices;        /* D * K * O */
    int data, pipe, op; /* if not 0, the only ones */
    int keep;           /* plans that are wanted */
};

/* One of all degrees. */
struct tp_degrees {
    int data, pipe, op;
    double bound; /* seconds of a step at least */
    enum {
        TP_DEGREES_PLANNED, /* found is one of the best */
        TP_DEGREES_SLOWER,  /* than the best, by its bound or its plan */
        TP_DEGREES_REFUSED  /* why says it */
    } outcome;
    struct tp_found found;
    char why[160];
};

/* All degrees, the best plans first, those that are refused last. */
struct tp_degrees_list {
    int count, planned;
    struct tp_degrees *at;
};

/* Makes plans for all (D, K, O) whose product is the number of devices, K <= L, O a divisor of H,
 * D <= B. A replica has ceil(B / D) sequences at most, and that one is planned. Local. TP_ERR_USAGE
 * when there are no such degrees; TP_ERR_INPUT, TP_ERR_MEMORY. All may be refused. */
enum tp_status tp_search_degrees(const struct tp_degrees_task *task, struct tp_degrees_list *list);
void tp_degrees_list_fini(struct tp_degrees_list *list);

#endif
