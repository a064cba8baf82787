/* SPDX-License-Identifier: Apache-2.0 */
/* A process of its own for what may crash, hang or lie: it answers questions, one after the other,
 * and whatever happens to it leaves this process as it was.
 *
 * It is a fork without exec: it begins with what this process has in memory. That is safe with
 * OpenCL as long as this process itself never calls it, so that the child is the first to load a
 * driver; a driver's threads and locks do not survive a fork. */
#ifndef TP_CLI_CHILD_H
#define TP_CLI_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/status.h"

/* Answers a question, in the child; it ends when this is not TP_OK. */
typedef enum tp_status tp_child_body(void *self, int question, void *answer);

struct tp_child {
    pid_t id; /* 0: none */
    int line; /* a socket to it */
    size_t answer_size;
    FILE *said; /* its stderr, when it is quiet */
};

enum tp_child_outcome {
    TP_CHILD_ANSWERED,
    TP_CHILD_FAILED,  /* the body did, and said so */
    TP_CHILD_DIED,    /* of a signal, or without a word */
    TP_CHILD_LATE,    /* gave no answer in time */
    TP_CHILD_STOPPED, /* by tp_child_stop */
};

enum { TP_CHILD_REASON = 160 };

/* Set by a signal's handler: nothing is waited for any longer. */
extern volatile sig_atomic_t tp_child_stop;

/* Begins one. What a quiet one says on stderr is kept, for reasons; others say it to the user.
 * Local. TP_ERR_IO. */
enum tp_status tp_child_start(struct tp_child *child, tp_child_body *body, void *self,
                              size_t answer_size, bool quiet);

/* Asks it and waits for the answer, so many seconds at most. On any other outcome the child is
 * gone, *status is what its body returned (TP_ERR_DEVICE when it did not), and reason says in a few
 * words what happened. Local. */
enum tp_child_outcome tp_child_ask(struct tp_child *child, int question, double seconds,
                                   void *answer, enum tp_status *status,
                                   char reason[TP_CHILD_REASON]);

/* Ends it, if it is there. Local. */
void tp_child_end(struct tp_child *child);

#endif
