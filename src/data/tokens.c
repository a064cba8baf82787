/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/tokens.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/file.h"

struct part {
    const char *path; /* the caller's */
    void *map;
    size_t map_size;
    const unsigned char *data; /* in the map, behind the header */
    int width;                 /* bytes of a token */
    int64_t first, count;      /* tokens [first, first + count) of the stream */
};

struct tp_tokens {
    int n_parts;
    int seq_len, vocab_size;
    int64_t count;
    struct part parts[];
};

/* ---- Formats ---- */

/* llm.c's header: 256 little-endian 32-bit integers, of which three are used. */
enum { HEADER_MAGIC, HEADER_VERSION, HEADER_COUNT, HEADER_INTS = 256, HEADER_BYTES = 1024 };

static const struct format {
    uint32_t magic;
    uint32_t versions[2];
    int width;
} formats[] = {
    {20240520, {1, 1}, 2},
    {20240801, {1, 7}, 4},
};

static uint32_t header_int(const struct part *part, int index)
{
    uint32_t value;

    memcpy(&value, (const char *)part->map + (size_t)index * sizeof value, sizeof value);
    return le32toh(value);
}

/* The format that the file's first number announces, or NULL. */
static const struct format *find_format(const struct part *part)
{
    if (part->map_size < sizeof(uint32_t))
        return NULL;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (header_int(part, HEADER_MAGIC) == formats[i].magic)
            return &formats[i];
    return NULL;
}

static enum tp_status read_header(struct part *part, const struct format *format)
{
    if (part->map_size < HEADER_BYTES)
        return tp_fail(TP_ERR_INPUT, "%s: has %zu bytes, expected a header of %d", part->path,
                       part->map_size, HEADER_BYTES);

    uint32_t version = header_int(part, HEADER_VERSION);
    if (version != format->versions[0] && version != format->versions[1])
        return tp_fail(TP_ERR_INPUT, "%s: has version %u, expected %u", part->path, version,
                       format->versions[1]);

    uint64_t count = header_int(part, HEADER_COUNT);
    uint64_t bytes = count * (unsigned)format->width;
    if (bytes != part->map_size - HEADER_BYTES)
        return tp_fail(
            TP_ERR_INPUT, "%s: its header counts %llu tokens, expected %zu bytes after it, not %zu",
            part->path, (unsigned long long)count, (size_t)bytes, part->map_size - HEADER_BYTES);
    part->data = (const unsigned char *)part->map + HEADER_BYTES;
    part->width = format->width;
    part->count = (int64_t)count;
    return TP_OK;
}

/* Finds out what a mapped file holds. */
static enum tp_status recognise(struct part *part)
{
    const struct format *format = find_format(part);
    const char *dot = strrchr(part->path, '.');

    if (format)
        return read_header(part, format);
    part->data = part->map;
    part->width = dot && strcmp(dot, ".bin") == 0 ? 2 : 1;
    if (part->map_size % (unsigned)part->width != 0)
        return tp_fail(TP_ERR_INPUT, "%s: has %zu bytes, expected 16-bit tokens: an even number",
                       part->path, part->map_size);
    part->count = (int64_t)(part->map_size / (unsigned)part->width);
    return TP_OK;
}

/* ---- Opening ---- */

static enum tp_status map_file(struct part *part)
{
    enum tp_status status = TP_OK;
    uint64_t size;
    void *map;
    int fd;

    TP_TRY(tp_file_open(part->path, &fd, &size));
    if (size == 0) {
        status = tp_fail(TP_ERR_INPUT, "%s: is empty, expected tokens or text", part->path);
        goto close_file;
    }
    map = mmap(NULL, (size_t)size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        status = tp_fail(TP_ERR_IO, "%s: cannot map: %s", part->path, strerror(errno));
        goto close_file;
    }
    part->map = map;
    part->map_size = (size_t)size;
close_file:
    close(fd);
    return status;
}

static enum tp_status open_part(struct tp_tokens *tokens, const char *path)
{
    struct part *part = &tokens->parts[tokens->n_parts];

    part->path = path;
    part->first = tokens->count;
    TP_TRY(map_file(part));
    tokens->n_parts++; /* from here on tp_tokens_close() unmaps it */
    TP_TRY(recognise(part));
    tokens->count += part->count;
    return TP_OK;
}

enum tp_status tp_tokens_open(const char *const *paths, int n_paths, int seq_len, int vocab_size,
                              struct tp_tokens **tokens)
{
    size_t parts = (size_t)n_paths;
    struct tp_tokens *opened = calloc(1, sizeof *opened + parts * sizeof opened->parts[0]);
    enum tp_status status = TP_OK;

    if (!opened)
        return tp_fail(TP_ERR_MEMORY, "no memory to open %d files", n_paths);
    opened->seq_len = seq_len;
    opened->vocab_size = vocab_size;
    for (int i = 0; i < n_paths && status == TP_OK; i++)
        status = open_part(opened, paths[i]);
    if (status == TP_OK && tp_tokens_samples(opened) < 1)
        status = tp_fail(TP_ERR_INPUT, "%s%s: %lld tokens, expected %lld or more for one sample",
                         n_paths > 0 ? paths[0] : "no file", n_paths > 1 ? " and the others" : "",
                         (long long)opened->count, (long long)seq_len + 1);
    if (status == TP_OK)
        *tokens = opened;
    else
        tp_tokens_close(opened);
    return status;
}

void tp_tokens_close(struct tp_tokens *tokens)
{
    if (!tokens)
        return;
    for (int i = 0; i < tokens->n_parts; i++)
        munmap(tokens->parts[i].map, tokens->parts[i].map_size);
    free(tokens);
}

/* ---- Reading ---- */

int64_t tp_tokens_count(const struct tp_tokens *tokens)
{
    return tokens->count;
}

int64_t tp_tokens_samples(const struct tp_tokens *tokens)
{
    return tokens->count > 0 ? (tokens->count - 1) / tokens->seq_len : 0;
}

const char *tp_tokens_text(const struct tp_tokens *tokens)
{
    for (int i = 0; i < tokens->n_parts; i++)
        if (tokens->parts[i].width == 1)
            return tokens->parts[i].path;
    return NULL;
}

static uint32_t token_at(const struct part *part, int64_t index)
{
    const unsigned char *at = part->data + (size_t)index * (unsigned)part->width;
    uint16_t half;
    uint32_t word;

    switch (part->width) {
    case 1:
        return *at;
    case 2:
        memcpy(&half, at, sizeof half);
        return le16toh(half);
    default:
        memcpy(&word, at, sizeof word);
        return le32toh(word);
    }
}

/* Copies tokens [first, first + count) of the stream, across files. */
static enum tp_status copy(const struct tp_tokens *tokens, int64_t first, int count, int32_t *out)
{
    const struct part *part = tokens->parts;

    for (int64_t i = first; i < first + count; i++) {
        while (i >= part->first + part->count)
            part++;
        uint32_t token = token_at(part, i - part->first);
        if (token >= (uint32_t)tokens->vocab_size)
            return tp_fail(TP_ERR_INPUT, "%s: token %u at position %lld, expected 0 to %d",
                           part->path, token, (long long)(i - part->first), tokens->vocab_size - 1);
        *out++ = (int32_t)token;
    }
    return TP_OK;
}

enum tp_status tp_tokens_sample(struct tp_tokens *tokens, int64_t sample, int32_t *inputs,
                                int32_t *targets)
{
    int64_t first = sample * tokens->seq_len;

    if (inputs)
        TP_TRY(copy(tokens, first, tokens->seq_len, inputs));
    if (targets)
        TP_TRY(copy(tokens, first + 1, tokens->seq_len, targets));
    return TP_OK;
}
