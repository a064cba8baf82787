/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/file.h"
#include "plan/search.h"
#include "train/settings.h"

const char *const tp_tokenizer_choices[] = {"bytes", NULL};

enum tp_status tp_settings_check_names(const struct tp_settings *s)
{
    const struct {
        const char *value, *option, *expected;
    } names[] = {{s->model, "--model", "a name, a file or a folder"},
                 {s->load, "--load", "a folder"},
                 {s->save, "--save", "a folder"},
                 {s->save_gradients, "--save-gradients", "a file"},
                 {s->metrics, "--metrics", "a file"},
                 {s->trace, "--trace", "a file"},
                 {s->plan, "--plan", "a file"},
                 {s->hardware, "--hardware", "a name or a file"},
                 {s->output, "-o", "a file"}};
    const struct {
        const struct tp_option_list *list;
        const char *option;
    } lists[] = {{&s->data, "--data-path"},
                 {&s->validation, "--val-data-path"},
                 {&s->profiles, "--profile"}};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].value && !names[i].value[0])
            return tp_fail(TP_ERR_USAGE, "%s: the value is empty, expected %s", names[i].option,
                           names[i].expected);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (int k = 0; k < lists[i].list->count; k++)
            if (!lists[i].list->at[k][0])
                return tp_fail(TP_ERR_USAGE, "%s: a value is empty, expected a file",
                               lists[i].option);
    return TP_OK;
}

/* Options that only make sense beside another one. */
static enum tp_status check_pairs(const struct tp_settings *s)
{
    const struct {
        bool given, other;
        const char *option, *needed;
    } pairs[] = {
        {s->save_interval > 0, s->save, "--save-interval", "--save"},
        {s->keep > 0, s->save, "--keep", "--save"},
        {s->eval_interval > 0, s->validation.count > 0, "--eval-interval", "--val-data-path"},
    };

    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].given && !pairs[i].other)
            return tp_fail(TP_ERR_USAGE, "%s: expected %s beside it", pairs[i].option,
                           pairs[i].needed);
    return TP_OK;
}

/* A model comes from a name or a file, or from four numbers. */
static enum tp_status check_model(const struct tp_settings *s)
{
    const struct {
        int value;
        const char *option;
    } sizes[] = {{s->n_layer, "--num-layers"},
                 {s->n_embd, "--hidden-size"},
                 {s->n_head, "--num-attention-heads"},
                 {s->vocab_size, "--vocab-size"}};
    bool any = false;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (sizes[i].value && s->model)
            return tp_fail(TP_ERR_USAGE, "%s %d: expected it without --model %s, which has its own",
                           sizes[i].option, sizes[i].value, s->model);
        any = any || sizes[i].value;
    }
    if (!any && !s->model && !s->load)
        return tp_fail(TP_ERR_USAGE, "no model: expected --model, --load, or --num-layers, "
                                     "--hidden-size and --num-attention-heads");
    for (size_t i = 0; any && i < 3; i++)
        if (!sizes[i].value)
            return tp_fail(TP_ERR_USAGE, "%s: expected it too, to make a model of options",
                           sizes[i].option);
    return TP_OK;
}

/* What is written must not be what is read. */
static enum tp_status check_outputs(const struct tp_settings *settings)
{
    const char *const outputs[][2] = {{"--metrics", settings->metrics},
                                      {"--save-gradients", settings->save_gradients},
                                      {"--trace", settings->trace},
                                      {"-o", settings->output}};
    const struct {
        const struct tp_option_list *list;
        const char *what;
    } inputs[] = {{&settings->data, "data"},
                  {&settings->validation, "data"},
                  {&settings->profiles, "a profile"}};

    for (size_t o = 0; o < sizeof outputs / sizeof *outputs; o++)
        for (int n = 0; n < 3 && outputs[o][1]; n++)
            for (int i = 0; i < inputs[n].list->count; i++)
                if (tp_file_is_same(outputs[o][1], inputs[n].list->at[i]))
                    return tp_fail(TP_ERR_USAGE, "%s %s: expected a file of its own, not %s",
                                   outputs[o][0], outputs[o][1], inputs[n].what);
    return TP_OK;
}

enum tp_status tp_settings_check(const struct tp_settings *settings)
{
    size_t bytes;

    TP_TRY(check_model(settings));
    TP_TRY(check_pairs(settings));
    TP_TRY(check_outputs(settings));
    if (settings->delay_wgrad && settings->recompute == TP_RECOMPUTE_CELL)
        return tp_fail(TP_ERR_USAGE, "--delay-wgrad-compute: expected it without --recompute cell, "
                                     "which does not keep what weight gradients are made of");
    if (settings->min_lr > settings->lr)
        return tp_fail(TP_ERR_USAGE, "--min-lr %g: expected at most --lr %g", settings->min_lr,
                       settings->lr);
    return tp_settings_memory(settings, &bytes);
}

enum tp_status tp_settings_memory(const struct tp_settings *settings, size_t *bytes)
{
    static const char units[] = "KMG";
    const char *text = settings->memory;
    unsigned shift = 0;
    char *end;

    if (!text) {
        *bytes = 0;
        return TP_OK;
    }
    errno = 0;
    unsigned long long count = isdigit((unsigned char)*text) ? strtoull(text, &end, 10) : 0;
    if (count == 0 || errno != 0)
        goto wrong;
    for (unsigned i = 0; units[i]; i++)
        if (toupper((unsigned char)*end) == units[i])
            shift = 10 * (i + 1);
    if (end[shift > 0] != '\0' || count > SIZE_MAX >> shift)
        goto wrong;
    *bytes = (size_t)count << shift;
    return TP_OK;
wrong:
    return tp_fail(TP_ERR_USAGE, "--memory %s: expected bytes, with K, M or G behind the number",
                   text);
}
