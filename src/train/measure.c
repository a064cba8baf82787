/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/median.h"
#include "base/rng.h"
#include "device/gemm.h"
#include "device/memory.h"
#include "train/measure.h"
#include "train/phase.h"
#include "train/reference.h"

/* ---- What is measured, in which order ---- */

/* Tokens that a sequence's slices are multiples of, when it is long enough. */
enum { GRAIN = 8 };

struct list {
    struct tp_measure *measure;
    int seq_len, most_sequences, most_tokens;
    bool delay_wgrad;
};

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Tokens that are measured at once: those of a sequence, and where that is short, of as many as it
 * takes to see what a token of many costs. */
static int most_tokens(int seq_len, int sequences)
{
    enum { MANY = 1024 };
    return seq_len >= MANY ? seq_len : seq_len * smaller(sequences, MANY / seq_len);
}

static int rounded(int tokens)
{
    if (tokens >= GRAIN)
        return tokens / GRAIN * GRAIN;
    return tokens > 1 ? tokens : 1;
}

static bool is_listed(const struct tp_measure *measure, const struct tp_measure_item *item)
{
    for (int i = 0; i < measure->n_items; i++) {
        const struct tp_measure_item *other = &measure->items[i];
        if (other->part == item->part && other->sequences == item->sequences &&
            other->tokens == item->tokens && other->context == item->context)
            return true;
    }
    return false;
}

/* Adds an item unless it is there, or is no slice, or has very many tokens: the time of more is
 * proportional to them, and they would need more memory. */
static void add(struct list *list, struct tp_measure_item item)
{
    struct tp_measure *measure = list->measure;
    if (item.sequences <= list->most_sequences && item.tokens >= 1 &&
        (long long)item.sequences * item.tokens <= list->most_tokens &&
        item.tokens + item.context <= list->seq_len && measure->n_items < TP_MEASURE_ITEMS &&
        !is_listed(measure, &item))
        measure->items[measure->n_items++] = item;
}

/* Of which sequences its tokens are makes no difference to such a part. */
static void add_part(struct list *list, enum tp_measured part, int tokens)
{
    const int T = list->seq_len;
    add(list, (struct tp_measure_item){.part = part,
                                       .sequences = tokens > T ? tokens / T : 1,
                                       .tokens = smaller(tokens, T)});
}

static void add_layer(struct list *list, int sequences, int tokens)
{
    add(list, (struct tp_measure_item){.sequences = sequences, .tokens = tokens});
}

/* A slice of s after c, in 32nds of T. */
static void add_pair(struct list *list, int sequences, int s, int c, bool held_out)
{
    const long long T = list->seq_len;
    const struct tp_measure_item item = {.sequences = sequences,
                                         .tokens = rounded((int)(T * s / 32)),
                                         .context = rounded((int)(T * c / 32)),
                                         .held_out = held_out};
    if (T > 1)
        add(list, item);
}

/* The first of the list are short and always measured. */
static int count_always(bool delay_wgrad)
{
    return delay_wgrad ? 7 : 6;
}

static void list_coarse(struct list *list)
{
    const int T = list->seq_len, eighth = rounded(T / 8), chunk = list->measure->head_chunk;
    add_layer(list, 1, rounded(T / 64));
    add_layer(list, 1, eighth);
    add_pair(list, 1, 4, 16, false);
    add_part(list, TP_MEASURED_EMBED, eighth);
    add_part(list, TP_MEASURED_HEAD, eighth < chunk ? eighth : chunk);
    add_part(list, TP_MEASURED_UPDATE, 1);
    if (list->delay_wgrad) {
        add_part(list, TP_MEASURED_GRADIENTS, eighth);
        add_part(list, TP_MEASURED_GRADIENTS, T);
        add_part(list, TP_MEASURED_GRADIENTS, list->most_tokens);
    }
    add_layer(list, 1, T);
    add_layer(list, 1, T / 2);
    add_layer(list, 1, T / 4);
    add_pair(list, 1, 8, 16, false);
    add_pair(list, 1, 4, 28, false);
    add_pair(list, 1, 6, 12, true);
    add_pair(list, 1, 2, 20, true);
    add_part(list, TP_MEASURED_HEAD, chunk);
    add_part(list, TP_MEASURED_HEAD, rounded(chunk / 8));
    add_part(list, TP_MEASURED_EMBED, list->most_tokens);
    add_part(list, TP_MEASURED_EMBED, rounded(T / 64));
}

/* Groups: 1, 2, 4, ... sequences, and as many as there are. */
static void list_group(struct list *list, int sequences)
{
    for (int s = smaller(list->seq_len, list->most_tokens / sequences); s >= 1; s /= 4)
        add_layer(list, sequences, rounded(s));
    add_pair(list, sequences, 4, 16, false);
    add_pair(list, sequences, 4, 8, true);
}

static void list_fine(struct list *list)
{
    const int T = list->seq_len;
    for (int s = T < 2 * GRAIN ? 1 : GRAIN; s < T; s *= 2)
        add_layer(list, 1, s);
    add_pair(list, 1, 16, 16, false);
    add_pair(list, 1, 8, 8, false);
    add_pair(list, 1, 8, 24, false);
    add_pair(list, 1, 12, 20, true);
    add_pair(list, 1, 1, 16, false);
    add_pair(list, 1, 1, 31, false);
    add_pair(list, 1, 4, 12, true);
    add_pair(list, 1, 2, 8, true);
    for (int b = 2; b < list->most_sequences; b *= 2)
        list_group(list, b);
    if (list->most_sequences > 1)
        list_group(list, list->most_sequences);
    for (int s = T < 2 * GRAIN ? 1 : 3 * GRAIN; s < T; s *= 2)
        add_layer(list, 1, s);
    add_part(list, TP_MEASURED_HEAD, rounded(list->measure->head_chunk / 2));
    add_part(list, TP_MEASURED_HEAD, rounded(list->measure->head_chunk / 4));
}

/* ---- The rig: a cell with some layers and both ends ---- */

struct rig {
    struct tp_worker *worker;
    struct tp_measure *measure;
    struct tp_stage_shape shape;
    struct tp_parameters parameters;
    struct tp_cell *cell;
    struct tp_stage stage;
    struct tp_reference reference;
    float *noise;    /* [unit_rows, C] a gradient that comes in */
    int32_t *tokens; /* [batch, T] */
    int layer;       /* next one to be measured, so that weights are not in a cache still */
    double began, seconds;
};

/* Layers of the rig at most, elements of its head's matrix. */
enum { MOST_LAYERS = 4, HEAD_ELEMENTS = 8 << 20 };

/* A shape like the worker's stages', of so many layers and with a smaller vocabulary. */
static void shape_rig(struct rig *rig, int n_layer, int sequences)
{
    const struct tp_model *model = &rig->worker->model;
    const struct tp_grid *grid = &rig->worker->grid;
    struct tp_stage_shape *shape = &rig->shape;
    const int T = rig->worker->seq_len, most = HEAD_ELEMENTS / model->n_embd;
    const size_t rows = (size_t)most_tokens(T, sequences);

    *shape = (struct tp_stage_shape){.model = *model,
                                     .layers = {.n_layer = n_layer},
                                     .seq_len = T,
                                     .batch = sequences,
                                     .caches = sequences,
                                     .group = sequences,
                                     .rows = rows,
                                     .input_rows = rows,
                                     .unit_rows = rows,
                                     .slots = 1,
                                     .train = true,
                                     .alternates = true,
                                     .delay_wgrad = rig->worker->settings->delay_wgrad,
                                     .op = grid->op,
                                     .op_rank = grid->o};
    rig->measure->head_chunk = (int)tp_head_rows(shape);
    shape->model.n_layer = n_layer;
    if (model->vocab_size > most)
        shape->model.vocab_size = most > 64 ? most / 64 * 64 : 64;
    if (shape->model.vocab_size > model->vocab_size)
        shape->model.vocab_size = model->vocab_size;
    rig->measure->head_share = (double)shape->model.vocab_size / model->vocab_size;
}

/* As many layers as a stage has, as many sequences as asked for, while they fit. */
static void choose_shape(struct rig *rig, int sequences, size_t limit)
{
    const int stages = rig->worker->grid.pipe_size;
    int n_layer = (rig->worker->model.n_layer + stages - 1) / stages;
    struct tp_footprint footprint;

    tp_device_footprint(rig->worker->device, &footprint);
    n_layer = n_layer < MOST_LAYERS ? n_layer : MOST_LAYERS;
    for (;;) {
        shape_rig(rig, n_layer, sequences);
        if (tp_stage_bytes(&rig->shape, &footprint) <= limit)
            return;
        if (n_layer > 1)
            n_layer--;
        else if (sequences > 1)
            sequences /= 2;
        else
            return;
    }
}

/* Numbers as weights and gradients are made of, without the time that drawing each would take. */
static void fill_noise(float *out, size_t count)
{
    enum { DRAWN = 1 << 14 };
    const struct tp_rng rng = {.seed = 1, .use = TP_RNG_INIT};
    size_t have = count < DRAWN ? count : DRAWN;

    tp_rng_normal(&rng, 0, have, 0.02, out);
    for (size_t step; have < count; have += step) {
        step = count - have < have ? count - have : have;
        memcpy(out + have, out, step * sizeof *out);
    }
}

static enum tp_status fill_weights(struct rig *rig)
{
    size_t largest = 0;

    for (int row = 0; row < rig->parameters.count; row++)
        if (largest < rig->parameters.at[row].count)
            largest = rig->parameters.at[row].count;
    float *numbers = malloc(largest * sizeof *numbers);
    if (numbers == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for a tensor of %zu numbers", largest);
    fill_noise(numbers, largest);
    enum tp_status status = TP_OK;
    for (int row = 0; row < rig->parameters.count && status == TP_OK; row++) {
        status = tp_cell_write(rig->cell, row, TP_WEIGHT, numbers);
        rig->measure->parameters +=
            (double)tp_parameter_held(&rig->parameters.at[row], rig->shape.op, rig->shape.op_rank);
    }
    free(numbers);
    return status;
}

static enum tp_status take_memory(struct rig *rig)
{
    const size_t tokens = (size_t)rig->shape.batch * (size_t)rig->shape.seq_len;
    const size_t noise = rig->shape.unit_rows * (size_t)rig->shape.model.n_embd;

    rig->noise = malloc(noise * sizeof *rig->noise);
    rig->tokens = malloc(tokens * sizeof *rig->tokens);
    if (rig->noise == NULL || rig->tokens == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %zu numbers", noise + tokens);
    fill_noise(rig->noise, noise);
    const struct tp_rng rng = {.seed = 1, .use = TP_RNG_SHUFFLE};
    for (size_t i = 0; i < tokens; i++)
        rig->tokens[i] = (int32_t)tp_rng_below(&rng, i, (uint64_t)rig->shape.model.vocab_size);
    return TP_OK;
}

static enum tp_status begin_step(struct rig *rig)
{
    const struct tp_cell_step step = {.inputs = rig->tokens,
                                      .targets = rig->tokens,
                                      .sequences = rig->shape.batch,
                                      .scale = 1e-3,
                                      .train = true};
    return tp_cell_begin_step(rig->cell, &step);
}

/* Op ranks measure alike, so that their sums meet; nothing else is under way. */
static enum tp_status reduce_ops(void *self, enum tp_reduction reduction, float *data, size_t count)
{
    const struct rig *rig = self;
    struct tp_request request;

    TP_TRY(tp_comm_iallreduce_floats(rig->worker->grid.ops, reduction == TP_REDUCE_MAX, data, count,
                                     &request));
    return tp_comm_wait(&request);
}

static enum tp_status idle(void *self, double since)
{
    (void)self;
    tp_comm_pause(since, true);
    return TP_OK;
}

static enum tp_status rig_init(struct rig *rig, int sequences)
{
    struct tp_worker *worker = rig->worker;

    choose_shape(rig, sequences, tp_worker_memory(worker));
    TP_TRY(tp_parameters_init(&rig->parameters, &rig->shape.model));
    TP_TRY(tp_cell_new(worker->device, &rig->shape, &rig->parameters, tp_worker_memory(worker),
                       &rig->cell));
    tp_cell_stage(rig->cell, &rig->stage);
    tp_cell_set_reduce(rig->cell,
                       &(struct tp_reduce){.self = rig, .all = reduce_ops, .idle = idle});
    TP_TRY(fill_weights(rig));
    TP_TRY(take_memory(rig));
    TP_TRY(tp_reference_init(&rig->reference, worker->device));
    return begin_step(rig);
}

static void rig_fini(struct rig *rig)
{
    tp_cell_free(rig->cell);
    tp_reference_fini(&rig->reference);
    tp_parameters_fini(&rig->parameters);
    free(rig->noise);
    free(rig->tokens);
}

/* ---- One measurement ---- */

/* A backward changes the gradient that it gets: each time a new one comes in. */
static enum tp_status refresh_gradient(struct rig *rig, const struct tp_unit *unit)
{
    float *data;
    size_t count;

    TP_TRY(rig->stage.message_in(rig->stage.self, TP_BACKWARD, unit, &data, &count));
    memcpy(data, rig->noise, count * sizeof *data);
    return rig->stage.message_in_done(rig->stage.self, TP_BACKWARD, unit);
}

static enum tp_status time_part(struct rig *rig, const struct tp_measure_item *item,
                                const struct tp_unit *unit, double seconds[2])
{
    static const enum tp_part parts[] = {[TP_MEASURED_LAYER] = TP_PART_LAYER,
                                         [TP_MEASURED_EMBED] = TP_PART_EMBED,
                                         [TP_MEASURED_HEAD] = TP_PART_HEAD,
                                         [TP_MEASURED_GRADIENTS] = TP_PART_GRADIENTS};
    const bool backward_only = item->part == TP_MEASURED_GRADIENTS;

    rig->layer = (rig->layer + 1) % rig->shape.layers.n_layer;
    for (int direction = backward_only; direction < 2; direction++) {
        const double began = tp_clock_now();
        TP_TRY(tp_cell_compute(rig->cell, parts[item->part], rig->layer,
                               (enum tp_direction)direction, unit));
        TP_TRY(tp_device_finish(rig->worker->device));
        seconds[direction] = tp_clock_now() - began;
    }
    return TP_OK;
}

/* What a parameter costs once a step: its gradient's zeroing and square, and AdamW. */
static enum tp_status time_update(struct rig *rig, double *seconds)
{
    static const struct tp_adamw adamw = {
        .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .step = 1};
    double *sums = malloc((size_t)rig->stage.n_sums * sizeof *sums);

    if (sums == NULL)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d sums", rig->stage.n_sums);
    const double began = tp_clock_now();
    enum tp_status status = begin_step(rig);
    if (status == TP_OK)
        status = rig->stage.sums(rig->stage.self, sums);
    if (status == TP_OK)
        status = rig->stage.update(rig->stage.self, &adamw, 1.0);
    if (status == TP_OK)
        status = tp_device_finish(rig->worker->device);
    *seconds = tp_clock_now() - began;
    free(sums);
    return status;
}

static enum tp_status take_shot(struct rig *rig, const struct tp_measure_item *item,
                                struct tp_shot *shot)
{
    const struct tp_unit unit = {.slice = {.start = item->context, .length = item->tokens},
                                 .sequences = item->sequences};
    const struct tp_reference before = rig->reference;

    TP_TRY(refresh_gradient(rig, &unit));
    TP_TRY(item->part == TP_MEASURED_UPDATE ? time_update(rig, &shot->seconds[0])
                                            : time_part(rig, item, &unit, shot->seconds));
    TP_TRY(tp_reference_time(&rig->reference));
    shot->reference =
        (before.seconds + rig->reference.seconds) / (before.count + rig->reference.count);
    return TP_OK;
}

/* The first run of anything touches memory, compiles, or both. */
static enum tp_status warm_up(struct rig *rig)
{
    struct tp_shot shot;

    for (int i = 0; i < count_always(rig->shape.delay_wgrad) && i < rig->measure->n_items; i++)
        for (int layer = 0; layer < (i == 1 ? rig->shape.layers.n_layer : 1); layer++)
            TP_TRY(take_shot(rig, &rig->measure->items[i], &shot));
    return TP_OK;
}

/* ---- Rounds ---- */

/* Seconds that an item will take: those of its latest measurement, else of the latest one of the
 * same part, by tokens. Nothing is known of the first. */
static double predict(const struct tp_measure *measure, int round, int index)
{
    const struct tp_measure_item *item = &measure->items[index];
    const int n = measure->n_items;

    for (int at = (round - 1) * n + index; at >= 0; at -= n)
        if (measure->shots[at].reference > 0)
            return measure->shots[at].seconds[0] + measure->shots[at].seconds[1];
    for (int at = round * n + index - 1; at >= 0; at--) {
        const struct tp_measure_item *other = &measure->items[at % n];
        const struct tp_shot *shot = &measure->shots[at];
        if (other->part == item->part && shot->reference > 0)
            return (shot->seconds[0] + shot->seconds[1]) * item->sequences * item->tokens /
                   ((double)other->sequences * other->tokens);
    }
    return 0;
}

enum verdict { MEASURE, LEAVE_OUT, STOP };

/* All ranks come together before each measurement, and see alike what to do. */
static enum tp_status agree(struct rig *rig, int round, int index, enum tp_status mine,
                            enum verdict *verdict)
{
    const double spent = tp_clock_now() - rig->began;
    int64_t most[] = {(int64_t)(1e6 * spent), (int64_t)(1e6 * predict(rig->measure, round, index)),
                      mine != TP_OK};

    TP_TRY(tp_comm_allreduce_max(rig->worker->world, most, 3));
    const bool always = round == 0 && index < count_always(rig->shape.delay_wgrad);
    *verdict = MEASURE;
    if (most[2] || (!always && 1e-6 * (double)most[0] > rig->seconds))
        *verdict = STOP;
    else if (!always && 1e-6 * (double)(most[0] + most[1]) > rig->seconds)
        *verdict = LEAVE_OUT;
    return TP_OK;
}

/* This rank's own failure, after which all stop. */
static enum tp_status run_rounds(struct rig *rig)
{
    struct tp_measure *measure = rig->measure;
    enum tp_status status = TP_OK;

    for (int round = 0; round < TP_MEASURE_ROUNDS; round++)
        for (int i = 0; i < measure->n_items; i++) {
            enum verdict verdict;
            TP_TRY(agree(rig, round, i, status, &verdict));
            if (verdict == STOP)
                return status;
            if (verdict == LEAVE_OUT)
                continue;
            measure->n_rounds = round + 1;
            status =
                take_shot(rig, &measure->items[i], &measure->shots[round * measure->n_items + i]);
        }
    return status;
}

/* Each reference becomes the median of those around it in time: it is to follow the machine's
 * speed, not a moment in which another program had the core. */
static void smooth_references(struct tp_measure *measure)
{
    enum { AROUND = 9, MOST = TP_MEASURE_ROUNDS * TP_MEASURE_ITEMS };
    int places[MOST], count = 0;
    double smooth[MOST], window[AROUND];

    for (int i = 0; i < measure->n_rounds * measure->n_items; i++)
        if (measure->shots[i].reference > 0)
            places[count++] = i;
    const int size = count < AROUND ? count : AROUND;
    for (int i = 0; i < count; i++) {
        int first = i - size / 2;
        first = first < 0 ? 0 : first + size > count ? count - size : first;
        for (int w = 0; w < size; w++)
            window[w] = measure->shots[places[first + w]].reference;
        smooth[i] = tp_median(window, size);
    }
    for (int i = 0; i < count; i++)
        measure->shots[places[i]].reference = smooth[i];
}

/* The smallest of what fits on each rank. */
static enum tp_status agree_sequences(struct rig *rig, int *sequences)
{
    int64_t least = -(int64_t)rig->shape.batch;
    TP_TRY(tp_comm_allreduce_max(rig->worker->world, &least, 1));
    *sequences = (int)-least;
    return TP_OK;
}

enum tp_status tp_measure(struct tp_worker *worker, int most_sequences, double began,
                          double seconds, struct tp_measure *measure)
{
    struct rig rig = {.worker = worker, .measure = measure, .began = began, .seconds = seconds};
    struct list list = {.measure = measure,
                        .seq_len = worker->seq_len,
                        .delay_wgrad = worker->settings->delay_wgrad};

    memset(measure, 0, sizeof *measure);
    tp_phase_begin();
    enum tp_status status = tp_phase_end(worker->world, rig_init(&rig, most_sequences));
    if (status == TP_OK)
        status = agree_sequences(&rig, &list.most_sequences);
    if (status == TP_OK) {
        list.most_tokens = most_tokens(list.seq_len, list.most_sequences);
        list_coarse(&list);
        list_fine(&list);
        tp_phase_begin();
        status = tp_phase_end(worker->world, warm_up(&rig));
    }
    if (status == TP_OK) {
        tp_phase_begin();
        status = tp_phase_end(worker->world, run_rounds(&rig));
        smooth_references(measure);
    }
    rig_fini(&rig);
    return status;
}

/* ---- Messages ---- */

enum { TRIPS = 9 };

static const struct tp_measure_messages message_sizes = {.bytes = {4, 1 << 14, 1 << 17, 1 << 20}};

static enum tp_status new_message(struct tp_worker *worker, float **data)
{
    tp_phase_begin();
    *data = calloc(1 << 20, 1);
    return tp_phase_end(worker->world,
                        *data ? TP_OK : tp_fail(TP_ERR_MEMORY, "no memory for a message"));
}

/* Message to the other and back. */
static enum tp_status round_trip(struct tp_comm *pipe, int peer, bool first, float *data,
                                 size_t count)
{
    for (int way = 0; way < 2; way++) {
        struct tp_request request;
        TP_TRY(first == (way == 0) ? tp_comm_isend(pipe, data, count, peer, 0, &request)
                                   : tp_comm_irecv(pipe, data, count, peer, 0, &request));
        TP_TRY(tp_comm_wait(&request));
    }
    return TP_OK;
}

static enum tp_status time_link(struct tp_comm *pipe, int peer, bool first, float *data,
                                struct tp_measure_messages *link)
{
    for (int i = 0; i < TP_MESSAGE_SIZES; i++) {
        double trips[TRIPS];
        for (int t = 0; t < TRIPS; t++) {
            const double began = tp_clock_now();
            TP_TRY(round_trip(pipe, peer, first, data, (size_t)link->bytes[i] / sizeof *data));
            trips[t] = tp_clock_now() - began;
        }
        link->seconds[i] = 0.5 * tp_median(trips, TRIPS);
    }
    return TP_OK;
}

enum tp_status tp_measure_link(struct tp_worker *worker, struct tp_measure_messages *link)
{
    const int k = worker->grid.k, last = worker->grid.pipe_size - 1;
    const struct tp_measure_messages none = {.bytes = {0}};
    struct tp_measure_messages sizes = message_sizes, theirs = sizes;
    float *data;

    enum tp_status status = new_message(worker, &data);
    /* Links before stages 1, 3, ... at once, then the others. */
    for (int turn = 0; turn < 2 && status == TP_OK; turn++) {
        tp_phase_begin();
        if (k % 2 == turn && k < last)
            status = time_link(worker->grid.pipe, k + 1, true, data, &sizes);
        else if (k % 2 != turn && k > 0)
            status = time_link(worker->grid.pipe, k - 1, false, data, &theirs);
        status = tp_phase_end(worker->world, status);
    }
    free(data);
    if (status == TP_OK)
        *link = k < last ? sizes : none;
    return status;
}

static enum tp_status time_allreduce(struct tp_comm *replicas, float *data,
                                     struct tp_measure_messages *sums)
{
    for (int i = 0; i < TP_MESSAGE_SIZES; i++) {
        double trips[TRIPS];
        for (int t = 0; t < TRIPS; t++) {
            struct tp_request request;
            const double began = tp_clock_now();
            TP_TRY(tp_comm_iallreduce_floats(replicas, false, data,
                                             (size_t)sums->bytes[i] / sizeof *data, &request));
            TP_TRY(tp_comm_wait(&request));
            trips[t] = tp_clock_now() - began;
        }
        sums->seconds[i] = tp_median(trips, TRIPS);
    }
    return TP_OK;
}

enum tp_status tp_measure_allreduce(struct tp_worker *worker, struct tp_measure_messages *sums)
{
    struct tp_measure_messages sizes = message_sizes;
    float *data;

    TP_TRY(new_message(worker, &data));
    tp_phase_begin();
    enum tp_status status =
        tp_phase_end(worker->world, time_allreduce(worker->grid.replicas, data, &sizes));
    free(data);
    if (status == TP_OK)
        *sums = sizes;
    return status;
}
