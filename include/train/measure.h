/* SPDX-License-Identifier: Apache-2.0 */
/* Measuring what the parts of a model cost on this rank's device, on all ranks at the same time:
 * those of a node share its memory. */
#ifndef TP_TRAIN_MEASURE_H
#define TP_TRAIN_MEASURE_H

#include <stdbool.h>

#include "base/status.h"
#include "train/worker.h"

enum tp_measured {
    TP_MEASURED_LAYER,
    TP_MEASURED_EMBED,
    TP_MEASURED_HEAD,
    TP_MEASURED_UPDATE,
    TP_MEASURED_GRADIENTS /* a layer's delayed weight gradients */
};

/* What is measured: a part, over s tokens of b sequences after c tokens of context. */
struct tp_measure_item {
    enum tp_measured part;
    int sequences, tokens, context;
    bool held_out; /* a pair (s, c) that only checks the fit */
};

/* One measurement, in seconds. Plain memory: it is exchanged as bytes. */
struct tp_shot {
    double seconds[2]; /* forward and backward; of an update, forward only, of delayed weight
                          gradients, backward only */
    double reference;  /* the reference product around that time; 0: not measured */
};

#define TP_MEASURE_ITEMS 128
#define TP_MEASURE_ROUNDS 15

struct tp_measure {
    int n_items, n_rounds;
    struct tp_measure_item items[TP_MEASURE_ITEMS];             /* the same on all ranks */
    struct tp_shot shots[TP_MEASURE_ROUNDS * TP_MEASURE_ITEMS]; /* [n_rounds][n_items] */
    int head_chunk;    /* tokens for which logits exist at once */
    double head_share; /* of the vocabulary that was measured: the time is proportional */
    double parameters; /* that an update covers */
};

/* Measures, coarse before fine, until the seconds since began (tp_clock_now()) are over or every
 * item was measured TP_MEASURE_ROUNDS times; what would not end in time is left out, but a handful
 * of short items always comes. The worker's device is open, and its memory is free to use. Groups
 * of 1 to most_sequences sequences are measured. Collective over the worker's ranks, which fail
 * together. TP_ERR_MEMORY, TP_ERR_DEVICE, TP_ERR_COMM. */
enum tp_status tp_measure(struct tp_worker *worker, int most_sequences, double began,
                          double seconds, struct tp_measure *measure);

/* Messages of several sizes: seconds for each number of bytes. */
enum { TP_MESSAGE_SIZES = 4 };
struct tp_measure_messages {
    double bytes[TP_MESSAGE_SIZES], seconds[TP_MESSAGE_SIZES];
};

/* Measures the link from this rank's stage to the next one; all zeros on the last stage.
 * Collective over the worker's ranks. TP_ERR_COMM, TP_ERR_MEMORY. */
enum tp_status tp_measure_link(struct tp_worker *worker, struct tp_measure_messages *link);

/* Measures sums over replicas, of all stages and op ranks at once. Collective over the worker's
 * ranks. TP_ERR_COMM, TP_ERR_MEMORY. */
enum tp_status tp_measure_allreduce(struct tp_worker *worker, struct tp_measure_messages *sums);

#endif
