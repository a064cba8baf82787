/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <jansson.h>

#include "base/file.h"
#include "cli/command.h"
#include "cli/costs.h"
#include "plan/report.h"

static json_t *stages_json(const struct tp_simulation *s)
{
    json_t *stages = json_array();

    for (int k = 0; k < s->n_stages; k++)
        json_array_append_new(stages, json_pack("{s:f, s:f, s:i, s:I, s:I}", "busy_seconds",
                                                s->stages[k].busy, "bubble", s->stages[k].bubble,
                                                "peak_slices", s->stages[k].peak_units,
                                                "peak_tokens", (json_int_t)s->stages[k].peak_tokens,
                                                "peak_bytes", (json_int_t)s->stages[k].peak_bytes));
    return stages;
}

/* One line; null stands for what is not known. */
static enum tp_status print_json(const struct tp_plan *plan, const struct tp_cost *cost,
                                 const struct tp_simulation *s)
{
    const int sequences = plan->batch * plan->data;
    const double share = tp_report_utilisation(plan, cost, sequences, s->step_seconds);
    const double tokens = (double)sequences * plan->seq_len;
    json_t *json =
        json_pack("{s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:o}", "step_seconds", s->step_seconds,
                  "makespan", s->makespan, "allreduce_seconds", s->allreduce_seconds,
                  "update_seconds", s->update_seconds, "bubble", s->bubble, "tokens_per_second",
                  s->step_seconds > 0 ? json_real(tokens / s->step_seconds) : json_null(),
                  "model_flops_utilisation", share > 0 ? json_real(share) : json_null(), "stages",
                  stages_json(s));
    char *text = json != NULL ? json_dumps(json, 0) : NULL;

    json_decref(json);
    if (text == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory to print the simulation");
    puts(text);
    free(text);
    return TP_OK;
}

static enum tp_status simulate(const struct tp_settings *settings, const struct tp_plan *plan,
                               const struct tp_cost *cost)
{
    struct tp_simulation simulation;
    struct tp_trace *trace = NULL;

    if (settings->trace != NULL)
        TP_TRY(tp_trace_new(&trace));
    enum tp_status status = tp_simulate(plan, cost, trace, &simulation);
    if (status != TP_OK)
        goto free_trace;
    if (trace != NULL)
        status = tp_trace_save(trace, settings->trace);
    if (status == TP_OK)
        status = settings->json ? print_json(plan, cost, &simulation)
                                : tp_report_plan(plan, cost, 0, &simulation, stdout);
    tp_simulation_fini(&simulation);
free_trace:
    tp_trace_free(trace);
    return status;
}

static enum tp_status run(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    const struct tp_cost *cost;
    struct tp_costs costs;
    struct tp_plan *plan;

    (void)world;
    *alone = false;
    if (settings->trace != NULL && tp_file_is_same(settings->trace, settings->plan))
        return tp_fail(TP_ERR_USAGE, "--trace %s: expected a file of its own, not the plan",
                       settings->trace);
    if (settings->trace != NULL)
        TP_TRY(tp_file_probe(settings->trace));
    TP_TRY(tp_plan_load(settings->plan, &plan));
    enum tp_status status = tp_costs_init(&costs, settings, &plan->model);
    if (status == TP_OK) {
        costs.delay_wgrad = plan->delay_wgrad;
        status = tp_costs_find(&costs, &plan->model, plan->pipe, plan->op, &cost);
        if (status == TP_OK)
            status = simulate(settings, plan, cost);
        tp_costs_fini(&costs);
    }
    tp_plan_free(plan);
    return status;
}

const struct tp_command tp_command_simulate = {
    .name = "simulate",
    .summary = "what a step of a plan takes: time, bubble, memory",
    .options = (const char *const[]){"profile", "hardware", "trace", "json", NULL},
    .required = (const char *const[]){NULL},
    .argument = "PLAN",
    .local = true,
    .run = run,
};
