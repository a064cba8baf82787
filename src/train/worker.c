/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/weights.h"
#include "plan/search.h"
#include "train/phase.h"
#include "train/worker.h"

/* ---- Place and model ---- */

/* Rank 0 looks what --load holds and tells the others: they need not find the same if the folder
 * changes meanwhile. */
static enum tp_status find_source(struct tp_worker *worker)
{
    enum tp_status status = TP_OK;

    tp_phase_begin();
    if (tp_comm_rank(worker->world) == 0)
        status = tp_source_find(worker->settings->load, &worker->source);
    TP_TRY(tp_phase_end(worker->world, status));
    return tp_comm_bcast(worker->world, &worker->source, sizeof worker->source, 0);
}

static enum tp_status find_model(struct tp_worker *worker)
{
    tp_phase_begin();
    enum tp_status status =
        tp_source_model(&worker->source, worker->settings, &worker->model, &worker->seq_len);
    if (status == TP_OK)
        status = tp_parameters_init(&worker->parameters, &worker->model);
    if (status == TP_OK && worker->source.folder[0])
        status = tp_source_check(&worker->source, &worker->parameters);
    return tp_phase_end(worker->world, status);
}

/* The degrees that options and the number of ranks say. */
struct degrees {
    int data, pipe, op;
};

/* What is not given: no op ranks, and as many stages as the ranks allow, then as many replicas. */
static struct degrees find_degrees(const struct tp_worker *worker)
{
    const struct tp_settings *s = worker->settings;
    const int ranks = tp_comm_size(worker->world);
    struct degrees degrees = {s->replicas, s->pipe, s->op > 0 ? s->op : 1};

    if (degrees.pipe == 0)
        degrees.pipe = ranks / degrees.op / (degrees.data > 0 ? degrees.data : 1);
    if (degrees.pipe == 0)
        degrees.pipe = 1;
    if (degrees.data == 0)
        degrees.data = ranks / degrees.op / degrees.pipe;
    if (degrees.data == 0)
        degrees.data = 1;
    return degrees;
}

static enum tp_status check_degrees(const struct tp_worker *worker, const struct degrees *degrees)
{
    const struct tp_model *model = &worker->model;
    const int ranks = tp_comm_size(worker->world), op = degrees->op;
    const long long needed = (long long)degrees->data * degrees->pipe * op;

    if (degrees->pipe > model->n_layer)
        return tp_fail(TP_ERR_USAGE,
                       "--pipeline-model-parallel-size %d: expected at most %d, a stage for each "
                       "layer",
                       degrees->pipe, model->n_layer);
    if (model->n_head % op != 0 || op > model->n_inner || op > model->vocab_size)
        return tp_fail(TP_ERR_USAGE,
                       "--tensor-model-parallel-size %d: expected a divisor of the model's %d "
                       "heads, and at most n_inner, %d, and the vocabulary, %d",
                       op, model->n_head, model->n_inner, model->vocab_size);
    if (worker->settings->batch > 0 && worker->settings->batch < degrees->data)
        return tp_fail(TP_ERR_USAGE,
                       "--global-batch-size %d: expected at least %d, a sequence for each replica "
                       "(--data %d)",
                       worker->settings->batch, degrees->data, degrees->data);
    if (needed != ranks)
        return tp_fail(
            TP_ERR_USAGE,
            "--data %d x --pipeline-model-parallel-size %d x "
            "--tensor-model-parallel-size %d: expected as many ranks, not %d (start with "
            "mpirun -n %lld)",
            degrees->data, degrees->pipe, op, ranks, needed);
    return TP_OK;
}

static enum tp_status take_place(struct tp_worker *worker)
{
    const struct degrees degrees = find_degrees(worker);

    tp_phase_begin();
    TP_TRY(tp_phase_end(worker->world, check_degrees(worker, &degrees)));
    tp_phase_begin();
    enum tp_status status =
        tp_grid_init(&worker->grid, worker->world, degrees.data, degrees.pipe, degrees.op);
    return tp_phase_end(worker->world, status);
}

enum tp_status tp_worker_init(struct tp_worker *worker, const struct tp_settings *settings,
                              struct tp_comm *world)
{
    *worker = (struct tp_worker){.settings = settings, .world = world};
    worker->placements = calloc((size_t)tp_comm_size(world), sizeof *worker->placements);

    tp_phase_begin();
    enum tp_status status = worker->placements
                                ? tp_settings_check(settings)
                                : tp_fail(TP_ERR_MEMORY, "no memory for a list of all ranks");
    status = tp_phase_end(world, status);
    if (status == TP_OK)
        status = find_source(worker);
    if (status == TP_OK)
        status = find_model(worker);
    if (status == TP_OK)
        status = take_place(worker);
    if (status != TP_OK)
        tp_worker_fini(worker);
    return status;
}

void tp_worker_fini(struct tp_worker *worker)
{
    tp_engine_free(worker->engine);
    tp_cell_free(worker->cell);
    tp_device_close(worker->device);
    free(worker->tables);
    free(worker->placements);
    tp_parameters_fini(&worker->parameters);
    tp_grid_fini(&worker->grid);
    *worker = (struct tp_worker){.settings = NULL};
}

const struct tp_stage_layers *tp_worker_layers(const struct tp_worker *worker,
                                               const struct tp_plan *plan)
{
    return &plan->stages[worker->grid.k];
}

bool tp_worker_is_first(const struct tp_worker *worker)
{
    return worker->grid.k == 0;
}

bool tp_worker_is_last(const struct tp_worker *worker)
{
    return worker->grid.k == worker->grid.pipe_size - 1;
}

/* ---- Plan and schedule ---- */

int tp_worker_largest_share(const struct tp_worker *worker)
{
    return (int)tp_share_of((size_t)worker->settings->batch, worker->grid.data, 0).count;
}

struct tp_share tp_worker_share(const struct tp_worker *worker, int sequences)
{
    return tp_share_of((size_t)sequences, worker->grid.data, worker->grid.d);
}

/* The groups of the largest replica; nobody said how large: so that each flight fills the pipe. */
static int group_size_of(const struct tp_worker *worker, int batch)
{
    const struct tp_settings *settings = worker->settings;
    const int flights = settings->accumulate > 0 ? settings->accumulate : 1;
    const int stages = worker->grid.pipe_size, most = (batch - 1) / flights + 1;

    return settings->group_size > 0 ? settings->group_size : (most - 1) / stages + 1;
}

/* Deals the groups out to --accumulate flights. */
static enum tp_status deal_flights(const struct tp_worker *worker, struct tp_plan **plan)
{
    const int flights = worker->settings->accumulate;
    struct tp_plan *dealt;

    if (flights <= 1)
        return TP_OK;
    if (flights > (*plan)->n_groups)
        return tp_fail(TP_ERR_USAGE,
                       "--accumulate %d: expected at most %d, the groups of the %d sequences that "
                       "a replica has in a step",
                       flights, (*plan)->n_groups, (*plan)->batch);
    TP_TRY(tp_plan_in_flights(*plan, flights, &dealt));
    tp_plan_free(*plan);
    *plan = dealt;
    return TP_OK;
}

enum tp_status tp_worker_plan(const struct tp_worker *worker, struct tp_plan **out)
{
    const struct tp_settings *settings = worker->settings;
    const struct tp_grid *grid = &worker->grid;
    const int batch = tp_worker_largest_share(worker);
    const enum tp_schedule_kind schedule = settings->schedule == TP_SEARCH_AUTO
                                               ? TP_SCHEDULE_TERAPIPE
                                               : (enum tp_schedule_kind)settings->schedule;
    struct tp_slices slices = {.count = 0};
    struct tp_plan *plan;

    if (settings->slices)
        TP_TRY(tp_slices_parse(settings->slices, worker->seq_len, &slices));
    enum tp_status status =
        tp_plan_default(&worker->model, worker->seq_len, batch, grid->pipe_size, schedule,
                        group_size_of(worker, batch), settings->slices ? &slices : NULL, &plan);
    tp_slices_fini(&slices);
    if (status != TP_OK)
        return status;
    plan->data = grid->data;
    plan->op = grid->op;
    plan->recompute = settings->recompute == TP_RECOMPUTE_CELL;
    plan->zero = settings->zero;
    plan->delay_wgrad = settings->delay_wgrad;
    status = deal_flights(worker, &plan);
    if (status == TP_OK)
        *out = plan;
    else
        tp_plan_free(plan);
    return status;
}

enum tp_status tp_worker_schedule(const struct tp_worker *worker, const struct tp_plan *plan,
                                  struct tp_schedule **schedule)
{
    struct tp_schedule **all = calloc((size_t)plan->n_stages, sizeof *all);
    enum tp_status status = TP_OK;

    if (!all)
        return tp_fail(TP_ERR_MEMORY, "no memory for %d schedules", plan->n_stages);
    for (int k = 0; k < plan->n_stages && status == TP_OK; k++)
        status = tp_schedule_new(plan, k, &all[k]);
    if (status == TP_OK)
        status = tp_schedule_check((const struct tp_schedule *const *)all, plan->n_stages);
    if (status == TP_OK) {
        *schedule = all[worker->grid.k];
        all[worker->grid.k] = NULL;
    }
    for (int k = 0; k < plan->n_stages; k++)
        tp_schedule_free(all[k]);
    free(all);
    return status;
}

/* ---- Data ---- */

enum tp_status tp_worker_tokens(const struct tp_worker *worker, const struct tp_option_list *paths,
                                struct tp_tokens **tokens)
{
    bool bytes = worker->model.vocab_size == 256 ||
                 worker->settings->tokenizer == TP_TOKENIZER_BYTES ||
                 (worker->source.resume && worker->source.state.tokenizer == TP_TOKENIZER_BYTES);
    struct tp_tokens *opened;

    TP_TRY(tp_tokens_open(paths->at, paths->count, worker->seq_len, worker->model.vocab_size,
                          &opened));
    const char *text = tp_tokens_text(opened);
    if (text && !bytes) {
        enum tp_status status = tp_fail(
            TP_ERR_INPUT,
            "%s: is text, expected tokens, since the model has %d of them; --tokenizer bytes "
            "takes bytes as tokens all the same",
            text, worker->model.vocab_size);
        tp_tokens_close(opened);
        return status;
    }
    *tokens = opened;
    return TP_OK;
}

/* ---- Device ---- */

/* Chooses a device and tells everybody. */
static enum tp_status choose_device(struct tp_worker *worker)
{
    struct tp_placement *all = worker->placements;
    int rank = tp_comm_rank(worker->world);
    struct tp_placement mine;

    tp_phase_begin();
    enum tp_status status = tp_placement_choose(worker->settings, &worker->grid, &mine);
    TP_TRY(tp_phase_end(worker->world, status));
    TP_TRY(tp_placement_gather(worker->world, &mine, all));
    if (rank == 0) {
        tp_placement_print(all, tp_comm_size(worker->world));
        tp_placement_warn(all, tp_comm_size(worker->world), worker->grid.op);
    }
    return TP_OK;
}

/* What the checkpoint was trained with, unless a provider was asked for. */
static enum tp_status recorded_gemm(const struct tp_worker *worker, const char *device,
                                    struct tp_gemm_table *table)
{
    char *path = NULL;

    memset(table, 0, sizeof *table);
    snprintf(table->device, sizeof table->device, "%s", device);
    table->gemm = worker->settings->gemm;
    if (table->gemm != TP_GEMM_AUTO || !worker->source.resume)
        return TP_OK;
    TP_TRY(tp_source_file(&worker->source, TP_FILE_GEMM, &path));
    enum tp_status status = tp_gemm_table_load(path, device, table);
    free(path);
    return status;
}

/* What the stage has to hold for all schedules. */
static void shape_of(const struct tp_worker *worker, const struct tp_work *work,
                     struct tp_stage_shape *shape)
{
    const struct tp_grid *grid = &worker->grid;

    *shape = (struct tp_stage_shape){.model = worker->model,
                                     .layers = *tp_worker_layers(worker, work->plan),
                                     .seq_len = worker->seq_len,
                                     .train = work->train,
                                     .recompute = work->train && work->plan->recompute,
                                     .op = grid->op,
                                     .op_rank = grid->o,
                                     .shards = worker->settings->zero ? grid->data : 1,
                                     .shard = worker->settings->zero ? grid->d : 0};
    for (int i = 0; i < work->n_schedules; i++)
        tp_schedule_widen(work->schedules[i], shape);
}

static enum tp_status open_device(struct tp_worker *worker, const struct tp_work *work)
{
    struct tp_placement *mine = &worker->placements[tp_comm_rank(worker->world)];
    struct tp_device_options options = {.index = mine->index,
                                        .threads = mine->threads,
                                        .kernels = (enum tp_kernel_style)worker->settings->kernels,
                                        .head_width = worker->model.n_embd / worker->model.n_head};
    struct tp_gemm_table *recorded = malloc(sizeof *recorded);

    if (!recorded)
        return tp_fail(TP_ERR_MEMORY, "no memory for a table of products");
    enum tp_status status = recorded_gemm(worker, mine->name, recorded);
    options.gemm = (enum tp_gemm_provider)recorded->gemm;
    free(recorded);
    TP_TRY(status);
    TP_TRY(tp_device_open(&options, &worker->device));
    mine->gemm = (int)tp_device_gemm(worker->device);
    return tp_cell_rehearse(worker->device, &worker->model, work->train);
}

static enum tp_status check_gemm(struct tp_worker *worker, const struct tp_work *work)
{
    struct tp_stage_shape shape;

    shape_of(worker, work, &shape);
    for (int i = 0; i < work->n_schedules; i++)
        TP_TRY(tp_cell_check_gemm(worker->device, &shape, work->schedules[i]->units,
                                  work->schedules[i]->n_units));
    return TP_OK;
}

/* One rank of a node compiles what it needs, the others find it compiled. */
static enum tp_status in_turn(struct tp_worker *worker,
                              enum tp_status (*act)(struct tp_worker *, const struct tp_work *),
                              const struct tp_work *work)
{
    bool first = worker->grid.node_rank == 0;
    enum tp_status status = TP_OK;

    tp_phase_begin();
    if (first)
        status = act(worker, work);
    enum tp_status waited = tp_comm_barrier(worker->grid.node);
    if (!first)
        status = act(worker, work);
    return tp_phase_end(worker->world, status != TP_OK ? status : waited);
}

/* ---- Which products go by panels ---- */

/* Is a rank the first with its kind of device? */
static bool leads(const struct tp_placement *all, int rank)
{
    for (int other = 0; other < rank; other++)
        if (strcmp(all[other].name, all[rank].name) == 0)
            return false;
    return true;
}

/* Completes what the run recorded for the products of any stage, and of any slice. */
static enum tp_status measure_products(struct tp_worker *worker, bool train,
                                       struct tp_gemm_table *table)
{
    const struct tp_grid *grid = &worker->grid;
    const struct tp_stage_shape shape = {
        .model = worker->model, .train = train, .op = grid->op, .op_rank = grid->o};
    const int sequences = tp_worker_largest_share(worker); /* none are said where text is made */
    const size_t rows = (size_t)worker->seq_len * (size_t)(sequences > 0 ? sequences : 1);
    const struct tp_placement *mine = &worker->placements[tp_comm_rank(worker->world)];

    TP_TRY(recorded_gemm(worker, mine->name, table));
    table->gemm = mine->gemm;
    if (mine->gemm != TP_GEMM_AUTO)
        return TP_OK;
    char products[128];
    snprintf(products, sizeof products, "C %d, inner %d, V %d, op %d", worker->model.n_embd,
             worker->model.n_inner, worker->model.vocab_size, grid->op);
    /* Weights that do not change are packed once for all. */
    char *path = tp_gemm_cache_path(worker->device, products);
    enum tp_status status = tp_gemm_table_complete(table, worker->device, &shape, rows,
                                                   train ? (double)rows : 1e30, path);
    free(path);
    return status;
}

/* The first rank with a kind of device measures and tells the others, one kind after the other: two
 * may share a machine. */
static enum tp_status agree_products(struct tp_worker *worker, bool train)
{
    const int ranks = tp_comm_size(worker->world), rank = tp_comm_rank(worker->world);
    const struct tp_placement *all = worker->placements;
    enum tp_status status = TP_OK;

    worker->tables = calloc((size_t)ranks, sizeof *worker->tables);
    tp_phase_begin();
    TP_TRY(tp_phase_end(worker->world,
                        worker->tables ? TP_OK : tp_fail(TP_ERR_MEMORY, "no memory for tables")));
    for (int leader = 0; leader < ranks; leader++) {
        struct tp_gemm_table *table = &worker->tables[worker->n_tables];
        if (!leads(all, leader))
            continue;
        tp_phase_begin();
        if (rank == leader)
            status = measure_products(worker, train, table);
        TP_TRY(tp_phase_end(worker->world, status));
        TP_TRY(tp_comm_bcast(worker->world, table, sizeof *table, leader));
        if (strcmp(all[rank].name, all[leader].name) == 0)
            status = tp_gemm_choose(worker->device, table->times, table->count);
        worker->n_tables++;
    }
    tp_phase_begin();
    return tp_phase_end(worker->world, status);
}

enum tp_status tp_worker_open_device(struct tp_worker *worker, bool train)
{
    const struct tp_work work = {.train = train};

    TP_TRY(choose_device(worker));
    TP_TRY(in_turn(worker, open_device, &work));
    struct tp_placement mine = worker->placements[tp_comm_rank(worker->world)];
    TP_TRY(tp_placement_gather(worker->world, &mine, worker->placements));
    return agree_products(worker, train);
}

/* This rank's part of the memory that its device has; 0, which is any, only of 0. */
static size_t share(const struct tp_worker *worker, size_t bytes)
{
    int ranks = tp_comm_size(worker->world), rank = tp_comm_rank(worker->world);
    size_t part = bytes / (size_t)tp_placement_sharing(worker->placements, ranks, rank);

    return part == 0 && bytes > 0 ? 1 : part;
}

size_t tp_worker_memory(const struct tp_worker *worker)
{
    size_t limit;

    /* The option was checked when the worker was made. */
    if (tp_settings_memory(worker->settings, &limit) != TP_OK || limit == 0)
        limit = tp_device_describe(worker->device)->memory;
    return share(worker, limit);
}

static enum tp_status make_cell(struct tp_worker *worker, const struct tp_stage_shape *shape)
{
    struct tp_footprint footprint;
    size_t limit;

    TP_TRY(tp_settings_memory(worker->settings, &limit));
    tp_device_footprint(worker->device, &footprint);
    const size_t mine = share(worker, limit), need = tp_stage_bytes(shape, &footprint);
    if (limit > 0 && need > mine)
        return tp_fail(TP_ERR_MEMORY,
                       "--memory %s: %zu bytes for each rank that shares the device, but stage %d "
                       "needs %zu",
                       worker->settings->memory, mine, worker->grid.k, need);
    TP_TRY(tp_cell_new(worker->device, shape, &worker->parameters, mine, &worker->cell));
    tp_cell_stage(worker->cell, &worker->stage);
    return TP_OK;
}

/* ---- Weights ---- */

/* Where one kind of numbers comes from. weights NULL: initial values. */
struct filling {
    enum tp_kind kind;
    struct tp_weights *weights;
    float *whole, *part; /* as large as the largest tensor */
};

static enum tp_status fill_parameter(struct tp_worker *worker, const struct filling *filling,
                                     int row)
{
    const struct tp_parameter *parameter = &worker->parameters.at[row];

    if (filling->weights)
        TP_TRY(tp_weights_read(filling->weights, row, filling->whole));
    else
        tp_parameter_initial(&worker->parameters, row, worker->settings->seed, 0, parameter->count,
                             filling->whole);
    tp_parameter_take(parameter, worker->grid.op, worker->grid.o, filling->whole, filling->part);
    return tp_cell_write(worker->cell, row, filling->kind, filling->part);
}

/* Fills the tensors of this stage from a file of the source, or with initial values. */
static enum tp_status fill(struct tp_worker *worker, const struct tp_stage_layers *layers,
                           enum tp_kind kind, const char *file, float *whole, float *part)
{
    struct filling filling = {.kind = kind, .whole = whole, .part = part};
    enum tp_status status = TP_OK;
    char *path = NULL;

    if (worker->source.folder[0]) {
        TP_TRY(tp_source_file(&worker->source, file, &path));
        status = tp_weights_open(path, &worker->parameters, &filling.weights);
        free(path);
    }
    for (int row = 0; row < worker->parameters.count && status == TP_OK; row++)
        if (tp_parameter_on_stage(&worker->parameters.at[row], &worker->model, layers))
            status = fill_parameter(worker, &filling, row);
    tp_weights_close(filling.weights);
    return status;
}

enum tp_status tp_worker_buffers(const struct tp_worker *worker, float **whole, float **part)
{
    size_t largest = 0;

    for (int row = 0; row < worker->parameters.count; row++)
        if (largest < worker->parameters.at[row].count)
            largest = worker->parameters.at[row].count;
    float *a = malloc(largest * sizeof *a), *b = malloc(largest * sizeof *b);
    if (a && b) {
        *whole = a;
        *part = b;
        return TP_OK;
    }
    free(a);
    free(b);
    return tp_fail(TP_ERR_MEMORY, "no memory for a tensor of %zu numbers", largest);
}

static enum tp_status fill_all(struct tp_worker *worker, const struct tp_work *work)
{
    const struct tp_stage_layers *layers = tp_worker_layers(worker, work->plan);
    float *whole, *part;

    TP_TRY(tp_worker_buffers(worker, &whole, &part));
    enum tp_status status = fill(worker, layers, TP_WEIGHT, TP_FILE_WEIGHTS, whole, part);
    if (status == TP_OK && work->train && worker->source.resume) {
        status = fill(worker, layers, TP_MOMENT_1, TP_FILE_MOMENT_1, whole, part);
        if (status == TP_OK)
            status = fill(worker, layers, TP_MOMENT_2, TP_FILE_MOMENT_2, whole, part);
    }
    free(whole);
    free(part);
    return status;
}

enum tp_status tp_worker_open(struct tp_worker *worker, const struct tp_work *work)
{
    struct tp_stage_shape shape;

    if (!worker->device)
        TP_TRY(tp_worker_open_device(worker, work->train));
    shape_of(worker, work, &shape);
    tp_phase_begin();
    TP_TRY(tp_phase_end(worker->world, make_cell(worker, &shape)));
    TP_TRY(in_turn(worker, check_gemm, work));

    tp_phase_begin();
    enum tp_status status = fill_all(worker, work);
    if (status == TP_OK)
        status = tp_engine_new(&worker->grid, &worker->stage, work->schedules[0],
                               worker->settings->watchdog, &worker->engine);
    if (status == TP_OK) {
        struct tp_reduce reduce;
        tp_engine_reduce(worker->engine, &reduce);
        tp_cell_set_reduce(worker->cell, &reduce);
    }
    return tp_phase_end(worker->world, status);
}
