/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>

#include "cli/command.h"
#include "train/generate.h"

const struct tp_command tp_command_generate = {
    .name = "generate",
    .summary = "continue a text",
    .options = (const char *const[]){"load",
                                     "model",
                                     "num-layers",
                                     "hidden-size",
                                     "num-attention-heads",
                                     "vocab-size",
                                     "prompt",
                                     "max-new-tokens",
                                     "temperature",
                                     "top-k",
                                     "top-p",
                                     "seed",
                                     "tokenizer",
                                     "pipeline-model-parallel-size",
                                     "tensor-model-parallel-size",
                                     "watchdog",
                                     "gemm",
                                     "kernels",
                                     "device",
                                     "threads",
                                     "memory",
                                     NULL},
    .required = (const char *const[]){"load", NULL},
    .run = tp_generate,
};
