/* SPDX-License-Identifier: Apache-2.0 */
/* The devices' Philox (cl/philox.cl) against known answers, through a kernel of its own for each
 * style. */
#include "config.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <CL/cl.h>

#include "device/kernel_source.h"
#include "device_test.h"

/* Random123's published known answers for philox4x32 with 10 rounds (kat_vectors). */
static const struct {
    cl_uint counter[4];
    cl_ulong key;
    cl_uint answer[4];
} known[] = {
    {{0, 0, 0, 0}, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
     0xffffffffffffffff,
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
     0x299f31d0a4093822,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
};

/* x holds the counter and gets four answers. Lanes: every second one has the counter, the others
 * its complement, since they must not meet; the first and the last that have it answer, of both
 * widths. */
static const char *const kernel_sources[] = {
    [TP_KERNELS_CPU] =
        "kernel void known(global uint *x, ulong key)\n"
        "{\n"
        "    const uint4 flip = (uint4)(0, ~0u, 0, ~0u);\n"
        "    uint4 a = flip ^ x[0], b = flip ^ x[1], c = flip ^ x[2], d = flip ^ x[3];\n"
        "    const uint16 flips = (uint16)(flip, flip, flip, flip);\n"
        "    uint16 e = flips ^ x[0], f = flips ^ x[1], g = flips ^ x[2], h = flips ^ x[3];\n"
        "    philox4(&a, &b, &c, &d, key);\n"
        "    philox16(&e, &f, &g, &h, key);\n"
        "    vstore4((uint4)(a.s0, b.s0, c.s0, d.s0), 0, x);\n"
        "    vstore4((uint4)(a.s2, b.s2, c.s2, d.s2), 1, x);\n"
        "    vstore4((uint4)(e.s0, f.s0, g.s0, h.s0), 2, x);\n"
        "    vstore4((uint4)(e.se, f.se, g.se, h.se), 3, x);\n"
        "}\n",
    [TP_KERNELS_GPU] = "kernel void known(global uint *x, ulong key)\n"
                       "{\n"
                       "    uint a = x[0], b = x[1], c = x[2], d = x[3];\n"
                       "    philox(&a, &b, &c, &d, key);\n"
                       "    for (int i = 0; i < 4; i++)\n"
                       "        vstore4((uint4)(a, b, c, d), i, x);\n"
                       "}\n",
};

static cl_device_id device;
static cl_context context;

/* All kernels of the style with that one behind them. */
static cl_program build(enum tp_kernel_style style)
{
    const struct tp_kernel_source *source = &tp_kernel_sources[style];
    const cl_uint count = (cl_uint)source->count + 1;
    const char **lines = malloc(count * sizeof *lines);
    cl_int code;

    ck_assert_ptr_nonnull(lines);
    for (cl_uint i = 0; i + 1 < count; i++)
        lines[i] = source->lines[i];
    lines[count - 1] = kernel_sources[style];
    cl_program program = clCreateProgramWithSource(context, count, lines, NULL, &code);
    free(lines);
    ck_assert_int_eq(code, CL_SUCCESS);
    ck_assert_int_eq(clBuildProgram(program, 1, &device,
                                    "-cl-std=CL1.2 -DHEAD_WIDTH=16 -DHEAD_STRIDE=16 -DGROUP=16 "
                                    "-DVECTOR_WIDTH=4",
                                    NULL, NULL),
                     CL_SUCCESS);
    return program;
}

START_TEST(known_answers)
{
    cl_int code;
    cl_program program = build((enum tp_kernel_style)_i);
    cl_kernel kernel = clCreateKernel(program, "known", &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &code);
    ck_assert_int_eq(code, CL_SUCCESS);
    cl_uint x[16];
    cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, sizeof x, NULL, &code);
    ck_assert_int_eq(code, CL_SUCCESS);

    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const size_t one = 1;
        ck_assert_int_eq(clEnqueueWriteBuffer(queue, buffer, CL_TRUE, 0, sizeof known[i].counter,
                                              known[i].counter, 0, NULL, NULL),
                         CL_SUCCESS);
        ck_assert_int_eq(clSetKernelArg(kernel, 0, sizeof buffer, &buffer), CL_SUCCESS);
        ck_assert_int_eq(clSetKernelArg(kernel, 1, sizeof known[i].key, &known[i].key), CL_SUCCESS);
        ck_assert_int_eq(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &one, &one, 0, NULL, NULL),
                         CL_SUCCESS);
        ck_assert_int_eq(clEnqueueReadBuffer(queue, buffer, CL_TRUE, 0, sizeof x, x, 0, NULL, NULL),
                         CL_SUCCESS);
        for (int block = 0; block < 4; block++)
            ck_assert_mem_eq(x + 4 * block, known[i].answer, sizeof known[i].answer);
    }
    clReleaseMemObject(buffer);
    clReleaseCommandQueue(queue);
    clReleaseKernel(kernel);
    clReleaseProgram(program);
}
END_TEST

/* The handle of a device with that index. */
static cl_device_id find(const char *index)
{
    cl_platform_id platforms[16];
    cl_device_id devices[64];
    int p, d;
    if (sscanf(index, "%d:%d", &p, &d) != 2 ||
        clGetPlatformIDs(16, platforms, NULL) != CL_SUCCESS ||
        clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, devices, NULL) != CL_SUCCESS)
        exit(EXIT_FAILURE);
    return devices[d];
}

int main(void)
{
    const struct tp_device_info *info = test_device();
    cl_int code;
    if (info == NULL)
        return SKIPPED;
    device = find(info->index);
    context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
    if (code != CL_SUCCESS)
        return 1;
    Suite *suite = suite_create("philox");
    TCase *test = tcase_create("philox");
    tcase_add_loop_test(test, known_answers, TP_KERNELS_CPU, TP_KERNELS_GPU + 1);
    tcase_set_timeout(test, 300);
    suite_add_tcase(suite, test);
    const int status = device_run(suite);
    clReleaseContext(context);
    return status;
}
