/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/tokens.h"

#include "expect.h"

static char *folder;
static struct tp_tokens *tokens;

static void setup(void)
{
    folder = scratch_new();
    tokens = NULL;
}

static void teardown(void)
{
    tp_tokens_close(tokens);
    scratch_free(folder);
}

static enum tp_status open_one(const char *path, int seq_len, int vocab_size)
{
    return tp_tokens_open(&path, 1, seq_len, vocab_size, &tokens);
}

/* Little-endian numbers of a width, whatever the machine's order. */
static size_t put(unsigned char *to, uint32_t value, int width)
{
    for (int i = 0; i < width; i++)
        to[i] = (unsigned char)(value >> 8 * i);
    return (size_t)width;
}

/* Writes count tokens, first and on by one, as llm.c does. */
static const char *write_header_file(const char *name, uint32_t magic, uint32_t version, int width,
                                     uint32_t says, uint32_t first, int count)
{
    static unsigned char text[8192];
    size_t at = 1024;

    memset(text, 0, sizeof text);
    put(text, magic, 4);
    put(text + 4, version, 4);
    put(text + 8, says, 4);
    for (int i = 0; i < count; i++)
        at += put(text + at, first + (uint32_t)i, width);
    return scratch_file(folder, name, text, at);
}

static const char *write_raw(const char *name, uint32_t first, int count)
{
    static unsigned char text[8192];
    size_t at = 0;

    for (int i = 0; i < count; i++)
        at += put(text + at, first + (uint32_t)i, 2);
    return scratch_file(folder, name, text, at);
}

/* Opened samples count up from first. */
static void check_counting(int seq_len, int32_t first, int64_t count)
{
    int32_t inputs[64], targets[64];

    ck_assert_int_eq(tp_tokens_count(tokens), count);
    ck_assert_int_eq(tp_tokens_samples(tokens), (count - 1) / seq_len);
    for (int64_t n = 0; n < tp_tokens_samples(tokens); n++) {
        ck_assert_int_eq(tp_tokens_sample(tokens, n, inputs, targets), TP_OK);
        for (int i = 0; i < seq_len; i++) {
            ck_assert_int_eq(inputs[i], first + n * seq_len + i);
            ck_assert_int_eq(targets[i], inputs[i] + 1);
        }
    }
}

START_TEST(text)
{
    const char *path = scratch_file(folder, "a.txt", "hello\xff", 6);
    int32_t inputs[2], targets[2];

    ck_assert_int_eq(open_one(path, 2, 256), TP_OK);
    ck_assert_int_eq(tp_tokens_count(tokens), 6);
    ck_assert_int_eq(tp_tokens_samples(tokens), 2);
    ck_assert_int_eq(tp_tokens_sample(tokens, 1, inputs, NULL), TP_OK);
    ck_assert_int_eq(tp_tokens_sample(tokens, 1, NULL, targets), TP_OK);
    ck_assert(inputs[0] == 'l' && inputs[1] == 'l' && targets[0] == 'l' && targets[1] == 'o');
}
END_TEST

START_TEST(raw_and_llm_c)
{
    ck_assert_int_eq(open_one(write_raw("a.bin", 65000, 50), 7, 65536), TP_OK);
    check_counting(7, 65000, 50);
    tp_tokens_close(tokens);
    ck_assert_int_eq(open_one(write_header_file("b.bin", 20240520, 1, 2, 50, 65000, 50), 7, 65536),
                     TP_OK);
    check_counting(7, 65000, 50);
    tp_tokens_close(tokens);
    /* The header counts, not the name. */
    ck_assert_int_eq(open_one(write_header_file("c", 20240801, 7, 4, 50, 127000, 50), 7, 128000),
                     TP_OK);
    check_counting(7, 127000, 50);
    tp_tokens_close(tokens);
    ck_assert_int_eq(open_one(write_header_file("d", 20240801, 1, 4, 50, 0, 50), 49, 128000),
                     TP_OK);
    check_counting(49, 0, 50);
}
END_TEST

/* Samples go across the borders of files, of any format, and as short as one token. */
START_TEST(several_files_are_one_stream)
{
    const char *paths[5] = {write_raw("a.bin", 10, 5), write_raw("b.bin", 15, 1)};

    paths[0] = strdup(paths[0]);
    paths[1] = strdup(paths[1]);
    paths[2] = strdup(write_header_file("c.bin", 20240520, 1, 2, 4, 16, 4));
    paths[3] = strdup(write_header_file("d.bin", 20240801, 7, 4, 3, 20, 3));
    paths[4] = strdup(scratch_file(folder, "e.txt", "\x17\x18\x19\x1a", 4));
    for (int seq_len = 1; seq_len <= 16; seq_len++) {
        ck_assert_int_eq(tp_tokens_open(paths, 5, seq_len, 64, &tokens), TP_OK);
        check_counting(seq_len, 10, 17);
        tp_tokens_close(tokens);
        tokens = NULL;
    }
    expect_fail(TP_ERR_INPUT, "and the others: 17 tokens, expected 18 or more",
                tp_tokens_open(paths, 5, 17, 64, &tokens));
    unlink(paths[3]);
    expect_fail(TP_ERR_INPUT, "d.bin", tp_tokens_open(paths, 5, 1, 64, &tokens));
    for (int i = 0; i < 5; i++)
        free((char *)paths[i]);
}
END_TEST

START_TEST(tokens_beyond_the_vocabulary)
{
    int32_t inputs[4], targets[4];
    const char *paths[] = {strdup(write_raw("a.bin", 0, 6)), strdup(write_raw("b.bin", 94, 8))};

    /* Stream: 0 to 5, 94 to 101; the fourth token of b.bin is 97. */
    ck_assert_int_eq(tp_tokens_open(paths, 2, 4, 97, &tokens), TP_OK);
    ck_assert_int_eq(tp_tokens_sample(tokens, 0, inputs, targets), TP_OK);
    ck_assert_int_eq(tp_tokens_sample(tokens, 1, inputs, targets), TP_OK);
    expect_fail(TP_ERR_INPUT, "b.bin: token 97 at position 3, expected 0 to 96",
                tp_tokens_sample(tokens, 2, inputs, NULL));
    expect_fail(TP_ERR_INPUT, "b.bin: token 97 at position 3",
                tp_tokens_sample(tokens, 2, NULL, targets));
    tp_tokens_close(tokens);
    for (int i = 0; i < 2; i++)
        free((char *)paths[i]);

    const char *path = write_header_file("c", 20240801, 7, 4, 2, 0xffffffff, 2);
    ck_assert_int_eq(open_one(path, 1, 1 << 28), TP_OK);
    expect_fail(TP_ERR_INPUT, "token 4294967295 at position 0",
                tp_tokens_sample(tokens, 0, inputs, NULL));
    ck_assert_int_eq(tp_tokens_sample(tokens, 0, NULL, targets), TP_OK);
    tp_tokens_close(tokens);

    /* Text on a small vocabulary: only what is read counts. */
    ck_assert_int_eq(open_one(scratch_file(folder, "d.txt", "\1\2\3\4z", 5), 2, 10), TP_OK);
    ck_assert_int_eq(tp_tokens_sample(tokens, 0, inputs, targets), TP_OK);
    expect_fail(TP_ERR_INPUT, "d.txt: token 122 at position 4",
                tp_tokens_sample(tokens, 1, inputs, targets));
}
END_TEST

START_TEST(refusals)
{
    expect_fail(TP_ERR_INPUT, "/no-such", open_one("/no-such", 4, 97));
    expect_fail(TP_ERR_INPUT, "is a folder", open_one(folder, 4, 97));
    expect_fail(TP_ERR_INPUT, "/dev/zero", open_one("/dev/zero", 4, 97));
    expect_fail(TP_ERR_INPUT, "a.bin: is empty",
                open_one(scratch_file(folder, "a.bin", "", 0), 4, 97));
    expect_fail(TP_ERR_INPUT, "a.txt: is empty",
                open_one(scratch_file(folder, "a.txt", "", 0), 4, 97));
    expect_fail(TP_ERR_INPUT, "a.bin: has 5 bytes",
                open_one(scratch_file(folder, "a.bin", "12345", 5), 1, 97));
    expect_fail(TP_ERR_INPUT, "a.bin: 4 tokens, expected 5 or more",
                open_one(write_raw("a.bin", 0, 4), 4, 97));
    expect_fail(TP_ERR_INPUT, "a.bin: has version 2, expected 1",
                open_one(write_header_file("a.bin", 20240520, 2, 2, 9, 0, 9), 4, 97));
    expect_fail(TP_ERR_INPUT, "a.bin: has version 0",
                open_one(write_header_file("a.bin", 20240801, 0, 4, 9, 0, 9), 4, 97));
    expect_fail(TP_ERR_INPUT, "counts 10 tokens",
                open_one(write_header_file("a.bin", 20240520, 1, 2, 10, 0, 9), 4, 97));
    expect_fail(TP_ERR_INPUT, "counts 8 tokens",
                open_one(write_header_file("a.bin", 20240520, 1, 2, 8, 0, 9), 4, 97));
    expect_fail(TP_ERR_INPUT, "counts 4294967295 tokens",
                open_one(write_header_file("a.bin", 20240801, 7, 4, UINT32_MAX, 0, 9), 4, 97));
    expect_fail(TP_ERR_INPUT, "a.bin: 0 tokens",
                open_one(write_header_file("a.bin", 20240520, 1, 2, 0, 0, 0), 4, 97));
    ck_assert_ptr_null(tokens);
}
END_TEST

/* A file cut off anywhere is refused; as raw tokens it is a shorter file. */
START_TEST(every_truncation)
{
    const char *path = write_header_file("a.bin", 20240520, 1, 2, 20, 0, 20);

    for (int size = 1024 + 2 * 20 - 1; size >= 4; size--) {
        ck_assert_int_eq(truncate(path, size), 0);
        expect_fail(TP_ERR_INPUT, "a.bin", open_one(path, 4, 97));
    }
    ck_assert_int_eq(truncate(path, 2), 0);
    expect_fail(TP_ERR_INPUT, "a.bin: 1 tokens", open_one(path, 1, 97));
}
END_TEST

/* Large files are mapped, not read: this one is 1 TiB of holes. */
START_TEST(a_sparse_giant)
{
    const char *path = scratch_file(folder, "a.bin", "", 0);
    int32_t inputs[8];

    if (truncate(path, 1LL << 40) != 0)
        return; /* not on this file system */
    ck_assert_int_eq(open_one(path, 8, 97), TP_OK);
    ck_assert_int_eq(tp_tokens_count(tokens), 1LL << 39);
    int64_t last = tp_tokens_samples(tokens) - 1;
    ck_assert_int_eq(tp_tokens_sample(tokens, last, inputs, NULL), TP_OK);
    ck_assert_int_eq(inputs[7], 0);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("tokens");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, text);
    tcase_add_test(cases, raw_and_llm_c);
    tcase_add_test(cases, several_files_are_one_stream);
    tcase_add_test(cases, tokens_beyond_the_vocabulary);
    tcase_add_test(cases, refusals);
    tcase_add_test(cases, every_truncation);
    tcase_add_test(cases, a_sparse_giant);
    return expect_run(cases);
}
