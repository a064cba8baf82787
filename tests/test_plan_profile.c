/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <jansson.h>

#include "expect.h"
#include "plan/profile.h"

#define LAYER(base)                                                                                \
    "{\"forward\": {\"base\": " base ", \"context\": [0.5, 1e-3, 2e-3, 1e-4]},"                    \
    " \"backward\": {\"base\": [[1, 8, 2], [2, 8, 4]], \"context\": [0, 0, 0, 0]}}"
#define ROWS "[[1, 16, 1.5], [1, 8, 1.0], [2, 8, 2.0], [1, 32, 3.5]]"
#define HEADER                                                                                     \
    "\"format\": \"terapipe-profile\", \"version\": 1, \"model\": {\"n_embd\": 768, "              \
    "\"n_head\": 12, \"n_inner\": 3072, \"vocab_size\": 50257}, \"op\": 1, \"threads\": 2, "       \
    "\"ranks_per_node\": 2"
#define DEVICE "\"device\": {\"name\": \"this\"}"
#define WHOLE "{" HEADER ", " DEVICE ", \"layer\": " LAYER(ROWS) ", \"beside\": [1, {}]"

static char *folder;

static void make_folder(void)
{
    folder = scratch_new();
}

static void drop_folder(void)
{
    scratch_free(folder);
}

static const char *file_of(const char *text)
{
    return scratch_file(folder, "profile.json", text, strlen(text));
}

static struct tp_profile *profile_of(const char *text)
{
    struct tp_profile *profile = NULL;

    ck_assert_int_eq(tp_profile_load(file_of(text), &profile), TP_OK);
    return profile;
}

static double forward(const struct tp_cost *cost, int b, int s, int c)
{
    return cost->layer(cost->self, 0, TP_FORWARD, b, s, c);
}

START_TEST(base_is_linear_between_and_beyond)
{
    struct tp_profile *profile = profile_of(WHOLE "}");
    struct tp_cost cost;

    tp_profile_cost(profile, &cost);
    const struct {
        int b, s;
        double seconds;
    } cases[] = {{1, 1, 1},    {1, 8, 1},    {1, 12, 1.25},    {1, 16, 1.5}, {1, 24, 2.5},
                 {1, 32, 3.5}, {1, 48, 5.5}, {1, 1024, 127.5}, {2, 1, 2},    {2, 512, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ck_assert_double_eq_tol(forward(&cost, cases[i].b, cases[i].s, 0), cases[i].seconds, 1e-12);
    ck_assert(cost.has_group(cost.self, 0, 1));
    ck_assert(cost.has_group(cost.self, 0, 2));
    ck_assert(!cost.has_group(cost.self, 0, 3));
    tp_profile_free(profile);
}
END_TEST

START_TEST(context_is_added_after_tokens)
{
    struct tp_profile *profile = profile_of(WHOLE "}");
    struct tp_cost cost;

    tp_profile_cost(profile, &cost);
    const double more = 0.5 + 1e-3 * 2 * 8 + 2e-3 * 2 * 24 + 1e-4 * 2 * 8 * 24;
    ck_assert_double_eq_tol(forward(&cost, 2, 8, 24), 2 + more, 1e-12);
    ck_assert_double_eq_tol(cost.layer(cost.self, 0, TP_BACKWARD, 2, 8, 24), 4, 1e-12);
    tp_profile_free(profile);
}
END_TEST

START_TEST(what_is_absent_costs_nothing)
{
    struct tp_profile *profile = profile_of(WHOLE "}");
    struct tp_cost cost;

    tp_profile_cost(profile, &cost);
    for (int direction = 0; direction < 2; direction++) {
        ck_assert_double_eq(cost.embed(cost.self, 0, (enum tp_direction)direction, 1, 8), 0);
        ck_assert_double_eq(cost.head(cost.self, 0, (enum tp_direction)direction, 1, 8), 0);
    }
    ck_assert_double_eq(cost.link(cost.self, 0, 1 << 20), 0);
    ck_assert_double_eq(cost.allreduce(cost.self, 2, 1 << 20), 0);
    ck_assert_double_eq(cost.update_seconds_per_parameter, 0);
    ck_assert_int_eq(cost.n_devices, 1);
    ck_assert_str_eq(cost.devices[0].name, "this");
    ck_assert_uint_eq(cost.devices[0].memory, 0);
    ck_assert_double_eq(cost.devices[0].peak_flops, 0);
    ck_assert_uint_eq(cost.devices[0].footprint.align, 4096);
    ck_assert_int_eq(cost.devices[0].footprint.element_bytes, 4);
    ck_assert_int_eq(tp_cost_device_of(&cost, 5), 0);
    tp_profile_free(profile);
}
END_TEST

/* Two devices with everything there is. */
#define FULL                                                                                       \
    "{" HEADER ", \"devices\": [{\"device\": {\"name\": \"a\", \"memory\": 4902773760, "           \
    "\"peak_flops\": 2.6e11, \"footprint\": {\"align\": 64, \"unified\": true, "                   \
    "\"element_bytes\": 2}}, \"layer\": " LAYER(                                                   \
        ROWS) ", \"embed\": {\"forward\": [[1, 8, 0.1]], "                                         \
              "\"backward\": [[1, 8, 0.2]]}, \"head\": {\"forward\": [[1, 8, 0.3], [2, 8, 0.6]], " \
              "\"backward\": [[1, 8, 0.4], [2, 8, 0.7]]}}, {\"device\": {\"name\": \"b\"}, "       \
              "\"layer\": " LAYER(                                                                 \
                  "[[1, 8, 9]]") "}], \"ranks\": [0, 1, 0], \"link\": [[1000, 0.3], [0, 0.1]], "   \
                                 "\"links\": [[[0, 5]], [[0, 0.1], [1000, 0.3]]], \"allreduce\": " \
                                 "{\"2\": [[0, 1], [10, "                                          \
                                 "2]], \"4\": [[0, 3]]}, "                                         \
                                 "\"update_seconds_per_parameter\": 1e-9}"

static void expect_full(const struct tp_profile *loaded)
{
    struct tp_profile *profile = (struct tp_profile *)loaded;
    struct tp_cost cost;

    tp_profile_cost(profile, &cost);
    ck_assert_int_eq(cost.n_devices, 2);
    ck_assert_uint_eq(cost.devices[0].memory, 4902773760u);
    ck_assert_double_eq(cost.devices[0].peak_flops, 2.6e11);
    ck_assert_uint_eq(cost.devices[0].footprint.align, 64);
    ck_assert_int_eq(cost.devices[0].footprint.element_bytes, 2);
    ck_assert_str_eq(cost.devices[1].name, "b");
    ck_assert_double_eq(cost.embed(cost.self, 0, TP_BACKWARD, 1, 8), 0.2);
    ck_assert_double_eq(cost.head(cost.self, 0, TP_FORWARD, 2, 8), 0.6);
    ck_assert_double_eq(cost.layer(cost.self, 1, TP_FORWARD, 1, 99, 0), 9);
    ck_assert(cost.has_group(cost.self, 0, 1));
    ck_assert_msg(!cost.has_group(cost.self, 0, 2), "embed has no row of 2 sequences");
    ck_assert_msg(!cost.has_group(cost.self, 1, 2), "base has no forward row of 2 sequences");
    const int devices[] = {0, 1, 0, 0};
    for (int rank = 0; rank < 4; rank++)
        ck_assert_int_eq(tp_cost_device_of(&cost, rank), devices[rank]);
    ck_assert_double_eq(cost.link(cost.self, 0, 77), 5);
    ck_assert_double_eq_tol(cost.link(cost.self, 1, 500), 0.2, 1e-12);
    ck_assert_double_eq_tol(cost.link(cost.self, 1, 2000), 0.5, 1e-12);
    ck_assert_double_eq_tol(cost.allreduce(cost.self, 2, 5), 1.5, 1e-12);
    ck_assert_double_eq(cost.allreduce(cost.self, 4, 5), 3);
    ck_assert_double_eq(cost.allreduce(cost.self, 3, 5), 0);
    ck_assert_double_eq(cost.update_seconds_per_parameter, 1e-9);
    ck_assert_int_eq(cost.n_links, 2);
    ck_assert(tp_cost_fits(&cost, 3, 1));
    ck_assert(!tp_cost_fits(&cost, 3, 2) && !tp_cost_fits(&cost, 2, 1) &&
              !tp_cost_fits(&cost, 4, 1));
}

#define DELAYED WHOLE ", \"gradient\": [[1, 8, 0.25], [1, 16, 0.5], [2, 8, 0.5]]}"

START_TEST(gradients_may_have_times_of_their_own)
{
    struct tp_profile *plain = profile_of(WHOLE "}"), *delayed = profile_of(DELAYED);
    struct tp_cost cost;

    tp_profile_cost(plain, &cost);
    ck_assert(cost.gradient == NULL);
    ck_assert_int_eq(tp_cost_check_delay(&cost, false), TP_OK);
    expect_fail(TP_ERR_INPUT, "profile.json: gradient: ", tp_cost_check_delay(&cost, true));
    tp_profile_cost(delayed, &cost);
    ck_assert_double_eq(cost.gradient(cost.self, 0, 1, 16), 0.5);
    ck_assert_double_eq(cost.gradient(cost.self, 0, 2, 8), 0.5);
    ck_assert_int_eq(tp_cost_check_delay(&cost, true), TP_OK);
    expect_fail(TP_ERR_INPUT, "profile.json: gradient: ", tp_cost_check_delay(&cost, false));
    tp_profile_free(plain);
    tp_profile_free(delayed);
}
END_TEST

START_TEST(all_that_a_profile_may_have)
{
    struct tp_profile *profile = profile_of(FULL);

    expect_full(profile);
    tp_profile_free(profile);
}
END_TEST

/* The file as jansson reads it. */
static json_t *json_of(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);

    ck_assert_msg(json != NULL, "%s", error.text);
    return json;
}

START_TEST(saving_and_loading_again_changes_nothing)
{
    const char *const texts[] = {WHOLE "}", FULL, DELAYED};

    for (size_t i = 0; i < 3; i++) {
        struct tp_profile *profile = profile_of(texts[i]), *again = NULL;
        const char *first = scratch_path(folder, "first.json");
        ck_assert_int_eq(tp_profile_save(profile, first), TP_OK);
        ck_assert_int_eq(tp_profile_load(first, &again), TP_OK);
        if (i == 1)
            expect_full(again);
        const char *second = scratch_path(folder, "second.json");
        ck_assert_int_eq(tp_profile_save(again, second), TP_OK);
        json_t *a = json_of(first), *b = json_of(second);
        ck_assert(json_equal(a, b));
        ck_assert((json_object_get(a, "gradient") != NULL) == (i == 2));
        json_decref(a);
        json_decref(b);
        tp_profile_free(profile);
        tp_profile_free(again);
    }
}
END_TEST

START_TEST(a_profiler_fills_it_row_by_row)
{
    struct tp_profile *profile;
    struct tp_cost cost;

    ck_assert_int_eq(tp_profile_new(1, &profile), TP_OK);
    struct tp_table *base = &profile->devices[0].layer[TP_FORWARD].base;
    for (int i = 0; i < 50; i++) {
        int s = 1 + i * 37 % 50;
        ck_assert_int_eq(tp_table_add(base, "base", 1 + i % 3, s, 0.5 * s), TP_OK);
    }
    tp_profile_cost(profile, &cost);
    for (int i = 0; i < 50; i++)
        ck_assert_double_eq_tol(forward(&cost, 1 + i % 3, 1 + i * 37 % 50, 0),
                                0.5 * (1 + i * 37 % 50), 1e-12);
    expect_fail(TP_ERR_INPUT, "base: 1 sequences: the row of 1 is given twice",
                tp_table_add(base, "base", 1, 1, 1));
    tp_profile_free(profile);
}
END_TEST

START_TEST(another_model_is_refused_by_key)
{
    struct tp_profile *profile = profile_of(WHOLE "}");
    struct tp_model model;

    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    ck_assert_int_eq(tp_profile_check(profile, "p.json", &model, 1), TP_OK);
    expect_fail(TP_ERR_INPUT, "p.json: op is 1, expected 2",
                tp_profile_check(profile, "p.json", &model, 2));
    model.n_inner = 1000;
    expect_fail(TP_ERR_INPUT, "p.json: model.n_inner is 3072, expected 1000",
                tp_profile_check(profile, "p.json", &model, 1));
    tp_profile_free(profile);
}
END_TEST

START_TEST(one_of_several_is_found_by_its_degrees)
{
    const char *paths[] = {scratch_file(folder, "full.json", FULL, strlen(FULL)), "two.json"};
    const struct tp_option_list list = {.count = 2, .at = paths};
    struct tp_profile *profile = profile_of(WHOLE "}");
    struct tp_profiles profiles = {.count = 0};
    struct tp_model model;
    int index = 7;

    profile->op = 2;
    paths[1] = scratch_path(folder, "two.json");
    ck_assert_int_eq(tp_profile_save(profile, paths[1]), TP_OK);
    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    ck_assert_int_eq(tp_profiles_load(&list, &model, &profiles), TP_OK);
    ck_assert_int_eq(tp_profiles_find(&profiles, 9, 2, &index), TP_OK);
    ck_assert_int_eq(index, 1);
    ck_assert_int_eq(tp_profiles_find(&profiles, 3, 1, &index), TP_OK);
    ck_assert_int_eq(index, 0);
    expect_fail(TP_ERR_INPUT, "full.json: ranks lists 3, expected 2",
                tp_profiles_find(&profiles, 2, 1, &index));
    expect_fail(TP_ERR_INPUT, "two.json: op is 2, expected 4 as in the run",
                tp_profiles_find(&profiles, 3, 4, &index));
    expect_fail(TP_ERR_INPUT, "full.json: op is 1, ", tp_profiles_find(&profiles, 3, 4, &index));
    tp_profiles_fini(&profiles);
    model.n_head = 16;
    expect_fail(TP_ERR_INPUT, "full.json: model.n_head is 12",
                tp_profiles_load(&list, &model, &profiles));
    ck_assert_int_eq(profiles.count, 0);
    tp_profile_free(profile);
}
END_TEST

START_TEST(errors_name_the_file_and_the_key)
{
    struct tp_profile *profile = profile_of(FULL);
    char place[TP_COST_PLACE];
    struct tp_cost cost;

    profile->devices[1].layer[TP_BACKWARD].context[0] = -100;
    tp_profile_cost(profile, &cost);
    ck_assert_ptr_nonnull(strstr(tp_cost_layer_place(&cost, 1, TP_BACKWARD, 1, 8, 8, place),
                                 "profile.json: devices[1].layer.backward.context: "));
    ck_assert_ptr_nonnull(strstr(tp_cost_layer_place(&cost, 0, TP_FORWARD, 1, 8, 0, place),
                                 "profile.json: devices[0].layer.forward.base: "));
    ck_assert_ptr_nonnull(strstr(tp_cost_place(&cost, -1, "link", place), "profile.json: link: "));
    cost.file = NULL;
    ck_assert_str_eq(tp_cost_place(&cost, -1, "link", place), "");
    tp_profile_free(profile);
}
END_TEST

START_TEST(bad_files_are_refused_by_name)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "profile.json: line 1"},
        {"not json", "profile.json: line 1"},
        {"[]", "is not a JSON object"},
        {"{}", "format is missing"},
        {"{\"format\": 3}", "format is not a string"},
        {"{\"format\": \"terapipe-plan\", \"version\": 1}",
         "format is \"terapipe-plan\", expected"},
        {"{\"format\": \"terapipe-profile\"}", "version is missing"},
        {"{\"format\": \"terapipe-profile\", \"version\": 2}", "version is 2, expected 1"},
        {"{\"format\": \"terapipe-profile\", \"version\": 1}", "model is missing"},
        {"{" HEADER "}", "device is missing"},
        {"{" HEADER ", \"device\": {}}", "device.name is missing"},
        {"{" HEADER ", " DEVICE "}", "layer is missing"},
        {"{" HEADER ", " DEVICE ", \"layer\": {}}", "layer.forward is missing"},
        {"{" HEADER ", " DEVICE ", \"layer\": {\"forward\": {}}}", "layer.forward.base is missing"},
        {"{" HEADER ", " DEVICE ", \"layer\": {\"forward\": {\"base\": [[1, 8, 1]]}}}",
         "layer.forward.context is missing"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[]") "}",
         "layer.forward.base is not an array"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 8]]") "}",
         "layer.forward.base[0] has 2 numbers"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 8, -0.1]]") "}",
         "layer.forward.base[0][2] is -0.1"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 8, 1e999]]") "}",
         "profile.json: line 1"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 8, NaN]]") "}", "profile.json: line 1"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 8, \"1\"]]") "}",
         "layer.forward.base[0][2] is not a number"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[0, 8, 1]]") "}",
         "layer.forward.base[0][0] is 0, expected 1"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 99999999999, 1]]") "}",
         "layer.forward.base[0][1] is 99999999999"},
        {"{" HEADER ", " DEVICE ", \"layer\": " LAYER("[[1, 8, 1], [1, 9, 1], [1, 8, 1]]") "}",
         "layer.forward.base: 1 sequences: the row of 8 is given twice"},
        {WHOLE ", \"link\": [[0, 1], [0, 2]]}", "link: the row of 0 is given twice"},
        {WHOLE ", \"link\": [[-1, 1]]}", "link[0][0] is -1"},
        {WHOLE ", \"links\": [[[0, 1]], []]}", "links[1] is not an array"},
        {WHOLE ", \"allreduce\": {\"x\": [[0, 1]]}}", "allreduce.x is not a number of ranks"},
        {WHOLE ", \"embed\": {\"forward\": [[1, 8, 1]]}}", "embed.backward is missing"},
        {WHOLE ", \"head\": 1}", "head is not an object"},
        {WHOLE ", \"update_seconds_per_parameter\": -1}", "update_seconds_per_parameter is -1"},
        {WHOLE ", \"ranks\": [0, 1]}", "ranks[1] is 1, expected 0"},
        {WHOLE ", \"gradient\": [[1, 8]]}", "gradient[0] has 2 numbers"},
        {"{" HEADER ", \"devices\": [{" DEVICE
         ", \"layer\": " LAYER(ROWS) "}, {" DEVICE ", \"layer\": " LAYER(
             ROWS) ", \"gradient\": [[1, 8, 1]]}], \"ranks\": [0, 1]}",
         "devices[1].gradient is there"},
        {"{" HEADER ", \"devices\": []}", "devices is not an array"},
        {"{" HEADER ", \"devices\": [{" DEVICE ", \"layer\": " LAYER(ROWS) "}, {}]}",
         "devices[1].device is missing"},
        {"{" HEADER ", \"devices\": [{" DEVICE
         ", \"layer\": " LAYER(ROWS) "}, {" DEVICE ", \"layer\": " LAYER(ROWS) "}]}",
         "ranks is missing"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_profile *profile = NULL;
        const char *path = file_of(cases[i].text);
        expect_fail(TP_ERR_INPUT, cases[i].part, tp_profile_load(path, &profile));
        ck_assert_ptr_null(profile);
    }
    struct tp_profile *profile = NULL;
    expect_fail(TP_ERR_INPUT, "/nonexistent.json", tp_profile_load("/nonexistent.json", &profile));
}
END_TEST

START_TEST(deep_and_large_files_are_refused)
{
    const size_t deep = 1 << 20, large = (16 << 20) + 1;
    char *text = malloc(large);
    struct tp_profile *profile = NULL;

    memset(text, '[', large);
    const char *path = scratch_file(folder, "profile.json", text, deep);
    expect_fail(TP_ERR_INPUT, "profile.json: line 1", tp_profile_load(path, &profile));
    path = scratch_file(folder, "profile.json", text, large);
    expect_fail(TP_ERR_INPUT, "bytes, expected at most", tp_profile_load(path, &profile));
    free(text);
}
END_TEST

START_TEST(long_tables_are_refused)
{
    enum { ROWS_MOST = 1 << 14, ROW = 24 };
    char *text = malloc((ROWS_MOST + 1) * ROW + 4096), *at = text;
    struct tp_profile *profile = NULL;

    at += sprintf(at, WHOLE ", \"link\": [[0, 0]");
    for (int i = ROWS_MOST; i > 0; i--)
        at += sprintf(at, ", [%d, 1]", i);
    sprintf(at, "]}");
    const char *path = file_of(text);
    expect_fail(TP_ERR_INPUT, "link has 16385 rows, expected at most 16384",
                tp_profile_load(path, &profile));
    free(text);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("profile");

    tcase_add_checked_fixture(cases, make_folder, drop_folder);
    tcase_add_test(cases, base_is_linear_between_and_beyond);
    tcase_add_test(cases, context_is_added_after_tokens);
    tcase_add_test(cases, what_is_absent_costs_nothing);
    tcase_add_test(cases, gradients_may_have_times_of_their_own);
    tcase_add_test(cases, all_that_a_profile_may_have);
    tcase_add_test(cases, saving_and_loading_again_changes_nothing);
    tcase_add_test(cases, a_profiler_fills_it_row_by_row);
    tcase_add_test(cases, another_model_is_refused_by_key);
    tcase_add_test(cases, one_of_several_is_found_by_its_degrees);
    tcase_add_test(cases, errors_name_the_file_and_the_key);
    tcase_add_test(cases, bad_files_are_refused_by_name);
    tcase_add_test(cases, deep_and_large_files_are_refused);
    tcase_add_test(cases, long_tables_are_refused);
    return expect_run(cases);
}
