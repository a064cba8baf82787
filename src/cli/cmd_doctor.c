/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli/command.h"
#include "comm/grid.h"
#include "device/device.h"
#include "device/gemm.h"
#include "device/memory.h"
#include "device/tuning.h"
#include "train/phase.h"
#include "train/placement.h"

/* Shapes that gemm is checked on: each kind of product of a layer, round and odd. */
static const struct tp_gemm checks[] = {
    {.m = 256, .n = 256, .k = 256},
    {.b_transposed = true, .m = 256, .n = 256, .k = 256},
    {.a_transposed = true, .m = 256, .n = 256, .k = 256, .beta = 1},
    {.m = 193, .n = 61, .k = 127},
    {.b_transposed = true, .m = 1, .n = 127, .k = 61},
    {.a_transposed = true, .m = 61, .n = 193, .k = 13, .beta = 1},
};
enum { CHECKS = sizeof checks / sizeof *checks };

/* The shape whose speed is told. */
static const struct tp_gemm timed = {.m = 256, .n = 768, .k = 768};

/* What a rank found out about its device. Plain memory: it is exchanged as bytes. */
struct finding {
    int gemm, plain;  /* enum tp_gemm_provider: what was asked for, and what is without panels */
    int kernels;      /* enum tp_kernel_style */
    char tuning[256]; /* the file that CLBlast's parameters are from; "": its own */
    double error, gflops[2]; /* plain, by panels */
};

static double flops(const struct tp_gemm *shape)
{
    return 2.0 * (double)shape->m * (double)shape->n * (double)shape->k;
}

static void name_tuning(const struct tp_device *device, struct finding *finding)
{
    char *path = tp_device_tuning(device) ? tp_tuning_path(tp_device_describe(device)) : NULL;

    snprintf(finding->tuning, sizeof finding->tuning, "%s", path ? path : "");
    free(path);
}

static enum tp_status examine(struct tp_device *device, struct finding *finding)
{
    struct tp_gemm_times times;

    finding->gemm = (int)tp_device_gemm(device);
    finding->plain = (int)tp_device_plain_gemm(device);
    name_tuning(device, finding);
    finding->kernels = (int)tp_device_kernels(device);
    for (int i = 0; i < CHECKS; i++) {
        double error;
        TP_TRY(tp_gemm_check(device, &checks[i], &error));
        if (finding->error < error)
            finding->error = error;
    }
    TP_TRY(tp_gemm_measure(device, &timed, &times));
    finding->gflops[0] = 1e-9 * flops(&timed) / times.plain;
    finding->gflops[1] = 1e-9 * flops(&timed) / times.packed;
    return TP_OK;
}

static enum tp_status open_and_examine(const struct tp_settings *settings,
                                       const struct tp_placement *mine, struct finding *finding)
{
    struct tp_device_options options = {.index = mine->index,
                                        .threads = mine->threads,
                                        .head_width = 64,
                                        .gemm = (enum tp_gemm_provider)settings->gemm,
                                        .kernels = (enum tp_kernel_style)settings->kernels};
    struct tp_device *device;

    TP_TRY(tp_device_open(&options, &device));
    enum tp_status status = examine(device, finding);
    tp_device_close(device);
    return status;
}

/* ---- Printing, by rank 0 ---- */

static void print_versions(int ranks, int nodes)
{
    printf("%s\n", PACKAGE_STRING);
    printf("libraries   %s\n", tp_device_libraries());
    printf("MPI         %s\n", tp_comm_library());
    printf("ranks       %d on %d node%s\n", ranks, nodes, nodes == 1 ? "" : "s");
}

static enum tp_status print_devices(void)
{
    struct tp_device_info *infos;
    int count;

    TP_TRY(tp_devices_list(&infos, &count));
    for (int i = 0; i < count; i++) {
        const struct tp_device_info *info = &infos[i];
        printf("device %-4s %s (%s, %s)\n", info->index, info->name, info->platform, info->version);
        printf("            %s, %d compute units, %.1f GiB, buffers of %.1f GiB at most%s%s\n",
               info->type, info->compute_units, (double)info->memory / (1 << 30),
               (double)info->max_buffer / (1 << 30), info->unified ? ", shares host memory" : "",
               info->native_kernels ? ", native kernels" : "");
    }
    free(infos);
    return TP_OK;
}

static void print_rank(int rank, const struct tp_placement *placement)
{
    printf("rank %-6d on %s: device %s, %d thread%s; bound to %d of %d cores\n", rank,
           placement->host, placement->index, placement->threads,
           placement->threads == 1 ? "" : "s", placement->cores.bound, placement->cores.allowed);
}

static void print_finding(int rank, const struct finding *finding)
{
    const bool packed = finding->gemm == TP_GEMM_PACKED;

    printf("rank %-6d kernels as for a %s; gemm by %s: right to %.1e, %.1f GFLOP/s on %zu x %zu x "
           "%zu\n",
           rank, tp_kernel_styles[finding->kernels],
           tp_gemm_choices[packed ? finding->gemm : finding->plain], finding->error,
           finding->gflops[packed], timed.m, timed.n, timed.k);
    if (finding->gemm == TP_GEMM_AUTO)
        printf("            and by panels %.1f GFLOP/s: auto takes the faster for each product\n",
               finding->gflops[1]);
    if (finding->plain == TP_GEMM_CLBLAST)
        printf("            with %s\n",
               finding->tuning[0] ? finding->tuning : "its own parameters (terapipe tune)");
}

/* ---- The command ---- */

/* Looks from all ranks: where each computes, and how well. */
static enum tp_status look(const struct tp_settings *settings, const struct tp_grid *grid,
                           struct tp_placement *placements, struct finding *findings)
{
    struct tp_comm *world = grid->world;
    int rank = tp_comm_rank(world), ranks = tp_comm_size(world);
    struct tp_placement mine;

    tp_phase_begin();
    enum tp_status status = tp_placement_choose(settings, grid, &mine);
    if (status == TP_OK && rank == 0)
        status = print_devices();
    TP_TRY(tp_phase_end(world, status));
    TP_TRY(tp_placement_gather(world, &mine, placements));
    for (int i = 0; rank == 0 && i < ranks; i++)
        print_rank(i, &placements[i]);

    tp_phase_begin();
    status = open_and_examine(settings, &mine, &findings[rank]);
    TP_TRY(tp_phase_end(world, status));
    TP_TRY(tp_comm_allgather(world, findings, sizeof *findings));
    for (int i = 0; rank == 0 && i < ranks; i++)
        print_finding(i, &findings[i]);
    return TP_OK;
}

/* Nodes are as many as ranks that come first on theirs. */
static enum tp_status count_nodes(const struct tp_grid *grid, int *nodes)
{
    int ranks = tp_comm_size(grid->world);
    int *firsts = calloc((size_t)ranks, sizeof *firsts);

    if (!firsts)
        return tp_fail(TP_ERR_MEMORY, "no memory for a list of %d ranks", ranks);
    firsts[tp_comm_rank(grid->world)] = grid->node_rank == 0;
    enum tp_status status = tp_comm_allgather(grid->world, firsts, sizeof *firsts);
    *nodes = 0;
    for (int i = 0; i < ranks; i++)
        *nodes += firsts[i];
    free(firsts);
    return status;
}

static enum tp_status doctor(const struct tp_settings *settings, struct tp_comm *world, bool *alone)
{
    int ranks = tp_comm_size(world), nodes = 0;
    struct tp_placement *placements = calloc((size_t)ranks, sizeof *placements);
    struct finding *findings = calloc((size_t)ranks, sizeof *findings);
    struct tp_grid grid;

    *alone = false;
    tp_phase_begin();
    enum tp_status status = placements && findings
                                ? TP_OK
                                : tp_fail(TP_ERR_MEMORY, "no memory for a list of %d ranks", ranks);
    status = tp_phase_end(world, status);
    if (status != TP_OK)
        goto free_lists;
    status = tp_grid_init(&grid, world, 1, ranks, 1);
    if (status != TP_OK)
        goto free_lists;
    status = count_nodes(&grid, &nodes);
    if (status == TP_OK && tp_comm_rank(world) == 0)
        print_versions(ranks, nodes);
    if (status == TP_OK)
        status = look(settings, &grid, placements, findings);
    if (status == TP_OK && tp_comm_rank(world) == 0)
        printf("ready to train\n");
    tp_grid_fini(&grid);
free_lists:
    free(placements);
    free(findings);
    return status;
}

const struct tp_command tp_command_doctor = {
    .name = "doctor",
    .summary = "versions, devices, what each rank would get, and whether training can work",
    .options = (const char *const[]){"gemm", "kernels", "device", "threads", NULL},
    .required = (const char *const[]){NULL},
    .run = doctor,
};
