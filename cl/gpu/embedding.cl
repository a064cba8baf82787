// SPDX-License-Identifier: Apache-2.0
// The table may be a part of it, rows [first, first + count): other tokens give nothing and get nothing.
// Rows of a unit are [sequences][S]; tokens lie at [P, P + S) of each sequence of T.

GROUP_KERNEL void embedding_forward(global float *x, ulong x0, const global int *tokens, ulong tokens0,
                                    const global float *wte, ulong wte0, const global float *wpe, ulong wpe0,
                                    int sequences, int S, int P, int T, int C, int first, int count,
                                    int positions)
{
    const size_t row = get_group_id(0);
    const int position = P + row % S, token = tokens[tokens0 + row / S * T + position] - first;
    const bool own = token >= 0 && token < count;
    x += x0 + row * C;
    wte += wte0 + (own ? (ulong)token : 0) * C;
    wpe += wpe0 + (ulong)position * C;
    for (int c = ITEM; c < C; c += GROUP) {
        float sum = own ? wte[c] : 0.0f;
        if (positions)
            sum += wpe[c];
        x[c] = sum;
    }
}

// Does the token of place [b, i] occur before it?
bool occurs_before(const global int *tokens, int b, int i, int S, int T, local float *part)
{
    const int token = tokens[(ulong)b * T + i];
    float found = 0.0f;
    for (int before = 0; before <= b; before++, tokens += T)
        for (int j = ITEM; j < (before < b ? S : i); j += GROUP)
            if (tokens[j] == token)
                found = 1.0f;
    return max_items(found, part, 1) != 0.0f;
}

// A row a group. A row of dwte belongs to the first of the rows with that token, a row of dwpe to that of the
// first sequence; it adds up all of them in order: no two groups meet, and sums have one order.
GROUP_KERNEL void embedding_backward(global float *dwte, ulong dwte0, global float *dwpe, ulong dwpe0,
                                     const global int *tokens, ulong tokens0, const global float *dx,
                                     ulong dx0, int sequences, int S, int P, int T, int C, int first,
                                     int count)
{
    local float part[GROUP];
    const int b = get_group_id(0) / S, i = get_group_id(0) % S;
    tokens += tokens0 + P;
    dx += dx0;

    if (b == 0) {
        dwpe += dwpe0 + (ulong)(P + i) * C;
        for (int other = 0; other < sequences; other++)
            for (int c = ITEM; c < C; c += GROUP)
                dwpe[c] += dx[((ulong)other * S + i) * C + c];
    }

    const int token = tokens[(ulong)b * T + i];
    const bool occurred = occurs_before(tokens, b, i, S, T, part);
    if (token < first || token - first >= count || occurred)
        return;
    dwte += dwte0 + (ulong)(token - first) * C;
    for (int other = b; other < sequences; other++)
        for (int j = other == b ? i : 0; j < S; j++)
            if (tokens[(ulong)other * T + j] == token)
                for (int c = ITEM; c < C; c += GROUP)
                    dwte[c] += dx[((ulong)other * S + j) * C + c];
}
