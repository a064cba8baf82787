/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule of one stage: a flat list of actions. A stage does one after the other. */
#ifndef TP_PLAN_SCHEDULE_H
#define TP_PLAN_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "model/slice.h"
#include "plan/plan.h"

enum tp_action_kind {
    TP_ACTION_POST_RECEIVE, /* receive a unit's message, forward from stage k-1, backward from stage
                               k+1, as soon as all computing listed before it is done: only then
                               nothing reads the memory that the list gives it; the list goes on */
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
    size_t rows;      /* tokens with live activations at most */
    size_t unit_rows; /* tokens of the largest unit */
    int group;        /* sequences of the largest group */
    int slots;        /* message slots per direction */
};

/* Message slots per direction, unless there are fewer units: what a stage sends or receives ahead.
 */
#define TP_SCHEDULE_SLOTS 4

/* The list of one stage under plan->schedule. Forwards go in order of groups and slices; backwards
 * in order of groups, the slices of a group in reverse. A receive into memory is posted, and a
 * result is computed into it, only after its last use is over:
 * - rows hold a unit's activations, its message first, from the receive to the backward. Without
 *   backward they are reused, row = slot * unit_rows, from the receive to the forward.
 * - a forward slot holds a result to send, from the forward to the end of its send; none on the
 *   last stage.
 * - a backward slot holds a gradient that is received, changed in place and sent, from the receive
 *   (on the last stage, the backward) to the end of its send (on the first, the backward).
 * Local. TP_ERR_MEMORY. */
enum tp_status tp_schedule_new(const struct tp_plan *plan, int stage,
                               struct tp_schedule **schedule);
void tp_schedule_free(struct tp_schedule *schedule);

/* Index of the unit that is computed at a place of a direction's order; also, since reversing twice
 * changes nothing, the place of a unit. Local. */
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
