/* SPDX-License-Identifier: Apache-2.0 */
/* The benchmarks' table: what is written as JSON, judged, and compared. */
#include "config.h"

#include <fcntl.h>

#include <jansson.h>

#include "../bench/report.h"
#include "expect.h"

static const struct report_column columns[] = {
    {REPORT_KEY, "what", "", 0, 0},      {REPORT_KEY, "tokens", "", 0, 0},
    {REPORT_TIME, "time", "ms", 2, 1e3}, {REPORT_FIGURE, "speed", "GFLOP/s", 1, 0},
    {REPORT_ERROR, "error", "", 0, 0},
};
enum { N_COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static char *folder;

static void make_folder(void)
{
    folder = scratch_new();
}

static void drop_folder(void)
{
    scratch_free(folder);
}

static enum tp_status open_report(const struct report_options *options, const char *name,
                                  struct report **report)
{
    return report_open(options, name, columns, N_COLUMNS, report);
}

/* A row with three rounds: of so many seconds, and a tenth less and more. */
static void add_row(struct report *report, const char *what, int tokens, double seconds,
                    double error)
{
    struct rounds rounds = {0};

    rounds_add(&rounds, 1.1 * seconds);
    rounds_add(&rounds, 0.9 * seconds);
    rounds_add(&rounds, seconds);
    const struct report_cell cells[N_COLUMNS] = {
        report_text(what), report_number(tokens), report_time(&rounds, 1),
        report_number(1 / seconds), report_error(error, 1e-5)};
    ck_assert_int_eq(report_add(report, cells), TP_OK);
}

/* What finishing the report prints on stdout. */
static const char *finished(struct report *report, enum tp_status expected)
{
    static char text[1 << 14];
    const char *path = scratch_path(folder, "out");
    const int saved = dup(1), file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    fflush(stdout);
    dup2(file, 1);
    const enum tp_status status = report_finish(report);
    fflush(stdout);
    dup2(saved, 1);
    const ssize_t size = pread(file, text, sizeof(text) - 1, 0);
    close(file);
    close(saved);
    ck_assert_int_ge((int)size, 0);
    text[size] = '\0';
    ck_assert_str_eq(tp_status_name(status), tp_status_name(expected));
    return text;
}

/* The file of a report with rows a 1, a 2 and b 1. */
static const char *written(void)
{
    const struct report_options options = {.json = scratch_path(folder, "old.json")};
    struct report *report = NULL;

    ck_assert_int_eq(open_report(&options, "test", &report), TP_OK);
    ck_assert_int_eq(report_fact(report, "width", "%d", 768), TP_OK);
    add_row(report, "a", 1, 0.5, 1e-6);
    add_row(report, "a", 2, 1.0, 1e-5);
    add_row(report, "b", 1, 2.0, 0);
    finished(report, TP_OK);
    report_close(report);
    return options.json;
}

START_TEST(json_has_facts_units_and_rows)
{
    json_t *json = json_load_file(written(), 0, NULL);
    double median, fastest, slowest, speed, error, bound;
    const char *what, *width, *unit;
    int tokens;

    ck_assert_ptr_nonnull(json);
    ck_assert_int_eq(json_unpack(json, "{s:{s:s}, s:[{}, {}, {s:s}]}", "facts", "width", &width,
                                 "columns", "unit", &unit),
                     0);
    ck_assert_str_eq(width, "768");
    ck_assert_str_eq(unit, "ms");
    ck_assert_int_eq(json_unpack(json_array_get(json_object_get(json, "rows"), 1),
                                 "{s:s, s:i, s:{s:F, s:F, s:F}, s:F, s:{s:F, s:F}}", "what", &what,
                                 "tokens", &tokens, "time", "median", &median, "fastest", &fastest,
                                 "slowest", &slowest, "speed", &speed, "error", "largest", &error,
                                 "bound", &bound),
                     0);
    ck_assert_str_eq(what, "a");
    ck_assert_int_eq(tokens, 2);
    ck_assert_double_eq_tol(median, 1000, 1e-6);
    ck_assert_double_eq_tol(fastest, 900, 1e-6);
    ck_assert_double_eq_tol(slowest, 1100, 1e-6);
    ck_assert_double_eq_tol(speed, 1, 1e-9);
    ck_assert_double_eq_tol(error, 1e-5, 1e-12);
    ck_assert_double_eq_tol(bound, 1e-5, 1e-12);
    json_decref(json);
}
END_TEST

START_TEST(wrong_results_fail)
{
    static const double wrong[] = {1.1e-5, INFINITY, NAN};
    const struct report_options options = {.json = scratch_path(folder, "wrong.json")};
    struct report *report = NULL;

    ck_assert_int_eq(open_report(&options, "test", &report), TP_OK);
    add_row(report, "a", 1, 1, 0);
    add_row(report, "a", 2, 1, wrong[_i]);
    capture_begin();
    finished(report, TP_ERR_DEVICE);
    expect_one_line(capture_end(), "bench_test: a 2: error");
    report_close(report);
    ck_assert_int_eq(access(options.json, F_OK), 0); /* what was measured is there all the same */
}
END_TEST

START_TEST(rows_are_compared_by_their_keys)
{
    const struct report_options options = {.compare = written()};
    struct report *report = NULL;

    ck_assert_int_eq(open_report(&options, "test", &report), TP_OK);
    ck_assert_int_eq(report_fact(report, "width", "%d", 512), TP_OK);
    add_row(report, "b", 1, 1.9, 0); /* within the noise */
    add_row(report, "a", 2, 0.5, 0);
    add_row(report, "c", 7, 1.0, 0);
    const char *text = finished(report, TP_OK);
    ck_assert_ptr_nonnull(strstr(text, "width: was 768, is 512"));
    ck_assert_ptr_nonnull(strstr(text, "0.950  1900.00 (1710.00 .. 2090.00) was 2000.00 "
                                       "(1800.00 .. 2200.00) ms\n"));
    ck_assert_ptr_nonnull(strstr(text, "0.500  500.00 (450.00 .. 550.00) was 1000.00 "
                                       "(900.00 .. 1100.00) ms: faster\n"));
    ck_assert_ptr_nonnull(strstr(text, "7  only now\n"));
    ck_assert_ptr_nonnull(strstr(text, "a  1  only in "));
    report_close(report);
}
END_TEST

START_TEST(what_is_not_there_is_a_dash)
{
    const struct report_options options = {0};
    struct report *report = NULL;
    struct rounds none = {0};

    ck_assert_int_eq(open_report(&options, "test", &report), TP_OK);
    const struct report_cell cells[N_COLUMNS] = {report_text("empty"), report_number(3),
                                                 report_time(&none, 1), report_none(),
                                                 report_none()};
    ck_assert_int_eq(report_add(report, cells), TP_OK);
    ck_assert_ptr_nonnull(strstr(finished(report, TP_OK), "empty       3     -"));
    report_close(report);
}
END_TEST

START_TEST(alien_reports_are_refused)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{", "alien.json: line 1"},
        {"[]", "is no report"},
        {"{\"format\": \"terapipe-plan\", \"version\": 1, \"rows\": []}", "is no report"},
        {"{\"format\": \"terapipe-bench\", \"version\": 2, \"rows\": []}", "is no report"},
        {"{\"format\": \"terapipe-bench\", \"version\": 1, \"benchmark\": \"gemm\", \"rows\": []}",
         "is a report of bench_gemm, expected one of bench_test"},
    };
    struct report *report;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct report_options options = {
            .compare = scratch_file(folder, "alien.json", cases[i].text, strlen(cases[i].text))};
        expect_fail(TP_ERR_INPUT, cases[i].part, open_report(&options, "test", &report));
    }
    const struct report_options nowhere = {.json = scratch_path(folder, "no/such/folder.json")};
    expect_fail(TP_ERR_IO, "no/such", open_report(&nowhere, "test", &report));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("report");

    tcase_add_checked_fixture(cases, make_folder, drop_folder);
    tcase_add_test(cases, json_has_facts_units_and_rows);
    tcase_add_loop_test(cases, wrong_results_fail, 0, 3);
    tcase_add_test(cases, rows_are_compared_by_their_keys);
    tcase_add_test(cases, what_is_not_there_is_a_dash);
    tcase_add_test(cases, alien_reports_are_refused);
    return expect_run(cases);
}
