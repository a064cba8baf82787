/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>

#include "cli/command.h"
#include "train/evaluate.h"

const struct tp_command tp_command_eval = {
    .name = "eval",
    .summary = "mean loss and perplexity of a model on token files or text",
    .options = (const char *const[]){"load",
                                     "model",
                                     "num-layers",
                                     "hidden-size",
                                     "num-attention-heads",
                                     "vocab-size",
                                     "data-path",
                                     "tokenizer",
                                     "eval-iters",
                                     "seq-length",
                                     "global-batch-size",
                                     "pipeline-model-parallel-size",
                                     "tensor-model-parallel-size",
                                     "data",
                                     "schedule",
                                     "slices",
                                     "group-size",
                                     "watchdog",
                                     "gemm",
                                     "kernels",
                                     "device",
                                     "threads",
                                     "memory",
                                     NULL},
    .required = (const char *const[]){"load", "data-path", NULL},
    .run = tp_evaluate,
};
