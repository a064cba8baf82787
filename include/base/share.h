/* SPDX-License-Identifier: Apache-2.0 */
/* The one rule by which a number of things is dealt out in parts: the first (whole mod parts) parts
 * have one more than the others. Sequences over replicas, columns over op ranks, layers over
 * stages, moments over replicas, sequences over flights. */
#ifndef TP_BASE_SHARE_H
#define TP_BASE_SHARE_H

#include <stddef.h>

struct tp_share {
    size_t first, count; /* [first, first + count) */
};

/* Part number part of parts. Local. */
static inline struct tp_share tp_share_of(size_t whole, int parts, int part)
{
    const size_t n = (size_t)parts, i = (size_t)part, more = whole % n;
    return (struct tp_share){.first = i * (whole / n) + (i < more ? i : more),
                             .count = whole / n + (i < more)};
}

#endif
