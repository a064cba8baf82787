/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes share. */
#include "config.h"

#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/shared.h"
#include "expect.h"

enum { BYTES = 10000 };

START_TEST(another_process_sees_it)
{
    char name[TP_SHARED_NAME];
    char *mine = tp_shared_new(name, BYTES);

    ck_assert_ptr_nonnull(mine);
    for (int i = 0; i < BYTES; i++)
        ck_assert_int_eq(mine[i], 0);
    const pid_t child = fork();
    if (child == 0) {
        char *theirs = tp_shared_open(name, BYTES);
        if (theirs != NULL)
            theirs[BYTES - 1] = 7;
        _exit(theirs != NULL ? 0 : 1);
    }
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(mine[BYTES - 1], 7);
    tp_shared_forget(name);
    ck_assert_ptr_null(tp_shared_open(name, BYTES));
    mine[0] = 1; /* it is there still */
    tp_shared_free(mine, BYTES);
}
END_TEST

START_TEST(names_differ)
{
    char names[2][TP_SHARED_NAME];
    void *memory[2];

    for (int i = 0; i < 2; i++)
        ck_assert_ptr_nonnull(memory[i] = tp_shared_new(names[i], BYTES));
    ck_assert_str_ne(names[0], names[1]);
    for (int i = 0; i < 2; i++) {
        tp_shared_forget(names[i]);
        tp_shared_free(memory[i], BYTES);
    }
}
END_TEST

/* And the name is free again. */
START_TEST(too_much_is_refused_at_once)
{
    char name[TP_SHARED_NAME];

    ck_assert_ptr_null(tp_shared_new(name, (size_t)INT64_MAX / 2));
    ck_assert_ptr_null(tp_shared_open(name, BYTES));
    tp_shared_free(NULL, BYTES);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("shared");

    tcase_add_test(cases, another_process_sees_it);
    tcase_add_test(cases, names_differ);
    tcase_add_test(cases, too_much_is_refused_at_once);
    return expect_run(cases);
}
