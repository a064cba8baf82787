/* SPDX-License-Identifier: Apache-2.0 */
/* A command of the program: which of the shared options it takes, and what it does. */
#ifndef TP_CLI_COMMAND_H
#define TP_CLI_COMMAND_H

#include <stdbool.h>

#include "base/options.h"
#include "base/status.h"
#include "comm/comm.h"
#include "train/settings.h"

struct tp_command {
    const char *name;
    const char *summary;         /* one line */
    const char *const *options;  /* names, in the order of its help; NULL-terminated */
    const char *const *required; /* those that have to be given; NULL-terminated */
    const struct tp_option *own; /* rows in place of the shared table's; ends with a NULL name */
    const char *argument;        /* what it is given besides options, goes to plan; NULL: nothing */
    bool local;                  /* needs neither other ranks nor devices: world is NULL */
    /* Runs it over the ranks of world. Each error was said in one line by one rank when it returns;
     * *alone: but not agreed, so that the job has to be ended at once. */
    enum tp_status (*run)(const struct tp_settings *settings, struct tp_comm *world, bool *alone);
};

extern const struct tp_command tp_command_train, tp_command_eval, tp_command_generate,
    tp_command_profile, tp_command_plan, tp_command_simulate, tp_command_doctor, tp_command_tune;
extern const struct tp_command *const tp_commands[]; /* NULL-terminated */

/* Options of a command at most. */
#define TP_COMMAND_OPTIONS 64

/* The command's rows of the shared table; returns how many. A name that the table does not have is
 * our bug and gives 0. Local. */
int tp_command_rows(const struct tp_command *command, struct tp_option rows[TP_COMMAND_OPTIONS]);

/* What the rows' fields hold, as JSON: options.json of a run. malloc'd and the caller's; NULL
 * without memory. Local. */
char *tp_command_record(const struct tp_command *command, const struct tp_option *rows, int n_rows,
                        const struct tp_settings *settings);

#endif
