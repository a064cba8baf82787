/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "json.h"

/* No file of ours comes near it; what jansson makes of such a file still fits any memory. */
enum { FILE_LIMIT = 16 << 20 };

/* ---- Where a value is ---- */

struct tp_json tp_json_member(const struct tp_json *object, const char *name)
{
    struct tp_json member = {.path = object->path, .value = json_object_get(object->value, name)};

    snprintf(member.key, sizeof member.key, "%.80s%s%.30s", object->key, object->key[0] ? "." : "",
             name);
    return member;
}

struct tp_json tp_json_element(const struct tp_json *array, size_t index)
{
    struct tp_json element = {.path = array->path, .value = json_array_get(array->value, index)};

    snprintf(element.key, sizeof element.key, "%.80s[%zu]", array->key, index);
    return element;
}

bool tp_json_has(const struct tp_json *object, const char *name)
{
    return json_object_get(object->value, name) != NULL;
}

/* ---- What it is ---- */

static enum tp_status fail(const struct tp_json *json, const char *expected)
{
    if (json->value == NULL)
        return tp_fail(TP_ERR_INPUT, "%s: %s is missing, expected %s", json->path, json->key,
                       expected);
    return tp_fail(TP_ERR_INPUT, "%s: %s is not %s", json->path, json->key, expected);
}

enum tp_status tp_json_object(const struct tp_json *json)
{
    return json_is_object(json->value) ? TP_OK : fail(json, "an object");
}

enum tp_status tp_json_array(const struct tp_json *json, int *count)
{
    size_t size = json_array_size(json->value);

    if (size == 0)
        return fail(json, "an array with something in it");
    *count = (int)size; /* a file has less than FILE_LIMIT of them */
    return TP_OK;
}

enum tp_status tp_json_string(const struct tp_json *json, const char **text)
{
    if (!json_is_string(json->value))
        return fail(json, "a string");
    *text = json_string_value(json->value);
    return TP_OK;
}

enum tp_status tp_json_bool(const struct tp_json *json, bool *value)
{
    if (!json_is_boolean(json->value))
        return fail(json, "true or false");
    *value = json_is_true(json->value);
    return TP_OK;
}

enum tp_status tp_json_int(const struct tp_json *json, int least, int most, int *value)
{
    if (!json_is_integer(json->value))
        return fail(json, "an integer");
    json_int_t number = json_integer_value(json->value);
    if (number != least && least == most)
        return tp_fail(TP_ERR_INPUT, "%s: %s is %lld, expected %d", json->path, json->key,
                       (long long)number, least);
    if (number < least || number > most)
        return tp_fail(TP_ERR_INPUT, "%s: %s is %lld, expected %d to %d", json->path, json->key,
                       (long long)number, least, most);
    *value = (int)number;
    return TP_OK;
}

enum tp_status tp_json_real(const struct tp_json *json, double least, double most, double *value)
{
    if (!json_is_number(json->value))
        return fail(json, "a number");
    double number = json_number_value(json->value);
    if (!(number >= least && number <= most))
        return tp_fail(TP_ERR_INPUT, "%s: %s is %g, expected %g to %g", json->path, json->key,
                       number, least, most);
    *value = number;
    return TP_OK;
}

enum tp_status tp_json_member_int(const struct tp_json *object, const char *name, int least,
                                  int most, int *value)
{
    struct tp_json member = tp_json_member(object, name);

    return tp_json_int(&member, least, most, value);
}

/* ---- Files ---- */

static enum tp_status check_format(const struct tp_json *root, const char *format)
{
    struct tp_json name = tp_json_member(root, "format"), version = tp_json_member(root, "version");
    const char *text = "";
    int number = 0;

    if (!json_is_object(root->value))
        return tp_fail(TP_ERR_INPUT, "%s: is not a JSON object", root->path);
    TP_TRY(tp_json_string(&name, &text));
    if (strcmp(text, format) != 0)
        return tp_fail(TP_ERR_INPUT, "%s: format is \"%.40s\", expected \"%s\"", root->path, text,
                       format);
    return tp_json_int(&version, 1, 1, &number);
}

enum tp_status tp_json_load(const char *path, const char *format, struct tp_json *root)
{
    json_error_t error;
    size_t size = 0;
    char *text = NULL;

    TP_TRY(tp_file_read(path, FILE_LIMIT, &text, &size));
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (json == NULL)
        return tp_fail(TP_ERR_INPUT, "%s: line %d, column %d: %s", path, error.line, error.column,
                       error.text);
    struct tp_json loaded = {.path = path, .value = json};
    enum tp_status status = check_format(&loaded, format);
    if (status == TP_OK)
        *root = loaded;
    else
        json_decref(json);
    return status;
}

enum tp_status tp_json_save(json_t *json, const char *path)
{
    char *text = json != NULL ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    if (text == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    enum tp_status status = tp_file_write(path, text, strlen(text));
    free(text);
    return status;
}
