/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of all small grids, and the checker: it passes them, and finds what is changed. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <check.h>

#include "base/log.h"
#include "expect.h"
#include "plan/schedule.h"

enum { MAX_STAGES = 12, GRID_STAGES = 5 };

static const struct tp_model model = {.n_layer = MAX_STAGES,
                                      .n_embd = 32,
                                      .n_head = 4,
                                      .n_inner = 128,
                                      .vocab_size = 97,
                                      .n_positions = 64};

/* The lists of all stages. */
struct lists {
    struct tp_plan *plan;
    int n_stages;
    struct tp_schedule *of[MAX_STAGES];
};

static void lists_make(struct lists *lists, int n_stages)
{
    lists->n_stages = n_stages;
    for (int k = 0; k < n_stages; k++)
        ck_assert_int_eq(tp_schedule_new(lists->plan, k, &lists->of[k]), TP_OK);
}

static void lists_init(struct lists *lists, int n_stages, int batch, int group_size, int flights,
                       enum tp_schedule_kind kind, const struct tp_slices *slices)
{
    struct tp_plan *plan;
    int seq_len = 0;
    for (int i = 0; i < slices->count; i++)
        seq_len += slices->lengths[i];
    ck_assert_int_eq(
        tp_plan_default(&model, seq_len, batch, n_stages, kind, group_size, slices, &plan), TP_OK);
    if (flights > plan->n_groups)
        flights = plan->n_groups;
    ck_assert_int_eq(tp_plan_in_flights(plan, flights, &lists->plan), TP_OK);
    tp_plan_free(plan);
    lists_make(lists, n_stages);
}

static void lists_fini(struct lists *lists)
{
    for (int k = 0; k < lists->n_stages; k++)
        tp_schedule_free(lists->of[k]);
    tp_plan_free(lists->plan);
}

static enum tp_status lists_check(const struct lists *lists)
{
    return tp_schedule_check((const struct tp_schedule *const *)lists->of, lists->n_stages);
}

/* Runs a test on every small grid. */
static void for_each_grid(void (*test)(const struct lists *lists, int batch), int max_slices)
{
    static const enum tp_schedule_kind kinds[] = {TP_SCHEDULE_GPIPE, TP_SCHEDULE_1F1B,
                                                  TP_SCHEDULE_TERAPIPE, TP_SCHEDULE_SEQ1F1B,
                                                  TP_SCHEDULE_FORWARD};
    static int equal[] = {3, 3, 3, 3, 3, 3, 3, 3}, unequal[] = {5, 1, 9, 2, 2, 7, 1, 4};
    for (int n_stages = 1; n_stages <= GRID_STAGES; n_stages++)
        for (int batch = 1; batch <= 3; batch++)
            for (int group_size = 1; group_size <= batch; group_size++)
                for (int flights = 1; flights <= (batch - 1) / group_size + 1; flights++)
                    for (size_t kind = 0; kind < (flights == 1 ? 5 : 4); kind++)
                        for (int count = 1; count <= (kind < 2 ? 1 : max_slices); count++)
                            for (int how = 0; how < 2; how++) {
                                struct tp_slices slices = {count, how == 0 ? equal : unequal};
                                struct lists lists;
                                lists_init(&lists, n_stages, batch, group_size, flights,
                                           kinds[kind], &slices);
                                test(&lists, batch);
                                lists_fini(&lists);
                            }
}

/* ---- The lists are as promised ---- */

static bool trains(const struct tp_schedule *schedule)
{
    return schedule->actions[schedule->n_actions - 1].kind == TP_ACTION_UPDATE;
}

/* Units cover all tokens of all sequences, and fit. */
static void ck_units(const struct tp_schedule *schedule, int batch)
{
    const struct tp_unit *units = schedule->units;
    size_t tokens = 0;
    for (int i = 0; i < schedule->n_units; i++) {
        tokens += tp_unit_rows(&units[i]);
        ck_assert_uint_le(tp_unit_rows(&units[i]), schedule->unit_rows);
        ck_assert_uint_le(units[i].row + tp_unit_rows(&units[i]), schedule->rows);
        ck_assert_uint_le(units[i].input_row + tp_unit_rows(&units[i]), schedule->input_rows);
        ck_assert_int_le(units[i].cache + units[i].sequences, schedule->caches);
    }
    const struct tp_unit *last = &units[schedule->n_units - 1];
    ck_assert_int_eq(last->first_sequence + last->sequences, batch);
    ck_assert_uint_eq(tokens, (size_t)batch * (size_t)(last->slice.start + last->slice.length));
    ck_assert_int_eq(schedule->slots,
                     schedule->n_units < TP_SCHEDULE_SLOTS ? schedule->n_units : TP_SCHEDULE_SLOTS);
}

/* What is alive at once at most. */
struct alive {
    size_t rows, inputs;
    int units, input_units, caches;
};

static void count_alive(const struct tp_schedule *schedule, struct alive *most)
{
    struct alive now = {0, 0, 0, 0, 0};
    *most = now;
    for (int i = 0; i < schedule->n_actions; i++) {
        const struct tp_action *action = &schedule->actions[i];
        const bool compute = action->kind == TP_ACTION_COMPUTE;
        const bool posts = tp_schedule_receives(schedule, TP_FORWARD);
        const bool input = action->direction == TP_FORWARD &&
                           action->kind == (posts ? TP_ACTION_POST_RECEIVE : TP_ACTION_COMPUTE);
        if (action->unit < 0)
            break;
        const struct tp_unit *unit = &schedule->units[action->unit];
        const size_t rows = tp_unit_rows(unit);
        now.inputs += input ? rows : 0;
        now.input_units += input;
        if (compute && action->direction == TP_FORWARD) {
            now.rows += rows;
            now.units++;
            now.caches += unit->number == 0 ? unit->sequences : 0;
        } else if (compute) {
            now.rows -= rows;
            now.inputs -= rows;
            now.units--;
            now.input_units--;
            now.caches -= unit->number == 0 ? unit->sequences : 0;
        }
        most->rows = most->rows > now.rows ? most->rows : now.rows;
        most->inputs = most->inputs > now.inputs ? most->inputs : now.inputs;
        most->units = most->units > now.units ? most->units : now.units;
        most->input_units =
            most->input_units > now.input_units ? most->input_units : now.input_units;
        most->caches = most->caches > now.caches ? most->caches : now.caches;
    }
}

/* The slices and groups are all of one size. */
static bool is_uniform(const struct tp_schedule *schedule)
{
    for (int i = 0; i < schedule->n_units; i++)
        if (schedule->units[i].slice.length != schedule->units[0].slice.length ||
            schedule->units[i].sequences != schedule->units[0].sequences)
            return false;
    return true;
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* The flight of the unit at a place of its direction's order. */
static int flight_at(const struct tp_plan *plan, int place)
{
    int flight = 0;
    for (int left = place - plan->flights[0] * plan->groups[0].slices.count; left >= 0;)
        left -= plan->flights[++flight] * plan->groups[0].slices.count;
    return flight;
}

/* Is a forward computed after a backward of its flight? */
static bool alternates(const struct tp_plan *plan, const struct tp_schedule *schedule)
{
    int computed[2] = {0, 0};
    for (int i = 0; i < schedule->n_actions; i++) {
        const struct tp_action *action = &schedule->actions[i];
        if (action->kind != TP_ACTION_COMPUTE)
            continue;
        if (action->direction == TP_FORWARD && computed[TP_BACKWARD] > 0 &&
            flight_at(plan, computed[TP_FORWARD]) == flight_at(plan, computed[TP_BACKWARD] - 1))
            return true;
        computed[action->direction]++;
    }
    return false;
}

/* Memory holds what is alive, and no more where slices are alike. What is alive is what the kind of
 * schedule says. */
static void ck_memory(const struct tp_plan *plan, const struct tp_schedule *schedule)
{
    const int K = schedule->n_stages, s = schedule->stage, slices = plan->groups[0].slices.count;
    struct alive most;

    if (!trains(schedule)) {
        ck_assert_int_eq(schedule->caches, schedule->group);
        return;
    }
    count_alive(schedule, &most);
    ck_assert_uint_ge(schedule->rows, most.rows);
    ck_assert_uint_ge(schedule->input_rows, most.inputs);
    ck_assert_int_ge(schedule->caches, most.caches);
    ck_assert_uint_le(schedule->rows, (size_t)most.units * schedule->unit_rows);
    ck_assert_uint_le(schedule->input_rows, (size_t)most.input_units * schedule->unit_rows);
    if (is_uniform(schedule)) {
        ck_assert_uint_eq(schedule->rows, most.rows);
        ck_assert_uint_eq(schedule->input_rows, most.inputs);
        ck_assert_int_eq(schedule->caches, most.caches);
    }
    const int flight = plan->flights[0] * slices; /* the largest */
    const bool early = tp_schedule_is_early(plan->schedule);
    ck_assert_int_eq(most.units, early ? least(flight, K - s + slices - 1) : flight);
    ck_assert(schedule->alternates == alternates(plan, schedule));
    ck_assert(early || !schedule->alternates);
    if (!early && plan->n_flights == 1) {
        ck_assert_uint_eq(schedule->rows, most.rows); /* nothing is given back in between */
        ck_assert_uint_eq(schedule->input_rows, most.rows);
    }
}

/* Groups and slices in order forward; backward groups in order, slices in reverse. */
static void ck_order(const struct tp_schedule *schedule)
{
    int counts[2] = {0, 0};
    const struct tp_unit *previous[2] = {NULL, NULL};
    for (int i = 0; i < schedule->n_actions; i++) {
        const struct tp_action *action = &schedule->actions[i];
        if (action->kind != TP_ACTION_COMPUTE)
            continue;
        const struct tp_unit *unit = &schedule->units[action->unit];
        const struct tp_unit *before = previous[action->direction];
        const int step = action->direction == TP_FORWARD ? 1 : -1;
        const int first = action->direction == TP_FORWARD ? 0 : unit->last;
        if (before != NULL && before->slice.group == unit->slice.group)
            ck_assert_int_eq(unit->number, before->number + step);
        else
            ck_assert_int_eq(unit->number, first);
        if (before != NULL)
            ck_assert_int_ge(unit->slice.group, before->slice.group);
        previous[action->direction] = unit;
        ck_assert_int_eq(
            tp_schedule_unit_at(schedule, action->direction, counts[action->direction]),
            action->unit);
        ck_assert_int_eq(tp_schedule_unit_at(schedule, action->direction, action->unit),
                         counts[action->direction]);
        ck_assert_int_eq(unit->slot[action->direction],
                         counts[action->direction] % schedule->slots);
        counts[action->direction]++;
    }
    ck_assert_int_eq(counts[TP_FORWARD], schedule->n_units);
    ck_assert_int_eq(counts[TP_BACKWARD], trains(schedule) ? schedule->n_units : 0);
}

/* Receives run ahead of what is computed, and sends behind, so that both overlap with computing. */
static void ck_overlap(const struct tp_plan *plan, const struct tp_schedule *schedule)
{
    const int n = schedule->n_units, slices = plan->groups[0].slices.count;
    int posted[2] = {0, 0}, computed[2] = {0, 0}, sent[2] = {0, 0};
    for (int i = 0; i < schedule->n_actions; i++) {
        const struct tp_action *action = &schedule->actions[i];
        const enum tp_direction direction = action->direction;
        if (action->kind == TP_ACTION_POST_RECEIVE)
            posted[direction]++;
        if (action->kind == TP_ACTION_WAIT_SEND) {
            sent[direction]++;
            if (computed[direction] < n && schedule->slots > 1)
                ck_assert_int_lt(sent[direction], computed[direction]);
        }
        if (action->kind == TP_ACTION_COMPUTE) {
            const int ahead = posted[direction] - computed[direction] - 1;
            int end = 0; /* of the flight */
            for (int f = 0; end <= computed[direction]; f++)
                end += plan->flights[f] * slices;
            const int left = end - computed[direction] - 1;
            if (tp_schedule_receives(schedule, direction) && schedule->slots == TP_SCHEDULE_SLOTS)
                ck_assert_int_ge(ahead, left < 1 ? left : 1);
            computed[direction]++;
        }
    }
}

static void ck_promises(const struct lists *lists, int batch)
{
    ck_assert_int_eq(lists_check(lists), TP_OK);
    for (int k = 0; k < lists->n_stages; k++) {
        ck_units(lists->of[k], batch);
        ck_order(lists->of[k]);
        ck_overlap(lists->plan, lists->of[k]);
        ck_memory(lists->plan, lists->of[k]);
    }
}

START_TEST(lists_keep_their_promises)
{
    for_each_grid(ck_promises, 8);
}
END_TEST

/* More stages than messages ahead, and slices as a planner cuts them. */
/* With delayed weight gradients the lists do the same in the same order. A group's rows are one
 * piece in order of its slices, which nothing else uses until its last backward, and so are its
 * inputs. */
static void ck_delayed(const struct lists *lists, int batch)
{
    struct lists delayed = {.plan = lists->plan};

    lists->plan->delay_wgrad = true;
    lists_make(&delayed, lists->n_stages);
    ck_assert_int_eq(lists_check(&delayed), TP_OK);
    for (int k = 0; k < lists->n_stages; k++) {
        const struct tp_schedule *list = delayed.of[k], *plain = lists->of[k];
        ck_units(list, batch);
        ck_order(list);
        ck_assert(list->delay_wgrad == trains(list));
        ck_assert_int_eq(list->n_actions, plain->n_actions);
        ck_assert_mem_eq(list->actions, plain->actions,
                         (size_t)list->n_actions * sizeof *list->actions);
        for (int i = 0; trains(list) && i < list->n_units; i++) {
            const struct tp_unit *unit = &list->units[i], *first = unit - unit->number;
            const size_t before = (size_t)unit->sequences * (size_t)unit->slice.start;
            ck_assert_uint_eq(unit->row, first->row + before);
            ck_assert_uint_eq(unit->input_row, first->input_row + before);
        }
        ck_assert(list->rows >= plain->rows || !is_uniform(plain));
    }
    lists->plan->delay_wgrad = false;
    for (int k = 0; k < lists->n_stages; k++)
        tp_schedule_free(delayed.of[k]);
}

START_TEST(delayed_gradients_keep_groups_together)
{
    for_each_grid(ck_delayed, 8);
}
END_TEST

/* The checker sees a group's rows in use until its last backward. */
START_TEST(checker_knows_delayed_gradients)
{
    int lengths[] = {3, 3, 3};
    const struct tp_slices slices = {3, lengths};
    struct lists lists;

    lists_init(&lists, 1, 2, 1, 1, TP_SCHEDULE_SEQ1F1B, &slices);
    ck_assert_int_eq(lists_check(&lists), TP_OK);
    lists.of[0]->delay_wgrad = true;
    expect_fail(TP_ERR_INPUT, "its rows are in use", lists_check(&lists));
    lists_fini(&lists);
}
END_TEST

START_TEST(long_pipelines_keep_their_promises)
{
    static const enum tp_schedule_kind kinds[] = {TP_SCHEDULE_TERAPIPE, TP_SCHEDULE_SEQ1F1B};
    struct tp_slices slices = {8, (int[]){296, 280, 264, 256, 248, 240, 232, 232}};
    for (int kind = 0; kind < 2; kind++)
        for (int flights = 1; flights <= 3; flights++) {
            struct lists lists;
            lists_init(&lists, MAX_STAGES, 15, 2, flights, kinds[kind], &slices);
            ck_assert_int_eq(lists_check(&lists), TP_OK);
            for (int k = 0; k < lists.n_stages; k++) {
                struct alive most;
                count_alive(lists.of[k], &most);
                ck_order(lists.of[k]);
                ck_memory(lists.plan, lists.of[k]);
                ck_assert_uint_le(lists.of[k]->rows, most.rows + most.rows / 7);
                ck_assert_uint_le(lists.of[k]->input_rows, most.inputs + most.inputs / 7);
            }
            lists_fini(&lists);
        }
}
END_TEST

/* ---- They overlap all that can be overlapped ---- */

/* The lists of all stages by the clock: a unit takes 1 to compute in each direction, a message
 * takes link once both sides have started it, which they do as the engine does: when the computing
 * listed before is done. */
struct clock {
    const struct tp_schedule *schedule;
    int next;
    double now, device;     /* of the list; when all that was begun is computed */
    double start[2][2][24]; /* of [direction][send or receive][unit] */
    bool started[2][2][24];
};

static bool is_over(const struct clock *clocks, int stage, const struct tp_action *action,
                    double link, double *when)
{
    const int up = action->direction == TP_FORWARD ? 1 : -1;
    const bool send = action->kind == TP_ACTION_WAIT_SEND;
    const struct clock *from = &clocks[send ? stage : stage - up];
    const struct clock *to = &clocks[send ? stage + up : stage];
    const int unit = action->unit, direction = action->direction;
    if (!from->started[direction][0][unit] || !to->started[direction][1][unit])
        return false;
    *when = fmax(from->start[direction][0][unit], to->start[direction][1][unit]) + link;
    return true;
}

static bool clock_step(struct clock *clocks, int stage, double link)
{
    struct clock *clock = &clocks[stage];
    if (clock->next == clock->schedule->n_actions)
        return false;
    const struct tp_action *action = &clock->schedule->actions[clock->next];
    const bool receive = action->kind == TP_ACTION_POST_RECEIVE;
    double when = clock->now;
    switch (action->kind) {
    case TP_ACTION_POST_RECEIVE:
    case TP_ACTION_POST_SEND:
        clock->start[action->direction][receive][action->unit] = fmax(clock->now, clock->device);
        clock->started[action->direction][receive][action->unit] = true;
        break;
    case TP_ACTION_WAIT_RECEIVE:
    case TP_ACTION_WAIT_SEND:
        if (!is_over(clocks, stage, action, link, &when))
            return false;
        break;
    case TP_ACTION_COMPUTE:
        clock->device = fmax(clock->now, clock->device) + 1;
        break;
    case TP_ACTION_REDUCE:
    case TP_ACTION_UPDATE:
        break;
    }
    clock->now = fmax(clock->now, when);
    clock->next++;
    return true;
}

static void ck_makespan(const struct lists *lists, int batch)
{
    (void)batch;
    const struct tp_plan *plan = lists->plan;
    const int n_stages = lists->n_stages, n_units = lists->of[0]->n_units;
    const int directions = trains(lists->of[0]) ? 2 : 1;
    const bool early = tp_schedule_is_early(plan->schedule);
    const int flights = trains(lists->of[0]) ? plan->n_flights : 1;
    for (double link = 0; link <= (early ? 0 : 1); link += 0.25) {
        static struct clock clocks[MAX_STAGES];
        memset(clocks, 0, sizeof clocks);
        bool moved = true;
        double end = 0;
        for (int k = 0; k < n_stages; k++)
            clocks[k].schedule = lists->of[k];
        while (moved) {
            moved = false;
            for (int k = 0; k < n_stages; k++)
                while (clock_step(clocks, k, link))
                    moved = true;
        }
        for (int k = 0; k < n_stages; k++) {
            ck_assert_int_eq(clocks[k].next, lists->of[k]->n_actions);
            end = fmax(end, clocks[k].device);
        }
        ck_assert_double_eq_tol(end, directions * (n_units + flights * (n_stages - 1) * (1 + link)),
                                1e-9);
    }
}

START_TEST(lists_take_no_longer_than_they_must)
{
    for_each_grid(ck_makespan, 8);
}
END_TEST

/* ---- The checker finds every change ---- */

static enum tp_status check_quietly(const struct lists *lists)
{
    tp_log_hold();
    enum tp_status status = lists_check(lists);
    tp_log_release(false);
    return status;
}

/* Refused, and as good as new when restored. */
#define ck_refused(lists, schedule, at)                                                            \
    ck_assert_msg(check_quietly(lists) == TP_ERR_INPUT,                                            \
                  "stage %d of %d, %d units: change at action %d (kind %d) passed",                \
                  (schedule)->stage, (lists)->n_stages, (schedule)->n_units, at,                   \
                  (int)(schedule)->actions[at].kind)

static void drop_each(const struct lists *lists, struct tp_schedule *schedule)
{
    struct tp_action *actions = schedule->actions;
    for (int i = 0; i < schedule->n_actions; i++) {
        struct tp_action dropped = actions[i];
        size_t behind = (size_t)(schedule->n_actions - i - 1) * sizeof *actions;
        memmove(&actions[i], &actions[i + 1], behind);
        schedule->n_actions--;
        ck_refused(lists, schedule, i < schedule->n_actions ? i : i - 1);
        memmove(&actions[i + 1], &actions[i], behind);
        actions[i] = dropped;
        schedule->n_actions++;
    }
}

static void repeat_each(const struct lists *lists, struct tp_schedule *schedule)
{
    struct tp_action *room = calloc((size_t)schedule->n_actions + 1, sizeof *room);
    struct tp_action *actions = schedule->actions;
    const int n = schedule->n_actions;
    schedule->actions = room;
    schedule->n_actions = n + 1;
    for (int i = 0; i < n; i++)
        for (int at = i + 1; at <= n; at += n / 5 + 1) { /* right behind, and further */
            memcpy(room, actions, (size_t)at * sizeof *room);
            room[at] = actions[i];
            memcpy(room + at + 1, actions + at, (size_t)(n - at) * sizeof *room);
            ck_refused(lists, schedule, at);
        }
    schedule->actions = actions;
    schedule->n_actions = n;
    free(room);
}

static void change_each(const struct lists *lists, struct tp_schedule *schedule)
{
    for (int i = 0; i < schedule->n_actions; i++) {
        struct tp_action *action = &schedule->actions[i];
        const struct tp_action kept = *action;
        for (int unit = -1; unit <= schedule->n_units; unit++)
            if (unit != kept.unit) {
                action->unit = unit;
                ck_refused(lists, schedule, i);
            }
        *action = kept;
        for (int kind = 0; kind <= TP_ACTION_UPDATE; kind++)
            if (kind != (int)kept.kind) {
                action->kind = kind;
                ck_refused(lists, schedule, i);
            }
        *action = kept;
        if (kept.unit >= 0) {
            action->direction = kept.direction == TP_FORWARD ? TP_BACKWARD : TP_FORWARD;
            ck_refused(lists, schedule, i);
        }
        *action = kept;
    }
}

static bool same_slot(const struct tp_schedule *schedule, const struct tp_action *a,
                      const struct tp_action *b)
{
    return schedule->units[a->unit].slot[a->direction] ==
           schedule->units[b->unit].slot[b->direction];
}

static bool overlap(size_t a, size_t a_count, size_t b, size_t b_count)
{
    return a < b + b_count && b < a + a_count;
}

/* Does a compute give back memory that the other action takes? */
static bool gives(const struct tp_schedule *schedule, const struct tp_action *a,
                  const struct tp_action *b)
{
    const struct tp_unit *of = &schedule->units[a->unit], *to = &schedule->units[b->unit];
    const bool over = a->direction == (trains(schedule) ? TP_BACKWARD : TP_FORWARD);
    const bool group =
        of->slice.group != to->slice.group && of->number == (trains(schedule) ? 0 : of->last);
    const bool takes_input =
        b->kind == TP_ACTION_POST_RECEIVE || !tp_schedule_receives(schedule, TP_FORWARD);

    if (!over || b->direction != TP_FORWARD)
        return false;
    if (takes_input && overlap(of->input_row, tp_unit_rows(of), to->input_row, tp_unit_rows(to)))
        return true;
    return b->kind == TP_ACTION_COMPUTE &&
           (overlap(of->row, tp_unit_rows(of), to->row, tp_unit_rows(to)) ||
            (group && overlap((size_t)of->cache, (size_t)of->sequences, (size_t)to->cache,
                              (size_t)to->sequences)));
}

/* Has a to come before b, its neighbour in a list of ours? */
static bool depends(const struct tp_schedule *schedule, const struct tp_action *a,
                    const struct tp_action *b)
{
    if (a->unit < 0 || b->unit < 0)
        return true;
    if (a->kind == TP_ACTION_COMPUTE && b->kind == TP_ACTION_COMPUTE)
        return a->direction == b->direction || a->unit == b->unit || gives(schedule, a, b);
    if (a->kind == TP_ACTION_COMPUTE && b->kind == TP_ACTION_POST_RECEIVE && gives(schedule, a, b))
        return true;
    if (a->direction != b->direction)
        return false;
    if (a->unit == b->unit)
        return true;
    if (a->kind == TP_ACTION_WAIT_SEND && b->kind == TP_ACTION_COMPUTE)
        return same_slot(schedule, a, b);
    if (a->kind == TP_ACTION_WAIT_SEND && b->kind == TP_ACTION_POST_RECEIVE)
        return a->direction == TP_BACKWARD && same_slot(schedule, a, b);
    if (a->kind == TP_ACTION_COMPUTE && b->kind == TP_ACTION_POST_RECEIVE)
        return a->direction == TP_BACKWARD && same_slot(schedule, a, b);
    return false;
}

/* Is b a wait that may, by way of the other stages, be for what a makes possible? Then a change of
 * places may end in a deadlock, or not. */
static bool may_block(const struct tp_action *a, const struct tp_action *b)
{
    return a->direction != b->direction &&
           (b->kind == TP_ACTION_WAIT_RECEIVE || b->kind == TP_ACTION_WAIT_SEND);
}

/* Two neighbours in a list may change places just when neither needs the other. */
static void swap_each(const struct lists *lists, struct tp_schedule *schedule)
{
    for (int i = 0; i + 1 < schedule->n_actions; i++) {
        struct tp_action *actions = schedule->actions;
        const struct tp_action first = actions[i], second = actions[i + 1];
        if (may_block(&first, &second))
            continue;
        actions[i] = second;
        actions[i + 1] = first;
        enum tp_status status = check_quietly(lists);
        ck_assert_msg(status == (depends(schedule, &first, &second) ? TP_ERR_INPUT : TP_OK),
                      "stage %d of %d, %s, actions %d and %d (kinds %d, %d) swapped: %s",
                      schedule->stage, lists->n_stages, tp_schedule_name(lists->plan->schedule), i,
                      i + 1, (int)first.kind, (int)second.kind, tp_status_name(status));
        actions[i] = first;
        actions[i + 1] = second;
    }
}

static void ck_changes(const struct lists *lists, int batch)
{
    (void)batch;
    for (int k = 0; k < lists->n_stages; k++) {
        drop_each(lists, lists->of[k]);
        repeat_each(lists, lists->of[k]);
        change_each(lists, lists->of[k]);
        swap_each(lists, lists->of[k]);
        ck_assert_int_eq(lists_check(lists), TP_OK);
    }
}

START_TEST(checker_finds_changes)
{
    for_each_grid(ck_changes, 3);
}
END_TEST

/* ---- Each rule by its own words ---- */

/* Lists of 3 stages, 2 groups of 3 slices: 6 units in 4 slots. */
static void rules_init(struct lists *lists, enum tp_schedule_kind kind)
{
    struct tp_slices slices = {3, (int[]){4, 3, 2}};
    lists_init(lists, 3, 2, 1, 1, kind, &slices);
}

static int find(const struct tp_schedule *schedule, enum tp_action_kind kind,
                enum tp_direction direction, int unit)
{
    for (int i = 0; i < schedule->n_actions; i++) {
        const struct tp_action *action = &schedule->actions[i];
        if (action->kind == kind && action->direction == direction && action->unit == unit)
            return i;
    }
    ck_abort_msg("no action of kind %d of unit %d", (int)kind, unit);
    return -1;
}

/* Moves an action to another place of the list. */
static void move(struct tp_schedule *schedule, int from, int to)
{
    struct tp_action moved = schedule->actions[from];
    const int step = from < to ? 1 : -1;
    for (int i = from; i != to; i += step)
        schedule->actions[i] = schedule->actions[i + step];
    schedule->actions[to] = moved;
}

static void drop(struct tp_schedule *schedule, int at)
{
    move(schedule, at, schedule->n_actions - 1);
    schedule->n_actions--;
}

static void ck_says(const struct lists *lists, const char *what)
{
    capture_begin();
    enum tp_status status = lists_check(lists);
    const char *line = capture_end();
    ck_assert_int_eq(status, TP_ERR_INPUT);
    ck_assert_msg(strstr(line, what) != NULL, "expected \"%s\" in: %s", what, line);
}

#define RECV TP_ACTION_POST_RECEIVE
#define GOT TP_ACTION_WAIT_RECEIVE
#define CALC TP_ACTION_COMPUTE
#define SEND TP_ACTION_POST_SEND
#define SENT TP_ACTION_WAIT_SEND
#define FWD TP_FORWARD
#define BWD TP_BACKWARD

enum change {
    DROP,   /* the action */
    MOVE,   /* the action to where the other one is */
    REPLACE /* the action by the other one */
};

static const struct {
    const char *says;
    enum tp_schedule_kind schedule;
    int stage;
    enum change change;
    struct tp_action action, other;
} rules[] = {
    {"no stage sends it", TP_SCHEDULE_TERAPIPE, 0, REPLACE, {CALC, FWD, 0}, {RECV, FWD, 0}},
    {"no stage receives it", TP_SCHEDULE_TERAPIPE, 2, REPLACE, {GOT, FWD, 1}, {SEND, FWD, 0}},
    {"(post receive of forward 4): it was posted before",
     TP_SCHEDULE_TERAPIPE,
     1,
     REPLACE,
     {RECV, FWD, 5},
     {RECV, FWD, 4}},
    {"(post send of forward 0): it was posted before",
     TP_SCHEDULE_TERAPIPE,
     1,
     REPLACE,
     {SEND, FWD, 1},
     {SEND, FWD, 0}},
    {"(wait for receive of forward 2): it was not posted",
     TP_SCHEDULE_TERAPIPE,
     1,
     DROP,
     {RECV, FWD, 2},
     {0}},
    {"(wait for send of backward 2): it was not posted",
     TP_SCHEDULE_TERAPIPE,
     2,
     DROP,
     {SEND, BWD, 2},
     {0}},
    {"(wait for receive of forward 0): it was waited for before",
     TP_SCHEDULE_TERAPIPE,
     1,
     REPLACE,
     {GOT, FWD, 1},
     {GOT, FWD, 0}},
    {"(post receive of forward 3): its input's rows are in use",
     TP_SCHEDULE_FORWARD,
     2,
     MOVE,
     {RECV, FWD, 3},
     {CALC, FWD, 0}},
    {"(compute forward 5): its rows are in use",
     TP_SCHEDULE_SEQ1F1B,
     0,
     MOVE,
     {CALC, BWD, 2},
     {CALC, FWD, 5}},
    {"(post receive of backward 1): its slot is in use",
     TP_SCHEDULE_TERAPIPE,
     1,
     MOVE,
     {RECV, BWD, 3},
     {RECV, BWD, 2}},
    {"(compute forward 4): its slot is in use",
     TP_SCHEDULE_TERAPIPE,
     0,
     MOVE,
     {SENT, FWD, 0},
     {CALC, FWD, 4}},
    {"(compute backward 4): its slot is in use",
     TP_SCHEDULE_TERAPIPE,
     2,
     MOVE,
     {SENT, BWD, 2},
     {CALC, BWD, 4}},
    {"it was computed before", TP_SCHEDULE_TERAPIPE, 0, REPLACE, {CALC, FWD, 1}, {CALC, FWD, 0}},
    {"its message is not there", TP_SCHEDULE_TERAPIPE, 1, DROP, {GOT, FWD, 1}, {0}},
    {"(compute forward 1): it is not its turn",
     TP_SCHEDULE_TERAPIPE,
     0,
     MOVE,
     {CALC, FWD, 1},
     {CALC, FWD, 0}},
    {"(compute backward 1): it is not its turn",
     TP_SCHEDULE_TERAPIPE,
     2,
     MOVE,
     {CALC, BWD, 1},
     {CALC, BWD, 2}},
    {"its forward is not computed", TP_SCHEDULE_TERAPIPE, 2, MOVE, {CALC, BWD, 2}, {CALC, FWD, 2}},
    {"it is not computed", TP_SCHEDULE_TERAPIPE, 0, MOVE, {SEND, FWD, 0}, {CALC, FWD, 0}},
    {"(reduce): a send is not waited for", TP_SCHEDULE_TERAPIPE, 0, DROP, {SENT, FWD, 5}, {0}},
    {"at its end: a send is not waited for", TP_SCHEDULE_FORWARD, 0, DROP, {SENT, FWD, 5}, {0}},
    {"(reduce): a unit is not computed", TP_SCHEDULE_TERAPIPE, 0, DROP, {CALC, BWD, 3}, {0}},
    {"at its end: there is no reduce", TP_SCHEDULE_TERAPIPE, -1, DROP, {0}, {0}},
    {"at its end: there is no update",
     TP_SCHEDULE_TERAPIPE,
     1,
     DROP,
     {TP_ACTION_UPDATE, BWD, -1},
     {0}},
    {"(update): it comes before the reduce",
     TP_SCHEDULE_TERAPIPE,
     1,
     DROP,
     {TP_ACTION_REDUCE, BWD, -1},
     {0}},
    {"it comes after the reduce",
     TP_SCHEDULE_TERAPIPE,
     1,
     REPLACE,
     {TP_ACTION_UPDATE, BWD, -1},
     {TP_ACTION_REDUCE, BWD, -1}},
    {"there is no unit 6", TP_SCHEDULE_TERAPIPE, 1, REPLACE, {CALC, FWD, 5}, {CALC, FWD, 6}},
    {"there is no unit 0",
     TP_SCHEDULE_TERAPIPE,
     1,
     REPLACE,
     {TP_ACTION_UPDATE, BWD, -1},
     {TP_ACTION_UPDATE, BWD, 0}},
};

START_TEST(rule_has_its_words)
{
    struct lists lists;
    rules_init(&lists, rules[_i].schedule);
    const struct tp_action *action = &rules[_i].action, *other = &rules[_i].other;
    if (rules[_i].stage < 0) {
        for (int k = 0; k < lists.n_stages; k++)
            lists.of[k]->n_actions -= 2;
    } else {
        struct tp_schedule *schedule = lists.of[rules[_i].stage];
        const int at = find(schedule, action->kind, action->direction, action->unit);
        if (rules[_i].change == DROP)
            drop(schedule, at);
        else if (rules[_i].change == REPLACE)
            schedule->actions[at] = *other;
        else
            move(schedule, at, find(schedule, other->kind, other->direction, other->unit));
    }
    ck_says(&lists, rules[_i].says);
    lists_fini(&lists);
}
END_TEST

/* A rank that sends first what its neighbour waits for last. */
START_TEST(deadlock_is_found)
{
    struct lists lists;
    rules_init(&lists, TP_SCHEDULE_TERAPIPE);
    struct tp_schedule *first = lists.of[0], *second = lists.of[1];
    /* Stage 0 waits for its send of unit 1 before it sends unit 0 ... */
    move(first, find(first, SEND, FWD, 0), find(first, SEND, FWD, 1));
    move(first, find(first, SENT, FWD, 1), find(first, SEND, FWD, 0));
    /* ... and stage 1 posts the receive of unit 1 after unit 0 arrived. */
    move(second, find(second, RECV, FWD, 1), find(second, GOT, FWD, 0));
    ck_says(&lists,
            "schedule of stage 0, action 5 (wait for send of forward 1): it waits for ever");
    lists_fini(&lists);
}
END_TEST

START_TEST(units_have_to_agree)
{
    struct lists lists;
    rules_init(&lists, TP_SCHEDULE_TERAPIPE);
    struct tp_unit *unit = &lists.of[1]->units[4];
    const struct tp_unit kept = *unit;
    unit->sequences--;
    ck_says(&lists, "schedule of stage 1: unit 4 differs");
    *unit = kept;
    unit->slot[TP_BACKWARD] = TP_SCHEDULE_SLOTS;
    ck_says(&lists, "schedule of stage 1: unit 4 differs");
    *unit = kept;
    for (int k = 0; k < lists.n_stages; k++)
        lists.of[k]->units[4].slice.start++;
    ck_says(&lists, "schedule of stage 0: unit 4");
    for (int k = 0; k < lists.n_stages; k++)
        lists.of[k]->units[4] = kept;
    lists.of[2]->rows--;
    ck_says(&lists, "schedule of stage 2: unit 5");
    lists.of[2]->rows++;
    lists.of[1]->units[1].row--;
    ck_says(&lists, "(compute forward 1): its rows are in use");
    lists.of[1]->units[1].row++;
    lists.of[1]->units[1].input_row--;
    ck_says(&lists, "(post receive of forward 1): its input's rows are in use");
    lists.of[1]->units[1].input_row++;
    for (int i = 3; i < 6; i++)
        lists.of[1]->units[i].cache = 0;
    ck_says(&lists, "(compute forward 3): its group's keys and values are in use");
    lists.of[1]->units[3].cache = 1;
    ck_says(&lists, "schedule of stage 1: unit 4 differs");
    for (int i = 4; i < 6; i++)
        lists.of[1]->units[i].cache = 1;
    lists.of[0]->n_units--;
    ck_says(&lists, "schedule of stage 0");
    lists.of[0]->n_units++;
    lists.of[2]->stage = 1;
    ck_says(&lists, "given as stage 2 of 3");
    lists.of[2]->stage = 2;
    ck_assert_int_eq(lists_check(&lists), TP_OK);
    lists_fini(&lists);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("schedule");
    TCase *tests = tcase_create("schedule");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, lists_keep_their_promises);
    tcase_add_test(tests, delayed_gradients_keep_groups_together);
    tcase_add_test(tests, checker_knows_delayed_gradients);
    tcase_add_test(tests, long_pipelines_keep_their_promises);
    tcase_add_test(tests, lists_take_no_longer_than_they_must);
    tcase_add_test(tests, checker_finds_changes);
    tcase_add_loop_test(tests, rule_has_its_words, 0, (int)(sizeof rules / sizeof *rules));
    tcase_add_test(tests, deadlock_is_found);
    tcase_add_test(tests, units_have_to_agree);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
