/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>

#include "expect.h"

static char *folder;

static void setup(void)
{
    folder = scratch_new();
}

static void teardown(void)
{
    scratch_free(folder);
}

START_TEST(what_is_written_is_read)
{
    const char *path = scratch_path(folder, "a");
    char *text;
    size_t size;

    ck_assert_int_eq(tp_file_write(path, "ab\0c\n", 5), TP_OK);
    ck_assert_int_eq(tp_file_read(path, 5, &text, &size), TP_OK);
    ck_assert_uint_eq(size, 5);
    ck_assert_mem_eq(text, "ab\0c\n", 6); /* and a NUL */
    free(text);

    ck_assert_int_eq(tp_file_write(path, "", 0), TP_OK);
    ck_assert_int_eq(tp_file_read(path, 5, &text, &size), TP_OK);
    ck_assert_uint_eq(size, 0);
    free(text);
}
END_TEST

START_TEST(reading_refuses)
{
    const char *fifo = scratch_path(folder, "fifo");
    char *text = NULL;
    size_t size;

    expect_fail(TP_ERR_INPUT, "no-such", tp_file_read("/no-such/file", 10, &text, &size));
    expect_fail(TP_ERR_INPUT, "is a folder", tp_file_read(folder, 10, &text, &size));
    expect_fail(TP_ERR_INPUT, "/dev/zero", tp_file_read("/dev/zero", 10, &text, &size));
    ck_assert_int_eq(mkfifo(fifo, 0600), 0);
    expect_fail(TP_ERR_INPUT, "device or pipe", tp_file_read(fifo, 10, &text, &size));

    const char *path = scratch_file(folder, "big", "12345678901", 11);
    expect_fail(TP_ERR_INPUT, "at most 10", tp_file_read(path, 10, &text, &size));
    ck_assert_int_eq(truncate(path, 1LL << 30), 0);
    expect_fail(TP_ERR_INPUT, "has 1073741824 bytes", tp_file_read(path, 10, &text, &size));
    ck_assert_ptr_null(text);
}
END_TEST

static int entries(void)
{
    DIR *listing = opendir(folder);
    int n = 0;

    while (readdir(listing))
        n++;
    closedir(listing);
    return n - 2;
}

START_TEST(a_failed_write_leaves_nothing)
{
    const char *path = scratch_path(folder, "a");
    char *text;
    size_t size;

    expect_fail(TP_ERR_IO, "/no-such/x", tp_file_write("/no-such/x", "a", 1));
    expect_fail(TP_ERR_IO, folder, tp_file_write(folder, "a", 1));
    ck_assert_int_eq(entries(), 0);

    ck_assert_int_eq(tp_file_write(path, "old", 3), TP_OK);
    ck_assert_int_eq(tp_file_write(path, "new one", 7), TP_OK);
    ck_assert_int_eq(entries(), 1);
    ck_assert_int_eq(tp_file_read(path, 10, &text, &size), TP_OK);
    ck_assert_str_eq(text, "new one");
    free(text);
}
END_TEST

/* A limit on the size of files stands in for a full disk: the old contents stay. */
START_TEST(a_full_disk)
{
    const struct rlimit limit = {.rlim_cur = 4096, .rlim_max = RLIM_INFINITY};
    const char *path = scratch_path(folder, "a");
    static const char large[100000];
    char *text;
    size_t size;

    ck_assert_int_eq(tp_file_write(path, "old", 3), TP_OK);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_fail(TP_ERR_IO, "/a: cannot write", tp_file_write(path, large, sizeof large));
    ck_assert_int_eq(entries(), 1);
    ck_assert_int_eq(tp_file_read(path, 10, &text, &size), TP_OK);
    ck_assert_str_eq(text, "old");
    free(text);
}
END_TEST

START_TEST(devices_are_written_not_replaced)
{
    struct stat info;

    ck_assert_int_eq(tp_file_write("/dev/null", "a", 1), TP_OK);
    expect_fail(TP_ERR_IO, "/dev/full: cannot write", tp_file_write("/dev/full", "a", 1));
    ck_assert(stat("/dev/null", &info) == 0 && S_ISCHR(info.st_mode));
    ck_assert(stat("/dev/full", &info) == 0 && S_ISCHR(info.st_mode));
}
END_TEST

START_TEST(piece_by_piece)
{
    const char *path = scratch_path(folder, "a");
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    uint64_t size;

    ck_assert_int_eq(tp_file_write_all(fd, path, "abc", 3), TP_OK);
    ck_assert_int_eq(tp_file_write_all(fd, path, "", 0), TP_OK);
    ck_assert_int_eq(tp_file_close(fd, path), TP_OK);
    ck_assert_int_eq(tp_file_open(path, &fd, &size), TP_OK);
    ck_assert_uint_eq(size, 3);
    expect_fail(TP_ERR_IO, path, tp_file_write_all(fd, path, "abc", 3));
    close(fd);
    ck_assert_int_eq(tp_file_sync(path), TP_OK);
    ck_assert_int_eq(tp_file_sync(folder), TP_OK);
    expect_fail(TP_ERR_IO, "no-such", tp_file_sync("/no-such"));
}
END_TEST

START_TEST(folders)
{
    char *deep = tp_file_join(folder, "a/b//c/");
    const char *file = scratch_file(folder, "file", "x", 1);

    ck_assert(!tp_file_exists(deep));
    ck_assert_int_eq(tp_file_make_folder(deep), TP_OK);
    ck_assert_int_eq(tp_file_make_folder(deep), TP_OK);
    ck_assert(tp_file_is_folder(deep) && tp_file_exists(deep));
    ck_assert_int_eq(tp_file_probe_folder(deep), TP_OK);
    ck_assert_int_eq(rmdir(deep), 0); /* it is empty again */
    ck_assert_int_eq(rmdir(scratch_path(folder, "a/b")), 0);
    ck_assert_int_eq(rmdir(scratch_path(folder, "a")), 0);
    free(deep);

    ck_assert(tp_file_exists(file) && !tp_file_is_folder(file));
    expect_fail(TP_ERR_IO, file, tp_file_make_folder(file));
    expect_fail(TP_ERR_IO, "file/x", tp_file_make_folder(scratch_path(folder, "file/x")));
    expect_fail(TP_ERR_IO, "empty", tp_file_make_folder(""));
    expect_fail(TP_ERR_IO, "/proc/x", tp_file_make_folder("/proc/x/y"));
    ck_assert_int_ne(mkdir("/sys/x", 0777), 0); /* not as what is not there */
    const int error = errno;
    expect_fail(TP_ERR_IO, strerror(error), tp_file_make_folder("/sys/x"));
    expect_fail(TP_ERR_IO, "/proc: ", tp_file_probe_folder("/proc"));
    expect_fail(TP_ERR_IO, "no-such", tp_file_probe_folder("/no-such"));
}
END_TEST

START_TEST(a_folder_is_claimed_once)
{
    const char *file = scratch_file(folder, "file", "x", 1);
    int fd, again;

    ck_assert_int_eq(tp_file_lock_folder(folder, &fd), TP_OK);
    expect_fail(TP_ERR_IO, folder, tp_file_lock_folder(folder, &again));
    close(fd);
    ck_assert_int_eq(tp_file_lock_folder(folder, &again), TP_OK);
    close(again);
    expect_fail(TP_ERR_IO, file, tp_file_lock_folder(file, &fd));
}
END_TEST

START_TEST(joining)
{
    static const char *const cases[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = tp_file_join(cases[i][0], cases[i][1]);
        ck_assert_str_eq(path, cases[i][2]);
        free(path);
    }
}
END_TEST

START_TEST(renaming)
{
    const char *a = scratch_file(folder, "a", "1", 1), *b = scratch_file(folder, "b", "2", 1);

    ck_assert_int_eq(tp_file_rename(a, b), TP_OK);
    ck_assert(!tp_file_exists(a) && tp_file_exists(b));
    expect_fail(TP_ERR_IO, b, tp_file_rename(a, b));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("file");

    tcase_add_checked_fixture(cases, setup, teardown);
    tcase_add_test(cases, what_is_written_is_read);
    tcase_add_test(cases, reading_refuses);
    tcase_add_test(cases, a_failed_write_leaves_nothing);
    tcase_add_test(cases, a_full_disk);
    tcase_add_test(cases, devices_are_written_not_replaced);
    tcase_add_test(cases, piece_by_piece);
    tcase_add_test(cases, folders);
    tcase_add_test(cases, a_folder_is_claimed_once);
    tcase_add_test(cases, joining);
    tcase_add_test(cases, renaming);
    return expect_run(cases);
}
