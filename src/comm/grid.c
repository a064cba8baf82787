/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "comm/grid.h"

int tp_grid_rank(const struct tp_grid *grid, int d, int k, int o)
{
    return (d * grid->pipe_size + k) * grid->op + o;
}

static enum tp_status split(struct tp_grid *grid)
{
    const int O = grid->op, K = grid->pipe_size;

    TP_TRY(tp_comm_split(grid->world, grid->d * O + grid->o, grid->k, &grid->pipe));
    TP_TRY(tp_comm_split(grid->world, grid->d * K + grid->k, grid->o, &grid->ops));
    TP_TRY(tp_comm_split(grid->world, grid->k * O + grid->o, grid->d, &grid->replicas));
    return tp_comm_split_node(grid->world, &grid->node);
}

enum tp_status tp_grid_init(struct tp_grid *out, struct tp_comm *world, int data, int pipe, int op)
{
    const int size = tp_comm_size(world), rank = tp_comm_rank(world);
    const long long needed = (long long)data * pipe * op;
    if (data < 1 || pipe < 1 || op < 1 || needed != size)
        return tp_fail(TP_ERR_USAGE,
                       "%d ranks were started, expected %lld: --data %d x "
                       "--pipeline-model-parallel-size %d x --tensor-model-parallel-size %d",
                       size, needed, data, pipe, op);

    struct tp_grid grid = {
        .world = world,
        .data = data,
        .pipe_size = pipe,
        .op = op,
        .d = rank / op / pipe,
        .k = rank / op % pipe,
        .o = rank % op,
    };
    enum tp_status status = split(&grid);
    if (status != TP_OK) {
        tp_grid_fini(&grid);
        return status;
    }
    grid.node_rank = tp_comm_rank(grid.node);
    grid.node_size = tp_comm_size(grid.node);
    *out = grid;
    return TP_OK;
}

void tp_grid_fini(struct tp_grid *grid)
{
    tp_comm_free(grid->node);
    tp_comm_free(grid->replicas);
    tp_comm_free(grid->ops);
    tp_comm_free(grid->pipe);
    *grid = (struct tp_grid){0};
}
