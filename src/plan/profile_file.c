/* SPDX-License-Identifier: Apache-2.0 */
/* profile.json. */
#include "config.h"

#include <float.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"
#include "plan/profile.h"

static const char *const direction_names[] = {"forward", "backward"};

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
    if (tp_json_has(&footprint, "panel"))
        TP_TRY(tp_json_member_int(&footprint, "panel", 0, 1 << 16, &device->footprint.panel));
    return TP_OK;
}

/* The device and its times, which are members of one object. */
static enum tp_status read_device(const struct tp_json *json, struct tp_profile_device *device)
{
    struct tp_json facts = tp_json_member(json, "device");
    struct tp_json name = tp_json_member(&facts, "name");
    struct tp_json layer = tp_json_member(json, "layer");
    struct tp_json gradient = tp_json_member(json, "gradient");
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
    if (gradient.value != NULL)
        TP_TRY(read_table(&gradient, &device->gradient));
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

/* Either all devices were measured with delayed weight gradients, or none. */
static enum tp_status check_gradients(const struct tp_json *root, const struct tp_profile *profile)
{
    const bool delayed = profile->devices[0].gradient.count > 0;

    for (int d = 1; d < profile->n_devices; d++)
        if ((profile->devices[d].gradient.count > 0) != delayed)
            return tp_fail(TP_ERR_INPUT,
                           "%s: devices[%d].gradient is %s, expected it as devices[0]", root->path,
                           d, delayed ? "missing" : "there");
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
        status = check_gradients(root, profile);
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
    json_t *facts = json_pack("{s:s, s:{s:I, s:i, s:i}}", "name", device->name, "footprint",
                              "align", (json_int_t)device->footprint.align, "element_bytes",
                              device->footprint.element_bytes, "panel", device->footprint.panel);
    int failed = 0;

    if (device->memory != 0)
        failed |= json_object_set_new(facts, "memory", json_integer((json_int_t)device->memory));
    if (device->peak_flops != 0)
        failed |= json_object_set_new(facts, "peak_flops", json_real(device->peak_flops));
    if (device->reference_flops != 0)
        failed |= json_object_set_new(facts, "reference_flops", json_real(device->reference_flops));
    json_t *gradient = device->gradient.count > 0 ? table_json(&device->gradient) : NULL;
    json_t *json =
        json_pack("{s:o, s:{s:o, s:o}, s:o*, s:o*, s:o*}", "device", facts, "layer",
                  direction_names[TP_FORWARD], layer_json(&device->layer[TP_FORWARD]),
                  direction_names[TP_BACKWARD], layer_json(&device->layer[TP_BACKWARD]), "gradient",
                  gradient, "embed", ends_json(device->embed), "head", ends_json(device->head));
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
