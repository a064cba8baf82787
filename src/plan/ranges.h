/* SPDX-License-Identifier: Apache-2.0 */
/* Which parts of some memory are in use: a list of ranges, for those who place units and those who
 * check how they were placed. */
#ifndef TP_PLAN_RANGES_H
#define TP_PLAN_RANGES_H

#include <stdbool.h>
#include <stddef.h>

/* Ranges in use, ascending, none touching the next. */
struct tp_ranges {
    struct tp_range {
        size_t first, end;
    } * at;    /* room for one more than are ever in use at once */
    int count; /* of ranges */
};

/* The lowest place where so many are free. */
size_t tp_ranges_fit(const struct tp_ranges *ranges, size_t count);

/* Are [first, first + count) free? Then they may be taken, and given back. */
bool tp_ranges_are_free(const struct tp_ranges *ranges, size_t first, size_t count);
void tp_ranges_take(struct tp_ranges *ranges, size_t first, size_t count);
void tp_ranges_give_back(struct tp_ranges *ranges, size_t first, size_t count);

#endif
