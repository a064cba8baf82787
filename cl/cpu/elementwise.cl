// SPDX-License-Identifier: Apache-2.0

// y = y + bias, with channels dropped, + x.
kernel void bias_residual(global float *y, ulong y0, const global float *x, ulong x0,
                          const global float *bias, ulong bias0, int sequences, int S, int P, int C,
                          ulong key, uint threshold, float scale, int first_sequence)
{
    const size_t row = get_global_id(0);
    if (row >= (size_t)sequences * S)
        return;
    const int token = P + row % S, sequence = first_sequence + row / S;
    y += y0 + row * C;
    x += x0 + row * C;
    bias += bias0;
    for (int c = 0; c < C; c += LANES) {
        const int n = C - c;
        float16 branch = load(y + c, n) + load(bias + c, n);
        if (threshold != 0)
            branch *= kept_channels(c, token, sequence, key, threshold, scale);
        store(branch + load(x + c, n), y + c, n);
    }
}

// dbias += sum of dy over the rows in order; one column block an item.
kernel void bias_backward(global float *dbias, ulong dbias0, const global float *dy, ulong dy0, ulong rows,
                          int N)
{
    const int first = get_global_id(0) * COLUMNS;
    if (first >= N)
        return;
    const int n = N - first;
    dbias += dbias0 + first;
    dy += dy0 + first;
    float16 a = load(dbias, n), b = load(dbias + 16, n - 16);
    float16 c = load(dbias + 32, n - 32), d = load(dbias + 48, n - 48);
    for (ulong row = 0; row < rows; row++, dy += N) {
        a += load(dy, n);
        b += load(dy + 16, n - 16);
        c += load(dy + 32, n - 32);
        d += load(dy + 48, n - 48);
    }
    store(a, dbias, n);
    store(b, dbias + 16, n - 16);
    store(c, dbias + 32, n - 32);
    store(d, dbias + 48, n - 48);
}

kernel void fill(global float *x, ulong x0, float value, ulong count)
{
    const ulong first = get_global_id(0) * (ulong)BLOCK;
    if (first >= count)
        return;
    x += x0 + first;
    const int n = min(count - first, (ulong)BLOCK);
    for (int i = 0; i < n; i += LANES)
        store((float16)(value), x + i, n - i);
}

kernel void add(global float *y, ulong y0, const global float *x, ulong x0, ulong count)
{
    const ulong first = get_global_id(0) * (ulong)BLOCK;
    if (first >= count)
        return;
    y += y0 + first;
    x += x0 + first;
    const int n = min(count - first, (ulong)BLOCK);
    for (int i = 0; i < n; i += LANES)
        store(load(y + i, n - i) + load(x + i, n - i), y + i, n - i);
}
