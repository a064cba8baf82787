/* SPDX-License-Identifier: Apache-2.0 */
/* Files as wholes. Errors name the path and what the system said. */
#ifndef TP_BASE_FILE_H
#define TP_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Reads a file of at most limit bytes. *text is malloc'd, NUL-terminated and the caller's. Local.
 * TP_ERR_INPUT when missing, not a regular file, or larger; TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_file_read(const char *path, size_t limit, char **text, size_t *size);

/* Opens a regular file for reading; the descriptor is the caller's to close. Local. TP_ERR_INPUT
 * when missing, a folder, a device or a pipe; TP_ERR_IO. */
enum tp_status tp_file_open(const char *path, int *fd, uint64_t *size);

/* Reads size bytes from a place of an open file. path is for errors. Local. TP_ERR_IO, also when
 * the file ends before. */
enum tp_status tp_file_read_at(int fd, const char *path, uint64_t place, void *out, size_t size);

/* Writes a file by rename: it is there whole or not at all. A device or a pipe is written to in
 * place. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_file_write(const char *path, const void *data, size_t size);

/* For files that are written piece by piece: writes all bytes; flushes to disk and closes (closed
 * on failure too). path is for errors. Local. TP_ERR_IO. */
enum tp_status tp_file_write_all(int fd, const char *path, const void *data, size_t size);
enum tp_status tp_file_close(int fd, const char *path);

/* Gives a file or folder another name, replacing what has it. Local. TP_ERR_IO. */
enum tp_status tp_file_rename(const char *from, const char *to);

/* Makes a folder and its parents; fine when it exists. Local. TP_ERR_IO. */
enum tp_status tp_file_make_folder(const char *path);

/* Makes the folder that a file of this name would be in, and its parents. Local. TP_ERR_IO,
 * TP_ERR_MEMORY. */
enum tp_status tp_file_make_parent(const char *path);

/* Makes sure that a folder can be written to, by writing and deleting a small file. Local.
 * TP_ERR_IO. */
enum tp_status tp_file_probe_folder(const char *path);

/* Makes sure that a file of this name could be written: it is no folder, and its folder can be
 * written to. Local. TP_ERR_IO, TP_ERR_MEMORY. */
enum tp_status tp_file_probe(const char *path);

/* Claims a folder, until *fd is closed or the process ends. A file system that knows no locks gives
 * it to everybody. Local. TP_ERR_IO when another process has it. */
enum tp_status tp_file_lock_folder(const char *path, int *fd);

/* Flushes a file or folder to disk, by path. Local. TP_ERR_IO. */
enum tp_status tp_file_sync(const char *path);

bool tp_file_is_folder(const char *path);
bool tp_file_exists(const char *path);

/* Are two names one file, and is it there? Local. */
bool tp_file_is_same(const char *a, const char *b);

/* The user's folder for what can be made again ("terapipe" in $XDG_CACHE_HOME, else in ~/.cache),
 * which may have to be made; malloc'd and the caller's. NULL where there is none. Local. */
char *tp_file_cache_folder(void);

/* "folder/name", malloc'd and the caller's. NULL without memory. Local. */
char *tp_file_join(const char *folder, const char *name);

#endif
