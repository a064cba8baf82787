/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *map(int file, size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);

    return memory != MAP_FAILED ? memory : NULL;
}

/* A name that is in use is left to its owner, of whom a process number may be left over. */
static int create(char name[TP_SHARED_NAME])
{
    int file = -1;

    errno = EEXIST;
    for (int i = 0; file < 0 && errno == EEXIST && i < 1000; i++) {
        snprintf(name, TP_SHARED_NAME, "/terapipe-%ld-%d", (long)getpid(), i);
        file = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    }
    return file;
}

void *tp_shared_new(char name[TP_SHARED_NAME], size_t bytes)
{
    void *memory = NULL;
    const int file = create(name);

    if (file < 0)
        return NULL;
    if (posix_fallocate(file, 0, (off_t)bytes) == 0)
        memory = map(file, bytes);
    close(file);
    if (memory == NULL)
        tp_shared_forget(name);
    return memory;
}

void *tp_shared_open(const char *name, size_t bytes)
{
    const int file = shm_open(name, O_RDWR, 0);

    if (file < 0)
        return NULL;
    void *memory = map(file, bytes);
    close(file);
    return memory;
}

void tp_shared_forget(const char *name)
{
    shm_unlink(name);
}

void tp_shared_free(void *memory, size_t bytes)
{
    if (memory != NULL)
        munmap(memory, bytes);
}
