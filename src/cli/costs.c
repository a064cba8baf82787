/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "cli/costs.h"

static enum tp_status load_profiles(struct tp_costs *costs, const struct tp_option_list *paths,
                                    const struct tp_model *model)
{
    TP_TRY(tp_profiles_load(paths, model, &costs->profiles));
    costs->measured = calloc((size_t)paths->count, sizeof *costs->measured);
    if (costs->measured == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d profiles", paths->count);
    for (int i = 0; i < paths->count; i++)
        tp_profile_cost(costs->profiles.at[i], &costs->measured[i]);
    return TP_OK;
}

enum tp_status tp_costs_init(struct tp_costs *costs, const struct tp_settings *settings,
                             const struct tp_model *model)
{
    const bool measured = settings->profiles.count > 0;

    *costs = (struct tp_costs){.estimated = settings->hardware != NULL};
    if (costs->estimated == measured)
        return tp_fail(TP_ERR_USAGE, "--profile, --hardware: %s, expected one of the two",
                       measured ? "both are given" : "neither is given");
    enum tp_status status = measured ? load_profiles(costs, &settings->profiles, model)
                                     : tp_hardware_find(settings->hardware, &costs->hardware);
    if (status != TP_OK)
        tp_costs_fini(costs);
    return status;
}

void tp_costs_fini(struct tp_costs *costs)
{
    tp_profiles_fini(&costs->profiles);
    free(costs->measured);
    costs->measured = NULL;
}

enum tp_status tp_costs_find(struct tp_costs *costs, const struct tp_model *model, int pipe, int op,
                             const struct tp_cost **cost)
{
    int index = 0;

    if (costs->estimated) {
        tp_estimate_init(&costs->estimate, &costs->hardware, model, pipe, op, &costs->one);
        if (costs->delay_wgrad)
            tp_estimate_delay(&costs->estimate, &costs->one);
        *cost = &costs->one;
        return TP_OK;
    }
    TP_TRY(tp_profiles_find(&costs->profiles, pipe, op, &index));
    *cost = &costs->measured[index];
    return TP_OK;
}
