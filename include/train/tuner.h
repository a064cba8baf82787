/* SPDX-License-Identifier: Apache-2.0 */
/* The search for CLBlast's parameters on a device: which candidate comes next, and what is known
 * about those that were tried. It does not try them itself: a struct tp_trier does, for which tests
 * have one of their own. The next candidate depends on the trials so far and the seed alone, so
 * that a search goes on where its file ends. */
#ifndef TP_TRAIN_TUNER_H
#define TP_TRAIN_TUNER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "device/tuning.h"

enum { TP_TRIAL_REASON = 160 };

struct tp_trial {
    struct tp_tuning set;
    double gflops, ratio;         /* to CLBlast's own parameters; 0 when rejected */
    char reason[TP_TRIAL_REASON]; /* why it was rejected; "" when its results were right */
};

struct tp_trier {
    void *self;
    /* Tries trial->set and fills in the rest. *over: there is no time left, or the user has had
     * enough; the trial says nothing then. A status is for what ends the search. */
    enum tp_status (*try)(void *self, struct tp_trial *trial, bool *over);
};

struct tp_tuner {
    struct tp_device_info device;
    char task[160]; /* what is computed, by how many threads: trials of another say nothing */
    uint64_t seed;
    struct tp_trial *trials; /* in order */
    int count;
};

/* A search without trials yet, for a device and a task. */
void tp_tuner_init(struct tp_tuner *tuner, const struct tp_device_info *device, const char *task,
                   uint64_t seed);
void tp_tuner_fini(struct tp_tuner *tuner);

/* Takes the trials of an earlier search over from its file. A file that is damaged, or of another
 * device or task, is ignored with a note. Local. TP_ERR_MEMORY. */
enum tp_status tp_tuner_resume(struct tp_tuner *tuner, const char *path);

/* What to try next: the sets to begin with, then the neighbours of the best one, in an order of the
 * seed. false when none is left: no neighbour is better. Local. */
bool tp_tuner_next(const struct tp_tuner *tuner, struct tp_tuning *set);

/* The verified trial of the largest ratio; NULL when there is none. Local. */
const struct tp_trial *tp_tuner_best(const struct tp_tuner *tuner);

/* Tries candidates until none is left or the trier says it is over; after each, path has all
 * trials. Local. TP_ERR_IO, TP_ERR_MEMORY, and what the trier returns. */
enum tp_status tp_tuner_run(struct tp_tuner *tuner, const char *path, const struct tp_trier *trier);

#endif
