/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "plan/profile.h"

static const char *const direction_names[] = {"forward", "backward"};

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

/* ---- Reading ---- */

/* A list of rows; each is put in its place, which long lists would make slow. */
static enum tp_status read_rows(const struct tp_json *json, int *count)
{
    enum { MOST = 1 << 14 };

    TP_TRY(tp_json_array(json, count));
    if (*count > MOST)
        return tp_fail(TP_ERR_INPUT, "%s: %s has %d rows, expected at most %d", json->path,
                       json->key, *count, MOST);
    return TP_OK;
}

/* Where a value is, for the functions that add rows. */
static void say_where(const struct tp_json *json, char where[static 200])
{
    snprintf(where, 200, "%.100s: %.90s", json->path, json->key);
}

/* A row of numbers. */
static enum tp_status read_row(const struct tp_json *row, const char *expected, int count)
{
    int found = 0;

    TP_TRY(tp_json_array(row, &found));
    if (found != count)
        return tp_fail(TP_ERR_INPUT, "%s: %s has %d numbers, expected %s", row->path, row->key,
                       found, expected);
    return TP_OK;
}

static enum tp_status read_table(const struct tp_json *json, struct tp_table *table)
{
    char where[200];
    int count = 0;

    TP_TRY(read_rows(json, &count));
    say_where(json, where);
    for (int i = 0; i < count; i++) {
        struct tp_json row = tp_json_element(json, (size_t)i);
        int sequences = 0, tokens = 0;
        double seconds = 0;
        TP_TRY(read_row(&row, "[sequences, tokens, seconds]", 3));
        struct tp_json b = tp_json_element(&row, 0), s = tp_json_element(&row, 1);
        struct tp_json t = tp_json_element(&row, 2);
        TP_TRY(tp_json_int(&b, 1, INT_MAX, &sequences));
        TP_TRY(tp_json_int(&s, 1, INT_MAX, &tokens));
        TP_TRY(tp_json_real(&t, 0, DBL_MAX, &seconds));
        TP_TRY(tp_table_add(table, where, sequences, tokens, seconds));
    }
    return TP_OK;
}

static enum tp_status read_curve(const struct tp_json *json, struct tp_curve *curve)
{
    char where[200];
    int count = 0;

    TP_TRY(read_rows(json, &count));
    say_where(json, where);
    for (int i = 0; i < count; i++) {
        struct tp_json row = tp_json_element(json, (size_t)i);
        double bytes = 0, seconds = 0;
        TP_TRY(read_row(&row, "[bytes, seconds]", 2));
        struct tp_json x = tp_json_element(&row, 0), t = tp_json_element(&row, 1);
        TP_TRY(tp_json_real(&x, 0, DBL_MAX, &bytes));
        TP_TRY(tp_json_real(&t, 0, DBL_MAX, &seconds));
        TP_TRY(tp_curve_add(curve, where, bytes, seconds));
    }
    return TP_OK;
}

static enum tp_status read_layer(const struct tp_json *json, struct tp_layer_times *times)
{
    struct tp_json base = tp_json_member(json, "base"), context = tp_json_member(json, "context");

    TP_TRY(tp_json_object(json));
    TP_TRY(read_table(&base, &times->base));
    TP_TRY(read_row(&context, "[a0, a1, a2, a3]", 4));
    for (size_t i = 0; i < 4; i++) {
        struct tp_json coefficient = tp_json_element(&context, i);
        TP_TRY(tp_json_real(&coefficient, -DBL_MAX, DBL_MAX, &times->context[i]));
    }
    return TP_OK;
}

/* What there may be in a device; unlimited or unknown when it is not there. */
static enum tp_status read_facts(const struct tp_json *json, struct tp_profile_device *device)
{
    struct tp_json memory = tp_json_member(json, "memory");
    struct tp_json peak = tp_json_member(json, "peak_flops");
    struct tp_json reference = tp_json_member(json, "reference_flops");
    struct tp_json footprint = tp_json_member(json, "footprint");
    int align = 4096;
    double bytes = 0;

    if (memory.value != NULL) {
        TP_TRY(tp_json_real(&memory, 0, 0x1p62, &bytes));
        device->memory = (size_t)bytes;
    }
    if (peak.value != NULL)
        TP_TRY(tp_json_real(&peak, 0, DBL_MAX, &device->peak_flops));
    if (reference.value != NULL)
        TP_TRY(tp_json_real(&reference, 0, DBL_MAX, &device->reference_flops));
    if (footprint.value == NULL)
        return TP_OK;
    TP_TRY(tp_json_object(&footprint));
    if (tp_json_has(&footprint, "align"))
        TP_TRY(tp_json_member_int(&footprint, "align", 1, 1 << 30, &align));
    device->footprint.align = (size_t)align;
    if (tp_json_has(&footprint, "element_bytes"))
        TP_TRY(tp_json_member_int(&footprint, "element_bytes", 1, 16,
                                  &device->footprint.element_bytes));
    return TP_OK;
}

/* The device and its times, which are members of one object. */
static enum tp_status read_device(const struct tp_json *json, struct tp_profile_device *device)
{
    struct tp_json facts = tp_json_member(json, "device");
    struct tp_json name = tp_json_member(&facts, "name");
    struct tp_json layer = tp_json_member(json, "layer");
    const struct {
        struct tp_json json;
        struct tp_table *tables;
    } ends[] = {{tp_json_member(json, "embed"), device->embed},
                {tp_json_member(json, "head"), device->head}};
    const char *text = "";

    TP_TRY(tp_json_object(&facts));
    TP_TRY(tp_json_string(&name, &text));
    device->name = strdup(text);
    if (device->name == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to read it", json->path);
    TP_TRY(read_facts(&facts, device));
    TP_TRY(tp_json_object(&layer));
    for (int direction = TP_FORWARD; direction <= TP_BACKWARD; direction++) {
        struct tp_json times = tp_json_member(&layer, direction_names[direction]);
        TP_TRY(read_layer(&times, &device->layer[direction]));
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
            if (ends[i].json.value == NULL)
                continue;
            TP_TRY(tp_json_object(&ends[i].json));
            struct tp_json table = tp_json_member(&ends[i].json, direction_names[direction]);
            TP_TRY(read_table(&table, &ends[i].tables[direction]));
        }
    }
    return TP_OK;
}

/* Which device each rank of a replica has. */
static enum tp_status read_ranks(const struct tp_json *root, struct tp_profile *profile)
{
    struct tp_json ranks = tp_json_member(root, "ranks");
    int count = 0;

    if (ranks.value == NULL && profile->n_devices == 1)
        return TP_OK;
    TP_TRY(tp_json_array(&ranks, &count));
    profile->ranks = calloc((size_t)count, sizeof *profile->ranks);
    if (profile->ranks == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for %d ranks", root->path, count);
    profile->n_ranks = count;
    for (int i = 0; i < count; i++) {
        struct tp_json rank = tp_json_element(&ranks, (size_t)i);
        TP_TRY(tp_json_int(&rank, 0, profile->n_devices - 1, &profile->ranks[i]));
    }
    return TP_OK;
}

static enum tp_status read_links(const struct tp_json *root, struct tp_profile *profile)
{
    struct tp_json link = tp_json_member(root, "link"), links = tp_json_member(root, "links");
    int count = 0;

    if (link.value != NULL)
        TP_TRY(read_curve(&link, &profile->link));
    if (links.value == NULL)
        return TP_OK;
    TP_TRY(tp_json_array(&links, &count));
    profile->links = calloc((size_t)count, sizeof *profile->links);
    if (profile->links == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for %d links", root->path, count);
    profile->n_links = count;
    for (int i = 0; i < count; i++) {
        struct tp_json curve = tp_json_element(&links, (size_t)i);
        TP_TRY(read_curve(&curve, &profile->links[i]));
    }
    return TP_OK;
}

/* A number of ranks, which is the name of a member. */
static enum tp_status parse_ranks(const struct tp_json *json, const char *text, int *ranks)
{
    char *end;
    long number = strtol(text, &end, 10);

    if (text[0] < '1' || text[0] > '9' || *end != '\0' || number < 1 || number > INT_MAX)
        return tp_fail(TP_ERR_INPUT, "%s: %s is not a number of ranks", json->path, json->key);
    *ranks = (int)number;
    return TP_OK;
}

static enum tp_status read_allreduces(const struct tp_json *root, struct tp_profile *profile)
{
    struct tp_json all = tp_json_member(root, "allreduce");
    const char *name;
    json_t *unused;

    if (all.value == NULL)
        return TP_OK;
    TP_TRY(tp_json_object(&all));
    profile->allreduces = calloc(json_object_size(all.value) + 1, sizeof *profile->allreduces);
    if (profile->allreduces == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its all-reduces", root->path);
    json_object_foreach((json_t *)all.value, name, unused)
    {
        (void)unused;
        struct tp_json curve = tp_json_member(&all, name);
        struct tp_allreduce_times *times = &profile->allreduces[profile->n_allreduces++];
        TP_TRY(parse_ranks(&curve, name, &times->ranks));
        TP_TRY(read_curve(&curve, &times->by_bytes));
    }
    return TP_OK;
}

static enum tp_status read_header(const struct tp_json *root, struct tp_profile *profile)
{
    struct tp_json model = tp_json_member(root, "model");
    struct tp_json update = tp_json_member(root, "update_seconds_per_parameter");
    const struct {
        const struct tp_json *object;
        const char *name;
        int *value;
    } integers[] = {
        {&model, "n_embd", &profile->n_embd},
        {&model, "n_head", &profile->n_head},
        {&model, "n_inner", &profile->n_inner},
        {&model, "vocab_size", &profile->vocab_size},
        {root, "op", &profile->op},
        {root, "threads", &profile->threads},
        {root, "ranks_per_node", &profile->ranks_per_node},
    };

    TP_TRY(tp_json_object(&model));
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        TP_TRY(tp_json_member_int(integers[i].object, integers[i].name, 1, INT_MAX,
                                  integers[i].value));
    if (update.value != NULL)
        TP_TRY(tp_json_real(&update, 0, DBL_MAX, &profile->update_seconds_per_parameter));
    return TP_OK;
}

static enum tp_status read_profile(const struct tp_json *root, struct tp_profile **out)
{
    struct tp_json devices = tp_json_member(root, "devices");
    struct tp_profile *profile = NULL;
    enum tp_status status = TP_OK;
    int count = 1;

    if (devices.value != NULL)
        TP_TRY(tp_json_array(&devices, &count));
    TP_TRY(tp_profile_new(count, &profile));
    status = read_header(root, profile);
    for (int d = 0; d < count && status == TP_OK; d++) {
        struct tp_json device = tp_json_element(&devices, (size_t)d);
        if (devices.value != NULL)
            status = tp_json_object(&device);
        if (status == TP_OK)
            status = read_device(devices.value != NULL ? &device : root, &profile->devices[d]);
    }
    if (status == TP_OK)
        status = read_ranks(root, profile);
    if (status == TP_OK)
        status = read_links(root, profile);
    if (status == TP_OK)
        status = read_allreduces(root, profile);
    if (status == TP_OK)
        *out = profile;
    else
        tp_profile_free(profile);
    return status;
}

enum tp_status tp_profile_load(const char *path, struct tp_profile **profile)
{
    struct tp_json root = {.path = path};

    TP_TRY(tp_json_load(path, "terapipe-profile", &root));
    struct tp_profile *loaded = NULL;
    enum tp_status status = read_profile(&root, &loaded);
    json_decref((json_t *)root.value);
    if (status != TP_OK)
        return status;
    loaded->path = strdup(path);
    if (loaded->path == NULL) {
        tp_profile_free(loaded);
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its name", path);
    }
    *profile = loaded;
    return TP_OK;
}

/* ---- Writing: a part is NULL without memory, which jansson passes on ---- */

/* Appends a value and gives the array, or drops both. */
static json_t *append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value) == 0)
        return array;
    json_decref(array);
    return NULL;
}

static json_t *curve_json(const struct tp_curve *curve)
{
    json_t *rows = json_array();

    for (int i = 0; i < curve->count; i++)
        rows = append(rows, json_pack("[f, f]", curve->points[i].at, curve->points[i].seconds));
    return rows;
}

static json_t *table_json(const struct tp_table *table)
{
    json_t *rows = json_array();

    for (int i = 0; i < table->count; i++) {
        const struct tp_curve *curve = &table->rows[i].by_tokens;
        for (int j = 0; j < curve->count; j++)
            rows = append(rows, json_pack("[i, i, f]", table->rows[i].sequences,
                                          (int)curve->points[j].at, curve->points[j].seconds));
    }
    return rows;
}

static json_t *layer_json(const struct tp_layer_times *times)
{
    const double *a = times->context;

    return json_pack("{s:o, s:[f, f, f, f]}", "base", table_json(&times->base), "context", a[0],
                     a[1], a[2], a[3]);
}

static json_t *ends_json(const struct tp_table tables[2])
{
    if (tables[TP_FORWARD].count == 0)
        return NULL;
    return json_pack("{s:o, s:o}", direction_names[TP_FORWARD], table_json(&tables[TP_FORWARD]),
                     direction_names[TP_BACKWARD], table_json(&tables[TP_BACKWARD]));
}

/* The members that a device adds to an object. */
static json_t *device_json(const struct tp_profile_device *device)
{
    json_t *facts = json_pack("{s:s, s:{s:I, s:i}}", "name", device->name, "footprint", "align",
                              (json_int_t)device->footprint.align, "element_bytes",
                              device->footprint.element_bytes);
    int failed = 0;

    if (device->memory != 0)
        failed |= json_object_set_new(facts, "memory", json_integer((json_int_t)device->memory));
    if (device->peak_flops != 0)
        failed |= json_object_set_new(facts, "peak_flops", json_real(device->peak_flops));
    if (device->reference_flops != 0)
        failed |= json_object_set_new(facts, "reference_flops", json_real(device->reference_flops));
    json_t *json = json_pack("{s:o, s:{s:o, s:o}, s:o*, s:o*}", "device", facts, "layer",
                             direction_names[TP_FORWARD], layer_json(&device->layer[TP_FORWARD]),
                             direction_names[TP_BACKWARD], layer_json(&device->layer[TP_BACKWARD]),
                             "embed", ends_json(device->embed), "head", ends_json(device->head));
    if (!failed)
        return json;
    json_decref(json);
    return NULL;
}

/* Moves the members of one object to another and drops it. 0: done. */
static int add_members(json_t *to, json_t *from)
{
    int failed = from == NULL ? -1 : json_object_update(to, from);

    json_decref(from);
    return failed;
}

static json_t *devices_json(const struct tp_profile *profile)
{
    json_t *devices = json_array(), *ranks = json_array();

    for (int d = 0; d < profile->n_devices; d++)
        devices = append(devices, device_json(&profile->devices[d]));
    for (int i = 0; i < profile->n_ranks; i++)
        ranks = append(ranks, json_integer(profile->ranks[i]));
    return json_pack("{s:o, s:o}", "devices", devices, "ranks", ranks);
}

static json_t *links_json(const struct tp_profile *profile)
{
    json_t *links = profile->n_links > 0 ? json_array() : NULL;

    for (int i = 0; i < profile->n_links; i++)
        links = append(links, curve_json(&profile->links[i]));
    return links;
}

static json_t *allreduces_json(const struct tp_profile *profile)
{
    json_t *all = profile->n_allreduces > 0 ? json_object() : NULL;
    char name[16];

    for (int i = 0; i < profile->n_allreduces; i++) {
        snprintf(name, sizeof name, "%d", profile->allreduces[i].ranks);
        json_object_set_new(all, name, curve_json(&profile->allreduces[i].by_bytes));
    }
    return all;
}

static json_t *profile_json(const struct tp_profile *profile)
{
    json_t *link = profile->link.count > 0 ? curve_json(&profile->link) : NULL;
    json_t *json = json_pack(
        "{s:s, s:i, s:{s:i, s:i, s:i, s:i}, s:i, s:i, s:i, s:o*, s:o*, s:o*, s:f}", "format",
        "terapipe-profile", "version", 1, "model", "n_embd", profile->n_embd, "n_head",
        profile->n_head, "n_inner", profile->n_inner, "vocab_size", profile->vocab_size, "op",
        profile->op, "threads", profile->threads, "ranks_per_node", profile->ranks_per_node, "link",
        link, "links", links_json(profile), "allreduce", allreduces_json(profile),
        "update_seconds_per_parameter", profile->update_seconds_per_parameter);
    bool single = profile->n_devices == 1 && profile->n_ranks == 0;

    if (add_members(json, single ? device_json(profile->devices) : devices_json(profile)) == 0)
        return json;
    json_decref(json);
    return NULL;
}

enum tp_status tp_profile_save(const struct tp_profile *profile, const char *path)
{
    return tp_json_save(profile_json(profile), path);
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
        .embed = embed_seconds,
        .head = head_seconds,
        .link = link_seconds,
        .allreduce = allreduce_seconds,
        .update_seconds_per_parameter = profile->update_seconds_per_parameter,
    };
}
