/* SPDX-License-Identifier: Apache-2.0 */
/* What a fallible function returns. The function that decides that something is an error reports
 * it once, with tp_fail(); its callers only pass the status up. Outputs are written on TP_OK only.
 */
#ifndef TP_BASE_STATUS_H
#define TP_BASE_STATUS_H

enum tp_status {
    TP_OK = 0,
    TP_ERR_USAGE,     /* a mistaken command line: exit status 2 */
    TP_ERR_INPUT,     /* a file or a value is not what it has to be */
    TP_ERR_IO,        /* the system could not read or write */
    TP_ERR_MEMORY,    /* no memory, on the host or on a device */
    TP_ERR_DEVICE,    /* OpenCL, CLBlast or a check of theirs failed */
    TP_ERR_COMM,      /* MPI failed */
    TP_ERR_NONFINITE, /* loss or norm is not a number, more often than allowed */
    TP_ERR_STUCK,     /* the watchdog saw no progress */
    TP_STATUS_COUNT
};

/* Short name of a status, for example "device". Local. Never NULL. */
const char *tp_status_name(enum tp_status status);

/* Reports one error line (printf style, no newline) through tp_log() and returns status. Local. */
enum tp_status tp_fail(enum tp_status status, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns from the calling function when expr is not TP_OK. Only while nothing is held. */
#define TP_TRY(expr)                                                                               \
    do {                                                                                           \
        enum tp_status tp_try_status = (expr);                                                     \
        if (tp_try_status != TP_OK)                                                                \
            return tp_try_status;                                                                  \
    } while (0)

/* For our own bugs, never for input. Compiled in by --enable-debug only. */
void tp_assert_failed(const char *what, const char *file, int line);
#ifdef TP_DEBUG
#define TP_ASSERT(what) ((what) ? (void)0 : tp_assert_failed(#what, __FILE__, __LINE__))
#else
#define TP_ASSERT(what) ((void)sizeof(what))
#endif

#endif
