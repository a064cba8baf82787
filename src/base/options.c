/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/options.h"

#include <errno.h>
#include <float.h>
#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static void *field(const struct tp_option *row, void *settings)
{
    return (char *)settings + row->offset;
}

/* ---- Values ---- */

static bool has_range(const struct tp_option *row)
{
    return row->min != 0 || row->max != 0;
}

static bool in_range(const struct tp_option *row, double value)
{
    return !has_range(row) || (value >= row->min && value <= row->max);
}

/* The largest number of a type: a range that ends there has no upper end to speak of. */
static double largest(enum tp_option_type type)
{
    switch (type) {
    case TP_OPTION_INT:
        return INT_MAX;
    case TP_OPTION_UINT64:
        return (double)UINT64_MAX;
    default:
        return DBL_MAX;
    }
}

/* What a value of the row has to be, for errors: "an integer from 1 to 8". */
static void describe(const struct tp_option *row, char *out, size_t size)
{
    if (row->type == TP_OPTION_CHOICE) {
        int used = snprintf(out, size, "one of");
        for (int i = 0; row->choices[i] && (size_t)used < size; i++)
            used += snprintf(out + used, size - (size_t)used, " %s", row->choices[i]);
        return;
    }
    const char *kind = row->type == TP_OPTION_DOUBLE ? "a number" : "an integer";
    if (!has_range(row))
        snprintf(out, size, "%s", kind);
    else if (row->max >= largest(row->type))
        snprintf(out, size, "%s, %.10g or more", kind, row->min);
    else
        snprintf(out, size, "%s from %.10g to %.10g", kind, row->min, row->max);
}

static enum tp_status refuse(const struct tp_option *row, const char *name, const char *text)
{
    char expected[256];

    describe(row, expected, sizeof expected);
    return tp_fail(TP_ERR_USAGE, "--%s: '%s' is not %s", name, text, expected);
}

/* Is the text made of these characters only? Keeps out the blanks, "nan" and hexadecimal numbers
 * that the functions of the library would read. */
static bool made_of(const char *text, const char *characters)
{
    return text[0] && text[strspn(text, characters)] == '\0';
}

static bool read_int(const struct tp_option *row, const char *text, int *value)
{
    char *end;

    errno = 0;
    long number = strtol(text, &end, 10);
    if (!made_of(text, "+-0123456789") || *end || errno || number < INT_MIN || number > INT_MAX ||
        !in_range(row, (double)number))
        return false;
    *value = (int)number;
    return true;
}

static bool read_uint64(const struct tp_option *row, const char *text, uint64_t *value)
{
    char *end;

    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (!made_of(text, "+0123456789") || *end || errno || !in_range(row, (double)number))
        return false;
    *value = number;
    return true;
}

static bool read_double(const struct tp_option *row, const char *text, double *value)
{
    char *end;
    double number = strtod(text, &end);

    if (!made_of(text, "+-.0123456789eE") || *end || !isfinite(number) || !in_range(row, number))
        return false;
    *value = number;
    return true;
}

static bool read_choice(const struct tp_option *row, const char *text, int *value)
{
    for (int i = 0; row->choices[i]; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            *value = i;
            return true;
        }
    }
    return false;
}

/* Reads one value into the settings. name is the option as it was written. */
static enum tp_status read_value(const struct tp_option *row, const char *name, const char *text,
                                 void *settings)
{
    void *to = field(row, settings);
    bool good = true;

    switch (row->type) {
    case TP_OPTION_INT:
        good = read_int(row, text, to);
        break;
    case TP_OPTION_UINT64:
        good = read_uint64(row, text, to);
        break;
    case TP_OPTION_DOUBLE:
        good = read_double(row, text, to);
        break;
    case TP_OPTION_CHOICE:
        good = read_choice(row, text, to);
        break;
    case TP_OPTION_STRING:
        *(const char **)to = text;
        break;
    case TP_OPTION_FLAG:
    case TP_OPTION_LIST:
        break; /* a flag has no value, a list is collected by take_list() */
    }
    return good ? TP_OK : refuse(row, name, text);
}

/* ---- The command line ---- */

/* Two of getopt's rows for each of ours: the name and the alias. getopt gives back FIRST_ROW + the
 * number of our row, which is above its own codes: 1 for an argument that is no option, '?', ':',
 * and the letter of an option that is one. */
enum { FIRST_ROW = 256, MAX_LETTERS = 16 };

/* Is the option written -o instead of --output? All of these have a value. */
static bool is_letter(const struct tp_option *row)
{
    return row->name[1] == '\0';
}

static struct option *getopt_rows(const struct tp_option *rows, int n_rows)
{
    struct option *all = calloc(2 * (size_t)n_rows + 1, sizeof *all);
    int n = 0;

    for (int i = 0; all && i < n_rows; i++) {
        struct option row = {.name = rows[i].name, .val = FIRST_ROW + i};
        row.has_arg = rows[i].type == TP_OPTION_FLAG ? no_argument : required_argument;
        if (!is_letter(&rows[i]))
            all[n++] = row;
        row.name = rows[i].alias;
        if (rows[i].alias)
            all[n++] = row;
    }
    return all;
}

/* What getopt calls the letters: arguments that are no options come in their place, and missing
 * values are told from unknown options. */
static void list_letters(const struct tp_option *rows, int n_rows,
                         char letters[3 + 2 * MAX_LETTERS])
{
    int n = 0;

    letters[n++] = '-';
    letters[n++] = ':';
    for (int i = 0; i < n_rows && n < 1 + 2 * MAX_LETTERS; i++) {
        if (!is_letter(&rows[i]))
            continue;
        letters[n++] = rows[i].name[0];
        letters[n++] = ':';
    }
    letters[n] = '\0';
}

static int number_of_letter(const struct tp_options *options, int letter)
{
    int number = 0;

    while (!is_letter(&options->rows[number]) || options->rows[number].name[0] != letter)
        number++;
    return number;
}

/* The row whose name or alias is written in "--name" or "--name=value", in full, or as a letter;
 * else NULL. */
static const struct tp_option *find_written(const struct tp_options *options, const char *text)
{
    const bool letter = text[1] != '-';
    size_t length = strcspn(text + 2, "=");

    for (int i = 0; i < options->n_rows; i++) {
        if (letter && is_letter(&options->rows[i]) && options->rows[i].name[0] == text[1])
            return &options->rows[i];
        if (letter || is_letter(&options->rows[i]))
            continue;
        const char *names[] = {options->rows[i].name, options->rows[i].alias};
        for (int k = 0; k < 2; k++)
            if (names[k] && strlen(names[k]) == length && !strncmp(names[k], text + 2, length))
                return &options->rows[i];
    }
    return NULL;
}

/* Is this argument an option rather than a value? A value that looks so is written --name=value. */
static bool looks_like_option(const char *text)
{
    return strncmp(text, "--", 2) == 0;
}

static bool begins_option(const struct tp_options *options, const char *text)
{
    return looks_like_option(text) ||
           (text[0] == '-' && text[1] && find_written(options, text) != NULL);
}

/* Says what is wrong with an argument that is not accepted as it stands. */
static enum tp_status complain(const struct tp_options *options, const char *text)
{
    int length = (int)strcspn(text, "=");

    const struct tp_option *row = find_written(options, text);
    if (!row)
        return tp_fail(TP_ERR_USAGE, "%.*s: unknown option", length, text);
    if (row->type == TP_OPTION_FLAG)
        return tp_fail(TP_ERR_USAGE, "%.*s: takes no value, got '%s'", length, text,
                       text + length + 1);
    return tp_fail(TP_ERR_USAGE, "%s: a value is missing, expected %s", text, row->argument);
}

/* Adds the first value and the ones up to the next option. A list that is given again goes on. */
static enum tp_status take_list(const struct tp_options *options, const struct tp_option *row,
                                int argc, char **argv)
{
    struct tp_option_list *list = field(row, options->settings);

    if (!list->at)
        list->at = calloc((size_t)argc, sizeof *list->at);
    if (!list->at)
        return tp_fail(TP_ERR_MEMORY, "no memory for the values of --%s", row->name);
    list->at[list->count++] = optarg;
    while (optind < argc && !begins_option(options, argv[optind]))
        list->at[list->count++] = argv[optind++];
    return TP_OK;
}

/* Handles the option written in argv[at], which getopt took for that row. */
static enum tp_status take_option(struct tp_options *options, int number, int at, int argc,
                                  char **argv)
{
    const struct tp_option *row = &options->rows[number];
    const char *text = argv[at];

    if (find_written(options, text) != row) /* an abbreviation */
        return complain(options, text);
    if (row->type != TP_OPTION_FLAG && at + 1 < argc && optarg == argv[at + 1] &&
        looks_like_option(optarg))
        return complain(options, text);
    options->given[number] = true;

    if (row->type == TP_OPTION_FLAG) {
        *(bool *)field(row, options->settings) = true;
        return TP_OK;
    }
    if (row->type == TP_OPTION_LIST)
        return take_list(options, row, argc, argv);

    if (is_letter(row)) {
        *(const char **)field(row, options->settings) = optarg;
        return TP_OK;
    }
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(text + 2, "="), text + 2);
    return read_value(row, name, optarg, options->settings);
}

/* getopt gives back one argument or option after the other. */
static enum tp_status take_all(struct tp_options *options, const struct option *rows, int argc,
                               char **argv)
{
    char letters[3 + 2 * MAX_LETTERS];

    list_letters(options->rows, options->n_rows, letters);
    opterr = 0;
    optind = 0; /* start again, also inside getopt */
    for (;;) {
        int at = optind > 0 ? optind : 1;
        int code = getopt_long(argc, argv, letters, rows, NULL);
        if (code == -1)
            break;
        if (code == '?' || code == ':')
            return complain(options, argv[at]);
        if (code == 1)
            options->positional.at[options->positional.count++] = optarg;
        else if (code < FIRST_ROW)
            TP_TRY(take_option(options, number_of_letter(options, code), at, argc, argv));
        else
            TP_TRY(take_option(options, code - FIRST_ROW, at, argc, argv));
    }
    while (optind < argc) /* what follows "--" */
        options->positional.at[options->positional.count++] = argv[optind++];
    return TP_OK;
}

static enum tp_status set_initial(const struct tp_option *rows, int n_rows, void *settings)
{
    for (int i = 0; i < n_rows; i++)
        if (rows[i].initial)
            TP_TRY(read_value(&rows[i], rows[i].name, rows[i].initial, settings));
    return TP_OK;
}

static enum tp_status check_required(const struct tp_options *options)
{
    for (int i = 0; i < options->n_rows; i++)
        if (options->rows[i].required && !options->given[i])
            return tp_fail(TP_ERR_USAGE, "--%s is missing, expected --%s %s", options->rows[i].name,
                           options->rows[i].name, options->rows[i].argument);
    return TP_OK;
}

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0)
            return true;
    return false;
}

enum tp_status tp_options_parse(struct tp_options *options, const struct tp_option *rows,
                                int n_rows, void *settings, int argc, char **argv)
{
    struct tp_options parsed = {.rows = rows, .n_rows = n_rows, .settings = settings};
    enum tp_status status;
    struct option *known = getopt_rows(rows, n_rows);

    parsed.given = calloc((size_t)n_rows + 1, sizeof *parsed.given);
    parsed.positional.at = calloc((size_t)argc + 1, sizeof *parsed.positional.at);
    if (!known || !parsed.given || !parsed.positional.at) {
        status = tp_fail(TP_ERR_MEMORY, "no memory for the command line");
        goto done;
    }
    parsed.help = asks_for_help(argc, argv);
    status = set_initial(rows, n_rows, settings);
    if (status == TP_OK && !parsed.help)
        status = take_all(&parsed, known, argc, argv);
    if (status == TP_OK && !parsed.help)
        status = check_required(&parsed);
done:
    free(known);
    if (status == TP_OK)
        *options = parsed;
    else
        tp_options_fini(&parsed);
    return status;
}

enum tp_status tp_options_refuse_arguments(const struct tp_options *options)
{
    if (options->positional.count == 0)
        return TP_OK;
    return tp_fail(TP_ERR_USAGE, "%s: expected options only, see --help",
                   options->positional.at[0]);
}

void tp_options_fini(struct tp_options *options)
{
    for (int i = 0; i < options->n_rows; i++) {
        if (options->rows[i].type != TP_OPTION_LIST)
            continue;
        struct tp_option_list *list = field(&options->rows[i], options->settings);
        free(list->at);
        *list = (struct tp_option_list){0};
    }
    free(options->given);
    free(options->positional.at);
    *options = (struct tp_options){0};
}

bool tp_options_given(const struct tp_options *options, const char *name)
{
    for (int i = 0; i < options->n_rows; i++)
        if (strcmp(options->rows[i].name, name) == 0)
            return options->given[i];
    TP_ASSERT(!"the name of an option");
    return false;
}

/* ---- Help ---- */

/* "--name [--alias] ARGUMENT"; the length that it has, or would have. */
static int usage(const struct tp_option *row, char *out, size_t size)
{
    const char *argument = row->argument ? row->argument : "";

    return snprintf(out, size, "%s%s%s%s%s%s%s", is_letter(row) ? "-" : "--", row->name,
                    row->alias ? ", --" : "", row->alias ? row->alias : "", *argument ? " " : "",
                    argument, row->type == TP_OPTION_LIST ? "..." : "");
}

void tp_options_help(const struct tp_option *rows, int n_rows, FILE *out)
{
    static const struct tp_option help = {.name = "help", .help = "print this and exit"};
    char text[256];
    int width = 0;

    for (int i = 0; i < n_rows; i++) {
        int length = usage(&rows[i], text, sizeof text);
        width = length > width ? length : width;
    }
    for (int i = 0; i <= n_rows; i++) {
        const struct tp_option *row = i < n_rows ? &rows[i] : &help;
        usage(row, text, sizeof text);
        fprintf(out, "  %-*s  %s", width, text, row->help);
        if (row->initial)
            fprintf(out, " (default %s)", row->initial);
        fprintf(out, "%s\n", row->required ? " (required)" : "");
    }
}
