/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <time.h>

#include "base/bell.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static struct tp_bell own;                               /* outlives every thread that rings it */
static struct tp_bell *listened = &own;                  /* to, by this process */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* keeps it while another thread rings */

/* A wait has to last, whatever is done to the time of day. */
#ifdef HAVE_SEM_CLOCKWAIT
#define BELL_CLOCK CLOCK_MONOTONIC
#else
#define BELL_CLOCK CLOCK_REALTIME
#define sem_clockwait(rings, clock, end) sem_timedwait(rings, end)
#endif

void tp_bell_init(struct tp_bell *bell)
{
    sem_init(&bell->rings, 1, 0);
}

void tp_bell_ring(struct tp_bell *bell)
{
    sem_post(&bell->rings);
}

static void init_own(void)
{
    tp_bell_init(&own);
}

void tp_bell_listen(struct tp_bell *bell)
{
    pthread_mutex_lock(&lock);
    listened = bell != NULL ? bell : &own;
    pthread_mutex_unlock(&lock);
}

void tp_bell_ring_own(void)
{
    pthread_once(&once, init_own);
    pthread_mutex_lock(&lock);
    tp_bell_ring(listened);
    pthread_mutex_unlock(&lock);
}

/* So many seconds from now. */
static struct timespec time_after(double seconds)
{
    struct timespec end;

    clock_gettime(BELL_CLOCK, &end);
    const long long nanoseconds = end.tv_nsec + (long long)(1e9 * seconds);
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);
    return end;
}

bool tp_bell_wait(double seconds)
{
    const struct timespec end = time_after(seconds);

    pthread_once(&once, init_own);
    bool rung = sem_clockwait(&listened->rings, BELL_CLOCK, &end) == 0;
    while (sem_trywait(&listened->rings) == 0)
        rung = true;
    return rung;
}
