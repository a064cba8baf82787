// SPDX-License-Identifier: Apache-2.0
// Style of CPUs: one row, column block or tile per work-item, and vectors of 16 inside it. Items beyond the
// last return at once.

#define LANES 16
#define COLUMNS 64 // columns of a block, in kernels that sum over rows

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

EXP(exp_lanes, float16, int16)
