// SPDX-License-Identifier: Apache-2.0

// partial[i] = sum of squares of block i.
kernel void sum_squares(global float *partial, ulong partial0, const global float *x, ulong x0, ulong count)
{
    const ulong first = get_global_id(0) * (ulong)BLOCK;
    if (first >= count)
        return;
    x += x0 + first;
    const int n = min(count - first, (ulong)BLOCK);
    float16 a = 0.0f, b = 0.0f;
    for (int i = 0; i < n; i += 2 * LANES) {
        float16 p = load(x + i, n - i), q = load(x + i + LANES, n - i - LANES);
        a += p * p;
        b += q * q;
    }
    partial[partial0 + get_global_id(0)] = sum_lanes(a + b);
}

kernel void adamw(global float *w, ulong w0, global float *m, ulong m0, global float *v, ulong v0,
                  const global float *gradient, ulong gradient0, float shrink, float rate, float root,
                  float beta1, float beta2, float eps, float scale, ulong count)
{
    const ulong first = get_global_id(0) * (ulong)BLOCK;
    if (first >= count)
        return;
    w += w0 + first;
    m += m0 + first;
    v += v0 + first;
    gradient += gradient0 + first;
    const int n = min(count - first, (ulong)BLOCK);
    for (int i = 0; i < n; i += LANES) {
        float16 g = scale * load(gradient + i, n - i);
        float16 m1 = beta1 * load(m + i, n - i) + (1.0f - beta1) * g;
        float16 v1 = beta2 * load(v + i, n - i) + (1.0f - beta2) * g * g;
        store(m1, m + i, n - i);
        store(v1, v + i, n - i);
        store(shrink * load(w + i, n - i) - rate * m1 / (sqrt(v1) / root + eps), w + i, n - i);
    }
}
