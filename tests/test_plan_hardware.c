/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>

#include "expect.h"
#include "plan/hardware.h"
#include "plan/simulate.h"

static char *folder;

static void make_folder(void)
{
    folder = scratch_new();
}

static void drop_folder(void)
{
    scratch_free(folder);
}

static const char *const names[] = {"v100-25gbe", "a100", "h100", "mi250"};
enum { NAMES = sizeof names / sizeof *names };

static struct tp_hardware hardware_of(const char *name)
{
    struct tp_hardware hardware;

    ck_assert_int_eq(tp_hardware_find(name, &hardware), TP_OK);
    return hardware;
}

/* An estimate and its cost. */
struct estimated {
    struct tp_estimate estimate;
    struct tp_cost cost;
};

static void estimate(struct estimated *e, const char *name, const char *preset, int pipe, int op)
{
    struct tp_hardware hardware = hardware_of(name);
    struct tp_model model;

    ck_assert_int_eq(tp_model_preset(preset, &model), TP_OK);
    tp_estimate_init(&e->estimate, &hardware, &model, pipe, op, &e->cost);
}

static double layer(const struct estimated *e, enum tp_direction direction, int b, int s, int c)
{
    return e->cost.layer(e->cost.self, 0, direction, b, s, c);
}

/* ---- Properties ---- */

START_TEST(times_are_positive_and_grow)
{
    for (int i = 0; i < NAMES; i++)
        for (int op = 1; op <= 8; op *= 2) {
            struct estimated e;
            estimate(&e, names[i], "gpt3-13b", 8, op);
            for (int d = 0; d < 2; d++)
                for (int s = 1; s <= 2048; s *= 2) {
                    const enum tp_direction direction = (enum tp_direction)d;
                    double seconds = layer(&e, direction, 1, s, 0);
                    ck_assert_double_gt(seconds, 0);
                    ck_assert_double_gt(layer(&e, direction, 1, s + 1, 0), seconds);
                    ck_assert_double_gt(layer(&e, direction, 2, s, 0), seconds);
                    ck_assert_double_gt(layer(&e, direction, 1, s, 64), seconds);
                    ck_assert_double_ge(e.cost.head(e.cost.self, 0, direction, 1, s), 0);
                    ck_assert_double_ge(e.cost.embed(e.cost.self, 0, direction, 1, s), 0);
                }
        }
}
END_TEST

START_TEST(a_short_slice_costs_more_per_token)
{
    struct estimated e;

    estimate(&e, "v100-25gbe", "gpt3-175b", 96, 4);
    for (int s = 2; s <= 1024; s *= 2)
        ck_assert_double_lt(layer(&e, TP_FORWARD, 1, 2 * s, 0) / 2, layer(&e, TP_FORWARD, 1, s, 0));
    /* The paper's figure 3: below some length, fewer tokens take no less time. */
    ck_assert_double_gt(layer(&e, TP_FORWARD, 1, 1, 0), layer(&e, TP_FORWARD, 1, 64, 0) / 2);
}
END_TEST

START_TEST(backward_is_twice_forward_but_for_the_sums)
{
    struct estimated e, split;

    estimate(&e, "a100", "gpt3-13b", 8, 1);
    estimate(&split, "a100", "gpt3-13b", 8, 4);
    ck_assert_double_eq_tol(layer(&e, TP_BACKWARD, 1, 512, 99),
                            2 * layer(&e, TP_FORWARD, 1, 512, 99), 1e-12);
    ck_assert_double_lt(layer(&split, TP_BACKWARD, 1, 512, 99),
                        2 * layer(&split, TP_FORWARD, 1, 512, 99));
}
END_TEST

/* What a backward has less where weight gradients are delayed, they take later. */
START_TEST(delayed_gradients_are_a_part_of_the_backward)
{
    struct estimated e, delayed;

    estimate(&e, "a100", "gpt3-13b", 8, 1);
    estimate(&delayed, "a100", "gpt3-13b", 8, 1);
    ck_assert(e.cost.gradient == NULL);
    tp_estimate_delay(&delayed.estimate, &delayed.cost);
    for (int b = 1; b <= 4; b++) {
        const double gradient = delayed.cost.gradient(delayed.cost.self, 0, b, 512);
        ck_assert_double_gt(gradient, 0);
        ck_assert_double_eq(layer(&delayed, TP_FORWARD, b, 512, 99),
                            layer(&e, TP_FORWARD, b, 512, 99));
        ck_assert_double_eq_tol(layer(&delayed, TP_BACKWARD, b, 512, 99) + gradient,
                                layer(&e, TP_BACKWARD, b, 512, 99), 1e-12);
    }
}
END_TEST

START_TEST(op_ranks_shorten_long_slices_less_than_ideally)
{
    struct estimated e[4];

    for (int i = 0; i < 4; i++)
        estimate(&e[i], "v100-25gbe", "gpt3-175b", 48, 1 << i);
    for (int i = 1; i < 4; i++) {
        double before = layer(&e[i - 1], TP_FORWARD, 1, 2048, 0);
        double after = layer(&e[i], TP_FORWARD, 1, 2048, 0);
        ck_assert_double_lt(after, before);
        ck_assert_double_gt(after, before / 2);
    }
}
END_TEST

START_TEST(nodes_are_farther_than_devices)
{
    struct estimated e;

    estimate(&e, "v100-25gbe", "gpt3-175b", 48, 4);
    /* 8 devices a node, two stages of 4: every second boundary is one between nodes. */
    for (int boundary = 0; boundary < 8; boundary++) {
        double seconds = e.cost.link(e.cost.self, boundary, 25000000);
        if (boundary % 2 == 0)
            ck_assert_double_lt(seconds, 1e-3);
        else
            ck_assert_double_eq_tol(seconds, 25e6 / 3.125e9, 1e-4);
    }
    struct estimated near, far;
    estimate(&near, "h100", "gpt2", 2, 2);
    estimate(&far, "h100", "gpt2", 4, 2);
    ck_assert_double_lt(near.cost.allreduce(near.cost.self, 2, 1 << 30),
                        far.cost.allreduce(far.cost.self, 2, 1 << 30));
}
END_TEST

/* ---- Files ---- */

#define NUMBERS                                                                                    \
    "\"memory\": 1e10, \"memory_bandwidth\": 1e11, \"launch_seconds\": 1e-6, \"element_bytes\": "  \
    "4, \"devices_per_node\": 2, \"node_latency\": 1e-6, \"node_bandwidth\": 1e10, "               \
    "\"network_latency\": 1e-5, \"network_bandwidth\": 1e9"
#define HEADER "\"format\": \"terapipe-hardware\", \"version\": 1"

START_TEST(a_file_has_the_same_numbers)
{
    const char text[] = "{" HEADER ", \"name\": \"mine\", \"peak_flops\": 1e12, " NUMBERS "}";
    struct tp_hardware mine =
        hardware_of(scratch_file(folder, "hardware.json", text, sizeof text - 1));

    ck_assert_str_eq(mine.name, "mine");
    ck_assert_double_eq(mine.peak_flops, 1e12);
    ck_assert_double_eq(mine.devices_per_node, 2);
    ck_assert_double_eq(mine.network_bandwidth, 1e9);
}
END_TEST

START_TEST(bad_hardware_is_refused_by_name)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        {"{" HEADER ", " NUMBERS "}", "peak_flops is missing"},
        {"{" HEADER ", \"peak_flops\": -1, " NUMBERS "}", "peak_flops is -1, expected"},
        {"{" HEADER ", \"peak_flops\": 1e999, " NUMBERS "}", "hardware.json: line 1"},
        {"{" HEADER ", \"peak_flops\": true, " NUMBERS "}", "peak_flops is not a number"},
        {"{" HEADER ", \"name\": 1, \"peak_flops\": 1, " NUMBERS "}", "name is not a string"},
        {"{\"format\": \"terapipe-plan\", \"version\": 1}", "format is"},
    };
    struct tp_hardware hardware;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path =
            scratch_file(folder, "hardware.json", cases[i].text, strlen(cases[i].text));
        expect_fail(TP_ERR_INPUT, cases[i].part, tp_hardware_find(path, &hardware));
    }
    expect_fail(TP_ERR_INPUT, "p100: is neither", tp_hardware_find("p100", &hardware));
}
END_TEST

/* ---- The paper ---- */

/* TeraPipe, figures 5 to 7: seconds of a step without token slices and with those of the scheme,
 * which is the same for every sequence of a replica. No scheme was published for setting 6. */
static const struct published {
    const char *setting;
    int n_layer, n_embd, n_head, seq_len, data, pipe, op, batch;
    const char *slices;
    double gpipe, terapipe;
} published[] = {
    {"1", 24, 2048, 16, 2048, 8, 24, 1, 16, "776,640,632", 1.517, 1.254},
    {"2", 24, 2048, 16, 2048, 2, 12, 8, 36, "2048", 1.018, 1.018},
    {"3", 24, 2048, 16, 2048, 1, 24, 8, 72, "2048", 0.913, 0.913},
    {"4", 40, 5120, 40, 2048, 2, 20, 8, 16, "1024,1024", 2.637, 1.891},
    {"5", 40, 5120, 40, 2048, 1, 40, 8, 32, "704,688,656", 1.863, 1.328},
    {"6", 96, 6144, 48, 2048, 4, 96, 1, 2, "", 13.319, 7.103},
    {"7", 96, 6144, 48, 2048, 2, 24, 8, 4, "368,384,384,368,256,288", 4.311, 2.771},
    {"8", 96, 6144, 48, 2048, 1, 48, 8, 8, "384,384,368,320,296,296", 2.662, 1.111},
    {"9", 96, 12288, 96, 2048, 1, 96, 4, 2,
     "120,120,120,120,112,112,112,112,112,112,104,104,104,104,104,104,104,104,64", 9.990, 1.481},
    {"10", 96, 12288, 96, 2048, 1, 48, 8, 2,
     "128,128,128,128,128,128,128,128,128,128,128,128,128,128,128,128", 5.822, 1.160},
    {"5-L4096", 40, 5120, 40, 4096, 1, 40, 8, 8, "552,536,528,512,504,496,488,480", 2.526, 0.913},
    {"5-L6144", 40, 5120, 40, 6144, 1, 40, 8, 4, "584,568,512,512,512,512,512,512,496,488,472,464",
     3.754, 0.756},
    {"5-L8192", 40, 5120, 40, 8192, 1, 40, 8, 2,
     "512,512,512,512,512,512,480,480,416,416,416,416,416,416,416,416,416,416", 4.978, 0.636},
};
enum { PUBLISHED = sizeof published / sizeof *published };

static double predict(const struct published *p, const char *text)
{
    const struct tp_hardware hardware = hardware_of("v100-25gbe");
    /* Almost no vocabulary: its measurements are of layers alone. */
    const struct tp_model model = {.n_layer = p->n_layer,
                                   .n_embd = p->n_embd,
                                   .n_head = p->n_head,
                                   .n_inner = 4 * p->n_embd,
                                   .vocab_size = 1,
                                   .n_positions = p->seq_len};
    struct tp_simulation simulation;
    struct tp_estimate estimate;
    struct tp_slices slices;
    struct tp_plan *plan;
    struct tp_cost cost;

    ck_assert_int_eq(tp_slices_parse(text, p->seq_len, &slices), TP_OK);
    ck_assert_int_eq(tp_plan_default(&model, p->seq_len, p->batch, p->pipe, TP_SCHEDULE_TERAPIPE, 1,
                                     &slices, &plan),
                     TP_OK);
    plan->data = p->data;
    plan->op = p->op;
    tp_estimate_init(&estimate, &hardware, &model, p->pipe, p->op, &cost);
    ck_assert_int_eq(tp_simulate(plan, &cost, NULL, &simulation), TP_OK);
    double seconds = simulation.step_seconds;
    tp_simulation_fini(&simulation);
    tp_plan_free(plan);
    tp_slices_fini(&slices);
    return seconds;
}

static int ascending(const void *a, const void *b)
{
    const double *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

START_TEST(published_latencies_are_met)
{
    double errors[2 * PUBLISHED];
    int count = 0;

    for (int i = 0; i < PUBLISHED; i++) {
        const struct published *p = &published[i];
        errors[count++] = fabs(predict(p, "1") / p->gpipe - 1);
        if (p->slices[0] == '\0')
            continue;
        /* A single number is how many slices there are, not how long one is. */
        const char *slices = strchr(p->slices, ',') != NULL ? p->slices : "1";
        errors[count++] = fabs(predict(p, slices) / p->terapipe - 1);
    }
    ck_assert_int_eq(count, 25);
    qsort(errors, (size_t)count, sizeof *errors, ascending);
    ck_assert_msg(errors[count / 2] < 0.15, "median error %g", errors[count / 2]);
    ck_assert_msg(errors[count - 1] < 0.35, "largest error %g", errors[count - 1]);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("hardware");

    tcase_add_checked_fixture(cases, make_folder, drop_folder);
    tcase_add_test(cases, times_are_positive_and_grow);
    tcase_add_test(cases, a_short_slice_costs_more_per_token);
    tcase_add_test(cases, backward_is_twice_forward_but_for_the_sums);
    tcase_add_test(cases, delayed_gradients_are_a_part_of_the_backward);
    tcase_add_test(cases, op_ranks_shorten_long_slices_less_than_ideally);
    tcase_add_test(cases, nodes_are_farther_than_devices);
    tcase_add_test(cases, a_file_has_the_same_numbers);
    tcase_add_test(cases, bad_hardware_is_refused_by_name);
    tcase_add_test(cases, published_latencies_are_met);
    return expect_run(cases);
}
