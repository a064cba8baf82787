/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors files (https://github.com/huggingface/safetensors, "Format"): an 8-byte length, a
 * JSON header, the tensors. Validated whole: header length, UTF-8, no duplicate keys, offsets
 * contiguous from 0 to the end of the file, sizes equal to shape times dtype without overflow. */
#ifndef TP_DATA_SAFETENSORS_H
#define TP_DATA_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define TP_SAFETENSORS_NDIM 8

struct tp_tensor_info {
    const char *name;
    const char *dtype; /* "F32", ... as in the file */
    int ndim;
    size_t shape[TP_SAFETENSORS_NDIM];
    uint64_t begin, end; /* bytes from the end of the header */
};

struct tp_safetensors;

/* Opens and validates. Local. TP_ERR_INPUT names path and fault; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_safetensors_open(const char *path, struct tp_safetensors **file);
void tp_safetensors_close(struct tp_safetensors *file);

int tp_safetensors_count(const struct tp_safetensors *file);
const char *tp_safetensors_path(const struct tp_safetensors *file);

/* Tensor by place in the data or by name; owned by the file. find gives NULL when there is none.
 * Local. */
const struct tp_tensor_info *tp_safetensors_at(const struct tp_safetensors *file, int index);
const struct tp_tensor_info *tp_safetensors_find(const struct tp_safetensors *file,
                                                 const char *name);

/* Reads the whole of an F32 tensor. Local. TP_ERR_INPUT for another dtype, TP_ERR_IO. */
enum tp_status tp_safetensors_read(const struct tp_safetensors *file,
                                   const struct tp_tensor_info *info, float *out);

struct tp_safetensors_writer;

/* Starts path with a header of n F32 tensors (names, ndim and shape of infos are used), which are
 * then written in that order by tp_safetensors_write(), each whole. _finish() flushes to disk and
 * frees; when that fails it abandons. _abandon() deletes the file and frees; NULL is fine. infos
 * and path are not needed after _create(). Local. TP_ERR_IO names the path; TP_ERR_INPUT when the
 * elements are not those of the header; TP_ERR_MEMORY. */
enum tp_status tp_safetensors_create(const char *path, const struct tp_tensor_info *infos, int n,
                                     struct tp_safetensors_writer **writer);
enum tp_status tp_safetensors_write(struct tp_safetensors_writer *writer, const float *data,
                                    size_t count);
enum tp_status tp_safetensors_finish(struct tp_safetensors_writer *writer);
void tp_safetensors_abandon(struct tp_safetensors_writer *writer);

#endif
