/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a benchmark: its columns are declared once, its rows are printed for people, written
 * as JSON (--json) and compared with those of an earlier run (--compare). */
#ifndef TP_BENCH_REPORT_H
#define TP_BENCH_REPORT_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/options.h"
#include "base/status.h"
#include "device/device.h"
#include "rounds.h"

struct report_options {
    const char *json, *compare;
};

/* clang-format off */
/* The two rows of a program's option table; member is the report_options of its settings. */
#define REPORT_OPTIONS(settings, member)                                                           \
    {.name = "json", .type = TP_OPTION_STRING, .offset = offsetof(settings, member.json),          \
     .argument = "FILE", .help = "write the table as JSON; - is stdout"},                          \
    {.name = "compare", .type = TP_OPTION_STRING, .offset = offsetof(settings, member.compare),    \
     .argument = "OLD.json", .help = "ratios to the times of an earlier --json"}
/* clang-format on */

enum report_role {
    REPORT_KEY,    /* what the row is: rows with the same keys are compared */
    REPORT_TIME,   /* median, fastest and slowest; the first such column is compared */
    REPORT_FIGURE, /* a number derived from it, or beside it */
    REPORT_ERROR   /* largest error against a reference, with its bound */
};

struct report_column {
    enum report_role role;
    const char *name, *unit; /* unit "": none */
    int digits;              /* behind the point, of times and figures */
    double scale;            /* of a time: units in a second */
};

/* One value of a row, made by the functions below. Text must outlive the report. */
struct report_cell {
    bool there;
    const char *text; /* of a key; NULL: a number */
    double value;     /* of a time: the median, in seconds */
    double fastest, slowest;
    double bound; /* of an error */
};

static inline struct report_cell report_none(void)
{
    return (struct report_cell){.there = false};
}

static inline struct report_cell report_text(const char *text)
{
    return (struct report_cell){.there = true, .text = text};
}

static inline struct report_cell report_number(double value)
{
    return (struct report_cell){.there = true, .value = value};
}

/* Seconds of one of the count things that each round did; none when there were no rounds. */
static inline struct report_cell report_time(struct rounds *rounds, double count)
{
    if (rounds->count == 0)
        return report_none();
    return (struct report_cell){.there = true,
                                .value = rounds_at(rounds, 0.5) / count,
                                .fastest = rounds_at(rounds, 0) / count,
                                .slowest = rounds_at(rounds, 1) / count};
}

/* Beyond the bound, or no number, makes report_finish() fail. */
static inline struct report_cell report_error(double error, double bound)
{
    return (struct report_cell){.there = true, .value = error, .bound = bound};
}

struct report;

/* A report without rows. Reads the earlier one and makes sure that the JSON can be written, before
 * time is spent on measuring. options and columns must outlive it. Local. TP_ERR_INPUT, TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status report_open(const struct report_options *options, const char *benchmark,
                           const struct report_column *columns, int n_columns,
                           struct report **report);
void report_close(struct report *report);

/* A fact about what was measured and where: printed above the table, written to the JSON. An
 * earlier report with another value is compared with all the same, and the reader is told. Local.
 * TP_ERR_MEMORY. */
enum tp_status report_fact(struct report *report, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The facts of a device that every benchmark of one states. Local. TP_ERR_MEMORY. */
enum tp_status report_device(struct report *report, const struct tp_device_info *device,
                             int threads);

/* Adds a row: one cell for each column, copied. Local. TP_ERR_MEMORY. */
enum tp_status report_add(struct report *report, const struct report_cell *cells);

/* Prints the table (on stderr when the JSON goes to stdout), writes the JSON, prints the
 * comparison. Local. TP_ERR_DEVICE names the first row with an error beyond its bound; TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status report_finish(struct report *report);

/* The main of a benchmark on one rank: parses its options into settings, which are zero, and runs
 * it. Its exit status: 2 for a mistaken command line, 1 when run fails. */
int report_main(const struct tp_option *rows, int n_rows, void *settings, int argc, char **argv,
                enum tp_status (*run)(const void *settings));

#endif
