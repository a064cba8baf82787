/* SPDX-License-Identifier: Apache-2.0 */
/* The search for parameters, with candidates whose speed is made up. */
#include "config.h"

#include <stdlib.h>

#include "expect.h"
#include "train/tuner.h"

static const struct tp_device_info device = {
    .name = "a processor", .type = "cpu", .max_group = 256, .local_memory = 32 << 10};
static const char task[] = "256 rows";

enum { MOST = 500 };

/* Tries by a made-up rule, and keeps the order. */
struct fake {
    int tries, limit; /* over after so many */
    struct tp_tuning order[MOST];
};

/* Some are wrong; of the others those near one certain set are fastest. */
static enum tp_status try_fake(void *self, struct tp_trial *trial, bool *over)
{
    struct fake *fake = self;
    const int *v = trial->set.values;
    double ratio = 4;

    if (fake->tries == fake->limit) {
        *over = true;
        return TP_OK;
    }
    ck_assert_int_lt(fake->tries, MOST);
    fake->order[fake->tries++] = trial->set;
    *trial = (struct tp_trial){.set = trial->set};
    ratio -= v[4] != 128;        /* MWG */
    ratio -= 0.5 * (v[0] != 32); /* KWG */
    ratio -= 0.3 * (v[10] != 1); /* STRM */
    ratio -= 0.01 * v[1];        /* KWI */
    if (v[1] == 1) {
        strcpy(trial->reason, "gemm is wrong");
        return TP_OK;
    }
    trial->ratio = ratio;
    trial->gflops = 10 * ratio;
    return TP_OK;
}

static enum tp_status search(struct tp_tuner *tuner, const char *path, struct fake *fake, int limit,
                             uint64_t seed)
{
    const struct tp_trier trier = {.self = fake, .try = try_fake};

    *fake = (struct fake){.limit = limit};
    tp_tuner_init(tuner, &device, task, seed);
    ck_assert_int_eq(tp_tuner_resume(tuner, path), TP_OK);
    return tp_tuner_run(tuner, path, &trier);
}

static struct fake one, two;
static struct tp_tuner tuner;
static char *folder;
static const char *path;

static void begin(void)
{
    folder = scratch_new();
    path = scratch_path(folder, "trials");
}

static void end(void)
{
    scratch_free(folder);
}

START_TEST(finds_the_fastest_and_no_set_twice)
{
    ck_assert_int_eq(search(&tuner, path, &one, -1, 1), TP_OK);
    const struct tp_trial *best = tp_tuner_best(&tuner);
    ck_assert_ptr_nonnull(best);
    ck_assert_int_eq(best->set.values[4], 128);
    ck_assert_int_eq(best->set.values[0], 32);
    ck_assert_int_eq(best->set.values[10], 1);
    ck_assert_int_eq(best->set.values[1], 2); /* 1 is wrong */
    ck_assert_str_eq(best->reason, "");
    ck_assert_int_eq(tuner.count, one.tries);
    for (int i = 0; i < one.tries; i++) {
        ck_assert(tp_tuning_is_legal(&one.order[i], &device));
        for (int j = 0; j < i; j++)
            ck_assert(!tp_tuning_is_same(&one.order[i], &one.order[j]));
    }
    tp_tuner_fini(&tuner);
}
END_TEST

static void expect_same_order(const struct fake *a, int first, const struct fake *b)
{
    for (int i = 0; i < b->tries; i++)
        ck_assert(tp_tuning_is_same(&a->order[first + i], &b->order[i]));
}

START_TEST(the_order_is_the_seeds)
{
    const char *other = scratch_path(folder, "other"), *third = scratch_path(folder, "third");

    ck_assert_int_eq(search(&tuner, path, &one, 20, 1), TP_OK);
    tp_tuner_fini(&tuner);
    ck_assert_int_eq(search(&tuner, other, &two, 20, 1), TP_OK);
    tp_tuner_fini(&tuner);
    expect_same_order(&one, 0, &two);
    ck_assert_int_eq(search(&tuner, third, &two, 20, 2), TP_OK);
    tp_tuner_fini(&tuner);
    ck_assert(memcmp(one.order, two.order, sizeof one.order) != 0);
}
END_TEST

/* Broken off after any number of trials, it goes on as if it had not been. */
START_TEST(goes_on_where_it_stopped)
{
    ck_assert_int_eq(search(&tuner, scratch_path(folder, "whole"), &one, -1, 1), TP_OK);
    const int all = tuner.count;
    const struct tp_trial best = *tp_tuner_best(&tuner);
    tp_tuner_fini(&tuner);
    for (int first = 0; first <= all; first++) {
        unlink(path);
        ck_assert_int_eq(search(&tuner, path, &two, first, 1), TP_OK);
        ck_assert_int_eq(tuner.count, first);
        tp_tuner_fini(&tuner);
        ck_assert_int_eq(search(&tuner, path, &two, -1, 1), TP_OK);
        ck_assert_int_eq(two.tries, all - first);
        ck_assert_int_eq(tuner.count, all);
        expect_same_order(&one, first, &two);
        ck_assert(tp_tuning_is_same(&tp_tuner_best(&tuner)->set, &best.set));
        tp_tuner_fini(&tuner);
    }
}
END_TEST

/* Ignored with a note, and written over. */
static void expect_anew(const char *file, const char *part)
{
    const struct tp_trier trier = {.self = &two, .try = try_fake};

    two = (struct fake){.limit = 3};
    tp_tuner_init(&tuner, &device, task, 1);
    capture_begin();
    const enum tp_status status = tp_tuner_resume(&tuner, file);
    expect_one_line(capture_end(), part);
    ck_assert_int_eq(status, TP_OK);
    ck_assert_int_eq(tuner.count, 0);
    ck_assert_int_eq(tp_tuner_run(&tuner, file, &trier), TP_OK);
    ck_assert_int_eq(tuner.count, 3);
    tp_tuner_fini(&tuner);
}

START_TEST(files_of_something_else_are_ignored)
{
    char text[16384];

    ck_assert_int_eq(search(&tuner, path, &one, 12, 1), TP_OK);
    tp_tuner_fini(&tuner);
    FILE *file = fopen(path, "r");
    const size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t cut = 0; cut < size - 1; cut += 101)
        expect_anew(scratch_file(folder, "cut", text, cut), "anew");
    expect_anew(scratch_file(folder, "null", "null", 4), "anew");
    expect_anew(scratch_file(folder, "empty", "{}", 2), "no file of trials");
    char *value = memmem(text, size, "VWM=8", 5);
    value[4] = '9';
    expect_anew(scratch_file(folder, "nine", text, size), "cannot be");
    value[4] = '8';
    memcpy(memmem(text, size, "256 rows", 8), "255", 3);
    expect_anew(scratch_file(folder, "task", text, size), "task");
}
END_TEST

static enum tp_status reject(void *self, struct tp_trial *trial, bool *over)
{
    (void)over;
    ++*(int *)self;
    strcpy(trial->reason, "ended by signal 11");
    return TP_OK;
}

START_TEST(without_a_right_one_there_is_no_best)
{
    int tries = 0;
    const struct tp_trier trier = {.self = &tries, .try = reject};

    tp_tuner_init(&tuner, &device, task, 1);
    ck_assert_int_eq(tp_tuner_run(&tuner, path, &trier), TP_OK);
    ck_assert_int_gt(tries, 0);
    ck_assert_int_eq(tuner.count, tries);
    ck_assert_ptr_null(tp_tuner_best(&tuner));
    tp_tuner_fini(&tuner);
}
END_TEST

static enum tp_status give_up(void *self, struct tp_trial *trial, bool *over)
{
    (void)self, (void)trial, (void)over;
    return tp_fail(TP_ERR_DEVICE, "no default");
}

START_TEST(a_trier_that_fails_ends_it)
{
    const struct tp_trier trier = {.try = give_up};

    tp_tuner_init(&tuner, &device, task, 1);
    expect_fail(TP_ERR_DEVICE, "no default", tp_tuner_run(&tuner, path, &trier));
    ck_assert_int_eq(tuner.count, 0);
    tp_tuner_fini(&tuner);
}
END_TEST

START_TEST(a_file_that_cannot_be_written_ends_it)
{
    const struct tp_trier trier = {.self = &two, .try = try_fake};

    two = (struct fake){.limit = -1};
    tp_tuner_init(&tuner, &device, task, 1);
    expect_fail(TP_ERR_IO, "/nowhere/trials", tp_tuner_run(&tuner, "/nowhere/trials", &trier));
    ck_assert_int_eq(two.tries, 1);
    tp_tuner_fini(&tuner);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("tuner");

    tcase_add_checked_fixture(cases, begin, end);
    tcase_add_test(cases, finds_the_fastest_and_no_set_twice);
    tcase_add_test(cases, the_order_is_the_seeds);
    tcase_add_test(cases, goes_on_where_it_stopped);
    tcase_add_test(cases, files_of_something_else_are_ignored);
    tcase_add_test(cases, without_a_right_one_there_is_no_best);
    tcase_add_test(cases, a_trier_that_fails_ends_it);
    tcase_add_test(cases, a_file_that_cannot_be_written_ends_it);
    return expect_run(cases);
}
