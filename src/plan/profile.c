/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan/profile.h"

/* ---- Curves and tables ---- */

/* Makes room for one more at a place of an array of count elements. */
static enum tp_status insert(void *array, int count, size_t size, int place)
{
    void **items = array;
    /* Room doubles: a full array has a power of two. */
    if ((count & (count - 1)) == 0) {
        size_t room = count == 0 ? 1 : 2 * (size_t)count;
        void *grown = realloc(*items, room * size);
        if (grown == NULL)
            return tp_fail(TP_ERR_MEMORY, "no memory for a profile's table of %d rows", count + 1);
        *items = grown;
    }
    char *at = (char *)*items + (size_t)place * size;
    memmove(at + size, at, (size_t)(count - place) * size);
    return TP_OK;
}

/* Points that are below, or at, that number. */
static int find_point(const struct tp_curve *curve, double at)
{
    int low = 0, high = curve->count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (curve->points[middle].at <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

enum tp_status tp_curve_add(struct tp_curve *curve, const char *where, double at, double seconds)
{
    int place = find_point(curve, at);

    if (!(seconds >= 0 && isfinite(seconds)))
        return tp_fail(TP_ERR_INPUT, "%s: the time at %g is %g, expected 0 seconds or more", where,
                       at, seconds);
    if (place > 0 && curve->points[place - 1].at == at)
        return tp_fail(TP_ERR_INPUT, "%s: the row of %g is given twice", where, at);
    void *points = curve->points;
    TP_TRY(insert(&points, curve->count, sizeof *curve->points, place));
    curve->points = points;
    curve->points[place] = (struct tp_point){.at = at, .seconds = seconds};
    curve->count++;
    return TP_OK;
}

double tp_curve_at(const struct tp_curve *curve, double at)
{
    int above = find_point(curve, at);

    if (curve->count == 0)
        return 0;
    if (above == 0 || curve->count == 1)
        return curve->points[0].seconds;
    if (above == curve->count)
        above--;
    const struct tp_point *a = &curve->points[above - 1], *b = &curve->points[above];
    return a->seconds + (b->seconds - a->seconds) * ((at - a->at) / (b->at - a->at));
}

/* Rows of fewer sequences, or of so many. */
static int find_row(const struct tp_table *table, int sequences)
{
    int low = 0, high = table->count;

    while (low < high) {
        int middle = low + (high - low) / 2;
        if (table->rows[middle].sequences <= sequences)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* The curve of that many sequences; NULL when they were not measured. */
static struct tp_curve *find_curve(const struct tp_table *table, int sequences)
{
    int place = find_row(table, sequences);

    if (place == 0 || table->rows[place - 1].sequences != sequences)
        return NULL;
    return &table->rows[place - 1].by_tokens;
}

static double table_at(const struct tp_table *table, int sequences, int tokens)
{
    const struct tp_curve *curve = find_curve(table, sequences);

    return curve != NULL ? tp_curve_at(curve, tokens) : 0;
}

enum tp_status tp_table_add(struct tp_table *table, const char *where, int sequences, int tokens,
                            double seconds)
{
    struct tp_curve *curve = find_curve(table, sequences);
    char place[200];

    if (curve == NULL) {
        int row = find_row(table, sequences);
        void *rows = table->rows;
        TP_TRY(insert(&rows, table->count, sizeof *table->rows, row));
        table->rows = rows;
        table->rows[row] = (struct tp_table_row){.sequences = sequences};
        table->count++;
        curve = &table->rows[row].by_tokens;
    }
    snprintf(place, sizeof place, "%s: %d sequences", where, sequences);
    return tp_curve_add(curve, place, tokens, seconds);
}

static void table_fini(struct tp_table *table)
{
    for (int i = 0; i < table->count; i++)
        free(table->rows[i].by_tokens.points);
    free(table->rows);
}

/* ---- Life ---- */

enum tp_status tp_profile_new(int n_devices, struct tp_profile **out)
{
    struct tp_profile *profile = calloc(1, sizeof *profile);

    if (profile == NULL)
        goto fail;
    profile->devices = calloc((size_t)n_devices, sizeof *profile->devices);
    profile->cost_devices = calloc((size_t)n_devices, sizeof *profile->cost_devices);
    if (profile->devices == NULL || profile->cost_devices == NULL)
        goto fail;
    profile->n_devices = n_devices;
    profile->op = profile->threads = profile->ranks_per_node = 1;
    for (int d = 0; d < n_devices; d++)
        profile->devices[d].footprint = (struct tp_footprint){.align = 4096, .element_bytes = 4};
    *out = profile;
    return TP_OK;
fail:
    tp_profile_free(profile);
    return tp_fail(TP_ERR_MEMORY, "no memory for a profile of %d devices", n_devices);
}

void tp_profile_free(struct tp_profile *profile)
{
    if (profile == NULL)
        return;
    for (int d = 0; d < profile->n_devices; d++) {
        struct tp_profile_device *device = &profile->devices[d];
        for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++) {
            table_fini(&device->layer[direction].base);
            table_fini(&device->embed[direction]);
            table_fini(&device->head[direction]);
        }
        table_fini(&device->gradient);
        free(device->name);
    }
    free(profile->path);
    for (int i = 0; i < profile->n_links; i++)
        free(profile->links[i].points);
    for (int i = 0; i < profile->n_allreduces; i++)
        free(profile->allreduces[i].by_bytes.points);
    free(profile->link.points);
    free(profile->links);
    free(profile->allreduces);
    free(profile->ranks);
    free(profile->devices);
    free(profile->cost_devices);
    free(profile);
}

/* ---- Use ---- */

enum tp_status tp_profile_check(const struct tp_profile *profile, const char *where,
                                const struct tp_model *model, int op)
{
    const struct {
        const char *key;
        int has, expected;
    } keys[] = {
        {"model.n_embd", profile->n_embd, model->n_embd},
        {"model.n_head", profile->n_head, model->n_head},
        {"model.n_inner", profile->n_inner, model->n_inner},
        {"model.vocab_size", profile->vocab_size, model->vocab_size},
        {"op", profile->op, op},
    };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i].has != keys[i].expected)
            return tp_fail(TP_ERR_INPUT, "%s: %s is %d, expected %d as in the run", where,
                           keys[i].key, keys[i].has, keys[i].expected);
    return TP_OK;
}

/* ---- Several ---- */

static enum tp_status add_profile(struct tp_profiles *profiles, const char *path,
                                  const struct tp_model *model)
{
    struct tp_profile *profile;

    TP_TRY(tp_profile_load(path, &profile));
    profiles->at[profiles->count++] = profile;
    for (int i = 0; i < profiles->count - 1; i++)
        if (profiles->at[i]->op == profile->op)
            return tp_fail(TP_ERR_INPUT,
                           "%s: op is %d, as in another profile, expected one for each op degree",
                           path, profile->op);
    return tp_profile_check(profile, path, model, profile->op);
}

enum tp_status tp_profiles_load(const struct tp_option_list *paths, const struct tp_model *model,
                                struct tp_profiles *out)
{
    struct tp_profiles profiles = {.at = calloc((size_t)paths->count, sizeof *profiles.at)};
    enum tp_status status = TP_OK;

    if (profiles.at == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d profiles", paths->count);
    for (int i = 0; i < paths->count && status == TP_OK; i++)
        status = add_profile(&profiles, paths->at[i], model);
    if (status == TP_OK)
        *out = profiles;
    else
        tp_profiles_fini(&profiles);
    return status;
}

void tp_profiles_fini(struct tp_profiles *profiles)
{
    for (int i = 0; i < profiles->count; i++)
        tp_profile_free(profiles->at[i]);
    free(profiles->at);
    *profiles = (struct tp_profiles){.count = 0};
}

/* What lists ranks or stage boundaries lists those of these degrees. */
static enum tp_status check_lists(const struct tp_profile *profile, int pipe, int op)
{
    if (profile->n_ranks > 0 && profile->n_ranks != pipe * op)
        return tp_fail(TP_ERR_INPUT,
                       "%s: ranks lists %d, expected %d, for %d stages of %d op ranks",
                       profile->path, profile->n_ranks, pipe * op, pipe, op);
    if (profile->n_links > 0 && profile->n_links != pipe - 1)
        return tp_fail(TP_ERR_INPUT,
                       "%s: links lists %d, expected %d between %d stages (or none, and link is "
                       "for all)",
                       profile->path, profile->n_links, pipe - 1, pipe);
    return TP_OK;
}

static enum tp_status fail_op(const struct tp_profiles *profiles, int op)
{
    char there[600] = "";

    for (int i = 0; i < profiles->count; i++) {
        const size_t length = strlen(there);
        snprintf(there + length, sizeof there - length, "%s: op is %d, ", profiles->at[i]->path,
                 profiles->at[i]->op);
    }
    return tp_fail(TP_ERR_INPUT, "%sexpected %d as in the run", there, op);
}

enum tp_status tp_profiles_find(const struct tp_profiles *profiles, int pipe, int op, int *index)
{
    for (int i = 0; i < profiles->count; i++)
        if (profiles->at[i]->op == op) {
            TP_TRY(check_lists(profiles->at[i], pipe, op));
            *index = i;
            return TP_OK;
        }
    return fail_op(profiles, op);
}

/* ---- As a cost ---- */

static bool has_group(const void *self, int d, int b)
{
    const struct tp_profile_device *device = &((const struct tp_profile *)self)->devices[d];

    if (device->gradient.count > 0 && find_curve(&device->gradient, b) == NULL)
        return false;
    for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++) {
        const struct tp_table *ends[] = {&device->embed[direction], &device->head[direction]};
        if (find_curve(&device->layer[direction].base, b) == NULL)
            return false;
        for (size_t i = 0; i < 2; i++)
            if (ends[i]->count > 0 && find_curve(ends[i], b) == NULL)
                return false;
    }
    return true;
}

static double layer_seconds(const void *self, int device, enum tp_direction direction, int b, int s,
                            int c)
{
    const struct tp_profile *profile = self;
    const struct tp_layer_times *times = &profile->devices[device].layer[direction];
    const double *a = times->context;
    const double B = b, S = s, P = c;
    const double base = table_at(&times->base, b, s);

    return c > 0 ? base + (a[0] + a[1] * B * S + a[2] * B * P + a[3] * B * S * P) : base;
}

static double gradient_seconds(const void *self, int device, int b, int s)
{
    return table_at(&((const struct tp_profile *)self)->devices[device].gradient, b, s);
}

static double embed_seconds(const void *self, int device, enum tp_direction direction, int b, int s)
{
    return table_at(&((const struct tp_profile *)self)->devices[device].embed[direction], b, s);
}

static double head_seconds(const void *self, int device, enum tp_direction direction, int b, int s)
{
    return table_at(&((const struct tp_profile *)self)->devices[device].head[direction], b, s);
}

static double link_seconds(const void *self, int boundary, size_t bytes)
{
    const struct tp_profile *profile = self;

    return tp_curve_at(boundary < profile->n_links ? &profile->links[boundary] : &profile->link,
                       (double)bytes);
}

static double allreduce_seconds(const void *self, int ranks, size_t bytes)
{
    const struct tp_profile *profile = self;

    for (int i = 0; i < profile->n_allreduces; i++)
        if (profile->allreduces[i].ranks == ranks)
            return tp_curve_at(&profile->allreduces[i].by_bytes, (double)bytes);
    return 0;
}

void tp_profile_cost(struct tp_profile *profile, struct tp_cost *cost)
{
    for (int d = 0; d < profile->n_devices; d++) {
        const struct tp_profile_device *device = &profile->devices[d];
        profile->cost_devices[d] = (struct tp_cost_device){.name = device->name,
                                                           .memory = device->memory,
                                                           .peak_flops = device->peak_flops,
                                                           .footprint = device->footprint};
    }
    *cost = (struct tp_cost){
        .self = profile,
        .file = profile->path,
        .op = profile->op,
        .n_devices = profile->n_devices,
        .devices = profile->cost_devices,
        .n_ranks = profile->n_ranks,
        .device_of_rank = profile->ranks,
        .n_links = profile->n_links,
        .has_group = has_group,
        .layer = layer_seconds,
        .gradient = profile->devices[0].gradient.count > 0 ? gradient_seconds : NULL,
        .embed = embed_seconds,
        .head = head_seconds,
        .link = link_seconds,
        .allreduce = allreduce_seconds,
        .update_seconds_per_parameter = profile->update_seconds_per_parameter,
    };
}
