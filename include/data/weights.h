/* SPDX-License-Identifier: Apache-2.0 */
/* A model's tensors in a safetensors file, by the parameter table. */
#ifndef TP_DATA_WEIGHTS_H
#define TP_DATA_WEIGHTS_H

#include "base/status.h"
#include "data/safetensors.h"
#include "model/parameters.h"

struct tp_weights;

/* Opens a file and checks that it holds each parameter of the table with its shape, as F32. Names
 * with and without "transformer." are read; mask buffers (attn.bias, attn.masked_bias) and a
 * lm_head.weight are skipped; any other tensor is an error. parameters must outlive the result.
 * Local. TP_ERR_INPUT names file and tensor. */
enum tp_status tp_weights_open(const char *path, const struct tp_parameters *parameters,
                               struct tp_weights **weights);
void tp_weights_close(struct tp_weights *weights);

/* Reads parameter number row of the table: its count elements. Local. TP_ERR_IO. */
enum tp_status tp_weights_read(const struct tp_weights *weights, int row, float *out);

/* Starts a file with all parameters of the table, in its order. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_weights_create(const char *path, const struct tp_parameters *parameters,
                                 struct tp_safetensors_writer **writer);

#endif
