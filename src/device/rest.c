/* SPDX-License-Identifier: Apache-2.0 */
/* Rest until the device has done something. Drivers call back from a thread of their own, perhaps
 * late, so what they touch outlives every device. */
#include "config.h"

#include <pthread.h>
#include <time.h>

#include "opencl.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed;
static unsigned long done, seen; /* events that are complete, and that a rest has ended for */

static void begin(void)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&changed, &attributes);
    pthread_condattr_destroy(&attributes);
}

static void CL_CALLBACK wake(cl_event event, cl_int state, void *unused)
{
    (void)event, (void)state, (void)unused;
    pthread_mutex_lock(&lock);
    done++;
    pthread_cond_signal(&changed);
    pthread_mutex_unlock(&lock);
}

void tp_rest_watch(cl_event event)
{
    pthread_once(&once, begin);
    /* A driver that does not call back lets a rest end by its time. */
    (void)clSetEventCallback(event, CL_COMPLETE, wake, NULL);
}

/* So many seconds from now. */
static struct timespec time_after(double seconds)
{
    struct timespec end;

    clock_gettime(CLOCK_MONOTONIC, &end);
    const long long nanoseconds = end.tv_nsec + (long long)(1e9 * seconds);
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);
    return end;
}

void tp_device_rest(double seconds)
{
    const struct timespec end = time_after(seconds);
    int late = 0;

    pthread_once(&once, begin);
    pthread_mutex_lock(&lock);
    while (done == seen && late == 0)
        late = pthread_cond_timedwait(&changed, &lock, &end);
    seen = done;
    pthread_mutex_unlock(&lock);
}
