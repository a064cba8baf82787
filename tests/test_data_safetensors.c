/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/safetensors.h"

#include <signal.h>
#include <stdint.h>
#include <sys/resource.h>

#include "expect.h"

static char *folder;
static struct tp_safetensors *file;

static void setup(void)
{
    folder = scratch_new();
    file = NULL;
}

static void teardown(void)
{
    tp_safetensors_close(file);
    scratch_free(folder);
}

/* Puts a file together: the header's length, the header, data bytes of value 0. */
static size_t assemble(unsigned char *out, const char *header, size_t header_size, size_t data)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)((uint64_t)header_size >> 8 * i);
    memcpy(out + 8, header, header_size);
    memset(out + 8 + header_size, 0, data);
    return 8 + header_size + data;
}

static enum tp_status open_header(const char *header, size_t data)
{
    static unsigned char out[65536];
    size_t size = assemble(out, header, strlen(header), data);

    return tp_safetensors_open(scratch_file(folder, "x.safetensors", out, size), &file);
}

START_TEST(what_is_written_is_read)
{
    const struct tp_tensor_info infos[] = {
        {.name = "matrix", .ndim = 2, .shape = {300, 400}},
        {.name = "empty", .ndim = 2, .shape = {0, 7}},
        {.name = "scalar", .ndim = 0},
        {.name = "na\"me\n", .ndim = 3, .shape = {1, 2, 3}},
    };
    enum { LARGE = 300 * 400 };
    const char *path = scratch_path(folder, "a.safetensors");
    struct tp_safetensors_writer *writer;
    float *data = malloc(LARGE * sizeof *data), *read = malloc(LARGE * sizeof *read);

    for (int i = 0; i < LARGE; i++)
        data[i] = (float)i / 7;
    ck_assert_int_eq(tp_safetensors_create(path, infos, 4, &writer), TP_OK);
    ck_assert_int_eq(tp_safetensors_write(writer, data, LARGE), TP_OK);
    ck_assert_int_eq(tp_safetensors_write(writer, NULL, 0), TP_OK);
    ck_assert_int_eq(tp_safetensors_write(writer, data + 5, 1), TP_OK);
    ck_assert_int_eq(tp_safetensors_write(writer, data + 6, 6), TP_OK);
    ck_assert_int_eq(tp_safetensors_finish(writer), TP_OK);

    ck_assert_int_eq(tp_safetensors_open(path, &file), TP_OK);
    ck_assert_str_eq(tp_safetensors_path(file), path);
    ck_assert_int_eq(tp_safetensors_count(file), 4);
    for (int i = 0; i < 4; i++) {
        const struct tp_tensor_info *info = tp_safetensors_find(file, infos[i].name);
        ck_assert_ptr_eq(info, tp_safetensors_at(file, i));
        ck_assert_str_eq(info->name, infos[i].name);
        ck_assert_str_eq(info->dtype, "F32");
        ck_assert_int_eq(info->ndim, infos[i].ndim);
        ck_assert_mem_eq(info->shape, infos[i].shape, sizeof info->shape);
    }
    ck_assert_ptr_null(tp_safetensors_find(file, "other"));
    ck_assert_int_eq(tp_safetensors_read(file, tp_safetensors_at(file, 0), read), TP_OK);
    ck_assert_mem_eq(read, data, LARGE * sizeof *data);
    ck_assert_int_eq(tp_safetensors_read(file, tp_safetensors_at(file, 1), read), TP_OK);
    ck_assert_int_eq(tp_safetensors_read(file, tp_safetensors_at(file, 2), read), TP_OK);
    ck_assert(read[0] == data[5]);
    ck_assert_int_eq(tp_safetensors_read(file, tp_safetensors_at(file, 3), read), TP_OK);
    ck_assert_mem_eq(read, data + 6, 6 * sizeof *data);
    free(data);
    free(read);
}
END_TEST

/* The very bytes: little-endian, data at a multiple of 8, the metadata that others insist on. */
START_TEST(the_bytes_of_a_file)
{
    const struct tp_tensor_info info = {.name = "a", .ndim = 1, .shape = {2}};
    const char *path = scratch_path(folder, "a.safetensors");
    const float values[] = {1, -2};
    struct tp_safetensors_writer *writer;
    unsigned char text[512];

    ck_assert_int_eq(tp_safetensors_create(path, &info, 1, &writer), TP_OK);
    ck_assert_int_eq(tp_safetensors_write(writer, values, 2), TP_OK);
    ck_assert_int_eq(tp_safetensors_finish(writer), TP_OK);
    FILE *stream = fopen(path, "rb");
    size_t size = fread(text, 1, sizeof text, stream);
    fclose(stream);

    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    size_t length = text[0];
    ck_assert_uint_eq(length % 8, 0);
    for (int i = 1; i < 8; i++)
        ck_assert_uint_eq(text[i], 0);
    ck_assert_mem_eq(text + 8, header, sizeof header - 1);
    for (size_t i = 8 + sizeof header - 1; i < 8 + length; i++)
        ck_assert_uint_eq(text[i], ' ');
    ck_assert_uint_eq(size, 8 + length + 8);
    ck_assert_mem_eq(text + 8 + length, "\0\0\x80\x3f\0\0\0\xc0", 8);
}
END_TEST

START_TEST(tensors_in_any_order_and_of_any_dtype)
{
    float value;

    ck_assert_int_eq(open_header("{\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[4,10]},"
                                 "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],"
                                 "\"more\":1},\"e\":{\"dtype\":\"I64\",\"shape\":[0],"
                                 "\"data_offsets\":[4,4]}}      ",
                                 10),
                     TP_OK);
    ck_assert_str_eq(tp_safetensors_at(file, 0)->name, "a");
    ck_assert_str_eq(tp_safetensors_at(file, 1)->name, "e");
    ck_assert_str_eq(tp_safetensors_at(file, 2)->name, "b");
    expect_fail(TP_ERR_INPUT, "b is F16, expected F32",
                tp_safetensors_read(file, tp_safetensors_find(file, "b"), &value));
    tp_safetensors_close(file);
    ck_assert_int_eq(open_header("{}", 0), TP_OK);
    ck_assert_int_eq(tp_safetensors_count(file), 0);
}
END_TEST

#define TENSOR(name, dtype, shape, offsets)                                                        \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"
#define A TENSOR("a", "F32", "[2]", "[0,8]")

static const struct {
    const char *header;
    size_t data;
    const char *part;
} refused[] = {
    {"{" A "}", 7, "has 7 bytes of data, expected 8"},
    {"{" A "}", 9, "has 9 bytes of data, expected 8"},
    {"{}", 1, "has 1 bytes of data, expected 0"},
    {" {" A "}", 8, "does not begin with '{'"},
    {"[]", 0, "does not begin with '{'"},
    {"{" A, 8, "header, byte"},
    {"{" A "}x", 8, "header, byte"},
    {"{" A "," A "}", 8, "duplicate"},
    {"{" TENSOR("\xff", "F32", "[2]", "[0,8]") "}", 8, "unable to decode"},
    {"{" TENSOR("a\\u0000b", "F32", "[2]", "[0,8]") "}", 8, "header, byte"},
    {"{\"a\":7}", 0, "a has no dtype"},
    {"{\"a\":{}}", 0, "a has no dtype"},
    {"{\"a\":{\"dtype\":\"F32\"}}", 0, "a has no shape"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 4, "data_offsets of a"},
    {"{\"a\":{\"dtype\":4,\"shape\":[],\"data_offsets\":[0,4]}}", 4, "a has no dtype"},
    {"{" TENSOR("a", "F31", "[2]", "[0,8]") "}", 8, "unknown dtype F31"},
    {"{" TENSOR("a", "f32", "[2]", "[0,8]") "}", 8, "unknown dtype f32"},
    {"{" TENSOR("a", "F32", "2", "[0,8]") "}", 8, "a has no shape"},
    {"{" TENSOR("a", "F32", "[-2]", "[0,8]") "}", 8, "integers from 0"},
    {"{" TENSOR("a", "F32", "[2.0]", "[0,8]") "}", 8, "integers from 0"},
    {"{" TENSOR("a", "F32", "[\"2\"]", "[0,8]") "}", 8, "integers from 0"},
    {"{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]") "}", 8, "9 dimensions"},
    {"{" TENSOR("a", "F32", "[2]", "[0]") "}", 8, "data_offsets of a"},
    {"{" TENSOR("a", "F32", "[2]", "[0,8,8]") "}", 8, "data_offsets of a"},
    {"{" TENSOR("a", "F32", "[2]", "[8,0]") "}", 8, "data_offsets of a"},
    {"{" TENSOR("a", "F32", "[2]", "[-8,0]") "}", 8, "data_offsets of a"},
    {"{" TENSOR("a", "F32", "[2]", "[0,8.0]") "}", 8, "data_offsets of a"},
    {"{" TENSOR("a", "F32", "[2]", "{}") "}", 8, "data_offsets of a"},
    {"{" TENSOR("a", "F32", "[3]", "[0,8]") "}", 8, "contradict"},
    {"{" TENSOR("a", "F32", "[0]", "[0,8]") "}", 8, "contradict"},
    {"{" TENSOR("a", "F64", "[2]", "[0,8]") "}", 8, "contradict"},
    {"{" TENSOR("a", "F32", "[2]", "[0,18446744073709551615]") "}", 8, "header, byte"},
    {"{" TENSOR("a", "F32", "[2]", "[0,9223372036854775807]") "}", 8, "contradict"},
    /* 2^62 * 4 wraps to 0, and (2^32 + 1)^2 * ... to something small. */
    {"{" TENSOR("a", "F32", "[4611686018427387904]", "[0,0]") "}", 0, "contradict"},
    {"{" TENSOR("a", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "contradict"},
    {"{" TENSOR("a", "U8", "[4294967297,4294967297]", "[0,8589934593]") "}", 8, "contradict"},
    {"{" A "," TENSOR("b", "F32", "[1]", "[12,16]") "}", 16, "b begins at byte 12 of the data"},
    {"{" A "," TENSOR("b", "F32", "[1]", "[4,8]") "}", 8, "b begins at byte 4 of the data"},
    {"{" A "," TENSOR("b", "F32", "[2]", "[0,8]") "}", 8, "begins at byte 0 of the data"},
    {"{" TENSOR("a", "F32", "[2]", "[4,12]") "}", 12, "a begins at byte 4"},
    {"{\"__metadata__\":7," A "}", 8, "__metadata__"},
    {"{\"__metadata__\":{\"a\":7}," A "}", 8, "__metadata__"},
};

START_TEST(refusals)
{
    expect_fail(TP_ERR_INPUT, refused[_i].part, open_header(refused[_i].header, refused[_i].data));
    ck_assert_ptr_null(file);
}
END_TEST

START_TEST(lengths_of_the_header)
{
    static const uint64_t lengths[] = {0,         1,          3,          1000000,
                                       100000001, 1ULL << 63, UINT64_MAX, UINT64_MAX - 7};
    unsigned char text[16] = "........{}";

    for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
        for (int i = 0; i < 8; i++)
            text[i] = (unsigned char)(lengths[k] >> 8 * i);
        const char *path = scratch_file(folder, "x", text, 10);
        expect_fail(TP_ERR_INPUT, "header's length", tp_safetensors_open(path, &file));
    }
    const char *path = scratch_file(folder, "x", text, 0);
    expect_fail(TP_ERR_INPUT, "x: has 0 bytes", tp_safetensors_open(path, &file));

    /* A header beyond the limit, though the file holds it. */
    memcpy(text, "\x01\xe1\xf5\x05\0\0\0\0", 8);
    scratch_file(folder, "x", text, 10);
    ck_assert_int_eq(truncate(path, 1LL << 30), 0);
    expect_fail(TP_ERR_INPUT, "is 100000001, expected 2 to 100000000",
                tp_safetensors_open(path, &file));
    expect_fail(TP_ERR_INPUT, "/no-such", tp_safetensors_open("/no-such", &file));
    expect_fail(TP_ERR_INPUT, "is a folder", tp_safetensors_open(folder, &file));
    expect_fail(TP_ERR_INPUT, "/dev/zero", tp_safetensors_open("/dev/zero", &file));
}
END_TEST

START_TEST(deep_headers)
{
    enum { DEEP = 60000 };
    char *header = malloc(DEEP + 1);

    memset(header, '[', DEEP);
    memcpy(header, "{\"a\":", 5);
    header[DEEP] = '\0';
    expect_fail(TP_ERR_INPUT, "depth", open_header(header, 0));
    free(header);
}
END_TEST

/* A valid file cut off anywhere is refused; with any bit changed it is refused or read. */
START_TEST(every_truncation_and_every_flip)
{
    static const char header[] =
        "{\"__metadata__\":{\"format\":\"pt\"}," A "," TENSOR("b", "F32", "[1,3]", "[8,20]") "}";
    unsigned char good[512], bad[512];
    size_t size = assemble(good, header, sizeof header - 1, 20);
    float data[64];

    for (size_t cut = 0; cut < size; cut++) {
        const char *path = scratch_file(folder, "cut", good, cut);
        expect_fail(TP_ERR_INPUT, "cut: ", tp_safetensors_open(path, &file));
    }
    for (size_t at = 0; at < size; at++) {
        for (int bit = 0; bit < 8; bit++) {
            memcpy(bad, good, size);
            bad[at] ^= (unsigned char)(1 << bit);
            const char *path = scratch_file(folder, "flip", bad, size);
            capture_begin();
            enum tp_status status = tp_safetensors_open(path, &file);
            const char *output = capture_end();
            if (status != TP_OK) {
                ck_assert_int_eq(status, TP_ERR_INPUT);
                expect_one_line(output, "flip: ");
                continue;
            }
            for (int i = 0; i < tp_safetensors_count(file); i++)
                if (!strcmp(tp_safetensors_at(file, i)->dtype, "F32"))
                    ck_assert_int_eq(tp_safetensors_read(file, tp_safetensors_at(file, i), data),
                                     TP_OK);
            tp_safetensors_close(file);
            file = NULL;
        }
    }
}
END_TEST

START_TEST(a_file_that_shrinks)
{
    float data[2];

    ck_assert_int_eq(open_header("{" A "}", 8), TP_OK);
    ck_assert_int_eq(truncate(tp_safetensors_path(file), 10), 0);
    expect_fail(TP_ERR_IO, "became shorter",
                tp_safetensors_read(file, tp_safetensors_at(file, 0), data));
}
END_TEST

/* ---- Writing that goes wrong ---- */

START_TEST(counts_that_are_not_those_of_the_header)
{
    const struct tp_tensor_info infos[] = {{.name = "a", .ndim = 1, .shape = {2}},
                                           {.name = "b", .ndim = 1, .shape = {3}}};
    const char *path = scratch_path(folder, "a.safetensors");
    const float values[3] = {1, 2, 3};
    struct tp_safetensors_writer *writer;

    ck_assert_int_eq(tp_safetensors_create(path, infos, 2, &writer), TP_OK);
    expect_fail(TP_ERR_INPUT, "has 2 elements, got 3", tp_safetensors_write(writer, values, 3));
    ck_assert_int_eq(tp_safetensors_write(writer, values, 2), TP_OK);
    expect_fail(TP_ERR_INPUT, "got 1 of 2 tensors", tp_safetensors_finish(writer));
    ck_assert_int_ne(access(path, F_OK), 0);

    ck_assert_int_eq(tp_safetensors_create(path, infos, 1, &writer), TP_OK);
    ck_assert_int_eq(tp_safetensors_write(writer, values, 2), TP_OK);
    expect_fail(TP_ERR_INPUT, "tensor 1 of 1", tp_safetensors_write(writer, values, 2));
    tp_safetensors_abandon(writer);
    ck_assert_int_ne(access(path, F_OK), 0);
    tp_safetensors_abandon(NULL);
}
END_TEST

START_TEST(devices_and_folders)
{
    const struct tp_tensor_info info = {.name = "a", .ndim = 1, .shape = {2}};
    struct tp_safetensors_writer *writer = NULL;
    struct stat state;

    expect_fail(TP_ERR_IO, "/dev/full: cannot write",
                tp_safetensors_create("/dev/full", &info, 1, &writer));
    ck_assert(stat("/dev/full", &state) == 0 && S_ISCHR(state.st_mode)); /* still there */
    expect_fail(TP_ERR_IO, "/no-such/a", tp_safetensors_create("/no-such/a", &info, 1, &writer));
    expect_fail(TP_ERR_IO, folder, tp_safetensors_create(folder, &info, 1, &writer));
    ck_assert_ptr_null(writer);
}
END_TEST

/* A limit on the size of files stands in for a full disk. */
START_TEST(a_full_disk)
{
    enum { LARGE = 100000 };
    const struct tp_tensor_info info = {.name = "a", .ndim = 1, .shape = {LARGE}};
    const struct rlimit limit = {.rlim_cur = 65536, .rlim_max = RLIM_INFINITY};
    const char *path = scratch_path(folder, "a.safetensors");
    static const float large[LARGE];
    struct tp_safetensors_writer *writer;

    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert_int_eq(tp_safetensors_create(path, &info, 1, &writer), TP_OK);
    expect_fail(TP_ERR_IO, "a.safetensors: cannot write",
                tp_safetensors_write(writer, large, LARGE));
    tp_safetensors_abandon(writer);
    ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("safetensors");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, what_is_written_is_read);
    tcase_add_test(cases, the_bytes_of_a_file);
    tcase_add_test(cases, tensors_in_any_order_and_of_any_dtype);
    tcase_add_loop_test(cases, refusals, 0, sizeof refused / sizeof *refused);
    tcase_add_test(cases, lengths_of_the_header);
    tcase_add_test(cases, deep_headers);
    tcase_add_test(cases, every_truncation_and_every_flip);
    tcase_add_test(cases, a_file_that_shrinks);
    tcase_add_test(cases, counts_that_are_not_those_of_the_header);
    tcase_add_test(cases, devices_and_folders);
    tcase_add_test(cases, a_full_disk);
    return expect_run(cases);
}
