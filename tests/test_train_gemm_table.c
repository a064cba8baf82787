/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of products: round trips, files that are damaged, and what follows from times. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "expect.h"
#include "train/gemm_table.h"

static const struct tp_stage_shape shape = {.model = {.n_layer = 2,
                                                      .n_embd = 64,
                                                      .n_head = 4,
                                                      .n_inner = 256,
                                                      .vocab_size = 300,
                                                      .n_positions = 64},
                                            .train = true};

static struct tp_gemm_table *new_table(const char *device)
{
    struct tp_gemm_table *table = calloc(1, sizeof *table);
    ck_assert_ptr_nonnull(table);
    strcpy(table->device, device);
    table->gemm = TP_GEMM_AUTO;
    return table;
}

START_TEST(kinds_are_those_of_a_stage)
{
    struct tp_gemm kinds[TP_CELL_KINDS];
    const int count = tp_cell_gemm_kinds(&shape, 100, kinds);
    /* 5 matrices, 3 products each, 16, 32, 64 and 128 rows; [C, C] and [C, 4C] against their
     * transposes differ. */
    ck_assert_int_eq(count, 5 * 3 * 4);
    for (int i = 0; i < count; i++)
        for (int k = 0; k < i; k++)
            ck_assert(!tp_gemm_is_kind(&kinds[i], &kinds[k]));
    struct tp_stage_shape forward = shape;
    forward.train = false;
    ck_assert_int_eq(tp_cell_gemm_kinds(&forward, 1, kinds), 5);
    ck_assert_int_eq(tp_cell_gemm_kinds(&shape, 1 << 20, kinds), 5 * 3 * 7);
}
END_TEST

static bool is_by_panels(const struct tp_gemm_table *table, bool gradient, size_t rows)
{
    for (int i = 0; i < table->count; i++) {
        const struct tp_gemm *kind = &table->times[i].kind;
        if (kind->a_transposed == gradient && (gradient ? kind->k : kind->m) == rows)
            return table->times[i].by_panels;
    }
    ck_abort_msg("no product of %zu rows", rows);
    return false;
}

/* What is kept is not measured again (there is no device here), and decided anew for the tokens of
 * the run. */
START_TEST(faster_with_the_packing_wins)
{
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "kept.json");
    struct tp_gemm_table *kept = new_table("one"), *table = new_table("one");
    struct tp_gemm kinds[TP_CELL_KINDS];
    kept->count = tp_cell_gemm_kinds(&shape, 64, kinds);
    for (int i = 0; i < kept->count; i++)
        kept->times[i] = (struct tp_gemm_times){
            .kind = kinds[i], .plain = 10e-6, .packed = 8e-6, .packing = 16e-6};
    ck_assert_int_eq(tp_gemm_tables_save(kept, 1, path), TP_OK);
    ck_assert_int_eq(tp_gemm_table_complete(table, NULL, &shape, 64, 256, path), TP_OK);
    ck_assert_int_eq(table->count, kept->count);
    ck_assert(is_by_panels(table, false, 16));  /* 8 + 16 / 16 < 1.2 * 10 */
    ck_assert(!is_by_panels(table, false, 64)); /* 8 + 16 / 4 */
    ck_assert(!is_by_panels(table, true, 16));  /* 8 + 16 */
    free(kept);
    free(table);
    scratch_free(folder);
}
END_TEST

START_TEST(what_a_run_recorded_stays)
{
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "gemm.json");
    struct tp_gemm_table *tables = calloc(2, sizeof *tables), *back = new_table("");
    struct tp_gemm kinds[TP_CELL_KINDS];
    ck_assert_int_eq(tp_gemm_table_load(path, "one", back), TP_OK); /* no file */
    ck_assert_int_eq(back->gemm, TP_GEMM_AUTO);
    strcpy(tables[0].device, "one");
    tables[0].gemm = TP_GEMM_AUTO;
    tables[0].count = tp_cell_gemm_kinds(&shape, 40, kinds);
    for (int i = 0; i < tables[0].count; i++)
        tables[0].times[i] = (struct tp_gemm_times){
            .kind = kinds[i], .plain = 1, .packed = 2, .packing = 3, .by_panels = i % 3 == 0};
    strcpy(tables[1].device, "two \"2\"");
    tables[1].gemm = TP_GEMM_CLBLAST;
    ck_assert_int_eq(tp_gemm_tables_save(tables, 2, path), TP_OK);
    ck_assert_int_eq(tp_gemm_table_load(path, "two \"2\"", back), TP_OK);
    ck_assert_int_eq(back->gemm, TP_GEMM_CLBLAST);
    ck_assert_int_eq(back->count, 0);
    ck_assert_int_eq(tp_gemm_table_load(path, "three", back), TP_OK);
    ck_assert_int_eq(back->gemm, TP_GEMM_AUTO);
    ck_assert_int_eq(tp_gemm_table_load(path, "one", back), TP_OK);
    ck_assert_int_eq(tp_gemm_table_complete(back, NULL, &shape, 40, 1e9, NULL), TP_OK);
    ck_assert_int_eq(back->count, tables[0].count);
    for (int i = 0; i < back->count; i++) {
        ck_assert(tp_gemm_is_kind(&back->times[i].kind, &tables[0].times[i].kind));
        ck_assert_int_eq(back->times[i].by_panels, i % 3 == 0);
    }
    free(tables);
    free(back);
    scratch_free(folder);
}
END_TEST

enum { DAMAGED = 11 };

START_TEST(damaged_files_are_named)
{
#define GEMM_FILE(version, provider, products)                                                     \
    "{\"format\": \"terapipe-gemm\", \"version\": " version ", \"providers\": {" provider          \
    "}, \"products\": " products "}"
    static const char *const texts[] = {
        "",
        "{",
        "[]",
        "{\"format\": \"terapipe-gemm\", \"version\": 1}",
        GEMM_FILE("2", "\"one\": \"auto\"", "{\"one\": []}"),
        GEMM_FILE("1", "\"one\": \"auto\"", "[]"),
        GEMM_FILE("1", "\"one\": \"auto\"", "{}"),
        GEMM_FILE("1", "\"one\": \"fast\"", "{\"one\": []}"),
        GEMM_FILE("1", "\"one\": 1", "{\"one\": []}"),
        GEMM_FILE("1", "\"one\": \"auto\"", "{\"one\": [1]}"),
        GEMM_FILE("1", "\"one\": \"auto\"", "{\"one\": [{\"m\": 1}]}")};
    ck_assert_uint_eq(sizeof texts / sizeof *texts, DAMAGED);
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "gemm.json");
    struct tp_gemm_table *table = new_table("one");
    scratch_file(folder, "gemm.json", texts[_i], strlen(texts[_i]));
    expect_fail(TP_ERR_INPUT, "gemm.json", tp_gemm_table_load(path, "one", table));
    free(table);
    scratch_free(folder);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("gemm table");

    tcase_add_test(cases, kinds_are_those_of_a_stage);
    tcase_add_test(cases, faster_with_the_packing_wins);
    tcase_add_test(cases, what_a_run_recorded_stays);
    tcase_add_loop_test(cases, damaged_files_are_named, 0, DAMAGED);
    return expect_run(cases);
}
