/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <hwloc.h>

#include "train/cores.h"

/* Cores with at least one processing unit in the set. */
static int count_cores(hwloc_topology_t topology, hwloc_const_cpuset_t set)
{
    hwloc_obj_t core = NULL;
    int count = 0;

    while ((core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core)))
        count += hwloc_bitmap_intersects(core->cpuset, set) != 0;
    /* Some virtual machines show processing units without cores. */
    return count > 0 ? count : hwloc_bitmap_weight(set);
}

enum tp_status tp_cores_count(struct tp_cores *cores)
{
    enum tp_status status = TP_OK;
    hwloc_topology_t topology;

    if (hwloc_topology_init(&topology) != 0)
        return tp_fail(TP_ERR_MEMORY, "hwloc: no memory for the topology of this node");
    hwloc_cpuset_t bound = hwloc_bitmap_alloc();
    if (!bound) {
        status = tp_fail(TP_ERR_MEMORY, "hwloc: no memory for a set of cores");
        goto destroy_topology;
    }
    if (hwloc_topology_load(topology) != 0) {
        status = tp_fail(TP_ERR_IO, "hwloc: the topology of this node cannot be read");
        goto free_bound;
    }
    hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
    if (hwloc_get_cpubind(topology, bound, HWLOC_CPUBIND_PROCESS) != 0)
        hwloc_bitmap_copy(bound, allowed);
    hwloc_bitmap_and(bound, bound, allowed);
    cores->allowed = count_cores(topology, allowed);
    cores->bound = count_cores(topology, bound);
free_bound:
    hwloc_bitmap_free(bound);
destroy_topology:
    hwloc_topology_destroy(topology);
    return status;
}

int tp_cores_share(const struct tp_cores *cores, int ranks)
{
    int share = cores->allowed / ranks;

    if (share > cores->bound)
        share = cores->bound;
    return share > 1 ? share : 1;
}
