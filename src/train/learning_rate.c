/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stddef.h>

#include "train/learning_rate.h"

const char *const tp_decay_choices[] = {"constant", "linear", "cosine", NULL};

static const double pi = 3.14159265358979323846;

/* How far the decay has come at a step after the warm-up: 0 to 1. */
static double progress(const struct tp_learning_rate *rate, int64_t step)
{
    if (step >= rate->decay || rate->decay <= rate->warmup)
        return 1;
    return (double)(step - rate->warmup) / (double)(rate->decay - rate->warmup);
}

double tp_learning_rate_at(const struct tp_learning_rate *rate, int64_t step)
{
    double span = rate->lr - rate->min;

    if (step < rate->warmup)
        return rate->lr * (double)(step + 1) / (double)(rate->warmup + 1);
    switch (rate->style) {
    case TP_DECAY_LINEAR:
        return rate->min + (1 - progress(rate, step)) * span;
    case TP_DECAY_COSINE:
        return rate->min + 0.5 * (1 + cos(pi * progress(rate, step))) * span;
    case TP_DECAY_CONSTANT:
        break;
    }
    return rate->lr;
}
