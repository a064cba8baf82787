// SPDX-License-Identifier: Apache-2.0
// Products with a matrix in panels, for CPUs. The matrix b [K, N] lies as [N / 48][K][48], zeros behind its
// last column, so that a tile of c reads one stream and no more of it than it needs. c = a b takes one tile
// of 8 x 48 an item, the loop over K inside and the sums in registers: at 16 lanes a register 24 of 32, in
// narrower ones the tile is cut further. Every element is one sum in the order of K, wherever its row lies.

#define PANEL 48     // columns; TP_PANEL of the host
#define TILE_ROWS 8       // rows of an item; TILE_ROWS of the host
#define PACK_ROWS 16 // rows of b an item packs; PACK_ROWS of the host

#if VECTOR_WIDTH >= LANES
#define SUM_ROWS 8 // what is summed in registers at once: so many rows
#define SUM_VECTORS 3 // by so many vectors of columns
#else
#define SUM_ROWS 4
#define SUM_VECTORS 1
#endif

// c[rows, n] = a b + beta c, of at most SUM_ROWS rows and SUM_VECTORS * LANES columns, both more than 0; b
// is the first of these columns in a panel. Rows that are not there are the last one again, and not stored.
void sum_tile(global float *c, const global float *a, const global float *b, int rows, int n, size_t width, int k,
              float beta)
{
    float16 sum[SUM_ROWS][SUM_VECTORS];
    const global float *row[SUM_ROWS];
#pragma unroll
    for (int i = 0; i < SUM_ROWS; i++) {
        row[i] = a + (size_t)min(i, rows - 1) * k;
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++)
            sum[i][v] = 0.0f;
    }
    for (int l = 0; l < k; l++, b += PANEL) {
#pragma unroll
        for (int i = 0; i < SUM_ROWS; i++)
#pragma unroll
            for (int v = 0; v < SUM_VECTORS; v++)
                sum[i][v] += row[i][l] * vload16(v, b);
    }
#pragma unroll
    for (int i = 0; i < SUM_ROWS; i++)
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++) {
            global float *to = c + i * width + v * LANES;
            const int count = n - v * LANES;
            if (i < rows && count > 0)
                store(beta != 0.0f ? sum[i][v] + beta * load(to, count) : sum[i][v], to, count);
        }
}

kernel void packed_gemm(global float *c, ulong c0, const global float *a, ulong a0, const global float *b,
                        ulong b0, ulong m, int n, int k, float beta)
{
    const size_t tiles = (m + TILE_ROWS - 1) / TILE_ROWS, panel = get_global_id(0) / tiles;
    const size_t first = get_global_id(0) % tiles * TILE_ROWS, column = panel * PANEL;
    if (column >= n)
        return;
    const int rows = min((size_t)TILE_ROWS, m - first), columns = min((size_t)PANEL, n - column);
    a += a0 + first * k;
    b += b0 + column * k;
    c += c0 + first * n + column;
    for (int i = 0; i < rows; i += SUM_ROWS)
        for (int j = 0; j < columns; j += SUM_VECTORS * LANES)
            sum_tile(c + (size_t)i * n + j, a + (size_t)i * k, b + j, rows - i, columns - j, n, k, beta);
}

// Panels of b from b[k, n].
kernel void packed_write(global float *panels, ulong panels0, const global float *b, ulong b0, int n, int k)
{
    const int first = get_global_id(0) * PACK_ROWS, last = min(first + PACK_ROWS, k);
    panels += panels0;
    b += b0;
    for (int column = 0; column < n; column += PANEL)
        for (int l = first; l < last; l++)
            for (int v = 0; v < PANEL; v += LANES) {
                const int j = column + v;
                vstore16(load(b + (size_t)l * n + j, n - j), 0,
                         panels + (size_t)column * k + (size_t)l * PANEL + v);
            }
}

// 16 x 16 numbers, rows to columns: each round moves a bit of the row's number into the column's.
void transpose(float16 x[LANES])
{
#pragma unroll
    for (int round = 0; round < 4; round++) {
        float16 y[LANES];
#pragma unroll
        for (int i = 0; i < LANES / 2; i++) {
            y[2 * i].even = x[i].lo;
            y[2 * i].odd = x[i + LANES / 2].lo;
            y[2 * i + 1].even = x[i].hi;
            y[2 * i + 1].odd = x[i + LANES / 2].hi;
        }
#pragma unroll
        for (int i = 0; i < LANES; i++)
            x[i] = y[i];
    }
}

// Panels of b from its transpose, bt[n, k].
kernel void packed_write_transposed(global float *panels, ulong panels0, const global float *bt, ulong bt0,
                                    int n, int k)
{
    const int column = get_global_id(0) * LANES; // with zeros up to the end of the last panel
    if (column >= (n + PANEL - 1) / PANEL * PANEL)
        return;
    panels += panels0 + (size_t)(column / PANEL * PANEL) * k + column % PANEL;
    bt += bt0 + (size_t)column * k;
    for (int l = 0; l < k; l += LANES) {
        float16 x[LANES];
#pragma unroll
        for (int j = 0; j < LANES; j++)
            x[j] = load(bt + (size_t)j * k + l, column + j < n ? k - l : 0);
        transpose(x);
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (l + i < k)
                vstore16(x[i], 0, panels + (size_t)(l + i) * PANEL);
    }
}
