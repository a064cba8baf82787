/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"

#define FORMAT "terapipe-bench"
enum { VERSION_OF_FORMAT = 1, FILE_LIMIT = 64 << 20, CELL_TEXT = 160 };

struct report {
    const struct report_options *options;
    const char *benchmark;
    const struct report_column *columns;
    int n_columns;
    struct report_cell *cells; /* [n_rows][n_columns] */
    int n_rows;
    json_t *facts;
    json_t *old; /* the earlier report; NULL: none */
};

static const struct report_cell *cell_at(const struct report *report, int row, int column)
{
    return &report->cells[row * report->n_columns + column];
}

static enum tp_status no_memory(const struct report *report)
{
    return tp_fail(TP_ERR_MEMORY, "no memory for the report of %s", report->benchmark);
}

/* ---- Facts ---- */

enum tp_status report_fact(struct report *report, const char *name, const char *format, ...)
{
    char text[CELL_TEXT * 2];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    /* json_string() refuses what is no UTF-8, as a driver's text may be. */
    json_t *value = json_string(text);
    return json_object_set_new(report->facts, name, value ? value : json_string("?")) == 0
               ? TP_OK
               : no_memory(report);
}

enum tp_status report_device(struct report *report, const struct tp_device_info *device,
                             int threads)
{
    TP_TRY(report_fact(report, "device", "%s", device->name));
    TP_TRY(report_fact(report, "threads", "%d", threads));
    TP_TRY(report_fact(report, "driver", "%s, %s", device->platform, device->version));
    return report_fact(report, "libraries", "%s", tp_device_libraries());
}

static enum tp_status add_common_facts(struct report *report)
{
    const time_t now = time(NULL);
    const struct tm *utc = gmtime(&now);
    char date[32] = "?";

    if (utc != NULL)
        strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%SZ", utc);
    TP_TRY(report_fact(report, "version", "%s", PACKAGE_VERSION));
    TP_TRY(report_fact(report, "date", "%s", date));
    return report_fact(report, "cores", "%ld", sysconf(_SC_NPROCESSORS_ONLN));
}

/* ---- Life ---- */

static enum tp_status load_old(struct report *report)
{
    const char *path = report->options->compare;
    json_error_t error;
    size_t size;
    char *text;

    if (path == NULL)
        return TP_OK;
    TP_TRY(tp_file_read(path, FILE_LIMIT, &text, &size));
    report->old = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (report->old == NULL)
        return tp_fail(TP_ERR_INPUT, "%s: line %d, column %d: %s", path, error.line, error.column,
                       error.text);
    const char *format = json_string_value(json_object_get(report->old, "format"));
    const char *benchmark = json_string_value(json_object_get(report->old, "benchmark"));
    if (format == NULL || strcmp(format, FORMAT) != 0 ||
        json_integer_value(json_object_get(report->old, "version")) != VERSION_OF_FORMAT ||
        !json_is_array(json_object_get(report->old, "rows")))
        return tp_fail(TP_ERR_INPUT, "%s: is no report, expected one of --json, version %d", path,
                       VERSION_OF_FORMAT);
    if (benchmark == NULL || strcmp(benchmark, report->benchmark) != 0)
        return tp_fail(TP_ERR_INPUT, "%s: is a report of bench_%s, expected one of bench_%s", path,
                       benchmark ? benchmark : "?", report->benchmark);
    return TP_OK;
}

static bool json_on_stdout(const struct report_options *options)
{
    return options->json != NULL && strcmp(options->json, "-") == 0;
}

enum tp_status report_open(const struct report_options *options, const char *benchmark,
                           const struct report_column *columns, int n_columns, struct report **out)
{
    struct report *report = calloc(1, sizeof(*report));

    if (report == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for the report of %s", benchmark);
    *report = (struct report){.options = options,
                              .benchmark = benchmark,
                              .columns = columns,
                              .n_columns = n_columns,
                              .facts = json_object()};
    enum tp_status status = report->facts ? add_common_facts(report) : no_memory(report);
    if (status == TP_OK)
        status = load_old(report);
    if (status == TP_OK && options->json != NULL && !json_on_stdout(options))
        status = tp_file_probe(options->json);
    if (status == TP_OK)
        *out = report;
    else
        report_close(report);
    return status;
}

void report_close(struct report *report)
{
    if (report == NULL)
        return;
    json_decref(report->facts);
    json_decref(report->old);
    free(report->cells);
    free(report);
}

enum tp_status report_add(struct report *report, const struct report_cell *cells)
{
    const size_t n = (size_t)report->n_columns, have = (size_t)report->n_rows * n;
    struct report_cell *all = realloc(report->cells, (have + n) * sizeof(*all));

    if (all == NULL)
        return no_memory(report);
    memcpy(all + have, cells, n * sizeof(*all));
    report->cells = all;
    report->n_rows++;
    return TP_OK;
}

/* ---- Text: columns as wide as what is in them ---- */

enum { MOST_COLUMNS = 32 };

/* What stands in a column: its name, its unit, or a row's value. */
enum { LINE_NAME = -2, LINE_UNIT = -1 };

static void cell_text(const struct report *report, int line, int c, char text[CELL_TEXT])
{
    const struct report_column *column = &report->columns[c];

    if (line == LINE_NAME || line == LINE_UNIT) {
        snprintf(text, CELL_TEXT, "%s", line == LINE_NAME ? column->name : column->unit);
        return;
    }
    const struct report_cell *cell = cell_at(report, line, c);
    if (!cell->there)
        snprintf(text, CELL_TEXT, "-");
    else if (column->role == REPORT_KEY && cell->text != NULL)
        snprintf(text, CELL_TEXT, "%s", cell->text);
    else if (column->role == REPORT_ERROR)
        snprintf(text, CELL_TEXT, "%.1e", cell->value);
    else
        snprintf(text, CELL_TEXT, "%.*f", column->digits,
                 cell->value * (column->role == REPORT_TIME ? column->scale : 1));
}

/* Beside a time's median. */
static void range_text(const struct report *report, int line, int c, char text[CELL_TEXT])
{
    const struct report_column *column = &report->columns[c];

    text[0] = '\0';
    if (line == LINE_NAME)
        snprintf(text, CELL_TEXT, "fastest .. slowest");
    else if (line >= 0 && cell_at(report, line, c)->there)
        snprintf(text, CELL_TEXT, "%.*f .. %.*f", column->digits,
                 cell_at(report, line, c)->fastest * column->scale, column->digits,
                 cell_at(report, line, c)->slowest * column->scale);
}

static int longest(const struct report *report, int c,
                   void (*text_of)(const struct report *, int, int, char[CELL_TEXT]))
{
    char text[CELL_TEXT];
    size_t most = 0;

    for (int line = LINE_NAME; line < report->n_rows; line++) {
        text_of(report, line, c, text);
        most = strlen(text) > most ? strlen(text) : most;
    }
    return (int)most;
}

static bool is_text(const struct report *report, int c)
{
    return report->n_rows > 0 && cell_at(report, 0, c)->text != NULL;
}

static void print_table(const struct report *report, FILE *out)
{
    int width[MOST_COLUMNS], range[MOST_COLUMNS];
    char text[CELL_TEXT];

    for (int c = 0; c < report->n_columns; c++) {
        width[c] = longest(report, c, cell_text);
        range[c] = longest(report, c, range_text);
    }
    for (int line = LINE_NAME; line < report->n_rows; line++) {
        for (int c = 0; c < report->n_columns; c++) {
            cell_text(report, line, c, text);
            fprintf(out, "%s%*s", c > 0 ? "  " : "", is_text(report, c) ? -width[c] : width[c],
                    text);
            if (report->columns[c].role != REPORT_TIME)
                continue;
            range_text(report, line, c, text);
            fprintf(out, "  %-*s", range[c], text);
        }
        fprintf(out, "\n");
    }
}

static void print_facts(const struct report *report, FILE *out)
{
    enum { LINE_LENGTH = 100 };
    int used = fprintf(out, "bench_%s", report->benchmark);
    const char *name, *separator = ": ";
    json_t *value;

    json_object_foreach(report->facts, name, value)
    {
        const char *text = json_string_value(value);
        if (used + (int)(strlen(name) + strlen(text)) + 3 > LINE_LENGTH) {
            separator = ";\n  ";
            used = 0;
        }
        used += fprintf(out, "%s%s %s", separator, name, text);
        separator = "; ";
    }
    fprintf(out, "\n\n");
}

/* ---- JSON ---- */

/* A number that is none becomes null. */
static json_t *json_number_of(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *cell_json(const struct report_column *column, const struct report_cell *cell)
{
    if (!cell->there)
        return json_null();
    switch (column->role) {
    case REPORT_KEY:
        return cell->text ? json_string(cell->text) : json_integer((json_int_t)cell->value);
    case REPORT_TIME:
        return json_pack("{s:o, s:o, s:o}", "median", json_number_of(cell->value * column->scale),
                         "fastest", json_number_of(cell->fastest * column->scale), "slowest",
                         json_number_of(cell->slowest * column->scale));
    case REPORT_ERROR:
        return json_pack("{s:o, s:o}", "largest", json_number_of(cell->value), "bound",
                         json_number_of(cell->bound));
    default:
        return json_number_of(cell->value);
    }
}

static json_t *row_json(const struct report *report, int row)
{
    json_t *object = json_object();

    for (int c = 0; c < report->n_columns; c++)
        if (json_object_set_new(object, report->columns[c].name,
                                cell_json(&report->columns[c], cell_at(report, row, c))) != 0) {
            json_decref(object);
            return NULL;
        }
    return object;
}

/* NULL without memory. */
static json_t *whole_json(const struct report *report)
{
    json_t *columns = json_array(), *rows = json_array();
    bool whole = true;

    for (int c = 0; c < report->n_columns; c++)
        whole =
            json_array_append_new(columns, json_pack("{s:s, s:s}", "name", report->columns[c].name,
                                                     "unit", report->columns[c].unit)) == 0 &&
            whole;
    for (int row = 0; row < report->n_rows; row++)
        whole = json_array_append_new(rows, row_json(report, row)) == 0 && whole;
    json_t *json = json_pack("{s:s, s:i, s:s, s:O, s:o, s:o}", "format", FORMAT, "version",
                             VERSION_OF_FORMAT, "benchmark", report->benchmark, "facts",
                             report->facts, "columns", columns, "rows", rows);
    if (json != NULL && whole)
        return json;
    json_decref(json);
    return NULL;
}

static enum tp_status write_json(const struct report *report)
{
    if (report->options->json == NULL)
        return TP_OK;
    json_t *json = whole_json(report);
    char *text = json ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(json);
    if (text == NULL)
        return no_memory(report);
    enum tp_status status = TP_OK;
    if (!json_on_stdout(report->options))
        status = tp_file_write(report->options->json, text, strlen(text));
    else if (puts(text) < 0 || fflush(stdout) != 0)
        status = tp_fail(TP_ERR_IO, "stdout: the report could not be written");
    free(text);
    return status;
}

/* ---- Comparison ---- */

static bool same_keys(const struct report *report, int row, const json_t *old)
{
    for (int c = 0; c < report->n_columns; c++) {
        if (report->columns[c].role != REPORT_KEY)
            continue;
        json_t *mine = cell_json(&report->columns[c], cell_at(report, row, c));
        const bool same = json_equal(mine, json_object_get(old, report->columns[c].name));
        json_decref(mine);
        if (!same)
            return false;
    }
    return true;
}

static const json_t *old_row(const struct report *report, int row)
{
    const json_t *rows = json_object_get(report->old, "rows");

    for (size_t i = 0; i < json_array_size(rows); i++)
        if (same_keys(report, row, json_array_get(rows, i)))
            return json_array_get(rows, i);
    return NULL;
}

static bool is_there_now(const struct report *report, const json_t *old)
{
    for (int row = 0; row < report->n_rows; row++)
        if (same_keys(report, row, old))
            return true;
    return false;
}

static void print_keys(const struct report *report, int row, FILE *out)
{
    char text[CELL_TEXT];

    for (int c = 0; c < report->n_columns; c++)
        if (report->columns[c].role == REPORT_KEY) {
            cell_text(report, row, c, text);
            fprintf(out, "%*s  ",
                    is_text(report, c) ? -longest(report, c, cell_text)
                                       : longest(report, c, cell_text),
                    text);
        }
}

static void print_old_keys(const struct report *report, const json_t *old, FILE *out)
{
    for (int c = 0; c < report->n_columns; c++) {
        const json_t *key = json_object_get(old, report->columns[c].name);
        if (report->columns[c].role != REPORT_KEY)
            continue;
        if (json_is_string(key))
            fprintf(out, "%s  ", json_string_value(key));
        else
            fprintf(out, "%.0f  ", json_number_value(key));
    }
}

static void print_differing_facts(const struct report *report, FILE *out)
{
    const json_t *old = json_object_get(report->old, "facts");
    const char *name;
    json_t *value;

    json_object_foreach(report->facts, name, value)
    {
        const json_t *before = json_object_get(old, name);
        if (before == NULL || !json_equal(value, before))
            fprintf(out, "  %s: was %s, is %s\n", name,
                    before ? json_string_value(before) : "not stated", json_string_value(value));
    }
}

static int time_column(const struct report *report)
{
    for (int c = 0; c < report->n_columns; c++)
        if (report->columns[c].role == REPORT_TIME)
            return c;
    return -1;
}

/* A difference is worth the name only when the two ranges do not overlap. */
static void print_ratio(const struct report *report, int row, const json_t *old, FILE *out)
{
    const int c = time_column(report);
    const struct report_column *column = &report->columns[c];
    const struct report_cell *cell = cell_at(report, row, c);
    const json_t *time = json_object_get(old, column->name);
    const double before = json_number_value(json_object_get(time, "median"));
    const double fastest = json_number_value(json_object_get(time, "fastest"));
    const double slowest = json_number_value(json_object_get(time, "slowest"));
    const double scale = column->scale;

    print_keys(report, row, out);
    if (!cell->there || before <= 0) {
        fprintf(out, "no time in %s\n", cell->there ? "the earlier report" : "this one");
        return;
    }
    fprintf(out, "%7.3f  %.*f (%.*f .. %.*f) was %.*f (%.*f .. %.*f) %s%s\n",
            cell->value * scale / before, column->digits, cell->value * scale, column->digits,
            cell->fastest * scale, column->digits, cell->slowest * scale, column->digits, before,
            column->digits, fastest, column->digits, slowest, column->unit,
            cell->slowest * scale < fastest   ? ": faster"
            : cell->fastest * scale > slowest ? ": slower"
                                              : "");
}

static void print_comparison(const struct report *report, FILE *out)
{
    const json_t *rows = json_object_get(report->old, "rows");

    fprintf(out,
            "\nratio of the median time to that of %s (below 1: faster now; \"faster\" and "
            "\"slower\" where the ranges do not overlap)\n",
            report->options->compare);
    print_differing_facts(report, out);
    for (int row = 0; row < report->n_rows; row++) {
        const json_t *old = old_row(report, row);
        if (old != NULL) {
            print_ratio(report, row, old, out);
        } else {
            print_keys(report, row, out);
            fprintf(out, "only now\n");
        }
    }
    for (size_t i = 0; i < json_array_size(rows); i++)
        if (!is_there_now(report, json_array_get(rows, i))) {
            print_old_keys(report, json_array_get(rows, i), out);
            fprintf(out, "only in %s\n", report->options->compare);
        }
}

/* ---- The end ---- */

/* Keys of a row in one line, for an error. */
static void name_row(const struct report *report, int row, char *name, size_t size)
{
    char text[CELL_TEXT];
    size_t used = 0;

    name[0] = '\0';
    for (int c = 0; c < report->n_columns && used < size; c++)
        if (report->columns[c].role == REPORT_KEY) {
            cell_text(report, row, c, text);
            used += (size_t)snprintf(name + used, size - used, "%s%s", used ? " " : "", text);
        }
}

static enum tp_status judge(const struct report *report)
{
    char name[CELL_TEXT * 2];

    for (int row = 0; row < report->n_rows; row++)
        for (int c = 0; c < report->n_columns; c++) {
            const struct report_cell *cell = cell_at(report, row, c);
            if (report->columns[c].role != REPORT_ERROR || !cell->there ||
                cell->value <= cell->bound)
                continue;
            name_row(report, row, name, sizeof(name));
            return tp_fail(TP_ERR_DEVICE, "bench_%s: %s: %s %.2g, expected at most %.2g",
                           report->benchmark, name, report->columns[c].name, cell->value,
                           cell->bound);
        }
    return TP_OK;
}

enum tp_status report_finish(struct report *report)
{
    FILE *out = json_on_stdout(report->options) ? stderr : stdout;

    print_facts(report, out);
    print_table(report, out);
    TP_TRY(write_json(report));
    if (report->old != NULL)
        print_comparison(report, out);
    return judge(report);
}

int report_main(const struct tp_option *rows, int n_rows, void *settings, int argc, char **argv,
                enum tp_status (*run)(const void *settings))
{
    struct tp_options options;

    if (tp_options_parse(&options, rows, n_rows, settings, argc, argv) != TP_OK)
        return 2;
    enum tp_status status = tp_options_refuse_arguments(&options);
    if (options.help)
        tp_options_help(rows, n_rows, stdout);
    else if (status == TP_OK)
        status = run(settings);
    tp_options_fini(&options);
    return status == TP_OK ? 0 : status == TP_ERR_USAGE ? 2 : 1;
}
