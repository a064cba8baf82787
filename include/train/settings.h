/* SPDX-License-Identifier: Apache-2.0 */
/* What a user asks for: one field per option of the commands that compute. Zero or NULL means "not
 * given" where an option has no default. */
#ifndef TP_TRAIN_SETTINGS_H
#define TP_TRAIN_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/options.h"
#include "base/status.h"
#include "train/learning_rate.h"

enum tp_tokenizer { TP_TOKENIZER_NONE = -1, TP_TOKENIZER_BYTES };
extern const char *const tp_tokenizer_choices[];

struct tp_settings {
    /* the model and where its weights come from and go to */
    const char *model, *load, *save;
    int n_layer, n_embd, n_head, vocab_size;

    /* how a step is cut and who computes what */
    int seq_len, batch, pipe, op, replicas, group_size;
    int schedule; /* enum tp_schedule_kind, or TP_SEARCH_AUTO where one plans */
    const char *slices;

    /* devices */
    int gemm;    /* enum tp_gemm_provider */
    int kernels; /* enum tp_kernel_style */
    const char *device, *memory;
    int threads;

    /* planning */
    double budget;      /* seconds of profiling; 0: not given */
    const char *output; /* where a profile or a plan goes */
    struct tp_option_list profiles;
    const char *hardware, *plan, *trace;
    int devices, grain;
    int objective;  /* enum tp_objective */
    int recompute;  /* enum tp_recompute */
    int accumulate; /* flights of a step; 0: not given */
    bool zero;      /* replicas share the optimizer's moments */
    bool delay_wgrad;
    double dropout;
    bool check;
    double epsilon;
    bool json;

    /* data */
    struct tp_option_list data, validation;
    int tokenizer; /* enum tp_tokenizer */
    int sampler;   /* enum tp_sampler_kind */
    uint64_t seed;

    /* optimizer */
    int train_iters;
    double lr, min_lr;
    int warmup_iters, decay_iters;
    int decay_style; /* enum tp_decay_style */
    double weight_decay, clip_grad, beta1, beta2, eps;

    /* what happens beside the steps */
    int eval_interval, eval_iters, log_interval, save_interval, keep;
    double exit_minutes, watchdog;
    int max_skipped;
    const char *save_gradients, *metrics;
    const char *record; /* text of options.json; NULL: none is written */

    /* generation */
    const char *prompt;
    int max_new_tokens, top_k;
    double temperature, top_p;
};

/* Checks that files and folders have names. Local. TP_ERR_USAGE names the option. */
enum tp_status tp_settings_check_names(const struct tp_settings *settings);

/* Checks what one option's range cannot: options that need or exclude each other. Local.
 * TP_ERR_USAGE names the options. */
enum tp_status tp_settings_check(const struct tp_settings *settings);

/* Bytes that --memory says: a number with K, M or G behind it; 0 when it is not given. Local.
 * TP_ERR_USAGE. */
enum tp_status tp_settings_memory(const struct tp_settings *settings, size_t *bytes);

#endif
