/* SPDX-License-Identifier: Apache-2.0 */
/* The model once more, as plain loops in double precision over whole sequences: what the program's
 * losses, gradients and updates are compared with. Written to be read, not to be fast. Without
 * memory it ends the test. */
#ifndef TP_TESTS_ORACLE_H
#define TP_TESTS_ORACLE_H

#include <stdint.h>

#include "cell/stage.h"
#include "model/parameters.h"

/* Masks as the program draws them (base/rng.h); p 0: none. */
struct oracle_dropout {
    double p;
    uint64_t seed;
    int64_t step;
    int first_sequence; /* number of the first one in the global batch */
};

struct oracle {
    struct tp_model model;
    struct oracle_dropout dropout;
    struct tp_parameters parameters;
    /* One array for each row of the parameter table, in its layout. */
    double **weights, **gradients, **moments_1, **moments_2;
};

/* All zeros. */
struct oracle *oracle_new(const struct tp_model *model);
void oracle_free(struct oracle *oracle);

/* Mean cross-entropy in nats of inputs[B, T] against targets[B, T]. */
double oracle_loss(struct oracle *oracle, const int32_t *inputs, const int32_t *targets, int B,
                   int T);

/* The same, and its gradient with respect to every weight, in oracle->gradients. */
double oracle_loss_and_gradients(struct oracle *oracle, const int32_t *inputs,
                                 const int32_t *targets, int B, int T);

/* L2 norm of all gradients. */
double oracle_norm(const struct oracle *oracle);

/* One update by AdamW, gradients scaled by clip / (norm + 1e-6) when that is below 1 (not at all
 * for clip 0); decay where the table says so. adamw->step is 1 for the first update. Returns the
 * norm before clipping. */
double oracle_adamw(struct oracle *oracle, const struct tp_adamw *adamw, double clip);

#endif
