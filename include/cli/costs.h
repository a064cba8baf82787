/* SPDX-License-Identifier: Apache-2.0 */
/* Costs as --profile and --hardware say. */
#ifndef TP_CLI_COSTS_H
#define TP_CLI_COSTS_H

#include "base/status.h"
#include "plan/profile.h"
#include "plan/search.h"
#include "train/settings.h"

struct tp_costs {
    bool estimated;
    struct tp_hardware hardware; /* if so, else */
    struct tp_profiles profiles;
    struct tp_cost *measured; /* [profiles.count] */

    bool delay_wgrad; /* estimates are for plans that delay weight gradients: set by the caller */

    /* of one op degree */
    struct tp_estimate estimate;
    struct tp_cost one;
};

/* Reads what exactly one of the two options names, for a model. The costs must stay where they are.
 * Local. TP_ERR_USAGE for both or none; TP_ERR_INPUT, TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_costs_init(struct tp_costs *costs, const struct tp_settings *settings,
                             const struct tp_model *model);
void tp_costs_fini(struct tp_costs *costs);

/* The cost for these degrees. Local. TP_ERR_INPUT when no profile is for them. */
enum tp_status tp_costs_find(struct tp_costs *costs, const struct tp_model *model, int pipe, int op,
                             const struct tp_cost **cost);

#endif
