/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/log.h"
#include "device/device.h"
#include "train/placement.h"

/* My share of the node's cores, or what --threads says. */
static enum tp_status choose_threads(const struct tp_settings *settings, int ranks,
                                     struct tp_placement *mine)
{
    TP_TRY(tp_cores_count(&mine->cores));
    int share = mine->cores.allowed / ranks;

    mine->threads = settings->threads ? settings->threads : tp_cores_share(&mine->cores, ranks);
    if (!settings->threads && mine->threads < share)
        tp_log(TP_LOG_INFO,
               "bound to %d of the %d cores that each rank here could have; mpirun "
               "--bind-to none leaves them all",
               mine->cores.bound, share);
    return TP_OK;
}

enum tp_status tp_placement_choose(const struct tp_settings *settings, const struct tp_grid *grid,
                                   struct tp_placement *mine)
{
    struct tp_placement placement = {.gemm = TP_GEMM_AUTO};
    struct tp_device_info *infos;
    int count, chosen;

    TP_TRY(choose_threads(settings, grid->node_size, &placement));
    tp_device_limit_threads(placement.threads);
    TP_TRY(tp_devices_list(&infos, &count));
    enum tp_status status =
        tp_device_select(settings->device, grid->node_rank, infos, count, &chosen);
    if (status == TP_OK) {
        const struct tp_device_info *info = &infos[chosen];
        gethostname(placement.host, sizeof placement.host - 1);
        snprintf(placement.index, sizeof placement.index, "%s", info->index);
        snprintf(placement.name, sizeof placement.name, "%s", info->name);
        snprintf(placement.type, sizeof placement.type, "%s", info->type);
        *mine = placement;
    }
    free(infos);
    return status;
}

enum tp_status tp_placement_gather(struct tp_comm *comm, const struct tp_placement *mine,
                                   struct tp_placement *all)
{
    all[tp_comm_rank(comm)] = *mine;
    return tp_comm_allgather(comm, all, sizeof *all);
}

int tp_placement_sharing(const struct tp_placement *all, int count, int rank)
{
    int sharing = 0;

    for (int i = 0; i < count; i++)
        sharing +=
            strcmp(all[i].host, all[rank].host) == 0 && strcmp(all[i].index, all[rank].index) == 0;
    return sharing;
}

void tp_placement_print(const struct tp_placement *all, int count)
{
    for (int i = 0; i < count; i++) {
        char threads[32] = "";
        if (strcmp(all[i].type, "cpu") == 0)
            snprintf(threads, sizeof threads, ", %d thread%s", all[i].threads,
                     all[i].threads == 1 ? "" : "s");
        tp_log(TP_LOG_INFO, "rank %d on %s: device %s, %s (%s%s)", i, all[i].host, all[i].index,
               all[i].name, all[i].type, threads);
    }
}

void tp_placement_warn(const struct tp_placement *all, int count, int op)
{
    for (int i = 0; i < count; i++)
        if (strcmp(all[i].host, all[i - i % op].host) != 0) {
            tp_log(
                TP_LOG_WARNING,
                "ranks %d to %d share a stage, but are on several nodes (%s, %s), where each sum "
                "of theirs is slow; mpirun --map-by ppr:N:node with N a multiple of %d keeps "
                "them together",
                i - i % op, i - i % op + op - 1, all[i - i % op].host, all[i].host, op);
            return;
        }
}
