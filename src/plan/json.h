/* SPDX-License-Identifier: Apache-2.0 */
/* Reading this layer's files: a value that is missing or not what it has to be is an error that
 * names the file and the key. All here is Local; errors are TP_ERR_INPUT unless said. */
#ifndef TP_PLAN_JSON_H
#define TP_PLAN_JSON_H

#include <stdbool.h>

#include <jansson.h>

#include "base/status.h"

/* A value and where it is: "profile.json", "layer.forward". The file's own object has key "". */
struct tp_json {
    const char *path;
    char key[120];
    const json_t *value; /* NULL: missing */
};

/* Reads a file that is an object with that "format" and "version" 1; root.value is to be given to
 * json_decref(). TP_ERR_IO and TP_ERR_MEMORY too. */
enum tp_status tp_json_load(const char *path, const char *format, struct tp_json *root);

/* The member of an object, the element of an array, which may be missing. */
struct tp_json tp_json_member(const struct tp_json *object, const char *name);
struct tp_json tp_json_element(const struct tp_json *array, size_t index);

/* Is there a member with that name? */
bool tp_json_has(const struct tp_json *object, const char *name);

/* What a value is, if it is that; a number of numbers in [least, most]. tp_json_array() does not
 * take an empty one. */
enum tp_status tp_json_object(const struct tp_json *json);
enum tp_status tp_json_array(const struct tp_json *json, int *count);
enum tp_status tp_json_string(const struct tp_json *json, const char **text);
enum tp_status tp_json_bool(const struct tp_json *json, bool *value);
enum tp_status tp_json_int(const struct tp_json *json, int least, int most, int *value);
enum tp_status tp_json_real(const struct tp_json *json, double least, double most, double *value);

/* The member of an object that has to be there and an integer. */
enum tp_status tp_json_member_int(const struct tp_json *object, const char *name, int least,
                                  int most, int *value);

/* Writes it by rename, with enough digits for every double, and drops it. NULL: there was no memory
 * to make it. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_json_save(json_t *json, const char *path);

#endif
