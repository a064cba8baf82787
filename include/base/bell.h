/* SPDX-License-Identifier: Apache-2.0 */
/* What a thread that waits sleeps by, and what wakes it. On a virtual machine to wake up takes some
 * 30 us of a core, whatever for: who waits should not wake often to look, and who has something for
 * it should ring. */
#ifndef TP_BASE_BELL_H
#define TP_BASE_BELL_H

#include <semaphore.h>
#include <stdbool.h>

struct tp_bell {
    sem_t rings; /* not yet heard */
};

/* Makes a bell in memory that processes may share; there it stays until the memory goes. Local. */
void tp_bell_init(struct tp_bell *bell);

/* Wakes who listens to it, or lets its next wait end at once. From any thread and process. */
void tp_bell_ring(struct tp_bell *bell);

/* From now on this process listens to a bell that others can reach too, or (NULL, as at the start)
 * to one of its own. For the thread that waits. Local. */
void tp_bell_listen(struct tp_bell *bell);

/* Rings the one that this process listens to. From any thread. Local. */
void tp_bell_ring_own(void);

/* Sleeps for so many seconds, or until the bell has rung since the latest wait; says whether it
 * has. May end early. For one thread. Local. */
bool tp_bell_wait(double seconds);

#endif
