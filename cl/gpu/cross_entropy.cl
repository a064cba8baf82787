// SPDX-License-Identifier: Apache-2.0
// Rows [first, first + rows) of a unit, over columns [begin, begin + V) of the vocabulary. In three steps,
// between which ranks with other columns combine what the first two find of each row.

GROUP_KERNEL void logits_max(global float *top, ulong top0, const global float *logits, ulong logits0,
                             ulong rows, int V)
{
    local float part[GROUP];
    const size_t row = get_group_id(0);
    logits += logits0 + row * V;
    float m = -INFINITY;
    for (int c = ITEM; c < V; c += GROUP)
        m = fmax(m, logits[c]);
    m = max_items(m, part, 1);
    if (ITEM == 0)
        top[top0 + row] = m;
}

// sums = {sum of e^(logit - top), the target's logit - top where it is here}. With gradient the exponentials
// take the logits' place.
GROUP_KERNEL void logits_exp(global float *sums, ulong sums0, global float *logits, ulong logits0,
                             const global float *top, ulong top0, const global int *targets, ulong targets0,
                             int S, int P, int T, ulong first, ulong rows, int begin, int V, int gradient)
{
    local float part[GROUP];
    const size_t row = get_group_id(0);
    const int target = targets[targets0 + place_of(first + row, S, P, T)] - begin;
    const float m = top[top0 + row];
    logits += logits0 + row * V;
    sums += sums0 + 2 * row;

    float sum = 0.0f;
    for (int c = ITEM; c < V; c += GROUP) {
        const float x = logits[c] - m, e = exp_one(x);
        sum += e;
        if (c == target)
            sums[1] = x;
        if (gradient)
            logits[c] = e;
    }
    sum = sum_items(sum, part, 1);
    if (ITEM == 0)
        sums[0] = sum;
    if (ITEM == 0 && (target < 0 || target >= V))
        sums[1] = 0.0f;
}

// The loss; with scale, exponentials become scale (softmax - target).
GROUP_KERNEL void logits_gradient(global float *loss, ulong loss0, global float *logits, ulong logits0,
                                  const global float *sums, ulong sums0, const global int *targets,
                                  ulong targets0, int S, int P, int T, ulong first, ulong rows, int begin,
                                  int V, float scale)
{
    const size_t row = get_group_id(0);
    const ulong place = place_of(first + row, S, P, T);
    const int target = targets[targets0 + place] - begin;
    logits += logits0 + row * V;
    sums += sums0 + 2 * row;
    if (ITEM == 0)
        loss[loss0 + place] = log(sums[0]) - sums[1];
    if (scale == 0.0f)
        return;

    const float factor = scale / sums[0];
    for (int c = ITEM; c < V; c += GROUP)
        logits[c] = logits[c] * factor - (c == target ? scale : 0.0f);
}
