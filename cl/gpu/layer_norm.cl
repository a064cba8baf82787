// SPDX-License-Identifier: Apache-2.0
// Layer norm over rows of C; statistics hold mean and 1/standard deviation of each row.

GROUP_KERNEL void layer_norm_forward(global float *y, ulong y0, global float *statistics, ulong statistics0,
                                     const global float *x, ulong x0, const global float *weight,
                                     ulong weight0, const global float *bias, ulong bias0, ulong rows, int C,
                                     float epsilon)
{
    local float part[GROUP];
    const size_t row = get_group_id(0);
    x += x0 + row * C;
    y += y0 + row * C;
    weight += weight0;
    bias += bias0;

    float sum = 0.0f;
    for (int c = ITEM; c < C; c += GROUP)
        sum += x[c];
    const float mean = sum_items(sum, part, 1) / C;

    float squares = 0.0f;
    for (int c = ITEM; c < C; c += GROUP)
        squares += (x[c] - mean) * (x[c] - mean);
    const float rstd = 1.0f / sqrt(sum_items(squares, part, 1) / C + epsilon);

    for (int c = ITEM; c < C; c += GROUP)
        y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
    if (ITEM == 0) {
        statistics[statistics0 + 2 * row] = mean;
        statistics[statistics0 + 2 * row + 1] = rstd;
    }
}

GROUP_KERNEL void layer_norm_again(global float *y, ulong y0, const global float *x, ulong x0,
                                   const global float *statistics, ulong statistics0,
                                   const global float *weight, ulong weight0, const global float *bias,
                                   ulong bias0, ulong rows, int C)
{
    const size_t row = get_group_id(0);
    x += x0 + row * C;
    y += y0 + row * C;
    weight += weight0;
    bias += bias0;
    const float mean = statistics[statistics0 + 2 * row];
    const float rstd = statistics[statistics0 + 2 * row + 1];
    for (int c = ITEM; c < C; c += GROUP)
        y[c] = (x[c] - mean) * rstd * weight[c] + bias[c];
}

// dx = beta dx + rstd (g - mean(g) - xhat mean(g xhat)), with g = dy weight.
GROUP_KERNEL void layer_norm_backward(global float *dx, ulong dx0, const global float *dy, ulong dy0,
                                      const global float *x, ulong x0, const global float *statistics,
                                      ulong statistics0, const global float *weight, ulong weight0,
                                      ulong rows, int C, float beta)
{
    local float part[GROUP];
    const size_t row = get_group_id(0);
    dx += dx0 + row * C;
    dy += dy0 + row * C;
    x += x0 + row * C;
    weight += weight0;
    const float mean = statistics[statistics0 + 2 * row];
    const float rstd = statistics[statistics0 + 2 * row + 1];

    float sum_g = 0.0f, sum_gx = 0.0f;
    for (int c = ITEM; c < C; c += GROUP) {
        const float g = dy[c] * weight[c];
        sum_g += g;
        sum_gx += g * ((x[c] - mean) * rstd);
    }
    const float mean_g = sum_items(sum_g, part, 1) / C, mean_gx = sum_items(sum_gx, part, 1) / C;

    for (int c = ITEM; c < C; c += GROUP) {
        const float g = dy[c] * weight[c], xhat = (x[c] - mean) * rstd;
        const float d = rstd * (g - mean_g - xhat * mean_gx);
        dx[c] = beta != 0.0f ? dx[c] + d : d;
    }
}

// dweight += sum of dy xhat, dbias += sum of dy; ACROSS columns a group, every DOWN-th row an item.
GROUP_KERNEL void layer_norm_backward_weight(global float *dweight, ulong dweight0, global float *dbias,
                                             ulong dbias0, const global float *dy, ulong dy0,
                                             const global float *x, ulong x0, const global float *statistics,
                                             ulong statistics0, ulong rows, int C)
{
    local float part[GROUP];
    const size_t column = get_group_id(0) * ACROSS + ITEM % ACROSS;
    dy += dy0 + column;
    x += x0 + column;
    statistics += statistics0;
    float w = 0.0f, b = 0.0f;
    for (size_t row = column < C ? ITEM / ACROSS : rows; row < rows; row += DOWN) {
        const float g = dy[row * C];
        b += g;
        w += g * ((x[row * C] - statistics[2 * row]) * statistics[2 * row + 1]);
    }
    w = sum_items(w, part, ACROSS);
    b = sum_items(b, part, ACROSS);
    if (ITEM < ACROSS && column < C) {
        dweight[dweight0 + column] += w;
        dbias[dbias0 + column] += b;
    }
}
