/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/packed.h"

#include "base/footprint.h"
#include "launch.h"

/* As in cl/packed.cl. */
enum { TILE_ROWS = 8, PACK_ROWS = 16 };

enum tp_status tp_packed_write(struct tp_device *device, struct tp_view packed, struct tp_view b,
                               const struct tp_gemm *shape)
{
    if (shape->b_transposed)
        return LAUNCH(device, TP_KERNEL_PACKED_WRITE_TRANSPOSED,
                      blocks(shape->n, TP_PANEL) * (TP_PANEL / TP_LANES), VIEW(packed), VIEW(b),
                      INT(shape->n), INT(shape->k));
    return LAUNCH(device, TP_KERNEL_PACKED_WRITE, blocks(shape->k, PACK_ROWS), VIEW(packed),
                  VIEW(b), INT(shape->n), INT(shape->k));
}

enum tp_status tp_packed_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                              struct tp_view packed, const struct tp_gemm *shape)
{
    TP_ASSERT(!shape->a_transposed);
    return LAUNCH(device, TP_KERNEL_PACKED_GEMM,
                  blocks(shape->m, TILE_ROWS) * blocks(shape->n, TP_PANEL), VIEW(c), VIEW(a),
                  VIEW(packed), SIZE(shape->m), INT(shape->n), INT(shape->k), FLOAT(shape->beta));
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
