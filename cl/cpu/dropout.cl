// SPDX-License-Identifier: Apache-2.0

// Products have 64 bits: they are made of every other lane at a time, as a vector of half as many wide lanes.
#define MULTIPLY(name, type, wide)                                                                           \
    void name(type *high, type *low, type x, uint y)                                                         \
    {                                                                                                        \
        const wide lower = 0xffffffff;                                                                       \
        const wide odd = (as_##wide(x) >> 32) * y, even = (as_##wide(x) & lower) * y;                        \
        *high = as_##type(even >> 32 | (odd & ~lower));                                                      \
        *low = as_##type((even & lower) | odd << 32);                                                        \
    }
MULTIPLY(philox4_multiply, uint4, ulong2)
MULTIPLY(philox16_multiply, uint16, ulong8)
PHILOX(philox4, uint4)
PHILOX(philox16, uint16)

// What channels [c, c + 16) of a token are multiplied with: 0 or scale.
float16 kept_channels(int c, int token, int sequence, ulong key, uint threshold, float scale)
{
    uint4 w0 = (uint)c / 4 + (uint4)(0, 1, 2, 3), w1 = (uint)token, w2 = (uint)sequence, w3 = DROPOUT_USE;
    philox4(&w0, &w1, &w2, &w3, key);
    const uint16 bits = (uint16)(w0.x, w1.x, w2.x, w3.x, w0.y, w1.y, w2.y, w3.y, w0.z, w1.z, w2.z, w3.z, w0.w,
                                 w1.w, w2.w, w3.w);
    return select((float16)(scale), (float16)(0.0f), bits < threshold);
}

// The same for four attention weights, index .. index + 3, of each lane's token.
void kept_weights(float16 kept[4], uint index, int16 token, int sequence, ulong key, uint threshold,
                  float scale)
{
    uint16 w0 = index / 4, w1 = as_uint16(token), w2 = (uint)sequence, w3 = DROPOUT_USE;
    philox16(&w0, &w1, &w2, &w3, key);
    kept[0] = select((float16)(scale), (float16)(0.0f), w0 < threshold);
    kept[1] = select((float16)(scale), (float16)(0.0f), w1 < threshold);
    kept[2] = select((float16)(scale), (float16)(0.0f), w2 < threshold);
    kept[3] = select((float16)(scale), (float16)(0.0f), w3 < threshold);
}

// y = x with channels dropped.
kernel void dropout(global float *y, ulong y0, const global float *x, ulong x0, int sequences, int S, int P,
                    int C, ulong key, uint threshold, float scale, int first_sequence)
{
    const size_t row = get_global_id(0);
    if (row >= (size_t)sequences * S)
        return;
    const int token = P + row % S, sequence = first_sequence + row / S;
    y += y0 + row * C;
    x += x0 + row * C;
    for (int c = 0; c < C; c += LANES)
        store(load(x + c, C - c) * kept_channels(c, token, sequence, key, threshold, scale), y + c, C - c);
}
