/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: everything that decides who computes what and in which order. Immutable once made. */
#ifndef TP_PLAN_PLAN_H
#define TP_PLAN_PLAN_H

#include <stdbool.h>

#include "base/status.h"
#include "model/model.h"
#include "model/parameters.h"
#include "plan/slices.h"

enum tp_schedule_kind {
    TP_SCHEDULE_GPIPE,    /* one slice per sequence; all forwards, then all backwards */
    TP_SCHEDULE_TERAPIPE, /* token slices; all forwards, then all backwards */
    TP_SCHEDULE_1F1B,     /* one slice per sequence; forward and backward in turn, early */
    TP_SCHEDULE_SEQ1F1B,  /* the same with token slices (Seq1F1B, arXiv 2406.03488) */
    TP_SCHEDULE_FORWARD   /* forwards only: evaluation, prefill */
};

/* "gpipe", ...; choices for options, NULL-terminated, in the enum's order: those that train. */
const char *tp_schedule_name(enum tp_schedule_kind kind);
extern const char *const tp_schedule_choices[];

/* Does the schedule leave sequences whole; do its backwards begin before all forwards are done?
 * Local. */
bool tp_schedule_is_whole(enum tp_schedule_kind kind);
bool tp_schedule_is_early(enum tp_schedule_kind kind);

struct tp_group {
    int sequences;
    struct tp_slices slices;
};

struct tp_plan {
    struct tp_model model;
    int seq_len; /* T */
    int batch;   /* B of the replica */
    int data, pipe, op;
    enum tp_schedule_kind schedule;
    int n_stages;
    struct tp_stage_layers *stages; /* [pipe] */
    int n_groups;
    struct tp_group *groups; /* in order of execution; sequences add up to batch */
    bool zero;               /* replicas share the optimizer's moments */
    bool recompute;          /* backward computes the layers' forward again */
    bool delay_wgrad;        /* a group's weight gradients come together, after its last backward:
                                its messages do not wait for them; not with recompute */
    int n_flights;           /* a flight runs to its end on every stage before the stage's next */
    int *flights;            /* [n_flights] groups of each */
};

struct tp_simulation;

/* Layers over K stages, as equal as can be, the first L mod K stages one more. out[K]. Local. */
void tp_stages_even(int n_layer, int n_stages, struct tp_stage_layers *out);

/* A plan with those facts and room of its own for stages, flights and groups, which are empty yet.
 * Local. TP_ERR_MEMORY. */
enum tp_status tp_plan_new(const struct tp_plan *facts, int n_groups, struct tp_plan **plan);

/* The plan without a planner: groups of group_size sequences (0: min(B, ceil(B/K))), the last group
 * is the remainder, all cut alike, in one flight. slices NULL: min(4, T/8) uniform ones, at least
 * one, and one where sequences stay whole. Local. TP_ERR_USAGE when K > L, or more than one slice
 * where sequences stay whole; TP_ERR_MEMORY. */
enum tp_status tp_plan_default(const struct tp_model *model, int seq_len, int batch, int pipe,
                               enum tp_schedule_kind schedule, int group_size,
                               const struct tp_slices *slices, struct tp_plan **plan);

/* The same plan for fewer sequences and another schedule: groups lose sequences from the end, empty
 * ones are dropped; forwards alone are one flight. 1 <= batch <= plan->batch. Local. TP_ERR_MEMORY.
 */
enum tp_status tp_plan_shrink(const struct tp_plan *plan, int batch, enum tp_schedule_kind schedule,
                              struct tp_plan **shrunk);

/* The same plan with its groups dealt out to so many flights (tp_share_of()), of which there are no
 * more than groups. Local. TP_ERR_MEMORY. */
enum tp_status tp_plan_in_flights(const struct tp_plan *plan, int n_flights,
                                  struct tp_plan **dealt);

/* Several flights like one plan of a single flight, batch sequences in all: the largest flights are
 * this one, the others have a sequence less, from the end. Local. TP_ERR_MEMORY. */
enum tp_status tp_plan_repeat(const struct tp_plan *flight, int batch, int n_flights,
                              struct tp_plan **repeated);

/* The same plan with whole sequences: one slice in each group, and the schedule for that. Local.
 * TP_ERR_MEMORY. */
enum tp_status tp_plan_whole(const struct tp_plan *plan, struct tp_plan **whole);

void tp_plan_free(struct tp_plan *plan);

/* Reads plan.json. The model has only what the file says of it, the rest as GPT-2's. Local.
 * TP_ERR_INPUT names the file, the key and what was expected; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_plan_load(const char *path, struct tp_plan **plan);

/* Writes plan.json, by rename, with what a simulation predicts unless it is NULL. Local. TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status tp_plan_save(const struct tp_plan *plan, const struct tp_simulation *predicted,
                            const char *path);

#endif
