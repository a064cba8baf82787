/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/status.h"

#include <signal.h>
#include <stdarg.h>

#include "base/log.h"

static const char *const names[TP_STATUS_COUNT] = {
    [TP_OK] = "ok",         [TP_ERR_USAGE] = "usage",         [TP_ERR_INPUT] = "input",
    [TP_ERR_IO] = "io",     [TP_ERR_MEMORY] = "memory",       [TP_ERR_DEVICE] = "device",
    [TP_ERR_COMM] = "comm", [TP_ERR_NONFINITE] = "nonfinite", [TP_ERR_STUCK] = "stuck",
};

const char *tp_status_name(enum tp_status status)
{
    if ((int)status < 0 || status >= TP_STATUS_COUNT)
        return "unknown";
    return names[status];
}

enum tp_status tp_fail(enum tp_status status, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    tp_log_list(TP_LOG_ERROR, format, arguments);
    va_end(arguments);
    return status;
}

void tp_assert_failed(const char *what, const char *file, int line)
{
    tp_log_release(true);
    tp_log(TP_LOG_ERROR, "%s:%d: our own mistake: %s does not hold", file, line, what);
    raise(SIGABRT);
}
