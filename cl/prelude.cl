// SPDX-License-Identifier: Apache-2.0
// What all kernels share. The host builds every file of this folder as one program, this one first,
// with HEAD_WIDTH (D), HEAD_STRIDE (D rounded up to 16, the width of a cached key) and VECTOR_WIDTH (floats in a
// register of the device) defined.
//
// Style: one row, column block or tile per work-item, and vectors of 16 inside it; every sum has one
// order, whatever the device's parallelism. Kernels take a buffer and an offset in elements for each
// argument, since a view may begin anywhere.

#define LANES 16
#define COLUMNS 64 // columns of a block, in kernels that sum over rows
#define BLOCK 4096 // elements of a block, in kernels over flat arrays; TP_SUM_BLOCK of the host

constant int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

// The first n of 16 numbers, zeros behind; n may be larger than 16.
float16 load(const global float *x, int n)
{
    if (n >= LANES)
        return vload16(0, x);
    float part[LANES] = {0};
    for (int i = 0; i < n; i++)
        part[i] = x[i];
    return vload16(0, part);
}

void store(float16 v, global float *x, int n)
{
    if (n >= LANES) {
        vstore16(v, 0, x);
        return;
    }
    float part[LANES];
    vstore16(v, 0, part);
    for (int i = 0; i < n; i++)
        x[i] = part[i];
}

float sum_lanes(float16 v)
{
    float8 a = v.lo + v.hi;
    float4 b = a.lo + a.hi;
    float2 c = b.lo + b.hi;
    return c.x + c.y;
}

float max_lanes(float16 v)
{
    float8 a = fmax(v.lo, v.hi);
    float4 b = fmax(a.lo, a.hi);
    float2 c = fmax(b.lo, b.hi);
    return fmax(c.x, c.y);
}

// e^x within 2 ulp; exactly 0 below -87, so that masked scores leave no denormals behind; NaN stays NaN.
// Cody-Waite reduction, the polynomial of Cephes' expf, rounding by the bits of a float, scaling by a power of
// two made of them: a product, since a sum of bits would make numbers of some NaNs.
float16 exp_lanes(float16 x)
{
    const float magic = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer in the low bits
    float16 c = select(x, (float16)(88.0f), x > 88.0f);
    float16 r = c * 1.44269504f + magic;
    float16 n = r - magic;
    float16 f = c - n * 0.693359375f;
    f = f + n * 2.12194440e-4f;
    float16 p = (float16)(1.9875691500e-4f);
    p = p * f + 1.3981999507e-3f;
    p = p * f + 8.3334519073e-3f;
    p = p * f + 4.1665795894e-2f;
    p = p * f + 1.6666665459e-1f;
    p = p * f + 5.0000001201e-1f;
    p = p * (f * f) + f + 1.0f;
    float16 e = p * as_float16((as_int16(r) << 23) + 0x3f800000);
    return select(e, (float16)(0.0f), x < -87.0f);
}
