/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/rng.h"

#include <math.h>

#include <Random123/philox.h>

void tp_rng_block(const struct tp_rng *rng, uint64_t position, uint32_t out[4])
{
    philox4x32_ctr_t counter = {
        {(uint32_t)position, (uint32_t)(position >> 32), rng->stream, (uint32_t)rng->use}};
    philox4x32_key_t key = {{(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)}};
    philox4x32_ctr_t block = philox4x32_R(10, counter, key);

    for (int i = 0; i < 4; i++)
        out[i] = block.v[i];
}

/* 64 random bits of a position. */
static uint64_t bits(const struct tp_rng *rng, uint64_t position)
{
    uint32_t block[4];

    tp_rng_block(rng, position, block);
    return (uint64_t)block[1] << 32 | block[0];
}

double tp_rng_uniform(const struct tp_rng *rng, uint64_t position)
{
    return (double)(bits(rng, position) >> 11) * 0x1p-53;
}

/* The upper half of the 128-bit product. */
static uint64_t multiply_high(uint64_t a, uint64_t b)
{
    uint64_t a0 = (uint32_t)a, a1 = a >> 32;
    uint64_t b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t middle = a1 * b0 + (a0 * b0 >> 32);
    uint64_t carry = (uint32_t)middle + a0 * b1;

    return a1 * b1 + (middle >> 32) + (carry >> 32);
}

uint64_t tp_rng_below(const struct tp_rng *rng, uint64_t position, uint64_t bound)
{
    return multiply_high(bits(rng, position), bound);
}

/* Box-Muller: two uniform numbers make two normal ones. */
static void box_muller(uint32_t a, uint32_t b, double out[2])
{
    double radius = sqrt(-2 * log(((double)a + 0.5) * 0x1p-32));
    double angle = 6.283185307179586476925286766559 * ((double)b * 0x1p-32);

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}

void tp_rng_normal(const struct tp_rng *rng, uint64_t first, size_t count, double std, float *out)
{
    double normal[4]; /* the four elements of one block */
    uint32_t block[4];

    for (size_t i = 0; i < count; i++) {
        uint64_t element = first + i;
        if (i == 0 || element % 4 == 0) {
            tp_rng_block(rng, element / 4, block);
            box_muller(block[0], block[1], normal);
            box_muller(block[2], block[3], normal + 2);
        }
        out[i] = (float)(std * normal[element % 4]);
    }
}

uint64_t tp_dropout_key(uint64_t seed, int64_t step, enum tp_dropout_place place, int layer)
{
    const struct tp_rng rng = {.seed = seed,
                               .use = TP_RNG_DROPOUT_KEY,
                               .stream = (uint32_t)(layer * TP_DROPOUT_PLACES + (int)place)};

    return bits(&rng, (uint64_t)step);
}

uint32_t tp_dropout_bits(uint64_t key, int sequence, int token, uint32_t index)
{
    const struct tp_rng rng = {.seed = key, .use = TP_RNG_DROPOUT, .stream = (uint32_t)sequence};
    uint32_t block[4];

    tp_rng_block(&rng, index / 4 | (uint64_t)token << 32, block);
    return block[index % 4];
}
