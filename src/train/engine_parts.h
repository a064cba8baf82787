/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the engine share: its state; looking after what is under way (engine_wait.c);
 * what ranks do together (engine_sums.c). */
#ifndef TP_TRAIN_ENGINE_PARTS_H
#define TP_TRAIN_ENGINE_PARTS_H

#include "train/engine.h"

/* A unit's message to or from a neighbour. */
enum transfer_kind { RECEIVE, SEND, TRANSFER_KINDS };

enum transfer_state {
    IDLE,   /* not posted in this run */
    POSTED, /* starts when the computing listed before it is done */
    MOVING, /* the stage's memory is lent to MPI */
    OVER
};

struct transfer {
    enum transfer_kind kind;
    enum tp_direction direction;
    const struct tp_unit *unit;
    enum transfer_state state;
    int after;    /* computes that have to be done first */
    double began; /* to move, for a trace */
    struct tp_request request;
};

/* Requests besides the transfers'. */
enum { REQUEST_MINE, REQUEST_THEIRS, REQUEST_SUMS, REQUEST_OPS, REQUESTS };

/* A bucket of gradients on its way to the sum over replicas. */
struct exchange {
    bool moving;
    double began;
    struct tp_request request;
};

struct tp_engine {
    const struct tp_grid *grid;
    struct tp_comm *pipe;
    const struct tp_stage *stage;
    const struct tp_schedule *schedule;
    double watchdog;
    bool armed;  /* the watchdog is, after the first run */
    bool failed; /* a run did */

    struct transfer *transfers; /* [direction][kind][unit] */
    struct transfer **active;   /* posted and not over, oldest first */
    int n_active;

    int begun, computed; /* computes of this run; they finish in order */
    int oldest;          /* action to look at for the first one that is not done */

    struct exchange *exchanges; /* [stage->n_buckets] */
    int n_started, n_summed;    /* of them; they start in order */
    bool exchanging;            /* gradients are, in this run */

    double *sums; /* [stage->n_sums] */
    struct tp_request requests[REQUESTS];
    bool requested[REQUESTS]; /* under way */

    struct tp_trace *trace; /* NULL: none is written */
    double origin;          /* of its times */
    double *enqueued;       /* [computes] when each was */
    double device_free;     /* when the latest that is computed was */

    const struct tp_unit *delayed; /* whose group's weight gradients are being computed, or NULL */

    const struct transfer *awaited; /* what the list waits for, NULL when that is not a message */
    const char *awaited_text;       /* then this */
    double moved;                   /* time of the latest progress */
    struct tp_step_result result;
};

/* What an event of a trace is called: a place in tp_engine_event_names. */
enum event { FORWARD, BACKWARD, SENT, RECEIVED, SUMMED, REDUCED, UPDATED, GRADIENTS };

/* Adds what has just ended, of a unit or (NULL) of all of them, to the trace. */
void tp_engine_add_event(struct tp_engine *engine, enum event name, enum tp_track track,
                         double began, const struct tp_unit *unit, int64_t flow);

/* A tag says what a message is: the direction and the unit. */
enum { TAG_TIED = 0, TAG_UNITS = 1 };

int tp_engine_count_transfers(const struct tp_schedule *schedule);
struct transfer *tp_engine_transfer(const struct tp_engine *engine, enum tp_direction direction,
                                    enum transfer_kind kind, int unit);

/* Looks once at everything that is under way. */
enum tp_status tp_engine_progress(struct tp_engine *engine, bool *moved);

/* Begins to wait for a transfer, or for what the text says; one turn of the loop that does: looks,
 * and rests unless something has moved. */
void tp_engine_begin_wait(struct tp_engine *engine, const struct transfer *awaited,
                          const char *text);
enum tp_status tp_engine_turn(struct tp_engine *engine);

/* Until a transfer is over; until nothing is under way; until one of the requests is done. */
enum tp_status tp_engine_wait_transfer(struct tp_engine *engine, const struct transfer *transfer);
enum tp_status tp_engine_wait_all(struct tp_engine *engine);
enum tp_status tp_engine_wait_request(struct tp_engine *engine, int index, const char *text);

/* Starts the sums over replicas of buckets that are there, in order, and ends those that are done.
 */
enum tp_status tp_engine_exchange_buckets(struct tp_engine *engine, bool *moved);

/* TP_ACTION_REDUCE, TP_ACTION_UPDATE, and the end of a list without them. */
enum tp_status tp_engine_sum(struct tp_engine *engine);
enum tp_status tp_engine_update(struct tp_engine *engine, const struct tp_adamw *adamw,
                                double clip);
enum tp_status tp_engine_sum_loss(struct tp_engine *engine);

#endif
