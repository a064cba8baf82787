// SPDX-License-Identifier: Apache-2.0
// Products with a matrix in panels, for CPUs. The matrix b [K, N] lies as [N / 48][K][48], zeros
// behind its last column, so that a tile of c reads one stream. An item takes a tile of 8 x 48 of
// c, the loop over K inside and the sums in registers: in registers of 16 floats, 24 of 32; with
// narrower ones the tile is cut further. The host cuts K so that what is used again stays in a
// core's cache. An element of c is summed in the order of K, wherever its row lies.

#define PANEL 48     // columns of a panel; TP_PANEL of the host
#define TILE_ROWS 8  // rows of c an item computes; TILE_ROWS of the host
#define TALL_ROWS 32 // and with a transposed, where a tile takes less time; TALL_ROWS of the host
#define WIDE_COLUMNS 192 // columns of c an item computes then; WIDE_COLUMNS of the host
#define BLOCK_ROWS 256   // rows of c that are computed for all panels before the next rows
#define PACK_ROWS 16     // rows of b an item packs; PACK_ROWS of the host
#define ROWS_AHEAD 8     // how early a row of a transposed matrix is fetched

// Rows and vectors of columns that are summed in registers at once.
#if VECTOR_WIDTH >= LANES
#define SUM_ROWS 8
#define SUM_VECTORS 3
#else
#define SUM_ROWS 4
#define SUM_VECTORS 1
#endif

// OpenCL's prefetch() is empty in drivers for CPUs; the translator to SPIR-V does not know the compiler's.
#if defined(__has_builtin) && !defined(__SPIR32__) && !defined(__SPIR64__)
#if __has_builtin(__builtin_prefetch)
#define FETCH(x) __builtin_prefetch((const void *)(size_t)(x), 0, 2)
#endif
#endif
#ifndef FETCH
#define FETCH(x) prefetch(x, LANES)
#endif

// An item's tile of c [m, n], of so many rows. Items go through blocks of tiles, whose rows of a
// are few enough to stay in a core's cache; in a block through the panels; in a panel through the
// tiles.
struct tile {
    uint row, column, rows, columns; // first ones, and how many there are
    uint number, of;                 // in the block
};

bool tile_of(struct tile *tile, uint rows, uint m, uint n)
{
    const uint all = (m + rows - 1) / rows, panels = (n + PANEL - 1) / PANEL, id = get_global_id(0);
    const uint block = BLOCK_ROWS / rows, before = id / (block * panels) * block,
               item = id - before * panels;
    if (before >= all)
        return false;
    tile->of = min(block, all - before);
    tile->number = item % tile->of;
    tile->row = (before + tile->number) * rows;
    tile->column = item / tile->of * PANEL;
    tile->rows = min(rows, m - tile->row);
    tile->columns = min((uint)PANEL, n - tile->column);
    return tile->column < n;
}

// c[rows, columns] = sum + beta c, of the tile's rows and columns that are there.
// In line always: sums that a function gets by address leave the registers.
__attribute__((always_inline)) void store_sums(global float *c, float16 sum[SUM_ROWS][SUM_VECTORS],
                                               int rows, int columns, int n, float beta)
{
#pragma unroll
    for (int i = 0; i < SUM_ROWS; i++)
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++) {
            global float *to = c + (size_t)i * n + v * LANES;
            const int count = columns - v * LANES;
            if (i < rows && count > 0)
                store(beta != 0.0f ? sum[i][v] + beta * load(to, count) : sum[i][v], to, count);
        }
}

// c[rows, columns] = a b + beta c, of at most SUM_ROWS x SUM_VECTORS * LANES elements; b points at
// the first of the columns in a panel, c has n in all. Rows that are not there are the last one
// again, and not stored. On the way, what another item will need is fetched from ahead, so many
// floats per row of b.
void sum_tile(global float *c, const global float *a, const global float *b, int rows, int columns,
              int n, int k, int stride, float beta, const global float *ahead, int step)
{
    float16 sum[SUM_ROWS][SUM_VECTORS];
    const global float *row[SUM_ROWS];
#pragma unroll
    for (int i = 0; i < SUM_ROWS; i++) {
        row[i] = a + (size_t)min(i, rows - 1) * stride;
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++)
            sum[i][v] = 0.0f;
    }
    for (int l = 0; l < k; l++, b += PANEL, ahead += step) {
        float16 w[SUM_VECTORS];
        FETCH(ahead);
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++)
            w[v] = vload16(v, b);
#pragma unroll
        for (int i = 0; i < SUM_ROWS; i++)
#pragma unroll
            for (int v = 0; v < SUM_VECTORS; v++)
                sum[i][v] += row[i][l] * w[v];
    }
    store_sums(c, sum, rows, columns, n, beta);
}

// Each item fetches its share of the next panel from memory while it computes: without that, few
// rows wait for memory most of the time. Behind the last panel there is nothing to fetch, and
// fetching it does no harm.
kernel void packed_gemm(global float *c, ulong c0, const global float *a, ulong a0,
                        const global float *b, ulong b0, uint m, int n, int k, int stride,
                        float beta)
{
    struct tile tile;
    if (!tile_of(&tile, TILE_ROWS, m, n))
        return;
    const int rows = tile.rows, columns = tile.columns, step = (PANEL + tile.of - 1) / tile.of;
    a += a0 + (size_t)tile.row * stride;
    b += b0 + (size_t)tile.column * k;
    c += c0 + (size_t)tile.row * n + tile.column;
    const global float *ahead = b + (size_t)k * PANEL + (size_t)k * PANEL * tile.number / tile.of;
    for (int i = 0; i < rows; i += SUM_ROWS)
        for (int j = 0; j < columns; j += SUM_VECTORS * LANES)
            sum_tile(c + (size_t)i * n + j, a + (size_t)i * stride, b + j, rows - i, columns - j, n,
                     k, stride, beta, ahead, step);
}

// The same with a transposed: a[k, m], a tile's numbers of a row side by side. whole says that all
// its rows are there. The rows of a that come soon, and the sums of a tile that comes after this
// one, so far behind it in memory, are fetched ahead.
__attribute__((always_inline)) void sum_tile_transposed(global float *c, const global float *a,
                                                        const global float *b, int rows,
                                                        int columns, size_t m, int n, int k,
                                                        float beta, size_t next, bool whole)
{
    float16 sum[SUM_ROWS][SUM_VECTORS];
#pragma unroll
    for (int i = 0; i < SUM_ROWS; i++)
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++) {
            sum[i][v] = 0.0f;
            FETCH(c + next + (size_t)i * n + v * LANES);
        }
    for (int l = 0; l < k; l++, a += m, b += PANEL) {
        float16 w[SUM_VECTORS];
        FETCH(a + ROWS_AHEAD * m);
#pragma unroll
        for (int v = 0; v < SUM_VECTORS; v++)
            w[v] = vload16(v, b);
#pragma unroll
        for (int i = 0; i < SUM_ROWS; i++)
#pragma unroll
            for (int v = 0; v < SUM_VECTORS; v++)
                sum[i][v] += (whole || i < rows ? a[i] : 0.0f) * w[v];
    }
    store_sums(c, sum, rows, columns, n, beta);
}

// A wide tile: eight rows of c and a few panels, items going along the rows of c. Where all of b
// stays in a core's cache, this is how c passes through it as the processor expects.
void wide_tile_of(struct tile *tile, uint m, uint n)
{
    const uint across = (n + WIDE_COLUMNS - 1) / WIDE_COLUMNS, id = get_global_id(0);
    tile->row = id / across * TILE_ROWS;
    tile->column = id % across * WIDE_COLUMNS;
    tile->rows = min((uint)TILE_ROWS, m - tile->row);
    tile->columns = min((uint)WIDE_COLUMNS, n - tile->column);
}

kernel void packed_gemm_transposed(global float *c, ulong c0, const global float *a, ulong a0,
                                   const global float *b, ulong b0, uint m, int n, int k,
                                   float beta, int wide)
{
    struct tile tile;
    if (wide)
        wide_tile_of(&tile, m, n);
    else if (!tile_of(&tile, TALL_ROWS, m, n))
        return;
    const int rows = tile.rows, columns = tile.columns;
    const size_t next = wide ? 2 * PANEL : 3 * SUM_ROWS * (size_t)n;
    a += a0 + tile.row;
    b += b0 + (size_t)tile.column * k;
    c += c0 + (size_t)tile.row * n + tile.column;
    for (int panel = 0; panel < columns; panel += PANEL, b += PANEL * (size_t)k)
        for (int i = 0; i < rows; i += SUM_ROWS)
            for (int j = 0; j < min(PANEL, columns - panel); j += SUM_VECTORS * LANES) {
                global float *to = c + (size_t)i * n + panel + j;
                const int left = columns - panel - j;
                if (rows - i >= SUM_ROWS)
                    sum_tile_transposed(to, a + i, b + j, SUM_ROWS, left, m, n, k, beta, next,
                                        true);
                else
                    sum_tile_transposed(to, a + i, b + j, rows - i, left, m, n, k, beta, next,
                                        false);
            }
}

// Panels of b from b[k, n].
kernel void packed_write(global float *panels, ulong panels0, const global float *b, ulong b0,
                         int n, int k)
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
kernel void packed_write_transposed(global float *panels, ulong panels0, const global float *bt,
                                    ulong bt0, int n, int k, int stride)
{
    const int column = get_global_id(0) * LANES; // with zeros up to the end of the last panel
    if (column >= (n + PANEL - 1) / PANEL * PANEL)
        return;
    panels += panels0 + (size_t)(column / PANEL * PANEL) * k + column % PANEL;
    bt += bt0 + (size_t)column * stride;
    for (int l = 0; l < k; l += LANES) {
        float16 x[LANES];
#pragma unroll
        for (int j = 0; j < LANES; j++)
            x[j] = load(bt + (size_t)j * stride + l, column + j < n ? k - l : 0);
        transpose(x);
#pragma unroll
        for (int i = 0; i < LANES; i++)
            if (l + i < k)
                vstore16(x[i], 0, panels + (size_t)(l + i) * PANEL);
    }
}
