/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over op ranks, between two kernels. */
#include "config.h"

#include "base/clock.h"
#include "parts.h"

void tp_cell_set_reduce(struct tp_cell *cell, const struct tp_reduce *reduce)
{
    cell->reduce = *reduce;
}

static enum tp_status wait_politely(struct tp_cell *cell, struct tp_mapping *mapping)
{
    const double since = tp_clock_now();

    for (;;) {
        bool ready;
        TP_TRY(tp_mapping_ready(mapping, &ready));
        if (ready)
            return TP_OK;
        TP_TRY(cell->reduce.idle(cell->reduce.self, since));
    }
}

enum tp_status tp_cell_reduce(struct tp_cell *cell, enum tp_reduction reduction,
                              struct tp_view data, size_t count)
{
    struct tp_mapping mapping;

    if (cell->shape.op <= 1)
        return TP_OK;
    TP_TRY(tp_mapping_begin(cell->device, data, count, TP_ACCESS_CHANGE, &mapping));
    TP_TRY(wait_politely(cell, &mapping));
    TP_TRY(cell->reduce.all(cell->reduce.self, reduction, mapping.data, count));
    return tp_mapping_end(&mapping);
}
