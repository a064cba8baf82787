// SPDX-License-Identifier: Apache-2.0
// Rows of a unit are [sequences][S]; tokens lie at [P, P + S) of each sequence of T.

kernel void embedding_forward(global float *x, ulong x0, const global int *tokens, ulong tokens0,
                              const global float *wte, ulong wte0, const global float *wpe, ulong wpe0,
                              int sequences, int S, int P, int T, int C)
{
    const size_t row = get_global_id(0);
    if (row >= (size_t)sequences * S)
        return;
    const int position = P + row % S;
    const ulong token = tokens[tokens0 + row / S * T + position];
    x += x0 + row * C;
    wte += wte0 + token * C;
    wpe += wpe0 + (ulong)position * C;
    for (int c = 0; c < C; c += LANES)
        store(load(wte + c, C - c) + load(wpe + c, C - c), x + c, C - c);
}

// One column block an item, rows in order: no two items meet, and sums have one order.
kernel void embedding_backward(global float *dwte, ulong dwte0, global float *dwpe, ulong dwpe0,
                               const global int *tokens, ulong tokens0, const global float *dx, ulong dx0,
                               int sequences, int S, int P, int T, int C)
{
    const int first = get_global_id(0) * COLUMNS;
    if (first >= C)
        return;
    const int end = min(first + COLUMNS, C);
    dwte += dwte0;
    dwpe += dwpe0;
    tokens += tokens0;
    dx += dx0;
    for (int b = 0; b < sequences; b++)
        for (int i = 0; i < S; i++) {
            const int position = P + i;
            global float *te = dwte + (ulong)tokens[(ulong)b * T + position] * C;
            global float *pe = dwpe + (ulong)position * C;
            const global float *d = dx + ((ulong)b * S + i) * C;
            for (int c = first; c < end; c += LANES) {
                float16 g = load(d + c, end - c);
                store(load(te + c, end - c) + g, te + c, end - c);
                store(load(pe + c, end - c) + g, pe + c, end - c);
            }
        }
}
