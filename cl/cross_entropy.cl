// SPDX-License-Identifier: Apache-2.0

// Rows [first, first + rows) of a unit. With scale, logits become scale (softmax - target).
kernel void cross_entropy(global float *loss, ulong loss0, global float *logits, ulong logits0,
                          const global int *targets, ulong targets0, int S, int P, int T, ulong first,
                          ulong rows, int V, float scale)
{
    const size_t item = get_global_id(0);
    if (item >= rows)
        return;
    const ulong row = first + item;
    const ulong place = row / S * T + P + row % S;
    const int target = targets[targets0 + place];
    logits += logits0 + item * V;

    float16 m = -INFINITY;
    for (int c = 0; c < V; c += LANES)
        m = fmax(m, select((float16)(-INFINITY), load(logits + c, V - c), lane < V - c));
    const float top = max_lanes(m);
    const float at_target = logits[target] - top;

    float16 sum = 0.0f;
    for (int c = 0; c < V; c += LANES) {
        float16 e = exp_lanes(load(logits + c, V - c) - top);
        sum += select((float16)(0.0f), e, lane < V - c);
        if (scale != 0.0f)
            store(e, logits + c, V - c);
    }
    const float total = sum_lanes(sum);
    loss[loss0 + place] = log(total) - at_target;
    if (scale == 0.0f)
        return;

    const float factor = scale / total;
    for (int c = 0; c < V; c += LANES)
        store(load(logits + c, V - c) * factor, logits + c, V - c);
    logits[target] -= scale;
}
