/* SPDX-License-Identifier: Apache-2.0 */
/* The best plan for given degrees, and over all degrees. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "base/share.h"
#include "expect.h"
#include "fake_cost.h"
#include "plan/schedule.h"
#include "plan/search.h"

enum { TOKENS = 128, GRAIN = 8, WORK = 300000 };

static struct tp_model model;

static void prepare(void)
{
    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    model.n_layer = 8;
}

static struct tp_search_task task_of(const struct fake_cost *fake, int batch, int pipe,
                                     int schedule)
{
    return (struct tp_search_task){.model = &model,
                                   .cost = &fake->cost,
                                   .seq_len = TOKENS,
                                   .batch = batch,
                                   .data = 1,
                                   .pipe = pipe,
                                   .schedule = schedule,
                                   .grain = GRAIN,
                                   .work = WORK};
}

/* An uneven cost that depends on the seed. */
static void draw(uint64_t seed, struct fake_cost *fake)
{
    const struct tp_rng rng = {.seed = seed, .use = TP_RNG_SAMPLE};

    fake_cost_init(fake);
    fake->fixed = 1e-3 * tp_rng_uniform(&rng, 0);
    fake->context = 1e-7 * tp_rng_uniform(&rng, 1);
    fake->floor = 1e-3 * tp_rng_uniform(&rng, 2);
    fake->bump = 1e-4 * tp_rng_uniform(&rng, 3);
    fake->backward = 1 + 2 * tp_rng_uniform(&rng, 4);
}

static void draw_uneven(uint64_t seed, struct fake_cost *fake)
{
    const struct tp_rng rng = {.seed = seed, .use = TP_RNG_SHUFFLE};

    draw(seed, fake);
    fake->embed = 1e-5 * tp_rng_uniform(&rng, 0);
    fake->head = 1e-4 * tp_rng_uniform(&rng, 1);
    fake->latency = 1e-3 * tp_rng_uniform(&rng, 2);
    if (seed % 2 == 1)
        fake_cost_mix(fake, 0.5 + tp_rng_uniform(&rng, 3), 0.5 + tp_rng_uniform(&rng, 4));
}

START_TEST(equal_stages_get_the_closed_form)
{
    for (uint64_t seed = 0; seed < 20; seed++) {
        const int pipes[] = {1, 2, 4, 8}, pipe = pipes[seed % 4], batch = 1 + (int)(seed % 3);
        struct tp_optimal optimal;
        struct tp_found found;
        struct fake_cost fake;

        draw(seed, &fake);
        for (int automatic = 0; automatic < 2; automatic++) {
            struct tp_search_task task = task_of(&fake, batch, pipe, TP_SCHEDULE_TERAPIPE);
            if (automatic)
                task.schedule = TP_SEARCH_AUTO;
            const struct tp_optimal_task form = {.cost = &fake.cost,
                                                 .n_layer = model.n_layer / pipe,
                                                 .n_stages = pipe,
                                                 .seq_len = TOKENS,
                                                 .batch = batch,
                                                 .grain = GRAIN};
            ck_assert_int_eq(tp_optimal_solve(&form, &optimal), TP_OK);
            ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
            ck_assert(found.exact || automatic);
            if (found.exact)
                ck_assert_double_eq_tol(found.simulation.step_seconds, optimal.seconds, 1e-9);
            ck_assert_double_le(found.simulation.step_seconds, optimal.seconds * (1 + 1e-9));
            tp_found_fini(&found);
            tp_optimal_fini(&optimal);
        }
    }
}
END_TEST

/* Simulated seconds of a step with so many uniform slices in groups of that size. */
static double uniform_seconds(const struct tp_search_task *task, enum tp_schedule_kind kind,
                              int group_size, int count)
{
    struct tp_simulation simulation;
    struct tp_slices slices;
    struct tp_plan *plan;

    ck_assert_int_eq(tp_slices_uniform(TOKENS, count, &slices), TP_OK);
    ck_assert_int_eq(tp_plan_default(task->model, TOKENS, task->batch, task->pipe, kind, group_size,
                                     &slices, &plan),
                     TP_OK);
    ck_assert_int_eq(tp_simulate(plan, task->cost, NULL, &simulation), TP_OK);
    const double seconds = simulation.step_seconds;
    tp_simulation_fini(&simulation);
    tp_slices_fini(&slices);
    tp_plan_free(plan);
    return seconds;
}

START_TEST(plans_are_no_worse_than_uniform_ones)
{
    static const int counts[] = {1, 2, 4, 8, 16};

    for (uint64_t seed = 0; seed < 24; seed++) {
        const int kind = (int)(seed % 4), pipe = 1 + (int)(seed % 5), batch = 1 + (int)(seed % 3);
        struct tp_found found, again;
        struct fake_cost fake;

        draw_uneven(seed, &fake);
        const struct tp_search_task task = task_of(&fake, batch, pipe, kind);
        ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
        ck_assert_int_eq(tp_search_plan(&task, &again), TP_OK);
        ck_assert(found.simulation.step_seconds == again.simulation.step_seconds);
        ck_assert_int_eq(found.plan->n_groups, again.plan->n_groups);
        ck_assert_int_eq((int)found.plan->schedule, kind);
        const int n = tp_schedule_is_whole(found.plan->schedule) ? 1 : 5;
        for (int i = 0; i < n; i++)
            for (int group = 1; group <= batch; group++)
                ck_assert_double_le(found.simulation.step_seconds,
                                    uniform_seconds(&task, found.plan->schedule, group, counts[i]) *
                                        (1 + 1e-9));
        tp_found_fini(&again);
        tp_found_fini(&found);
    }
}
END_TEST

START_TEST(auto_is_no_worse_than_any_schedule)
{
    for (uint64_t seed = 0; seed < 6; seed++) {
        struct tp_found found, other;
        struct fake_cost fake;

        draw_uneven(seed, &fake);
        struct tp_search_task task = task_of(&fake, 4, 4, TP_SEARCH_AUTO);
        task.work *= 2;
        ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
        task.work /= 2;
        for (task.schedule = TP_SCHEDULE_TERAPIPE; task.schedule < TP_SEARCH_AUTO;
             task.schedule += 2) {
            ck_assert_int_eq(tp_search_plan(&task, &other), TP_OK);
            ck_assert_double_le(found.simulation.step_seconds,
                                other.simulation.step_seconds * (1 + 1e-9));
            tp_found_fini(&other);
        }
        tp_found_fini(&found);
    }
}
END_TEST

/* Of plans that are as fast, the one that needs less memory. */
START_TEST(auto_saves_memory)
{
    struct tp_found found, apart;
    struct fake_cost fake;

    fake_cost_init(&fake);
    struct tp_search_task task = task_of(&fake, 16, 4, TP_SCHEDULE_TERAPIPE);
    task.group_size = 1;
    ck_assert_int_eq(tp_search_plan(&task, &apart), TP_OK);
    task.schedule = TP_SEARCH_AUTO;
    ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
    ck_assert_double_le(found.simulation.step_seconds,
                        apart.simulation.step_seconds * (1 + TP_SEARCH_HAIR));
    ck_assert(found.plan->schedule == TP_SCHEDULE_1F1B ||
              found.plan->schedule == TP_SCHEDULE_SEQ1F1B);
    ck_assert_uint_lt(found.shortage.need, apart.shortage.need);
    tp_found_fini(&apart);
    tp_found_fini(&found);
}
END_TEST

/* More sizes of groups than the closed form tries, more starts than are simulated. */
START_TEST(many_sequences_are_bounded)
{
    enum { MANY = 2000 };
    struct tp_found found;
    struct fake_cost fake;

    draw_uneven(2, &fake);
    struct tp_search_task task = task_of(&fake, MANY, 4, TP_SEARCH_AUTO);
    ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
    ck_assert(!found.exact);
    ck_assert_ptr_nonnull(strstr(found.note, "2000 sequences are many"));
    for (int group = 1; group <= MANY; group *= 10)
        ck_assert_double_le(found.simulation.step_seconds,
                            uniform_seconds(&task, TP_SCHEDULE_TERAPIPE, group, 1) * (1 + 1e-9));
    tp_found_fini(&found);
}
END_TEST

START_TEST(flights_repeat_the_largest)
{
    static const int batches[] = {4, 7, 8, 9, 9}, flights[] = {4, 3, 2, 1, 9};

    for (int i = 0; i < 5; i++) {
        const int n = flights[i], large = (batches[i] - 1) / n + 1;
        struct tp_found found, one;
        struct fake_cost fake;

        draw_uneven((uint64_t)i, &fake);
        struct tp_search_task task = task_of(&fake, large, 3, TP_SEARCH_AUTO);
        ck_assert_int_eq(tp_search_plan(&task, &one), TP_OK);
        task.batch = batches[i];
        task.flights = n;
        ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
        ck_assert_int_eq(found.plan->n_flights, n);
        ck_assert_int_eq(found.plan->batch, batches[i]);
        ck_assert_int_eq((int)found.plan->schedule, (int)one.plan->schedule);
        for (int f = 0, g = 0; f < n; f++) {
            const int sequences = (int)tp_share_of((size_t)batches[i], n, f).count;
            int sum = 0;
            for (int end = g + found.plan->flights[f], own = 0; g < end; g++, own++) {
                const struct tp_group *a = &found.plan->groups[g], *b = &one.plan->groups[own];
                sum += a->sequences;
                ck_assert_int_le(a->sequences, b->sequences);
                ck_assert_int_eq(a->slices.count, b->slices.count);
            }
            ck_assert_int_eq(sum, sequences);
        }
        if (n * large == batches[i] &&
            found.plan->groups[0].slices.count * found.plan->n_groups >= n * TP_SCHEDULE_SLOTS)
            ck_assert_uint_eq(found.shortage.need, one.shortage.need);
        ck_assert_double_le(found.simulation.makespan, n * one.simulation.makespan * (1 + 1e-9));
        tp_found_fini(&one);
        tp_found_fini(&found);
    }
}
END_TEST

START_TEST(what_is_fixed_stays)
{
    int lengths[] = {50, 70, 8};
    const struct tp_slices slices = {3, lengths};
    struct tp_found found;
    struct fake_cost fake;

    draw_uneven(1, &fake);
    struct tp_search_task task = task_of(&fake, 5, 3, TP_SCHEDULE_TERAPIPE);
    task.slices = &slices;
    ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
    for (int g = 0; g < found.plan->n_groups; g++) {
        ck_assert_int_eq(found.plan->groups[g].slices.count, 3);
        ck_assert_mem_eq(found.plan->groups[g].slices.lengths, lengths, sizeof lengths);
    }
    tp_found_fini(&found);

    task.slices = NULL;
    task.group_size = 2;
    ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
    ck_assert_int_eq(found.plan->n_groups, 3);
    ck_assert_int_eq(found.plan->groups[0].sequences, 2);
    ck_assert_int_eq(found.plan->groups[1].sequences, 2);
    ck_assert_int_eq(found.plan->groups[2].sequences, 1);
    tp_found_fini(&found);
}
END_TEST

/* Bytes of the stage that needs most. */
static size_t need_of(const struct tp_found *found)
{
    size_t most = 0;

    for (int k = 0; k < found->simulation.n_stages; k++)
        most = found->simulation.stages[k].peak_bytes > most
                   ? found->simulation.stages[k].peak_bytes
                   : most;
    return most;
}

START_TEST(memory_is_obeyed)
{
    struct tp_found free_of_limits, found;
    struct fake_cost fake;
    bool refused = false;

    draw(0, &fake);
    struct tp_search_task task = task_of(&fake, 32, 4, TP_SEARCH_AUTO);
    task.recompute = TP_RECOMPUTE_NEEDED;
    ck_assert_int_eq(tp_search_plan(&task, &free_of_limits), TP_OK);
    ck_assert_str_eq(free_of_limits.note, "");
    for (size_t limit = need_of(&free_of_limits); !refused; limit -= limit / 16) {
        task.memory = limit;
        ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
        refused = found.shortage.need > found.shortage.limit;
        if (refused) {
            expect_fail(TP_ERR_INPUT, "the limit is", tp_found_check(&found));
        } else {
            ck_assert_int_eq(tp_found_check(&found), TP_OK);
            ck_assert_uint_le(need_of(&found), limit);
            if (limit < need_of(&free_of_limits))
                ck_assert_ptr_nonnull(strstr(found.note, "for memory"));
        }
        tp_found_fini(&found);
    }
    tp_found_fini(&free_of_limits);
}
END_TEST

START_TEST(the_papers_objective_is_taken_as_it_is)
{
    struct tp_found found;
    struct tp_optimal optimal;
    struct fake_cost fake;

    draw_uneven(0, &fake);
    struct tp_search_task task = task_of(&fake, 1, 4, TP_SEARCH_AUTO);
    const struct tp_optimal_task form = {.cost = &fake.cost,
                                         .n_layer = 2,
                                         .n_stages = 4,
                                         .seq_len = TOKENS,
                                         .batch = 1,
                                         .grain = GRAIN,
                                         .objective = TP_OBJECTIVE_PAPER};
    task.objective = TP_OBJECTIVE_PAPER;
    ck_assert_int_eq(tp_optimal_solve(&form, &optimal), TP_OK);
    ck_assert_int_eq(tp_search_plan(&task, &found), TP_OK);
    ck_assert_int_eq(found.plan->groups[0].slices.count, optimal.groups[0].slices.count);
    ck_assert_mem_eq(found.plan->groups[0].slices.lengths, optimal.groups[0].slices.lengths,
                     (size_t)optimal.groups[0].slices.count * sizeof(int));
    tp_found_fini(&found);
    tp_optimal_fini(&optimal);
}
END_TEST

START_TEST(refusals)
{
    struct tp_found found;
    struct fake_cost fake;

    draw(0, &fake);
    struct tp_search_task task = task_of(&fake, 4, 9, TP_SEARCH_AUTO);
    expect_fail(TP_ERR_USAGE, "--pipeline-model-parallel-size 9", tp_search_plan(&task, &found));
    task.pipe = 2;
    task.flights = 5;
    expect_fail(TP_ERR_USAGE, "--accumulate 5: expected at most 4", tp_search_plan(&task, &found));
    task.flights = 0;
    fake.missing = 1 << 1 | 1 << 3;
    task.batch = 3;
    expect_fail(TP_ERR_INPUT, "no groups add up to 3", tp_search_plan(&task, &found));
    task.group_size = 3;
    expect_fail(TP_ERR_INPUT, "no groups add up", tp_search_plan(&task, &found));
    fake.missing = 0;
    fake.fixed = fake.floor = -1;
    expect_fail(TP_ERR_INPUT, "expected a time of 0 or more", tp_search_plan(&task, &found));
}
END_TEST

/* ---- Degrees ---- */

static struct tp_degrees_task degrees_of(const struct tp_hardware *hardware, int devices, int batch)
{
    return (struct tp_degrees_task){.search = {.model = &model,
                                               .seq_len = TOKENS,
                                               .batch = batch,
                                               .schedule = TP_SEARCH_AUTO,
                                               .recompute = TP_RECOMPUTE_NEEDED,
                                               .grain = GRAIN,
                                               .work = WORK},
                                    .source.hardware = hardware,
                                    .devices = devices,
                                    .keep = 10};
}

/* What is kept is as good as what planning each of all degrees gives. */
START_TEST(bounds_lose_no_good_degrees)
{
    struct tp_hardware hardware;
    struct tp_degrees_list all, few;

    ck_assert_int_eq(tp_hardware_find("v100-25gbe", &hardware), TP_OK);
    struct tp_degrees_task task = degrees_of(&hardware, 8, 5);
    task.keep = 1000;
    ck_assert_int_eq(tp_search_degrees(&task, &all), TP_OK);
    task.keep = 3;
    ck_assert_int_eq(tp_search_degrees(&task, &few), TP_OK);
    ck_assert_int_eq(all.planned, all.count);
    ck_assert_int_eq(few.count, all.count);
    ck_assert_int_eq(few.planned, 3);
    for (int i = 0; i < all.count; i++) {
        const struct tp_degrees *at = &all.at[i];
        ck_assert_int_eq(at->data * at->pipe * at->op, 8);
        ck_assert_int_le(at->data, 5);
        ck_assert_int_le(at->pipe, 8);
        ck_assert_int_eq(12 % at->op, 0);
        ck_assert_int_eq(at->found.plan->batch, (5 + at->data - 1) / at->data);
        ck_assert_double_le(at->bound, at->found.simulation.step_seconds * (1 + 1e-12));
        if (i < 3)
            ck_assert(at->found.simulation.step_seconds == few.at[i].found.simulation.step_seconds);
    }
    tp_degrees_list_fini(&all);
    tp_degrees_list_fini(&few);
}
END_TEST

START_TEST(degrees_are_refused_with_a_reason)
{
    struct tp_hardware hardware;
    struct tp_degrees_list list;
    struct fake_cost fake;

    ck_assert_int_eq(tp_hardware_find("v100-25gbe", &hardware), TP_OK);
    struct tp_degrees_task task = degrees_of(&hardware, 4, 4);
    task.search.memory = 1000;
    ck_assert_int_eq(tp_search_degrees(&task, &list), TP_OK);
    ck_assert_int_eq(list.planned, 0);
    for (int i = 0; i < list.count; i++)
        ck_assert_ptr_nonnull(strstr(list.at[i].why, "the limit is"));
    tp_degrees_list_fini(&list);

    draw(0, &fake);
    task.search.memory = 0;
    task.source = (struct tp_cost_source){.n_costs = 1, .costs = &fake.cost};
    ck_assert_int_eq(tp_search_degrees(&task, &list), TP_OK);
    for (int i = 0; i < list.count; i++) {
        ck_assert_int_eq(list.at[i].outcome == TP_DEGREES_REFUSED, list.at[i].op != 1);
        if (list.at[i].op != 1)
            ck_assert_ptr_nonnull(strstr(list.at[i].why, "no profile for op"));
    }
    tp_degrees_list_fini(&list);

    task.devices = 97;
    expect_fail(TP_ERR_USAGE, "--devices 97", tp_search_degrees(&task, &list));
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("search");

    tcase_add_checked_fixture(cases, prepare, NULL);
    tcase_add_test(cases, equal_stages_get_the_closed_form);
    tcase_add_test(cases, plans_are_no_worse_than_uniform_ones);
    tcase_add_test(cases, auto_is_no_worse_than_any_schedule);
    tcase_add_test(cases, auto_saves_memory);
    tcase_add_test(cases, many_sequences_are_bounded);
    tcase_add_test(cases, flights_repeat_the_largest);
    tcase_add_test(cases, what_is_fixed_stays);
    tcase_add_test(cases, memory_is_obeyed);
    tcase_add_test(cases, the_papers_objective_is_taken_as_it_is);
    tcase_add_test(cases, refusals);
    tcase_add_test(cases, bounds_lose_no_good_degrees);
    tcase_add_test(cases, degrees_are_refused_with_a_reason);
    return expect_run(cases);
}
