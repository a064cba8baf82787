/* SPDX-License-Identifier: Apache-2.0 */
/* Continues a text, one token after the other. */
#ifndef TP_TRAIN_GENERATE_H
#define TP_TRAIN_GENERATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "comm/comm.h"
#include "plan/plan.h"
#include "plan/schedule.h"
#include "train/pick.h"
#include "train/settings.h"
#include "train/worker.h"

/* Keys and values of a window of the text, [first, first + cached), are kept on each stage, so that
 * one more token costs one row. */
struct tp_generator {
    struct tp_worker worker;
    struct tp_plan *plan;        /* a whole window, in slices */
    struct tp_schedule *window;  /* its forward schedule */
    struct tp_schedule *one;     /* of one token; its place is set for each */
    struct tp_schedule *prefill; /* of the window that is taken in */
    struct tp_picker picker;     /* last stage */
    struct tp_rng rng;           /* position: tokens of the text so far */
    int32_t *inputs;             /* [T] first stage */
    float *logits;               /* [V] last stage */
    size_t first;                /* token of the text that the window begins with */
    int cached;                  /* tokens of the window taken in so far */
};

/* Opens the model that --load holds. settings and world must outlive the generator. Collective over
 * world; the ranks fail together, with one line. */
enum tp_status tp_generator_init(struct tp_generator *generator, const struct tp_settings *settings,
                                 struct tp_comm *world);
void tp_generator_fini(struct tp_generator *generator);

/* The token that follows text[n], n > 0, the same on all ranks. The text is that of the last call
 * and one more token, which alone is computed, or the first one. Beyond T tokens the last half of T
 * is taken in again. Collective over world. TP_ERR_NONFINITE when the model gives no numbers, on
 * all ranks; any other error leaves this rank alone. */
enum tp_status tp_generator_next(struct tp_generator *generator, const int32_t *text, size_t n,
                                 int32_t *token);

/* Drops what is cached: the next text may be any, and is taken in whole. Local. */
void tp_generator_forget(struct tp_generator *generator);

/* The command: prints --prompt and what follows it, byte by byte. *alone as in tp_train().
 * Collective over world. */
enum tp_status tp_generate(const struct tp_settings *settings, struct tp_comm *world, bool *alone);

#endif
