/* SPDX-License-Identifier: Apache-2.0 */
/* A run's folder and its metrics. */
#include "config.h"

#include <math.h>

#include <jansson.h>

#include "base/file.h"
#include "expect.h"
#include "train/run.h"

/* Opens and begins a run, as the leading rank. */
static enum tp_status begin(struct tp_run *run, const struct tp_settings *settings, int64_t first)
{
    TP_TRY(tp_run_open(run, settings, true));
    enum tp_status status = tp_run_begin(run, settings, first);
    if (status != TP_OK)
        tp_run_close(run);
    return status;
}

/* Adds steps [from, to). */
static void add(struct tp_run *run, int from, int to)
{
    for (int step = from; step < to; step++) {
        const struct tp_step_metrics metrics = {.step = step,
                                                .loss = step == 1 ? NAN : 1.0 / (3 + step),
                                                .grad_norm = step == 1 ? INFINITY : step,
                                                .lr = 3e-4,
                                                .seconds = 0.5,
                                                .tokens_per_second = 128};
        ck_assert_int_eq(tp_run_add(run, &metrics), TP_OK);
    }
}

/* The file has a line for each of these steps, with its numbers. */
static void expect_steps(const char *path, int count)
{
    size_t size;
    char *text;

    ck_assert_int_eq(tp_file_read(path, 1 << 20, &text, &size), TP_OK);
    char *rest = text;
    for (int step = 0; step < count; step++) {
        char *end = strchr(rest, '\n');
        ck_assert_ptr_nonnull(end);
        *end = '\0';
        json_t *json = json_loads(rest, 0, NULL), *loss = json_object_get(json, "loss");
        ck_assert_int_eq(json_integer_value(json_object_get(json, "step")), step);
        if (step == 1) {
            ck_assert(json_is_null(loss) && json_is_null(json_object_get(json, "grad_norm")));
        } else {
            ck_assert_double_eq(json_real_value(loss), 1.0 / (3 + step));
            ck_assert_double_eq(json_number_value(json_object_get(json, "grad_norm")), step);
        }
        ck_assert_double_eq(json_number_value(json_object_get(json, "lr")), 3e-4);
        ck_assert_double_eq(json_number_value(json_object_get(json, "step_seconds")), 0.5);
        ck_assert_double_eq(json_number_value(json_object_get(json, "tokens_per_second")), 128);
        json_decref(json);
        rest = end + 1;
    }
    ck_assert_str_eq(rest, "");
    free(text);
}

START_TEST(metrics_go_on_where_a_checkpoint_was)
{
    char *folder = scratch_new();
    char *path = strdup(scratch_path(folder, "metrics"));
    const struct tp_settings settings = {.metrics = path};
    struct tp_run run;

    ck_assert_int_eq(begin(&run, &settings, 0), TP_OK);
    add(&run, 0, 6);
    tp_run_close(&run);
    expect_steps(path, 6);

    /* Steps 4 and 5 come again, and a line that was cut off goes. */
    FILE *file = fopen(path, "a");
    fputs("{\"step\": 6, \"lo", file);
    fclose(file);
    ck_assert_int_eq(begin(&run, &settings, 4), TP_OK);
    add(&run, 4, 7);
    tp_run_close(&run);
    expect_steps(path, 7);

    ck_assert_int_eq(begin(&run, &settings, 0), TP_OK);
    add(&run, 0, 2);
    tp_run_close(&run);
    expect_steps(path, 2);
    free(path);
    scratch_free(folder);
}
END_TEST

/* What is in the folder of another run is kept, under another name. */
START_TEST(other_checkpoints_are_put_aside)
{
    char *folder = scratch_new(), *save = strdup(scratch_path(folder, "run"));
    char *step = strdup(scratch_path(folder, "run/checkpoints/step-00000009"));
    struct tp_settings settings = {.save = save};
    struct tp_run run;

    ck_assert_int_eq(begin(&run, &settings, 0), TP_OK);
    ck_assert_str_eq(run.folder, save);
    ck_assert(tp_file_is_folder(run.checkpoints));
    ck_assert_int_eq(mkdir(step, 0777), 0);
    tp_run_close(&run);

    settings.load = step; /* the run goes on */
    ck_assert_int_eq(begin(&run, &settings, 9), TP_OK);
    tp_run_close(&run);
    ck_assert(tp_file_is_folder(step));

    settings.load = folder; /* another run's end */
    capture_begin();
    ck_assert_int_eq(begin(&run, &settings, 9), TP_OK);
    expect_one_line(capture_end(), "run/checkpoints.1");
    tp_run_close(&run);
    ck_assert(!tp_file_exists(step));
    ck_assert(tp_file_is_folder(scratch_path(folder, "run/checkpoints.1/step-00000009")));

    ck_assert_int_eq(rmdir(scratch_path(folder, "run/checkpoints.1/step-00000009")), 0);
    ck_assert_int_eq(rmdir(scratch_path(folder, "run/checkpoints.1")), 0);
    ck_assert_int_eq(rmdir(scratch_path(folder, "run/checkpoints")), 0);
    scratch_free(save);
    free(step);
    scratch_free(folder);
}
END_TEST

/* A run that does not come to its first step leaves what was there, and so does one that finds the
 * folder taken. */
START_TEST(an_opened_run_changes_nothing)
{
    char *folder = scratch_new(), *save = strdup(scratch_path(folder, "run"));
    char *step = strdup(scratch_path(folder, "run/checkpoints/step-00000002"));
    char *metrics = strdup(scratch_path(folder, "run/metrics.jsonl"));
    const struct tp_settings settings = {.save = save};
    struct tp_run run, other;

    ck_assert_int_eq(begin(&run, &settings, 0), TP_OK);
    add(&run, 0, 2);
    ck_assert_int_eq(mkdir(step, 0777), 0);
    expect_fail(TP_ERR_IO, save, tp_run_open(&other, &settings, true));
    tp_run_close(&run);

    ck_assert_int_eq(tp_run_open(&run, &settings, true), TP_OK);
    tp_run_close(&run);
    ck_assert(tp_file_is_folder(step));
    expect_steps(metrics, 2);

    ck_assert_int_eq(rmdir(step), 0);
    ck_assert_int_eq(rmdir(scratch_path(folder, "run/checkpoints")), 0);
    scratch_free(save);
    free(step);
    free(metrics);
    scratch_free(folder);
}
END_TEST

START_TEST(refuses_what_cannot_be_written)
{
    const struct {
        struct tp_settings settings;
        const char *says;
    } cases[] = {
        {{.save = "/dev/null/run"}, "/dev/null/run"},
        {{.save = "/proc/run"}, "/proc/run"},
        {{.metrics = "/nowhere/metrics"}, "/nowhere/metrics"},
        {{.metrics = "/tmp"}, "/tmp"},
        {{.save_gradients = "/nowhere/gradients"}, "/nowhere"},
        {{.save_gradients = "/tmp"}, "/tmp"},
    };
    const struct tp_settings full = {.metrics = "/dev/full"};
    const struct tp_step_metrics metrics = {.step = 3};
    struct tp_run run;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_fail(TP_ERR_IO, cases[i].says, begin(&run, &cases[i].settings, 0));
    ck_assert_int_eq(begin(&run, &full, 0), TP_OK);
    expect_fail(TP_ERR_IO, "/dev/full", tp_run_add(&run, &metrics));
    tp_run_close(&run);
}
END_TEST

/* Only the leading rank touches files. */
START_TEST(other_ranks_take_names_alone)
{
    const struct tp_settings settings = {.save = "/nowhere/run", .metrics = "/nowhere/metrics"};
    struct tp_run run;

    ck_assert_int_eq(tp_run_open(&run, &settings, false), TP_OK);
    ck_assert_str_eq(run.checkpoints, "/nowhere/run/checkpoints");
    tp_run_close(&run);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("run");

    tcase_add_test(cases, metrics_go_on_where_a_checkpoint_was);
    tcase_add_test(cases, other_checkpoints_are_put_aside);
    tcase_add_test(cases, an_opened_run_changes_nothing);
    tcase_add_test(cases, refuses_what_cannot_be_written);
    tcase_add_test(cases, other_ranks_take_names_alone);
    return expect_run(cases);
}
