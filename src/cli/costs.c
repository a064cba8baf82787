/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "cli/costs.h"

static enum tp_status load_profile(struct tp_costs *costs, const char *path,
                                   const struct tp_model *model)
{
    struct tp_profile *profile;
    const int n = costs->n_profiles;

    TP_TRY(tp_profile_load(path, &profile));
    costs->profiles[costs->n_profiles++] = profile;
    TP_TRY(tp_profile_check(profile, path, model, profile->op));
    tp_profile_cost(profile, &costs->measured[n]);
    for (int i = 0; i < n; i++)
        if (costs->profiles[i]->op == profile->op)
            return tp_fail(TP_ERR_INPUT,
                           "%s: op is %d, as in another profile, expected one for each "
                           "op degree",
                           path, profile->op);
    return TP_OK;
}

static enum tp_status load_profiles(struct tp_costs *costs, const struct tp_option_list *paths,
                                    const struct tp_model *model)
{
    costs->profiles = calloc((size_t)paths->count, sizeof(struct tp_profile *));
    costs->measured = calloc((size_t)paths->count, sizeof *costs->measured);
    if (costs->profiles == NULL || costs->measured == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d profiles", paths->count);
    for (int i = 0; i < paths->count; i++)
        TP_TRY(load_profile(costs, paths->at[i], model));
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
    for (int i = 0; i < costs->n_profiles; i++)
        tp_profile_free(costs->profiles[i]);
    free(costs->profiles);
    free(costs->measured);
    costs->profiles = NULL;
    costs->measured = NULL;
    costs->n_profiles = 0;
}

enum tp_status tp_costs_find(struct tp_costs *costs, const struct tp_settings *settings,
                             const struct tp_model *model, int pipe, int op,
                             const struct tp_cost **cost)
{
    if (costs->estimated) {
        tp_estimate_init(&costs->estimate, &costs->hardware, model, pipe, op, &costs->one);
        *cost = &costs->one;
        return TP_OK;
    }
    for (int i = 0; i < costs->n_profiles; i++)
        if (costs->measured[i].op == op) {
            *cost = &costs->measured[i];
            return TP_OK;
        }
    return tp_profile_check(costs->profiles[0], settings->profiles.at[0], model, op);
}
