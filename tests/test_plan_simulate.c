/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated steps against the closed form, against small cases done by hand, and against a second
 * simulator that knows nothing of queues: it repeats the rules until no time changes. */
#include "config.h"

#include <math.h>
#include <stdbool.h>

#include <jansson.h>

#include "base/clock.h"
#include "base/rng.h"
#include "expect.h"
#include "plan/schedule.h"
#include "plan/simulate.h"

/* ---- Costs ---- */

/* Random ones, the same for the same question; the parts that are off cost nothing. */
struct random_cost {
    uint64_t seed;
    bool ends, links, context;
    double allreduce;
    struct tp_cost_device devices[2];
    int ranks[64];
};

static double random_at(const struct random_cost *cost, uint32_t stream, uint64_t position)
{
    const struct tp_rng rng = {.seed = cost->seed, .use = TP_RNG_SAMPLE, .stream = stream};

    return tp_rng_uniform(&rng, position);
}

static bool has_group(const void *self, int device, int b)
{
    (void)self;
    (void)device;
    return b <= 8;
}

static double layer_of(const void *self, int device, enum tp_direction direction, int b, int s,
                       int c)
{
    const struct random_cost *cost = self;
    const uint64_t question =
        ((uint64_t)b << 40) | ((uint64_t)s << 20) | (uint64_t)(cost->context ? c : 0);

    return 0.1 + random_at(cost, (uint32_t)(device * 2 + (int)direction), question);
}

static double gradient_of(const void *self, int device, int b, int s)
{
    return 0.1 + random_at(self, 40 + (uint32_t)device, ((uint64_t)b << 20) + (uint64_t)s);
}

static double end_of(const struct random_cost *cost, uint32_t stream, enum tp_direction direction,
                     int b, int s)
{
    return cost->ends ? random_at(cost, stream + direction, ((uint64_t)b << 20) + (uint64_t)s) : 0;
}

static double embed_of(const void *self, int device, enum tp_direction direction, int b, int s)
{
    return end_of(self, 10 + 4 * (uint32_t)device, direction, b, s);
}

static double head_of(const void *self, int device, enum tp_direction direction, int b, int s)
{
    return end_of(self, 20 + 4 * (uint32_t)device, direction, b, s);
}

static double link_of(const void *self, int boundary, size_t bytes)
{
    const struct random_cost *cost = self;

    return cost->links ? random_at(cost, 30 + (uint32_t)boundary, bytes) : 0;
}

static double allreduce_of(const void *self, int ranks, size_t bytes)
{
    return ((const struct random_cost *)self)->allreduce * ranks * (double)bytes;
}

static struct tp_cost cost_of(struct random_cost *self)
{
    for (int d = 0; d < 2; d++)
        self->devices[d] = (struct tp_cost_device){
            .name = "device", .footprint = {.align = 4096, .element_bytes = 4}};
    return (struct tp_cost){.self = self,
                            .op = 1,
                            .n_devices = 2,
                            .devices = self->devices,
                            .n_ranks = 64,
                            .device_of_rank = self->ranks,
                            .has_group = has_group,
                            .layer = layer_of,
                            .embed = embed_of,
                            .head = head_of,
                            .link = link_of,
                            .allreduce = allreduce_of};
}

/* ---- Plans, in place ---- */

enum { MAX_STAGES = 6, MAX_GROUPS = 6, MAX_SLICES = 6, MAX_UNITS = MAX_GROUPS * MAX_SLICES };

struct drawn {
    struct tp_plan plan;
    struct tp_stage_layers stages[MAX_STAGES];
    struct tp_group groups[MAX_GROUPS];
    int lengths[MAX_GROUPS][MAX_SLICES];
    int flights[MAX_GROUPS];
};

static int draw(const struct tp_rng *rng, uint64_t *at, int least, int most)
{
    return least + (int)tp_rng_below(rng, (*at)++, (uint64_t)(most - least + 1));
}

static void draw_flights(struct drawn *drawn, const struct tp_rng *rng, uint64_t *at)
{
    struct tp_plan *plan = &drawn->plan;

    plan->flights = drawn->flights;
    for (int left = plan->n_groups; left > 0; plan->n_flights++) {
        int groups = draw(rng, at, 1, left);
        drawn->flights[plan->n_flights] = groups;
        left -= groups;
    }
}

/* A plan of at most so many stages, groups and slices; equal stages have a layer each. */
static void draw_plan(struct drawn *drawn, uint64_t seed, bool equal, enum tp_schedule_kind kind)
{
    const struct tp_rng rng = {.seed = seed, .use = TP_RNG_SHUFFLE, .stream = 1};
    struct tp_plan *plan = &drawn->plan;
    uint64_t at = 0;

    *drawn = (struct drawn){.plan = {.seq_len = 24, .data = 1, .op = 1, .schedule = kind}};
    ck_assert_int_eq(tp_model_preset("tiny", &plan->model), TP_OK);
    plan->model.n_layer = 0;
    plan->pipe = plan->n_stages = draw(&rng, &at, 1, MAX_STAGES);
    plan->stages = drawn->stages;
    for (int k = 0; k < plan->n_stages; k++) {
        int layers = equal ? 1 : draw(&rng, &at, 1, 3);
        drawn->stages[k] =
            (struct tp_stage_layers){.first_layer = plan->model.n_layer, .n_layer = layers};
        plan->model.n_layer += layers;
    }
    plan->n_groups = draw(&rng, &at, 1, MAX_GROUPS);
    plan->groups = drawn->groups;
    for (int g = 0; g < plan->n_groups; g++) {
        struct tp_group *group = &drawn->groups[g];
        group->sequences = draw(&rng, &at, 1, 3);
        plan->batch += group->sequences;
        group->slices.count = tp_schedule_is_whole(kind) ? 1 : draw(&rng, &at, 1, MAX_SLICES);
        group->slices.lengths = drawn->lengths[g];
        int left = plan->seq_len;
        for (int i = 0; i < group->slices.count; i++) {
            int after = group->slices.count - 1 - i;
            int length = after == 0 ? left : draw(&rng, &at, 1, left - after);
            drawn->lengths[g][i] = length;
            left -= length;
        }
    }
    draw_flights(drawn, &rng, &at);
}

static struct tp_simulation simulate(const struct tp_plan *plan, const struct tp_cost *cost)
{
    struct tp_simulation simulation;

    ck_assert_int_eq(tp_simulate(plan, cost, NULL, &simulation), TP_OK);
    return simulation;
}

static double step_of(const struct tp_plan *plan, const struct tp_cost *cost)
{
    struct tp_simulation simulation = simulate(plan, cost);
    double seconds = simulation.step_seconds;

    tp_simulation_fini(&simulation);
    return seconds;
}

/* ---- The closed form ---- */

START_TEST(equal_stages_take_what_the_closed_form_says)
{
    for (uint64_t seed = 0; seed < 500; seed++) {
        struct random_cost self = {.seed = seed, .context = true};
        struct tp_cost cost = cost_of(&self);
        struct drawn drawn;
        draw_plan(&drawn, seed, true, seed % 5 == 0 ? TP_SCHEDULE_GPIPE : TP_SCHEDULE_TERAPIPE);
        drawn.plan.n_flights = 1;
        drawn.flights[0] = drawn.plan.n_groups;
        double sum = 0, largest[2] = {0, 0};
        for (int g = 0; g < drawn.plan.n_groups; g++) {
            const struct tp_group *group = &drawn.groups[g];
            for (int i = 0, start = 0; i < group->slices.count; start += drawn.lengths[g][i++])
                for (int d = 0; d < 2; d++) {
                    double seconds = layer_of(&self, 0, (enum tp_direction)d, group->sequences,
                                              drawn.lengths[g][i], start);
                    sum += seconds;
                    largest[d] = fmax(largest[d], seconds);
                }
        }
        sum += (drawn.plan.n_stages - 1) * (largest[0] + largest[1]);
        ck_assert_double_eq_tol(step_of(&drawn.plan, &cost), sum, 1e-9);
    }
}
END_TEST

/* ---- The second simulator ---- */

struct turn {
    int direction, place;
};

struct second {
    const struct tp_plan *plan;
    const struct random_cost *self;
    int n_units, forward[MAX_UNITS], backward[MAX_UNITS]; /* unit at each place */
    int group[MAX_UNITS], start[MAX_UNITS], length[MAX_UNITS];
    struct turn turns[MAX_STAGES][2 * MAX_UNITS];
    int n_turns[MAX_STAGES];
    double end[MAX_STAGES][2][MAX_UNITS], arrival[MAX_STAGES][2][MAX_UNITS];
    double makespan;
};

static void number_units(struct second *s)
{
    for (int g = 0; g < s->plan->n_groups; g++) {
        const struct tp_slices *slices = &s->plan->groups[g].slices;
        for (int i = 0, start = 0; i < slices->count; start += slices->lengths[i++]) {
            s->group[s->n_units + i] = g;
            s->start[s->n_units + i] = start;
            s->length[s->n_units + i] = slices->lengths[i];
            s->forward[s->n_units + i] = s->n_units + i;
            s->backward[s->n_units + i] = s->n_units + slices->count - 1 - i;
        }
        s->n_units += slices->count;
    }
}

/* The list of a stage, as contracts say it. */
static void list_turns(struct second *s, int stage)
{
    const struct tp_plan *plan = s->plan;
    int n = 0, done = 0, group = 0, most = 0;
    struct turn *turns = s->turns[stage];

    for (int g = 0; g < plan->n_groups; g++)
        most = plan->groups[g].slices.count > most ? plan->groups[g].slices.count : most;
    for (int f = 0; f < plan->n_flights; f++) {
        int units = 0;
        for (int g = 0; g < plan->flights[f]; g++)
            units += plan->groups[group++].slices.count;
        int first = plan->n_stages - stage + most - 2;
        if (first > units ||
            (plan->schedule != TP_SCHEDULE_1F1B && plan->schedule != TP_SCHEDULE_SEQ1F1B))
            first = units;
        int b = 0;
        for (int i = 0; i < first; i++)
            turns[n++] = (struct turn){0, done + i};
        for (int i = first; i < units; i++) {
            turns[n++] = (struct turn){0, done + i};
            turns[n++] = (struct turn){1, done + b++};
        }
        while (b < units && plan->schedule != TP_SCHEDULE_FORWARD)
            turns[n++] = (struct turn){1, done + b++};
        done += units;
    }
    s->n_turns[stage] = n;
}

/* What a group's weight gradients keep a stage busy after its last backward. */
static double second_gradients(const struct second *s, int k, int unit)
{
    const struct tp_plan *plan = s->plan;
    double slowest = 0;

    if (!plan->delay_wgrad || s->start[unit] > 0)
        return 0;
    for (int o = 0; o < plan->op; o++)
        slowest =
            fmax(slowest, plan->stages[k].n_layer *
                              gradient_of(s->self, s->self->ranks[k * plan->op + o],
                                          plan->groups[s->group[unit]].sequences, plan->seq_len));
    return slowest;
}

static double second_seconds(const struct second *s, int k, int direction, int unit)
{
    const struct tp_plan *plan = s->plan;
    const int b = plan->groups[s->group[unit]].sequences, length = s->length[unit];
    double slowest = 0;

    for (int o = 0; o < plan->op; o++) {
        const int device = s->self->ranks[k * plan->op + o];
        double layer =
            layer_of(s->self, device, (enum tp_direction)direction, b, length, s->start[unit]);
        if (direction == 1 && plan->recompute)
            layer += layer_of(s->self, device, TP_FORWARD, b, length, s->start[unit]);
        double seconds = plan->stages[k].n_layer * layer;
        if (k == 0)
            seconds += embed_of(s->self, device, (enum tp_direction)direction, b, length);
        if (k == plan->n_stages - 1)
            seconds += head_of(s->self, device, (enum tp_direction)direction, b, length);
        slowest = fmax(slowest, seconds);
    }
    return slowest;
}

/* One pass over all rules; true when a time changed. */
static bool relax(struct second *s)
{
    const struct tp_plan *plan = s->plan;
    bool changed = false;

    for (int k = 0; k < plan->n_stages; k++) {
        double free = 0;
        for (int i = 0; i < s->n_turns[k]; i++) {
            const int d = s->turns[k][i].direction, place = s->turns[k][i].place;
            const int unit = d == 0 ? s->forward[place] : s->backward[place];
            const int from = d == 0 ? k - 1 : k + 1, boundary = d == 0 ? k - 1 : k;
            double begin = free;
            if (from >= 0 && from < plan->n_stages) {
                const size_t bytes = (size_t)plan->groups[s->group[unit]].sequences *
                                     (size_t)s->length[unit] * (size_t)plan->model.n_embd * 4;
                double leaves = s->end[from][d][place];
                if (place > 0)
                    leaves = fmax(leaves, s->arrival[k][d][place - 1]);
                s->arrival[k][d][place] = leaves + link_of(s->self, boundary, bytes);
                begin = fmax(begin, s->arrival[k][d][place]);
            }
            free = begin + second_seconds(s, k, d, unit);
            changed |= s->end[k][d][place] != free;
            s->end[k][d][place] = free;
            if (d == 1)
                free += second_gradients(s, k, unit);
            s->makespan = fmax(s->makespan, free);
        }
    }
    return changed;
}

static double second_makespan(const struct tp_plan *plan, const struct random_cost *self)
{
    struct second *s = calloc(1, sizeof *s);

    s->plan = plan;
    s->self = self;
    number_units(s);
    for (int k = 0; k < plan->n_stages; k++)
        list_turns(s, k);
    for (int pass = 0; relax(s); pass++)
        ck_assert_msg(pass < 2000, "a schedule deadlocks");
    double makespan = s->makespan;
    free(s);
    return makespan;
}

static void draw_any(struct drawn *drawn, struct random_cost *self, uint64_t seed)
{
    *self = (struct random_cost){
        .seed = seed, .ends = seed & 1, .links = seed & 2, .context = seed & 4};
    draw_plan(drawn, seed, false, (enum tp_schedule_kind)(seed % 5));
    drawn->plan.recompute = seed & 8;
    drawn->plan.op = 1 + (int)(seed / 16 % 3);
    for (int rank = 0; rank < 64; rank++)
        self->ranks[rank] = seed & 32 ? (int)(seed / 7 + (uint64_t)rank * 5) % 2 : 0;
}

START_TEST(a_second_simulator_agrees)
{
    for (uint64_t seed = 0; seed < 1000; seed++) {
        struct random_cost self;
        struct drawn drawn;
        draw_any(&drawn, &self, seed);
        struct tp_cost cost = cost_of(&self);
        if (seed % 3 == 0 && !drawn.plan.recompute) {
            drawn.plan.delay_wgrad = true;
            cost.gradient = gradient_of;
        }
        struct tp_simulation simulation = simulate(&drawn.plan, &cost);
        ck_assert_double_eq_tol(simulation.makespan, second_makespan(&drawn.plan, &self), 1e-9);
        ck_assert_double_eq(simulation.step_seconds, simulation.makespan);
        double bubble = 0;
        for (int k = 0; k < drawn.plan.n_stages; k++) {
            ck_assert_double_le(simulation.stages[k].busy, simulation.makespan + 1e-9);
            bubble += 1 - simulation.stages[k].busy / simulation.makespan;
        }
        ck_assert_double_eq_tol(simulation.bubble, bubble / drawn.plan.n_stages, 1e-9);
        tp_simulation_fini(&simulation);
    }
}
END_TEST

START_TEST(faster_parts_make_no_step_slower)
{
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct random_cost self;
        struct drawn drawn;
        draw_any(&drawn, &self, seed | 3);
        struct tp_cost cost = cost_of(&self);
        double whole = step_of(&drawn.plan, &cost);
        drawn.plan.recompute = false;
        double stored = step_of(&drawn.plan, &cost);
        self.ends = false;
        double bare = step_of(&drawn.plan, &cost);
        self.links = false;
        double wired = step_of(&drawn.plan, &cost);
        ck_assert_double_le(stored, whole + 1e-9);
        ck_assert_double_le(bare, stored + 1e-9);
        ck_assert_double_le(wired, bare + 1e-9);
    }
}
END_TEST

/* ---- By hand ---- */

/* Forward 1 s and backward 2 s a layer, links of 0.5 s. */
static double plain_layer(const void *self, int device, enum tp_direction direction, int b, int s,
                          int c)
{
    (void)self, (void)device, (void)b, (void)s, (void)c;
    return direction == TP_FORWARD ? 1 : 2;
}

static double plain_end(const void *self, int device, enum tp_direction direction, int b, int s)
{
    (void)self, (void)device, (void)direction, (void)b, (void)s;
    return 0;
}

static double plain_link(const void *self, int boundary, size_t bytes)
{
    (void)boundary, (void)bytes;
    return *(const double *)self;
}

static double plain_allreduce(const void *self, int ranks, size_t bytes)
{
    (void)self;
    return ranks * 1e-9 * (double)bytes;
}

static struct tp_cost plain_cost(const double *link)
{
    static const struct tp_cost_device device = {.name = "plain",
                                                 .footprint = {.align = 64, .element_bytes = 4}};
    return (struct tp_cost){.self = link,
                            .n_devices = 1,
                            .devices = &device,
                            .has_group = has_group,
                            .layer = plain_layer,
                            .embed = plain_end,
                            .head = plain_end,
                            .link = plain_link,
                            .allreduce = plain_allreduce,
                            .update_seconds_per_parameter = 0};
}

static struct tp_plan *uniform_plan(int n_layer, int pipe, int batch, int slices,
                                    enum tp_schedule_kind kind)
{
    struct tp_model model;
    struct tp_slices cut;
    struct tp_plan *plan;

    ck_assert_int_eq(tp_model_preset("tiny", &model), TP_OK);
    model.n_layer = n_layer;
    ck_assert_int_eq(tp_slices_uniform(64, slices, &cut), TP_OK);
    ck_assert_int_eq(tp_plan_default(&model, 64, batch, pipe, kind, 1, &cut, &plan), TP_OK);
    tp_slices_fini(&cut);
    return plan;
}

START_TEST(small_steps_by_hand)
{
    static const struct {
        int n_layer, pipe, batch, slices;
        enum tp_schedule_kind kind;
        double link, seconds;
        int peak_units[3];
    } cases[] = {
        /* one stage: 2 x (1 + 2) */
        {1, 1, 1, 2, TP_SCHEDULE_TERAPIPE, 0.5, 6, {2}},
        /* F: 0-1 1-2 | 1.5-2.5 2.5-3.5; B: 3.5-5.5 5.5-7.5 | 6-8 8-10 */
        {2, 2, 1, 2, TP_SCHEDULE_TERAPIPE, 0.5, 10, {2, 2}},
        /* 2 + 1 layers. F: 0-2 2-4 | 4-5 after 2-3; B: 5-7 7-9 | 7-11 11-15 */
        {3, 2, 1, 2, TP_SCHEDULE_TERAPIPE, 0, 15, {2, 2}},
        /* the link is the bottleneck. F: 0-1 1-2; messages 1-4 4-7; F 4-5 7-8; B 8-10 10-12;
         * messages 10-13 13-16; B 13-15 16-18 */
        {2, 2, 1, 2, TP_SCHEDULE_TERAPIPE, 3, 18, {2, 2}},
        {2, 2, 2, 1, TP_SCHEDULE_GPIPE, 0.5, 10, {2, 2}},
        /* stage 1 lists F B F B: 1-2 2-4 4-5 5-7; stage 0 F F B B: 0-1 1-2 4-6 7-9 */
        {2, 2, 2, 1, TP_SCHEDULE_1F1B, 0, 9, {2, 1}},
        {2, 2, 1, 2, TP_SCHEDULE_FORWARD, 0.5, 3.5, {1, 1}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_plan *plan = uniform_plan(cases[i].n_layer, cases[i].pipe, cases[i].batch,
                                            cases[i].slices, cases[i].kind);
        struct tp_cost cost = plain_cost(&cases[i].link);
        struct tp_simulation simulation = simulate(plan, &cost);
        ck_assert_msg(fabs(simulation.step_seconds - cases[i].seconds) < 1e-12,
                      "case %zu takes %g s, expected %g", i, simulation.step_seconds,
                      cases[i].seconds);
        for (int k = 0; k < cases[i].pipe; k++) {
            ck_assert_int_eq(simulation.stages[k].peak_units, cases[i].peak_units[k]);
            ck_assert_uint_eq(simulation.stages[k].peak_tokens,
                              (size_t)cases[i].peak_units[k] * 64 / (size_t)cases[i].slices);
        }
        tp_simulation_fini(&simulation);
        tp_plan_free(plan);
    }
}
END_TEST

static double short_layer(const void *self, int device, enum tp_direction direction, int b, int s,
                          int c)
{
    (void)self, (void)device, (void)direction, (void)b, (void)s, (void)c;
    return 1;
}

static double whole_gradient(const void *self, int device, int b, int s)
{
    (void)self, (void)device;
    return b * s / 12.0;
}

/* Two slices over two stages. A backward of 2 s at once: the step takes 9 s. Half of it, and the
 * weight gradients of both slices in 2 s: stage 1 hands its last gradient on at 5 s and is busy
 * until 7 s, stage 0 ends its last backward at 6 s and is busy until 8 s. */
START_TEST(no_message_waits_for_delayed_gradients)
{
    const double link = 0;
    struct tp_cost cost = plain_cost(&link);
    struct tp_plan *plan = uniform_plan(2, 2, 1, 2, TP_SCHEDULE_TERAPIPE);
    struct tp_simulation simulation;

    plan->seq_len = 24;
    ck_assert_double_eq_tol(step_of(plan, &cost), 9, 1e-12);
    plan->delay_wgrad = true;
    expect_fail(TP_ERR_INPUT, "no times of weight gradients alone",
                tp_simulate(plan, &cost, NULL, &simulation));
    cost.layer = short_layer;
    cost.gradient = whole_gradient;
    simulation = simulate(plan, &cost);
    ck_assert_double_eq_tol(simulation.makespan, 8, 1e-12);
    ck_assert_double_eq_tol(simulation.stages[0].busy, 6, 1e-12);
    ck_assert_double_eq_tol(simulation.stages[1].bubble, 0.25, 1e-12);
    tp_simulation_fini(&simulation);
    plan->delay_wgrad = false;
    expect_fail(TP_ERR_INPUT, "without --delay-wgrad-compute",
                tp_simulate(plan, &cost, NULL, &simulation));
    tp_plan_free(plan);
}
END_TEST

START_TEST(interleaving_keeps_the_makespan_and_bounds_what_is_alive)
{
    const double link = 0;
    struct tp_cost cost = plain_cost(&link);

    for (int K = 1; K <= 6; K++)
        for (int batch = 1; batch <= 8; batch++) {
            struct tp_plan *all = uniform_plan(K, K, batch, 1, TP_SCHEDULE_GPIPE);
            struct tp_plan *turns = uniform_plan(K, K, batch, 1, TP_SCHEDULE_1F1B);
            struct tp_simulation simulation = simulate(turns, &cost);
            ck_assert_double_eq_tol(simulation.step_seconds, step_of(all, &cost), 1e-9);
            for (int k = 0; k < K; k++)
                ck_assert_int_eq(simulation.stages[k].peak_units, batch < K - k ? batch : K - k);
            tp_simulation_fini(&simulation);
            tp_plan_free(all);
            tp_plan_free(turns);
        }
    for (int slices = 1; slices <= 4; slices++) {
        struct tp_plan *plan = uniform_plan(4, 4, 8, slices, TP_SCHEDULE_SEQ1F1B);
        struct tp_simulation simulation = simulate(plan, &cost);
        for (int k = 0; k < 4; k++)
            ck_assert_int_eq(simulation.stages[k].peak_units, 4 - k + slices - 1);
        tp_simulation_fini(&simulation);
        tp_plan_free(plan);
    }
}
END_TEST

START_TEST(flights_run_one_after_the_other)
{
    const double link = 0;
    struct tp_cost cost = plain_cost(&link);
    struct tp_plan *plan = uniform_plan(2, 2, 4, 2, TP_SCHEDULE_TERAPIPE);
    int halves[] = {2, 2}, *whole = plan->flights;
    struct tp_simulation once = simulate(plan, &cost);

    plan->flights = halves;
    plan->n_flights = 2;
    struct tp_simulation twice = simulate(plan, &cost);
    ck_assert_int_eq(once.stages[1].peak_units, 8);
    ck_assert_int_eq(twice.stages[1].peak_units, 4);
    ck_assert_double_gt(twice.step_seconds, once.step_seconds);
    ck_assert_uint_lt(twice.stages[1].peak_bytes, once.stages[1].peak_bytes);
    tp_simulation_fini(&once);
    tp_simulation_fini(&twice);
    plan->flights = whole;
    plan->n_flights = 1;
    tp_plan_free(plan);
}
END_TEST

START_TEST(replicas_exchange_and_all_update)
{
    const double link = 0;
    struct tp_cost cost = plain_cost(&link);
    struct tp_plan *plan = uniform_plan(3, 2, 1, 1, TP_SCHEDULE_TERAPIPE);
    struct tp_stage_shape shape;
    struct tp_unit unit;
    size_t parameters[2];

    tp_units_cut(plan, &unit);
    for (int k = 0; k < 2; k++) {
        tp_plan_stage_shape(plan, &unit, k, &shape);
        parameters[k] = tp_stage_parameters(&shape);
    }
    /* The first stage has both embeddings and two layers, the last wte again and one. */
    ck_assert_uint_gt(parameters[0], parameters[1]);
    const size_t tied = (size_t)plan->model.vocab_size * (size_t)plan->model.n_embd;
    ck_assert_uint_eq(parameters[0] + parameters[1] - tied,
                      (size_t)tp_model_parameter_count(&plan->model));
    cost.update_seconds_per_parameter = 1e-6;
    plan->data = 4;
    struct tp_simulation simulation = simulate(plan, &cost);
    ck_assert_double_eq_tol(simulation.allreduce_seconds, 4e-9 * 4 * (double)parameters[0], 1e-12);
    ck_assert_double_eq_tol(simulation.update_seconds, 1e-6 * (double)parameters[0], 1e-12);
    ck_assert_double_eq_tol(
        simulation.step_seconds,
        simulation.makespan + simulation.allreduce_seconds + simulation.update_seconds, 1e-12);
    tp_simulation_fini(&simulation);
    tp_plan_free(plan);
}
END_TEST

/* ---- Memory ---- */

START_TEST(bytes_are_those_of_the_lists)
{
    const double link = 0;
    struct tp_cost cost = plain_cost(&link);
    static const enum tp_schedule_kind kinds[] = {TP_SCHEDULE_GPIPE, TP_SCHEDULE_1F1B,
                                                  TP_SCHEDULE_TERAPIPE, TP_SCHEDULE_SEQ1F1B,
                                                  TP_SCHEDULE_FORWARD};

    for (size_t i = 0; i < 5; i++)
        for (int batch = 1; batch <= 6; batch++) {
            struct tp_plan *whole = uniform_plan(5, 3, batch, i < 2 ? 1 : 3, kinds[i]), *plan;
            const int flights = i < 4 ? 1 + batch / 3 : 1;
            ck_assert_int_eq(tp_plan_in_flights(whole, flights, &plan), TP_OK);
            tp_plan_free(whole);
            for (int g = 0; g < plan->n_groups && i >= 2; g++) { /* 31, 21 and 12 tokens */
                plan->groups[g].slices.lengths[0] += 9;
                plan->groups[g].slices.lengths[2] -= 9;
            }
            struct tp_simulation simulation = simulate(plan, &cost);
            for (int k = 0; k < 3; k++) {
                struct tp_schedule *list;
                ck_assert_int_eq(tp_schedule_new(plan, k, &list), TP_OK);
                const struct tp_stage_shape shape = {.model = plan->model,
                                                     .layers = plan->stages[k],
                                                     .seq_len = plan->seq_len,
                                                     .batch = plan->batch,
                                                     .caches = list->caches,
                                                     .group = list->group,
                                                     .rows = list->rows,
                                                     .input_rows = list->input_rows,
                                                     .unit_rows = list->unit_rows,
                                                     .slots = list->slots,
                                                     .alternates = list->alternates,
                                                     .train = i < 4};
                ck_assert_uint_eq(simulation.stages[k].peak_bytes,
                                  tp_stage_bytes(&shape, &cost.devices[0].footprint));
                tp_schedule_free(list);
            }
            tp_simulation_fini(&simulation);
            tp_plan_free(plan);
        }
}
END_TEST

/* What the shapes of all stages say of a plan's live sequences and tokens. */
static void expect_live(const struct tp_plan *plan, const int *sequences)
{
    struct tp_unit units[32];
    struct tp_stage_shape shape;

    ck_assert_int_le(tp_units_count(plan), 32);
    tp_units_cut(plan, units);
    for (int k = 0; k < plan->n_stages; k++) {
        tp_plan_stage_shape(plan, units, k, &shape);
        ck_assert_int_eq(shape.caches, sequences[k]);
    }
}

START_TEST(keys_live_as_long_as_their_group)
{
    static const struct {
        enum tp_schedule_kind kind;
        int slices, sequences[3];
    } cases[] = {
        {TP_SCHEDULE_TERAPIPE, 2, {8, 8, 8}},
        {TP_SCHEDULE_FORWARD, 2, {1, 1, 1}}, /* of the group that is computed */
        {TP_SCHEDULE_1F1B, 1, {3, 2, 1}},    /* as many groups as slices */
        /* The last stage begins the second group when the first has one slice left. */
        {TP_SCHEDULE_SEQ1F1B, 2, {3, 2, 2}},
        {TP_SCHEDULE_SEQ1F1B, 3, {3, 2, 2}},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tp_plan *plan = uniform_plan(3, 3, 8, cases[i].slices, cases[i].kind);
        expect_live(plan, cases[i].sequences);
        tp_plan_free(plan);
    }
    struct tp_plan *plan = uniform_plan(3, 3, 8, 2, TP_SCHEDULE_TERAPIPE);
    int thirds[] = {3, 3, 2}, *whole = plan->flights;
    plan->flights = thirds;
    plan->n_flights = 3;
    expect_live(plan, (int[]){3, 3, 3});
    plan->flights = whole;
    plan->n_flights = 1;
    tp_plan_free(plan);
}
END_TEST

/* ---- What is refused ---- */

static double negative_layer(const void *self, int device, enum tp_direction direction, int b,
                             int s, int c)
{
    (void)self, (void)device, (void)direction, (void)b, (void)s;
    return c == 32 ? -1 : 1;
}

static double no_number(const void *self, int boundary, size_t bytes)
{
    (void)self, (void)boundary, (void)bytes;
    return NAN;
}

START_TEST(impossible_costs_are_refused)
{
    const double link = 0;
    struct tp_cost cost = plain_cost(&link);
    struct tp_plan *plan = uniform_plan(2, 2, 2, 2, TP_SCHEDULE_TERAPIPE);
    struct tp_simulation simulation;

    plan->groups[1].sequences = 9;
    expect_fail(TP_ERR_INPUT, "group 1: there are no times for 9 sequences",
                tp_simulate(plan, &cost, NULL, &simulation));
    plan->groups[1].sequences = 1;
    cost.link = no_number;
    expect_fail(TP_ERR_INPUT, "the message of 32 tokens after 0",
                tp_simulate(plan, &cost, NULL, &simulation));
    cost.link = plain_link;
    cost.layer = negative_layer;
    expect_fail(TP_ERR_INPUT, "the forward of 32 tokens after 32 of 1 sequences takes -1 seconds",
                tp_simulate(plan, &cost, NULL, &simulation));
    tp_plan_free(plan);
}
END_TEST

/* ---- Trace ---- */

START_TEST(the_trace_has_every_action)
{
    const double link = 0.5;
    struct tp_cost cost = plain_cost(&link);
    struct tp_plan *plan = uniform_plan(3, 3, 2, 2, TP_SCHEDULE_SEQ1F1B);
    struct tp_simulation simulation;
    struct tp_trace *trace;
    char *folder = scratch_new();
    const char *path = scratch_path(folder, "trace.json");
    json_error_t error;
    size_t i, counts[3] = {0, 0, 0}; /* forward and backward, send, receive */
    double busy[3] = {0, 0, 0};
    json_t *event;

    ck_assert_int_eq(tp_trace_new(&trace), TP_OK);
    ck_assert_int_eq(tp_simulate(plan, &cost, trace, &simulation), TP_OK);
    ck_assert_int_eq(tp_trace_save(trace, path), TP_OK);
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    ck_assert_msg(json != NULL, "%s", error.text);
    json_array_foreach(json_object_get(json, "traceEvents"), i, event)
    {
        const char *name = json_string_value(json_object_get(event, "name"));
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        int what = strcmp(name, "send") == 0 ? 1 : strcmp(name, "receive") == 0 ? 2 : 0;
        counts[what]++;
        if (what == 0)
            busy[json_integer_value(json_object_get(event, "pid"))] +=
                json_number_value(json_object_get(event, "dur")) * 1e-6;
    }
    ck_assert_uint_eq(counts[0], 3 * 4 * 2);
    ck_assert_uint_eq(counts[1], 2 * 4 * 2);
    ck_assert_uint_eq(counts[2], 2 * 4 * 2);
    for (int k = 0; k < 3; k++)
        ck_assert_double_eq_tol(busy[k], simulation.stages[k].busy, 1e-9);
    json_decref(json);
    tp_simulation_fini(&simulation);
    tp_trace_free(trace);
    tp_plan_free(plan);
    scratch_free(folder);
}
END_TEST

/* ---- Size ---- */

START_TEST(a_large_step_is_simulated)
{
    const double link = 0.01;
    struct tp_cost cost = plain_cost(&link);
    struct tp_plan *plan = uniform_plan(96, 96, 8, 64, TP_SCHEDULE_TERAPIPE);

    double begin = tp_clock_now();
    ck_assert_double_gt(step_of(plan, &cost), 512 * 3);
    fprintf(stdout, "96 stages, 8 groups of 64 slices: %.1f ms\n", (tp_clock_now() - begin) * 1e3);
    tp_plan_free(plan);
}
END_TEST

int main(void)
{
    TCase *cases = tcase_create("simulate");

    tcase_add_test(cases, equal_stages_take_what_the_closed_form_says);
    tcase_add_test(cases, a_second_simulator_agrees);
    tcase_add_test(cases, faster_parts_make_no_step_slower);
    tcase_add_test(cases, small_steps_by_hand);
    tcase_add_test(cases, no_message_waits_for_delayed_gradients);
    tcase_add_test(cases, interleaving_keeps_the_makespan_and_bounds_what_is_alive);
    tcase_add_test(cases, flights_run_one_after_the_other);
    tcase_add_test(cases, replicas_exchange_and_all_update);
    tcase_add_test(cases, bytes_are_those_of_the_lists);
    tcase_add_test(cases, keys_live_as_long_as_their_group);
    tcase_add_test(cases, impossible_costs_are_refused);
    tcase_add_test(cases, the_trace_has_every_action);
    tcase_add_test(cases, a_large_step_is_simulated);
    return expect_run(cases);
}
