/* SPDX-License-Identifier: Apache-2.0 */
/* Expectations about errors, and a folder to try files in. */
#ifndef TP_TESTS_EXPECT_H
#define TP_TESTS_EXPECT_H

#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "capture.h"

static inline void expect_one_line(const char *output, const char *part)
{
    const char *newline = strchr(output, '\n');

    ck_assert_msg(strstr(output, part) != NULL, "'%s' is not in: %s", part, output);
    ck_assert_msg(newline != NULL && newline[1] == '\0', "not one line: %s", output);
}

/* The call fails with that status and reports one line, which has that part in it. */
#define expect_fail(expected, part, call)                                                          \
    do {                                                                                           \
        capture_begin();                                                                           \
        enum tp_status expect_status = (call);                                                     \
        const char *expect_output = capture_end();                                                 \
        ck_assert_str_eq(tp_status_name(expect_status), tp_status_name(expected));                 \
        expect_one_line(expect_output, part);                                                      \
    } while (0)

/* A folder of the test's own, deleted with the files in it. */
static inline char *scratch_new(void)
{
    char *path = strdup("/tmp/terapipe-test-XXXXXX");

    ck_assert_ptr_nonnull(mkdtemp(path));
    return path;
}

static inline void scratch_free(char *folder)
{
    char path[512];
    DIR *listing = opendir(folder);

    for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        unlink(path);
    }
    closedir(listing);
    rmdir(folder);
    free(folder);
}

/* "folder/name", in one of a few static places. */
static inline const char *scratch_path(const char *folder, const char *name)
{
    static char paths[4][512];
    static int next;
    char *path = paths[next++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

/* Writes a file there and gives its path. */
static inline const char *scratch_file(const char *folder, const char *name, const void *data,
                                       size_t size)
{
    const char *path = scratch_path(folder, name);
    FILE *file = fopen(path, "wb");

    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, size, file), size);
    ck_assert_int_eq(fclose(file), 0);
    return path;
}

/* Runs the tests of a program and gives its exit status. */
static inline int expect_run(TCase *cases)
{
    Suite *suite = suite_create("terapipe");

    tcase_set_timeout(cases, 120);
    suite_add_tcase(suite, cases);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
