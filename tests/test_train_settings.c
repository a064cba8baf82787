/* SPDX-License-Identifier: Apache-2.0 */
/* Settings, and the commands' options that fill them. */
#include "config.h"

#include <jansson.h>

#include "cli/command.h"
#include "device/device.h"
#include "expect.h"
#include "plan/search.h"
#include "train/settings.h"

static const struct tp_settings sound = {.model = "tiny", .lr = 1, .train_iters = 1};

START_TEST(memory_has_units)
{
    const struct {
        const char *text;
        size_t bytes;
    } good[] = {
        {"1", 1},        {"4096", 4096},          {"2K", 2048},
        {"3M", 3 << 20}, {"1g", (size_t)1 << 30}, {"17179869183G", SIZE_MAX - (1 << 30) + 1}};
    static const char *const bad[] = {"",
                                      "0",
                                      "-1",
                                      "1.5G",
                                      "G",
                                      "1KB",
                                      "1 G",
                                      "1T",
                                      " 1",
                                      "+1",
                                      "1e9",
                                      "18446744073709551616",
                                      "17179869184G"};
    struct tp_settings settings = sound;
    size_t bytes = 7;

    ck_assert_int_eq(tp_settings_memory(&settings, &bytes), TP_OK);
    ck_assert_uint_eq(bytes, 0);
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        settings.memory = good[i].text;
        ck_assert_int_eq(tp_settings_memory(&settings, &bytes), TP_OK);
        ck_assert_uint_eq(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        settings.memory = bad[i];
        expect_fail(TP_ERR_USAGE, "--memory", tp_settings_check(&settings));
    }
}
END_TEST

START_TEST(options_that_need_others)
{
    struct tp_settings settings = sound;

    ck_assert_int_eq(tp_settings_check(&settings), TP_OK);
    settings.save_interval = 5;
    expect_fail(TP_ERR_USAGE, "--save-interval: expected --save", tp_settings_check(&settings));
    settings.save = "run";
    ck_assert_int_eq(tp_settings_check(&settings), TP_OK);
    settings.eval_interval = 5;
    expect_fail(TP_ERR_USAGE, "--eval-interval: expected --val-data-path",
                tp_settings_check(&settings));
    settings = sound;
    settings.keep = 1;
    expect_fail(TP_ERR_USAGE, "--keep: expected --save", tp_settings_check(&settings));
    settings = sound;
    settings.min_lr = 2;
    expect_fail(TP_ERR_USAGE, "--min-lr 2: expected at most --lr 1", tp_settings_check(&settings));
}
END_TEST

START_TEST(names_are_not_empty)
{
    const char *files[] = {"text", ""};
    const struct {
        struct tp_settings settings;
        const char *says;
    } cases[] = {
        {{.model = ""}, "--model: the value is empty"},
        {{.model = "tiny", .load = ""}, "--load: the value is empty"},
        {{.model = "tiny", .save = ""}, "--save: the value is empty"},
        {{.model = "tiny", .metrics = ""}, "--metrics: the value is empty"},
        {{.model = "tiny", .save_gradients = ""}, "--save-gradients: the value is empty"},
        {{.model = "tiny", .data = {.at = files, .count = 2}}, "--data-path: a value is empty"},
        {{.model = "tiny", .plan = ""}, "--plan: the value is empty, expected a file"},
        {{.model = "tiny", .hardware = ""}, "--hardware: the value is empty, expected a name"},
        {{.model = "tiny", .trace = ""}, "--trace: the value is empty, expected a file"},
        {{.model = "tiny", .output = ""}, "-o: the value is empty, expected a file"},
        {{.model = "tiny", .profiles = {.at = files, .count = 2}}, "--profile: a value is empty"},
        {{.model = "tiny", .validation = {.at = files, .count = 2}}, "--val-data-path: a value"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_fail(TP_ERR_USAGE, cases[i].says, tp_settings_check_names(&cases[i].settings));
}
END_TEST

START_TEST(outputs_are_not_inputs)
{
    const char *data[] = {"outputs_are_not_inputs.tmp"};
    struct tp_settings settings = sound;
    FILE *file = fopen(data[0], "w");

    ck_assert_ptr_nonnull(file);
    fclose(file);
    settings.data = (struct tp_option_list){.count = 1, .at = data};
    settings.metrics = "another.tmp";
    ck_assert_int_eq(tp_settings_check(&settings), TP_OK);
    settings.metrics = "./outputs_are_not_inputs.tmp";
    expect_fail(TP_ERR_USAGE, "--metrics", tp_settings_check(&settings));
    settings.metrics = NULL;
    settings.save_gradients = data[0];
    expect_fail(TP_ERR_USAGE, "--save-gradients", tp_settings_check(&settings));
    remove(data[0]);
}
END_TEST

START_TEST(a_model_comes_from_one_place)
{
    struct tp_settings settings = sound;

    settings.n_layer = 3;
    expect_fail(TP_ERR_USAGE, "--num-layers 3", tp_settings_check(&settings));
    settings.model = NULL;
    expect_fail(TP_ERR_USAGE, "--hidden-size: expected it too", tp_settings_check(&settings));
    settings.n_embd = 12;
    expect_fail(TP_ERR_USAGE, "--num-attention-heads", tp_settings_check(&settings));
    settings.n_head = 2;
    ck_assert_int_eq(tp_settings_check(&settings), TP_OK);
    settings.n_layer = settings.n_embd = settings.n_head = 0;
    expect_fail(TP_ERR_USAGE, "no model", tp_settings_check(&settings));
    settings.load = "somewhere";
    ck_assert_int_eq(tp_settings_check(&settings), TP_OK);
}
END_TEST

/* ---- Options ---- */

static const struct tp_command *const commands[] = {&tp_command_train, &tp_command_eval,
                                                    &tp_command_generate};

/* Parses a command line into settings. */
static enum tp_status parse(const struct tp_command *command, int argc, char **argv,
                            struct tp_options *options, struct tp_option *rows,
                            struct tp_settings *settings)
{
    int count = tp_command_rows(command, rows);

    ck_assert_int_gt(count, 0);
    *settings = (struct tp_settings){.tokenizer = TP_TOKENIZER_NONE};
    return tp_options_parse(options, rows, count, settings, argc, argv);
}

START_TEST(every_listed_option_is_in_the_table)
{
    struct tp_option rows[TP_COMMAND_OPTIONS];

    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        int count = tp_command_rows(commands[i], rows), required = 0;
        ck_assert_int_gt(count, 0);
        for (int k = 0; k < count; k++) {
            ck_assert_ptr_nonnull(rows[k].help);
            ck_assert((rows[k].type == TP_OPTION_FLAG) == (rows[k].argument == NULL));
            required += rows[k].required;
            for (int j = 0; j < k; j++)
                ck_assert_str_ne(rows[j].name, rows[k].name);
        }
        for (int k = 0; commands[i]->required[k]; k++)
            required--;
        ck_assert_int_eq(required, 0);
    }
}
END_TEST

/* The defaults that the documentation promises. */
START_TEST(defaults)
{
    char *argv[] = {"train", "--data-path", "a", "b", "--train-iters", "3", NULL};
    struct tp_option rows[TP_COMMAND_OPTIONS];
    struct tp_options options;
    struct tp_settings s;

    ck_assert_int_eq(parse(&tp_command_train, 6, argv, &options, rows, &s), TP_OK);
    ck_assert_int_eq(s.data.count, 2);
    ck_assert_int_eq(s.train_iters, 3);
    ck_assert_int_eq(s.batch, 0);
    ck_assert_int_eq(s.seq_len | s.pipe | s.group_size | s.threads | s.decay_iters, 0);
    ck_assert_int_eq(s.schedule, TP_SEARCH_AUTO);
    ck_assert_int_eq(s.gemm, TP_GEMM_AUTO);
    ck_assert_int_eq(s.tokenizer, TP_TOKENIZER_NONE);
    ck_assert_double_eq(s.lr, 6e-4);
    ck_assert_double_eq(s.min_lr, 0);
    ck_assert_int_eq(s.warmup_iters, 0);
    ck_assert_int_eq(s.decay_style, TP_DECAY_COSINE);
    ck_assert_double_eq(s.weight_decay, 0.1);
    ck_assert_double_eq(s.clip_grad, 1);
    ck_assert_double_eq(s.beta1, 0.9);
    ck_assert_double_eq(s.beta2, 0.95);
    ck_assert_double_eq(s.eps, 1e-8);
    ck_assert_uint_eq(s.seed, 1337);
    ck_assert_int_eq(s.sampler, 1);
    ck_assert_int_eq(s.log_interval, 1);
    ck_assert_int_eq(s.eval_interval | s.eval_iters | s.save_interval | s.keep | s.max_skipped, 0);
    ck_assert_double_eq(s.watchdog, 300);
    ck_assert_ptr_null(s.save);
    tp_options_fini(&options);
}
END_TEST

START_TEST(second_names_and_required_options)
{
    char *argv[] = {"train", "--data-path",     "a", "--train-iters", "3", "--pipe",
                    "2",     "--block_size=16", NULL};
    char *eval[] = {"eval", "--data-path", "a", NULL};
    char *unknown[] = {"generate", "--load", "x", "--train-iters", "3", NULL};
    struct tp_option rows[TP_COMMAND_OPTIONS];
    struct tp_options options;
    struct tp_settings s;

    ck_assert_int_eq(parse(&tp_command_train, 8, argv, &options, rows, &s), TP_OK);
    ck_assert_int_eq(s.pipe, 2);
    ck_assert_int_eq(s.seq_len, 16);
    char *record = tp_command_record(&tp_command_train, rows, options.n_rows, &s);
    json_t *json = json_loads(record, 0, NULL);
    ck_assert_int_eq(json_integer_value(json_object_get(json, "seq-length")), 16);
    ck_assert_str_eq(json_string_value(json_object_get(json, "schedule")), "auto");
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(json, "data-path"), 0)), "a");
    ck_assert(json_is_null(json_object_get(json, "tokenizer")));
    json_decref(json);
    free(record);
    tp_options_fini(&options);
    expect_fail(TP_ERR_USAGE, "--load", parse(&tp_command_eval, 3, eval, &options, rows, &s));
    expect_fail(TP_ERR_USAGE, "--train-iters: unknown option",
                parse(&tp_command_generate, 5, unknown, &options, rows, &s));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("settings");

    tcase_add_test(cases, memory_has_units);
    tcase_add_test(cases, options_that_need_others);
    tcase_add_test(cases, names_are_not_empty);
    tcase_add_test(cases, outputs_are_not_inputs);
    tcase_add_test(cases, a_model_comes_from_one_place);
    tcase_add_test(cases, every_listed_option_is_in_the_table);
    tcase_add_test(cases, defaults);
    tcase_add_test(cases, second_names_and_required_options);
    return expect_run(cases);
}
