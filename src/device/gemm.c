/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/gemm.h"

#include <clblast_c.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "device/packed.h"
#include "opencl.h"

const char *const tp_gemm_choices[] = {"auto", "clblast", "cblas", "packed", NULL};

static enum tp_status run_clblast(struct tp_device *device, struct tp_view c, struct tp_view a,
                                  struct tp_view b, const struct tp_gemm *shape)
{
    TP_CL(CLBlastSgemm(CLBlastLayoutRowMajor,
                       shape->a_transposed ? CLBlastTransposeYes : CLBlastTransposeNo,
                       shape->b_transposed ? CLBlastTransposeYes : CLBlastTransposeNo, shape->m,
                       shape->n, shape->k, 1.0f, a.buffer->memory, a.offset,
                       tp_gemm_stride_a(shape), b.buffer->memory, b.offset, tp_gemm_stride_b(shape),
                       shape->beta, c.buffer->memory, c.offset, shape->n, &device->queue, NULL));
    return TP_OK;
}

enum tp_status tp_gemm(struct tp_device *device, struct tp_view c, struct tp_view a,
                       struct tp_view b, const struct tp_gemm *shape)
{
    return device->plain == TP_GEMM_CBLAS ? tp_host_blas_gemm(device, c, a, b, shape)
                                          : run_clblast(device, c, a, b, shape);
}

/* A number in [-1, 1) that depends on the element alone (a 32-bit mix of its index). */
static float noise(size_t i, uint32_t salt)
{
    uint32_t x = (uint32_t)i * 2654435761u + salt;
    x ^= x >> 16;
    x *= 2246822519u;
    x ^= x >> 13;
    return (float)(int32_t)x * 4.656612873e-10f;
}

enum { SALT_A = 1, SALT_B = 2, SALT_C = 3, GUARD = 64, SAMPLES = 256 };

/* What surrounds c, and must stay. */
static const float guard = -12345.0f;

struct operands {
    float *a, *b, *c; /* c with GUARD elements before and behind */
    size_t n_a, n_b, n_c;
};

static void operands_fini(struct operands *host)
{
    free(host->a);
    free(host->b);
    free(host->c);
}

static enum tp_status operands_init(struct operands *host, const struct tp_gemm *shape)
{
    host->n_a = shape->m * shape->k;
    host->n_b = shape->k * shape->n;
    host->n_c = shape->m * shape->n + 2 * GUARD;
    host->a = malloc(host->n_a * sizeof(float));
    host->b = malloc(host->n_b * sizeof(float));
    host->c = malloc(host->n_c * sizeof(float));
    if (host->a == NULL || host->b == NULL || host->c == NULL) {
        operands_fini(host);
        return tp_fail(TP_ERR_MEMORY, "no memory to check a product of %zu x %zu x %zu", shape->m,
                       shape->n, shape->k);
    }
    for (size_t i = 0; i < host->n_a; i++)
        host->a[i] = noise(i, SALT_A);
    for (size_t i = 0; i < host->n_b; i++)
        host->b[i] = noise(i, SALT_B);
    for (size_t i = 0; i < host->n_c; i++)
        host->c[i] = i < GUARD || i >= host->n_c - GUARD ? guard : noise(i - GUARD, SALT_C);
    return TP_OK;
}

/* Runs the product on the device; host->c is then what it left there. */
static enum tp_status run_on_device(struct tp_device *device, tp_product *product,
                                    struct tp_arena *arena, struct operands *host,
                                    const struct tp_gemm *shape)
{
    struct tp_view a, b, c;
    TP_TRY(tp_arena_take(arena, "gemm check", host->n_a, &a));
    TP_TRY(tp_arena_take(arena, "gemm check", host->n_b, &b));
    TP_TRY(tp_arena_take(arena, "gemm check", host->n_c, &c));
    TP_TRY(tp_memory_write(device, a, host->a, host->n_a));
    TP_TRY(tp_memory_write(device, b, host->b, host->n_b));
    TP_TRY(tp_memory_write(device, c, host->c, host->n_c));
    TP_TRY(product(device, tp_view_at(c, GUARD), a, b, shape));
    return tp_memory_read(device, host->c, c, host->n_c);
}

/* Difference at one element of c, relative to the sum of the absolute products. */
static double error_at(const struct operands *host, const struct tp_gemm *shape, size_t i, size_t j)
{
    const size_t at = i * shape->n + j;
    double sum = (double)shape->beta * (double)noise(at, SALT_C), size = fabs(sum);
    for (size_t l = 0; l < shape->k; l++) {
        const double x =
            (double)host->a[shape->a_transposed ? l * shape->m + i : i * shape->k + l] *
            (double)host->b[shape->b_transposed ? j * shape->k + l : l * shape->n + j];
        sum += x;
        size += fabs(x);
    }
    const double difference = fabs(sum - (double)host->c[GUARD + at]);
    return difference <= 1e30 ? difference / (size + 1e-30) : INFINITY;
}

/* Corners, and elements spread over c. */
static double largest_error(const struct operands *host, const struct tp_gemm *shape)
{
    const size_t m = shape->m, n = shape->n;
    double largest = 0;
    for (int s = 0; s < SAMPLES; s++) {
        const size_t i = s < 4 ? (s & 1 ? m - 1 : 0) : (size_t)s * 2654435761u % m;
        const size_t j = s < 4 ? (s & 2 ? n - 1 : 0) : (size_t)s * 2246822519u % n;
        const double error = error_at(host, shape, i, j);
        largest = error > largest ? error : largest;
    }
    for (int i = 0; i < GUARD; i++)
        if (host->c[i] != guard || host->c[host->n_c - GUARD + (size_t)i] != guard)
            largest = INFINITY;
    return largest;
}

enum tp_status tp_product_check(struct tp_device *device, tp_product *product, const char *name,
                                const struct tp_gemm *shape, double *error)
{
    struct operands host;
    struct tp_arena *arena;
    TP_TRY(operands_init(&host, shape));
    enum tp_status status = tp_arena_new(device, 0, &arena);
    if (status == TP_OK) {
        status = run_on_device(device, product, arena, &host, shape);
        tp_arena_free(arena);
    }
    const double largest = status == TP_OK ? largest_error(&host, shape) : 0;
    operands_fini(&host);
    TP_TRY(status);
    /* Rounding of K products in a row is at most about K * 2^-24 of their sizes. */
    if (!(largest <= 1e-6 + (double)shape->k * 6e-8))
        return tp_fail(TP_ERR_DEVICE,
                       "%s: gemm by %s is wrong for %c%c %zu x %zu x %zu: relative error %.2g",
                       device->info.name, name, shape->a_transposed ? 'T' : 'N',
                       shape->b_transposed ? 'T' : 'N', shape->m, shape->n, shape->k, largest);
    *error = largest;
    return TP_OK;
}

enum tp_status tp_gemm_check(struct tp_device *device, const struct tp_gemm *shape, double *error)
{
    if (tp_gemm_is_packed(device, shape))
        return tp_packed_check(device, shape, error);
    return tp_product_check(device, tp_gemm, tp_gemm_choices[device->plain], shape, error);
}
