/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "data/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"

enum {
    PREFIX = 8,               /* bytes of the header's length, before the header */
    HEADER_LIMIT = 100000000, /* what the reference implementation accepts */
    CHUNK = 64 << 10          /* floats that are converted at a time */
};

#define METADATA "__metadata__" /* the one key of the header that is no tensor */

struct tp_safetensors {
    char *path;
    int fd;
    json_t *header; /* owns names and dtypes */
    uint64_t data;  /* where the tensors begin in the file */
    int count;
    struct tp_tensor_info *at; /* by place in the data */
};

/* ---- The header ---- */

static const struct dtype {
    const char *name;
    uint64_t bytes;
} dtypes[] = {
    {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
    {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
    {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
};

static const struct dtype *find_dtype(const char *name)
{
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

static enum tp_status read_shape(const char *path, const json_t *shape, struct tp_tensor_info *info)
{
    if (!json_is_array(shape))
        return tp_fail(TP_ERR_INPUT, "%s: %s has no shape", path, info->name);
    if (json_array_size(shape) > TP_SAFETENSORS_NDIM)
        return tp_fail(TP_ERR_INPUT, "%s: %s has %zu dimensions, expected at most %d", path,
                       info->name, json_array_size(shape), TP_SAFETENSORS_NDIM);
    info->ndim = (int)json_array_size(shape);
    for (int i = 0; i < info->ndim; i++) {
        const json_t *side = json_array_get(shape, (size_t)i);
        if (!json_is_integer(side) || json_integer_value(side) < 0)
            return tp_fail(TP_ERR_INPUT, "%s: the shape of %s has to be of integers from 0 on",
                           path, info->name);
        info->shape[i] = (size_t)json_integer_value(side);
    }
    return TP_OK;
}

static enum tp_status read_offsets(const char *path, const json_t *offsets,
                                   struct tp_tensor_info *info)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return tp_fail(TP_ERR_INPUT, "%s: the data_offsets of %s have to be two rising integers",
                       path, info->name);
    info->begin = (uint64_t)json_integer_value(begin);
    info->end = (uint64_t)json_integer_value(end);
    return TP_OK;
}

/* Do shape and dtype make as many bytes as the offsets say? */
static enum tp_status check_size(const char *path, const struct tp_tensor_info *info)
{
    const struct dtype *dtype = find_dtype(info->dtype);
    uint64_t bytes;
    bool fits = true, empty = false;

    if (!dtype)
        return tp_fail(TP_ERR_INPUT, "%s: %s has the unknown dtype %s", path, info->name,
                       info->dtype);
    bytes = dtype->bytes;
    for (int i = 0; i < info->ndim; i++) {
        empty = empty || info->shape[i] == 0;
        fits = fits && !__builtin_mul_overflow(bytes, info->shape[i], &bytes);
    }
    if ((!fits && !empty) || (empty ? 0 : bytes) != info->end - info->begin)
        return tp_fail(TP_ERR_INPUT, "%s: %s has %llu bytes, which its shape and dtype contradict",
                       path, info->name, (unsigned long long)(info->end - info->begin));
    return TP_OK;
}

static enum tp_status read_tensor(const char *path, const char *name, const json_t *tensor,
                                  struct tp_tensor_info *info)
{
    const json_t *dtype = json_object_get(tensor, "dtype");

    info->name = name;
    if (!json_is_string(dtype))
        return tp_fail(TP_ERR_INPUT, "%s: %s has no dtype", path, name);
    info->dtype = json_string_value(dtype);
    TP_TRY(read_shape(path, json_object_get(tensor, "shape"), info));
    TP_TRY(read_offsets(path, json_object_get(tensor, "data_offsets"), info));
    return check_size(path, info);
}

static enum tp_status check_metadata(const char *path, json_t *metadata)
{
    const char *key;
    json_t *value;
    bool good = json_is_object(metadata);

    json_object_foreach(metadata, key, value) good = good && json_is_string(value);
    if (!good)
        return tp_fail(TP_ERR_INPUT, "%s: " METADATA " has to be an object of strings", path);
    return TP_OK;
}

static int by_offset(const void *left, const void *right)
{
    const struct tp_tensor_info *a = left, *b = right;

    if (a->begin != b->begin)
        return a->begin < b->begin ? -1 : 1;
    return (a->end > b->end) - (a->end < b->end);
}

/* Do the tensors follow each other without a hole or an overlap, up to the end of the file? */
static enum tp_status check_contiguous(const struct tp_safetensors *file, uint64_t size)
{
    uint64_t end = 0;

    for (int i = 0; i < file->count; i++) {
        const struct tp_tensor_info *info = &file->at[i];
        if (info->begin != end)
            return tp_fail(TP_ERR_INPUT, "%s: %s begins at byte %llu of the data, expected %llu",
                           file->path, info->name, (unsigned long long)info->begin,
                           (unsigned long long)end);
        end = info->end;
    }
    if (end != size - file->data)
        return tp_fail(TP_ERR_INPUT, "%s: has %llu bytes of data, expected %llu", file->path,
                       (unsigned long long)(size - file->data), (unsigned long long)end);
    return TP_OK;
}

/* Fills in the tensors from the parsed header. */
static enum tp_status read_tensors(struct tp_safetensors *file, uint64_t size)
{
    const char *name;
    json_t *value;

    if (!json_is_object(file->header))
        return tp_fail(TP_ERR_INPUT, "%s: the header is not a JSON object", file->path);
    file->at = calloc(json_object_size(file->header) + 1, sizeof *file->at);
    if (!file->at)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its header", file->path);
    json_object_foreach(file->header, name, value)
    {
        if (strcmp(name, METADATA) == 0)
            TP_TRY(check_metadata(file->path, value));
        else
            TP_TRY(read_tensor(file->path, name, value, &file->at[file->count++]));
    }
    qsort(file->at, (size_t)file->count, sizeof *file->at, by_offset);
    return check_contiguous(file, size);
}

static enum tp_status parse_header(struct tp_safetensors *file, size_t length)
{
    json_error_t error;
    char *text = malloc(length + 1);

    if (!text)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its header", file->path);
    enum tp_status status = tp_file_read_at(file->fd, file->path, PREFIX, text, length);
    if (status == TP_OK && text[0] != '{')
        status = tp_fail(TP_ERR_INPUT, "%s: the header does not begin with '{'", file->path);
    if (status == TP_OK) {
        file->header = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
        if (!file->header)
            status = tp_fail(TP_ERR_INPUT, "%s: header, byte %d: %s", file->path, error.position,
                             error.text);
    }
    free(text);
    return status;
}

static enum tp_status read_header(struct tp_safetensors *file, uint64_t size)
{
    uint64_t length;

    if (size < PREFIX)
        return tp_fail(TP_ERR_INPUT, "%s: has %llu bytes, expected a safetensors file", file->path,
                       (unsigned long long)size);
    TP_TRY(tp_file_read_at(file->fd, file->path, 0, &length, sizeof length));
    length = le64toh(length);
    uint64_t most = size - PREFIX < HEADER_LIMIT ? size - PREFIX : HEADER_LIMIT;
    if (length < 2 || length > most)
        return tp_fail(TP_ERR_INPUT, "%s: the header's length is %llu, expected 2 to %llu",
                       file->path, (unsigned long long)length, (unsigned long long)most);
    file->data = PREFIX + length;
    TP_TRY(parse_header(file, (size_t)length));
    return read_tensors(file, size);
}

/* ---- Reading ---- */

enum tp_status tp_safetensors_open(const char *path, struct tp_safetensors **file)
{
    enum tp_status status;
    uint64_t size;
    int fd;

    TP_TRY(tp_file_open(path, &fd, &size));
    struct tp_safetensors *opened = calloc(1, sizeof *opened);
    if (opened)
        opened->path = strdup(path);
    if (!opened || !opened->path) {
        free(opened);
        close(fd);
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to read it", path);
    }
    opened->fd = fd;
    status = read_header(opened, size);
    if (status == TP_OK)
        *file = opened;
    else
        tp_safetensors_close(opened);
    return status;
}

void tp_safetensors_close(struct tp_safetensors *file)
{
    if (!file)
        return;
    close(file->fd);
    json_decref(file->header);
    free(file->at);
    free(file->path);
    free(file);
}

int tp_safetensors_count(const struct tp_safetensors *file)
{
    return file->count;
}

const char *tp_safetensors_path(const struct tp_safetensors *file)
{
    return file->path;
}

const struct tp_tensor_info *tp_safetensors_at(const struct tp_safetensors *file, int index)
{
    return &file->at[index];
}

const struct tp_tensor_info *tp_safetensors_find(const struct tp_safetensors *file,
                                                 const char *name)
{
    for (int i = 0; i < file->count; i++)
        if (strcmp(file->at[i].name, name) == 0)
            return &file->at[i];
    return NULL;
}

/* Copies floats from the file's byte order to ours, or back; from and to may be the same. */
static void convert(const float *from, size_t count, float *to)
{
    uint32_t bits;

    for (size_t i = 0; i < count; i++) {
        memcpy(&bits, &from[i], sizeof bits);
        bits = le32toh(bits);
        memcpy(&to[i], &bits, sizeof bits);
    }
}

enum tp_status tp_safetensors_read(const struct tp_safetensors *file,
                                   const struct tp_tensor_info *info, float *out)
{
    size_t size = (size_t)(info->end - info->begin);

    if (strcmp(info->dtype, "F32") != 0)
        return tp_fail(TP_ERR_INPUT, "%s: %s is %s, expected F32", file->path, info->name,
                       info->dtype);
    TP_TRY(tp_file_read_at(file->fd, file->path, file->data + info->begin, out, size));
    convert(out, size / sizeof *out, out);
    return TP_OK;
}

/* ---- Writing ---- */

struct tp_safetensors_writer {
    char *path;
    int fd;
    bool regular; /* a file, which may be deleted; not a device */
    int count, next;
    size_t *elements;   /* [count] of each tensor */
    float chunk[CHUNK]; /* in the file's byte order */
};

static size_t element_count(const struct tp_tensor_info *info)
{
    size_t count = 1;

    for (int i = 0; i < info->ndim; i++)
        count *= info->shape[i];
    return count;
}

static json_t *describe_tensor(const struct tp_tensor_info *info, uint64_t begin, uint64_t end)
{
    json_t *shape = json_array();
    int failed = shape == NULL;

    for (int i = 0; i < info->ndim && !failed; i++)
        failed = json_array_append_new(shape, json_integer((json_int_t)info->shape[i]));
    if (failed) {
        json_decref(shape);
        return NULL;
    }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", shape, "data_offsets",
                     (json_int_t)begin, (json_int_t)end);
}

/* The header as text, padded with blanks so that the data begins at a multiple of 8. malloc'd; NULL
 * without memory. */
static char *make_header(const struct tp_tensor_info *infos, int n)
{
    /* Hugging Face's loader insists on a format. */
    json_t *header = json_pack("{s:{s:s}}", METADATA, "format", "pt");
    int failed = header == NULL;
    uint64_t begin = 0;
    char *text = NULL;

    for (int i = 0; i < n && !failed; i++) {
        uint64_t end = begin + element_count(&infos[i]) * sizeof(float);
        failed = json_object_set_new(header, infos[i].name, describe_tensor(&infos[i], begin, end));
        begin = end;
    }
    if (!failed)
        text = json_dumps(header, JSON_COMPACT);
    json_decref(header);
    if (!text)
        return NULL;

    size_t length = strlen(text), padded = (length + PREFIX - 1) / PREFIX * PREFIX;
    char *grown = realloc(text, padded + 1);
    if (!grown) {
        free(text);
        return NULL;
    }
    memset(grown + length, ' ', padded - length);
    grown[padded] = '\0';
    return grown;
}

static enum tp_status write_header(struct tp_safetensors_writer *writer,
                                   const struct tp_tensor_info *infos)
{
    char *header = make_header(infos, writer->count);

    if (!header)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its header", writer->path);
    uint64_t length = htole64(strlen(header));
    enum tp_status status = tp_file_write_all(writer->fd, writer->path, &length, sizeof length);
    if (status == TP_OK)
        status = tp_file_write_all(writer->fd, writer->path, header, strlen(header));
    free(header);
    return status;
}

static enum tp_status open_for_writing(struct tp_safetensors_writer *writer)
{
    struct stat info;

    writer->fd = open(writer->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (writer->fd < 0)
        return tp_fail(TP_ERR_IO, "%s: cannot write: %s", writer->path, strerror(errno));
    writer->regular = fstat(writer->fd, &info) == 0 && S_ISREG(info.st_mode);
    return TP_OK;
}

enum tp_status tp_safetensors_create(const char *path, const struct tp_tensor_info *infos, int n,
                                     struct tp_safetensors_writer **writer)
{
    struct tp_safetensors_writer *made = calloc(1, sizeof *made);
    enum tp_status status = TP_OK;

    if (!made)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    made->fd = -1;
    made->count = n;
    made->path = strdup(path);
    made->elements = calloc((size_t)n + 1, sizeof *made->elements);
    if (!made->path || !made->elements)
        status = tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    for (int i = 0; i < n && status == TP_OK; i++)
        made->elements[i] = element_count(&infos[i]);
    if (status == TP_OK)
        status = open_for_writing(made);
    if (status == TP_OK)
        status = write_header(made, infos);
    if (status == TP_OK)
        *writer = made;
    else
        tp_safetensors_abandon(made);
    return status;
}

enum tp_status tp_safetensors_write(struct tp_safetensors_writer *writer, const float *data,
                                    size_t count)
{
    size_t expected = writer->next < writer->count ? writer->elements[writer->next] : 0;

    if (writer->next >= writer->count || count != expected)
        return tp_fail(TP_ERR_INPUT, "%s: tensor %d of %d has %zu elements, got %zu", writer->path,
                       writer->next, writer->count, expected, count);
    while (count > 0) {
        size_t n = count < CHUNK ? count : CHUNK;
        convert(data, n, writer->chunk);
        TP_TRY(tp_file_write_all(writer->fd, writer->path, writer->chunk, n * sizeof *data));
        data += n;
        count -= n;
    }
    writer->next++;
    return TP_OK;
}

static void free_writer(struct tp_safetensors_writer *writer)
{
    free(writer->elements);
    free(writer->path);
    free(writer);
}

enum tp_status tp_safetensors_finish(struct tp_safetensors_writer *writer)
{
    enum tp_status status;

    if (writer->next != writer->count) {
        status = tp_fail(TP_ERR_INPUT, "%s: got %d of %d tensors", writer->path, writer->next,
                         writer->count);
        goto abandon;
    }
    status = tp_file_close(writer->fd, writer->path);
    writer->fd = -1;
    if (status != TP_OK)
        goto abandon;
    free_writer(writer);
    return TP_OK;
abandon:
    tp_safetensors_abandon(writer);
    return status;
}

void tp_safetensors_abandon(struct tp_safetensors_writer *writer)
{
    if (!writer)
        return;
    if (writer->fd >= 0)
        close(writer->fd);
    if (writer->regular)
        unlink(writer->path);
    free_writer(writer);
}
