/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "train/gemm_table.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"

static const char format_name[] = "terapipe-gemm";

/* ---- The file ---- */

static json_t *times_json(const struct tp_gemm_times *times)
{
    const struct tp_gemm *kind = &times->kind;

    return json_pack("{s:b, s:b, s:I, s:I, s:I, s:f, s:f, s:f, s:b}", "a_transposed",
                     kind->a_transposed, "b_transposed", kind->b_transposed, "m",
                     (json_int_t)kind->m, "n", (json_int_t)kind->n, "k", (json_int_t)kind->k,
                     "plain", times->plain, "packed", times->packed, "packing", times->packing,
                     "by_panels", times->by_panels);
}

static json_t *table_json(const struct tp_gemm_table *table)
{
    json_t *rows = json_array();

    for (int i = 0; i < table->count; i++)
        json_array_append_new(rows, times_json(&table->times[i]));
    return rows;
}

enum tp_status tp_gemm_tables_save(const struct tp_gemm_table *tables, int count, const char *path)
{
    json_t *providers = json_object(), *products = json_object();

    for (int i = 0; i < count; i++) {
        json_object_set_new(providers, tables[i].device,
                            json_string(tp_gemm_choices[tables[i].gemm]));
        json_object_set_new(products, tables[i].device, table_json(&tables[i]));
    }
    json_t *json = json_pack("{s:s, s:i, s:o, s:o}", "format", format_name, "version", 1,
                             "providers", providers, "products", products);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    if (!text)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    enum tp_status status = tp_file_write(path, text, strlen(text));
    free(text);
    return status;
}

static bool find_provider(const char *name, int *gemm)
{
    for (int i = 0; tp_gemm_choices[i]; i++)
        if (strcmp(tp_gemm_choices[i], name) == 0) {
            *gemm = i;
            return true;
        }
    return false;
}

static bool read_times(json_t *json, struct tp_gemm_times *times)
{
    int a, b, by_panels;
    json_int_t m, n, k;

    if (json_unpack(json, "{s:b, s:b, s:I, s:I, s:I, s:F, s:F, s:F, s:b}", "a_transposed", &a,
                    "b_transposed", &b, "m", &m, "n", &n, "k", &k, "plain", &times->plain, "packed",
                    &times->packed, "packing", &times->packing, "by_panels", &by_panels) != 0)
        return false;
    times->kind = (struct tp_gemm){.a_transposed = a,
                                   .b_transposed = b,
                                   .m = (size_t)m,
                                   .n = (size_t)n,
                                   .k = (size_t)k,
                                   .beta = a ? 1.0f : 0.0f};
    times->by_panels = by_panels;
    return m > 0 && n > 0 && k > 0 && times->plain >= 0 && times->packed >= 0 &&
           times->packing >= 0;
}

/* What a run recorded for a kind of device, if it had one: else there is neither. */
static bool read_table(json_t *json, const char *device, struct tp_gemm_table *table)
{
    json_t *provider = json_object_get(json_object_get(json, "providers"), device);
    json_t *rows = json_object_get(json_object_get(json, "products"), device);

    if (!provider && !rows)
        return true;
    if (!json_is_string(provider) || !json_is_array(rows) ||
        !find_provider(json_string_value(provider), &table->gemm))
        return false;
    for (size_t i = 0; i < json_array_size(rows) && table->count < TP_CELL_KINDS; i++)
        if (!read_times(json_array_get(rows, i), &table->times[table->count++]))
            return false;
    return true;
}

static enum tp_status check_format(json_t *json, const char *path)
{
    const char *format;
    int version;
    json_t *providers, *products;
    json_error_t error;

    if (json_unpack_ex(json, &error, 0, "{s:s, s:i, s:o, s:o}", "format", &format, "version",
                       &version, "providers", &providers, "products", &products) != 0)
        return tp_fail(TP_ERR_INPUT, "%s: %s", path, error.text);
    if (strcmp(format, format_name) != 0 || version != 1)
        return tp_fail(TP_ERR_INPUT, "%s: format %.40s version %d: expected %s version 1", path,
                       format, version, format_name);
    if (!json_is_object(providers) || !json_is_object(products))
        return tp_fail(TP_ERR_INPUT, "%s: providers and products: expected objects", path);
    return TP_OK;
}

enum tp_status tp_gemm_table_load(const char *path, const char *device, struct tp_gemm_table *table)
{
    json_error_t error;
    size_t size;
    char *text;

    memset(table, 0, sizeof *table);
    snprintf(table->device, sizeof table->device, "%s", device);
    table->gemm = TP_GEMM_AUTO;
    if (!tp_file_exists(path))
        return TP_OK;
    TP_TRY(tp_file_read(path, 1 << 20, &text, &size));
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json)
        return tp_fail(TP_ERR_INPUT, "%s: line %d: %s", path, error.line, error.text);
    enum tp_status status = check_format(json, path);
    if (status == TP_OK && !read_table(json, device, table))
        status = tp_fail(TP_ERR_INPUT,
                         "%s: providers and products of %s: expected them as terapipe writes them",
                         path, device);
    json_decref(json);
    return status;
}

/* ---- Measured ---- */

static const struct tp_gemm_times *find(const struct tp_gemm_table *table,
                                        const struct tp_gemm *kind)
{
    for (int i = 0; i < table->count; i++)
        if (tp_gemm_is_kind(&table->times[i].kind, kind))
            return &table->times[i];
    return NULL;
}

/* How much faster a plain product has to be alone, to be as fast in a step: there its operands come
 * from memory, and its threads wake up for each product. A step of 4 layers of 128 with products by
 * cblas where that was up to 7 % faster alone took 17 % longer than with panels for all. */
static const double plain_alone = 1.2;

/* Panels of weights are packed once for all tokens, those of a gradient's product each time. */
static bool are_panels_faster(const struct tp_gemm_times *times, double tokens)
{
    const struct tp_gemm *kind = &times->kind;
    const double part = kind->a_transposed ? 1 : (double)kind->m / tokens;

    return times->packed + times->packing * (part < 1 ? part : 1) < plain_alone * times->plain;
}

/* One kind more: from the kept ones, else measured and added to them. */
static enum tp_status add(struct tp_gemm_table *table, struct tp_gemm_table *kept,
                          struct tp_device *device, const struct tp_gemm *kind, double tokens)
{
    const struct tp_gemm_times *known = find(kept, kind);
    struct tp_gemm_times *times = &table->times[table->count];

    if (known)
        *times = *known;
    else
        TP_TRY(tp_gemm_measure(device, kind, times));
    if (!known && kept->count < TP_CELL_KINDS)
        kept->times[kept->count++] = *times;
    times->by_panels = are_panels_faster(times, tokens);
    table->count++;
    return TP_OK;
}

/* What earlier starts kept; nothing when that cannot be read. */
static void load_kept(const char *path, const char *device, struct tp_gemm_table *kept)
{
    if (path && tp_gemm_table_load(path, device, kept) == TP_OK)
        return;
    memset(kept, 0, sizeof *kept);
    snprintf(kept->device, sizeof kept->device, "%s", device);
}

enum tp_status tp_gemm_table_complete(struct tp_gemm_table *table, struct tp_device *device,
                                      const struct tp_stage_shape *shape, size_t rows,
                                      double tokens, const char *path)
{
    struct tp_gemm kinds[TP_CELL_KINDS];
    struct tp_gemm_table *kept = malloc(sizeof *kept);
    const int count = tp_cell_gemm_kinds(shape, rows, kinds);
    enum tp_status status = TP_OK;

    if (!kept)
        return tp_fail(TP_ERR_MEMORY, "no memory for a table of products");
    load_kept(path, table->device, kept);
    const int before = kept->count;
    for (int i = 0; i < count && status == TP_OK; i++)
        if (!find(table, &kinds[i]) && table->count < TP_CELL_KINDS)
            status = add(table, kept, device, &kinds[i], tokens);
    if (status == TP_OK && path && kept->count > before &&
        (tp_file_make_parent(path) != TP_OK || tp_gemm_tables_save(kept, 1, path) != TP_OK))
        tp_log(TP_LOG_DEBUG, "%s: measured products are not kept", path);
    free(kept);
    return status;
}
