/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "json.h"
#include "plan/hardware.h"

/* ---- Presets ---- */

#define GBIT (1e9 / 8)
#define GB 1e9

static const struct tp_hardware presets[] = {
    {
        /* The cluster of the TeraPipe paper, section 4: AWS p3.16xlarge, 8 V100 of 16 GB, 25 Gbit/s
         * between nodes (aws.amazon.com/ec2/instance-types/p3). 125 TFLOP/s on tensor cores,
         * 900 GB/s, NVLink 300 GB/s both ways: NVIDIA V100 data sheet (SXM2), 2020. Launch and the
         * node's latency are those of the fit below: a framework's of that time. */
        .name = "v100-25gbe",
        .peak_flops = 125e12,
        .memory = 16 * GB,
        .memory_bandwidth = 900 * GB,
        .launch_seconds = 17.5e-6,
        .element_bytes = 2,
        .devices_per_node = 8,
        .node_latency = 6e-6,
        .node_bandwidth = 150 * GB,
        .network_latency = 50e-6,
        .network_bandwidth = 25 * GBIT,
    },
    {
        /* 312 TFLOP/s, 2039 GB/s, 80 GB, NVLink 600 GB/s both ways: NVIDIA A100 data sheet (80 GB
         * SXM), 2021. 8 a node, 8 x 200 Gbit/s InfiniBand: DGX A100 data sheet. */
        .name = "a100",
        .peak_flops = 312e12,
        .memory = 80 * GB,
        .memory_bandwidth = 2039 * GB,
        .launch_seconds = 6e-6,
        .element_bytes = 2,
        .devices_per_node = 8,
        .node_latency = 10e-6,
        .node_bandwidth = 300 * GB,
        .network_latency = 20e-6,
        .network_bandwidth = 8 * 200 * GBIT,
    },
    {
        /* 989.4 TFLOP/s without sparsity, 3.35 TB/s, 80 GB, NVLink 900 GB/s both ways: NVIDIA H100
         * data sheet (SXM), 2023. 8 a node, 8 x 400 Gbit/s InfiniBand: DGX H100 data sheet. */
        .name = "h100",
        .peak_flops = 989.4e12,
        .memory = 80 * GB,
        .memory_bandwidth = 3350 * GB,
        .launch_seconds = 4e-6,
        .element_bytes = 2,
        .devices_per_node = 8,
        .node_latency = 10e-6,
        .node_bandwidth = 450 * GB,
        .network_latency = 20e-6,
        .network_bandwidth = 8 * 400 * GBIT,
    },
    {
        /* A device is one of the two dies of a module, as programs see it: half of 362.1 TFLOP/s,
         * 3.2 TB/s and 128 GB, AMD Instinct MI250 data sheet, 2021; Infinity Fabric 50 GB/s a link
         * and direction, same source. 4 modules and 4 x 200 Gbit/s a node as in LUMI
         * (docs.lumi-supercomputer.eu, "GPU nodes - LUMI-G"). */
        .name = "mi250",
        .peak_flops = 181.05e12,
        .memory = 64 * GB,
        .memory_bandwidth = 1638 * GB,
        .launch_seconds = 6e-6,
        .element_bytes = 2,
        .devices_per_node = 8,
        .node_latency = 10e-6,
        .node_bandwidth = 50 * GB,
        .network_latency = 20e-6,
        .network_bandwidth = 4 * 200 * GBIT,
    },
};
enum { PRESETS = sizeof presets / sizeof *presets };

/* The numbers of a file and their ranges. */
static const struct {
    const char *name;
    size_t offset;
    double least, most;
} fields[] = {
    {"peak_flops", offsetof(struct tp_hardware, peak_flops), 1, 1e30},
    {"memory", offsetof(struct tp_hardware, memory), 1, 1e18},
    {"memory_bandwidth", offsetof(struct tp_hardware, memory_bandwidth), 1, 1e30},
    {"launch_seconds", offsetof(struct tp_hardware, launch_seconds), 0, 1e6},
    {"element_bytes", offsetof(struct tp_hardware, element_bytes), 1, 16},
    {"devices_per_node", offsetof(struct tp_hardware, devices_per_node), 1, 1e6},
    {"node_latency", offsetof(struct tp_hardware, node_latency), 0, 1e6},
    {"node_bandwidth", offsetof(struct tp_hardware, node_bandwidth), 1, 1e30},
    {"network_latency", offsetof(struct tp_hardware, network_latency), 0, 1e6},
    {"network_bandwidth", offsetof(struct tp_hardware, network_bandwidth), 1, 1e30},
};
enum { FIELDS = sizeof fields / sizeof *fields };

static enum tp_status read_hardware(const struct tp_json *root, struct tp_hardware *hardware)
{
    struct tp_json name = tp_json_member(root, "name");
    const char *text = root->path;

    *hardware = (struct tp_hardware){.name = ""};
    if (name.value != NULL)
        TP_TRY(tp_json_string(&name, &text));
    snprintf(hardware->name, sizeof hardware->name, "%.63s", text);
    for (int i = 0; i < FIELDS; i++) {
        struct tp_json field = tp_json_member(root, fields[i].name);
        double *value = (double *)((char *)hardware + fields[i].offset);
        TP_TRY(tp_json_real(&field, fields[i].least, fields[i].most, value));
    }
    return TP_OK;
}

enum tp_status tp_hardware_find(const char *name, struct tp_hardware *hardware)
{
    struct tp_json root = {.path = name};
    struct tp_hardware read;

    for (int i = 0; i < PRESETS; i++)
        if (strcmp(presets[i].name, name) == 0) {
            *hardware = presets[i];
            return TP_OK;
        }
    if (!tp_file_exists(name))
        return tp_fail(TP_ERR_INPUT,
                       "%s: is neither hardware that is known (v100-25gbe, a100, h100, mi250) nor "
                       "a file",
                       name);
    TP_TRY(tp_json_load(name, "terapipe-hardware", &root));
    enum tp_status status = read_hardware(&root, &read);
    if (status == TP_OK)
        *hardware = read;
    json_decref((json_t *)root.value);
    return status;
}

/* ---- What hardware makes of its peak ----
 *
 * A product of [m, k] and [k, n] takes as long as one that is larger in each dimension would at a
 * fixed share of the peak: the time to fill the device, which is what short slices and narrow op
 * ranks pay. It takes no less than its memory traffic. All numbers of the fit are in this table. It
 * was made once, with the launch and the node's latency of the V100 preset, on all latencies of the
 * TeraPipe paper that have a scheme together (figures 5 to 7: 25, and 9 of uniform slices), as
 * simulated with links, gradient all-reduce and update, without embedding and head. doc/paper.md
 * has the error of each. */
static const struct {
    double gemm;         /* share of the peak that large products reach */
    double fill_rows;    /* rows of the slice that fill costs */
    double fill_width;   /* rows or columns of the weight */
    double kernels;      /* launched per layer and forward */
    double whole_passes; /* reads and writes of [rows, C], on each op rank: norms, residuals */
    double split_passes; /* of [rows, C/O]: heads moved, biases, GELU */
    double score_passes; /* of [H/O, rows, keys]: scores, mask, softmax, dropout */
    double memory;       /* share of the memory bandwidth that is reached */
    double link;         /* share of the links' bandwidth that is reached */
} fit = {
    .gemm = 0.8,
    .fill_rows = 30,
    .fill_width = 640,
    .kernels = 50,
    .whole_passes = 30,
    .split_passes = 11,
    .score_passes = 3,
    .memory = 0.5,
    .link = 0.68,
};

static double memory_seconds(const struct tp_estimate *e, double elements)
{
    const struct tp_hardware *hw = &e->hardware;

    return elements * hw->element_bytes / (fit.memory * hw->memory_bandwidth);
}

/* [m, k] times [k, n]. */
static double gemm_seconds(const struct tp_estimate *e, double m, double n, double k)
{
    const double size = (m + fit.fill_rows) * (n + fit.fill_width) * (k + fit.fill_width);
    const double compute = 2 * size / (fit.gemm * e->hardware.peak_flops);

    return fmax(compute, memory_seconds(e, m * k + k * n + m * n));
}

/* A ring: each rank sends its part 2 (n - 1) times (Rabenseifner's reduce-scatter and all-gather).
 * bandwidth is one rank's. */
static double ring_seconds(double ranks, double bytes, double latency, double bandwidth)
{
    return 2 * (ranks - 1) * (latency + bytes / ranks / (fit.link * bandwidth));
}

/* A sum over the op ranks. */
static double op_sum_seconds(const struct tp_estimate *e, double elements)
{
    const struct tp_hardware *hw = &e->hardware;
    const bool inside = e->op <= hw->devices_per_node;

    if (e->op == 1)
        return 0;
    return ring_seconds(e->op, elements * hw->element_bytes,
                        inside ? hw->node_latency : hw->network_latency,
                        inside ? hw->node_bandwidth : hw->network_bandwidth);
}

/* Attention of rows queries on so many keys, all scores computed: both products and the passes over
 * the scores. */
static double attention_seconds(const struct tp_estimate *e, double rows, double keys)
{
    const double width = (double)e->model.n_embd / e->op, heads = (double)e->model.n_head / e->op;
    const double compute = 4 * rows * keys * width / (fit.gemm * e->hardware.peak_flops);

    return compute + memory_seconds(e, fit.score_passes * heads * rows * keys);
}

/* The four products of a layer, for so many tokens. */
static double products_seconds(const struct tp_estimate *e, double rows)
{
    const double width = e->model.n_embd;
    const double split = width / e->op, inner = (double)e->model.n_inner / e->op;

    return gemm_seconds(e, rows, 3 * split, width) + gemm_seconds(e, rows, width, split) +
           gemm_seconds(e, rows, inner, width) + gemm_seconds(e, rows, width, inner);
}

/* Backward computes two products for each of forward's and moves twice as much; its op sums are as
 * many as forward's. Those of weight gradients may come later. */
static double layer_seconds(const void *self, int device, enum tp_direction direction, int b, int s,
                            int c)
{
    const struct tp_estimate *e = self;
    const double rows = (double)b * s, width = e->model.n_embd;
    const double split = width / e->op, products = products_seconds(e, rows);
    const double rest =
        memory_seconds(e, rows * (fit.whole_passes * width + fit.split_passes * split));
    const double forward = products + rest + attention_seconds(e, rows, (double)c + s) +
                           fit.kernels * e->hardware.launch_seconds;
    const double sums = 2 * op_sum_seconds(e, rows * width);

    (void)device;
    if (direction == TP_FORWARD)
        return forward + sums;
    return 2 * forward - (e->delay_wgrad ? products : 0) + sums;
}

static double gradient_seconds(const void *self, int device, int b, int s)
{
    (void)device;
    return products_seconds(self, (double)b * s);
}

/* A lookup forward, a scattered sum backward. */
static double embed_seconds(const void *self, int device, enum tp_direction direction, int b, int s)
{
    const struct tp_estimate *e = self;
    const double forward =
        e->hardware.launch_seconds + memory_seconds(e, 3.0 * b * s * e->model.n_embd);

    (void)device;
    return direction == TP_FORWARD ? forward : 2 * forward;
}

/* Logits and both of their gradients belong to the forward. */
static double head_seconds(const void *self, int device, enum tp_direction direction, int b, int s)
{
    const struct tp_estimate *e = self;
    const double rows = (double)b * s, vocabulary = (double)e->model.vocab_size / e->op;
    const double norm = e->hardware.launch_seconds + memory_seconds(e, 3 * rows * e->model.n_embd);

    (void)device;
    if (direction == TP_BACKWARD)
        return norm;
    return norm + 3 * e->hardware.launch_seconds +
           3 * gemm_seconds(e, rows, vocabulary, e->model.n_embd) +
           memory_seconds(e, 4 * rows * vocabulary) + op_sum_seconds(e, rows * e->model.n_embd);
}

/* The op ranks of a stage all have the message. Within a node each sends it to its peer; between
 * nodes each sends a part of it, which its peers gather (the network passes it once). */
static double link_seconds(const void *self, int boundary, size_t bytes)
{
    const struct tp_estimate *e = self;
    const struct tp_hardware *hw = &e->hardware;
    const double first = (double)boundary * e->op, last = first + 2.0 * e->op - 1;
    const bool inside = floor(first / hw->devices_per_node) == floor(last / hw->devices_per_node);

    if (inside)
        return hw->node_latency + (double)bytes / (fit.link * hw->node_bandwidth);
    return hw->network_latency + (double)bytes / hw->network_bandwidth;
}

/* Over the data ranks, which are pipe * op ranks apart; all devices of a node at once. */
static double allreduce_seconds(const void *self, int ranks, size_t bytes)
{
    const struct tp_estimate *e = self;
    const struct tp_hardware *hw = &e->hardware;

    if ((double)e->pipe * e->op * ranks <= hw->devices_per_node)
        return ring_seconds(ranks, (double)bytes, hw->node_latency, hw->node_bandwidth);
    const double sharing = fmin((double)e->pipe * e->op, hw->devices_per_node);
    return ring_seconds(ranks, (double)bytes, hw->network_latency, hw->network_bandwidth / sharing);
}

static bool has_group(const void *self, int device, int b)
{
    (void)self;
    (void)device;
    return b >= 1;
}

void tp_estimate_init(struct tp_estimate *estimate, const struct tp_hardware *hardware,
                      const struct tp_model *model, int pipe, int op, struct tp_cost *cost)
{
    enum { UPDATE_BYTES = 7 * 4 }; /* AdamW reads four numbers of a parameter and writes three */

    *estimate =
        (struct tp_estimate){.hardware = *hardware, .model = *model, .pipe = pipe, .op = op};
    estimate->device = (struct tp_cost_device){
        .name = estimate->hardware.name,
        .memory = (size_t)hardware->memory,
        .peak_flops = hardware->peak_flops,
        .footprint = {.align = 4096, .element_bytes = (int)hardware->element_bytes},
    };
    *cost = (struct tp_cost){
        .self = estimate,
        .op = op,
        .n_devices = 1,
        .devices = &estimate->device,
        .has_group = has_group,
        .layer = layer_seconds,
        .embed = embed_seconds,
        .head = head_seconds,
        .link = link_seconds,
        .allreduce = allreduce_seconds,
        .update_seconds_per_parameter = UPDATE_BYTES / (fit.memory * hardware->memory_bandwidth),
    };
}

void tp_estimate_delay(struct tp_estimate *estimate, struct tp_cost *cost)
{
    estimate->delay_wgrad = true;
    cost->gradient = gradient_seconds;
}
