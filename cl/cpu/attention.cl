// SPDX-License-Identifier: Apache-2.0
// Causal attention of a slice on its context. D = HEAD_WIDTH. Queries, outputs and their gradients are
// rows of C = H D, a head's part at h D; keys, values and their gradients are caches
// [sequences, H, T, HEAD_STRIDE] with zeros beyond D.
//
// Queries lie on the vector lanes, 16 of them a tile, so that softmax needs no sums over lanes; keys
// come KEYS at a time, their elements broadcast.

#define TILE LANES
#define KEYS 8

kernel void qkv_split(global float *query, ulong query0, global float *key, ulong key0,
                      global float *value, ulong value0, const global float *qkv, ulong qkv0,
                      const global float *bias, ulong bias0, int sequences, int S, int P, int T, int H)
{
    const size_t row = get_global_id(0);
    if (row >= (size_t)sequences * S)
        return;
    const int C = H * D;
    const ulong at = ((row / S * H) * T + P + row % S) * DS; // head 0
    query += query0 + row * C;
    key += key0 + at;
    value += value0 + at;
    qkv += qkv0 + row * 3 * C;
    bias += bias0;
    for (int h = 0; h < H; h++)
        for (int d = 0; d < D; d += LANES) {
            const int c = h * D + d, n = D - d;
            const ulong cached = (ulong)h * T * DS + d;
            store(load(qkv + c, n) + load(bias + c, n), query + c, n);
            vstore16(load(qkv + C + c, n) + load(bias + C + c, n), 0, key + cached);
            vstore16(load(qkv + 2 * C + c, n) + load(bias + 2 * C + c, n), 0, value + cached);
        }
}

kernel void qkv_merge(global float *dqkv, ulong dqkv0, const global float *dquery, ulong dquery0,
                      const global float *dkey, ulong dkey0, const global float *dvalue, ulong dvalue0,
                      int sequences, int S, int P, int T, int H)
{
    const size_t row = get_global_id(0);
    if (row >= (size_t)sequences * S)
        return;
    const int C = H * D;
    const ulong at = ((row / S * H) * T + P + row % S) * DS;
    dqkv += dqkv0 + row * 3 * C;
    dquery += dquery0 + row * C;
    dkey += dkey0 + at;
    dvalue += dvalue0 + at;
    for (int h = 0; h < H; h++)
        for (int d = 0; d < D; d += LANES) {
            const int c = h * D + d, n = D - d;
            const ulong cached = (ulong)h * T * DS + d;
            store(load(dquery + c, n), dqkv + c, n);
            store(vload16(0, dkey + cached), dqkv + C + c, n);
            store(vload16(0, dvalue + cached), dqkv + 2 * C + c, n);
        }
}

// t[d] = element d of n rows of C floats times scale, a row a lane; zeros in the other lanes.
void load_transposed(float16 *t, const global float *x, int n, int C, float scale)
{
    float part[D * TILE];
    for (int d = 0; d < D; d++)
        vstore16((float16)(0.0f), d, part);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < D; d++)
            part[d * TILE + i] = scale * x[(size_t)i * C + d];
    for (int d = 0; d < D; d++)
        t[d] = vload16(d, part);
}

void store_transposed(const float16 *t, global float *x, int n, int C)
{
    float part[D * TILE];
    for (int d = 0; d < D; d++)
        vstore16(t[d], d, part);
    for (int i = 0; i < n; i++)
        for (int d = 0; d < D; d++)
            x[(size_t)i * C + d] = part[d * TILE + i];
}

// s[j] = sum over d of q[d] k[j][d]: a row of keys times the lanes' queries. Keys beyond last are the
// last one again; the caller masks them.
void score_keys(float16 s[KEYS], const float16 *q, const global float *k, int last)
{
    const global float *k0 = k, *k1 = k + min(1, last) * DS, *k2 = k + min(2, last) * DS;
    const global float *k3 = k + min(3, last) * DS, *k4 = k + min(4, last) * DS;
    const global float *k5 = k + min(5, last) * DS, *k6 = k + min(6, last) * DS;
    const global float *k7 = k + min(7, last) * DS;
    float16 s0 = 0.0f, s1 = 0.0f, s2 = 0.0f, s3 = 0.0f, s4 = 0.0f, s5 = 0.0f, s6 = 0.0f, s7 = 0.0f;
    for (int d = 0; d < D; d++) {
        const float16 x = q[d];
        s0 += x * k0[d];
        s1 += x * k1[d];
        s2 += x * k2[d];
        s3 += x * k3[d];
        s4 += x * k4[d];
        s5 += x * k5[d];
        s6 += x * k6[d];
        s7 += x * k7[d];
    }
    s[0] = s0, s[1] = s1, s[2] = s2, s[3] = s3, s[4] = s4, s[5] = s5, s[6] = s6, s[7] = s7;
}

// o[d] += sum over j of p[j] v[j][d].
void add_weighted(float16 *o, const float16 p[KEYS], const global float *v, int last)
{
    const global float *v0 = v, *v1 = v + min(1, last) * DS, *v2 = v + min(2, last) * DS;
    const global float *v3 = v + min(3, last) * DS, *v4 = v + min(4, last) * DS;
    const global float *v5 = v + min(5, last) * DS, *v6 = v + min(6, last) * DS;
    const global float *v7 = v + min(7, last) * DS;
    const float16 p0 = p[0], p1 = p[1], p2 = p[2], p3 = p[3], p4 = p[4], p5 = p[5], p6 = p[6], p7 = p[7];
    for (int d = 0; d < D; d++)
        o[d] += p0 * v0[d] + p1 * v1[d] + p2 * v2[d] + p3 * v3[d] + p4 * v4[d] + p5 * v5[d] +
                p6 * v6[d] + p7 * v7[d];
}

// The masks of KEYS keys, the first of which has that index.
void draw_masks(float16 kept[KEYS], uint index, int16 position, int sequence, ulong rng, uint threshold,
                float scale)
{
    for (int i = 0; i < KEYS; i += 4)
        kept_weights(kept + i, index + i, position, sequence, rng, threshold, scale);
}

void drop_weights(float16 p[KEYS], const float16 kept[KEYS])
{
    for (int i = 0; i < KEYS; i++)
        p[i] *= kept[i];
}

// One tile of queries of one head of one sequence an item. Weights are dropped after they are normalised:
// the sum has them all.
kernel void attention_forward(global float *out, ulong out0, global float *lse, ulong lse0,
                              const global float *query, ulong query0, const global float *key, ulong key0,
                              const global float *value, ulong value0, int sequences, int S, int P, int T,
                              int H, int first_head, int stride, ulong rng, uint threshold, float kept_scale,
                              int first_sequence)
{
    const int tiles = (S + TILE - 1) / TILE;
    const size_t item = get_global_id(0);
    if (item >= (size_t)sequences * H * tiles)
        return;
    const int first = item % tiles * TILE, n = min(TILE, S - first);
    const size_t head = item / tiles; // [sequences, H]
    const int h = head % H, C = H * D;
    const size_t row = head / H * S + first;
    const int sequence = first_sequence + head / H;
    const uint masks = (first_head + h) * (uint)stride; // index of the head's first
    const global float *k = key + key0 + head * T * DS;
    const global float *v = value + value0 + head * T * DS;
    const int16 position = P + first + lane; // of the lane's query; it sees keys up to there
    const int end = P + first + n;

    float16 q[D], o[D];
    load_transposed(q, query + query0 + row * C + h * D, n, C, rsqrt((float)D));
    for (int d = 0; d < D; d++)
        o[d] = 0.0f;
    float16 top = -INFINITY, sum = 0.0f;

    for (int j = 0; j < end; j += KEYS) {
        const int last = min(KEYS, end - j) - 1;
        float16 s[KEYS];
        score_keys(s, q, k + (size_t)j * DS, last);
        if (j + KEYS > P + first + 1 || last < KEYS - 1)
            for (int i = 0; i < KEYS; i++)
                s[i] = select((float16)(-INFINITY), s[i], position >= j + i && (int16)(i <= last ? -1 : 0));

        float16 higher = top;
        for (int i = 0; i < KEYS; i++)
            higher = fmax(higher, s[i]);
        if (any(higher > top)) {
            const float16 rescale = exp_lanes(top - higher);
            sum *= rescale;
            for (int d = 0; d < D; d++)
                o[d] *= rescale;
            top = higher;
        }
        for (int i = 0; i < KEYS; i++) {
            s[i] = exp_lanes(s[i] - top);
            sum += s[i];
        }
        if (threshold != 0) {
            float16 kept[KEYS];
            draw_masks(kept, masks + j, position, sequence, rng, threshold, kept_scale);
            drop_weights(s, kept);
        }
        add_weighted(o, s, v + (size_t)j * DS, last);
    }

    const float16 inverse = 1.0f / sum;
    for (int d = 0; d < D; d++)
        o[d] *= inverse;
    store_transposed(o, out + out0 + row * C + h * D, n, C);
    float logs[TILE];
    vstore16(top + log(sum), 0, logs);
    for (int i = 0; i < n; i++)
        lse[lse0 + (row + i) * H + h] = logs[i];
}

// rows[i][d], padded with zeros to TILE rows of DS, of n rows of C floats, times scale.
void load_rows(float *rows, const global float *x, int n, int C, float scale)
{
    for (int i = 0; i < TILE; i++)
        for (int d = 0; d < DS; d += LANES)
            vstore16(i < n ? scale * load(x + (size_t)i * C + d, D - d) : (float16)(0.0f), 0,
                     rows + i * DS + d);
}

// For four keys: dv[j] += sum over the tile's queries i of p[j][i] dout[i], dk[j] likewise with ds and q.
// Keys beyond last are left alone.
void add_key_gradients(global float *dk, global float *dv, const float *p, const float *ds,
                       const float *dout, const float *q, int last)
{
    const int o1 = min(1, last) * DS, o2 = min(2, last) * DS, o3 = min(3, last) * DS;
    for (int d = 0; d < DS; d += LANES) {
        float16 v0 = vload16(0, dv + d), v1 = vload16(0, dv + o1 + d);
        float16 v2 = vload16(0, dv + o2 + d), v3 = vload16(0, dv + o3 + d);
        float16 k0 = vload16(0, dk + d), k1 = vload16(0, dk + o1 + d);
        float16 k2 = vload16(0, dk + o2 + d), k3 = vload16(0, dk + o3 + d);
        for (int i = 0; i < TILE; i++) {
            const float16 g = vload16(0, dout + i * DS + d), x = vload16(0, q + i * DS + d);
            v0 += p[i] * g;
            v1 += p[TILE + i] * g;
            v2 += p[2 * TILE + i] * g;
            v3 += p[3 * TILE + i] * g;
            k0 += ds[i] * x;
            k1 += ds[TILE + i] * x;
            k2 += ds[2 * TILE + i] * x;
            k3 += ds[3 * TILE + i] * x;
        }
        vstore16(v0, 0, dv + d);
        vstore16(k0, 0, dk + d);
        if (last >= 1) {
            vstore16(v1, 0, dv + o1 + d);
            vstore16(k1, 0, dk + o1 + d);
        }
        if (last >= 2) {
            vstore16(v2, 0, dv + o2 + d);
            vstore16(k2, 0, dk + o2 + d);
        }
        if (last >= 3) {
            vstore16(v3, 0, dv + o3 + d);
            vstore16(k3, 0, dk + o3 + d);
        }
    }
}

// One head of one sequence an item: all its tiles in order, so that the sums into dkey and dvalue have
// one order and need no atomics. p = e^(s - lse), ds = p (dout v - delta), delta = dout out;
// dropped weights count in dvalue and in dout v, not in that p.
kernel void attention_backward(global float *dquery, ulong dquery0, global float *dkey, ulong dkey0,
                               global float *dvalue, ulong dvalue0, const global float *dout, ulong dout0,
                               const global float *out, ulong out0, const global float *lse, ulong lse0,
                               const global float *query, ulong query0, const global float *key, ulong key0,
                               const global float *value, ulong value0, int sequences, int S, int P, int T,
                               int H, int first_head, int stride, ulong rng, uint threshold,
                               float kept_scale, int first_sequence)
{
    const size_t head = get_global_id(0);
    if (head >= (size_t)sequences * H)
        return;
    const int h = head % H, C = H * D;
    const int sequence = first_sequence + head / H;
    const uint masks = (first_head + h) * (uint)stride;
    const float scale = rsqrt((float)D);
    const size_t cache = head * T * DS;

    for (int first = 0; first < S; first += TILE) {
        const int n = min(TILE, S - first);
        const size_t row = head / H * S + first, at = row * C + h * D;
        const int16 position = P + first + lane;
        const int end = P + first + n;

        float q_rows[TILE * DS], g_rows[TILE * DS];
        float16 q[D], g[D], dq[D], delta = 0.0f;
        load_rows(q_rows, query + query0 + at, n, C, scale);
        load_rows(g_rows, dout + dout0 + at, n, C, 1.0f);
        load_transposed(dq, out + out0 + at, n, C, 1.0f);
        load_transposed(q, query + query0 + at, n, C, scale);
        load_transposed(g, dout + dout0 + at, n, C, 1.0f);
        for (int d = 0; d < D; d++) {
            delta += g[d] * dq[d];
            dq[d] = 0.0f;
        }
        float logs[TILE];
        for (int i = 0; i < TILE; i++)
            logs[i] = i < n ? lse[lse0 + (row + i) * H + h] : INFINITY; // no weight in idle lanes
        const float16 log_sum = vload16(0, logs);

        for (int j = 0; j < end; j += KEYS) {
            const int last = min(KEYS, end - j) - 1;
            const size_t at_key = cache + (size_t)j * DS;
            float16 p[KEYS], ds[KEYS], kept[KEYS];
            score_keys(p, q, key + key0 + at_key, last);
            score_keys(ds, g, value + value0 + at_key, last);
            if (threshold != 0) {
                draw_masks(kept, masks + j, position, sequence, rng, threshold, kept_scale);
                drop_weights(ds, kept);
            }
            for (int i = 0; i < KEYS; i++) {
                p[i] = select((float16)(0.0f), exp_lanes(p[i] - log_sum),
                              position >= j + i && (int16)(i <= last ? -1 : 0));
                ds[i] = p[i] * (ds[i] - delta);
            }
            if (threshold != 0)
                drop_weights(p, kept);
            add_weighted(dq, ds, key + key0 + at_key, last);
            global float *dk = dkey + dkey0 + at_key, *dv = dvalue + dvalue0 + at_key;
            add_key_gradients(dk, dv, (const float *)p, (const float *)ds, g_rows, q_rows, min(3, last));
            if (last > 3)
                add_key_gradients(dk + 4 * DS, dv + 4 * DS, (const float *)(p + 4),
                                  (const float *)(ds + 4), g_rows, q_rows, last - 4);
        }
        for (int d = 0; d < D; d++)
            dq[d] *= scale;
        store_transposed(dq, dquery + dquery0 + at, n, C);
    }
}
