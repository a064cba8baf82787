/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/packed.h"

#include "base/footprint.h"
#include "launch.h"

/* As in cl/packed.cl. */
enum { TILE_ROWS = 8, TALL_ROWS = 32, PACK_ROWS = 16 };

/* Rows of b that a product with a transposed is computed for at once, adding to c: as much of a as
 * stays in a core's cache though its rows lie far apart. */
enum { DEPTH = 256 };

static enum tp_status write_panels(struct tp_device *device, struct tp_view packed,
                                   struct tp_view b, size_t n, size_t k)
{
    return LAUNCH(device, TP_KERNEL_PACKED_WRITE, blocks(k, PACK_ROWS), VIEW(packed), VIEW(b),
                  INT(n), INT(k));
}

static size_t depth_at(const struct tp_gemm *shape, size_t at)
{
    return shape->k - at < DEPTH ? shape->k - at : DEPTH;
}

enum tp_status tp_packed_write(struct tp_device *device, struct tp_view packed, struct tp_view b,
                               const struct tp_gemm *shape)
{
    const size_t n = shape->n, k = shape->k;
    if (shape->b_transposed)
        return LAUNCH(device, TP_KERNEL_PACKED_WRITE_TRANSPOSED,
                      blocks(n, TP_PANEL) * (TP_PANEL / TP_LANES), VIEW(packed), VIEW(b), INT(n),
                      INT(k));
    if (!shape->a_transposed)
        return write_panels(device, packed, b, n, k);
    for (size_t at = 0; at < k; at += DEPTH)
        TP_TRY(write_panels(device, tp_view_at(packed, tp_packed_count(n, at)),
                            tp_view_at(b, at * n), n, depth_at(shape, at)));
    return TP_OK;
}

static enum tp_status multiply(struct tp_device *device, enum tp_kernel kernel, struct tp_view c,
                               struct tp_view a, struct tp_view packed, size_t m, size_t n,
                               size_t k, float beta)
{
    const size_t rows = kernel == TP_KERNEL_PACKED_GEMM ? TILE_ROWS : TALL_ROWS;
    return LAUNCH(device, kernel, blocks(m, rows) * blocks(n, TP_PANEL), VIEW(c), VIEW(a),
                  VIEW(packed), UINT(m), INT(n), INT(k), FLOAT(beta));
}

enum tp_status tp_packed_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                              struct tp_view packed, const struct tp_gemm *shape)
{
    const size_t m = shape->m, n = shape->n;
    if (!shape->a_transposed)
        return multiply(device, TP_KERNEL_PACKED_GEMM, c, a, packed, m, n, shape->k, shape->beta);
    for (size_t at = 0; at < shape->k; at += DEPTH)
        TP_TRY(multiply(device, TP_KERNEL_PACKED_GEMM_TRANSPOSED, c, tp_view_at(a, at * m),
                        tp_view_at(packed, tp_packed_count(n, at)), m, n, depth_at(shape, at),
                        at > 0 ? 1.0f : shape->beta));
    return TP_OK;
}

static enum tp_status pack_and_multiply(struct tp_device *device, struct tp_view c,
                                        struct tp_view a, struct tp_view b,
                                        const struct tp_gemm *shape)
{
    struct tp_arena *arena;
    struct tp_view packed;
    TP_TRY(tp_arena_new(device, 0, &arena));
    enum tp_status status =
        tp_arena_take(arena, "packed", tp_packed_count(shape->n, shape->k), &packed);
    if (status == TP_OK)
        status = tp_packed_write(device, packed, b, shape);
    if (status == TP_OK)
        status = tp_packed_gemm(device, c, a, packed, shape);
    const enum tp_status finished = tp_device_finish(device); /* nothing may run on freed panels */
    tp_arena_free(arena);
    return status != TP_OK ? status : finished;
}

enum tp_status tp_packed_check(struct tp_device *device, const struct tp_gemm *shape, double *error)
{
    return tp_product_check(device, pack_and_multiply, "packed panels", shape, error);
}
