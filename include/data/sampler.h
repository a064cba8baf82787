/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_DATA_SAMPLER_H
#define TP_DATA_SAMPLER_H

#include <stdint.h>

#include "base/status.h"

enum tp_sampler_kind { TP_SAMPLER_SEQUENTIAL, TP_SAMPLER_SHUFFLE };

/* Which sample the n-th sequence of the training is: in order, or by a new permutation of all
 * samples each epoch. A function of seed and n alone (it keeps one epoch's permutation). */
struct tp_sampler {
    enum tp_sampler_kind kind;
    uint64_t seed;
    int64_t samples;
    int64_t epoch;        /* of the permutation; -1 before the first */
    int64_t *permutation; /* [samples] for TP_SAMPLER_SHUFFLE */
};

/* samples > 0. Local. TP_ERR_MEMORY. */
enum tp_status tp_sampler_init(struct tp_sampler *sampler, enum tp_sampler_kind kind, uint64_t seed,
                               int64_t samples);
void tp_sampler_fini(struct tp_sampler *sampler);

/* The sample of sequence n >= 0. Local. */
int64_t tp_sampler_at(struct tp_sampler *sampler, int64_t n);

#endif
