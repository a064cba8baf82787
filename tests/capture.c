/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "capture.h"

static FILE *kept;
static int real_stderr = -1;
static char text[4096];

static void need(int works)
{
    if (!works) {
        perror("capture");
        abort();
    }
}

void capture_begin(void)
{
    fflush(stderr);
    kept = tmpfile();
    need(kept != NULL);
    real_stderr = dup(STDERR_FILENO);
    need(real_stderr >= 0 && dup2(fileno(kept), STDERR_FILENO) >= 0);
}

const char *capture_end(void)
{
    fflush(stderr);
    need(dup2(real_stderr, STDERR_FILENO) >= 0);
    close(real_stderr);
    rewind(kept);
    text[fread(text, 1, sizeof text - 1, kept)] = '\0';
    fclose(kept);
    return text;
}
