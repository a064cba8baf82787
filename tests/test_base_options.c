/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/options.h"

#include <float.h>
#include <limits.h>
#include <stdint.h>

#include "expect.h"

struct settings {
    int layers, steps, choice;
    uint64_t seed;
    double rate, open;
    const char *path, *out;
    bool check;
    struct tp_option_list files;
};

static const char *const colours[] = {"red", "green", "blue", NULL};

#define AT(member) offsetof(struct settings, member)

static const struct tp_option rows[] = {
    {.name = "layers",
     .alias = "depth",
     .type = TP_OPTION_INT,
     .offset = AT(layers),
     .initial = "4",
     .min = 1,
     .max = 96,
     .argument = "N",
     .help = "how many"},
    {.name = "steps",
     .type = TP_OPTION_INT,
     .offset = AT(steps),
     .min = 0,
     .max = INT_MAX,
     .argument = "N",
     .help = "how long"},
    {.name = "colour",
     .type = TP_OPTION_CHOICE,
     .offset = AT(choice),
     .initial = "green",
     .choices = colours,
     .argument = "NAME",
     .help = "which"},
    {.name = "seed",
     .type = TP_OPTION_UINT64,
     .offset = AT(seed),
     .initial = "1337",
     .argument = "N",
     .help = "of random numbers"},
    {.name = "rate",
     .type = TP_OPTION_DOUBLE,
     .offset = AT(rate),
     .initial = "6e-4",
     .min = 0,
     .max = 1,
     .argument = "X",
     .help = "how fast"},
    {.name = "open",
     .type = TP_OPTION_DOUBLE,
     .offset = AT(open),
     .min = 0,
     .max = DBL_MAX,
     .argument = "SEC",
     .help = "no upper end"},
    {.name = "path",
     .type = TP_OPTION_STRING,
     .offset = AT(path),
     .argument = "FILE",
     .help = "where"},
    {.name = "check", .type = TP_OPTION_FLAG, .offset = AT(check), .help = "look again"},
    {.name = "files",
     .type = TP_OPTION_LIST,
     .offset = AT(files),
     .argument = "FILE",
     .help = "what"},
    {.name = "o", .type = TP_OPTION_STRING, .offset = AT(out), .argument = "FILE", .help = "to"},
};
enum { ROWS = sizeof rows / sizeof *rows };

static struct settings settings;
static struct tp_options options;

/* Parses the words of a line. The words stay in use by the settings. */
static enum tp_status parse(const char *line)
{
    static char text[512];
    static char *argv[64];
    int argc = 1;

    snprintf(text, sizeof text, "%s", line);
    argv[0] = "program";
    for (char *word = strtok(text, " "); word; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    settings = (struct settings){.steps = -7};
    return tp_options_parse(&options, rows, ROWS, &settings, argc, argv);
}

START_TEST(defaults)
{
    ck_assert_int_eq(parse(""), TP_OK);
    ck_assert_int_eq(settings.layers, 4);
    ck_assert_int_eq(settings.steps, -7);
    ck_assert_int_eq(settings.choice, 1);
    ck_assert_uint_eq(settings.seed, 1337);
    ck_assert(settings.rate == 6e-4);
    ck_assert_ptr_null(settings.path);
    ck_assert(!settings.check && !options.help);
    ck_assert_int_eq(settings.files.count, 0);
    ck_assert(!tp_options_given(&options, "layers"));
    tp_options_fini(&options);
}
END_TEST

START_TEST(every_type)
{
    ck_assert_int_eq(parse("--layers 12 --steps=9 --colour blue --seed 18446744073709551615 "
                           "--rate=.5 --open 1e300 --path a=b --check --files x y z one -o out"),
                     TP_OK);
    ck_assert_int_eq(settings.layers, 12);
    ck_assert_int_eq(settings.steps, 9);
    ck_assert_int_eq(settings.choice, 2);
    ck_assert(settings.seed == UINT64_MAX);
    ck_assert(settings.rate == 0.5 && settings.open == 1e300);
    ck_assert_str_eq(settings.path, "a=b");
    ck_assert(settings.check);
    ck_assert_int_eq(settings.files.count, 4);
    ck_assert_str_eq(settings.files.at[3], "one");
    ck_assert_str_eq(settings.out, "out");
    for (int i = 0; i < ROWS; i++)
        ck_assert(tp_options_given(&options, rows[i].name));
    ck_assert_int_eq(options.positional.count, 0);
    ck_assert_int_eq(tp_options_refuse_arguments(&options), TP_OK);
    tp_options_fini(&options);
}
END_TEST

START_TEST(aliases_lists_and_positionals)
{
    ck_assert_int_eq(parse("in --depth 7 --files a b --check more --files=c d -- --layers e"),
                     TP_OK);
    ck_assert_int_eq(settings.layers, 7);
    ck_assert(tp_options_given(&options, "layers") && !tp_options_given(&options, "seed"));
    ck_assert_int_eq(settings.files.count, 4);
    ck_assert_str_eq(settings.files.at[1], "b");
    ck_assert_str_eq(settings.files.at[2], "c");
    ck_assert_int_eq(options.positional.count, 4);
    ck_assert_str_eq(options.positional.at[0], "in");
    ck_assert_str_eq(options.positional.at[1], "more");
    ck_assert_str_eq(options.positional.at[2], "--layers");
    ck_assert_str_eq(options.positional.at[3], "e");
    ck_assert_int_eq(tp_options_refuse_arguments(&options), TP_ERR_USAGE);
    tp_options_fini(&options);
}
END_TEST

START_TEST(the_last_one_counts)
{
    ck_assert_int_eq(parse("--layers 5 --depth=6 --path= --steps -0"), TP_OK);
    ck_assert_int_eq(settings.layers, 6);
    ck_assert_int_eq(settings.steps, 0);
    ck_assert_str_eq(settings.path, "");
    tp_options_fini(&options);
    ck_assert_int_eq(parse("-o one --check -otwo"), TP_OK);
    ck_assert_str_eq(settings.out, "two");
    ck_assert(settings.check);
    tp_options_fini(&options);
}
END_TEST

/* Each of these lines is refused with one line that has the text in it. */
static const struct {
    const char *line, *part;
} refused[] = {
    {"--layers 0", "--layers: '0' is not an integer from 1 to 96"},
    {"--layers 97", "from 1 to 96"},
    {"--layers 5x", "'5x'"},
    {"--layers 5.0", "'5.0'"},
    {"--layers=", "''"},
    {"--layers 0x10", "'0x10'"},
    {"--layers 99999999999999999999", "'99999999999999999999'"},
    {"--depth 1e1", "--depth: '1e1'"},
    {"--steps -1", "an integer, 0 or more"},
    {"--steps 2147483648", "'2147483648'"},
    {"--seed -1", "--seed: '-1' is not an integer"},
    {"--seed 18446744073709551616", "'18446744073709551616'"},
    {"--rate 1.5", "a number from 0 to 1"},
    {"--rate nan", "'nan'"},
    {"--rate 1e", "'1e'"},
    {"--rate 0x1p-2", "'0x1p-2'"},
    {"--open inf", "'inf' is not a number, 0 or more"},
    {"--open 1e999", "'1e999'"},
    {"--open -1", "'-1'"},
    {"--colour purple", "'purple' is not one of red green blue"},
    {"--colour gree", "'gree'"},
    {"--layer 5", "--layer: unknown option"}, /* no abbreviations */
    {"--lay=5", "--lay: unknown option"},
    {"--che", "--che: unknown option"},
    {"--bogus", "--bogus: unknown option"},
    {"--bogus=3", "--bogus: unknown option"},
    {"-x", "-x: unknown option"},
    {"-5", "-5: unknown option"},
    {"--o x", "--o: unknown option"},
    {"-o", "-o: a value is missing, expected FILE"},
    {"-o --check", "-o: a value is missing"},
    {"--files a -o", "-o: a value is missing"},
    {"--layers", "--layers: a value is missing, expected N"},
    {"--files", "--files: a value is missing, expected FILE"},
    {"--path --check", "--path: a value is missing"},
    {"--files --check", "--files: a value is missing"},
    {"--check=yes", "--check: takes no value, got 'yes'"},
    {"--files a --layers 0", "--layers"},
};

START_TEST(refusals)
{
    expect_fail(TP_ERR_USAGE, refused[_i].part, parse(refused[_i].line));
}
END_TEST

START_TEST(a_required_option)
{
    static const struct tp_option row = {.name = "iterations",
                                         .type = TP_OPTION_INT,
                                         .offset = AT(layers),
                                         .argument = "N",
                                         .help = "how many",
                                         .required = true};
    char *argv[] = {"program", "--iterations", "3", NULL};

    expect_fail(TP_ERR_USAGE, "--iterations is missing",
                tp_options_parse(&options, &row, 1, &settings, 1, argv));
    ck_assert_int_eq(tp_options_parse(&options, &row, 1, &settings, 3, argv), TP_OK);
    ck_assert_int_eq(settings.layers, 3);
    tp_options_fini(&options);
    argv[2] = "--help";
    ck_assert_int_eq(tp_options_parse(&options, &row, 1, &settings, 3, argv), TP_OK);
    ck_assert(options.help);
    tp_options_fini(&options);
}
END_TEST

/* More rows than getopt's own codes reach. */
START_TEST(many_rows)
{
    enum { MANY = 100 };
    static char names[MANY][16];
    static struct tp_option many[MANY];
    static int values[MANY];
    char *argv[2 * MANY + 2] = {"program"};

    for (int i = 0; i < MANY; i++) {
        snprintf(names[i], sizeof names[i], "n%d", i);
        many[i] = (struct tp_option){.name = names[i],
                                     .type = TP_OPTION_INT,
                                     .offset = (size_t)i * sizeof(int),
                                     .argument = "N",
                                     .help = ""};
        argv[1 + 2 * i] = malloc(32);
        argv[2 + 2 * i] = names[i] + 1;
        snprintf(argv[1 + 2 * i], 32, "--%s", names[i]);
    }
    ck_assert_int_eq(tp_options_parse(&options, many, MANY, values, 2 * MANY + 1, argv), TP_OK);
    for (int i = 0; i < MANY; i++) {
        ck_assert_int_eq(values[i], i);
        free(argv[1 + 2 * i]);
    }
    tp_options_fini(&options);
}
END_TEST

START_TEST(help_has_one_line_per_option)
{
    char text[4096];
    FILE *out = tmpfile();
    int lines = 0;

    ck_assert_int_eq(parse("--bogus --help --layers 0"), TP_OK);
    ck_assert(options.help);
    tp_options_fini(&options);

    tp_options_help(rows, ROWS, out);
    rewind(out);
    text[fread(text, 1, sizeof text - 1, out)] = '\0';
    fclose(out);
    for (char *at = text; (at = strchr(at, '\n')); at++)
        lines++;
    ck_assert_int_eq(lines, ROWS + 1);
    ck_assert_ptr_nonnull(strstr(text, "  --layers, --depth N  how many (default 4)\n"));
    ck_assert_ptr_nonnull(strstr(text, "  --files FILE...      what\n"));
    ck_assert_ptr_nonnull(strstr(text, "  --check              look again\n"));
    ck_assert_ptr_nonnull(strstr(text, "  --help               "));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("options");

    tcase_add_test(cases, defaults);
    tcase_add_test(cases, every_type);
    tcase_add_test(cases, aliases_lists_and_positionals);
    tcase_add_test(cases, the_last_one_counts);
    tcase_add_loop_test(cases, refusals, 0, sizeof refused / sizeof *refused);
    tcase_add_test(cases, a_required_option);
    tcase_add_test(cases, many_rows);
    tcase_add_test(cases, help_has_one_line_per_option);
    return expect_run(cases);
}
