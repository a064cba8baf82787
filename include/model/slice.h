/* SPDX-License-Identifier: Apache-2.0 */
/* The unit of pipelined work: a token slice of a group of sequences. */
#ifndef TP_MODEL_SLICE_H
#define TP_MODEL_SLICE_H

#include <stddef.h>

enum tp_direction { TP_FORWARD, TP_BACKWARD };

struct tp_slice {
    int group;  /* in order of execution */
    int start;  /* P: tokens before it */
    int length; /* S */
};

/* A slice with all that a stage needs to run it. Its activations are rows * C matrices; row
 * b * S + i is token start + i of sequence first_sequence + b. */
struct tp_unit {
    struct tp_slice slice;
    int index;          /* place in the list of units: identifies the unit in messages */
    int number;         /* of the slice within its group, from 0 */
    int last;           /* number of the group's last slice */
    int first_sequence; /* of the group, in the replica's batch */
    int sequences;      /* of the group */

    /* Where a stage keeps it; each stage has its own. */
    size_t row;       /* first row in the memory for live activations */
    size_t input_row; /* first row in the memory for what comes into the stage */
    int cache;        /* first sequence of its group in the memory for keys and values */
    int slot[2];      /* message slot per direction, in [0, slots): place in that direction's order
                         modulo slots */
};

static inline size_t tp_unit_rows(const struct tp_unit *unit)
{
    return (size_t)unit->sequences * (size_t)unit->slice.length;
}

#endif
