/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that processes of one machine share: one makes it under a name, the others open it by that
 * name, which is taken back once all have it. */
#ifndef TP_BASE_SHARED_H
#define TP_BASE_SHARED_H

#include <stddef.h>

enum { TP_SHARED_NAME = 48 };

/* So many bytes of zeros, there to be used (a full file system ends it here, not at the first
 * write), and their name; NULL: the machine gives none. Local. */
void *tp_shared_new(char name[TP_SHARED_NAME], size_t bytes);

/* The memory of that name; NULL: this process cannot have it. Local. */
void *tp_shared_open(const char *name, size_t bytes);

/* Takes the name back: the memory stays until the last process has given it back. Local. */
void tp_shared_forget(const char *name);

/* Gives memory back, to no effect when it is NULL. Local. */
void tp_shared_free(void *memory, size_t bytes);

#endif
