/* SPDX-License-Identifier: Apache-2.0 */
/* Layers to stages, against every other way. */
#include "config.h"

#include <math.h>

#include "base/rng.h"
#include "expect.h"
#include "fake_cost.h"
#include "plan/assign.h"

enum { LAYERS = 9, STAGES = 4 };

static struct tp_plan *plan_of(int n_layer, int n_stages)
{
    struct tp_plan *plan;
    struct tp_model model;

    ck_assert_int_eq(tp_model_preset("gpt2", &model), TP_OK);
    model.n_layer = n_layer;
    ck_assert_int_eq(tp_plan_default(&model, 64, 3, n_stages, TP_SCHEDULE_TERAPIPE, 2, NULL, &plan),
                     TP_OK);
    return plan;
}

/* Seconds of a stage with so many layers for the whole step. */
static double seconds_of(const struct tp_plan *plan, const struct tp_cost *cost, int k, int n_layer)
{
    const int device = tp_cost_device_of(cost, k);
    double sum = 0;

    for (int g = 0; g < plan->n_groups; g++)
        for (int i = 0, c = 0; i < plan->groups[g].slices.count; i++) {
            const int b = plan->groups[g].sequences, s = plan->groups[g].slices.lengths[i];
            for (int d = TP_FORWARD; d <= TP_BACKWARD; d++) {
                sum += n_layer * cost->layer(cost->self, device, d, b, s, c);
                sum += k == 0 ? cost->embed(cost->self, device, d, b, s) : 0;
                sum += k == plan->n_stages - 1 ? cost->head(cost->self, device, d, b, s) : 0;
            }
            c += s;
        }
    return sum;
}

/* Least slowest stage of all ways to give left layers to stages from k on. */
static double best_from(const struct tp_plan *plan, const struct tp_cost *cost, int k, int left)
{
    const int after = plan->n_stages - 1 - k;
    double best = INFINITY;

    if (after == 0)
        return seconds_of(plan, cost, k, left);
    for (int n = 1; n <= left - after; n++)
        best =
            fmin(best, fmax(seconds_of(plan, cost, k, n), best_from(plan, cost, k + 1, left - n)));
    return best;
}

START_TEST(no_other_way_is_faster)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        const struct tp_rng rng = {.seed = seed, .use = TP_RNG_SAMPLE};
        struct fake_cost fake;
        struct tp_stage_layers stages[STAGES];
        const int n_stages = 1 + (int)tp_rng_below(&rng, 0, STAGES);
        struct tp_plan *plan = plan_of(LAYERS, n_stages);
        double slowest = 0;
        int sum = 0;

        fake_cost_init(&fake);
        fake.embed = 1e-4 * tp_rng_uniform(&rng, 1);
        fake.head = 1e-3 * tp_rng_uniform(&rng, 2);
        fake_cost_mix(&fake, 0.5 + 2 * tp_rng_uniform(&rng, 3), 0.5 + 2 * tp_rng_uniform(&rng, 4));
        ck_assert_int_eq(tp_assign(plan, &fake.cost, stages), TP_OK);
        for (int k = 0; k < n_stages; k++) {
            ck_assert_int_eq(stages[k].first_layer, sum);
            ck_assert_int_ge(stages[k].n_layer, 1);
            sum += stages[k].n_layer;
            slowest = fmax(slowest, seconds_of(plan, &fake.cost, k, stages[k].n_layer));
        }
        ck_assert_int_eq(sum, LAYERS);
        ck_assert_double_le(slowest, best_from(plan, &fake.cost, 0, LAYERS) * (1 + 1e-12));
        tp_plan_free(plan);
    }
}
END_TEST

START_TEST(equal_stages_get_equal_parts)
{
    struct fake_cost fake;
    struct tp_stage_layers stages[LAYERS], even[LAYERS];

    fake_cost_init(&fake);
    for (int n_stages = 1; n_stages <= LAYERS; n_stages++) {
        struct tp_plan *plan = plan_of(LAYERS, n_stages);
        ck_assert_int_eq(tp_assign(plan, &fake.cost, stages), TP_OK);
        tp_stages_even(LAYERS, n_stages, even);
        ck_assert_mem_eq(stages, even, (size_t)n_stages * sizeof *even);
        tp_plan_free(plan);
    }
}
END_TEST

/* The slowest rank of a stage counts. */
START_TEST(op_ranks_wait_for_each_other)
{
    struct fake_cost fake;
    struct tp_stage_layers stages[2];
    struct tp_plan *plan = plan_of(9, 2);

    fake_cost_init(&fake);
    fake_cost_mix(&fake, 2, 1);
    plan->op = 2; /* stage 0 has devices 0 and 1, stage 1 has 2 and 0 */
    ck_assert_int_eq(tp_assign(plan, &fake.cost, stages), TP_OK);
    ck_assert_int_eq(stages[0].n_layer, 3);
    ck_assert_int_eq(stages[1].n_layer, 6);
    tp_plan_free(plan);
}
END_TEST

START_TEST(refusals)
{
    struct fake_cost fake;
    struct tp_stage_layers stages[2];
    struct tp_plan *plan = plan_of(9, 2);

    fake_cost_init(&fake);
    fake.missing = 1 << 2;
    expect_fail(TP_ERR_INPUT, "groups of 2 sequences", tp_assign(plan, &fake.cost, stages));
    fake.missing = 0;
    fake.fixed = NAN;
    expect_fail(TP_ERR_INPUT, "nan", tp_assign(plan, &fake.cost, stages));
    tp_plan_free(plan);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("assign");

    tcase_add_test(cases, no_other_way_is_faster);
    tcase_add_test(cases, equal_stages_get_equal_parts);
    tcase_add_test(cases, op_ranks_wait_for_each_other);
    tcase_add_test(cases, refusals);
    return expect_run(cases);
}
