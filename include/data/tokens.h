/* SPDX-License-Identifier: Apache-2.0 */
/* A stream of tokens: one or several files, concatenated in order, mapped into memory and never
 * read whole. A file is raw uint16 (".bin", nanoGPT), llm.c's (1024-byte header with magic 20240520
 * for uint16 or 20240801 for uint32) or text, whose bytes are the tokens (any other file).
 * Sample n has inputs [nT, nT + T) and targets one further. */
#ifndef TP_DATA_TOKENS_H
#define TP_DATA_TOKENS_H

#include <stdint.h>

#include "base/status.h"

struct tp_tokens;

/* Opens and maps the files; they hold at least one sample of seq_len tokens together. The names
 * (not the array of them) must outlive the result. Local. TP_ERR_INPUT names the file and what is
 * wrong with it; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_tokens_open(const char *const *paths, int n_paths, int seq_len, int vocab_size,
                              struct tp_tokens **tokens);
void tp_tokens_close(struct tp_tokens *tokens);

int64_t tp_tokens_count(const struct tp_tokens *tokens);   /* tokens */
int64_t tp_tokens_samples(const struct tp_tokens *tokens); /* whole samples: (count - 1) / T */

/* The first file that is text; NULL: none is. Local. */
const char *tp_tokens_text(const struct tp_tokens *tokens);

/* inputs[T] and targets[T] of a sample; either may be NULL. Local. TP_ERR_INPUT for a token beyond
 * the vocabulary, named by file and position in it. */
enum tp_status tp_tokens_sample(struct tp_tokens *tokens, int64_t sample, int32_t *inputs,
                                int32_t *targets);

#endif
