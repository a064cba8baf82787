/* SPDX-License-Identifier: Apache-2.0 */
/* Lines for people, on stderr. Under MPI every rank starts silent for errors ("held"), so that the
 * ranks can agree first and the lowest failing one prints the only line. */
#ifndef TP_BASE_LOG_H
#define TP_BASE_LOG_H

#include <stdarg.h>
#include <stdbool.h>

enum tp_log_level { TP_LOG_ERROR, TP_LOG_WARNING, TP_LOG_INFO, TP_LOG_DEBUG };

/* Prints "terapipe: error: ..." (or warning, note, debug) as one write of one line. Local.
 * While held, an error is kept instead (the first one only). Lines above the level are dropped;
 * control characters are printed as '?'. */
void tp_log(enum tp_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void tp_log_list(enum tp_log_level level, const char *format, va_list arguments)
    __attribute__((format(printf, 2, 0)));

/* Most verbose level that is printed; TP_LOG_INFO at start. Local. */
void tp_log_set_level(enum tp_log_level level);

/* Rank that lines are marked with ("terapipe: rank 2: ..."); -1, the start value, marks none.
 * Local. */
void tp_log_set_rank(int rank);

/* From now on errors are kept. Local. */
void tp_log_hold(void);

/* Ends holding; prints the kept error when there is one and print_kept is true, else drops it.
 * Local. */
void tp_log_release(bool print_kept);

/* Prints the kept error, if there is one, as a warning and drops it; holding goes on. For a failure
 * that is not the end, such as of the first of several files that would do. Local. */
void tp_log_demote(void);

#endif
