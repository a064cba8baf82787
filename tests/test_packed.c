/* SPDX-License-Identifier: Apache-2.0 */
/* Products with packed matrices against double precision on odd shapes, what surrounds their
 * results, and that a row does not depend on the rows beside it. */
#include "config.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/packed.h"
#include "device_test.h"

enum { GUARD = 80, MOST = 500000 };

static struct tp_device *device;
static struct tp_arena *arena;

static void setup(void)
{
    ck_assert_int_eq(tp_arena_new(device, 0, &arena), TP_OK);
}

static void teardown(void)
{
    tp_arena_free(arena);
}

/* A matrix on the device and the host, with GUARD numbers that are none before and behind. */
struct matrix {
    struct tp_view region, view;
    size_t count;
    float *guarded, *values;
};

static struct matrix matrix_new(size_t count)
{
    struct matrix matrix = {.count = count};
    ck_assert_uint_le(count, MOST);
    ck_assert_int_eq(tp_arena_take(arena, "test", count + 2 * GUARD, &matrix.region), TP_OK);
    matrix.view = tp_view_at(matrix.region, GUARD);
    matrix.guarded = malloc((count + 2 * GUARD) * sizeof(float));
    ck_assert_ptr_nonnull(matrix.guarded);
    matrix.values = matrix.guarded + GUARD;
    for (size_t i = 0; i < count + 2 * GUARD; i++)
        matrix.guarded[i] = NAN;
    return matrix;
}

static void upload(const struct matrix *matrix)
{
    ck_assert_int_eq(
        tp_memory_write(device, matrix->region, matrix->guarded, matrix->count + 2 * GUARD), TP_OK);
}

static void download(struct matrix *matrix)
{
    ck_assert_int_eq(
        tp_memory_read(device, matrix->guarded, matrix->region, matrix->count + 2 * GUARD), TP_OK);
    for (size_t i = 0; i < GUARD; i++)
        ck_assert(isnan(matrix->guarded[i]) && isnan(matrix->values[matrix->count + i]));
}

static struct matrix wave(size_t count, double phase)
{
    struct matrix matrix = matrix_new(count);
    for (size_t i = 0; i < count; i++)
        matrix.values[i] = (float)sin(phase + 12.9898 * (double)i);
    upload(&matrix);
    return matrix;
}

/* Element (i, l) of op(a). */
static float a_at(const struct matrix *a, const struct tp_gemm *shape, size_t i, size_t l)
{
    return a->values[shape->a_transposed ? l * shape->m + i : i * shape->k + l];
}

/* Element (l, j) of op(b). */
static float b_at(const struct matrix *b, const struct tp_gemm *shape, size_t l, size_t j)
{
    return b->values[shape->b_transposed ? j * shape->k + l : l * shape->n + j];
}

static struct matrix pack(const struct matrix *b, const struct tp_gemm *shape)
{
    struct matrix packed = matrix_new(tp_packed_count(shape->n, shape->k));
    upload(&packed);
    ck_assert_int_eq(tp_packed_write(device, packed.view, b->view, shape), TP_OK);
    return packed;
}

static const size_t rows[] = {1, 2, 7, 8, 9, 13, 16, 31};
static const size_t columns[] = {1, 15, 16, 17, 47, 48, 49, 96, 131};
static const size_t depths[] = {1, 2, 15, 16, 17, 48, 101, 769, 1030};
enum {
    N_ROWS = sizeof(rows) / sizeof(rows[0]),
    N_COLUMNS = sizeof(columns) / sizeof(columns[0]),
    N_DEPTHS = sizeof(depths) / sizeof(depths[0])
};

START_TEST(panels_hold_the_matrix_and_zeros)
{
    enum { ROWS = 1024 }; /* whose panels lie together */
    for (int d = 0; d < N_DEPTHS; d++) {
        const struct tp_gemm shape = {
            .b_transposed = _i % 2, .m = 1, .n = columns[_i / 2], .k = depths[d]};
        struct matrix b = wave(shape.n * shape.k, 1.0), packed = pack(&b, &shape);
        download(&packed);
        for (size_t i = 0; i < packed.count; i++) {
            const size_t columns = tp_packed_count(shape.n, 1), block = i / (columns * ROWS) * ROWS;
            const size_t rows = shape.k - block < ROWS ? shape.k - block : ROWS;
            const size_t in = i - columns * block;
            const size_t l = block + in / TP_PANEL % rows;
            const size_t j = in / (TP_PANEL * rows) * TP_PANEL + in % TP_PANEL;
            ck_assert(packed.values[i] == (j < shape.n ? b_at(&b, &shape, l, j) : 0.0f));
        }
        free(b.guarded);
        free(packed.guarded);
    }
}
END_TEST

/* The largest difference of c to before * beta + a op(b), relative to what rounding may do to it.
 */
static double largest_error(const struct matrix *c, const struct matrix *before,
                            const struct matrix *a, const struct matrix *b,
                            const struct tp_gemm *shape)
{
    double largest = 0;
    for (size_t i = 0; i < shape->m; i++)
        for (size_t j = 0; j < shape->n; j++) {
            const size_t at = i * shape->n + j;
            double sum = shape->beta != 0 ? (double)shape->beta * (double)before->values[at] : 0;
            double size = fabs(sum);
            for (size_t l = 0; l < shape->k; l++) {
                const double product = (double)a_at(a, shape, i, l) * (double)b_at(b, shape, l, j);
                sum += product;
                size += fabs(product);
            }
            const double bound = size * (double)(shape->k + 2) * 6e-8;
            const double error = fabs(sum - (double)c->values[at]) / bound;
            largest = error <= largest ? largest : error;
        }
    return largest;
}

static void check_product(const struct matrix *b, const struct matrix *packed,
                          const struct tp_gemm *shape)
{
    struct matrix a = wave(shape->m * shape->k, 2.0);
    struct matrix before =
        shape->beta != 0 ? wave(shape->m * shape->n, 3.0) : matrix_new(shape->m * shape->n);
    struct matrix c = matrix_new(shape->m * shape->n);
    memcpy(c.values, before.values, c.count * sizeof(float)); /* not to be read without beta */
    upload(&c);
    ck_assert_int_eq(tp_packed_gemm(device, c.view, a.view, packed->view, shape), TP_OK);
    download(&c);
    const double error = largest_error(&c, &before, &a, b, shape);
    ck_assert_msg(error <= 1, "%zu x %zu x %zu, beta %g: %g times what rounding explains", shape->m,
                  shape->n, shape->k, (double)shape->beta, error);
    free(a.guarded);
    free(before.guarded);
    free(c.guarded);
}

START_TEST(products_are_right_for_any_shape)
{
    for (int d = 0; d < N_DEPTHS; d++) {
        struct tp_gemm shape = {.b_transposed = _i % 2, .n = columns[_i / 2], .k = depths[d]};
        struct matrix b = wave(shape.n * shape.k, 1.0), packed = pack(&b, &shape);
        for (int r = 0; r < N_ROWS; r++) {
            shape.m = rows[r];
            shape.beta = 0.0f;
            check_product(&b, &packed, &shape);
            shape.beta = 1.0f;
            check_product(&b, &packed, &shape);
        }
        free(b.guarded);
        free(packed.guarded);
    }
}
END_TEST

/* More rows than the kernel takes at once through all panels, and a few more. */
START_TEST(products_are_right_for_many_rows)
{
    struct tp_gemm shape = {.n = 131, .k = 33, .beta = 1.0f};
    struct matrix b = wave(shape.n * shape.k, 1.0), packed = pack(&b, &shape);
    for (shape.m = 250; shape.m < 530; shape.m += 45)
        check_product(&b, &packed, &shape);
    free(b.guarded);
    free(packed.guarded);
}
END_TEST

/* As a weight's gradient is: a transposed, rows of b in blocks. */
START_TEST(products_with_a_transposed_are_right)
{
    static const size_t widths[] = {1, 7, 8, 20, 31, 32, 33, 300}, depths[] = {1, 7, 256, 257, 600};
    for (size_t d = 0; d < sizeof(depths) / sizeof(depths[0]); d++) {
        struct tp_gemm shape = {.a_transposed = true, .n = columns[_i], .k = depths[d]};
        struct matrix b = wave(shape.n * shape.k, 1.0), packed = pack(&b, &shape);
        for (size_t w = 0; w < sizeof(widths) / sizeof(widths[0]); w++) {
            if (widths[w] * depths[d] > MOST)
                continue;
            shape.m = widths[w];
            shape.beta = 0.0f;
            check_product(&b, &packed, &shape);
            shape.beta = 1.0f;
            check_product(&b, &packed, &shape);
        }
        free(b.guarded);
        free(packed.guarded);
    }
}
END_TEST

/* More of b than stays in a core's cache, which tiles take another way through. */
START_TEST(large_products_with_a_transposed_are_right)
{
    struct tp_gemm shape = {.a_transposed = true, .n = 1697, .k = 259, .beta = 1.0f};
    struct matrix b = wave(shape.n * shape.k, 1.0), packed = pack(&b, &shape);
    for (shape.m = 5; shape.m < 80; shape.m += 35)
        check_product(&b, &packed, &shape);
    free(b.guarded);
    free(packed.guarded);
}
END_TEST

START_TEST(a_row_is_the_same_in_any_slice)
{
    enum { MOST_ROWS = 300 };
    const struct tp_gemm all = {.m = MOST_ROWS, .n = 131, .k = 257};
    struct matrix b = wave(all.n * all.k, 1.0), packed = pack(&b, &all);
    struct matrix a = wave(all.m * all.k, 2.0), c = matrix_new(all.m * all.n);
    ck_assert_int_eq(tp_packed_gemm(device, c.view, a.view, packed.view, &all), TP_OK);
    ck_assert_int_eq(tp_memory_read(device, c.values, c.view, c.count), TP_OK);
    struct tp_gemm part = all;
    struct matrix got = matrix_new(all.m * all.n);
    for (part.m = 1; part.m <= 17; part.m++)
        for (size_t first = 0; first + part.m <= MOST_ROWS; first += 19) {
            const struct tp_view from = tp_view_at(a.view, first * all.k);
            ck_assert_int_eq(tp_packed_gemm(device, got.view, from, packed.view, &part), TP_OK);
            ck_assert_int_eq(tp_memory_read(device, got.values, got.view, part.m * all.n), TP_OK);
            ck_assert_mem_eq(got.values, c.values + first * all.n, part.m * all.n * sizeof(float));
        }
    free(a.guarded);
    free(b.guarded);
    free(c.guarded);
    free(got.guarded);
    free(packed.guarded);
}
END_TEST

int main(void)
{
    const struct tp_device_info *info = test_device();
    if (info == NULL)
        return SKIPPED;
    const struct tp_device_options options = {.index = info->index,
                                              .threads = 1,
                                              .head_width = 12,
                                              .gemm = TP_GEMM_PACKED,
                                              .kernels = TP_KERNELS_CPU};
    if (tp_device_open(&options, &device) != TP_OK)
        return 1;
    Suite *suite = suite_create("packed");
    TCase *tcase = tcase_create("packed");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, panels_hold_the_matrix_and_zeros, 0, 2 * N_COLUMNS);
    tcase_add_loop_test(tcase, products_are_right_for_any_shape, 0, 2 * N_COLUMNS);
    tcase_add_test(tcase, products_are_right_for_many_rows);
    tcase_add_test(tcase, large_products_with_a_transposed_are_right);
    tcase_add_loop_test(tcase, products_with_a_transposed_are_right, 0, N_COLUMNS);
    tcase_add_test(tcase, a_row_is_the_same_in_any_slice);
    suite_add_tcase(suite, tcase);
    const int status = device_run(suite);
    tp_device_close(device);
    return status;
}
