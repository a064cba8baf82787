/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TP_BASE_CLOCK_H
#define TP_BASE_CLOCK_H

/* Seconds of a monotonic clock with an arbitrary origin. Local. */
double tp_clock_now(void);

/* Sleeps about that many seconds without using the core. Local. */
void tp_clock_sleep(double seconds);

/* What a polling loop sleeps between two looks, in seconds. Shorter sleeps measured no faster
 * pipelines; not sleeping takes the core another rank computes on. */
#define TP_CLOCK_POLL 50e-6

#endif
