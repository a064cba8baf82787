/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>

#include <jansson.h>

#include "base/trace.h"
#include "expect.h"

static void add(struct tp_trace *trace, int pid, enum tp_track track, double begin, double end,
                int64_t flow)
{
    tp_trace_add(trace, &(struct tp_trace_event){.pid = pid,
                                                 .track = track,
                                                 .name = "forward",
                                                 .begin = begin,
                                                 .end = end,
                                                 .group = 1,
                                                 .start = 2,
                                                 .length = 3,
                                                 .flow = flow});
}

/* The saved trace's events. */
static json_t *saved(const struct tp_trace *trace)
{
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "trace.json");
    json_error_t error;

    ck_assert_int_eq(tp_trace_save(trace, path), TP_OK);
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    json_t *events = json_incref(json_object_get(json, "traceEvents"));
    ck_assert(json_is_array(events));
    json_decref(json);
    scratch_free(folder);
    return events;
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

static double number_of(const json_t *event, const char *key)
{
    const json_t *value = json_object_get(event, key);

    ck_assert_msg(json_is_number(value), "%s is no number", key);
    return json_number_value(value);
}

START_TEST(an_empty_trace_is_a_trace)
{
    struct tp_trace *trace;

    ck_assert_int_eq(tp_trace_new(&trace), TP_OK);
    json_t *events = saved(trace);
    ck_assert_uint_eq(json_array_size(events), 0);
    json_decref(events);
    tp_trace_free(trace);
    tp_trace_free(NULL);
}
END_TEST

START_TEST(a_slice_has_its_times_and_names)
{
    struct tp_trace *trace;
    size_t slices = 0, i;
    json_t *event;

    ck_assert_int_eq(tp_trace_new(&trace), TP_OK);
    add(trace, 3, TP_TRACK_COMPUTE, 0.5, 0.75, -1);
    json_t *events = saved(trace);
    json_array_foreach(events, i, event)
    {
        ck_assert_int_eq((int)number_of(event, "pid"), 3);
        if (strcmp(text_of(event, "ph"), "X") != 0)
            continue;
        slices++;
        ck_assert_str_eq(text_of(event, "name"), "forward");
        ck_assert_double_eq(number_of(event, "ts"), 500000);
        ck_assert_double_eq(number_of(event, "dur"), 250000);
        const json_t *args = json_object_get(event, "args");
        ck_assert_int_eq((int)number_of(args, "group"), 1);
        ck_assert_int_eq((int)number_of(args, "start"), 2);
        ck_assert_int_eq((int)number_of(args, "length"), 3);
    }
    ck_assert_uint_eq(slices, 1);
    json_decref(events);
    tp_trace_free(trace);
}
END_TEST

/* Overlapping messages and computing, in no order. */
static struct tp_trace *crowded(int count)
{
    struct tp_trace *trace;

    ck_assert_int_eq(tp_trace_new(&trace), TP_OK);
    for (int i = 0; i < count; i++) {
        int at = i * 7 % count;
        add(trace, i % 3, (enum tp_track)(i % 4), at, at + 1 + i % 5, i % 4 == 1 ? i : -1);
        if (i % 4 == 1)
            add(trace, (i + 1) % 3, TP_TRACK_RECEIVE, at, at + 1 + i % 5, i);
    }
    return trace;
}

START_TEST(slices_of_a_thread_do_not_overlap)
{
    struct tp_trace *trace = crowded(200);
    json_t *events = saved(trace), *a, *b;
    size_t i, j, slices = 0;

    json_array_foreach(events, i, a)
    {
        if (strcmp(text_of(a, "ph"), "X") != 0)
            continue;
        slices++;
        json_array_foreach(events, j, b)
        {
            if (i == j || strcmp(text_of(b, "ph"), "X") != 0 ||
                number_of(a, "pid") != number_of(b, "pid") ||
                number_of(a, "tid") != number_of(b, "tid"))
                continue;
            ck_assert(number_of(a, "ts") + number_of(a, "dur") <= number_of(b, "ts") ||
                      number_of(b, "ts") + number_of(b, "dur") <= number_of(a, "ts"));
        }
    }
    ck_assert_uint_eq(slices, 250);
    json_decref(events);
    tp_trace_free(trace);
}
END_TEST

START_TEST(each_arrow_begins_and_ends_once)
{
    struct tp_trace *trace = crowded(200);
    json_t *events = saved(trace), *event;
    int begins[200] = {0}, ends[200] = {0};
    size_t i;

    json_array_foreach(events, i, event)
    {
        if (strcmp(text_of(event, "ph"), "s") == 0)
            begins[(int)number_of(event, "id")]++;
        if (strcmp(text_of(event, "ph"), "f") == 0)
            ends[(int)number_of(event, "id")]++;
    }
    for (int flow = 0; flow < 200; flow++) {
        ck_assert_int_eq(begins[flow], flow % 4 == 1);
        ck_assert_int_eq(ends[flow], flow % 4 == 1);
    }
    json_decref(events);
    tp_trace_free(trace);
}
END_TEST

START_TEST(every_thread_has_a_name_once)
{
    struct tp_trace *trace = crowded(40);
    json_t *events = saved(trace), *event, *names = json_object();
    char key[64];
    size_t i;

    json_array_foreach(events, i, event)
    {
        if (json_object_get(event, "tid") == NULL)
            continue;
        snprintf(key, sizeof key, "%d %d", (int)number_of(event, "pid"),
                 (int)number_of(event, "tid"));
        const bool names_it = strcmp(text_of(event, "name"), "thread_name") == 0;
        ck_assert_int_eq(json_object_get(names, key) != NULL, !names_it);
        if (names_it)
            json_object_set_new(names, key, json_true());
    }
    json_decref(names);
    json_decref(events);
    tp_trace_free(trace);
}
END_TEST

START_TEST(saving_to_nowhere_fails_by_name)
{
    struct tp_trace *trace = crowded(3);

    expect_fail(TP_ERR_IO, "/nonexistent/trace.json",
                tp_trace_save(trace, "/nonexistent/trace.json"));
    tp_trace_free(trace);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("trace");

    tcase_add_test(cases, an_empty_trace_is_a_trace);
    tcase_add_test(cases, a_slice_has_its_times_and_names);
    tcase_add_test(cases, slices_of_a_thread_do_not_overlap);
    tcase_add_test(cases, each_arrow_begins_and_ends_once);
    tcase_add_test(cases, every_thread_has_a_name_once);
    tcase_add_test(cases, saving_to_nowhere_fails_by_name);
    return expect_run(cases);
}
