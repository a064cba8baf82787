/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "plan/slices.h"

static enum tp_status slices_init(int count, struct tp_slices *slices)
{
    int *lengths = malloc((size_t)count * sizeof *lengths);
    if (lengths == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d slices", count);
    *slices = (struct tp_slices){.count = count, .lengths = lengths};
    return TP_OK;
}

enum tp_status tp_slices_uniform(int seq_len, int count, struct tp_slices *slices)
{
    if (count < 1 || count > seq_len)
        return tp_fail(TP_ERR_USAGE,
                       "--slices %d: expected 1 to %d slices of a sequence of %d tokens", count,
                       seq_len, seq_len);
    TP_TRY(slices_init(count, slices));
    for (int i = 0; i < count; i++)
        slices->lengths[i] = seq_len / count + (i < seq_len % count);
    return TP_OK;
}

/* Reads a number in [1, INT_MAX] made of digits alone; *text then points behind it. */
static bool parse_length(const char **text, int *length)
{
    if (**text < '0' || **text > '9')
        return false;
    char *end;
    errno = 0;
    long value = strtol(*text, &end, 10);
    if (errno != 0 || value < 1 || value > INT_MAX)
        return false;
    *text = end;
    *length = (int)value;
    return true;
}

static int count_commas(const char *text)
{
    int count = 0;
    for (; *text != '\0'; text++)
        count += *text == ',';
    return count;
}

static enum tp_status parse_uniform(const char *text, int seq_len, struct tp_slices *slices)
{
    const char *rest = text;
    int count;
    if (!parse_length(&rest, &count) || *rest != '\0')
        return tp_fail(TP_ERR_USAGE,
                       "--slices %s: expected a number of slices from 1 to %d, or their lengths "
                       "with commas between",
                       text, seq_len);
    return tp_slices_uniform(seq_len, count, slices);
}

/* Reads the lengths of a list and adds them up. */
static enum tp_status parse_lengths(const char *text, int seq_len, struct tp_slices *slices)
{
    const char *rest = text;
    long long sum = 0;
    for (int i = 0; i < slices->count; i++) {
        bool last = i == slices->count - 1;
        if (!parse_length(&rest, &slices->lengths[i]) || *rest != (last ? '\0' : ','))
            return tp_fail(TP_ERR_USAGE,
                           "--slices %s: expected lengths of 1 token or more with commas between, "
                           "not \"%.20s\"",
                           text, rest);
        sum += slices->lengths[i];
        rest += !last;
    }
    if (sum != seq_len)
        return tp_fail(TP_ERR_USAGE,
                       "--slices %s: the lengths sum to %lld, expected the sequence's %d tokens",
                       text, sum, seq_len);
    return TP_OK;
}

enum tp_status tp_slices_parse(const char *text, int seq_len, struct tp_slices *slices)
{
    int commas = count_commas(text);
    if (commas == 0)
        return parse_uniform(text, seq_len, slices);
    if (commas >= seq_len)
        return tp_fail(
            TP_ERR_USAGE,
            "--slices: %d lengths were given, a sequence of %d tokens has no more slices "
            "than tokens",
            commas + 1, seq_len);
    struct tp_slices parsed;
    TP_TRY(slices_init(commas + 1, &parsed));
    enum tp_status status = parse_lengths(text, seq_len, &parsed);
    if (status == TP_OK)
        *slices = parsed;
    else
        tp_slices_fini(&parsed);
    return status;
}

enum tp_status tp_slices_copy(const struct tp_slices *from, struct tp_slices *to)
{
    TP_TRY(slices_init(from->count, to));
    memcpy(to->lengths, from->lengths, (size_t)from->count * sizeof *to->lengths);
    return TP_OK;
}

void tp_slices_fini(struct tp_slices *slices)
{
    free(slices->lengths);
    *slices = (struct tp_slices){0};
}
