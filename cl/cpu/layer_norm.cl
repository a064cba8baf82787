// SPDX-License-Identifier: Apache-2.0
// Layer norm over rows of C; statistics hold mean and 1/standard deviation of each row.

kernel void layer_norm_forward(global float *y, ulong y0, global float *statistics, ulong statistics0,
                               const global float *x, ulong x0, const global float *weight,
                               ulong weight0, const global float *bias, ulong bias0, ulong rows, int C,
                               float epsilon)
{
    const size_t row = get_global_id(0);
    if (row >= rows)
        return;
    x += x0 + row * C;
    y += y0 + row * C;
    weight += weight0;
    bias += bias0;

    float16 sum = 0.0f;
    for (int c = 0; c < C; c += LANES)
        sum += load(x + c, C - c);
    const float mean = sum_lanes(sum) / C;

    float16 squares = 0.0f;
    for (int c = 0; c < C; c += LANES) {
        float16 d = select((float16)(0.0f), load(x + c, C - c) - mean, lane < C - c);
        squares += d * d;
    }
    const float rstd = 1.0f / sqrt(sum_lanes(squares) / C + epsilon);

    for (int c = 0; c < C; c += LANES) {
        const int n = C - c;
        store((load(x + c, n) - mean) * rstd * load(weight + c, n) + load(bias + c, n), y + c, n);
    }
    statistics[statistics0 + 2 * row] = mean;
    statistics[statistics0 + 2 * row + 1] = rstd;
}

kernel void layer_norm_again(global float *y, ulong y0, const global float *x, ulong x0,
                             const global float *statistics, ulong statistics0,
                             const global float *weight, ulong weight0, const global float *bias,
                             ulong bias0, ulong rows, int C)
{
    const size_t row = get_global_id(0);
    if (row >= rows)
        return;
    x += x0 + row * C;
    y += y0 + row * C;
    weight += weight0;
    bias += bias0;
    const float mean = statistics[statistics0 + 2 * row];
    const float rstd = statistics[statistics0 + 2 * row + 1];
    for (int c = 0; c < C; c += LANES) {
        const int n = C - c;
        store((load(x + c, n) - mean) * rstd * load(weight + c, n) + load(bias + c, n), y + c, n);
    }
}

// dx = beta dx + rstd (g - mean(g) - xhat mean(g xhat)), with g = dy weight.
kernel void layer_norm_backward(global float *dx, ulong dx0, const global float *dy, ulong dy0,
                                const global float *x, ulong x0, const global float *statistics,
                                ulong statistics0, const global float *weight, ulong weight0, ulong rows,
                                int C, float beta)
{
    const size_t row = get_global_id(0);
    if (row >= rows)
        return;
    dx += dx0 + row * C;
    dy += dy0 + row * C;
    x += x0 + row * C;
    weight += weight0;
    const float mean = statistics[statistics0 + 2 * row];
    const float rstd = statistics[statistics0 + 2 * row + 1];

    float16 sum_g = 0.0f, sum_gx = 0.0f;
    for (int c = 0; c < C; c += LANES) {
        float16 g = load(dy + c, C - c) * load(weight + c, C - c);
        sum_g += g;
        sum_gx += g * ((load(x + c, C - c) - mean) * rstd);
    }
    const float mean_g = sum_lanes(sum_g) / C, mean_gx = sum_lanes(sum_gx) / C;

    for (int c = 0; c < C; c += LANES) {
        const int n = C - c;
        float16 g = load(dy + c, n) * load(weight + c, n);
        float16 xhat = (load(x + c, n) - mean) * rstd;
        float16 d = rstd * (g - mean_g - xhat * mean_gx);
        if (beta != 0.0f)
            d += load(dx + c, n);
        store(d, dx + c, n);
    }
}

// dweight += sum of dy xhat, dbias += sum of dy, over the rows in order; one column block an item.
kernel void layer_norm_backward_weight(global float *dweight, ulong dweight0, global float *dbias,
                                       ulong dbias0, const global float *dy, ulong dy0,
                                       const global float *x, ulong x0, const global float *statistics,
                                       ulong statistics0, ulong rows, int C)
{
    const int first = get_global_id(0) * LANES;
    if (first >= C)
        return;
    const int n = C - first;
    dy += dy0 + first;
    x += x0 + first;
    statistics += statistics0;
    float16 w = load(dweight + dweight0 + first, n), b = load(dbias + dbias0 + first, n);
    for (ulong row = 0; row < rows; row++) {
        float16 g = load(dy + row * C, n);
        b += g;
        w += g * ((load(x + row * C, n) - statistics[2 * row]) * statistics[2 * row + 1]);
    }
    store(w, dweight + dweight0 + first, n);
    store(b, dbias + dbias0 + first, n);
}
