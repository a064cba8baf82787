/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/share.h"
#include "json.h"
#include "plan/plan.h"
#include "plan/simulate.h"

static const char *const schedule_names[] = {
    [TP_SCHEDULE_GPIPE] = "gpipe",     [TP_SCHEDULE_TERAPIPE] = "terapipe",
    [TP_SCHEDULE_1F1B] = "1f1b",       [TP_SCHEDULE_SEQ1F1B] = "seq1f1b",
    [TP_SCHEDULE_FORWARD] = "forward",
};
enum { SCHEDULES = sizeof schedule_names / sizeof *schedule_names };

const char *const tp_schedule_choices[] = {"gpipe", "terapipe", "1f1b", "seq1f1b", NULL};

const char *tp_schedule_name(enum tp_schedule_kind kind)
{
    return schedule_names[kind];
}

bool tp_schedule_is_whole(enum tp_schedule_kind kind)
{
    return kind == TP_SCHEDULE_GPIPE || kind == TP_SCHEDULE_1F1B;
}

bool tp_schedule_is_early(enum tp_schedule_kind kind)
{
    return kind == TP_SCHEDULE_1F1B || kind == TP_SCHEDULE_SEQ1F1B;
}

void tp_stages_even(int n_layer, int n_stages, struct tp_stage_layers *out)
{
    for (int k = 0; k < n_stages; k++) {
        const struct tp_share share = tp_share_of((size_t)n_layer, n_stages, k);
        out[k] = (struct tp_stage_layers){(int)share.first, (int)share.count};
    }
}

enum tp_status tp_plan_new(const struct tp_plan *facts, int n_groups, struct tp_plan **out)
{
    struct tp_plan *plan = malloc(sizeof *plan);
    if (plan == NULL)
        goto fail;
    *plan = *facts;
    plan->n_groups = n_groups;
    plan->stages = calloc((size_t)plan->n_stages, sizeof *plan->stages);
    plan->groups = calloc((size_t)n_groups, sizeof *plan->groups);
    plan->flights = calloc((size_t)plan->n_flights, sizeof *plan->flights);
    if (plan->stages == NULL || plan->groups == NULL || plan->flights == NULL)
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
    free(plan->flights);
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
    if (tp_schedule_is_whole(schedule) || count < 1)
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
    if (tp_schedule_is_whole(schedule) && slices != NULL && slices->count != 1)
        return tp_fail(TP_ERR_USAGE,
                       "--slices: %d slices, but --schedule %s has one slice per sequence",
                       slices->count, tp_schedule_name(schedule));
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
        .n_flights = 1,
    };
    struct tp_plan *plan = NULL;
    enum tp_status status = tp_plan_new(&facts, (batch - 1) / group_size + 1, &plan);
    if (status != TP_OK)
        goto fini_cut;
    plan->flights[0] = plan->n_groups;
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

/* The first groups of a plan that batch sequences need, and the flights that these groups need. */
static void count_groups(const struct tp_plan *plan, int batch, int *n_groups, int *n_flights)
{
    int left = batch;

    for (*n_groups = 0; left > 0; (*n_groups)++)
        left -= plan->groups[*n_groups].sequences;
    left = *n_groups;
    for (*n_flights = 0; left > 0; (*n_flights)++)
        left -= plan->flights[*n_flights];
}

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Another plan's groups, which lose sequences from the end until there are batch of them. */
static enum tp_status copy_groups(const struct tp_plan *from, struct tp_plan *to)
{
    int left = to->batch;

    for (int g = 0; g < to->n_groups; g++) {
        to->groups[g].sequences = least(left, from->groups[g].sequences);
        left -= to->groups[g].sequences;
        TP_TRY(tp_slices_copy(&from->groups[g].slices, &to->groups[g].slices));
    }
    return TP_OK;
}

/* A plan with those facts, and stages and groups of another one; flights are left to the caller. */
static enum tp_status derive(const struct tp_plan *from, const struct tp_plan *facts, int n_groups,
                             struct tp_plan **out)
{
    struct tp_plan *made;

    TP_TRY(tp_plan_new(facts, n_groups, &made));
    memcpy(made->stages, from->stages, (size_t)from->n_stages * sizeof *from->stages);
    enum tp_status status = copy_groups(from, made);
    if (status == TP_OK)
        *out = made;
    else
        tp_plan_free(made);
    return status;
}

enum tp_status tp_plan_shrink(const struct tp_plan *plan, int batch, enum tp_schedule_kind schedule,
                              struct tp_plan **out)
{
    TP_ASSERT(batch >= 1 && batch <= plan->batch);
    struct tp_plan facts = *plan, *shrunk;
    int n_groups = 0;
    facts.batch = batch;
    facts.schedule = schedule;
    count_groups(plan, batch, &n_groups, &facts.n_flights);
    if (schedule == TP_SCHEDULE_FORWARD)
        facts.n_flights = 1;
    TP_TRY(derive(plan, &facts, n_groups, &shrunk));
    for (int f = 0, left = n_groups; f < shrunk->n_flights; left -= shrunk->flights[f++])
        shrunk->flights[f] = facts.n_flights > 1 ? least(left, plan->flights[f]) : left;
    *out = shrunk;
    return TP_OK;
}

enum tp_status tp_plan_in_flights(const struct tp_plan *plan, int n_flights, struct tp_plan **out)
{
    TP_ASSERT(n_flights >= 1 && n_flights <= plan->n_groups);
    struct tp_plan facts = *plan, *dealt;
    facts.n_flights = n_flights;
    TP_TRY(derive(plan, &facts, plan->n_groups, &dealt));
    for (int f = 0; f < n_flights; f++)
        dealt->flights[f] = (int)tp_share_of((size_t)plan->n_groups, n_flights, f).count;
    *out = dealt;
    return TP_OK;
}

/* Copies the groups of one flight behind those that the plan has. */
static enum tp_status append_flight(struct tp_plan *plan, const struct tp_plan *flight, int f,
                                    int *n_groups)
{
    for (int g = 0; g < flight->n_groups; g++) {
        struct tp_group *group = &plan->groups[(*n_groups)++];
        group->sequences = flight->groups[g].sequences;
        TP_TRY(tp_slices_copy(&flight->groups[g].slices, &group->slices));
    }
    plan->flights[f] = flight->n_groups;
    return TP_OK;
}

enum tp_status tp_plan_repeat(const struct tp_plan *flight, int batch, int n_flights,
                              struct tp_plan **out)
{
    const int n_small = flight->batch * n_flights - batch, n_large = n_flights - n_small;
    struct tp_plan facts = *flight, *small, *plan;
    int n_groups = 0;

    TP_ASSERT(n_small >= 0 && n_large > 0 && flight->n_flights == 1);
    TP_TRY(tp_plan_shrink(flight, flight->batch - (n_small > 0), flight->schedule, &small));
    facts.batch = batch;
    facts.n_flights = n_flights;
    enum tp_status status =
        tp_plan_new(&facts, n_large * flight->n_groups + n_small * small->n_groups, &plan);
    if (status != TP_OK)
        goto free_small;
    memcpy(plan->stages, flight->stages, (size_t)flight->n_stages * sizeof *plan->stages);
    for (int f = 0; f < n_flights && status == TP_OK; f++)
        status = append_flight(plan, f < n_large ? flight : small, f, &n_groups);
    if (status == TP_OK)
        *out = plan;
    else
        tp_plan_free(plan);
free_small:
    tp_plan_free(small);
    return status;
}

enum tp_status tp_plan_whole(const struct tp_plan *plan, struct tp_plan **out)
{
    const bool early = tp_schedule_is_early(plan->schedule);
    struct tp_plan *whole;

    TP_TRY(tp_plan_shrink(plan, plan->batch, early ? TP_SCHEDULE_1F1B : TP_SCHEDULE_GPIPE, &whole));
    for (int g = 0; g < whole->n_groups; g++) {
        struct tp_slices *slices = &whole->groups[g].slices;
        slices->lengths[0] = plan->seq_len;
        slices->count = 1;
    }
    *out = whole;
    return TP_OK;
}

/* ---- plan.json: reading ---- */

/* The model's numbers in the file; the limits are those of tp_model_check(). */
static enum tp_status read_model(const struct tp_json *json, struct tp_model *model)
{
    struct tp_model read;
    const struct {
        const char *name;
        int *value;
    } integers[] = {
        {"n_layer", &read.n_layer},       {"n_embd", &read.n_embd},
        {"n_head", &read.n_head},         {"n_inner", &read.n_inner},
        {"vocab_size", &read.vocab_size}, {"n_positions", &read.n_positions},
    };

    TP_TRY(tp_json_object(json));
    TP_TRY(tp_model_preset("gpt2", &read));
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        TP_TRY(tp_json_member_int(json, integers[i].name, 1, INT_MAX, integers[i].value));
    TP_TRY(tp_model_check(&read, json->path));
    *model = read;
    return TP_OK;
}

static enum tp_status read_schedule(const struct tp_json *json, enum tp_schedule_kind *kind)
{
    const char *text = NULL;

    TP_TRY(tp_json_string(json, &text));
    for (int i = 0; i < SCHEDULES; i++)
        if (strcmp(schedule_names[i], text) == 0) {
            *kind = (enum tp_schedule_kind)i;
            return TP_OK;
        }
    return tp_fail(TP_ERR_INPUT,
                   "%s: %s is \"%.40s\", expected gpipe, terapipe, 1f1b, seq1f1b or "
                   "forward",
                   json->path, json->key, text);
}

/* What is not a list. */
static enum tp_status read_scalars(const struct tp_json *root, struct tp_plan *plan)
{
    struct tp_json model = tp_json_member(root, "model");
    struct tp_json schedule = tp_json_member(root, "schedule");
    struct tp_json recompute = tp_json_member(root, "recompute");
    struct tp_json zero = tp_json_member(root, "zero");
    struct tp_json delay = tp_json_member(root, "delay_wgrad");

    TP_TRY(read_model(&model, &plan->model));
    TP_TRY(tp_json_member_int(root, "seq_len", 1, plan->model.n_positions, &plan->seq_len));
    TP_TRY(tp_json_member_int(root, "batch", 1, INT_MAX, &plan->batch));
    TP_TRY(tp_json_member_int(root, "data", 1, INT_MAX / plan->batch, &plan->data));
    TP_TRY(tp_json_member_int(root, "pipe", 1, plan->model.n_layer, &plan->pipe));
    TP_TRY(tp_json_member_int(root, "op", 1, plan->model.n_head, &plan->op));
    if (plan->model.n_head % plan->op != 0)
        return tp_fail(TP_ERR_INPUT, "%s: op is %d, expected a divisor of n_head, %d", root->path,
                       plan->op, plan->model.n_head);
    TP_TRY(read_schedule(&schedule, &plan->schedule));
    if (zero.value != NULL)
        TP_TRY(tp_json_bool(&zero, &plan->zero));
    if (delay.value != NULL)
        TP_TRY(tp_json_bool(&delay, &plan->delay_wgrad));
    if (recompute.value != NULL)
        TP_TRY(tp_json_bool(&recompute, &plan->recompute));
    if (plan->recompute && plan->delay_wgrad)
        return tp_fail(TP_ERR_INPUT,
                       "%s: delay_wgrad is true, expected false where recompute is true",
                       root->path);
    return TP_OK;
}

/* The stages have the layers in order, each once. */
static enum tp_status read_stages(const struct tp_json *json, struct tp_plan *plan)
{
    int next = 0;

    if (plan->n_stages != plan->pipe)
        return tp_fail(TP_ERR_INPUT, "%s: stages: %d of them, expected %d, as pipe says",
                       json->path, plan->n_stages, plan->pipe);
    for (int k = 0; k < plan->n_stages; k++) {
        struct tp_json stage = tp_json_element(json, (size_t)k);
        struct tp_stage_layers *layers = &plan->stages[k];
        TP_TRY(tp_json_object(&stage));
        TP_TRY(tp_json_member_int(&stage, "first_layer", next, next, &layers->first_layer));
        TP_TRY(tp_json_member_int(&stage, "n_layer", 1, plan->model.n_layer, &layers->n_layer));
        next += layers->n_layer;
    }
    if (next != plan->model.n_layer)
        return tp_fail(TP_ERR_INPUT, "%s: stages: they have %d layers, expected the model's %d",
                       json->path, next, plan->model.n_layer);
    return TP_OK;
}

/* Positive numbers that add up to a sum. */
static enum tp_status read_parts(const struct tp_json *json, int sum, const char *sum_name,
                                 int count, int *out)
{
    int left = sum;

    for (int i = 0; i < count; i++) {
        struct tp_json part = tp_json_element(json, (size_t)i);
        TP_TRY(tp_json_int(&part, 1, INT_MAX, &out[i]));
        if (out[i] > left)
            return tp_fail(TP_ERR_INPUT, "%s: %s adds up to more than %s, %d", json->path,
                           json->key, sum_name, sum);
        left -= out[i];
    }
    if (left != 0)
        return tp_fail(TP_ERR_INPUT, "%s: %s adds up to %d, expected %s, %d", json->path, json->key,
                       sum - left, sum_name, sum);
    return TP_OK;
}

static enum tp_status read_slices(const struct tp_json *json, const struct tp_plan *plan,
                                  struct tp_slices *slices)
{
    int count = 0;

    TP_TRY(tp_json_array(json, &count));
    if (tp_schedule_is_whole(plan->schedule) && count != 1)
        return tp_fail(TP_ERR_INPUT, "%s: %s has %d slices, expected 1 under schedule %s",
                       json->path, json->key, count, tp_schedule_name(plan->schedule));
    slices->lengths = calloc((size_t)count, sizeof *slices->lengths);
    if (slices->lengths == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for %d slices", json->path, count);
    slices->count = count;
    return read_parts(json, plan->seq_len, "seq_len", count, slices->lengths);
}

static enum tp_status read_groups(const struct tp_json *json, struct tp_plan *plan)
{
    int left = plan->batch;

    for (int g = 0; g < plan->n_groups; g++) {
        struct tp_json entry = tp_json_element(json, (size_t)g);
        struct tp_group *group = &plan->groups[g];
        TP_TRY(tp_json_object(&entry));
        TP_TRY(tp_json_member_int(&entry, "sequences", 1, INT_MAX, &group->sequences));
        if (group->sequences > left)
            return tp_fail(TP_ERR_INPUT, "%s: groups have more sequences than batch, %d",
                           json->path, plan->batch);
        left -= group->sequences;
        struct tp_json slices = tp_json_member(&entry, "slices");
        TP_TRY(read_slices(&slices, plan, &group->slices));
    }
    if (left != 0)
        return tp_fail(TP_ERR_INPUT, "%s: groups have %d sequences, expected batch, %d", json->path,
                       plan->batch - left, plan->batch);
    return TP_OK;
}

static enum tp_status read_plan(const struct tp_json *root, struct tp_plan **out)
{
    struct tp_json stages = tp_json_member(root, "stages");
    struct tp_json groups = tp_json_member(root, "groups");
    struct tp_json flights = tp_json_member(root, "flights");
    struct tp_plan facts = {.n_flights = 1}, *plan = NULL;
    int n_groups = 0;

    TP_TRY(read_scalars(root, &facts));
    TP_TRY(tp_json_array(&stages, &facts.n_stages));
    TP_TRY(tp_json_array(&groups, &n_groups));
    if (flights.value != NULL)
        TP_TRY(tp_json_array(&flights, &facts.n_flights));
    TP_TRY(tp_plan_new(&facts, n_groups, &plan));
    plan->flights[0] = n_groups;
    enum tp_status status = read_stages(&stages, plan);
    if (status == TP_OK)
        status = read_groups(&groups, plan);
    if (status == TP_OK && flights.value != NULL)
        status =
            read_parts(&flights, n_groups, "the number of groups", plan->n_flights, plan->flights);
    if (status == TP_OK)
        *out = plan;
    else
        tp_plan_free(plan);
    return status;
}

enum tp_status tp_plan_load(const char *path, struct tp_plan **plan)
{
    struct tp_json root = {.path = path};

    TP_TRY(tp_json_load(path, "terapipe-plan", &root));
    enum tp_status status = read_plan(&root, plan);
    json_decref((json_t *)root.value);
    return status;
}

/* ---- plan.json: writing ---- */

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

static json_t *integers_json(const int *values, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++)
        if (json_array_append_new(array, json_integer(values[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static json_t *groups_json(const struct tp_plan *plan)
{
    json_t *groups = json_array();
    for (int g = 0; g < plan->n_groups; g++) {
        const struct tp_group *group = &plan->groups[g];
        json_t *entry = json_pack("{s:i, s:o}", "sequences", group->sequences, "slices",
                                  integers_json(group->slices.lengths, group->slices.count));
        if (json_array_append_new(groups, entry) != 0) {
            json_decref(groups);
            return NULL;
        }
    }
    return groups;
}

static json_t *predicted_json(const struct tp_simulation *predicted)
{
    json_t *bytes = json_array();
    for (int k = 0; k < predicted->n_stages; k++) {
        json_int_t peak = (json_int_t)predicted->stages[k].peak_bytes;
        if (json_array_append_new(bytes, json_integer(peak)) != 0) {
            json_decref(bytes);
            return NULL;
        }
    }
    return json_pack("{s:f, s:f, s:o}", "step_seconds", predicted->step_seconds, "bubble",
                     predicted->bubble, "stage_peak_bytes", bytes);
}

static json_t *plan_json(const struct tp_plan *plan, const struct tp_simulation *predicted)
{
    json_t *json =
        json_pack("{s:s, s:i, s:o, s:i, s:i, s:i, s:i, s:i, s:s, s:b, s:o, s:o, s:o}", "format",
                  "terapipe-plan", "version", 1, "model", model_json(&plan->model), "seq_len",
                  plan->seq_len, "batch", plan->batch, "data", plan->data, "pipe", plan->pipe, "op",
                  plan->op, "schedule", tp_schedule_name(plan->schedule), "recompute",
                  (int)plan->recompute, "stages", stages_json(plan), "groups", groups_json(plan),
                  "flights", integers_json(plan->flights, plan->n_flights));
    if ((plan->zero && json_object_set_new(json, "zero", json_true()) != 0) ||
        (plan->delay_wgrad && json_object_set_new(json, "delay_wgrad", json_true()) != 0) ||
        (predicted != NULL &&
         json_object_set_new(json, "predicted", predicted_json(predicted)) != 0)) {
        json_decref(json);
        return NULL;
    }
    return json;
}

enum tp_status tp_plan_save(const struct tp_plan *plan, const struct tp_simulation *predicted,
                            const char *path)
{
    return tp_json_save(plan_json(plan, predicted), path);
}
