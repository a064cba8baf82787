// SPDX-License-Identifier: Apache-2.0
// Rows [first, first + rows) of a unit, over columns [begin, begin + V) of the vocabulary. In three steps,
// between which ranks with other columns combine what the first two find of each row.

kernel void logits_max(global float *top, ulong top0, const global float *logits, ulong logits0, ulong rows,
                       int V)
{
    const size_t item = get_global_id(0);
    if (item >= rows)
        return;
    logits += logits0 + item * V;
    float16 m = -INFINITY;
    for (int c = 0; c < V; c += LANES)
        m = fmax(m, select((float16)(-INFINITY), load(logits + c, V - c), lane < V - c));
    top[top0 + item] = max_lanes(m);
}

// sums = {sum of e^(logit - top), the target's logit - top where it is here}. With gradient the exponentials
// take the logits' place.
kernel void logits_exp(global float *sums, ulong sums0, global float *logits, ulong logits0,
                       const global float *top, ulong top0, const global int *targets, ulong targets0, int S,
                       int P, int T, ulong first, ulong rows, int begin, int V, int gradient)
{
    const size_t item = get_global_id(0);
    if (item >= rows)
        return;
    const int target = targets[targets0 + place_of(first + item, S, P, T)] - begin;
    const float m = top[top0 + item];
    logits += logits0 + item * V;
    sums += sums0 + 2 * item;
    sums[1] = target >= 0 && target < V ? logits[target] - m : 0.0f;

    float16 sum = 0.0f;
    for (int c = 0; c < V; c += LANES) {
        float16 e = exp_lanes(load(logits + c, V - c) - m);
        sum += select((float16)(0.0f), e, lane < V - c);
        if (gradient)
            store(e, logits + c, V - c);
    }
    sums[0] = sum_lanes(sum);
}

// The loss; with scale, exponentials become scale (softmax - target).
kernel void logits_gradient(global float *loss, ulong loss0, global float *logits, ulong logits0,
                            const global float *sums, ulong sums0, const global int *targets, ulong targets0,
                            int S, int P, int T, ulong first, ulong rows, int begin, int V, float scale)
{
    const size_t item = get_global_id(0);
    if (item >= rows)
        return;
    const ulong place = place_of(first + item, S, P, T);
    const int target = targets[targets0 + place] - begin;
    logits += logits0 + item * V;
    sums += sums0 + 2 * item;
    loss[loss0 + place] = log(sums[0]) - sums[1];
    if (scale == 0.0f)
        return;

    const float factor = scale / sums[0];
    for (int c = 0; c < V; c += LANES)
        store(load(logits + c, V - c) * factor, logits + c, V - c);
    if (target >= 0 && target < V)
        logits[target] -= scale;
}
