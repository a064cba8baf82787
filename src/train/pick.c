/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "train/pick.h"

enum tp_status tp_picker_init(struct tp_picker *picker, int vocab_size, double temperature,
                              int top_k, double top_p)
{
    struct tp_candidate *candidates = malloc((size_t)vocab_size * sizeof *candidates);

    if (!candidates)
        return tp_fail(TP_ERR_MEMORY, "no memory to pick from %d tokens", vocab_size);
    *picker = (struct tp_picker){.vocab_size = vocab_size,
                                 .temperature = temperature,
                                 .top_k = top_k,
                                 .top_p = top_p,
                                 .candidates = candidates};
    return TP_OK;
}

void tp_picker_fini(struct tp_picker *picker)
{
    free(picker->candidates);
    picker->candidates = NULL;
}

/* The most likely first; of equals the lower token, so that the order is one on every machine. */
static int by_logit(const void *a, const void *b)
{
    const struct tp_candidate *x = a, *y = b;

    if (x->logit != y->logit)
        return x->logit > y->logit ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* Softmax over the first count candidates. */
static void normalise(struct tp_candidate *candidates, int count, double temperature)
{
    double top = candidates[0].logit, sum = 0;

    for (int i = 0; i < count; i++) {
        candidates[i].probability = exp((candidates[i].logit - top) / temperature);
        sum += candidates[i].probability;
    }
    for (int i = 0; i < count; i++)
        candidates[i].probability /= sum;
}

/* The fewest leading candidates whose probabilities reach p. */
static int reach(const struct tp_candidate *candidates, int count, double p)
{
    double sum = 0;

    for (int i = 0; i < count; i++) {
        sum += candidates[i].probability;
        if (sum >= p)
            return i + 1;
    }
    return count;
}

int tp_picker_keep(struct tp_picker *picker, const float *logits)
{
    struct tp_candidate *candidates = picker->candidates;
    int count = picker->vocab_size;

    for (int i = 0; i < count; i++)
        candidates[i] = (struct tp_candidate){.token = i, .logit = logits[i]};
    qsort(candidates, (size_t)count, sizeof *candidates, by_logit);
    if (picker->temperature == 0) {
        candidates[0].probability = 1;
        return 1;
    }
    if (picker->top_k > 0 && picker->top_k < count)
        count = picker->top_k;
    normalise(candidates, count, picker->temperature);
    int kept = picker->top_p < 1 ? reach(candidates, count, picker->top_p) : count;
    normalise(candidates, kept, picker->temperature);
    return kept;
}

int tp_picker_pick(struct tp_picker *picker, const float *logits, double uniform)
{
    int kept = tp_picker_keep(picker, logits);
    double sum = 0;

    for (int i = 0; i < kept - 1; i++) {
        sum += picker->candidates[i].probability;
        if (uniform < sum)
            return picker->candidates[i].token;
    }
    return picker->candidates[kept - 1].token;
}
