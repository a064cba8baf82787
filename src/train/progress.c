/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "train/progress.h"

/* Open MPI gives a rank a terminal of its own, whether or not mpirun writes to one, so the parent's
 * stdout has to be one too. */
static bool on_terminal(void)
{
    char path[64];

    if (!isatty(STDOUT_FILENO))
        return false;
    snprintf(path, sizeof path, "/proc/%ld/fd/1", (long)getppid());
    int fd = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    bool terminal = isatty(fd);
    close(fd);
    return terminal;
}

void tp_progress_init(struct tp_progress *progress, int64_t first, int64_t steps)
{
    *progress = (struct tp_progress){
        .first = first, .steps = steps, .began = tp_clock_now(), .bar = on_terminal()};
}

static void clear_bar(const struct tp_progress *progress)
{
    if (progress->bar)
        fputs("\r\033[K", stdout);
}

static void draw_bar(const struct tp_progress *progress, int64_t done)
{
    static const char full[] = "########################################";
    const int width = sizeof full - 1;
    double part = (double)done / (double)progress->steps;
    double per_step = (tp_clock_now() - progress->began) / (double)(done - progress->first);
    long left = lround(per_step * (double)(progress->steps - done));

    printf("\r\033[K[%-*.*s] %3.0f %%  %ld:%02ld:%02ld left", width, (int)(part * width), full,
           100 * part, left / 3600, left / 60 % 60, left % 60);
}

void tp_progress_step(struct tp_progress *progress, const struct tp_step_metrics *metrics,
                      bool print)
{
    int64_t done = metrics->step + 1;

    if (print) {
        clear_bar(progress);
        printf("step %5" PRId64 "/%" PRId64
               " | loss %.6f | norm %.4f | lr %.2e | %.2f ms | %.0f tok/s\n",
               done, progress->steps, metrics->loss, metrics->grad_norm, metrics->lr,
               1e3 * metrics->seconds, metrics->tokens_per_second);
    }
    if (progress->bar)
        draw_bar(progress, done);
    fflush(stdout);
}

void tp_progress_validation(struct tp_progress *progress, int64_t done, double loss)
{
    clear_bar(progress);
    printf("step %5" PRId64 "/%" PRId64 " | validation loss %.6f | perplexity %.4f\n", done,
           progress->steps, loss, exp(loss));
    fflush(stdout);
}

void tp_progress_end(struct tp_progress *progress)
{
    clear_bar(progress);
    fflush(stdout);
}
