/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/sampler.h"

#include <stdlib.h>

#include "base/rng.h"

enum tp_status tp_sampler_init(struct tp_sampler *sampler, enum tp_sampler_kind kind, uint64_t seed,
                               int64_t samples)
{
    int64_t *permutation = NULL;

    if (kind == TP_SAMPLER_SHUFFLE) {
        permutation = calloc((size_t)samples, sizeof *permutation);
        if (!permutation)
            return tp_fail(TP_ERR_MEMORY, "no memory to shuffle %lld samples", (long long)samples);
    }
    *sampler = (struct tp_sampler){
        .kind = kind, .seed = seed, .samples = samples, .epoch = -1, .permutation = permutation};
    return TP_OK;
}

void tp_sampler_fini(struct tp_sampler *sampler)
{
    free(sampler->permutation);
    *sampler = (struct tp_sampler){0};
}

/* Fisher and Yates's shuffle with an epoch's own numbers. */
static void shuffle(struct tp_sampler *sampler, int64_t epoch)
{
    struct tp_rng rng = {.seed = sampler->seed, .use = TP_RNG_SHUFFLE, .stream = (uint32_t)epoch};
    int64_t *at = sampler->permutation;

    for (int64_t i = 0; i < sampler->samples; i++)
        at[i] = i;
    for (int64_t i = sampler->samples - 1; i > 0; i--) {
        int64_t other = (int64_t)tp_rng_below(&rng, (uint64_t)i, (uint64_t)i + 1);
        int64_t kept = at[i];
        at[i] = at[other];
        at[other] = kept;
    }
    sampler->epoch = epoch;
}

int64_t tp_sampler_at(struct tp_sampler *sampler, int64_t n)
{
    int64_t epoch = n / sampler->samples;

    if (sampler->kind == TP_SAMPLER_SEQUENTIAL)
        return n % sampler->samples;
    if (epoch != sampler->epoch)
        shuffle(sampler, epoch);
    return sampler->permutation[n % sampler->samples];
}
