/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds and improvements of plans, on costs of many kinds. */
#include "config.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "expect.h"
#include "fake_cost.h"
#include "plan/bound.h"
#include "plan/optimal.h"
#include "plan/refine.h"

enum { TOKENS = 96, GRAIN = 8, STARTS = 6 };

static const enum tp_schedule_kind kinds[] = {TP_SCHEDULE_TERAPIPE, TP_SCHEDULE_SEQ1F1B,
                                              TP_SCHEDULE_GPIPE, TP_SCHEDULE_1F1B};

/* A case of many: everything is drawn from the seed. */
struct draw {
    struct tp_rng rng;
    uint64_t next;
};

static double real(struct draw *draw)
{
    return tp_rng_uniform(&draw->rng, draw->next++);
}

static int below(struct draw *draw, int bound)
{
    return (int)tp_rng_below(&draw->rng, draw->next++, (uint64_t)bound);
}

static struct draw draw_of(uint64_t seed)
{
    return (struct draw){.rng = {.seed = seed, .use = TP_RNG_SAMPLE}};
}

static void draw_cost(struct draw *draw, bool plain, struct fake_cost *fake)
{
    fake_cost_init(fake);
    fake->fixed = 1e-3 * real(draw);
    fake->context = 1e-7 * real(draw);
    fake->floor = 1e-3 * real(draw);
    fake->bump = 1e-4 * real(draw);
    fake->backward = 1 + 2 * real(draw);
    if (plain)
        return;
    fake->embed = 1e-5 * real(draw);
    fake->head = 1e-4 * real(draw);
    fake->latency = 1e-3 * real(draw);
    fake->byte = 1e-9 * real(draw);
    if (below(draw, 2) == 0)
        fake_cost_mix(fake, 0.5 + real(draw), 0.5 + real(draw));
}

static struct tp_plan *plan_of(int batch, int pipe, int n_layer, enum tp_schedule_kind kind,
                               int group_size, int n_slices)
{
    struct tp_slices slices = {.count = 0};
    struct tp_model model;
    struct tp_plan *plan;

    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    model.n_layer = n_layer;
    ck_assert_int_eq(tp_slices_uniform(TOKENS, tp_schedule_is_whole(kind) ? 1 : n_slices, &slices),
                     TP_OK);
    ck_assert_int_eq(tp_plan_default(&model, TOKENS, batch, pipe, kind, group_size, &slices, &plan),
                     TP_OK);
    tp_slices_fini(&slices);
    return plan;
}

static struct tp_plan *draw_plan(struct draw *draw)
{
    const int batch = 1 + below(draw, 6), pipe = 1 + below(draw, 5),
              n_layer = pipe + below(draw, 6);
    struct tp_plan *plan = plan_of(batch, pipe, n_layer, kinds[below(draw, 4)],
                                   1 + below(draw, batch), 1 + below(draw, 6));

    plan->recompute = below(draw, 2) == 0;
    return plan;
}

START_TEST(nothing_is_faster_than_its_bound)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct draw draw = draw_of(seed);
        struct tp_plan *plan = draw_plan(&draw);
        struct tp_simulation simulation;
        struct fake_cost fake;
        double bound = NAN;

        draw_cost(&draw, false, &fake);
        ck_assert_int_eq(tp_plan_bound(plan, &fake.cost, &bound), TP_OK);
        ck_assert_int_eq(tp_simulate(plan, &fake.cost, NULL, &simulation), TP_OK);
        ck_assert_double_gt(bound, 0);
        ck_assert_double_le(bound, simulation.makespan * (1 + 1e-12));
        tp_simulation_fini(&simulation);
        tp_plan_free(plan);
    }
}
END_TEST

START_TEST(equal_stages_take_their_bound)
{
    for (uint64_t seed = 0; seed < 100; seed++) {
        struct draw draw = draw_of(seed);
        struct tp_simulation simulation;
        struct fake_cost fake;
        double bound = NAN;

        draw_cost(&draw, true, &fake);
        struct tp_plan *plan = plan_of(3, 3, 6, TP_SCHEDULE_TERAPIPE, 2, 1 + below(&draw, 6));
        ck_assert_int_eq(tp_plan_bound(plan, &fake.cost, &bound), TP_OK);
        ck_assert_int_eq(tp_simulate(plan, &fake.cost, NULL, &simulation), TP_OK);
        ck_assert_double_eq_tol(bound, simulation.makespan, 1e-12);
        tp_simulation_fini(&simulation);
        tp_plan_free(plan);
    }
}
END_TEST

static void expect_valid(const struct tp_plan *plan, int batch)
{
    int sequences = 0, layers = 0;

    for (int g = 0; g < plan->n_groups; g++) {
        int start = 0;
        for (int i = 0; i < plan->groups[g].slices.count; i++) {
            ck_assert_int_ge(plan->groups[g].slices.lengths[i], 1);
            ck_assert_int_eq(start % GRAIN, 0);
            start += plan->groups[g].slices.lengths[i];
        }
        ck_assert_int_eq(start, TOKENS);
        sequences += plan->groups[g].sequences;
    }
    for (int k = 0; k < plan->n_stages; k++) {
        ck_assert_int_eq(plan->stages[k].first_layer, layers);
        ck_assert_int_ge(plan->stages[k].n_layer, 1);
        layers += plan->stages[k].n_layer;
    }
    ck_assert_int_eq(sequences, batch);
    ck_assert_int_eq(layers, plan->model.n_layer);
    ck_assert_int_eq(plan->n_flights, 1);
    ck_assert_int_eq(plan->flights[0], plan->n_groups);
}

static bool same(const struct tp_plan *a, const struct tp_plan *b)
{
    bool equal = a->n_groups == b->n_groups &&
                 memcmp(a->stages, b->stages, (size_t)a->n_stages * sizeof *a->stages) == 0;

    for (int g = 0; g < a->n_groups && equal; g++)
        equal = a->groups[g].sequences == b->groups[g].sequences &&
                a->groups[g].slices.count == b->groups[g].slices.count &&
                memcmp(a->groups[g].slices.lengths, b->groups[g].slices.lengths,
                       (size_t)a->groups[g].slices.count * sizeof(int)) == 0;
    return equal;
}

/* Whole lengths of slices that are multiples of the grain. */
static const int counts[STARTS] = {1, 2, 3, 4, 6, 12};

START_TEST(results_are_no_worse_than_starts)
{
    for (uint64_t seed = 0; seed < 60; seed++) {
        struct draw draw = draw_of(seed);
        const int batch = 1 + below(&draw, 5), pipe = 1 + below(&draw, 4);
        const enum tp_schedule_kind kind = kinds[below(&draw, 4)];
        const int n_layer = pipe + below(&draw, 6), group = 1 + below(&draw, batch);
        struct tp_plan *starts[STARTS];
        struct tp_refined refined, again;
        struct fake_cost fake;

        draw_cost(&draw, false, &fake);
        const struct tp_refine_task task = {.cost = &fake.cost,
                                            .grain = GRAIN,
                                            .may_cut = true,
                                            .may_group = true,
                                            .may_layer = true,
                                            .work = 100000};
        for (int i = 0; i < STARTS; i++)
            starts[i] = plan_of(batch, pipe, n_layer, kind, group, counts[i]);
        ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)starts, STARTS, &refined),
                         TP_OK);
        ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)starts, STARTS, &again),
                         TP_OK);
        expect_valid(refined.plan, batch);
        ck_assert(same(refined.plan, again.plan));
        for (int i = 0; i < STARTS; i++) {
            struct tp_simulation simulation;
            ck_assert_int_eq(tp_simulate(starts[i], &fake.cost, NULL, &simulation), TP_OK);
            ck_assert_double_le(refined.simulation.step_seconds, simulation.step_seconds);
            tp_simulation_fini(&simulation);
            tp_plan_free(starts[i]);
        }
        tp_refined_fini(&refined);
        tp_refined_fini(&again);
    }
}
END_TEST

/* From one whole sequence to the least makespan of equal stages, or nearly. */
START_TEST(equal_stages_come_close_to_the_best)
{
    double worst = 1;

    for (uint64_t seed = 0; seed < 60; seed++) {
        struct draw draw = draw_of(seed);
        struct tp_optimal optimal;
        struct tp_refined refined;
        struct fake_cost fake;

        draw_cost(&draw, true, &fake);
        struct tp_plan *start = plan_of(2, 4, 4, TP_SCHEDULE_TERAPIPE, 1, 4);
        const struct tp_optimal_task best = {.cost = &fake.cost,
                                             .n_layer = 1,
                                             .n_stages = 4,
                                             .seq_len = TOKENS,
                                             .batch = 2,
                                             .grain = GRAIN};
        const struct tp_refine_task task = {.cost = &fake.cost,
                                            .grain = GRAIN,
                                            .may_cut = true,
                                            .may_group = true,
                                            .work = 1000000};
        ck_assert_int_eq(tp_optimal_solve(&best, &optimal), TP_OK);
        ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)&start, 1, &refined),
                         TP_OK);
        ck_assert_double_ge(refined.simulation.makespan, optimal.seconds * (1 - 1e-12));
        worst = fmax(worst, refined.simulation.makespan / optimal.seconds);
        tp_refined_fini(&refined);
        tp_optimal_fini(&optimal);
        tp_plan_free(start);
    }
    ck_assert_double_lt(worst, 1.1);
}
END_TEST

START_TEST(what_may_not_change_stays)
{
    struct tp_plan *start = plan_of(4, 3, 8, TP_SCHEDULE_TERAPIPE, 2, 3);
    struct tp_refined refined;
    struct fake_cost fake;

    fake_cost_init(&fake);
    fake.head = 1e-3;
    const struct tp_refine_task task = {.cost = &fake.cost, .grain = GRAIN, .work = 100000};
    ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)&start, 1, &refined), TP_OK);
    ck_assert(same(start, refined.plan));
    ck_assert_int_eq(refined.simulated, 1);
    tp_refined_fini(&refined);
    tp_plan_free(start);
}
END_TEST

/* A slice of one token cannot be halved. Without enough memory every change is tried. */
START_TEST(a_token_stays_whole)
{
    struct tp_slices slices = {.count = 0};
    struct tp_refined refined;
    struct fake_cost fake;
    struct tp_model model;
    struct tp_plan *start;

    fake_cost_init(&fake);
    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    ck_assert_int_eq(tp_slices_uniform(1, 1, &slices), TP_OK);
    ck_assert_int_eq(tp_plan_default(&model, 1, 4, 3, TP_SCHEDULE_TERAPIPE, 2, &slices, &start),
                     TP_OK);
    const struct tp_refine_task task = {
        .cost = &fake.cost, .memory = 1, .grain = 1, .may_cut = true, .work = 100000};
    ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)&start, 1, &refined), TP_OK);
    ck_assert_int_eq(refined.simulated, 1);
    for (int g = 0; g < refined.plan->n_groups; g++)
        ck_assert_int_eq(refined.plan->groups[g].slices.count, 1);
    tp_refined_fini(&refined);
    tp_plan_free(start);
    tp_slices_fini(&slices);
}
END_TEST

/* One that fits is found among those that do not, however fast they are; without any, the stage
 * that lacks most is named. */
START_TEST(memory_comes_first)
{
    struct tp_plan *starts[2] = {plan_of(6, 2, 8, TP_SCHEDULE_SEQ1F1B, 6, 1),
                                 plan_of(6, 2, 8, TP_SCHEDULE_SEQ1F1B, 1, 2)};
    struct tp_simulation large, small;
    struct tp_refined refined;
    struct fake_cost fake;

    fake_cost_init(&fake);
    fake.fixed = 1; /* few units are much faster */
    ck_assert_int_eq(tp_simulate(starts[0], &fake.cost, NULL, &large), TP_OK);
    ck_assert_int_eq(tp_simulate(starts[1], &fake.cost, NULL, &small), TP_OK);
    ck_assert_double_lt(large.step_seconds, small.step_seconds);
    ck_assert_uint_gt(large.stages[0].peak_bytes, small.stages[0].peak_bytes);

    struct tp_refine_task task = {.cost = &fake.cost, .grain = GRAIN};
    task.memory = small.stages[0].peak_bytes > small.stages[1].peak_bytes
                      ? small.stages[0].peak_bytes
                      : small.stages[1].peak_bytes;
    ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)starts, 2, &refined), TP_OK);
    ck_assert(same(starts[1], refined.plan));
    ck_assert_uint_le(refined.shortage.need, refined.shortage.limit);
    tp_refined_fini(&refined);

    fake.devices[0].memory = 1000;
    task.memory = 0;
    ck_assert_int_eq(tp_refine(&task, (const struct tp_plan *const *)starts, 2, &refined), TP_OK);
    ck_assert_uint_eq(refined.shortage.limit, 1000);
    ck_assert_uint_eq(refined.shortage.need, small.stages[refined.shortage.stage].peak_bytes);
    tp_refined_fini(&refined);
    tp_simulation_fini(&large);
    tp_simulation_fini(&small);
    tp_plan_free(starts[0]);
    tp_plan_free(starts[1]);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("refine");

    tcase_add_test(cases, nothing_is_faster_than_its_bound);
    tcase_add_test(cases, equal_stages_take_their_bound);
    tcase_add_test(cases, results_are_no_worse_than_starts);
    tcase_add_test(cases, equal_stages_come_close_to_the_best);
    tcase_add_test(cases, what_may_not_change_stays);
    tcase_add_test(cases, a_token_stays_whole);
    tcase_add_test(cases, memory_comes_first);
    return expect_run(cases);
}
