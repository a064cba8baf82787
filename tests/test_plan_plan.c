/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "expect.h"
#include "plan/plan.h"
#include "plan/simulate.h"

static const struct tp_model model = {.n_layer = 7,
                                      .n_embd = 32,
                                      .n_head = 4,
                                      .n_inner = 128,
                                      .vocab_size = 97,
                                      .n_positions = 64,
                                      .layer_norm_epsilon = 1e-5,
                                      .initializer_range = 0.02};

START_TEST(stages_are_even_and_cover_the_layers)
{
    for (int n_layer = 1; n_layer <= 12; n_layer++)
        for (int n_stages = 1; n_stages <= n_layer; n_stages++) {
            struct tp_stage_layers stages[12];
            tp_stages_even(n_layer, n_stages, stages);
            int next = 0;
            for (int k = 0; k < n_stages; k++) {
                ck_assert_int_eq(stages[k].first_layer, next);
                ck_assert_int_eq(stages[k].n_layer,
                                 n_layer / n_stages + (k < n_layer % n_stages ? 1 : 0));
                next += stages[k].n_layer;
            }
            ck_assert_int_eq(next, n_layer);
        }
}
END_TEST

static struct tp_plan *plan_of(int seq_len, int batch, int pipe, enum tp_schedule_kind schedule,
                               int group_size)
{
    struct tp_plan *plan = NULL;
    ck_assert_int_eq(
        tp_plan_default(&model, seq_len, batch, pipe, schedule, group_size, NULL, &plan), TP_OK);
    return plan;
}

START_TEST(default_groups_and_slices)
{
    for (int batch = 1; batch <= 9; batch++)
        for (int pipe = 1; pipe <= 7; pipe++)
            for (int group_size = 0; group_size <= batch + 1; group_size++) {
                struct tp_plan *plan = plan_of(64, batch, pipe, TP_SCHEDULE_TERAPIPE, group_size);
                int size = group_size > 0 ? group_size : (batch + pipe - 1) / pipe;
                int sum = 0;
                for (int g = 0; g < plan->n_groups; g++) {
                    sum += plan->groups[g].sequences;
                    ck_assert_int_ge(plan->groups[g].sequences, 1);
                    if (g < plan->n_groups - 1)
                        ck_assert_int_eq(plan->groups[g].sequences, size);
                    else
                        ck_assert_int_le(plan->groups[g].sequences, size);
                    ck_assert_int_eq(plan->groups[g].slices.count, 4);
                }
                ck_assert_int_eq(sum, batch);
                ck_assert_int_eq(plan->n_stages, pipe);
                tp_plan_free(plan);
            }
}
END_TEST

START_TEST(default_slice_count)
{
    const struct {
        int seq_len;
        enum tp_schedule_kind schedule;
        int count;
    } cases[] = {
        {1, TP_SCHEDULE_TERAPIPE, 1},    {7, TP_SCHEDULE_TERAPIPE, 1},
        {15, TP_SCHEDULE_TERAPIPE, 1},   {16, TP_SCHEDULE_TERAPIPE, 2},
        {31, TP_SCHEDULE_TERAPIPE, 3},   {32, TP_SCHEDULE_TERAPIPE, 4},
        {1024, TP_SCHEDULE_TERAPIPE, 4}, {1024, TP_SCHEDULE_GPIPE, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_plan *plan = plan_of(cases[i].seq_len, 1, 1, cases[i].schedule, 0);
        ck_assert_int_eq(plan->groups[0].slices.count, cases[i].count);
        tp_plan_free(plan);
    }
}
END_TEST

START_TEST(default_refuses_by_name)
{
    struct tp_plan *plan = NULL;
    struct tp_slices two = {.count = 2, .lengths = (int[]){32, 32}};

    capture_begin();
    enum tp_status status = tp_plan_default(&model, 64, 4, 8, TP_SCHEDULE_TERAPIPE, 0, NULL, &plan);
    const char *line = capture_end();
    ck_assert_int_eq(status, TP_ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "--pipeline-model-parallel-size 8: expected 1 to 7"));

    capture_begin();
    status = tp_plan_default(&model, 64, 4, 2, TP_SCHEDULE_GPIPE, 0, &two, &plan);
    line = capture_end();
    ck_assert_int_eq(status, TP_ERR_USAGE);
    ck_assert_ptr_nonnull(strstr(line, "--slices: 2 slices, but --schedule gpipe has one"));
    ck_assert_ptr_null(plan);
}
END_TEST

START_TEST(shrink_drops_sequences_from_the_end)
{
    struct tp_plan *plan = plan_of(64, 7, 2, TP_SCHEDULE_TERAPIPE, 3); /* groups of 3, 3, 1 */
    for (int batch = 1; batch <= 7; batch++) {
        struct tp_plan *shrunk;
        ck_assert_int_eq(tp_plan_shrink(plan, batch, TP_SCHEDULE_FORWARD, &shrunk), TP_OK);
        ck_assert_int_eq(shrunk->batch, batch);
        ck_assert_int_eq(shrunk->schedule, TP_SCHEDULE_FORWARD);
        ck_assert_int_eq(shrunk->n_groups, (batch + 2) / 3);
        int sum = 0;
        for (int g = 0; g < shrunk->n_groups; g++) {
            sum += shrunk->groups[g].sequences;
            ck_assert_int_le(shrunk->groups[g].sequences, plan->groups[g].sequences);
            ck_assert_int_eq(shrunk->groups[g].slices.count, 4);
            ck_assert_ptr_ne(shrunk->groups[g].slices.lengths, plan->groups[g].slices.lengths);
        }
        ck_assert_int_eq(sum, batch);
        ck_assert_mem_eq(shrunk->stages, plan->stages, 2 * sizeof *plan->stages);
        tp_plan_free(shrunk);
    }
    tp_plan_free(plan);
}
END_TEST

START_TEST(save_writes_what_others_read)
{
    char path[] = "/tmp/tp-plan-XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    struct tp_slices slices = {.count = 3, .lengths = (int[]){1, 40, 23}};
    struct tp_plan *plan;
    ck_assert_int_eq(tp_plan_default(&model, 64, 5, 3, TP_SCHEDULE_TERAPIPE, 2, &slices, &plan),
                     TP_OK);
    ck_assert_int_eq(tp_plan_save(plan, NULL, path), TP_OK);
    tp_plan_free(plan);

    json_error_t error;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    json_t *expected = json_loads(
        "{\"format\": \"terapipe-plan\", \"version\": 1,"
        "\"model\": {\"n_layer\": 7, \"n_embd\": 32, \"n_head\": 4, \"n_inner\": 128,"
        "            \"vocab_size\": 97, \"n_positions\": 64},"
        "\"seq_len\": 64, \"batch\": 5, \"data\": 1, \"pipe\": 3, \"op\": 1,"
        "\"schedule\": \"terapipe\", \"recompute\": false,"
        "\"stages\": [{\"first_layer\": 0, \"n_layer\": 3}, {\"first_layer\": 3, \"n_layer\": 2},"
        "             {\"first_layer\": 5, \"n_layer\": 2}],"
        "\"groups\": [{\"sequences\": 2, \"slices\": [1, 40, 23]},"
        "             {\"sequences\": 2, \"slices\": [1, 40, 23]},"
        "             {\"sequences\": 1, \"slices\": [1, 40, 23]}],"
        "\"flights\": [3]}",
        0, &error);
    ck_assert_msg(expected != NULL, "%s", error.text);
    ck_assert(json_equal(json, expected));
    json_decref(json);
    json_decref(expected);
    unlink(path);
}
END_TEST

/* ---- Loading ---- */

#define MODEL                                                                                      \
    "\"model\": {\"n_layer\": 3, \"n_embd\": 32, \"n_head\": 4, \"n_inner\": 128, "                \
    "\"vocab_size\": 97, \"n_positions\": 64}"
#define HEAD "{\"format\": \"terapipe-plan\", \"version\": 1, " MODEL ", "
#define SIZES(seq_len, batch, pipe, op)                                                            \
    "\"seq_len\": " seq_len ", \"batch\": " batch ", \"data\": 2, \"pipe\": " pipe ", \"op\": " op \
    ", "
#define SCHEDULE(name) "\"schedule\": " name ", "
#define STAGES                                                                                     \
    "\"stages\": [{\"first_layer\": 0, \"n_layer\": 2}, {\"first_layer\": 2, \"n_layer\": 1}], "
#define GROUPS                                                                                     \
    "\"groups\": [{\"sequences\": 2, \"slices\": [20, 28]}, {\"sequences\": 1, \"slices\": "       \
    "[48]}, "                                                                                      \
    "{\"sequences\": 2, \"slices\": [48]}]"
#define SOUND HEAD SIZES("48", "5", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS

/* Loads a plan from a file with that text. */
static enum tp_status load(const char *text, struct tp_plan **plan)
{
    char *folder = scratch_new();
    const char *path = scratch_file(folder, "plan.json", text, strlen(text));
    enum tp_status status = tp_plan_load(path, plan);

    scratch_free(folder);
    return status;
}

START_TEST(load_reads_what_was_said)
{
    struct tp_plan *plan = NULL;

    ck_assert_int_eq(load(SOUND ", \"recompute\": true, \"flights\": [2, 1], \"more\": {}}", &plan),
                     TP_OK);
    ck_assert_int_eq(plan->model.n_layer, 3);
    ck_assert_int_eq(plan->model.vocab_size, 97);
    ck_assert_int_eq(tp_model_check(&plan->model, "plan"), TP_OK);
    ck_assert_int_eq(plan->seq_len, 48);
    ck_assert_int_eq(plan->batch, 5);
    ck_assert_int_eq(plan->data, 2);
    ck_assert_int_eq(plan->pipe, 2);
    ck_assert_int_eq(plan->op, 2);
    ck_assert_int_eq(plan->schedule, TP_SCHEDULE_SEQ1F1B);
    ck_assert(plan->recompute);
    ck_assert_int_eq(plan->n_stages, 2);
    ck_assert_int_eq(plan->stages[1].first_layer, 2);
    ck_assert_int_eq(plan->n_groups, 3);
    ck_assert_int_eq(plan->groups[0].sequences, 2);
    ck_assert_int_eq(plan->groups[0].slices.count, 2);
    ck_assert_int_eq(plan->groups[0].slices.lengths[1], 28);
    ck_assert_int_eq(plan->n_flights, 2);
    ck_assert_int_eq(plan->flights[1], 1);
    tp_plan_free(plan);

    ck_assert_int_eq(load(SOUND ", \"delay_wgrad\": true}", &plan), TP_OK);
    ck_assert(plan->delay_wgrad && !plan->recompute);
    tp_plan_free(plan);

    ck_assert_int_eq(load(SOUND "}", &plan), TP_OK);
    ck_assert(!plan->recompute && !plan->delay_wgrad);
    ck_assert_int_eq(plan->n_flights, 1);
    ck_assert_int_eq(plan->flights[0], 3);
    tp_plan_free(plan);
}
END_TEST

START_TEST(saving_and_loading_changes_nothing)
{
    struct tp_stage_simulation stages[2] = {{.peak_bytes = 123456789012}, {.peak_bytes = 5}};
    const struct tp_simulation predicted = {
        .step_seconds = 1.0 / 3, .bubble = 2.0 / 7, .n_stages = 2, .stages = stages};
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "saved.json");
    struct tp_plan *plan = NULL, *again = NULL;
    json_error_t error;

    ck_assert_int_eq(load(SOUND ", \"recompute\": true, \"flights\": [1, 2]}", &plan), TP_OK);
    ck_assert_int_eq(tp_plan_save(plan, &predicted, path), TP_OK);
    json_t *first = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(json_object_get(first, "delay_wgrad"));
    ck_assert_int_eq(tp_plan_load(path, &again), TP_OK);
    ck_assert_int_eq(tp_plan_save(again, &predicted, path), TP_OK);
    json_t *second = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert(json_equal(first, second));

    const json_t *section = json_object_get(first, "predicted");
    ck_assert_double_eq(json_number_value(json_object_get(section, "step_seconds")), 1.0 / 3);
    ck_assert_double_eq(json_number_value(json_object_get(section, "bubble")), 2.0 / 7);
    const json_t *bytes = json_object_get(section, "stage_peak_bytes");
    ck_assert_uint_eq(json_array_size(bytes), 2);
    ck_assert_int_eq(json_integer_value(json_array_get(bytes, 0)), 123456789012);
    json_decref(first);
    json_decref(second);
    tp_plan_free(plan);
    tp_plan_free(again);
    scratch_free(folder);
}
END_TEST

START_TEST(load_refuses_by_key)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"", "plan.json: line 1"},
        {"[[[[", "plan.json: line 1"},
        {"{\"format\": \"terapipe-profile\", \"version\": 1}", "format is \"terapipe-profile\""},
        {"{\"format\": \"terapipe-plan\", \"version\": 3}", "version is 3"},
        {"{\"format\": \"terapipe-plan\", \"version\": 1}", "model is missing"},
        {HEAD "\"x\": 1}", "seq_len is missing"},
        {HEAD SIZES("65", "5", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "seq_len is 65, expected 1 to 64"},
        {HEAD SIZES("48", "0", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "batch is 0, expected 1"},
        {HEAD SIZES("48", "5", "4", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "pipe is 4, expected 1 to 3"},
        {HEAD SIZES("48", "5", "3", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "stages: 2 of them, expected 3"},
        {HEAD SIZES("48", "5", "2", "3") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "op is 3, expected a divisor of n_head, 4"},
        {HEAD SIZES("48", "5", "2", "2") SCHEDULE("\"fastest\"") STAGES GROUPS "}",
         "schedule is \"fastest\", expected gpipe"},
        {HEAD SIZES("48", "5", "2", "2") SCHEDULE("\"1f1b\"") STAGES GROUPS "}",
         "groups[0].slices has 2 slices, expected 1 under schedule 1f1b"},
        {HEAD SIZES("48", "6", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "groups have 5 sequences, expected batch, 6"},
        {HEAD SIZES("48", "4", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "groups have more sequences than batch, 4"},
        {HEAD SIZES("49", "5", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "groups[0].slices adds up to 48, expected seq_len, 49"},
        {HEAD SIZES("47", "5", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES GROUPS "}",
         "groups[0].slices adds up to more than seq_len, 47"},
        {HEAD SIZES("48", "5", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES "\"groups\": []}",
         "groups is not an array with something in it"},
        {HEAD SIZES("48", "1", "2", "2") SCHEDULE("\"seq1f1b\"") STAGES
         "\"groups\": [{\"sequences\": 1, \"slices\": [48, 0]}]}",
         "groups[0].slices[1] is 0, expected 1"},
        {HEAD SIZES("48", "1", "1", "2") SCHEDULE(
             "\"seq1f1b\"") "\"stages\": [{\"first_layer\": 0, \"n_layer\": 2}], " GROUPS "}",
         "stages: they have 2 layers, expected the model's 3"},
        {HEAD SIZES("48", "1", "2", "2")
             SCHEDULE("\"seq1f1b\"") "\"stages\": [{\"first_layer\": 0, \"n_layer\": 2}, "
                                     "{\"first_layer\": 1, "
                                     "\"n_layer\": 2}], " GROUPS "}",
         "stages[1].first_layer is 1, expected 2"},
        {SOUND ", \"flights\": [2, 2]}", "flights adds up to more than the number of groups, 3"},
        {SOUND ", \"flights\": [2]}", "flights adds up to 2, expected the number of groups, 3"},
        {SOUND ", \"recompute\": 1}", "recompute is not true or false"},
        {SOUND ", \"delay_wgrad\": 1}", "delay_wgrad is not true or false"},
        {SOUND ", \"recompute\": true, \"delay_wgrad\": true}",
         "delay_wgrad is true, expected false"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_plan *plan = NULL;
        expect_fail(TP_ERR_INPUT, cases[i].part, load(cases[i].text, &plan));
        ck_assert_ptr_null(plan);
    }
}
END_TEST

START_TEST(shrink_keeps_whole_flights_first)
{
    struct tp_plan *plan = NULL, *shrunk = NULL;

    ck_assert_int_eq(load(SOUND ", \"flights\": [1, 2]}", &plan), TP_OK); /* 2 | 1 2 sequences */
    const struct {
        int batch, n_flights, flights[2];
    } cases[] = {{1, 1, {1}}, {2, 1, {1}}, {3, 2, {1, 1}}, {4, 2, {1, 2}}, {5, 2, {1, 2}}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ck_assert_int_eq(tp_plan_shrink(plan, cases[i].batch, plan->schedule, &shrunk), TP_OK);
        ck_assert_int_eq(shrunk->n_flights, cases[i].n_flights);
        for (int f = 0; f < shrunk->n_flights; f++)
            ck_assert_int_eq(shrunk->flights[f], cases[i].flights[f]);
        tp_plan_free(shrunk);
    }
    tp_plan_free(plan);
}
END_TEST

START_TEST(save_to_nowhere_fails_by_name)
{
    struct tp_plan *plan = plan_of(64, 1, 1, TP_SCHEDULE_GPIPE, 0);
    capture_begin();
    enum tp_status status = tp_plan_save(plan, NULL, "/nonexistent/plan.json");
    const char *line = capture_end();
    ck_assert_int_eq(status, TP_ERR_IO);
    ck_assert_ptr_nonnull(strstr(line, "/nonexistent/plan.json"));
    tp_plan_free(plan);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("plan");
    TCase *tests = tcase_create("plan");
    tcase_add_test(tests, stages_are_even_and_cover_the_layers);
    tcase_add_test(tests, default_groups_and_slices);
    tcase_add_test(tests, default_slice_count);
    tcase_add_test(tests, default_refuses_by_name);
    tcase_add_test(tests, shrink_drops_sequences_from_the_end);
    tcase_add_test(tests, save_writes_what_others_read);
    tcase_add_test(tests, load_reads_what_was_said);
    tcase_add_test(tests, saving_and_loading_changes_nothing);
    tcase_add_test(tests, load_refuses_by_key);
    tcase_add_test(tests, shrink_keeps_whole_flights_first);
    tcase_add_test(tests, save_to_nowhere_fails_by_name);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
