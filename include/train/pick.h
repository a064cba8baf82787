/* SPDX-License-Identifier: Apache-2.0 */
/* Picks the next token of a text from logits. */
#ifndef TP_TRAIN_PICK_H
#define TP_TRAIN_PICK_H

#include "base/status.h"

struct tp_candidate {
    int token;
    double logit, probability;
};

struct tp_picker {
    int vocab_size;
    double temperature; /* 0: always the most likely token, the lowest of equals */
    int top_k;          /* the k most likely tokens only; 0: all */
    double top_p;       /* of these the fewest most likely ones whose probabilities reach p */
    struct tp_candidate *candidates; /* [vocab_size] */
};

/* Local. TP_ERR_MEMORY. */
enum tp_status tp_picker_init(struct tp_picker *picker, int vocab_size, double temperature,
                              int top_k, double top_p);
void tp_picker_fini(struct tp_picker *picker);

/* How many candidates stay, given finite logits[vocab_size]: they come first in candidates, the
 * most likely one leading, with probabilities that add up to 1. Local. */
int tp_picker_keep(struct tp_picker *picker, const float *logits);

/* The token that a uniform number in [0, 1) picks among those that stay. Local. */
int tp_picker_pick(struct tp_picker *picker, const float *logits, double uniform);

#endif
