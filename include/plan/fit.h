/* SPDX-License-Identifier: Apache-2.0 */
/* From measurements to a profile's numbers. Machines drift: with each measurement goes the time
 * that a reference product took beside it, and only what is left after dividing by it counts. */
#ifndef TP_PLAN_FIT_H
#define TP_PLAN_FIT_H

#include <stdbool.h>

#include "base/status.h"
#include "plan/profile.h"

/* One measurement. Repeated ones of the same place count by their median. */
struct tp_sample {
    int sequences, tokens, context; /* b, s, c */
    double seconds;
    double reference; /* seconds of the reference product then */
    bool held_out; /* not used by the fit; to see how well it does. Of all with one place alike */
};

/* Median of the samples' reference times: what they are scaled to. 0 when there are none. Local. */
double tp_fit_reference(const struct tp_sample *samples, int count);

/* Adds the medians of the samples without context to a table. Local. TP_ERR_INPUT when a time is
 * not above 0 or not finite, or when the table has the place already; TP_ERR_MEMORY. After an error
 * the table is still to be freed, but of no use. */
enum tp_status tp_fit_table(const struct tp_sample *samples, int count, double reference,
                            struct tp_table *table);

/* Relative errors of the times on the pairs (s, c) that were held out. */
struct tp_fit_error {
    int pairs;
    double median, largest;
};

/* Fits one layer's times, which are empty at first, for sequences of seq_len tokens: the table of
 * medians; then, for more sequences than one, the lengths that only one sequence has, as so many
 * times its time (long slices fill the device) times the ratio at the last length that both have;
 * then the four coefficients of context. These minimise the relative error of t itself: the
 * difference to the time without context is small beside its noise, and no target. Of all subsets
 * of the four terms that the samples can tell apart, two pairs a term, and that leave every slice
 * at least half its time without context, the one with the least error is taken, a term having to
 * be worth its place (Akaike's criterion). Without pairs all are 0. Local. TP_ERR_INPUT as above,
 * and without any sample that has no context; TP_ERR_MEMORY. */
enum tp_status tp_fit_layer(const struct tp_sample *samples, int count, int seq_len,
                            double reference, struct tp_layer_times *times,
                            struct tp_fit_error *error);

#endif
