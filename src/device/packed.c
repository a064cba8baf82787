/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/packed.h"

#include "base/footprint.h"
#include "launch.h"

/* As in cl/packed.cl. */
enum { TILE_ROWS = 8, TALL_ROWS = 32, WIDE_COLUMNS = 192, PACK_ROWS = 16 };

/* Elements of b up to which items go along the rows of c: they stay in a core's cache then. */
enum { WIDE_MOST = 400 << 10 };

/* Rows of b that are taken at once, adding to c what they give: so few that the rows of a that an
 * item's neighbours use too stay in a core's cache, though they lie far apart when a is transposed.
 * The panels of these rows lie together. */
static size_t depth_of(const struct tp_gemm *shape)
{
    return shape->a_transposed ? 256 : 1024;
}

/* Rows [at, at + depth) of b. */
static size_t rows_at(const struct tp_gemm *shape, size_t at)
{
    const size_t left = shape->k - at, depth = depth_of(shape);
    return left < depth ? left : depth;
}

static enum tp_status write_rows(struct tp_device *device, struct tp_view packed, struct tp_view b,
                                 const struct tp_gemm *shape, size_t at)
{
    const size_t n = shape->n, rows = rows_at(shape, at);
    if (shape->b_transposed)
        return LAUNCH(device, TP_KERNEL_PACKED_WRITE_TRANSPOSED,
                      blocks(n, TP_PANEL) * (TP_PANEL / TP_LANES), VIEW(packed),
                      VIEW(tp_view_at(b, at)), INT(n), INT(rows), INT(shape->k));
    return LAUNCH(device, TP_KERNEL_PACKED_WRITE, blocks(rows, PACK_ROWS), VIEW(packed),
                  VIEW(tp_view_at(b, at * n)), INT(n), INT(rows));
}

enum tp_status tp_packed_write(struct tp_device *device, struct tp_view packed, struct tp_view b,
                               const struct tp_gemm *shape)
{
    for (size_t at = 0; at < shape->k; at += depth_of(shape))
        TP_TRY(write_rows(device, tp_view_at(packed, tp_packed_count(shape->n, at)), b, shape, at));
    return TP_OK;
}

static enum tp_status multiply_rows(struct tp_device *device, struct tp_view c, struct tp_view a,
                                    struct tp_view packed, const struct tp_gemm *shape, size_t at)
{
    const size_t m = shape->m, n = shape->n, panels = blocks(n, TP_PANEL);
    const float beta = at > 0 ? 1.0f : shape->beta;
    const bool wide = n * rows_at(shape, at) <= WIDE_MOST;
    if (shape->a_transposed)
        return LAUNCH(device, TP_KERNEL_PACKED_GEMM_TRANSPOSED,
                      wide ? blocks(m, TILE_ROWS) * blocks(n, WIDE_COLUMNS)
                           : blocks(m, TALL_ROWS) * panels,
                      VIEW(c), VIEW(tp_view_at(a, at * m)), VIEW(packed), UINT(m), INT(n),
                      INT(rows_at(shape, at)), FLOAT(beta), INT(wide));
    return LAUNCH(device, TP_KERNEL_PACKED_GEMM, blocks(m, TILE_ROWS) * panels, VIEW(c),
                  VIEW(tp_view_at(a, at)), VIEW(packed), UINT(m), INT(n), INT(rows_at(shape, at)),
                  INT(shape->k), FLOAT(beta));
}

enum tp_status tp_packed_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                              struct tp_view packed, const struct tp_gemm *shape)
{
    for (size_t at = 0; at < shape->k; at += depth_of(shape))
        TP_TRY(multiply_rows(device, c, a, tp_view_at(packed, tp_packed_count(shape->n, at)), shape,
                             at));
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
