/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "plan/schedule.h"
#include "plan/search.h"
#include "train/phase.h"
#include "train/planner.h"
#include "train/profiler.h"

/* ---- From a file ---- */

/* What is given has to be what is planned, before anything depends on it. */
static enum tp_status settle_numbers(const struct tp_plan *plan, struct tp_settings *settled)
{
    const struct {
        const char *option, *key;
        int *given, planned;
    } numbers[] = {
        {"--seq-length", "seq_len", &settled->seq_len, plan->seq_len},
        {"--pipeline-model-parallel-size", "pipe", &settled->pipe, plan->pipe},
        {"--tensor-model-parallel-size", "op", &settled->op, plan->op},
        {"--data", "data", &settled->replicas, plan->data},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (*numbers[i].given != 0 && *numbers[i].given != numbers[i].planned)
            return tp_fail(TP_ERR_USAGE, "%s %d: contradicts --plan %s, whose %s is %d",
                           numbers[i].option, *numbers[i].given, settled->plan, numbers[i].key,
                           numbers[i].planned);
        *numbers[i].given = numbers[i].planned;
    }
    return TP_OK;
}

enum tp_status tp_planner_settle(const struct tp_settings *settings, struct tp_settings *settled)
{
    struct tp_plan *plan = NULL;
    enum tp_status status = TP_OK;

    *settled = *settings;
    if (settings->plan != NULL)
        TP_TRY(tp_plan_load(settings->plan, &plan));
    if (settled->batch == 0)
        settled->batch = plan != NULL ? plan->batch * plan->data : 1;
    if (plan != NULL) {
        settled->zero = settled->zero || plan->zero;
        status = settle_numbers(plan, settled);
    }
    tp_plan_free(plan);
    return status;
}

/* The plan has to be for this batch and this model. */
static enum tp_status check_numbers(const struct tp_worker *worker, const struct tp_plan *plan)
{
    const struct tp_settings *s = worker->settings;
    const struct tp_model *model = &worker->model;
    const struct {
        const char *key;
        int given, planned;
    } sizes[] = {
        {"n_layer", model->n_layer, plan->model.n_layer},
        {"n_embd", model->n_embd, plan->model.n_embd},
        {"n_head", model->n_head, plan->model.n_head},
        {"n_inner", model->n_inner, plan->model.n_inner},
        {"vocab_size", model->vocab_size, plan->model.vocab_size},
    };

    if (tp_worker_largest_share(worker) != plan->batch)
        return tp_fail(TP_ERR_USAGE,
                       "--global-batch-size %d: contradicts --plan %s, whose largest replica has "
                       "%d sequences (data is %d)",
                       s->batch, s->plan, plan->batch, plan->data);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].given != sizes[i].planned)
            return tp_fail(TP_ERR_INPUT, "--plan %s: %s is %d, expected the model's %d", s->plan,
                           sizes[i].key, sizes[i].planned, sizes[i].given);
    return TP_OK;
}

static bool same_slices(const struct tp_slices *a, const struct tp_slices *b)
{
    return a->count == b->count &&
           memcmp(a->lengths, b->lengths, (size_t)a->count * sizeof *a->lengths) == 0;
}

static enum tp_status check_slices(const struct tp_settings *s, const struct tp_plan *plan)
{
    struct tp_slices slices;
    bool same = true;

    if (s->slices == NULL)
        return TP_OK;
    TP_TRY(tp_slices_parse(s->slices, plan->seq_len, &slices));
    for (int g = 0; g < plan->n_groups; g++)
        same = same && same_slices(&slices, &plan->groups[g].slices);
    tp_slices_fini(&slices);
    if (!same)
        return tp_fail(TP_ERR_USAGE, "--slices %s: contradicts --plan %s, whose slices are others",
                       s->slices, s->plan);
    return TP_OK;
}

/* Groups and schedule. */
static enum tp_status check_order(const struct tp_settings *s, const struct tp_plan *plan)
{
    const int last = plan->n_groups - 1;

    for (int g = 0; g <= last && s->group_size > 0; g++) {
        const int sequences = plan->groups[g].sequences;
        if (sequences > s->group_size || (sequences < s->group_size && g < last))
            return tp_fail(
                TP_ERR_USAGE,
                "--group-size %d: contradicts --plan %s, whose group %d has %d sequences",
                s->group_size, s->plan, g, sequences);
    }
    if (s->schedule != TP_SEARCH_AUTO && s->schedule != (int)plan->schedule)
        return tp_fail(TP_ERR_USAGE, "--schedule %s: contradicts --plan %s, whose schedule is %s",
                       tp_search_choices[s->schedule], s->plan, tp_schedule_name(plan->schedule));
    if (plan->schedule == TP_SCHEDULE_FORWARD)
        return tp_fail(TP_ERR_INPUT, "--plan %s: schedule is forward, expected one that trains",
                       s->plan);
    if (s->recompute != TP_RECOMPUTE_NEEDED &&
        (s->recompute == TP_RECOMPUTE_CELL) != plan->recompute)
        return tp_fail(TP_ERR_USAGE, "--recompute %s: contradicts --plan %s, whose recompute is %s",
                       tp_recompute_choices[s->recompute], s->plan,
                       plan->recompute ? "true" : "false");
    if (s->delay_wgrad && !plan->delay_wgrad)
        return tp_fail(TP_ERR_USAGE,
                       "--delay-wgrad-compute: contradicts --plan %s, whose delay_wgrad is false",
                       s->plan);
    if (s->accumulate > 0 && s->accumulate != plan->n_flights)
        return tp_fail(TP_ERR_USAGE, "--accumulate %d: contradicts --plan %s, which has %d flights",
                       s->accumulate, s->plan, plan->n_flights);
    return TP_OK;
}

static enum tp_status load(const struct tp_worker *worker, struct tp_plan **out)
{
    const struct tp_settings *s = worker->settings;
    struct tp_plan *plan;

    TP_TRY(tp_plan_load(s->plan, &plan));
    enum tp_status status = check_numbers(worker, plan);
    if (status == TP_OK)
        status = check_slices(s, plan);
    if (status == TP_OK)
        status = check_order(s, plan);
    if (status != TP_OK) {
        tp_plan_free(plan);
        return status;
    }
    plan->model = worker->model;
    *out = plan;
    return TP_OK;
}

enum tp_status tp_planner_given(const struct tp_worker *worker, struct tp_plan **plan)
{
    return worker->settings->plan != NULL ? load(worker, plan) : tp_worker_plan(worker, plan);
}

/* ---- From a profile ---- */

bool tp_planner_is_needed(const struct tp_settings *s)
{
    const bool scheduled = s->schedule != TP_SEARCH_AUTO;
    const bool whole = scheduled && tp_schedule_is_whole((enum tp_schedule_kind)s->schedule);

    return s->plan == NULL && !(scheduled && (s->slices != NULL || whole) && s->group_size > 0);
}

/* The one of the files that is for this run. */
static enum tp_status load_profile(const struct tp_worker *worker, struct tp_profile **profile)
{
    const struct tp_grid *grid = &worker->grid;
    struct tp_profiles profiles;
    int index = 0;

    TP_TRY(tp_profiles_load(&worker->settings->profiles, &worker->model, &profiles));
    enum tp_status status = tp_profiles_find(&profiles, grid->pipe_size, grid->op, &index);
    if (status == TP_OK) {
        *profile = profiles.at[index];
        profiles.at[index] = NULL; /* it outlives the others */
    }
    tp_profiles_fini(&profiles);
    return status;
}

/* Times of other threads, or with other neighbours on the node, are times of something else. */
static void warn_of_others(const struct tp_worker *worker, const struct tp_profile *profile)
{
    const struct {
        const char *key;
        int measured, here;
    } numbers[] = {
        {"threads", profile->threads, worker->placements[0].threads},
        {"ranks_per_node", profile->ranks_per_node, worker->grid.node_size},
    };

    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].measured != numbers[i].here)
            tp_log(TP_LOG_WARNING, "--profile: %s is %d, but %d here; times may be others",
                   numbers[i].key, numbers[i].measured, numbers[i].here);
}

/* Rank 0's profile: from a file, or by measuring. */
static enum tp_status find_profile(struct tp_worker *worker, struct tp_profile **profile)
{
    const struct tp_settings *s = worker->settings;
    const bool leads = tp_comm_rank(worker->world) == 0;
    const double budget = s->budget > 0 ? s->budget : TP_PROFILER_BUDGET_TRAIN;
    struct tp_profiler_report report;

    if (s->profiles.count == 0) {
        TP_TRY(tp_profiler_cached(worker, budget, profile, &report));
        if (leads)
            tp_profiler_print(&report);
        return TP_OK;
    }
    tp_phase_begin();
    TP_TRY(tp_phase_end(worker->world, leads ? load_profile(worker, profile) : TP_OK));
    if (leads)
        warn_of_others(worker, *profile);
    return TP_OK;
}

/* Rank 0 plans. */
static enum tp_status make_plan(struct tp_worker *worker, struct tp_planned *planned)
{
    const struct tp_settings *s = worker->settings;
    struct tp_slices slices = {.count = 0};
    struct tp_found found;
    struct tp_cost cost;

    tp_profile_cost(planned->profile, &cost);
    if (s->slices != NULL)
        TP_TRY(tp_slices_parse(s->slices, worker->seq_len, &slices));
    const struct tp_search_task task = {.model = &worker->model,
                                        .cost = &cost,
                                        .seq_len = worker->seq_len,
                                        .batch = tp_worker_largest_share(worker),
                                        .data = worker->grid.data,
                                        .pipe = worker->grid.pipe_size,
                                        .schedule = s->schedule,
                                        .recompute = (enum tp_recompute)s->recompute,
                                        .zero = s->zero,
                                        .delay_wgrad = s->delay_wgrad,
                                        .slices = slices.count > 0 ? &slices : NULL,
                                        .group_size = s->group_size,
                                        .flights = s->accumulate,
                                        .grain = s->grain > 0 ? s->grain : 1,
                                        .memory = s->memory ? tp_worker_memory(worker) : 0,
                                        .work = TP_SEARCH_WORK / 2};
    enum tp_status status = tp_search_plan(&task, &found);
    tp_slices_fini(&slices);
    if (status != TP_OK)
        return status;
    status = tp_found_check(&found);
    if (status != TP_OK) {
        tp_found_fini(&found);
        return status;
    }
    if (found.note[0] != '\0')
        tp_log(TP_LOG_INFO, "plan: %s", found.note);
    planned->plan = found.plan;
    planned->predicted = found.simulation;
    return TP_OK;
}

/* ---- Telling the others ---- */

/* A plan in numbers: schedule, recompute, flights, groups, groups of each flight, layers of each
 * stage; of each group sequences, slices and their lengths. */
static int count_numbers(const struct tp_plan *plan)
{
    return 4 + plan->n_flights + plan->n_stages + 2 * plan->n_groups + tp_units_count(plan);
}

static void write_numbers(const struct tp_plan *plan, int *at)
{
    *at++ = (int)plan->schedule;
    *at++ = plan->recompute;
    *at++ = plan->n_flights;
    *at++ = plan->n_groups;
    for (int f = 0; f < plan->n_flights; f++)
        *at++ = plan->flights[f];
    for (int k = 0; k < plan->n_stages; k++)
        *at++ = plan->stages[k].n_layer;
    for (int g = 0; g < plan->n_groups; g++) {
        const struct tp_group *group = &plan->groups[g];
        *at++ = group->sequences;
        *at++ = group->slices.count;
        memcpy(at, group->slices.lengths, (size_t)group->slices.count * sizeof *at);
        at += group->slices.count;
    }
}

static enum tp_status read_numbers(const struct tp_worker *worker, const int *at,
                                   struct tp_plan **out)
{
    const struct tp_grid *grid = &worker->grid;
    const struct tp_plan facts = {.model = worker->model,
                                  .seq_len = worker->seq_len,
                                  .batch = tp_worker_largest_share(worker),
                                  .data = grid->data,
                                  .pipe = grid->pipe_size,
                                  .op = grid->op,
                                  .schedule = (enum tp_schedule_kind)at[0],
                                  .recompute = at[1],
                                  .zero = worker->settings->zero,
                                  .delay_wgrad = worker->settings->delay_wgrad,
                                  .n_stages = grid->pipe_size,
                                  .n_flights = at[2]};
    struct tp_plan *plan;

    TP_TRY(tp_plan_new(&facts, at[3], &plan));
    at += 4;
    for (int f = 0; f < plan->n_flights; f++)
        plan->flights[f] = *at++;
    for (int k = 0, first = 0; k < plan->n_stages; first += plan->stages[k++].n_layer)
        plan->stages[k] = (struct tp_stage_layers){first, *at++};
    for (int g = 0; g < plan->n_groups; g++) {
        plan->groups[g].sequences = *at++;
        const int count = *at++;
        const struct tp_slices slices = {count, (int *)at};
        enum tp_status status = tp_slices_copy(&slices, &plan->groups[g].slices);
        if (status != TP_OK) {
            tp_plan_free(plan);
            return status;
        }
        at += count;
    }
    *out = plan;
    return TP_OK;
}

/* Rank 0 has the plan, then all. */
static enum tp_status share(struct tp_worker *worker, struct tp_plan **plan)
{
    const bool leads = tp_comm_rank(worker->world) == 0;
    int count = leads ? count_numbers(*plan) : 0;

    TP_TRY(tp_comm_bcast(worker->world, &count, sizeof count, 0));
    tp_phase_begin();
    int *numbers = malloc((size_t)count * sizeof *numbers);
    enum tp_status status = tp_phase_end(
        worker->world, numbers != NULL ? TP_OK : tp_fail(TP_ERR_MEMORY, "no memory for a plan"));
    if (status == TP_OK && leads)
        write_numbers(*plan, numbers);
    if (status == TP_OK)
        status = tp_comm_bcast(worker->world, numbers, (size_t)count * sizeof *numbers, 0);
    if (status == TP_OK) {
        tp_phase_begin();
        status = tp_phase_end(worker->world, leads ? TP_OK : read_numbers(worker, numbers, plan));
    }
    free(numbers);
    return status;
}

enum tp_status tp_planner_search(struct tp_worker *worker, struct tp_planned *planned)
{
    if (worker->device == NULL)
        TP_TRY(tp_worker_open_device(worker, true));
    TP_TRY(find_profile(worker, &planned->profile));
    tp_phase_begin();
    enum tp_status status = tp_comm_rank(worker->world) == 0 ? make_plan(worker, planned) : TP_OK;
    TP_TRY(tp_phase_end(worker->world, status));
    return share(worker, &planned->plan);
}

void tp_planned_fini(struct tp_planned *planned)
{
    tp_simulation_fini(&planned->predicted);
    tp_profile_free(planned->profile);
    tp_plan_free(planned->plan);
    *planned = (struct tp_planned){.plan = NULL};
}
