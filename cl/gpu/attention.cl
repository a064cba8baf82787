// SPDX-License-Identifier: Apache-2.0
// Causal attention of a slice on its context. Queries, outputs and their gradients are rows of C = H D, a
// head's part at h D; keys, values and their gradients are caches [sequences, H, T, DS] with zeros beyond D.
//
// A group owns a tile of rows, queries or keys, and visits the others tile by tile. Products of the two go
// through local memory in chunks of columns, so that a tile has one size for every D. An item has
// ROWS x COLUMNS weights of a pair of tiles, in rows Y + i DOWN and columns X + j ACROSS, and elements
// X + k ACROSS of those rows' sums. Functions with barriers end with one: local memory is free then.

#define TILE 32
#define CHUNK 32
#define QUADS (CHUNK / 4 + 1) // of a row in local memory; one is idle, so that rows spread over banks
#define STRIDE (4 * QUADS)
#define ROWS (TILE / DOWN)
#define COLUMNS (TILE / ACROSS)
#define ELEMENTS (DS / ACROSS)
#define X (ITEM % ACROSS)
#define Y (ITEM / ACROSS)

GROUP_KERNEL void qkv_split(global float *query, ulong query0, global float *key, ulong key0,
                            global float *value, ulong value0, const global float *qkv, ulong qkv0,
                            const global float *bias, ulong bias0, int sequences, int S, int P, int T, int H)
{
    const size_t row = get_group_id(0);
    const int C = H * D;
    const ulong at = ((row / S * H) * T + P + row % S) * DS; // head 0
    query += query0 + row * C;
    key += key0 + at;
    value += value0 + at;
    qkv += qkv0 + row * 3 * C;
    bias += bias0;
    for (int i = ITEM; i < H * DS; i += GROUP) {
        const int h = i / DS, d = i % DS, c = h * D + d;
        const ulong cached = (ulong)h * T * DS + d;
        if (d < D)
            query[c] = qkv[c] + bias[c];
        key[cached] = d < D ? qkv[C + c] + bias[C + c] : 0.0f;
        value[cached] = d < D ? qkv[2 * C + c] + bias[2 * C + c] : 0.0f;
    }
}

GROUP_KERNEL void qkv_merge(global float *dqkv, ulong dqkv0, const global float *dquery, ulong dquery0,
                            const global float *dkey, ulong dkey0, const global float *dvalue, ulong dvalue0,
                            int sequences, int S, int P, int T, int H)
{
    const size_t row = get_group_id(0);
    const int C = H * D;
    const ulong at = ((row / S * H) * T + P + row % S) * DS;
    dqkv += dqkv0 + row * 3 * C;
    dquery += dquery0 + row * C;
    dkey += dkey0 + at;
    dvalue += dvalue0 + at;
    for (int c = ITEM; c < C; c += GROUP) {
        const ulong cached = (ulong)(c / D) * T * DS + c % D;
        dqkv[c] = dquery[c];
        dqkv[C + c] = dkey[cached];
        dqkv[2 * C + c] = dvalue[cached];
    }
}

// Rows of D numbers, n of a tile there.
struct rows {
    const global float *at;
    int stride, n;
};

// Columns [first, first + CHUNK) of rows, zeros where there is nothing.
void load_chunk(local float4 *chunk, struct rows rows, int first)
{
    for (int i = ITEM; i < TILE * CHUNK; i += GROUP) {
        const int row = i / CHUNK, d = first + i % CHUNK;
        ((local float *)chunk)[row * STRIDE + i % CHUNK] =
            row < rows.n && d < D ? rows.at[(size_t)row * rows.stride + d] : 0.0f;
    }
}

// s = products of each own row with each visited one.
void multiply_rows(float s[ROWS][COLUMNS], struct rows own, struct rows visited, local float4 *a,
                   local float4 *b)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            s[i][j] = 0.0f;
    for (int first = 0; first < D; first += CHUNK) {
        load_chunk(a, own, first);
        load_chunk(b, visited, first);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int quad = 0; quad < CHUNK / 4; quad++) {
            float4 right[COLUMNS];
#pragma unroll
            for (int j = 0; j < COLUMNS; j++)
                right[j] = b[(X + j * ACROSS) * QUADS + quad];
#pragma unroll
            for (int i = 0; i < ROWS; i++) {
                const float4 left = a[(Y + i * DOWN) * QUADS + quad];
#pragma unroll
                for (int j = 0; j < COLUMNS; j++)
                    s[i][j] += dot(left, right[j]);
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

// sum += weights times the visited rows.
void add_weighted(float sum[ROWS][ELEMENTS], float s[ROWS][COLUMNS], struct rows visited,
                  local float4 *weights, local float4 *b)
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int j = 0; j < COLUMNS; j++)
            ((local float *)weights)[(Y + i * DOWN) * STRIDE + X + j * ACROSS] = s[i][j];
#pragma unroll
    for (int k = 0; k < ELEMENTS; k += CHUNK / ACROSS) {
        load_chunk(b, visited, k * ACROSS);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int quad = 0; quad < TILE / 4; quad++)
#pragma unroll
            for (int c = 0; c < CHUNK / ACROSS && k + c < ELEMENTS; c++) {
                const local float *column = (const local float *)b + 4 * quad * STRIDE + X + c * ACROSS;
                const float4 right =
                    (float4)(column[0], column[STRIDE], column[2 * STRIDE], column[3 * STRIDE]);
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    sum[i][k + c] += dot(weights[(Y + i * DOWN) * QUADS + quad], right);
            }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

void clear(float sum[ROWS][ELEMENTS])
{
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++)
            sum[i][k] = 0.0f;
}

// x[i] = what all items of that row have in x[i] together.
#define OVER_ROWS(name, both)                                                                                \
    void name(float x[ROWS], local float *part)                                                              \
    {                                                                                                        \
        for (int i = 0; i < ROWS; i++)                                                                       \
            part[(Y + i * DOWN) * ACROSS + X] = x[i];                                                        \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
        for (int i = 0; i < ROWS; i++) {                                                                     \
            const local float *row = part + (Y + i * DOWN) * ACROSS;                                         \
            x[i] = row[0];                                                                                   \
            for (int j = 1; j < ACROSS; j++)                                                                 \
                x[i] = both(x[i], row[j]);                                                                   \
        }                                                                                                    \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
    }
OVER_ROWS(sum_rows, PLUS)
OVER_ROWS(max_rows, fmax)

// One head of one sequence: its rows of the slice and of the caches, and its masks.
struct head {
    const global float *query, *out, *dout, *lse, *key, *value;
    int S, P, C, H;
    float scale; // of scores
    int sequence;
    uint masks; // index of the head's first
    ulong rng;
    uint threshold;
    float kept_scale;
};

// What a group has in local memory.
struct tiles {
    local float4 *a, *b, *weights;
    local float *masks, *part, *lse, *delta;
};

struct rows queries_from(const struct head *head, const global float *x, int first)
{
    return (struct rows){x + (size_t)first * head->C, head->C, min(TILE, head->S - first)};
}

struct rows keys_from(const struct head *head, const global float *x, int first)
{
    return (struct rows){x + (size_t)first * DS, DS, min(TILE, head->P + head->S - first)};
}

// masks[query * by_query + key * by_key] of tiles that begin there; a block of numbers is four keys'.
void draw_masks(local float *masks, int by_query, int by_key, const struct head *head, int first_query,
                int first_key)
{
    const int blocks = head->threshold != 0 ? TILE * TILE / 4 : 0;
    for (int i = ITEM; i < blocks; i += GROUP) {
        const int query = i / (TILE / 4), key = i % (TILE / 4) * 4;
        uint w0 = (head->masks + first_key + key) / 4, w1 = head->P + first_query + query;
        uint w2 = head->sequence, w3 = DROPOUT_USE;
        philox(&w0, &w1, &w2, &w3, head->rng);
        local float *to = masks + query * by_query + key * by_key;
        to[0] = w0 < head->threshold ? 0.0f : head->kept_scale;
        to[by_key] = w1 < head->threshold ? 0.0f : head->kept_scale;
        to[2 * by_key] = w2 < head->threshold ? 0.0f : head->kept_scale;
        to[3 * by_key] = w3 < head->threshold ? 0.0f : head->kept_scale;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// A tile of queries of one head of one sequence a group. Weights are dropped after they are normalised:
// the sum has them all.
GROUP_KERNEL void attention_forward(global float *out, ulong out0, global float *lse, ulong lse0,
                                    const global float *query, ulong query0, const global float *key,
                                    ulong key0, const global float *value, ulong value0, int sequences, int S,
                                    int P, int T, int H, int first_head, int stride, ulong rng,
                                    uint threshold, float kept_scale, int first_sequence)
{
    local float4 a[TILE * QUADS], b[TILE * QUADS], weights[TILE * QUADS];
    local float masks[TILE * STRIDE], part[TILE * ACROSS];
    const int tiles = (S + TILE - 1) / TILE, first = get_group_id(0) % tiles * TILE;
    const size_t number = get_group_id(0) / tiles; // of the head, [sequences, H]
    const int h = number % H, C = H * D, n = min(TILE, S - first);
    const size_t row = number / H * S, cache = number * T * DS;
    const struct head head = {.query = query + query0 + row * C + h * D,
                              .key = key + key0 + cache,
                              .value = value + value0 + cache,
                              .S = S,
                              .P = P,
                              .C = C,
                              .H = H,
                              .scale = 1.0f / sqrt((float)D),
                              .sequence = first_sequence + number / H,
                              .masks = (first_head + h) * (uint)stride,
                              .rng = rng,
                              .threshold = threshold,
                              .kept_scale = kept_scale};

    float o[ROWS][ELEMENTS], top[ROWS], sum[ROWS];
    clear(o);
    for (int i = 0; i < ROWS; i++) {
        top[i] = -INFINITY;
        sum[i] = 0.0f;
    }

    for (int j = 0; j < P + first + n; j += TILE) {
        float s[ROWS][COLUMNS], higher[ROWS];
        draw_masks(masks, STRIDE, 1, &head, first, j);
        multiply_rows(s, queries_from(&head, head.query, first), keys_from(&head, head.key, j), a, b);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            higher[i] = top[i];
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                const bool seen = j + X + c * ACROSS <= P + first + Y + i * DOWN;
                s[i][c] = seen ? head.scale * s[i][c] : -INFINITY;
                higher[i] = fmax(higher[i], s[i][c]);
            }
        }
        max_rows(higher, part);
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            const float rescale = exp_one(top[i] - higher[i]);
            top[i] = higher[i];
            sum[i] *= rescale;
#pragma unroll
            for (int k = 0; k < ELEMENTS; k++)
                o[i][k] *= rescale;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                s[i][c] = exp_one(s[i][c] - top[i]);
                sum[i] += s[i][c];
                if (threshold != 0)
                    s[i][c] *= masks[(Y + i * DOWN) * STRIDE + X + c * ACROSS];
            }
        }
        add_weighted(o, s, keys_from(&head, head.value, j), weights, b);
    }

    sum_rows(sum, part);
    out += out0 + (row + first) * C + h * D;
    lse += lse0 + (row + first) * H + h;
#pragma unroll
    for (int i = 0; i < ROWS; i++) {
        const int at = Y + i * DOWN;
        if (at < n && X == 0)
            lse[(size_t)at * H] = top[i] + log(sum[i]);
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++)
            if (at < n && X + k * ACROSS < D)
                out[(size_t)at * C + X + k * ACROSS] = o[i][k] / sum[i];
    }
}

// Of a tile of queries: lse, and delta = dout out.
void load_queries(const struct tiles *tiles, const struct head *head, int first)
{
    const struct rows out = queries_from(head, head->out, first);
    const struct rows dout = queries_from(head, head->dout, first);
    float delta[ROWS];
    for (int i = 0; i < ROWS; i++) {
        const int row = Y + i * DOWN;
        delta[i] = 0.0f;
        for (int d = row < out.n ? X : D; d < D; d += ACROSS)
            delta[i] += dout.at[(size_t)row * dout.stride + d] * out.at[(size_t)row * out.stride + d];
    }
    sum_rows(delta, tiles->part);
    for (int i = 0; i < ROWS; i++) {
        const int row = Y + i * DOWN;
        if (X == 0) {
            tiles->delta[row] = delta[i];
            tiles->lse[row] = row < out.n ? head->lse[(size_t)(first + row) * head->H] : 0.0f;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

// Of a tile of queries and one of keys, weights p = e^(s - lse) and gradients of scores
// ds = p (dout v - delta); dropped weights count in dvalue and in dout v, not in that p. The group's own are
// the keys or the queries.
void weigh(float p[ROWS][COLUMNS], float ds[ROWS][COLUMNS], const struct tiles *tiles,
           const struct head *head, int first_query, int first_key, bool own_keys)
{
    const struct rows query = queries_from(head, head->query, first_query);
    const struct rows dout = queries_from(head, head->dout, first_query);
    const struct rows key = keys_from(head, head->key, first_key);
    const struct rows value = keys_from(head, head->value, first_key);
    draw_masks(tiles->masks, own_keys ? 1 : STRIDE, own_keys ? STRIDE : 1, head, first_query, first_key);
    multiply_rows(p, own_keys ? key : query, own_keys ? query : key, tiles->a, tiles->b);
    multiply_rows(ds, own_keys ? value : dout, own_keys ? dout : value, tiles->a, tiles->b);
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int c = 0; c < COLUMNS; c++) {
            const int row = Y + i * DOWN, column = X + c * ACROSS;
            const int q = own_keys ? column : row, k = own_keys ? row : column;
            const bool seen = q < query.n && first_key + k <= head->P + first_query + q;
            const float kept = head->threshold != 0 ? tiles->masks[row * STRIDE + column] : 1.0f;
            p[i][c] = seen ? exp_one(head->scale * p[i][c] - tiles->lse[q]) : 0.0f;
            ds[i][c] = p[i][c] * (kept * ds[i][c] - tiles->delta[q]);
            p[i][c] *= kept;
        }
}

// dkey and dvalue of a tile of keys, from all queries that saw them, in order.
void attend_keys(global float *dkey, global float *dvalue, const struct tiles *tiles, const struct head *head,
                 int first)
{
    const int n = min(TILE, head->P + head->S - first);
    float dk[ROWS][ELEMENTS], dv[ROWS][ELEMENTS];
    clear(dk);
    clear(dv);
    for (int i = max(first - head->P, 0); i < head->S; i += TILE) {
        float p[ROWS][COLUMNS], ds[ROWS][COLUMNS];
        load_queries(tiles, head, i);
        weigh(p, ds, tiles, head, i, first, true);
        add_weighted(dv, p, queries_from(head, head->dout, i), tiles->weights, tiles->b);
        add_weighted(dk, ds, queries_from(head, head->query, i), tiles->weights, tiles->b);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++) {
            const int row = Y + i * DOWN, d = X + k * ACROSS;
            if (row < n && d < D) {
                dkey[(size_t)(first + row) * DS + d] += head->scale * dk[i][k];
                dvalue[(size_t)(first + row) * DS + d] += dv[i][k];
            }
        }
}

// dquery of queries [first, end), a tile at most and perhaps none, from all keys they saw.
void attend_queries(global float *dquery, const struct tiles *tiles, const struct head *head, int first,
                    int end)
{
    float dq[ROWS][ELEMENTS];
    clear(dq);
    load_queries(tiles, head, first);
    const int keys = first < end ? head->P + end : 0;
    for (int j = 0; j < keys; j += TILE) {
        float p[ROWS][COLUMNS], ds[ROWS][COLUMNS];
        weigh(p, ds, tiles, head, first, j, false);
        add_weighted(dq, ds, keys_from(head, head->key, j), tiles->weights, tiles->b);
    }
#pragma unroll
    for (int i = 0; i < ROWS; i++)
#pragma unroll
        for (int k = 0; k < ELEMENTS; k++) {
            const int row = first + Y + i * DOWN, d = X + k * ACROSS;
            if (row < end && d < D)
                dquery[(size_t)row * head->C + d] = head->scale * dq[i][k];
        }
}

// A tile of positions of one head of one sequence a group: its keys, seen by what comes later, and those of
// its queries that the slice has, which see what comes before. So groups have much the same to do, and sums
// need no atomics.
GROUP_KERNEL void attention_backward(global float *dquery, ulong dquery0, global float *dkey, ulong dkey0,
                                     global float *dvalue, ulong dvalue0, const global float *dout,
                                     ulong dout0, const global float *out, ulong out0,
                                     const global float *lse, ulong lse0, const global float *query,
                                     ulong query0, const global float *key, ulong key0,
                                     const global float *value, ulong value0, int sequences, int S, int P,
                                     int T, int H, int first_head, int stride, ulong rng, uint threshold,
                                     float kept_scale, int first_sequence)
{
    local float4 a[TILE * QUADS], b[TILE * QUADS], weights[TILE * QUADS];
    local float masks[TILE * STRIDE], part[TILE * ACROSS], logs[TILE], delta[TILE];
    const struct tiles tiles = {a, b, weights, masks, part, logs, delta};
    const int n_tiles = (P + S + TILE - 1) / TILE, first = get_group_id(0) % n_tiles * TILE;
    const size_t number = get_group_id(0) / n_tiles; // of the head, [sequences, H]
    const int h = number % H, C = H * D;
    const size_t row = number / H * S, at = row * C + h * D, cache = number * T * DS;
    const struct head head = {.query = query + query0 + at,
                              .out = out + out0 + at,
                              .dout = dout + dout0 + at,
                              .lse = lse + lse0 + row * H + h,
                              .key = key + key0 + cache,
                              .value = value + value0 + cache,
                              .S = S,
                              .P = P,
                              .C = C,
                              .H = H,
                              .scale = 1.0f / sqrt((float)D),
                              .sequence = first_sequence + number / H,
                              .masks = (first_head + h) * (uint)stride,
                              .rng = rng,
                              .threshold = threshold,
                              .kept_scale = kept_scale};
    attend_keys(dkey + dkey0 + cache, dvalue + dvalue0 + cache, &tiles, &head, first);
    attend_queries(dquery + dquery0 + at, &tiles, &head, max(first - P, 0), min(first + TILE - P, S));
}
