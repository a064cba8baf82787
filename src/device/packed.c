/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/packed.h"

#include "base/footprint.h"
#include "launch.h"

/* As in cl/packed.cl. */
enum { TILE = 8, PACK_ROWS = 16 };

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
                  blocks(shape->m, TILE) * blocks(shape->n, TP_PANEL), VIEW(c), VIEW(a),
                  VIEW(packed), SIZE(shape->m), INT(shape->n), INT(shape->k), FLOAT(shape->beta));
}
