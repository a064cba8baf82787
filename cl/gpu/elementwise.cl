// SPDX-License-Identifier: Apache-2.0

// y = y + bias, with channels dropped, + x.
GROUP_KERNEL void bias_residual(global float *y, ulong y0, const global float *x, ulong x0,
                                const global float *bias, ulong bias0, int sequences, int S, int P, int C,
                                ulong key, uint threshold, float scale, int first_sequence)
{
    const size_t row = get_group_id(0);
    const int token = P + row % S, sequence = first_sequence + row / S;
    y += y0 + row * C;
    x += x0 + row * C;
    bias += bias0;
    for (int c = ITEM; c < C; c += GROUP) {
        float branch = y[c] + bias[c];
        if (threshold != 0)
            branch *= kept_element(c, token, sequence, key, threshold, scale);
        y[c] = branch + x[c];
    }
}

// dbias += sum of dy over the rows; ACROSS columns a group, every DOWN-th row an item.
GROUP_KERNEL void bias_backward(global float *dbias, ulong dbias0, const global float *dy, ulong dy0,
                                ulong rows, int N)
{
    local float part[GROUP];
    const size_t column = get_group_id(0) * ACROSS + ITEM % ACROSS;
    dy += dy0 + column;
    float sum = 0.0f;
    for (size_t row = column < N ? ITEM / ACROSS : rows; row < rows; row += DOWN)
        sum += dy[row * N];
    sum = sum_items(sum, part, ACROSS);
    if (ITEM < ACROSS && column < N)
        dbias[dbias0 + column] += sum;
}

// Of a flat array a group takes a block.
#define EACH_OF_BLOCK(i, count)                                                                              \
    for (ulong i = get_group_id(0) * (ulong)BLOCK + ITEM,                                                    \
               end = min((get_group_id(0) + 1) * (ulong)BLOCK, count);                                       \
         i < end; i += GROUP)

GROUP_KERNEL void fill(global float *x, ulong x0, float value, ulong count)
{
    EACH_OF_BLOCK(i, count)
        x[x0 + i] = value;
}

GROUP_KERNEL void add(global float *y, ulong y0, const global float *x, ulong x0, ulong count)
{
    EACH_OF_BLOCK(i, count)
        y[y0 + i] += x[x0 + i];
}
