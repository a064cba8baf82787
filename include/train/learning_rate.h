/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_TRAIN_LEARNING_RATE_H
#define TP_TRAIN_LEARNING_RATE_H

#include <stdint.h>

enum tp_decay_style { TP_DECAY_CONSTANT, TP_DECAY_LINEAR, TP_DECAY_COSINE };
extern const char *const tp_decay_choices[]; /* in the enum's order, NULL-terminated */

struct tp_learning_rate {
    double lr, min;
    int64_t warmup, decay; /* steps; decay counts from step 0 */
    enum tp_decay_style style;
};

/* The rate of a step, counted from 0: lr (i + 1) / (w + 1) for i < w; then, with r = (i - w) /
 * (d - w) clipped to 1, lr for constant, min + (1 - r) (lr - min) for linear and min + (1 + cos pi
 * r) (lr - min) / 2 for cosine. Local. */
double tp_learning_rate_at(const struct tp_learning_rate *rate, int64_t step);

#endif
