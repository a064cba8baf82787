/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "data/sampler.h"
#include "train/settings.h"
#include "train/state.h"

/* Counts that a run may still add to. */
#define LARGEST (INT64_MAX / 2)

static const char format_name[] = "terapipe-state";

static enum tp_status parse(const char *path, json_t *json, struct tp_state *state)
{
    json_int_t step, samples, skipped, sampler, seq_len, seed;
    const char *format, *tokenizer;
    json_t *named;
    json_error_t error;
    int version;

    if (json_unpack_ex(json, &error, 0, "{s:s, s:i, s:I, s:I, s:I, s:o, s:I, s:I, s:I}", "format",
                       &format, "version", &version, "step", &step, "samples", &samples, "skipped",
                       &skipped, "tokenizer", &named, "sampler", &sampler, "seq_length", &seq_len,
                       "seed", &seed) != 0)
        return tp_fail(TP_ERR_INPUT, "%s: %s", path, error.text);
    tokenizer = json_string_value(named); /* or null: trained on tokens */
    if (strcmp(format, format_name) != 0 || version != 1)
        return tp_fail(TP_ERR_INPUT, "%s: format %s version %d: expected %s version 1", path,
                       format, version, format_name);
    if (tokenizer && strcmp(tokenizer, tp_tokenizer_choices[TP_TOKENIZER_BYTES]) != 0)
        return tp_fail(TP_ERR_INPUT, "%s: tokenizer %s: expected %s", path, tokenizer,
                       tp_tokenizer_choices[TP_TOKENIZER_BYTES]);
    if (step < 0 || step > LARGEST || samples < 0 || samples > LARGEST || skipped < 0 ||
        skipped > step || seq_len < 1 || seq_len > INT_MAX)
        return tp_fail(TP_ERR_INPUT, "%s: expected step, samples, skipped and seq_length in range",
                       path);
    *state = (struct tp_state){.step = step,
                               .samples = samples,
                               .skipped = skipped,
                               .tokenizer = tokenizer ? TP_TOKENIZER_BYTES : TP_TOKENIZER_NONE,
                               .sampler = sampler == TP_SAMPLER_SEQUENTIAL ? TP_SAMPLER_SEQUENTIAL
                                                                           : TP_SAMPLER_SHUFFLE,
                               .seq_len = (int)seq_len,
                               .seed = (uint64_t)seed};
    return TP_OK;
}

enum tp_status tp_state_load(const char *path, struct tp_state *state)
{
    json_error_t error;
    size_t size;
    char *text;

    TP_TRY(tp_file_read(path, 1 << 20, &text, &size));
    json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    free(text);
    if (!json)
        return tp_fail(TP_ERR_INPUT, "%s: line %d: %s", path, error.line, error.text);
    enum tp_status status = parse(path, json, state);
    json_decref(json);
    return status;
}

enum tp_status tp_state_save(const struct tp_state *state, const char *path)
{
    const char *tokenizer =
        state->tokenizer == TP_TOKENIZER_NONE ? NULL : tp_tokenizer_choices[state->tokenizer];
    json_t *json = json_pack("{s:s, s:i, s:I, s:I, s:I, s:s?, s:i, s:i, s:I}", "format",
                             format_name, "version", 1, "step", (json_int_t)state->step, "samples",
                             (json_int_t)state->samples, "skipped", (json_int_t)state->skipped,
                             "tokenizer", tokenizer, "sampler", state->sampler, "seq_length",
                             state->seq_len, "seed", (json_int_t)state->seed);
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;

    json_decref(json);
    if (!text)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    enum tp_status status = tp_file_write(path, text, strlen(text));
    free(text);
    return status;
}
