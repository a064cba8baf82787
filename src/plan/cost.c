/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "plan/cost.h"

bool tp_cost_fits(const struct tp_cost *cost, int pipe, int op)
{
    return cost->op == op && (cost->n_ranks == 0 || cost->n_ranks == pipe * op) &&
           (cost->n_links == 0 || cost->n_links == pipe - 1);
}

enum tp_status tp_cost_check_delay(const struct tp_cost *cost, bool delay_wgrad)
{
    char place[TP_COST_PLACE];

    if (delay_wgrad == (cost->gradient != NULL))
        return TP_OK;
    return tp_fail(TP_ERR_INPUT,
                   delay_wgrad
                       ? "%sthere are no times of weight gradients alone, expected a profile that "
                         "was made with --delay-wgrad-compute"
                       : "%sweight gradients have times of their own, expected a profile that was "
                         "made without --delay-wgrad-compute",
                   tp_cost_place(cost, -1, "gradient", place));
}

bool tp_cost_is_time(double seconds)
{
    return seconds >= 0 && isfinite(seconds);
}

const char *tp_cost_place(const struct tp_cost *cost, int device, const char *key,
                          char place[static TP_COST_PLACE])
{
    const bool listed = device >= 0 && (cost->n_devices > 1 || cost->n_ranks > 0);
    char list[32] = "";

    place[0] = '\0';
    if (listed)
        snprintf(list, sizeof list, "devices[%d].", device);
    if (cost->file != NULL)
        snprintf(place, TP_COST_PLACE, "%.150s: %s%.60s: ", cost->file, list, key);
    return place;
}

const char *tp_cost_layer_place(const struct tp_cost *cost, int device, enum tp_direction direction,
                                int b, int s, int c, char place[static TP_COST_PLACE])
{
    static const char *const keys[2][2] = {{"layer.forward.base", "layer.forward.context"},
                                           {"layer.backward.base", "layer.backward.context"}};
    const double base = cost->layer(cost->self, device, direction, b, s, 0);
    const bool context = c > 0 && tp_cost_is_time(base);

    return tp_cost_place(cost, device, keys[direction][context], place);
}
