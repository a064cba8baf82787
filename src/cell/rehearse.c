/* SPDX-License-Identifier: Apache-2.0 */
/* A step in small, before the first one in earnest. */
#include "config.h"

#include "base/bell.h"
#include "base/clock.h"
#include "cell/cell.h"

/* One sequence of two tokens through one layer of one head: every kernel runs, with the head width
 * that it is built for. */
static const struct tp_unit unit = {.slice = {.length = 2}, .sequences = 1};

static enum tp_status compute(struct tp_stage *stage, enum tp_direction direction)
{
    bool done = false;
    TP_TRY(stage->begin(stage->self, direction, &unit));
    while (!done) {
        tp_bell_wait(TP_CLOCK_POLL);
        TP_TRY(stage->poll(stage->self, direction, &unit, &done));
    }
    return TP_OK;
}

static enum tp_status run_step(struct tp_cell *cell, bool train, double *sums)
{
    const int32_t inputs[] = {0, 1}, targets[] = {1, 0};
    const struct tp_cell_step step = {
        .inputs = inputs, .targets = targets, .sequences = 1, .scale = 0.5, .train = train};
    const struct tp_adamw adamw = {.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1};
    struct tp_stage stage;
    const float *mine;
    float *theirs;
    size_t count;

    tp_cell_stage(cell, &stage);
    TP_TRY(tp_cell_begin_step(cell, &step));
    TP_TRY(compute(&stage, TP_FORWARD));
    if (!train)
        return TP_OK;
    TP_TRY(compute(&stage, TP_BACKWARD));
    TP_TRY(stage.tied(stage.self, &mine, &theirs, &count));
    TP_TRY(stage.tied_done(stage.self));
    TP_TRY(stage.sums(stage.self, sums));
    return stage.update(stage.self, &adamw, 1.0);
}

enum tp_status tp_cell_rehearse(struct tp_device *device, const struct tp_model *model, bool train)
{
    const int width = model->n_embd / model->n_head;
    const struct tp_stage_shape shape = {
        .model = {.n_layer = 1,
                  .n_embd = width,
                  .n_head = 1,
                  .n_inner = width,
                  .vocab_size = 2,
                  .n_positions = 2,
                  .layer_norm_epsilon = model->layer_norm_epsilon},
        .layers = {.n_layer = 1},
        .seq_len = 2,
        .batch = 1,
        .caches = 1,
        .group = 1,
        .rows = 2,
        .input_rows = 2,
        .unit_rows = 2,
        .slots = 1,
        .train = train,
    };
    struct tp_parameters parameters;
    struct tp_cell *cell = NULL;
    double sums[TP_LAYER_TENSORS + 8];

    TP_TRY(tp_parameters_init(&parameters, &shape.model));
    TP_ASSERT((size_t)parameters.count < sizeof(sums) / sizeof(sums[0]));
    enum tp_status status = tp_cell_new(device, &shape, &parameters, 0, &cell);
    if (status == TP_OK)
        status = run_step(cell, train, sums);
    if (status == TP_OK)
        status = tp_device_finish(device);
    tp_cell_free(cell);
    tp_parameters_fini(&parameters);
    return status;
}
