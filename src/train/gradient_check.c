/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "train/gradient_check.h"
#include "train/phase.h"

/* What a rank counts for its tensors: sums of squares, of the difference and of the whole
 * sequences' gradient. */
struct apart {
    double difference, size;
};

struct check {
    struct tp_worker *worker;
    const struct tp_stage_layers *layers;
    float **whole;       /* [parameters] gradients of whole sequences, where this rank counts */
    float *part;         /* room for any tensor */
    struct apart *apart; /* [parameters] */
    double loss[2];      /* of whole sequences, in slices */
};

/* Each element is looked at once, in the first replica. */
static bool counts(const struct check *check, int row)
{
    const struct tp_worker *worker = check->worker;

    return worker->grid.d == 0 && tp_parameter_counted(&worker->parameters.at[row], &worker->model,
                                                       check->layers, worker->grid.o);
}

static size_t held(const struct check *check, int row)
{
    const struct tp_grid *grid = &check->worker->grid;
    return tp_parameter_held(&check->worker->parameters.at[row], grid->op, grid->o);
}

static enum tp_status take_memory(struct check *check)
{
    const int count = check->worker->parameters.count;
    size_t largest = 0;

    check->whole = calloc((size_t)count, sizeof *check->whole);
    check->apart = calloc((size_t)count, sizeof *check->apart);
    bool all = check->whole != NULL && check->apart != NULL;
    for (int row = 0; row < count && all; row++) {
        largest = largest < held(check, row) ? held(check, row) : largest;
        if (counts(check, row))
            check->whole[row] = malloc(held(check, row) * sizeof **check->whole);
        all = !counts(check, row) || check->whole[row] != NULL;
    }
    check->part = malloc(largest * sizeof *check->part);
    return all && check->part != NULL
               ? TP_OK
               : tp_fail(TP_ERR_MEMORY, "--check: no memory for a copy of the gradients");
}

static void free_memory(struct check *check)
{
    for (int row = 0; check->whole != NULL && row < check->worker->parameters.count; row++)
        free(check->whole[row]);
    free(check->whole);
    free(check->apart);
    free(check->part);
}

static enum tp_status run(struct check *check, const struct tp_cell_step *step,
                          const struct tp_schedule *schedule, double *loss)
{
    struct tp_worker *worker = check->worker;
    struct tp_step_result result;

    TP_TRY(tp_engine_set_schedule(worker->engine, schedule));
    TP_TRY(tp_cell_begin_step(worker->cell, step));
    TP_TRY(tp_engine_run(worker->engine, NULL, 0, &result));
    *loss = result.loss;
    return TP_OK;
}

static enum tp_status keep_gradients(struct check *check)
{
    for (int row = 0; row < check->worker->parameters.count; row++)
        if (counts(check, row))
            TP_TRY(tp_cell_read(check->worker->cell, row, TP_GRADIENT, check->whole[row]));
    return TP_OK;
}

static enum tp_status compare_gradients(struct check *check)
{
    const int count = check->worker->parameters.count;
    struct tp_request request;

    for (int row = 0; row < count; row++) {
        if (!counts(check, row))
            continue;
        struct apart *apart = &check->apart[row];
        const float *whole = check->whole[row];
        TP_TRY(tp_cell_read(check->worker->cell, row, TP_GRADIENT, check->part));
        for (size_t i = 0; i < held(check, row); i++) {
            const double difference = (double)check->part[i] - whole[i];
            apart->difference += difference * difference;
            apart->size += (double)whole[i] * whole[i];
        }
    }
    TP_TRY(tp_comm_iallreduce_sum(check->worker->world, &check->apart->difference, 2 * count,
                                  &request));
    return tp_comm_wait(&request);
}

/* Of a gradient that is zero, the difference itself. */
static double relative(const struct apart *apart)
{
    return sqrt(apart->difference) / (apart->size > 0 ? sqrt(apart->size) : 1);
}

static void print(const struct check *check)
{
    const struct tp_parameters *parameters = &check->worker->parameters;
    int worst = 0;

    for (int row = 0; row < parameters->count; row++) {
        printf("check: %-24s %.2e\n", parameters->at[row].name, relative(&check->apart[row]));
        if (!(relative(&check->apart[row]) <= relative(&check->apart[worst])))
            worst = row;
    }
    printf("check: loss %.9g in slices, %.9g in whole sequences; gradients %.2e apart at most "
           "(%s)\n",
           check->loss[1], check->loss[0], relative(&check->apart[worst]),
           parameters->at[worst].name);
    fflush(stdout);
}

static enum tp_status run_both(struct check *check, const struct tp_cell_step *step,
                               const struct tp_schedule *sliced, const struct tp_schedule *whole)
{
    TP_TRY(run(check, step, whole, &check->loss[0]));
    TP_TRY(keep_gradients(check));
    TP_TRY(run(check, step, sliced, &check->loss[1]));
    TP_TRY(compare_gradients(check));
    if (tp_comm_rank(check->worker->world) == 0)
        print(check);
    return TP_OK;
}

enum tp_status tp_gradient_check(struct tp_worker *worker, const struct tp_plan *plan,
                                 const struct tp_cell_step *step, const struct tp_schedule *sliced,
                                 const struct tp_schedule *whole)
{
    struct check check = {.worker = worker, .layers = tp_worker_layers(worker, plan)};

    tp_phase_begin();
    enum tp_status status = tp_phase_end(worker->world, take_memory(&check));
    if (status == TP_OK)
        status = run_both(&check, step, sliced, whole);
    free_memory(&check);
    return status;
}
