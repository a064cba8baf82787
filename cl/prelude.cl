// SPDX-License-Identifier: Apache-2.0
// What all kernels share. They come in two styles with the same names and arguments, for CPUs (cpu/) and for
// GPUs (gpu/). The host builds the files here and those of one style as one program, this one first, with
// HEAD_WIDTH (D), HEAD_STRIDE (D rounded up to 16, the width of a cached key), VECTOR_WIDTH (floats in a
// register of the device) and GROUP (work-items of a work-group) defined.
//
// Every sum has one order, whatever the device's parallelism. Kernels take a buffer and an offset in elements
// for each argument, since a view may begin anywhere.

#define D HEAD_WIDTH
#define DS HEAD_STRIDE
#define BLOCK 4096 // elements of a block, in kernels over flat arrays; TP_SUM_BLOCK of the host

// Where a row of a unit, [sequences][S], is in [sequences, T].
ulong place_of(ulong row, int S, int P, int T)
{
    return row / S * T + P + row % S;
}

// e^x within 2 ulp; exactly 0 below -87, so that masked scores leave no denormals behind; NaN stays NaN.
// Cody-Waite reduction, the polynomial of Cephes' expf, rounding by the bits of a float, scaling by a power
// of two made of them: a product, since a sum of bits would make numbers of some NaNs.
#define EXP(name, type, bits)                                                                                \
    type name(type x)                                                                                        \
    {                                                                                                        \
        const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer in the low bits */    \
        type c = select(x, (type)(88.0f), x > 88.0f);                                                        \
        type r = c * 1.44269504f + magic;                                                                    \
        type n = r - magic;                                                                                  \
        type f = c - n * 0.693359375f;                                                                       \
        f = f + n * 2.12194440e-4f;                                                                          \
        type p = (type)(1.9875691500e-4f);                                                                   \
        p = p * f + 1.3981999507e-3f;                                                                        \
        p = p * f + 8.3334519073e-3f;                                                                        \
        p = p * f + 4.1665795894e-2f;                                                                        \
        p = p * f + 1.6666665459e-1f;                                                                        \
        p = p * f + 5.0000001201e-1f;                                                                        \
        p = p * (f * f) + f + 1.0f;                                                                          \
        type e = p * as_##type((as_##bits(r) << 23) + 0x3f800000);                                           \
        return select(e, (type)(0.0f), x < -87.0f);                                                          \
    }
