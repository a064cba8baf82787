/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum tp_status tp_file_open(const char *path, int *fd, uint64_t *size)
{
    struct stat info;

    /* O_NONBLOCK: a pipe without a writer is refused below instead of waited for. */
    int opened = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (opened < 0)
        return tp_fail(TP_ERR_INPUT, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(opened, &info) != 0) {
        enum tp_status status = tp_fail(TP_ERR_IO, "%s: %s", path, strerror(errno));
        close(opened);
        return status;
    }
    if (!S_ISREG(info.st_mode)) {
        close(opened);
        return tp_fail(TP_ERR_INPUT, "%s: is a %s, expected a file", path,
                       S_ISDIR(info.st_mode) ? "folder" : "device or pipe");
    }
    *fd = opened;
    *size = (uint64_t)info.st_size;
    return TP_OK;
}

enum tp_status tp_file_read_at(int fd, const char *path, uint64_t place, void *out, size_t size)
{
    char *at = out;

    while (size > 0) {
        ssize_t n = pread(fd, at, size, (off_t)place);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tp_fail(TP_ERR_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n == 0)
            return tp_fail(TP_ERR_IO, "%s: became shorter while it was read", path);
        at += n;
        place += (uint64_t)n;
        size -= (size_t)n;
    }
    return TP_OK;
}

enum tp_status tp_file_read(const char *path, size_t limit, char **text, size_t *size)
{
    enum tp_status status;
    uint64_t length;
    char *buffer;
    int fd;

    TP_TRY(tp_file_open(path, &fd, &length));
    if (length > limit) {
        status = tp_fail(TP_ERR_INPUT, "%s: has %llu bytes, expected at most %zu", path,
                         (unsigned long long)length, limit);
        goto close_file;
    }
    buffer = malloc((size_t)length + 1);
    if (!buffer) {
        status = tp_fail(TP_ERR_MEMORY, "%s: no memory to read it", path);
        goto close_file;
    }
    status = tp_file_read_at(fd, path, 0, buffer, (size_t)length);
    if (status != TP_OK) {
        free(buffer);
        goto close_file;
    }
    buffer[length] = '\0';
    *text = buffer;
    *size = (size_t)length;
close_file:
    close(fd);
    return status;
}

enum tp_status tp_file_write_all(int fd, const char *path, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t n = write(fd, at, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return tp_fail(TP_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
        at += n;
        size -= (size_t)n;
    }
    return TP_OK;
}

enum tp_status tp_file_close(int fd, const char *path)
{
    /* EINVAL: a device, which has nothing to flush. */
    bool flushed = fsync(fd) == 0 || errno == EINVAL || errno == EROFS;
    int error = errno;

    if (close(fd) != 0 && flushed) {
        flushed = false;
        error = errno;
    }
    if (!flushed)
        return tp_fail(TP_ERR_IO, "%s: cannot write: %s", path, strerror(error));
    return TP_OK;
}

/* Writes a file in place. path is what errors call it. */
static enum tp_status write_at(const char *place, const char *path, const void *data, size_t size)
{
    int fd = open(place, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    if (fd < 0)
        return tp_fail(TP_ERR_IO, "%s: cannot write: %s", path, strerror(errno));
    enum tp_status status = tp_file_write_all(fd, path, data, size);
    if (status != TP_OK) {
        close(fd);
        return status;
    }
    return tp_file_close(fd, path);
}

/* A name beside path that no other process uses. malloc'd; NULL without memory. */
static char *temporary_name(const char *path)
{
    size_t size = strlen(path) + 32;
    char *name = malloc(size);

    if (name)
        snprintf(name, size, "%s.tmp.%ld", path, (long)getpid());
    return name;
}

enum tp_status tp_file_write(const char *path, const void *data, size_t size)
{
    struct stat info;

    /* A device or a pipe is written to, never replaced. */
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return write_at(path, path, data, size);

    char *temporary = temporary_name(path);
    if (!temporary)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to write it", path);
    enum tp_status status = write_at(temporary, path, data, size);
    if (status == TP_OK)
        status = tp_file_rename(temporary, path);
    if (status != TP_OK)
        unlink(temporary);
    free(temporary);
    return status;
}

enum tp_status tp_file_rename(const char *from, const char *to)
{
    if (rename(from, to) != 0)
        return tp_fail(TP_ERR_IO, "%s: cannot be put in place: %s", to, strerror(errno));
    return TP_OK;
}

enum tp_status tp_file_make_folder(const char *path)
{
    enum tp_status status = TP_OK;
    char *part = strdup(path);

    if (!part)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to make it", path);
    for (char *at = part + 1; part[0] && status == TP_OK; at++) {
        bool whole = *at == '\0';
        if (!whole && *at != '/')
            continue;
        *at = '\0';
        const int error = mkdir(part, 0777) != 0 ? errno : 0; /* the next call changes errno */
        if (error != 0 && !tp_file_is_folder(part))
            status = tp_fail(TP_ERR_IO, "%s: cannot make the folder: %s", path, strerror(error));
        if (whole)
            break;
        *at = '/';
    }
    if (!part[0])
        status = tp_fail(TP_ERR_IO, "a folder's name is empty");
    free(part);
    return status;
}

enum tp_status tp_file_make_parent(const char *path)
{
    char *folder = strdup(path);

    if (!folder)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its name", path);
    char *slash = strrchr(folder, '/');
    enum tp_status status = TP_OK;
    if (slash && slash != folder) {
        *slash = '\0';
        status = tp_file_make_folder(folder);
    }
    free(folder);
    return status;
}

/* Writes a file there and deletes it. path is what errors call it. */
static enum tp_status probe_in(const char *folder, const char *path)
{
    char name[64];

    snprintf(name, sizeof name, ".probe.%ld", (long)getpid());
    char *probe = tp_file_join(folder, name);
    if (!probe)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory to try it", path);
    enum tp_status status = write_at(probe, path, "probe\n", 6);
    unlink(probe);
    free(probe);
    return status;
}

enum tp_status tp_file_probe_folder(const char *path)
{
    return probe_in(path, path);
}

enum tp_status tp_file_probe(const char *path)
{
    char *folder = strdup(path);

    if (!folder)
        return tp_fail(TP_ERR_MEMORY, "%s: no memory for its name", path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    enum tp_status status = TP_OK;
    if (tp_file_is_folder(path))
        status = tp_fail(TP_ERR_IO, "%s: is a folder, expected a file", path);
    else if (!tp_file_exists(path))
        status = probe_in(slash ? folder : ".", path);
    free(folder);
    return status;
}

enum tp_status tp_file_lock_folder(const char *path, int *fd)
{
    int opened = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (opened < 0)
        return tp_fail(TP_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    if (flock(opened, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        close(opened);
        return tp_fail(TP_ERR_IO, "%s: another process is writing there", path);
    }
    *fd = opened;
    return TP_OK;
}

enum tp_status tp_file_sync(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return tp_fail(TP_ERR_IO, "%s: cannot open: %s", path, strerror(errno));
    return tp_file_close(fd, path);
}

bool tp_file_is_folder(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

bool tp_file_exists(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0;
}

bool tp_file_is_same(const char *a, const char *b)
{
    struct stat one, other;

    return stat(a, &one) == 0 && stat(b, &other) == 0 && S_ISREG(one.st_mode) &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

char *tp_file_cache_folder(void)
{
    const char *base = getenv("XDG_CACHE_HOME");
    const char *name = "terapipe";

    if (base == NULL || base[0] != '/') {
        base = getenv("HOME");
        name = ".cache/terapipe";
    }
    return base != NULL && base[0] == '/' ? tp_file_join(base, name) : NULL;
}

char *tp_file_join(const char *folder, const char *name)
{
    size_t length = strlen(folder);
    size_t size = length + strlen(name) + 2;
    bool slash = length > 0 && folder[length - 1] != '/';
    char *path = malloc(size);

    if (path)
        snprintf(path, size, "%s%s%s", folder, slash ? "/" : "", name);
    return path;
}
