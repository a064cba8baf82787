/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "capture.h"
#include "plan/plan.h"

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
    tcase_add_test(tests, save_to_nowhere_fails_by_name);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
