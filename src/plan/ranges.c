/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "ranges.h"

size_t tp_ranges_fit(const struct tp_ranges *ranges, size_t count)
{
    size_t first = 0;

    for (int i = 0; i < ranges->count && ranges->at[i].first - first < count; i++)
        first = ranges->at[i].end;
    return first;
}

/* The first range that ends behind a place. */
static int find(const struct tp_ranges *ranges, size_t place)
{
    int low = 0, high = ranges->count;

    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (ranges->at[middle].end > place)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool tp_ranges_are_free(const struct tp_ranges *ranges, size_t first, size_t count)
{
    const int i = find(ranges, first);

    return i == ranges->count || ranges->at[i].first >= first + count;
}

/* Puts kept ranges in place of gone ones at i; their contents are the caller's. */
static void replace(struct tp_ranges *ranges, int i, int gone, int kept)
{
    struct tp_range *at = &ranges->at[i];

    memmove(at + kept, at + gone, (size_t)(ranges->count - i - gone) * sizeof *at);
    ranges->count += kept - gone;
}

void tp_ranges_take(struct tp_ranges *ranges, size_t first, size_t count)
{
    struct tp_range taken = {first, first + count};
    int i = find(ranges, first), gone = 0;

    if (i < ranges->count && ranges->at[i].first == taken.end) {
        taken.end = ranges->at[i].end;
        gone++;
    }
    if (i > 0 && ranges->at[i - 1].end == taken.first) {
        taken.first = ranges->at[--i].first;
        gone++;
    }
    replace(ranges, i, gone, 1);
    ranges->at[i] = taken;
}

void tp_ranges_give_back(struct tp_ranges *ranges, size_t first, size_t count)
{
    const int i = find(ranges, first);
    const struct tp_range before = {ranges->at[i].first, first},
                          behind = {first + count, ranges->at[i].end};
    const int n_before = before.first < before.end, n_behind = behind.first < behind.end;

    replace(ranges, i, 1, n_before + n_behind);
    if (n_before)
        ranges->at[i] = before;
    if (n_behind)
        ranges->at[i + n_before] = behind;
}
