// SPDX-License-Identifier: Apache-2.0
// GELU in its tanh form: x/2 (1 + tanh(u)) = x s with s = 1 / (1 + e^(-2u)), u = a (x + b x^3).

constant float gelu_a = 0.797884561f; // sqrt(2 / pi)
constant float gelu_b = 0.044715f;

float gelu_gate(float x)
{
    return 1.0f / (1.0f + exp_one(-2.0f * gelu_a * (x + gelu_b * x * x * x)));
}

GROUP_KERNEL void bias_gelu_forward(global float *y, ulong y0, global float *h, ulong h0,
                                    const global float *bias, ulong bias0, ulong rows, int N)
{
    const size_t row = get_group_id(0);
    y += y0 + row * N;
    h += h0 + row * N;
    bias += bias0;
    for (int c = ITEM; c < N; c += GROUP) {
        const float x = h[c] + bias[c];
        h[c] = x;
        y[c] = x * gelu_gate(x);
    }
}

GROUP_KERNEL void gelu_backward(global float *y, ulong y0, global float *dh, ulong dh0, const global float *h,
                                ulong h0, ulong rows, int N)
{
    const size_t row = get_group_id(0);
    y += y0 + row * N;
    dh += dh0 + row * N;
    h += h0 + row * N;
    for (int c = ITEM; c < N; c += GROUP) {
        const float x = h[c], s = gelu_gate(x);
        const float du = 2.0f * gelu_a * (1.0f + 3.0f * gelu_b * x * x);
        y[c] = x * s;
        dh[c] *= s + x * s * (1.0f - s) * du;
    }
}
