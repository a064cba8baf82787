// SPDX-License-Identifier: Apache-2.0

void philox_multiply(uint *high, uint *low, uint x, uint y)
{
    *high = mul_hi(x, y);
    *low = x * y;
}
PHILOX(philox, uint)

// What element index of a token is multiplied with: 0 or scale.
float kept_element(uint index, int token, int sequence, ulong key, uint threshold, float scale)
{
    uint w0 = index / 4, w1 = (uint)token, w2 = (uint)sequence, w3 = DROPOUT_USE;
    philox(&w0, &w1, &w2, &w3, key);
    const uint low = index & 1 ? w1 : w0, high = index & 1 ? w3 : w2;
    return (index & 2 ? high : low) < threshold ? 0.0f : scale;
}

// y = x with channels dropped.
GROUP_KERNEL void dropout(global float *y, ulong y0, const global float *x, ulong x0, int sequences, int S,
                          int P, int C, ulong key, uint threshold, float scale, int first_sequence)
{
    const size_t row = get_group_id(0);
    const int token = P + row % S, sequence = first_sequence + row / S;
    y += y0 + row * C;
    x += x0 + row * C;
    for (int c = ITEM; c < C; c += GROUP)
        y[c] = x[c] * kept_element(c, token, sequence, key, threshold, scale);
}
