/* SPDX-License-Identifier: Apache-2.0 */
/* Choice of devices, memory and its mappings, and gemm. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "device/gemm.h"
#include "device/kernels.h"
#include "device/memory.h"
#include "device_test.h"

static const struct tp_device_info *info; /* of the device under test */

static struct tp_device *open_device(enum tp_gemm_provider gemm, bool indirect)
{
    struct tp_device *device = NULL;
    const struct tp_device_options options = {
        .index = info->index, .threads = 1, .head_width = 12, .gemm = gemm, .indirect = indirect};
    ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
    return device;
}

START_TEST(lists_what_a_device_is)
{
    struct tp_device_info *infos;
    int count;

    ck_assert_int_eq(tp_devices_list(&infos, &count), TP_OK);
    for (int i = 0; i < count; i++) {
        ck_assert_ptr_nonnull(strchr(infos[i].index, ':'));
        ck_assert_uint_gt(strlen(infos[i].name), 0);
        ck_assert_int_gt(infos[i].compute_units, 0);
        ck_assert_uint_gt(infos[i].memory, 0);
        ck_assert_uint_gt(infos[i].max_buffer, 0);
    }
    free(infos);
}
END_TEST

static const struct tp_device_info machine[] = {
    {.index = "0:0", .name = "pthread-Xeon", .type = "cpu"},
    {.index = "1:0", .name = "Radeon RX", .type = "gpu"},
    {.index = "1:1", .name = "Radeon RX", .type = "gpu"},
};

START_TEST(selects_by_index_name_type_and_rank)
{
    const struct {
        const char *select;
        int node_rank, expected; /* -1: refused */
    } cases[] = {
        {NULL, 0, 0},          {NULL, 1, 1},     {NULL, 4, 1},           {"1:1", 0, 2},
        {"1:1", 3, 2},         {"gpu", 0, 1},    {"gpu", 1, 2},          {"gpu", 2, 1},
        {"cpu", 5, 0},         {"radeon", 1, 2}, {"XEON", 1, 0},         {"0=cpu,1=gpu", 0, 0},
        {"0=cpu,1=gpu", 1, 2}, {"1=0:0", 1, 0},  {"0=cpu,1=gpu", 2, -1}, {"voodoo", 0, -1},
        {"", 0, -1},           {"2:0", 0, -1},   {"0=", 0, -1},          {"accelerator", 0, -1},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int index = -1;
        const enum tp_status status =
            tp_device_select(cases[i].select, cases[i].node_rank, machine, 3, &index);
        ck_assert_int_eq(index, cases[i].expected);
        ck_assert_int_eq(status, cases[i].expected < 0 ? TP_ERR_USAGE : TP_OK);
    }
    int index = -1;
    ck_assert_int_eq(tp_device_select(NULL, 0, machine, 0, &index), TP_ERR_DEVICE);
}
END_TEST

START_TEST(settles_the_style_of_kernels)
{
    for (int style = TP_KERNELS_AUTO; style <= TP_KERNELS_GPU; style++) {
        const struct tp_device_options options = {.index = info->index,
                                                  .threads = 1,
                                                  .head_width = 12,
                                                  .kernels = (enum tp_kernel_style)style};
        struct tp_device *device = NULL;
        ck_assert_int_eq(tp_device_open(&options, &device), TP_OK);
        const enum tp_kernel_style got = tp_device_kernels(device);
        if (style != TP_KERNELS_AUTO)
            ck_assert_int_eq(got, style);
        else if (strcmp(info->type, "cpu") == 0)
            ck_assert_int_ne(got, TP_KERNELS_AUTO);
        else
            ck_assert_int_eq(got, TP_KERNELS_GPU);
        tp_device_close(device);
    }
}
END_TEST

START_TEST(refuses_packed_products_with_kernels_for_gpus)
{
    const struct tp_device_options options = {.index = info->index,
                                              .threads = 1,
                                              .head_width = 12,
                                              .gemm = TP_GEMM_PACKED,
                                              .kernels = TP_KERNELS_GPU};
    struct tp_device *device = NULL;
    ck_assert_int_eq(tp_device_open(&options, &device), TP_ERR_USAGE);
}
END_TEST

START_TEST(refuses_a_device_that_is_not_there)
{
    const struct tp_device_options options = {.index = "15:63", .threads = 1, .head_width = 8};
    struct tp_device *device = NULL;
    ck_assert_int_eq(tp_device_open(&options, &device), TP_ERR_DEVICE);
    ck_assert_ptr_null(device);
}
END_TEST

START_TEST(refuses_host_blas_without_host_memory)
{
    const struct tp_device_options options = {.index = info->index,
                                              .threads = 1,
                                              .head_width = 12,
                                              .gemm = TP_GEMM_CBLAS,
                                              .indirect = true};
    struct tp_device *device = NULL;
    ck_assert_int_eq(tp_device_open(&options, &device), TP_ERR_USAGE);
}
END_TEST

START_TEST(arena_counts_zeroes_and_limits)
{
    struct tp_device *device = open_device(TP_GEMM_AUTO, _i);
    struct tp_arena *arena;
    struct tp_view a, b, none;
    float values[5000];
    ck_assert_int_eq(tp_arena_new(device, 3 * 4096 + 4000, &arena), TP_OK);
    ck_assert_int_eq(tp_arena_take(arena, "none", 0, &none), TP_OK);
    ck_assert_ptr_null(none.buffer);
    ck_assert_int_eq(tp_arena_take(arena, "a", 1, &a), TP_OK);
    ck_assert_uint_eq(tp_arena_bytes(arena), 4096);
    ck_assert_int_eq(tp_arena_take(arena, "b", 1025, &b), TP_OK);
    ck_assert_uint_eq(tp_arena_bytes(arena), 3 * 4096);
    ck_assert_int_eq(tp_arena_take(arena, "one too many", 1, &none), TP_ERR_MEMORY);
    ck_assert_uint_eq(tp_arena_bytes(arena), 3 * 4096);
    ck_assert_int_eq(tp_memory_read(device, values, b, 1025), TP_OK);
    for (int i = 0; i < 1025; i++)
        ck_assert(values[i] == 0.0f);
    tp_arena_free(arena);
    tp_device_close(device);
}
END_TEST

/* What the host writes kernels see, and the other way round; parts beside a mapped one stay usable.
 */
START_TEST(mappings_hand_memory_over)
{
    struct tp_device *device = open_device(TP_GEMM_AUTO, _i);
    struct tp_arena *arena;
    struct tp_view x;
    struct tp_mapping in, out, mark;
    float all[300];
    ck_assert_int_eq(tp_arena_new(device, 0, &arena), TP_OK);
    ck_assert_int_eq(tp_arena_take(arena, "x", 300, &x), TP_OK);
    ck_assert_int_eq(tp_fill(device, x, 7.0f, 300), TP_OK);
    ck_assert_int_eq(tp_mapping_begin(device, x, 0, TP_ACCESS_READ, &mark), TP_OK);
    for (bool ready = false; !ready;)
        ck_assert_int_eq(tp_mapping_ready(&mark, &ready), TP_OK);
    ck_assert_int_eq(tp_mapping_end(&mark), TP_OK);

    ck_assert_int_eq(tp_mapping_begin(device, tp_view_at(x, 100), 100, TP_ACCESS_WRITE, &in),
                     TP_OK);
    ck_assert_int_eq(tp_mapping_wait(&in), TP_OK);
    ck_assert_int_eq(tp_fill(device, x, 1.0f, 100), TP_OK); /* beside it */
    for (int i = 0; i < 100; i++)
        in.data[i] = (float)i;
    ck_assert_int_eq(tp_mapping_end(&in), TP_OK);
    ck_assert_int_eq(tp_add(device, tp_view_at(x, 100), tp_view_at(x, 200), 100), TP_OK);
    ck_assert_int_eq(tp_mapping_begin(device, tp_view_at(x, 100), 100, TP_ACCESS_READ, &out),
                     TP_OK);
    for (bool ready = false; !ready;)
        ck_assert_int_eq(tp_mapping_ready(&out, &ready), TP_OK);
    for (int i = 0; i < 100; i++)
        ck_assert(out.data[i] == (float)i + 7.0f);
    ck_assert_int_eq(tp_mapping_end(&out), TP_OK);
    ck_assert_int_eq(tp_memory_read(device, all, x, 300), TP_OK);
    ck_assert(all[0] == 1.0f && all[99] == 1.0f && all[200] == 7.0f && all[299] == 7.0f);
    tp_arena_free(arena);
    tp_device_close(device);
}
END_TEST

/* Primes, ones and multiples of tiles, in all kinds that a layer needs. */
START_TEST(gemm_is_right)
{
    const size_t sizes[][3] = {{1, 1, 1},    {7, 13, 5},   {1, 64, 33},
                               {16, 48, 16}, {31, 97, 61}, {64, 64, 64}};
    struct tp_device *device = open_device(_i == 0 ? TP_GEMM_AUTO : TP_GEMM_CLBLAST, false);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        for (int kind = 0; kind < 8; kind++) {
            const struct tp_gemm shape = {kind & 1,    kind & 2,    sizes[i][0],
                                          sizes[i][1], sizes[i][2], kind & 4 ? 1.0f : 0.0f};
            double error = -1;
            ck_assert_int_eq(tp_gemm_check(device, &shape, &error), TP_OK);
            ck_assert(error >= 0 && error < 1e-6);
        }
    tp_device_close(device);
}
END_TEST

/* Not a number in c must not survive beta = 0. */
START_TEST(gemm_overwrites)
{
    struct tp_device *device = open_device(_i == 0 ? TP_GEMM_AUTO : TP_GEMM_CLBLAST, false);
    struct tp_arena *arena;
    struct tp_view a, b, c;
    float seen[6];
    ck_assert_int_eq(tp_arena_new(device, 0, &arena), TP_OK);
    ck_assert_int_eq(tp_arena_take(arena, "a", 8, &a), TP_OK);
    ck_assert_int_eq(tp_arena_take(arena, "b", 12, &b), TP_OK);
    ck_assert_int_eq(tp_arena_take(arena, "c", 6, &c), TP_OK);
    ck_assert_int_eq(tp_fill(device, a, 2.0f, 8), TP_OK);
    ck_assert_int_eq(tp_fill(device, b, 3.0f, 12), TP_OK);
    ck_assert_int_eq(tp_fill(device, c, NAN, 6), TP_OK);
    ck_assert_int_eq(tp_gemm(device, c, a, b, &(struct tp_gemm){.m = 2, .n = 3, .k = 4}), TP_OK);
    ck_assert_int_eq(tp_memory_read(device, seen, c, 6), TP_OK);
    for (int i = 0; i < 6; i++)
        ck_assert(seen[i] == 24.0f);
    tp_arena_free(arena);
    tp_device_close(device);
}
END_TEST

int main(void)
{
    info = test_device();
    if (info == NULL)
        return SKIPPED;
    Suite *suite = suite_create("device");
    TCase *test = tcase_create("device");
    tcase_add_test(test, lists_what_a_device_is);
    tcase_add_test(test, selects_by_index_name_type_and_rank);
    tcase_add_test(test, settles_the_style_of_kernels);
    tcase_add_test(test, refuses_packed_products_with_kernels_for_gpus);
    tcase_add_test(test, refuses_a_device_that_is_not_there);
    tcase_add_test(test, refuses_host_blas_without_host_memory);
    tcase_add_loop_test(test, arena_counts_zeroes_and_limits, 0, 2);
    tcase_add_loop_test(test, mappings_hand_memory_over, 0, 2);
    tcase_add_loop_test(test, gemm_is_right, 0, 2);
    tcase_add_loop_test(test, gemm_overwrites, 0, 2);
    tcase_set_timeout(test, 300);
    suite_add_tcase(suite, test);
    return device_run(suite);
}
