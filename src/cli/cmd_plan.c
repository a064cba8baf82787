/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stddef.h>
#include <stdio.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/costs.h"
#include "plan/report.h"
#include "train/source.h"

enum { BEST = 10 /* rows of the table of degrees */ };

/* What the command works on. */
struct planning {
    const struct tp_settings *settings;
    struct tp_model model;
    struct tp_slices slices; /* count 0: any */
    struct tp_costs costs;
    const char *output;
    struct tp_search_task task;
};

/* ---- What is asked for ---- */

static enum tp_status find_model(struct planning *p)
{
    static const struct tp_source none; /* no weights are needed */

    return tp_source_model(&none, p->settings, &p->model, &p->task.seq_len);
}

static enum tp_status find_slices(struct planning *p)
{
    const struct tp_settings *s = p->settings;
    const bool whole =
        s->schedule != TP_SEARCH_AUTO && tp_schedule_is_whole((enum tp_schedule_kind)s->schedule);

    if (s->slices == NULL)
        return TP_OK;
    TP_TRY(tp_slices_parse(s->slices, p->task.seq_len, &p->slices));
    if (whole && p->slices.count != 1)
        return tp_fail(TP_ERR_USAGE,
                       "--slices: %d slices, but --schedule %s has one slice per sequence",
                       p->slices.count, tp_search_choices[s->schedule]);
    return TP_OK;
}

static enum tp_status check_degrees(const struct planning *p)
{
    const struct tp_settings *s = p->settings;

    if (s->op > 0 && p->model.n_head % s->op != 0)
        return tp_fail(
            TP_ERR_USAGE,
            "--tensor-model-parallel-size %d: expected a divisor of the model's %d heads", s->op,
            p->model.n_head);
    if (s->pipe > p->model.n_layer)
        return tp_fail(TP_ERR_USAGE,
                       "--pipeline-model-parallel-size %d: expected 1 to %d, the model's layers",
                       s->pipe, p->model.n_layer);
    if (s->replicas > s->batch)
        return tp_fail(TP_ERR_USAGE,
                       "--data %d: expected at most %d, the sequences of --global-batch-size",
                       s->replicas, s->batch);
    if (s->pipe == 0 && s->devices == 0)
        return tp_fail(TP_ERR_USAGE, "--pipeline-model-parallel-size is missing, expected it, or "
                                     "--devices to search all degrees");
    return TP_OK;
}

static enum tp_status prepare(struct planning *p)
{
    const struct tp_settings *s = p->settings;

    TP_TRY(tp_settings_check(s));
    TP_TRY(find_model(p));
    TP_TRY(find_slices(p));
    TP_TRY(check_degrees(p));
    TP_TRY(tp_settings_memory(s, &p->task.memory));
    TP_TRY(tp_file_probe(p->output));
    p->task.model = &p->model;
    p->task.batch = s->batch;
    p->task.schedule = s->schedule;
    p->task.recompute = (enum tp_recompute)s->recompute;
    p->task.zero = s->zero;
    p->task.delay_wgrad = s->delay_wgrad;
    p->task.slices = p->slices.count > 0 ? &p->slices : NULL;
    p->task.group_size = s->group_size;
    p->task.flights = s->accumulate;
    p->task.grain = s->grain;
    p->task.objective = (enum tp_objective)s->objective;
    p->task.epsilon = s->epsilon;
    return TP_OK;
}

/* ---- One plan, or all degrees ---- */

/* Writes the plan and tells about it. */
static enum tp_status give(const struct planning *p, const struct tp_found *found,
                           const struct tp_cost *cost)
{
    TP_TRY(tp_plan_save(found->plan, &found->simulation, p->output));
    TP_TRY(tp_report_plan(found->plan, cost, p->settings->batch, &found->simulation, stdout));
    if (found->note[0] != '\0')
        printf("%s\n", found->note);
    printf("wrote %s\n", p->output);
    return TP_OK;
}

static enum tp_status plan_one(struct planning *p)
{
    const struct tp_settings *s = p->settings;
    const int op = s->op > 0 ? s->op : 1;
    struct tp_found found;

    p->task.data = s->replicas > 0 ? s->replicas : 1;
    p->task.pipe = s->pipe;
    p->task.batch = (s->batch - 1) / p->task.data + 1;
    p->task.work = TP_SEARCH_WORK;
    TP_TRY(tp_costs_find(&p->costs, &p->model, s->pipe, op, &p->task.cost));
    TP_TRY(tp_search_plan(&p->task, &found));
    enum tp_status status = tp_found_check(&found);
    if (status == TP_OK)
        status = give(p, &found, p->task.cost);
    tp_found_fini(&found);
    return status;
}

static enum tp_status give_best(struct planning *p, const struct tp_degrees_task *task,
                                const struct tp_degrees_list *list)
{
    const struct tp_degrees *best = &list->at[0];
    const struct tp_cost *cost;

    if (list->planned == 0)
        return tp_fail(TP_ERR_INPUT,
                       "--devices %d: no degrees are possible; data %d, pipe %d, op %d: %s",
                       task->devices, best->data, best->pipe, best->op, best->why);
    TP_TRY(tp_costs_find(&p->costs, &p->model, best->pipe, best->op, &cost));
    tp_report_degrees(list, task, stdout);
    printf("\n");
    return give(p, &best->found, cost);
}

static enum tp_status plan_degrees(struct planning *p)
{
    const struct tp_settings *s = p->settings;
    struct tp_degrees_task task = {
        .search = p->task,
        .source = {.hardware = p->costs.estimated ? &p->costs.hardware : NULL,
                   .n_costs = p->costs.profiles.count,
                   .costs = p->costs.measured},
        .devices = s->devices,
        .data = s->replicas,
        .pipe = s->pipe,
        .op = s->op,
        .keep = BEST,
    };
    struct tp_degrees_list list;

    task.search.work = TP_SEARCH_WORK / BEST;
    TP_TRY(tp_search_degrees(&task, &list));
    enum tp_status status = give_best(p, &task, &list);
    tp_degrees_list_fini(&list);
    return status;
}

static enum tp_status run(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    struct planning p = {.settings = settings,
                         .output = settings->output ? settings->output : "plan.json"};

    (void)world;
    *alone = false;
    enum tp_status status = prepare(&p);
    if (status == TP_OK)
        status = tp_costs_init(&p.costs, settings, &p.model);
    if (status == TP_OK) {
        p.costs.delay_wgrad = settings->delay_wgrad;
        status = settings->devices > 0 ? plan_degrees(&p) : plan_one(&p);
        tp_costs_fini(&p.costs);
    }
    tp_slices_fini(&p.slices);
    return status;
}

static const struct tp_option own[] = {
    {.name = "schedule",
     .type = TP_OPTION_CHOICE,
     .offset = offsetof(struct tp_settings, schedule),
     .initial = "auto",
     .choices = tp_search_choices,
     .argument = "NAME",
     .help = "gpipe, terapipe, 1f1b, seq1f1b, or auto: the fastest that fits"},
    {.name = "pipeline-model-parallel-size",
     .alias = "pipe",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct tp_settings, pipe),
     .min = 1,
     .max = INT_MAX,
     .argument = "STAGES",
     .help = "pipeline stages (any with --devices when not given)"},
    {.name = "slices",
     .type = TP_OPTION_STRING,
     .offset = offsetof(struct tp_settings, slices),
     .argument = "N|TOKENS,...",
     .help = "how sequences are cut: uniformly or as listed (as is fastest when not given)"},
    {.name = "group-size",
     .type = TP_OPTION_INT,
     .offset = offsetof(struct tp_settings, group_size),
     .min = 1,
     .max = INT_MAX,
     .argument = "SEQUENCES",
     .help = "sequences that are cut together (as is fastest when not given)"},
    {.name = NULL},
};

const struct tp_command tp_command_plan = {
    .name = "plan",
    .summary = "find the slices, groups and degrees of least step time",
    .options = (const char *const[]){"model",
                                     "num-layers",
                                     "hidden-size",
                                     "num-attention-heads",
                                     "vocab-size",
                                     "seq-length",
                                     "global-batch-size",
                                     "profile",
                                     "hardware",
                                     "devices",
                                     "pipeline-model-parallel-size",
                                     "tensor-model-parallel-size",
                                     "data",
                                     "schedule",
                                     "slices",
                                     "group-size",
                                     "accumulate",
                                     "grain",
                                     "recompute",
                                     "delay-wgrad-compute",
                                     "use-distributed-optimizer",
                                     "memory",
                                     "objective",
                                     "epsilon",
                                     "o",
                                     NULL},
    .required = (const char *const[]){NULL},
    .own = own,
    .local = true,
    .run = run,
};
