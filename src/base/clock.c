/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/clock.h"

#include <time.h>

double tp_clock_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void tp_clock_sleep(double seconds)
{
    if (!(seconds > 0))
        return;

    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)(1e9 * (seconds - (double)pause.tv_sec));
    nanosleep(&pause, NULL);
}
