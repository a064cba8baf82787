/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of one stage: a flat list of actions. A stage does one after the other. */
#ifndef TP_PLAN_SCHEDULE_H
#define TP_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/sizes.h"
#include "model/slice.h"
#include "plan/plan.h"

/* ---- What is computed, and in which order ---- */

/* The slices of all groups, in order: their number; the slices themselves, units[count], without
 * rows and slots. Local. */
int tp_units_count(const struct tp_plan *plan);
void tp_units_cut(const struct tp_plan *plan, struct tp_unit *units);

/* Index of the unit that is computed at a place of a direction's order: forward as they are,
 * backward the slices of each group in reverse. Also, since reversing twice changes nothing, the
 * place of a unit. Local. */
int tp_units_at(const struct tp_unit *units, enum tp_direction direction, int place);

/* Walks through the order in which a stage computes, which is fixed beforehand: in each flight some
 * forwards, then forward and backward in turn, then the backwards that are left. */
struct tp_turns {
    const struct tp_plan *plan;
    int stage;
    int n_units;     /* of the step */
    int slices;      /* of the group with most */
    int flight;      /* the next one */
    int group, unit; /* first ones of it */
    int first;       /* place of the present flight's first unit */
    int units;       /* of the present flight */
    int warm_up;     /* its forwards before the first backward */
    int done[2];     /* of it, per direction */
};
void tp_turns_init(struct tp_turns *turns, const struct tp_plan *plan, int stage);

/* The next turn: a direction and the place in its order. False: the step is over. Local. */
bool tp_turns_next(struct tp_turns *turns, enum tp_direction *direction, int *place);

/* How many places ahead of its turn a unit's receive is posted, within its flight: the first ones
 * at the beginning of it; 0 when the stage receives no such messages. Local. */
int tp_turns_ahead(const struct tp_turns *turns, enum tp_direction direction);

/* What a stage has to hold for a step of the plan, whose units are given, as tp_units_cut() made
 * them; gives them their places on that stage. Rows live from a unit's forward to its backward, its
 * input from the post of its receive (without one, the forward), a group's keys and values from its
 * first forward to its last backward; with delayed weight gradients a group's rows and inputs are
 * one piece, which lives from its first to its last. First fit, in equal places where that needs
 * less: exactly the most that is alive at once when units are of one size or none ends before all
 * have begun, and never more than the units alive at once times the largest. Local. TP_ERR_MEMORY.
 */
enum tp_status tp_plan_stage_shape(const struct tp_plan *plan, struct tp_unit *units, int stage,
                                   struct tp_stage_shape *shape);

/* ---- The list of a stage ---- */

enum tp_action_kind {
    TP_ACTION_POST_RECEIVE, /* receive a unit's message, forward from stage k-1, backward from stage
                               k+1, as soon as all computing listed before it is done, and weight
                               gradients that were delayed behind it: only then nothing reads the
                               memory that the list gives it; the list goes on */
    TP_ACTION_WAIT_RECEIVE, /* until it is there */
    TP_ACTION_COMPUTE,      /* forward or backward of a unit; enqueued, in order */
    TP_ACTION_POST_SEND,    /* send the unit's result once it is computed: forward to stage k+1,
                               backward to stage k-1; the list goes on */
    TP_ACTION_WAIT_SEND,    /* until its memory may be written again */
    TP_ACTION_REDUCE, /* until all is computed; tied gradients, norm and loss over all stages */
    TP_ACTION_UPDATE  /* AdamW, unless loss or norm is not finite */
};

struct tp_action {
    enum tp_action_kind kind;
    enum tp_direction direction;
    int unit; /* index into the units; -1 for reduce and update */
};

struct tp_schedule {
    int stage, n_stages;
    int n_units;
    struct tp_unit *units; /* groups in order, slices in order; the same on every stage */
    int n_actions;
    struct tp_action *actions;
    /* What the stage has to hold, as struct tp_stage_shape says. */
    size_t rows, input_rows, unit_rows;
    int batch, caches, group, slots;
    bool alternates, delay_wgrad;
};

/* Message slots per direction, unless there are fewer units: what a stage sends or receives ahead.
 */
#define TP_SCHEDULE_SLOTS 4

/* The list of one stage under plan->schedule: the turns of tp_turns_next(), then one reduce and one
 * update. A receive into memory is posted, and a result is computed into it, only after its last
 * use is over:
 * - rows hold a unit's activations, from the forward to the backward; its input, which its message
 *   brings, is there from the post of the receive. Without backward both are over once the forward
 * is computed. With delayed weight gradients a backward is over when its group's last one is.
 * - a group's keys and values, from its first forward to the backward of its first slice; without
 *   backward to the forward of its last slice.
 * - a forward slot holds a result to send, from the forward to the end of its send; none on the
 *   last stage.
 * - a backward slot holds a gradient that is received, changed in place and sent, from the receive
 *   (on the last stage, the backward) to the end of its send (on the first, the backward).
 * Local. TP_ERR_MEMORY. */
enum tp_status tp_schedule_new(const struct tp_plan *plan, int stage,
                               struct tp_schedule **schedule);
void tp_schedule_free(struct tp_schedule *schedule);

/* Makes a shape as large as the schedule needs it, if it is not. Local. */
void tp_schedule_widen(const struct tp_schedule *schedule, struct tp_stage_shape *shape);

/* tp_units_at() of the schedule's units. Local. */
int tp_schedule_unit_at(const struct tp_schedule *schedule, enum tp_direction direction, int place);

/* Does a stage receive, or send, messages of that direction? Local. */
bool tp_schedule_receives(const struct tp_schedule *schedule, enum tp_direction direction);
bool tp_schedule_sends(const struct tp_schedule *schedule, enum tp_direction direction);

/* Replays the lists of all stages, schedules[K], with no buffering in between (a send completes
 * only once its receive is posted) and checks: all stages have the same units, every receive has
 * its send and the other way round and each is waited for, no memory is written while it is in use,
 * each unit is computed once per direction on each stage and only with its message there, in the
 * order that tp_schedule_new() promises, reduce and update end the lists that go backward, and
 * nothing deadlocks. Local. TP_ERR_INPUT says which rule broke, on which stage, at which action;
 * TP_ERR_MEMORY. */
enum tp_status tp_schedule_check(const struct tp_schedule *const *schedules, int n_stages);

#endif
