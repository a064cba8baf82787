/* SPDX-License-Identifier: Apache-2.0 */
/* The model: GPT-2 as Hugging Face stores it.
 *
 * One letter, one meaning, in the whole program:
 *   B sequences, T tokens of a sequence, S tokens of a slice, P context tokens before a slice,
 *   C width (n_embd), H heads, D head width (C = H * D), L layers, V vocabulary;
 *   pipeline: K stages, M slices, O op degree. rank and size mean MPI's. */
#ifndef TP_MODEL_MODEL_H
#define TP_MODEL_MODEL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

struct tp_model {
    int n_layer, n_embd, n_head, n_inner, vocab_size, n_positions;
    double layer_norm_epsilon;
    double initializer_range;
};

/* Checks ranges and divisibility; where names the source in errors ("config.json", "--model").
 * Local. TP_ERR_INPUT. */
enum tp_status tp_model_check(const struct tp_model *model, const char *where);

/* A preset by name, n_positions as published. Local. TP_ERR_INPUT lists the names. */
enum tp_status tp_model_preset(const char *name, struct tp_model *model);

/* Is this the name of a preset? Local. */
bool tp_model_is_preset(const char *name);

/* Reads Hugging Face's config.json; path is the file or the folder that holds it. What we do not
 * compute (another activation, untied head, ...) is refused by name; dropout is ignored with a
 * note. Local. TP_ERR_INPUT, TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_model_load(const char *path, struct tp_model *model);

/* Writes config.json to a path, by rename. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_model_save(const struct tp_model *model, const char *path);

/* Parameters in all, the tied matrix once; floating-point operations of one training step for
 * sequences of seq_len tokens (6 N + 6 L C T a token, embeddings not counted but the head). Local.
 */
int64_t tp_model_parameter_count(const struct tp_model *model);
double tp_model_step_flops(const struct tp_model *model, int seq_len, int sequences);

#endif
