// SPDX-License-Identifier: Apache-2.0
// The table may be a part of it, rows [first, first + count): other tokens give nothing and get nothing.
// Rows of a unit are [sequences][S]; tokens lie at [P, P + S) of each sequence of T.

kernel void embedding_forward(global float *x, ulong x0, const global int *tokens, ulong tokens0,
                              const global float *wte, ulong wte0, const global float *wpe, ulong wpe0,
                              int sequences, int S, int P, int T, int C, int first, int count, int positions)
{
    const size_t row = get_global_id(0);
    if (row >= (size_t)sequences * S)
        return;
    const int position = P + row % S, token = tokens[tokens0 + row / S * T + position] - first;
    const bool own = token >= 0 && token < count;
    x += x0 + row * C;
    wte += wte0 + (own ? (ulong)token : 0) * C;
    wpe += wpe0 + (ulong)position * C;
    for (int c = 0; c < C; c += LANES) {
        float16 sum = own ? load(wte + c, C - c) : (float16)(0.0f);
        if (positions)
            sum += load(wpe + c, C - c);
        store(sum, x + c, C - c);
    }
}

// One column block an item, rows in order: no two items meet, and sums have one order.
kernel void embedding_backward(global float *dwte, ulong dwte0, global float *dwpe, ulong dwpe0,
                               const global int *tokens, ulong tokens0, const global float *dx, ulong dx0,
                               int sequences, int S, int P, int T, int C, int first, int count)
{
    const int begin = get_global_id(0) * COLUMNS;
    if (begin >= C)
        return;
    const int end = min(begin + COLUMNS, C);
    dwte += dwte0;
    dwpe += dwpe0;
    tokens += tokens0;
    dx += dx0;
    for (int b = 0; b < sequences; b++)
        for (int i = 0; i < S; i++) {
            const int position = P + i;
            const int token = tokens[(ulong)b * T + position] - first;
            const bool own = token >= 0 && token < count;
            global float *te = dwte + (own ? (ulong)token : 0) * C;
            global float *pe = dwpe + (ulong)position * C;
            const global float *d = dx + ((ulong)b * S + i) * C;
            for (int c = begin; c < end; c += LANES) {
                float16 g = load(d + c, end - c);
                if (own)
                    store(load(te + c, end - c) + g, te + c, end - c);
                store(load(pe + c, end - c) + g, pe + c, end - c);
            }
        }
}
