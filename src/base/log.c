/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/log.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const marks[] = {
    [TP_LOG_ERROR] = "error",
    [TP_LOG_WARNING] = "warning",
    [TP_LOG_INFO] = "note",
    [TP_LOG_DEBUG] = "debug",
};

/* The longest message, with its end; what is beyond it is cut off. Fixed, so that reporting needs
 * no memory. */
enum { MESSAGE = 4000 };

static struct {
    enum tp_log_level level;
    int rank;
    bool held;          /* errors are kept */
    char kept[MESSAGE]; /* the first of them; "" for none */
} logger = {.level = TP_LOG_INFO, .rank = -1};

/* A line stays one line, whatever a file or an argument put into it. */
static void flatten(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 127)
            *text = '?';
}

/* One write, so that lines of several processes do not mix. */
static void print(enum tp_log_level level, const char *message)
{
    char rank[32] = "", line[MESSAGE + 64];

    if (logger.rank >= 0)
        snprintf(rank, sizeof rank, "rank %d: ", logger.rank);
    snprintf(line, sizeof line, "terapipe: %s%s: %s\n", rank, marks[level], message);
    ssize_t written = write(STDERR_FILENO, line, strlen(line));

    (void)written; /* there is nowhere left to say that it failed */
}

void tp_log_list(enum tp_log_level level, const char *format, va_list arguments)
{
    char message[MESSAGE];

    if (level > logger.level)
        return;
    vsnprintf(message, sizeof message, format, arguments);
    flatten(message);
    if (level != TP_LOG_ERROR || !logger.held)
        print(level, message);
    else if (!logger.kept[0])
        strcpy(logger.kept, message);
}

void tp_log(enum tp_log_level level, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    tp_log_list(level, format, arguments);
    va_end(arguments);
}

void tp_log_set_level(enum tp_log_level level)
{
    logger.level = level;
}

void tp_log_set_rank(int rank)
{
    logger.rank = rank;
}

void tp_log_hold(void)
{
    logger.held = true;
}

void tp_log_release(bool print_kept)
{
    if (print_kept && logger.kept[0])
        print(TP_LOG_ERROR, logger.kept);
    logger.held = false;
    logger.kept[0] = '\0';
}

void tp_log_demote(void)
{
    if (logger.kept[0])
        tp_log(TP_LOG_WARNING, "%s", logger.kept);
    logger.kept[0] = '\0';
}
