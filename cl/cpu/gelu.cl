// SPDX-License-Identifier: Apache-2.0
// GELU in its tanh form: x/2 (1 + tanh(u)) = x s with s = 1 / (1 + e^(-2u)), u = a (x + b x^3).

constant float gelu_a = 0.797884561f; // sqrt(2 / pi)
constant float gelu_b = 0.044715f;

float16 gelu_gate(float16 x)
{
    return 1.0f / (1.0f + exp_lanes(-2.0f * gelu_a * (x + gelu_b * x * x * x)));
}

kernel void bias_gelu_forward(global float *y, ulong y0, global float *h, ulong h0,
                              const global float *bias, ulong bias0, ulong rows, int N)
{
    const size_t row = get_global_id(0);
    if (row >= rows)
        return;
    y += y0 + row * N;
    h += h0 + row * N;
    bias += bias0;
    for (int c = 0; c < N; c += LANES) {
        float16 x = load(h + c, N - c) + load(bias + c, N - c);
        store(x, h + c, N - c);
        store(x * gelu_gate(x), y + c, N - c);
    }
}

kernel void gelu_backward(global float *y, ulong y0, global float *dh, ulong dh0, const global float *h,
                          ulong h0, ulong rows, int N)
{
    const size_t row = get_global_id(0);
    if (row >= rows)
        return;
    y += y0 + row * N;
    dh += dh0 + row * N;
    h += h0 + row * N;
    for (int c = 0; c < N; c += LANES) {
        float16 x = load(h + c, N - c);
        float16 s = gelu_gate(x);
        float16 du = 2.0f * gelu_a * (1.0f + 3.0f * gelu_b * x * x);
        store(x * s, y + c, N - c);
        store(load(dh + c, N - c) * (s + x * s * (1.0f - s) * du), dh + c, N - c);
    }
}
