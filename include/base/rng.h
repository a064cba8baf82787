/* SPDX-License-Identifier: Apache-2.0 */
/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC 2011), by Random123 on the host. A number depends on its key and counter alone, so
 * it is the same on every rank and in any order. */
#ifndef TP_BASE_RNG_H
#define TP_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* What a stream of numbers is for. Part of the counter, so streams never overlap. */
enum tp_rng_use {
    TP_RNG_INIT = 1,
    TP_RNG_SHUFFLE = 2,
    TP_RNG_SAMPLE = 3,
    TP_RNG_DROPOUT = 4, /* of cl/philox.cl too */
    TP_RNG_DROPOUT_KEY = 5
};

struct tp_rng {
    uint64_t seed;
    enum tp_rng_use use;
    uint32_t stream; /* which tensor, epoch, ... */
};

/* One block of four 32-bit numbers, at a position of the stream. Local. */
void tp_rng_block(const struct tp_rng *rng, uint64_t position, uint32_t out[4]);

/* A number in [0, 1) with 53 bits. Local. */
double tp_rng_uniform(const struct tp_rng *rng, uint64_t position);

/* A number in [0, bound), without bias that matters (64-bit multiply-shift); bound > 0. Local. */
uint64_t tp_rng_below(const struct tp_rng *rng, uint64_t position, uint64_t bound);

/* out[i] = std * N(0, 1) for element first + i of the stream (Box-Muller in double). Local. */
void tp_rng_normal(const struct tp_rng *rng, uint64_t first, size_t count, double std, float *out);

/* Where dropout happens: after the embedding, on attention weights, at the ends of the two residual
 * branches of a layer. */
enum tp_dropout_place {
    TP_DROPOUT_EMBEDDING,
    TP_DROPOUT_WEIGHTS,
    TP_DROPOUT_ATTENTION,
    TP_DROPOUT_MLP,
    TP_DROPOUT_PLACES
};

/* The key of a step's masks at a place of a layer (0 for the embedding). Local. */
uint64_t tp_dropout_key(uint64_t seed, int64_t step, enum tp_dropout_place place, int layer);

/* The bits by which an element is dropped or kept: of a token (its position) of a sequence (its
 * number in the global batch), the channel's or, on attention weights, head * n_positions (rounded
 * up to a multiple of 4) + key. What kernels compute. Local. */
uint32_t tp_dropout_bits(uint64_t key, int sequence, int token, uint32_t index);

#endif
