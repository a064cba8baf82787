/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <float.h>
#include <limits.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <jansson.h>

#include "cli/command.h"
#include "device/device.h"
#include "plan/plan.h"
#include "plan/search.h"

static const char *const sampler_choices[] = {"sequential", "shuffle", NULL};

#define FIELD(member) .offset = offsetof(struct tp_settings, member)
#define INT(least) .type = TP_OPTION_INT, .min = (least), .max = INT_MAX
#define REAL(least, most) .type = TP_OPTION_DOUBLE, .min = (least), .max = (most)
#define TEXT .type = TP_OPTION_STRING
#define LIST .type = TP_OPTION_LIST
#define CHOICE(of) .type = TP_OPTION_CHOICE, .choices = (of)

/* Every option of every command, once. Where there is no default the help says what happens. */
static const struct tp_option table[] = {
    {"model", NULL, TEXT, FIELD(model), .argument = "NAME|FILE|DIR",
     .help = "configuration: a preset, a config.json or its folder"},
    {"num-layers", NULL, INT(1), FIELD(n_layer), .argument = "N",
     .help = "layers of a model made of options"},
    {"hidden-size", NULL, INT(1), FIELD(n_embd), .argument = "N", .help = "its width"},
    {"num-attention-heads", NULL, INT(1), FIELD(n_head), .argument = "N", .help = "its heads"},
    {"vocab-size", NULL, INT(1), FIELD(vocab_size), .argument = "TOKENS",
     .help = "its vocabulary (256 when not given)"},
    {"load", NULL, TEXT, FIELD(load), .argument = "DIR",
     .help = "weights: a model's, a step's or a run's folder"},
    {"save", NULL, TEXT, FIELD(save), .argument = "DIR", .help = "the run's folder"},

    {"seq-length", "block_size", INT(1), FIELD(seq_len), .argument = "TOKENS",
     .help = "tokens of a sequence (the model's n_positions when not given)"},
    {"global-batch-size", NULL, INT(1), FIELD(batch), .initial = "1", .argument = "SEQUENCES",
     .help = "sequences of a step"},
    {"pipeline-model-parallel-size", "pipe", INT(1), FIELD(pipe), .argument = "STAGES",
     .help = "pipeline stages (one for each rank when not given)"},
    {"schedule", NULL, CHOICE(tp_schedule_choices), FIELD(schedule), .initial = "terapipe",
     .argument = "NAME", .help = "whole sequences or token slices: gpipe, terapipe, 1f1b, seq1f1b"},
    {"slices", NULL, TEXT, FIELD(slices), .argument = "N|TOKENS,...",
     .help = "how a sequence is cut: uniformly or as listed (up to 4 when not given)"},
    {"group-size", NULL, INT(1), FIELD(group_size), .argument = "SEQUENCES",
     .help = "sequences that are cut together (batch/stages when not given)"},

    {"profile", NULL, LIST, FIELD(profiles), .argument = "FILE",
     .help = "measured costs, a file for each op degree"},
    {"hardware", NULL, TEXT, FIELD(hardware), .argument = "NAME|FILE",
     .help = "costs estimated from data sheets: v100-25gbe, a100, h100, mi250"},
    {"devices", NULL, INT(1), FIELD(devices), .argument = "N",
     .help = "search all data, pipe and op degrees of so many devices"},
    {"tensor-model-parallel-size", "op", INT(1), FIELD(op), .argument = "RANKS",
     .help = "ranks that share each layer (1, or any with --devices, when not given)"},
    {"data", NULL, INT(1), FIELD(replicas), .argument = "REPLICAS",
     .help = "copies of the pipeline (what the ranks allow; to plan, 1, or any with --devices)"},
    {"grain", NULL, INT(1), FIELD(grain), .initial = "8", .argument = "TOKENS",
     .help = "planned slices begin at multiples of it"},
    {"objective", NULL, CHOICE(tp_objective_choices), FIELD(objective), .initial = "exact",
     .argument = "NAME", .help = "exact, or paper: forward and backward as one"},
    {"epsilon", NULL, REAL(0, DBL_MAX), FIELD(epsilon), .initial = "0", .argument = "SEC",
     .help = "longest slices are not told apart within it"},
    {"recompute", NULL, CHOICE(tp_recompute_choices), FIELD(recompute), .argument = "NAME",
     .help = "none, or cell: activations from a stage's input (as memory needs when not given)"},
    {"delay-wgrad-compute", NULL, .type = TP_OPTION_FLAG, FIELD(delay_wgrad),
     .help = "weight gradients of a group together, after its last backward"},
    {"accumulate", "gradient_accumulation_steps", INT(1), FIELD(accumulate), .argument = "FLIGHTS",
     .help = "flights of a step, whose gradients add up (1 when not given)"},
    {"use-distributed-optimizer", "zero", .type = TP_OPTION_FLAG, FIELD(zero),
     .help = "replicas share AdamW's moments and the update (ZeRO stage 1)"},
    {"plan", NULL, TEXT, FIELD(plan), .argument = "FILE", .help = "run this plan"},
    {"trace", NULL, TEXT, FIELD(trace), .argument = "FILE",
     .help = "write a Chrome trace of a step (in training the third one)"},
    {"json", NULL, .type = TP_OPTION_FLAG, FIELD(json), .help = "print JSON"},

    {"gemm", NULL, CHOICE(tp_gemm_choices), FIELD(gemm), .initial = "auto", .argument = "NAME",
     .help = "matrix products by: clblast, cblas (the host's BLAS), packed (panels, for CPUs), or "
             "auto, the faster of the last two for each product"},
    {"kernels", NULL, CHOICE(tp_kernel_styles), FIELD(kernels), .initial = "auto",
     .argument = "STYLE",
     .help = "a row a work-item or a work-group: cpu, gpu, auto (as the device is)"},
    {"device", NULL, TEXT, FIELD(device), .argument = "SEL",
     .help =
         "OpenCL device: index, name, type, or a list 0=cpu,1=gpu (round robin when not given)"},
    {"threads", NULL, INT(1), FIELD(threads), .argument = "N",
     .help = "threads of a CPU device (the rank's share of the cores when not given)"},
    {"memory", NULL, TEXT, FIELD(memory), .argument = "BYTES",
     .help = "limit per device, K M G understood (as the device says when not given)"},

    {"budget", NULL, REAL(0.1, 1e6), FIELD(budget), .argument = "SEC",
     .help = "time for profiling (60, and 10 inside train, when not given)"},
    {"o", NULL, TEXT, FIELD(output), .argument = "FILE",
     .help = "the file to write (COMMAND.json when not given)"},

    {"data-path", NULL, LIST, FIELD(data), .argument = "FILE", .help = "tokens or text"},
    {"val-data-path", NULL, LIST, FIELD(validation), .argument = "FILE",
     .help = "tokens or text to validate on"},
    {"tokenizer", NULL, CHOICE(tp_tokenizer_choices), FIELD(tokenizer), .argument = "NAME",
     .help = "what text is made of: bytes"},
    {"sampler", NULL, CHOICE(sampler_choices), FIELD(sampler), .initial = "shuffle",
     .argument = "NAME", .help = "order of samples: sequential, shuffle"},

    {"train-iters", NULL, INT(1), FIELD(train_iters), .argument = "STEPS",
     .help = "steps in all, those of a resumed run included"},
    {"lr", NULL, REAL(0, DBL_MAX), FIELD(lr), .initial = "6e-4", .argument = "RATE",
     .help = "learning rate"},
    {"min-lr", NULL, REAL(0, DBL_MAX), FIELD(min_lr), .initial = "0", .argument = "RATE",
     .help = "where its decay ends"},
    {"lr-warmup-iters", NULL, INT(0), FIELD(warmup_iters), .initial = "0", .argument = "STEPS",
     .help = "steps of its linear warm-up"},
    {"lr-decay-iters", NULL, INT(1), FIELD(decay_iters), .argument = "STEPS",
     .help = "step at which its decay ends (train-iters when not given)"},
    {"lr-decay-style", NULL, CHOICE(tp_decay_choices), FIELD(decay_style), .initial = "cosine",
     .argument = "NAME", .help = "constant, linear, cosine"},
    {"weight-decay", NULL, REAL(0, DBL_MAX), FIELD(weight_decay), .initial = "0.1",
     .argument = "NUMBER", .help = "of two-dimensional tensors"},
    {"clip-grad", NULL, REAL(0, DBL_MAX), FIELD(clip_grad), .initial = "1.0", .argument = "NUMBER",
     .help = "largest gradient norm; 0: any"},
    {"adam-beta1", NULL, REAL(0, 0.9999999), FIELD(beta1), .initial = "0.9", .argument = "NUMBER",
     .help = "decay of AdamW's first moment"},
    {"adam-beta2", NULL, REAL(0, 0.9999999), FIELD(beta2), .initial = "0.95", .argument = "NUMBER",
     .help = "decay of its second moment"},
    {"adam-eps", NULL, REAL(0, DBL_MAX), FIELD(eps), .initial = "1e-8", .argument = "NUMBER",
     .help = "its epsilon"},
    {"dropout", NULL, REAL(0, 0.999), FIELD(dropout), .initial = "0", .argument = "NUMBER",
     .help = "probability that an embedding, attention weight or branch's output is dropped"},
    {"seed", NULL, .type = TP_OPTION_UINT64, FIELD(seed), .initial = "1337", .argument = "N",
     .help = "of all random numbers"},

    {"eval-interval", NULL, INT(0), FIELD(eval_interval), .initial = "0", .argument = "STEPS",
     .help = "steps between validations; 0: at the end only"},
    {"eval-iters", NULL, INT(1), FIELD(eval_iters), .argument = "BATCHES",
     .help = "batches that are looked at (all whole samples when not given)"},
    {"log-interval", NULL, INT(1), FIELD(log_interval), .initial = "1", .argument = "STEPS",
     .help = "steps between progress lines"},
    {"save-interval", NULL, INT(0), FIELD(save_interval), .initial = "0", .argument = "STEPS",
     .help = "steps between checkpoints; 0: at the end only"},
    {"keep", NULL, INT(1), FIELD(keep), .argument = "N",
     .help = "newest checkpoints that are kept (all when not given)"},
    {"exit-duration-in-mins", NULL, REAL(1e-3, DBL_MAX), FIELD(exit_minutes), .argument = "MINUTES",
     .help = "end after this time (never when not given)"},
    {"max-skipped", NULL, INT(0), FIELD(max_skipped), .initial = "0", .argument = "STEPS",
     .help = "steps with a loss or norm that is no number before the run ends"},
    {"watchdog", NULL, REAL(0, DBL_MAX), FIELD(watchdog), .initial = "300", .argument = "SEC",
     .help = "time without progress that ends the job; 0: any"},
    {"check", NULL, .type = TP_OPTION_FLAG, FIELD(check),
     .help = "before the first step, compare its gradients with those of whole sequences"},
    {"save-gradients", NULL, TEXT, FIELD(save_gradients), .argument = "FILE",
     .help = "write the first step's gradients, as safetensors"},
    {"metrics", NULL, TEXT, FIELD(metrics), .argument = "FILE",
     .help = "write metrics, one JSON object a step"},

    {"prompt", NULL, TEXT, FIELD(prompt), .initial = "\n", .argument = "TEXT",
     .help = "the text to continue"},
    {"max-new-tokens", NULL, INT(0), FIELD(max_new_tokens), .initial = "256", .argument = "TOKENS",
     .help = "how far"},
    {"temperature", NULL, REAL(0, DBL_MAX), FIELD(temperature), .initial = "1.0",
     .argument = "NUMBER", .help = "divides the logits; 0: always the most likely token"},
    {"top-k", NULL, INT(0), FIELD(top_k), .initial = "0", .argument = "TOKENS",
     .help = "pick among the k most likely tokens; 0: all"},
    {"top-p", NULL, REAL(1e-6, 1), FIELD(top_p), .initial = "1.0", .argument = "NUMBER",
     .help = "pick among the fewest tokens that have this probability together"},
};
enum { TABLE = sizeof table / sizeof *table };

static const struct tp_option *find(const struct tp_command *command, const char *name)
{
    for (const struct tp_option *own = command->own; own && own->name; own++)
        if (strcmp(own->name, name) == 0)
            return own;
    for (int i = 0; i < TABLE; i++)
        if (strcmp(table[i].name, name) == 0)
            return &table[i];
    return NULL;
}

static bool listed(const char *name, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(*names, name) == 0)
            return true;
    return false;
}

int tp_command_rows(const struct tp_command *command, struct tp_option rows[TP_COMMAND_OPTIONS])
{
    int count = 0;

    for (; command->options[count]; count++) {
        const struct tp_option *row = find(command, command->options[count]);
        if (!row || count == TP_COMMAND_OPTIONS)
            return 0;
        rows[count] = *row;
        rows[count].required = listed(row->name, command->required);
    }
    return count;
}

static json_t *list_json(const struct tp_option_list *list)
{
    json_t *array = json_array();

    for (int i = 0; i < list->count; i++)
        json_array_append_new(array, json_string(list->at[i]));
    return array;
}

static json_t *value_json(const struct tp_option *row, const struct tp_settings *settings)
{
    const void *at = (const char *)settings + row->offset;

    switch (row->type) {
    case TP_OPTION_FLAG:
        return json_boolean(*(const bool *)at);
    case TP_OPTION_INT:
        return json_integer(*(const int *)at);
    case TP_OPTION_UINT64:
        return json_integer((json_int_t) * (const uint64_t *)at);
    case TP_OPTION_DOUBLE:
        return json_real(*(const double *)at);
    case TP_OPTION_STRING:
        return *(const char *const *)at ? json_string(*(const char *const *)at) : json_null();
    case TP_OPTION_CHOICE:
        return *(const int *)at < 0 ? json_null() : json_string(row->choices[*(const int *)at]);
    case TP_OPTION_LIST:
        return list_json(at);
    }
    return NULL;
}

char *tp_command_record(const struct tp_command *command, const struct tp_option *rows, int n_rows,
                        const struct tp_settings *settings)
{
    json_t *json = json_pack("{s:s, s:i, s:s}", "format", "terapipe-options", "version", 1,
                             "command", command->name);

    for (int i = 0; json && i < n_rows; i++)
        json_object_set_new(json, rows[i].name, value_json(&rows[i], settings));
    char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    return text;
}
