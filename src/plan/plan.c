/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "plan/plan.h"

static const char *const schedule_names[] = {
    [TP_SCHEDULE_GPIPE] = "gpipe",
    [TP_SCHEDULE_TERAPIPE] = "terapipe",
    [TP_SCHEDULE_FORWARD] = "forward",
};

const char *const tp_schedule_choices[] = {"gpipe", "terapipe", NULL};

const char *tp_schedule_name(enum tp_schedule_kind kind)
{
    return schedule_names[kind];
}

void tp_stages_even(int n_layer, int n_stages, struct tp_stage_layers *out)
{
    int first = 0;
    for (int k = 0; k < n_stages; k++) {
        int count = n_layer / n_stages + (k < n_layer % n_stages);
        out[k] = (struct tp_stage_layers){.first_layer = first, .n_layer = count};
        first += count;
    }
}

/* A plan with those facts and room of its own for stages and groups, which are empty yet. */
static enum tp_status plan_new(const struct tp_plan *facts, int n_groups, struct tp_plan **out)
{
    struct tp_plan *plan = malloc(sizeof *plan);
    if (plan == NULL)
        goto fail;
    *plan = *facts;
    plan->n_groups = n_groups;
    plan->stages = calloc((size_t)plan->n_stages, sizeof *plan->stages);
    plan->groups = calloc((size_t)n_groups, sizeof *plan->groups);
    if (plan->stages == NULL || plan->groups == NULL)
        goto fail;
    *out = plan;
    return TP_OK;
fail:
    tp_plan_free(plan);
    return tp_fail(TP_ERR_MEMORY, "no memory for a plan of %d groups", n_groups);
}

void tp_plan_free(struct tp_plan *plan)
{
    if (plan == NULL)
        return;
    for (int g = 0; plan->groups != NULL && g < plan->n_groups; g++)
        tp_slices_fini(&plan->groups[g].slices);
    free(plan->groups);
    free(plan->stages);
    free(plan);
}

/* Groups of group_size sequences, the last one the remainder, all cut alike. */
static enum tp_status fill_groups(struct tp_plan *plan, int group_size,
                                  const struct tp_slices *slices)
{
    int left = plan->batch;
    for (int g = 0; g < plan->n_groups; g++) {
        struct tp_group *group = &plan->groups[g];
        group->sequences = left < group_size ? left : group_size;
        left -= group->sequences;
        TP_TRY(tp_slices_copy(slices, &group->slices));
    }
    return TP_OK;
}

/* How a sequence is cut when nobody said it. */
static enum tp_status default_slices(int seq_len, enum tp_schedule_kind schedule,
                                     struct tp_slices *slices)
{
    int count = seq_len / 8 < 4 ? seq_len / 8 : 4;
    if (schedule == TP_SCHEDULE_GPIPE || count < 1)
        count = 1;
    return tp_slices_uniform(seq_len, count, slices);
}

enum tp_status tp_plan_default(const struct tp_model *model, int seq_len, int batch, int pipe,
                               enum tp_schedule_kind schedule, int group_size,
                               const struct tp_slices *slices, struct tp_plan **out)
{
    if (pipe > model->n_layer)
        return tp_fail(TP_ERR_USAGE,
                       "--pipeline-model-parallel-size %d: expected 1 to %d, the model's layers",
                       pipe, model->n_layer);
    if (schedule == TP_SCHEDULE_GPIPE && slices != NULL && slices->count != 1)
        return tp_fail(TP_ERR_USAGE,
                       "--slices: %d slices, but --schedule gpipe has one slice per sequence",
                       slices->count);
    if (group_size == 0)
        group_size = (batch + pipe - 1) / pipe;

    struct tp_slices cut;
    TP_TRY(slices != NULL ? tp_slices_copy(slices, &cut) : default_slices(seq_len, schedule, &cut));
    const struct tp_plan facts = {
        .model = *model,
        .seq_len = seq_len,
        .batch = batch,
        .data = 1,
        .pipe = pipe,
        .op = 1,
        .schedule = schedule,
        .n_stages = pipe,
    };
    struct tp_plan *plan = NULL;
    enum tp_status status = plan_new(&facts, (batch - 1) / group_size + 1, &plan);
    if (status != TP_OK)
        goto fini_cut;
    tp_stages_even(model->n_layer, pipe, plan->stages);
    status = fill_groups(plan, group_size, &cut);
    if (status == TP_OK)
        *out = plan;
    else
        tp_plan_free(plan);
fini_cut:
    tp_slices_fini(&cut);
    return status;
}

/* The first groups of a plan that batch sequences need. */
static int count_groups(const struct tp_plan *plan, int batch)
{
    int count = 0;
    for (int left = batch; left > 0 && count < plan->n_groups; count++)
        left -= plan->groups[count].sequences;
    return count;
}

enum tp_status tp_plan_shrink(const struct tp_plan *plan, int batch, enum tp_schedule_kind schedule,
                              struct tp_plan **out)
{
    TP_ASSERT(batch >= 1 && batch <= plan->batch);
    struct tp_plan facts = *plan, *shrunk = NULL;
    facts.batch = batch;
    facts.schedule = schedule;
    TP_TRY(plan_new(&facts, count_groups(plan, batch), &shrunk));
    memcpy(shrunk->stages, plan->stages, (size_t)plan->n_stages * sizeof *plan->stages);

    int left = batch;
    for (int g = 0; g < shrunk->n_groups; g++) {
        const struct tp_group *from = &plan->groups[g];
        struct tp_group *to = &shrunk->groups[g];
        to->sequences = left < from->sequences ? left : from->sequences;
        left -= to->sequences;
        enum tp_status status = tp_slices_copy(&from->slices, &to->slices);
        if (status != TP_OK) {
            tp_plan_free(shrunk);
            return status;
        }
    }
    *out = shrunk;
    return TP_OK;
}

/* The parts of plan.json; each is NULL without memory, which json_pack passes on. */
static json_t *model_json(const struct tp_model *model)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i}", "n_layer", model->n_layer, "n_embd",
                     model->n_embd, "n_head", model->n_head, "n_inner", model->n_inner,
                     "vocab_size", model->vocab_size, "n_positions", model->n_positions);
}

static json_t *stages_json(const struct tp_plan *plan)
{
    json_t *stages = json_array();
    for (int k = 0; k < plan->n_stages; k++) {
        json_t *stage = json_pack("{s:i, s:i}", "first_layer", plan->stages[k].first_layer,
                                  "n_layer", plan->stages[k].n_layer);
        if (json_array_append_new(stages, stage) != 0) {
            json_decref(stages);
            return NULL;
        }
    }
    return stages;
}

static json_t *lengths_json(const struct tp_slices *slices)
{
    json_t *lengths = json_array();
    for (int i = 0; i < slices->count; i++)
        if (json_array_append_new(lengths, json_integer(slices->lengths[i])) != 0) {
            json_decref(lengths);
            return NULL;
        }
    return lengths;
}

static json_t *groups_json(const struct tp_plan *plan)
{
    json_t *groups = json_array();
    for (int g = 0; g < plan->n_groups; g++) {
        const struct tp_group *group = &plan->groups[g];
        json_t *entry = json_pack("{s:i, s:o}", "sequences", group->sequences, "slices",
                                  lengths_json(&group->slices));
        if (json_array_append_new(groups, entry) != 0) {
            json_decref(groups);
            return NULL;
        }
    }
    return groups;
}

static json_t *plan_json(const struct tp_plan *plan)
{
    return json_pack("{s:s, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:o, s:o, s:[i]}",
                     "format", "terapipe-plan", "version", 1, "model", model_json(&plan->model),
                     "seq_len", plan->seq_len, "batch", plan->batch, "data", plan->data, "pipe",
                     plan->pipe, "op", plan->op, "schedule", tp_schedule_name(plan->schedule),
                     "recompute", 0, "stages", stages_json(plan), "groups", groups_json(plan),
                     "flights", plan->n_groups);
}

enum tp_status tp_plan_save(const struct tp_plan *plan, const char *path)
{
    json_t *json = plan_json(plan);
    char *text = json != NULL ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    if (text == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write the plan", path);
    enum tp_status status = tp_file_write(path, text, strlen(text));
    free(text);
    return status;
}
