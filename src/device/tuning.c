/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "device/tuning.h"

#include <clblast_c.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/log.h"
#include "opencl.h"

/* ---- The parameters ---- */

enum { KWG, KWI, MDIMA, MDIMC, MWG, NDIMB, NDIMC, NWG, SA, SB, STRM, STRN, VWM, VWN };

enum { MAX_VALUES = 6 };

/* Names, and values in ascending order; 0 in another place than the first ends them. */
static const struct {
    const char *name;
    int values[MAX_VALUES];
} parameters[TP_TUNING_PARAMETERS] = {
    [KWG] = {"KWG", {8, 16, 32, 64}},           /* tile of a work-group: K, ... */
    [KWI] = {"KWI", {1, 2, 4, 8}},              /* unrolled */
    [MDIMA] = {"MDIMA", {1, 2, 4, 8, 16, 32}},  /* work-items that fetch A together, along M */
    [MDIMC] = {"MDIMC", {1, 2, 4, 8, 16, 32}},  /* work-items of a group along M */
    [MWG] = {"MWG", {8, 16, 32, 64, 128, 256}}, /* ... M, ... */
    [NDIMB] = {"NDIMB", {1, 2, 4, 8, 16, 32}},  /* as MDIMA, of B along N */
    [NDIMC] = {"NDIMC", {1, 2, 4, 8, 16, 32}},  /* along N */
    [NWG] = {"NWG", {8, 16, 32, 64, 128, 256}}, /* ... and N */
    [SA] = {"SA", {0, 1}},                      /* A's tile goes through local memory */
    [SB] = {"SB", {0, 1}},                      /* B's does */
    [STRM] = {"STRM", {0, 1}},                  /* a work-item's rows lie apart */
    [STRN] = {"STRN", {0, 1}},                  /* its columns do */
    [VWM] = {"VWM", {1, 2, 4, 8, 16}},          /* vectors along M */
    [VWN] = {"VWN", {1, 2, 4, 8, 16}},          /* vectors along N */
};

/* Multiply-adds that a work-item may write out one after the other: beyond, compilers take minutes
 * and registers do not hold the sums. */
enum { MAX_UNROLLED = 2048 };

static int count_values(int parameter)
{
    int count = 1;
    while (count < MAX_VALUES && parameters[parameter].values[count] != 0)
        count++;
    return count;
}

/* Place of a value in the list; -1 when it is not there. */
static int find_value(int parameter, int value)
{
    for (int i = count_values(parameter) - 1; i >= 0; i--)
        if (parameters[parameter].values[i] == value)
            return i;
    return -1;
}

static bool divides(int part, int whole)
{
    return part > 0 && whole % part == 0;
}

/* Can the work-items of a group, so many along one side, fetch a tile? */
static bool can_fetch(int along, int items, int depth)
{
    return divides(along, items) && divides(items / along, depth);
}

bool tp_tuning_is_legal(const struct tp_tuning *set, const struct tp_device_info *device)
{
    const int *v = set->values;
    for (int p = 0; p < TP_TUNING_PARAMETERS; p++)
        if (find_value(p, v[p]) < 0)
            return false;
    const int items = v[MDIMC] * v[NDIMC];
    const int local = v[KWG] * (v[SA] * v[MWG] + v[SB] * v[NWG]) * (int)sizeof(float);
    return divides(v[KWI], v[KWG]) &&
           /* whole vectors for every work-item, in C and in what it fetches */
           divides(v[MDIMC] * v[VWM], v[MWG]) && divides(v[NDIMC] * v[VWN], v[NWG]) &&
           divides(v[MDIMA] * v[VWM], v[MWG]) && divides(v[NDIMB] * v[VWN], v[NWG]) &&
           can_fetch(v[MDIMA], items, v[KWG]) && can_fetch(v[NDIMB], items, v[KWG]) &&
           /* what has no effect does not vary */
           (v[SA] == 1 || v[MDIMA] == v[MDIMC]) && (v[SB] == 1 || v[NDIMB] == v[NDIMC]) &&
           v[MWG] * v[NWG] / items * v[KWI] <= MAX_UNROLLED && (size_t)items <= device->max_group &&
           (size_t)local <= device->local_memory;
}

bool tp_tuning_is_same(const struct tp_tuning *a, const struct tp_tuning *b)
{
    return memcmp(a->values, b->values, sizeof(a->values)) == 0;
}

/* ---- Candidates ---- */

/* The most promising first: each costs a compilation. On CPUs large tiles in vector registers and
 * few work-items, without local memory, which is memory like any other there; on others work-groups
 * that share tiles. */
/* clang-format off */
static const struct tp_tuning for_cpus[] = {
    /* KWG KWI MDIMA MDIMC MWG NDIMB NDIMC NWG SA SB STRM STRN VWM VWN */
    {{16, 2,  4,  4,  64,  4,  4,  64, 0, 0, 0, 0, 8, 8}},
    {{16, 2,  4,  4, 128,  4,  4,  64, 0, 0, 0, 0, 8, 8}},
    {{16, 2,  8,  8,  64,  8,  8,  64, 0, 0, 0, 0, 8, 8}},
    {{16, 2,  4,  4,  64,  4,  4,  32, 0, 0, 0, 0, 16, 8}},
    {{16, 2,  4,  4,  32,  4,  4,  32, 0, 0, 0, 0, 4, 4}},
};
static const struct tp_tuning for_others[] = {
    {{16, 2,  8,  8,  64,  8,  8,  64, 1, 1, 0, 0, 4, 4}},
    {{16, 2, 16, 16, 128, 16, 16, 128, 1, 1, 0, 0, 4, 4}},
    {{32, 2, 16, 16,  64, 16, 16,  64, 1, 1, 0, 0, 4, 4}},
    {{32, 2, 16, 16, 128, 16, 16,  64, 1, 1, 0, 0, 4, 2}},
    {{16, 2, 16, 16,  64, 16, 16,  64, 0, 0, 0, 0, 4, 4}},
    {{16, 2,  8,  8,  32,  8,  8,  32, 1, 1, 0, 0, 2, 2}},
};
/* clang-format on */

bool tp_tuning_start(const struct tp_device_info *device, int number, struct tp_tuning *set)
{
    const bool cpu = strcmp(device->type, "cpu") == 0;
    const struct tp_tuning *list = cpu ? for_cpus : for_others;
    const size_t count =
        cpu ? sizeof(for_cpus) / sizeof(for_cpus[0]) : sizeof(for_others) / sizeof(for_others[0]);
    for (size_t i = 0; i < count; i++)
        if (tp_tuning_is_legal(&list[i], device) && number-- == 0) {
            *set = list[i];
            return true;
        }
    return false;
}

bool tp_tuning_move(const struct tp_device_info *device, const struct tp_tuning *from, int move,
                    struct tp_tuning *to)
{
    const int p = move / 2;
    const int place = find_value(p, from->values[p]) + (move % 2 == 0 ? 1 : -1);
    if (place < 0 || place >= count_values(p))
        return false;
    struct tp_tuning moved = *from;
    moved.values[p] = parameters[p].values[place];
    if (moved.values[SA] == 0)
        moved.values[MDIMA] = moved.values[MDIMC];
    if (moved.values[SB] == 0)
        moved.values[NDIMB] = moved.values[NDIMC];
    if (tp_tuning_is_same(&moved, from) || !tp_tuning_is_legal(&moved, device))
        return false;
    *to = moved;
    return true;
}

/* ---- As text ---- */

void tp_tuning_print(const struct tp_tuning *set, char text[TP_TUNING_TEXT])
{
    int length = 0;
    text[0] = '\0';
    for (int p = 0; p < TP_TUNING_PARAMETERS && length < TP_TUNING_TEXT; p++)
        length += snprintf(text + length, (size_t)(TP_TUNING_TEXT - length), "%s%s=%d",
                           p > 0 ? " " : "", parameters[p].name, set->values[p]);
}

bool tp_tuning_parse(const char *text, struct tp_tuning *set)
{
    struct tp_tuning parsed;
    char again[TP_TUNING_TEXT];
    const char *at = text;
    for (int p = 0; p < TP_TUNING_PARAMETERS; p++) {
        const char *equals = strchr(at, '=');
        if (equals == NULL)
            return false;
        char *end;
        const long value = strtol(equals + 1, &end, 10);
        parsed.values[p] = value >= 0 && value <= 1024 ? (int)value : -1;
        at = end;
    }
    /* Names, order and blanks are right when the set is written as it was read. */
    tp_tuning_print(&parsed, again);
    if (strcmp(text, again) != 0)
        return false;
    *set = parsed;
    return true;
}

/* ---- CLBlast ---- */

#ifdef CLBLAST_VERSION_MAJOR
#define QUOTE(x) #x
#define DOTTED(major, minor, patch) QUOTE(major) "." QUOTE(minor) "." QUOTE(patch)
static const char library[] =
    DOTTED(CLBLAST_VERSION_MAJOR, CLBLAST_VERSION_MINOR, CLBLAST_VERSION_PATCH);
#else
static const char library[] = "below 1.5.3"; /* their headers do not say */
#endif

const char *tp_tuning_library(void)
{
    return library;
}

/* Its status, as clblast_c.h numbers them. */
static int override(struct tp_device *device, const struct tp_tuning *set)
{
    /* The parameters that vary, and those that do not: see the header. */
    const char *names[TP_TUNING_PARAMETERS + 2] = {"GEMMK", "KREG"};
    size_t values[TP_TUNING_PARAMETERS + 2] = {0, 1};
    const char *least_name = "XGEMM_MIN_INDIRECT_SIZE";
    const size_t least = 64;
    for (int p = 0; p < TP_TUNING_PARAMETERS; p++) {
        names[2 + p] = parameters[p].name;
        values[2 + p] = (size_t)set->values[p];
    }
    const int code = (int)CLBlastOverrideParameters(device->id, "GemmRoutine",
                                                    CLBlastPrecisionSingle, 1, &least_name, &least);
    if (code != CL_SUCCESS)
        return code;
    return (int)CLBlastOverrideParameters(device->id, "Xgemm", CLBlastPrecisionSingle,
                                          TP_TUNING_PARAMETERS + 2, names, values);
}

enum tp_status tp_tuning_apply(struct tp_device *device, const struct tp_tuning *set)
{
    const int code = override(device, set);
    if (code != CL_SUCCESS)
        return tp_cl_fail("CLBlastOverrideParameters", code, __FILE__, __LINE__);
    return TP_OK;
}

void tp_tuning_use(struct tp_device *device)
{
    struct tp_tuning set;
    char *path = tp_tuning_path(&device->info);
    if (path != NULL && tp_tuning_load(path, &device->info, &set)) {
        const int code = override(device, &set);
        if (code == CL_SUCCESS)
            tp_tuning_print(&set, device->tuning);
        else
            tp_log(TP_LOG_INFO, "%s: ignored, CLBlast does not take the parameters (%d)", path,
                   code);
    }
    free(path);
}

/* ---- The file ---- */

static const char format[] = "terapipe-tuning";

char *tp_tuning_path(const struct tp_device_info *device)
{
    return tp_cache_path(device, library, "tuning.json");
}

/* What a file is for: all of it has to be the same where the file is used. */
static json_t *subject_json(const struct tp_device_info *device)
{
    return json_pack("{s:s, s:s, s:s, s:s, s:s}", "platform", device->platform, "name",
                     device->name, "version", device->version, "driver", device->driver, "clblast",
                     library);
}

enum tp_status tp_tuning_save(const char *path, const struct tp_device_info *device,
                              const struct tp_tuning *set, double gflops, double ratio)
{
    char text[TP_TUNING_TEXT];
    tp_tuning_print(set, text);
    json_t *json =
        json_pack("{s:s, s:i, s:o, s:s, s:f, s:f}", "format", format, "version", 1, "device",
                  subject_json(device), "parameters", text, "gflops", gflops, "ratio", ratio);
    char *written = json != NULL ? json_dumps(json, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL;
    json_decref(json);
    if (written == NULL)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    const enum tp_status status = tp_file_write(path, written, strlen(written));
    free(written);
    return status;
}

/* What is wrong with a file's contents; NULL when nothing is. */
static const char *judge(const json_t *json, const struct tp_device_info *device,
                         struct tp_tuning *set)
{
    const char *said = json_string_value(json_object_get(json, "format"));
    const char *text = json_string_value(json_object_get(json, "parameters"));
    if (said == NULL || strcmp(said, format) != 0 ||
        json_integer_value(json_object_get(json, "version")) != 1)
        return "is no file of terapipe tune";
    json_t *subject = subject_json(device);
    const bool same = subject != NULL && json_equal(json_object_get(json, "device"), subject);
    json_decref(subject);
    if (!same)
        return "is for another device, driver or CLBlast";
    if (text == NULL || !tp_tuning_parse(text, set) || !tp_tuning_is_legal(set, device))
        return "has parameters that cannot be";
    return NULL;
}

bool tp_tuning_load(const char *path, const struct tp_device_info *device, struct tp_tuning *set)
{
    if (!tp_file_exists(path))
        return false;
    json_error_t error;
    struct tp_tuning loaded;
    json_t *json = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    const char *fault = json != NULL ? judge(json, device, &loaded) : error.text;
    if (fault != NULL)
        tp_log(TP_LOG_INFO, "%s: ignored, CLBlast keeps its own parameters: %s", path, fault);
    else
        *set = loaded;
    json_decref(json);
    return fault == NULL;
}
