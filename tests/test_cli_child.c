/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that answer, crash, hang and fail. */
#include "config.h"

#include <signal.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/child.h"
#include "expect.h"

enum question { DOUBLE_IT, CRASH, HANG, FAIL, FAIL_SILENTLY, LEAVE, STOP_ME };

struct answer {
    int asked, number;
    char text[5000]; /* more than arrives at once */
};

static enum tp_status body(void *self, int question, void *to)
{
    int *number = self;
    struct answer *answer = to;

    switch ((enum question)question) {
    case DOUBLE_IT:
        *number *= 2;
        *answer = (struct answer){.asked = question, .number = *number};
        memset(answer->text, 'x', sizeof answer->text);
        return TP_OK;
    case CRASH:
        raise(SIGKILL);
        break;
    case HANG:
        for (;;)
            pause();
    case FAIL:
        fputs("a driver's noise\n", stderr);
        return tp_fail(TP_ERR_DEVICE, "gemm is wrong for NN 4 x 4 x 4");
    case FAIL_SILENTLY:
        return TP_ERR_MEMORY;
    case LEAVE:
        _exit(77);
    case STOP_ME:
        kill(getppid(), SIGUSR1);
        for (;;)
            pause();
    }
    return TP_ERR_USAGE;
}

static int number;
static struct tp_child child;
static struct answer answer;
static enum tp_status status;
static char reason[TP_CHILD_REASON];

static void begin(bool quiet)
{
    number = 21;
    ck_assert_int_eq(tp_child_start(&child, body, &number, sizeof answer, quiet), TP_OK);
}

static enum tp_child_outcome ask(enum question question, double seconds)
{
    return tp_child_ask(&child, (int)question, seconds, &answer, &status, reason);
}

START_TEST(answers_one_question_after_the_other)
{
    begin(true);
    for (int expected = 42; expected < 1000; expected *= 2) {
        ck_assert_int_eq(ask(DOUBLE_IT, 10), TP_CHILD_ANSWERED);
        ck_assert_int_eq(answer.number, expected);
        ck_assert_int_eq(answer.text[sizeof answer.text - 1], 'x');
    }
    ck_assert_int_eq(number, 21); /* what it does is its own */
    tp_child_end(&child);
    ck_assert_int_eq(child.id, 0);
    tp_child_end(&child); /* once more is fine */
}
END_TEST

START_TEST(a_crash_is_told)
{
    begin(true);
    ck_assert_int_eq(ask(CRASH, 10), TP_CHILD_DIED);
    ck_assert_ptr_nonnull(strstr(reason, "signal 9"));
    ck_assert_int_eq(status, TP_ERR_DEVICE);
    ck_assert_int_eq(child.id, 0);
}
END_TEST

START_TEST(an_exit_is_told)
{
    begin(true);
    ck_assert_int_eq(ask(LEAVE, 10), TP_CHILD_DIED);
    ck_assert_ptr_nonnull(strstr(reason, "77"));
}
END_TEST

START_TEST(a_hang_ends_in_time)
{
    const double began = tp_clock_now();

    begin(true);
    ck_assert_int_eq(ask(HANG, 0.5), TP_CHILD_LATE);
    ck_assert(tp_clock_now() - began < 5);
    ck_assert_ptr_nonnull(strstr(reason, "no answer"));
    ck_assert_int_eq(child.id, 0);
}
END_TEST

/* Wrong numbers are a failure that the check of products reports; its line is the reason. */
START_TEST(what_a_quiet_one_says_is_the_reason)
{
    begin(true);
    capture_begin();
    ck_assert_int_eq(ask(FAIL, 10), TP_CHILD_FAILED);
    ck_assert_str_eq(capture_end(), "");
    ck_assert_str_eq(reason, "gemm is wrong for NN 4 x 4 x 4");
    ck_assert_int_eq(status, TP_ERR_DEVICE);
    begin(true);
    ck_assert_int_eq(ask(FAIL_SILENTLY, 10), TP_CHILD_FAILED);
    ck_assert_str_eq(reason, "memory error");
    ck_assert_int_eq(status, TP_ERR_MEMORY);
}
END_TEST

START_TEST(others_say_it_to_the_user)
{
    capture_begin();
    begin(false);
    ck_assert_int_eq(ask(FAIL, 10), TP_CHILD_FAILED);
    ck_assert_ptr_nonnull(strstr(capture_end(), "error: gemm is wrong"));
}
END_TEST

static void stop(int signal)
{
    (void)signal;
    tp_child_stop = 1;
}

START_TEST(an_interrupt_ends_the_waiting)
{
    const double began = tp_clock_now();

    signal(SIGUSR1, stop);
    begin(true);
    ck_assert_int_eq(ask(STOP_ME, 60), TP_CHILD_STOPPED);
    ck_assert(tp_clock_now() - began < 5);
    ck_assert_int_eq(child.id, 0);
}
END_TEST

START_TEST(two_live_beside_each_other)
{
    struct tp_child first;

    begin(true);
    first = child;
    begin(true);
    ck_assert_int_eq(ask(DOUBLE_IT, 10), TP_CHILD_ANSWERED);
    ck_assert_int_eq(ask(HANG, 0.2), TP_CHILD_LATE);
    child = first;
    ck_assert_int_eq(ask(DOUBLE_IT, 10), TP_CHILD_ANSWERED);
    ck_assert_int_eq(answer.number, 42);
    tp_child_end(&child);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("child");

    tcase_add_test(cases, answers_one_question_after_the_other);
    tcase_add_test(cases, a_crash_is_told);
    tcase_add_test(cases, an_exit_is_told);
    tcase_add_test(cases, a_hang_ends_in_time);
    tcase_add_test(cases, what_a_quiet_one_says_is_the_reason);
    tcase_add_test(cases, others_say_it_to_the_user);
    tcase_add_test(cases, an_interrupt_ends_the_waiting);
    tcase_add_test(cases, two_live_beside_each_other);
    return expect_run(cases);
}
