/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_TRAIN_TRAINER_H
#define TP_TRAIN_TRAINER_H

#include <stdbool.h>

#include "base/status.h"
#include "comm/comm.h"
#include "train/settings.h"

/* Trains as the settings say, over the ranks of world, one for each stage. Until the first step,
 * and after it for what all ranks can decide together (TP_ERR_INPUT, TP_ERR_IO, TP_ERR_NONFINITE:
 * the step is named), the ranks fail in order and with one line. *alone is true when the error is
 * this rank's alone and the job has to be ended: nothing is freed then. Collective over world. */
enum tp_status tp_train(const struct tp_settings *settings, struct tp_comm *world, bool *alone);

#endif
