/* SPDX-License-Identifier: Apache-2.0 */
/* Where a training stands, beside weights and moments: state.json of a checkpoint. */
#ifndef TP_TRAIN_STATE_H
#define TP_TRAIN_STATE_H

#include <stdint.h>

#include "base/status.h"

struct tp_state {
    int64_t step;    /* steps done */
    int64_t samples; /* sequences taken from the sampler */
    int64_t skipped; /* steps whose update was not applied */
    int tokenizer;   /* enum tp_tokenizer of the training text */
    int sampler;     /* enum tp_sampler_kind */
    int seq_len;
    uint64_t seed;
};

/* Local. TP_ERR_INPUT names the file and the key that is missing or wrong; TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status tp_state_load(const char *path, struct tp_state *state);
enum tp_status tp_state_save(const struct tp_state *state, const char *path);

#endif
