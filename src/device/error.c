/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <clblast_c.h>
#include <string.h>

#include "opencl.h"

/* Codes by their own names, from the headers that define them. */
#define NAMED(code)                                                                                \
    {                                                                                              \
        code, #code                                                                                \
    }
static const struct {
    int code;
    const char *name;
} errors[] = {
    NAMED(CL_DEVICE_NOT_FOUND),
    NAMED(CL_DEVICE_NOT_AVAILABLE),
    NAMED(CL_COMPILER_NOT_AVAILABLE),
    NAMED(CL_MEM_OBJECT_ALLOCATION_FAILURE),
    NAMED(CL_OUT_OF_RESOURCES),
    NAMED(CL_OUT_OF_HOST_MEMORY),
    NAMED(CL_MEM_COPY_OVERLAP),
    NAMED(CL_BUILD_PROGRAM_FAILURE),
    NAMED(CL_MAP_FAILURE),
    NAMED(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST),
    NAMED(CL_INVALID_VALUE),
    NAMED(CL_INVALID_DEVICE),
    NAMED(CL_INVALID_CONTEXT),
    NAMED(CL_INVALID_COMMAND_QUEUE),
    NAMED(CL_INVALID_MEM_OBJECT),
    NAMED(CL_INVALID_BINARY),
    NAMED(CL_INVALID_BUILD_OPTIONS),
    NAMED(CL_INVALID_PROGRAM),
    NAMED(CL_INVALID_PROGRAM_EXECUTABLE),
    NAMED(CL_INVALID_KERNEL_NAME),
    NAMED(CL_INVALID_KERNEL),
    NAMED(CL_INVALID_ARG_INDEX),
    NAMED(CL_INVALID_ARG_VALUE),
    NAMED(CL_INVALID_ARG_SIZE),
    NAMED(CL_INVALID_KERNEL_ARGS),
    NAMED(CL_INVALID_WORK_GROUP_SIZE),
    NAMED(CL_INVALID_WORK_ITEM_SIZE),
    NAMED(CL_INVALID_EVENT_WAIT_LIST),
    NAMED(CL_INVALID_EVENT),
    NAMED(CL_INVALID_OPERATION),
    NAMED(CL_INVALID_BUFFER_SIZE),
    NAMED(CL_INVALID_GLOBAL_WORK_SIZE),
    NAMED(CLBlastNotImplemented),
    NAMED(CLBlastInvalidMatrixA),
    NAMED(CLBlastInvalidMatrixB),
    NAMED(CLBlastInvalidMatrixC),
    NAMED(CLBlastInvalidDimension),
    NAMED(CLBlastInvalidLeadDimA),
    NAMED(CLBlastInvalidLeadDimB),
    NAMED(CLBlastInvalidLeadDimC),
    NAMED(CLBlastInsufficientMemoryA),
    NAMED(CLBlastInsufficientMemoryB),
    NAMED(CLBlastInsufficientMemoryC),
    NAMED(CLBlastInsufficientMemoryTemp),
    NAMED(CLBlastInvalidLocalMemUsage),
    NAMED(CLBlastDatabaseError),
    NAMED(CLBlastUnknownError),
    NAMED(CLBlastUnexpectedError),
};

static const char *error_name(int code)
{
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (errors[i].code == code)
            return errors[i].name;
    return "unknown error";
}

enum tp_status tp_cl_fail(const char *call, int code, const char *file, int line)
{
    const char *base = strrchr(file, '/');
    const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY;
    return tp_fail(memory ? TP_ERR_MEMORY : TP_ERR_DEVICE, "%.*s: %s (%d), at %s:%d",
                   (int)strcspn(call, "("), call, error_name(code), code, base ? base + 1 : file,
                   line);
}
