/* SPDX-License-Identifier: Apache-2.0 */
/* Costs that a few numbers decide, for tests of planning. */
#ifndef TP_TESTS_FAKE_COST_H
#define TP_TESTS_FAKE_COST_H

#include <stdbool.h>

#include "plan/cost.h"

enum { FAKE_DEVICES = 3, FAKE_RANKS = 16 };

struct fake_cost {
    double fixed, token, context; /* seconds of one layer: once, per token, per token and context */
    double floor;                 /* no layer takes less */
    double backward;              /* times the forward */
    double slow[FAKE_DEVICES];    /* times a device's seconds */
    double embed, head;           /* seconds per token */
    double latency, byte;         /* of a link */
    double bump;                  /* more for some lengths, so that times are not smooth */
    unsigned missing;             /* bit b: there are no times of b sequences */
    struct tp_cost_device devices[FAKE_DEVICES];
    int ranks[FAKE_RANKS];
    struct tp_cost cost;
};

/* One device, all else 0 but the layer's times. The fake must stay where it is. */
void fake_cost_init(struct fake_cost *fake);

/* Ranks have devices 0, 1, 2, 0, ... which are slower by these factors. */
void fake_cost_mix(struct fake_cost *fake, double second, double third);

#endif
