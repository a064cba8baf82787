/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "capture.h"
#include "plan/slices.h"

START_TEST(uniform_is_as_equal_as_can_be)
{
    for (int seq_len = 1; seq_len <= 40; seq_len++)
        for (int count = 1; count <= seq_len; count++) {
            struct tp_slices slices;
            ck_assert_int_eq(tp_slices_uniform(seq_len, count, &slices), TP_OK);
            ck_assert_int_eq(slices.count, count);
            int sum = 0;
            for (int i = 0; i < count; i++) {
                sum += slices.lengths[i];
                ck_assert_int_eq(slices.lengths[i], seq_len / count + (i < seq_len % count));
            }
            ck_assert_int_eq(sum, seq_len);
            tp_slices_fini(&slices);
        }
}
END_TEST

static void ck_parses(const char *text, int seq_len, int count, const int *lengths)
{
    struct tp_slices slices, copy;
    ck_assert_int_eq(tp_slices_parse(text, seq_len, &slices), TP_OK);
    ck_assert_int_eq(slices.count, count);
    ck_assert_mem_eq(slices.lengths, lengths, (size_t)count * sizeof *lengths);
    ck_assert_int_eq(tp_slices_copy(&slices, &copy), TP_OK);
    tp_slices_fini(&slices);
    ck_assert_int_eq(copy.count, count);
    ck_assert_mem_eq(copy.lengths, lengths, (size_t)count * sizeof *lengths);
    tp_slices_fini(&copy);
}

START_TEST(parse_takes_a_number_or_lengths)
{
    ck_parses("1", 7, 1, (int[]){7});
    ck_parses("4", 10, 4, (int[]){3, 3, 2, 2});
    ck_parses("10", 10, 10, (int[]){1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
    ck_parses("776,640,632", 2048, 3, (int[]){776, 640, 632});
    ck_parses("1,1", 2, 2, (int[]){1, 1});
    ck_parses("63,1", 64, 2, (int[]){63, 1});
}
END_TEST

/* What is wrong, on 64 tokens, and what the line has to say besides --slices. */
static const struct {
    const char *text, *says;
} bad[] = {
    {"", "number of slices from 1 to 64"},
    {"0", "number of slices from 1 to 64"},
    {"-1", "number of slices from 1 to 64"},
    {"+4", "number of slices from 1 to 64"},
    {" 4", "number of slices from 1 to 64"},
    {"4 ", "number of slices from 1 to 64"},
    {"4x", "number of slices from 1 to 64"},
    {"0x4", "number of slices from 1 to 64"},
    {"4.0", "number of slices from 1 to 64"},
    {"four", "number of slices from 1 to 64"},
    {"99999999999999999999", "number of slices from 1 to 64"},
    {"65", "1 to 64 slices of a sequence of 64 tokens"},
    {"2147483647", "1 to 64 slices of a sequence of 64 tokens"},
    {"32,31", "sum to 63, expected the sequence's 64 tokens"},
    {"32,33", "sum to 65, expected the sequence's 64 tokens"},
    {"2147483647,2147483647", "sum to 4294967294"},
    {"4294967296,64", "\"4294967296,64\""},
    {"0,64", "\"0,64\""},
    {"64,0", "not \"0\""},
    {"-1,65", "1 token or more"},
    {"32,,32", "not \",32\""},
    {",64", "not \",64\""},
    {"64,", "not \"\""},
    {"32, 32", "not \" 32\""},
    {"32,32x", "1 token or more"},
    {"32;32,", "1 token or more"},
    {"1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
     "1,"
     "1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
     "65 lengths"},
};

START_TEST(parse_refuses_by_name)
{
    struct tp_slices slices = {.count = -7};
    capture_begin();
    enum tp_status status = tp_slices_parse(bad[_i].text, 64, &slices);
    const char *line = capture_end();
    ck_assert_int_eq(status, TP_ERR_USAGE);
    ck_assert_msg(strstr(line, "--slices") != NULL, "\"%s\": %s", bad[_i].text, line);
    ck_assert_msg(strstr(line, bad[_i].says) != NULL, "\"%s\": %s", bad[_i].text, line);
    ck_assert_ptr_eq(strchr(line, '\n'), line + strlen(line) - 1);
    ck_assert_int_eq(slices.count, -7);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("slices");
    TCase *tests = tcase_create("slices");
    tcase_add_test(tests, uniform_is_as_equal_as_can_be);
    tcase_add_test(tests, parse_takes_a_number_or_lengths);
    tcase_add_loop_test(tests, parse_refuses_by_name, 0, (int)(sizeof bad / sizeof *bad));
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
