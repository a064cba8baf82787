# SPDX-License-Identifier: Apache-2.0
# Environment for MPI jobs on one machine, whatever its number of cores; read it with ".".
# Others than Open MPI ignore all of it.

export OMPI_MCA_rmaps_base_oversubscribe=1                   # Open MPI 4: more ranks than cores
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe  # the same for Open MPI 5
export OMPI_MCA_hwloc_base_binding_policy=none               # Open MPI 4: ranks share the cores
export PRTE_MCA_hwloc_default_binding_policy=none
export OMPI_MCA_plm_rsh_agent=/bin/false                     # no remote shell is looked for
if [ "$(id -u)" -eq 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1
    export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
