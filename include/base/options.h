/* SPDX-License-Identifier: Apache-2.0 */
/* A command's options as a table: parsed, checked against their ranges, and printed as help from
 * the same rows. On top of getopt_long, but without abbreviations. */
#ifndef TP_BASE_OPTIONS_H
#define TP_BASE_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"

enum tp_option_type {
    TP_OPTION_FLAG,   /* bool */
    TP_OPTION_INT,    /* int */
    TP_OPTION_UINT64, /* uint64_t */
    TP_OPTION_DOUBLE, /* double */
    TP_OPTION_STRING, /* const char *, points into argv */
    TP_OPTION_CHOICE, /* int: index into choices */
    TP_OPTION_LIST    /* struct tp_option_list: values up to the next option */
};

struct tp_option_list {
    int count;
    const char **at; /* points into argv; freed by tp_options_fini() */
};

struct tp_option {
    const char *name;  /* without the dashes; if one letter: written -o FILE, text */
    const char *alias; /* second name, or NULL */
    enum tp_option_type type;
    size_t offset;       /* of the field in the settings struct */
    const char *initial; /* default as text, or NULL: field stays as it is and is "not given" */
    double min, max;     /* range of numbers, inclusive; both 0: none; max INT_MAX, UINT64_MAX or
                            DBL_MAX: open above */
    const char *const *choices; /* NULL-terminated, for TP_OPTION_CHOICE */
    const char *argument;       /* what help calls the value, with its unit: "TOKENS", "SEC" */
    const char *help;           /* one line */
    bool required;
};

/* Which rows were given on the command line. */
struct tp_options {
    const struct tp_option *rows;
    int n_rows;
    void *settings;
    bool *given;
    struct tp_option_list positional;
    bool help; /* --help was there: nothing else was checked */
};

/* Parses argv[1..) into the settings, whose lists are empty at first. A value that begins with "--"
 * has to be written --name=value; "--" ends the options; a list that is given twice goes on. Local.
 * TP_ERR_USAGE names the option, its value and what was expected; TP_ERR_MEMORY. rows, settings and
 * argv must outlive the result. */
enum tp_status tp_options_parse(struct tp_options *options, const struct tp_option *rows,
                                int n_rows, void *settings, int argc, char **argv);
void tp_options_fini(struct tp_options *options);

/* TP_ERR_USAGE names the first argument that is none of an option's, for commands that take options
 * only. Local. */
enum tp_status tp_options_refuse_arguments(const struct tp_options *options);

/* Was the option with this name given? An unknown name is our bug. Local. */
bool tp_options_given(const struct tp_options *options, const char *name);

/* One line per option with argument, default and help. Local. */
void tp_options_help(const struct tp_option *rows, int n_rows, FILE *out);

#endif
