/* SPDX-License-Identifier: Apache-2.0 */
/* Status, log and clock. */
#include "config.h"

#include "base/clock.h"
#include "base/log.h"
#include "expect.h"

START_TEST(every_status_has_a_name)
{
    for (int i = 0; i < TP_STATUS_COUNT; i++)
        for (int k = 0; k < i; k++)
            ck_assert_str_ne(tp_status_name(i), tp_status_name(k));
    ck_assert_str_eq(tp_status_name(TP_STATUS_COUNT), "unknown");
    ck_assert_str_eq(tp_status_name((enum tp_status) - 1), "unknown");
}
END_TEST

START_TEST(failing_prints_one_line)
{
    capture_begin();
    enum tp_status status = tp_fail(TP_ERR_IO, "%s: %d", "file", 7);
    const char *output = capture_end();

    ck_assert_int_eq(status, TP_ERR_IO);
    ck_assert_str_eq(output, "terapipe: error: file: 7\n");
}
END_TEST

START_TEST(a_line_stays_one_line)
{
    char long_text[10000];

    memset(long_text, 'x', sizeof long_text - 1);
    long_text[sizeof long_text - 1] = '\0';
    capture_begin();
    tp_log(TP_LOG_WARNING, "a\nb\tc\x1b[0m%s", "\r\n");
    ck_assert_str_eq(capture_end(), "terapipe: warning: a?b?c?[0m??\n");

    capture_begin();
    tp_log(TP_LOG_INFO, "%s", long_text);
    expect_one_line(capture_end(), "terapipe: note: xxxx");
}
END_TEST

START_TEST(levels_and_ranks)
{
    tp_log_set_rank(2);
    capture_begin();
    tp_log(TP_LOG_DEBUG, "not seen");
    tp_log(TP_LOG_INFO, "seen");
    ck_assert_str_eq(capture_end(), "terapipe: rank 2: note: seen\n");

    tp_log_set_level(TP_LOG_ERROR);
    tp_log_set_rank(-1);
    capture_begin();
    tp_log(TP_LOG_WARNING, "not seen");
    tp_log(TP_LOG_ERROR, "seen");
    ck_assert_str_eq(capture_end(), "terapipe: error: seen\n");
}
END_TEST

START_TEST(held_errors)
{
    tp_log_hold();
    capture_begin();
    tp_log(TP_LOG_ERROR, "first");
    tp_log(TP_LOG_ERROR, "second");
    tp_log(TP_LOG_INFO, "a note");
    ck_assert_str_eq(capture_end(), "terapipe: note: a note\n");

    capture_begin();
    tp_log_release(true);
    tp_log_release(true); /* nothing is kept any more */
    tp_log(TP_LOG_ERROR, "third");
    ck_assert_str_eq(capture_end(), "terapipe: error: first\nterapipe: error: third\n");

    tp_log_hold();
    tp_log(TP_LOG_ERROR, "dropped");
    capture_begin();
    tp_log_release(false);
    tp_log_release(true);
    ck_assert_str_eq(capture_end(), "");
}
END_TEST

/* A failure that turned out not to be the end. */
START_TEST(demoted_errors)
{
    tp_log_hold();
    capture_begin();
    tp_log_demote(); /* nothing is kept yet */
    tp_log(TP_LOG_ERROR, "first");
    tp_log_demote();
    tp_log(TP_LOG_ERROR, "second");
    tp_log_release(true);
    ck_assert_str_eq(capture_end(), "terapipe: warning: first\nterapipe: error: second\n");
}
END_TEST

START_TEST(the_clock_goes_on)
{
    double start = tp_clock_now();

    tp_clock_sleep(0.02);
    double passed = tp_clock_now() - start;
    ck_assert(passed >= 0.02 && passed < 5);
    tp_clock_sleep(0);
    tp_clock_sleep(-1);
    ck_assert(tp_clock_now() - start < 5);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("log");

    tcase_add_test(cases, every_status_has_a_name);
    tcase_add_test(cases, failing_prints_one_line);
    tcase_add_test(cases, a_line_stays_one_line);
    tcase_add_test(cases, levels_and_ranks);
    tcase_add_test(cases, held_errors);
    tcase_add_test(cases, demoted_errors);
    tcase_add_test(cases, the_clock_goes_on);
    return expect_run(cases);
}
