/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "model/model.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/log.h"

/* ---- Ranges ---- */

/* The integers of a configuration, in the order of the file. The limits keep every product of
 * sizes far below what size_t holds. */
static const struct {
    const char *name;
    size_t offset;
    int max;
} integers[] = {
    {"vocab_size", offsetof(struct tp_model, vocab_size), 1 << 28},
    {"n_positions", offsetof(struct tp_model, n_positions), 1 << 24},
    {"n_embd", offsetof(struct tp_model, n_embd), 1 << 20},
    {"n_layer", offsetof(struct tp_model, n_layer), 10000},
    {"n_head", offsetof(struct tp_model, n_head), 1 << 20},
    {"n_inner", offsetof(struct tp_model, n_inner), 1 << 22},
};
enum { INTEGERS = sizeof integers / sizeof *integers, MAX_HEAD_WIDTH = 256 };

static const struct {
    const char *name;
    size_t offset;
    double initial;    /* when the file does not say */
    double least, end; /* least <= value < end */
} reals[] = {
    {"layer_norm_epsilon", offsetof(struct tp_model, layer_norm_epsilon), 1e-5, 1e-30, 1},
    {"initializer_range", offsetof(struct tp_model, initializer_range), 0.02, 0, 100},
};
enum { REALS = sizeof reals / sizeof *reals };

static int *integer_of(struct tp_model *model, int i)
{
    return (int *)((char *)model + integers[i].offset);
}

static double *real_of(struct tp_model *model, int i)
{
    return (double *)((char *)model + reals[i].offset);
}

enum tp_status tp_model_check(const struct tp_model *model, const char *where)
{
    struct tp_model copy = *model;

    for (int i = 0; i < INTEGERS; i++) {
        int value = *integer_of(&copy, i);
        if (value < 1 || value > integers[i].max)
            return tp_fail(TP_ERR_INPUT, "%s: %s is %d, expected 1 to %d", where, integers[i].name,
                           value, integers[i].max);
    }
    for (int i = 0; i < REALS; i++) {
        double value = *real_of(&copy, i);
        if (!(value >= reals[i].least && value < reals[i].end))
            return tp_fail(TP_ERR_INPUT, "%s: %s is %g, expected %g to less than %g", where,
                           reals[i].name, value, reals[i].least, reals[i].end);
    }
    if (model->n_embd % model->n_head != 0)
        return tp_fail(TP_ERR_INPUT, "%s: n_embd is %d, expected a multiple of n_head, %d", where,
                       model->n_embd, model->n_head);
    if (model->n_embd / model->n_head > MAX_HEAD_WIDTH)
        return tp_fail(TP_ERR_INPUT, "%s: a head is %d wide (n_embd / n_head), expected at most %d",
                       where, model->n_embd / model->n_head, MAX_HEAD_WIDTH);
    return TP_OK;
}

/* ---- Presets ---- */

/* Those of GPT-3 are the ones of the TeraPipe paper. */
static const struct preset {
    const char *name;
    int n_layer, n_embd, n_head, vocab_size, n_positions;
} presets[] = {
    {"tiny", 4, 128, 4, 256, 256},
    {"small", 6, 384, 6, 256, 256},
    {"gpt2", 12, 768, 12, 50257, 1024},
    {"gpt2-medium", 24, 1024, 16, 50257, 1024},
    {"gpt2-large", 36, 1280, 20, 50257, 1024},
    {"gpt2-xl", 48, 1600, 25, 50257, 1024},
    {"gpt3-1b", 24, 2048, 16, 50257, 2048},
    {"gpt3-13b", 40, 5120, 40, 50257, 2048},
    {"gpt3-44b", 96, 6144, 48, 50257, 2048},
    {"gpt3-175b", 96, 12288, 96, 50257, 2048},
};
enum { PRESETS = sizeof presets / sizeof *presets };

static const struct preset *find_preset(const char *name)
{
    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

bool tp_model_is_preset(const char *name)
{
    return find_preset(name) != NULL;
}

enum tp_status tp_model_preset(const char *name, struct tp_model *model)
{
    const struct preset *preset = find_preset(name);

    if (!preset) {
        char names[256] = "";
        for (int i = 0, used = 0; i < PRESETS; i++)
            used += snprintf(names + used, sizeof names - (size_t)used, " %s", presets[i].name);
        return tp_fail(TP_ERR_INPUT, "%s: no such model, expected one of%s", name, names);
    }
    *model = (struct tp_model){
        .n_layer = preset->n_layer,
        .n_embd = preset->n_embd,
        .n_head = preset->n_head,
        .n_inner = 4 * preset->n_embd,
        .vocab_size = preset->vocab_size,
        .n_positions = preset->n_positions,
    };
    for (int i = 0; i < REALS; i++)
        *real_of(model, i) = reals[i].initial;
    return TP_OK;
}

/* ---- config.json ---- */

enum { CONFIG_LIMIT = 1 << 20 };

/* Switches of Hugging Face's GPT-2 that change what is computed, and the one value we compute. */
static const struct {
    const char *name;
    bool value;
} switches[] = {
    {"tie_word_embeddings", true},
    {"scale_attn_weights", true},
    {"scale_attn_by_inverse_layer_idx", false},
    {"reorder_and_upcast_attn", false},
    {"add_cross_attention", false},
};

/* The same for words. Dropout is an option of a training, not of a model. */
static const struct {
    const char *name, *value;
} words[] = {{"model_type", "gpt2"}, {"activation_function", "gelu_new"}};

static const char *const dropouts[] = {"embd_pdrop", "attn_pdrop", "resid_pdrop"};

static enum tp_status check_features(const json_t *config, const char *path)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const json_t *value = json_object_get(config, words[i].name);
        if (value && !json_is_string(value))
            return tp_fail(TP_ERR_INPUT, "%s: %s is not a string, expected \"%s\"", path,
                           words[i].name, words[i].value);
        if (value && strcmp(json_string_value(value), words[i].value) != 0)
            return tp_fail(TP_ERR_INPUT, "%s: %s is \"%s\", expected \"%s\"", path, words[i].name,
                           json_string_value(value), words[i].value);
    }
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const json_t *value = json_object_get(config, switches[i].name);
        if (value && (!json_is_boolean(value) || json_is_true(value) != switches[i].value))
            return tp_fail(TP_ERR_INPUT, "%s: %s has to be %s", path, switches[i].name,
                           switches[i].value ? "true" : "false");
    }
    return TP_OK;
}

static void note_dropout(const json_t *config, const char *path)
{
    for (size_t i = 0; i < sizeof dropouts / sizeof *dropouts; i++) {
        double value = json_number_value(json_object_get(config, dropouts[i]));
        if (value == 0)
            continue;
        tp_log(TP_LOG_INFO, "%s: dropout in it is ignored (%s is %g)", path, dropouts[i], value);
        return;
    }
}

static enum tp_status read_integer(const json_t *config, const char *path, int i,
                                   struct tp_model *model)
{
    const char *name = integers[i].name;
    const json_t *value = json_object_get(config, name);

    if (strcmp(name, "n_inner") == 0 && (!value || json_is_null(value))) {
        model->n_inner = 4 * model->n_embd;
        return TP_OK;
    }
    if (!value)
        return tp_fail(TP_ERR_INPUT, "%s: %s is missing", path, name);
    if (!json_is_integer(value))
        return tp_fail(TP_ERR_INPUT, "%s: %s is not an integer", path, name);

    json_int_t number = json_integer_value(value);
    if (number < 1 || number > integers[i].max)
        return tp_fail(TP_ERR_INPUT, "%s: %s is %lld, expected 1 to %d", path, name,
                       (long long)number, integers[i].max);
    *integer_of(model, i) = (int)number;
    return TP_OK;
}

static enum tp_status read_real(const json_t *config, const char *path, int i,
                                struct tp_model *model)
{
    const json_t *value = json_object_get(config, reals[i].name);

    if (value && !json_is_number(value))
        return tp_fail(TP_ERR_INPUT, "%s: %s is not a number", path, reals[i].name);
    *real_of(model, i) = value ? json_number_value(value) : reals[i].initial;
    return TP_OK;
}

static enum tp_status read_config(const json_t *config, const char *path, struct tp_model *model)
{
    struct tp_model read;

    if (!json_is_object(config))
        return tp_fail(TP_ERR_INPUT, "%s: is not a JSON object", path);
    TP_TRY(check_features(config, path));
    for (int i = 0; i < INTEGERS; i++)
        TP_TRY(read_integer(config, path, i, &read));
    for (int i = 0; i < REALS; i++)
        TP_TRY(read_real(config, path, i, &read));
    TP_TRY(tp_model_check(&read, path));
    note_dropout(config, path);
    *model = read;
    return TP_OK;
}

static enum tp_status load_file(const char *path, struct tp_model *model)
{
    json_error_t error;
    char *text;
    size_t size;

    TP_TRY(tp_file_read(path, CONFIG_LIMIT, &text, &size));
    json_t *config = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!config)
        return tp_fail(TP_ERR_INPUT, "%s: line %d, column %d: %s", path, error.line, error.column,
                       error.text);
    enum tp_status status = read_config(config, path, model);
    json_decref(config);
    return status;
}

enum tp_status tp_model_load(const char *path, struct tp_model *model)
{
    if (!tp_file_is_folder(path))
        return load_file(path, model);

    char *file = tp_file_join(path, "config.json");
    if (!file)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to read it", path);
    enum tp_status status = load_file(file, model);
    free(file);
    return status;
}

/* Fewest significant digits that keep both real numbers as they are: 1e-05,
 * not 1.0000000000000001e-05. */
static size_t digits_needed(const struct tp_model *model)
{
    const double values[] = {model->layer_norm_epsilon, model->initializer_range};
    char text[64];
    int digits = 1;

    for (int i = 0; i < REALS; i++) {
        while (digits < 17) {
            snprintf(text, sizeof text, "%.*g", digits, values[i]);
            if (strtod(text, NULL) == values[i])
                break;
            digits++;
        }
    }
    return (size_t)digits;
}

static json_t *make_config(const struct tp_model *model)
{
    json_t *config =
        json_pack("{s:s, s:[s], s:s, s:b}", "model_type", "gpt2", "architectures",
                  "GPT2LMHeadModel", "activation_function", "gelu_new", "tie_word_embeddings", 1);
    struct tp_model copy = *model;
    int failed = config == NULL;

    for (int i = 0; i < INTEGERS && !failed; i++)
        failed = json_object_set_new(config, integers[i].name, json_integer(*integer_of(&copy, i)));
    for (int i = 0; i < REALS && !failed; i++)
        failed = json_object_set_new(config, reals[i].name, json_real(*real_of(&copy, i)));
    for (size_t i = 0; i < sizeof dropouts / sizeof *dropouts && !failed; i++)
        failed = json_object_set_new(config, dropouts[i], json_real(0));
    if (failed) {
        json_decref(config);
        return NULL;
    }
    return config;
}

enum tp_status tp_model_save(const struct tp_model *model, const char *path)
{
    json_t *config = make_config(model);
    char *text = NULL;

    if (config)
        text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(digits_needed(model)));
    json_decref(config);
    if (!text)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);

    size_t length = strlen(text);
    text[length] = '\n'; /* in place of the NUL */
    enum tp_status status = tp_file_write(path, text, length + 1);
    free(text);
    return status;
}

/* ---- Counts ---- */

/* Weights of the matrix products of one layer. */
static int64_t layer_matrices(const struct tp_model *model)
{
    int64_t width = model->n_embd, inner = model->n_inner;

    return 4 * width * width + 2 * width * inner;
}

int64_t tp_model_parameter_count(const struct tp_model *model)
{
    int64_t width = model->n_embd, inner = model->n_inner;
    int64_t vectors = 9 * width + inner; /* two norms, four biases */
    int64_t embedding = ((int64_t)model->vocab_size + model->n_positions) * width;

    return embedding + model->n_layer * (layer_matrices(model) + vectors) + 2 * width;
}

double tp_model_step_flops(const struct tp_model *model, int seq_len, int sequences)
{
    double layers = model->n_layer, width = model->n_embd;
    double matrices = layers * (double)layer_matrices(model) + width * model->vocab_size;
    double token = 6 * matrices + 6 * layers * width * seq_len;

    return token * seq_len * sequences;
}
