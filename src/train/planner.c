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

enum tp_status tp_planner_settle(const struct tp_settings *settings, struct tp_settings *settled)
{
    struct tp_plan *plan = NULL;

    *settled = *settings;
    if (settings->plan != NULL)
        TP_TRY(tp_plan_load(settings->plan, &plan));
    if (settled->batch == 0)
        settled->batch = plan != NULL ? plan->batch * plan->data : 1;
    if (settled->seq_len == 0 && plan != NULL)
        settled->seq_len = plan->seq_len;
    tp_plan_free(plan);
    return TP_OK;
}

/* Numbers that the plan has and that are something else here. */
static enum tp_status check_numbers(const struct tp_worker *worker, const struct tp_plan *plan)
{
    const struct tp_settings *s = worker->settings;
    const struct tp_model *model = &worker->model;
    const struct {
        const char *option;
        int given, planned;
        const char *key;
    } options[] =
        {
            {"--global-batch-size", s->batch, plan->batch * plan->data, "batch times data"},
            {"--seq-length", worker->seq_len, plan->seq_len, "seq_len"},
            {"--pipeline-model-parallel-size", worker->grid.pipe_size, plan->pipe, "pipe"},
        },
      sizes[] = {
          {"n_layer", model->n_layer, plan->model.n_layer, NULL},
          {"n_embd", model->n_embd, plan->model.n_embd, NULL},
          {"n_head", model->n_head, plan->model.n_head, NULL},
          {"n_inner", model->n_inner, plan->model.n_inner, NULL},
          {"vocab_size", model->vocab_size, plan->model.vocab_size, NULL},
      };

    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (options[i].given != options[i].planned)
            return tp_fail(TP_ERR_USAGE, "%s %d: contradicts --plan %s, whose %s is %d",
                           options[i].option, options[i].given, s->plan, options[i].key,
                           options[i].planned);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (sizes[i].given != sizes[i].planned)
            return tp_fail(TP_ERR_INPUT, "--plan %s: %s is %d, expected the model's %d", s->plan,
                           sizes[i].option, sizes[i].planned, sizes[i].given);
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
    return TP_OK;
}

static bool runs(int schedule)
{
    for (int i = 0; tp_schedule_choices[i] != NULL; i++)
        if (i == schedule)
            return true;
    return false;
}

/* What stages cannot run. */
static enum tp_status check_runs(const struct tp_settings *s, const struct tp_plan *plan)
{
    if (!runs(plan->schedule))
        return tp_fail(TP_ERR_INPUT,
                       "--plan %s: schedule is %s, expected gpipe or terapipe, which "
                       "stages can run",
                       s->plan, tp_schedule_name(plan->schedule));
    if (plan->recompute || plan->n_flights > 1 || plan->op > 1 || plan->data > 1)
        return tp_fail(TP_ERR_INPUT,
                       "--plan %s: recompute is %s, flights %d, op %d, data %d, expected false and "
                       "1 of each, which stages can run",
                       s->plan, plan->recompute ? "true" : "false", plan->n_flights, plan->op,
                       plan->data);
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
    if (status == TP_OK)
        status = check_runs(s, plan);
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
    const struct tp_settings *s = worker->settings;

    if (s->schedule != TP_SEARCH_AUTO && !runs(s->schedule))
        return tp_fail(TP_ERR_USAGE,
                       "--schedule %s: expected auto, gpipe or terapipe, which stages can run",
                       tp_search_choices[s->schedule]);
    return s->plan != NULL ? load(worker, plan) : tp_worker_plan(worker, plan);
}

/* ---- From a profile ---- */

bool tp_planner_is_needed(const struct tp_settings *s)
{
    const bool scheduled = s->schedule != TP_SEARCH_AUTO;
    const bool whole = scheduled && tp_schedule_is_whole((enum tp_schedule_kind)s->schedule);

    return s->plan == NULL && !(scheduled && (s->slices != NULL || whole) && s->group_size > 0);
}

/* Rank 0's profile: from the file, or by measuring. */
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
    enum tp_status status = TP_OK;
    if (leads)
        status = tp_profile_load(s->profiles.at[0], profile);
    if (leads && status == TP_OK)
        status = tp_profile_check(*profile, s->profiles.at[0], &worker->model, 1);
    return tp_phase_end(worker->world, status);
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
                                        .batch = s->batch,
                                        .data = 1,
                                        .pipe = worker->grid.pipe_size,
                                        .schedule = s->schedule,
                                        .runnable = true,
                                        .slices = slices.count > 0 ? &slices : NULL,
                                        .group_size = s->group_size,
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

/* A plan in numbers: schedule, groups, layers of each stage; of each group sequences, slices and
 * their lengths. */
static int count_numbers(const struct tp_plan *plan)
{
    return 2 + plan->n_stages + 2 * plan->n_groups + tp_units_count(plan);
}

static void write_numbers(const struct tp_plan *plan, int *at)
{
    *at++ = (int)plan->schedule;
    *at++ = plan->n_groups;
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
    struct tp_plan facts = {.model = worker->model,
                            .seq_len = worker->seq_len,
                            .batch = worker->settings->batch,
                            .data = 1,
                            .pipe = worker->grid.pipe_size,
                            .op = 1,
                            .n_stages = worker->grid.pipe_size,
                            .n_flights = 1},
                   *plan;

    facts.schedule = (enum tp_schedule_kind) * at++;
    TP_TRY(tp_plan_new(&facts, *at++, &plan));
    plan->flights[0] = plan->n_groups;
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
