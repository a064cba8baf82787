/* SPDX-License-Identifier: Apache-2.0 */
/* How one sequence is cut. */
#ifndef TP_PLAN_SLICES_H
#define TP_PLAN_SLICES_H

#include "base/status.h"

struct tp_slices {
    int count;
    int *lengths; /* tokens, each >= 1 */
};

/* N slices of T tokens as equal as can be: the first T mod N are one token longer. Local.
 * TP_ERR_USAGE when N < 1 or N > T. */
enum tp_status tp_slices_uniform(int seq_len, int count, struct tp_slices *slices);

/* "N" (uniform) or "776,640,632" (explicit, summing to T). Local. TP_ERR_USAGE names --slices, the
 * text and what was expected. */
enum tp_status tp_slices_parse(const char *text, int seq_len, struct tp_slices *slices);

enum tp_status tp_slices_copy(const struct tp_slices *from, struct tp_slices *to);
void tp_slices_fini(struct tp_slices *slices);

#endif
