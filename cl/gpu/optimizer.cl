// SPDX-License-Identifier: Apache-2.0

// partial[i] = sum of squares of block i.
GROUP_KERNEL void sum_squares(global float *partial, ulong partial0, const global float *x, ulong x0,
                              ulong count)
{
    local float part[GROUP];
    float sum = 0.0f;
    EACH_OF_BLOCK(i, count)
        sum += x[x0 + i] * x[x0 + i];
    sum = sum_items(sum, part, 1);
    if (ITEM == 0)
        partial[partial0 + get_group_id(0)] = sum;
}

GROUP_KERNEL void adamw(global float *w, ulong w0, global float *m, ulong m0, global float *v, ulong v0,
                        const global float *gradient, ulong gradient0, float shrink, float rate, float root,
                        float beta1, float beta2, float eps, float scale, ulong count)
{
    w += w0;
    m += m0;
    v += v0;
    gradient += gradient0;
    EACH_OF_BLOCK(i, count) {
        const float g = scale * gradient[i];
        const float m1 = beta1 * m[i] + (1.0f - beta1) * g;
        const float v1 = beta2 * v[i] + (1.0f - beta2) * g * g;
        m[i] = m1;
        v[i] = v1;
        w[i] = shrink * w[i] - rate * m1 / (sqrt(v1) / root + eps);
    }
}
