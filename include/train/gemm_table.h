/* SPDX-License-Identifier: Apache-2.0 */
/* Which products go by panels: measured by one rank of each kind of device, told to the others,
 * kept for the next start, and recorded with a run, whose bits depend on it. */
#ifndef TP_TRAIN_GEMM_TABLE_H
#define TP_TRAIN_GEMM_TABLE_H

#include "base/status.h"
#include "cell/cell.h"
#include "device/gemm.h"

/* What one kind of device does. Plain memory: it is exchanged as bytes. */
struct tp_gemm_table {
    char device[128]; /* its name */
    int gemm;         /* enum tp_gemm_provider */
    int count;        /* of times; 0 unless gemm is auto */
    struct tp_gemm_times times[TP_CELL_KINDS];
};

/* gemm.json: all kinds of a run. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_gemm_tables_save(const struct tp_gemm_table *tables, int count, const char *path);

/* What such a file says of a device of that name: auto without times when it is not in there, or
 * there is no file. Local. TP_ERR_INPUT names the file. */
enum tp_status tp_gemm_table_load(const char *path, const char *device,
                                  struct tp_gemm_table *table);

/* Completes a table with the products of a stage of that shape, for units of up to so many rows:
 * from what was kept at an earlier start (path, NULL: nothing is), or measured and kept. Panels are
 * packed once for so many tokens. What the table has stays. Waits. TP_ERR_DEVICE, TP_ERR_MEMORY. */
enum tp_status tp_gemm_table_complete(struct tp_gemm_table *table, struct tp_device *device,
                                      const struct tp_stage_shape *shape, size_t rows,
                                      double tokens, const char *path);

#endif
