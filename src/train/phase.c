/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/log.h"
#include "train/phase.h"

void tp_phase_begin(void)
{
    tp_log_hold();
}

enum tp_status tp_phase_end(struct tp_comm *comm, enum tp_status mine)
{
    enum tp_status agreed;
    int rank;

    enum tp_status status = tp_comm_agree(comm, mine, &agreed, &rank);
    if (status != TP_OK) {
        tp_log_release(true);
        return status;
    }
    tp_log_release(agreed != TP_OK && rank == tp_comm_rank(comm));
    return agreed;
}

void tp_phase_leave(void)
{
    tp_log_release(true);
}
