/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/child.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

volatile sig_atomic_t tp_child_stop;

/* Seconds between two looks at tp_child_stop. */
static const double look = 0.2;

/* What goes to the child: a question, and how long it may take. */
struct asked {
    int question;
    unsigned seconds;
};

/* ---- In the child ---- */

/* Answers until the line is closed. A child whose parent is gone ends by that, or by the alarm. */
static enum tp_status answer_all(int line, tp_child_body *body, void *self, size_t answer_size)
{
    void *answer = malloc(answer_size);
    struct asked asked;

    if (!answer)
        return tp_fail(TP_ERR_MEMORY, "no memory for an answer of %zu bytes", answer_size);
    while (recv(line, &asked, sizeof asked, MSG_WAITALL) == sizeof asked) {
        alarm(asked.seconds);
        memset(answer, 0, answer_size);
        enum tp_status status = body(self, asked.question, answer);
        alarm(0);
        if (status != TP_OK)
            return status;
        if (send(line, answer, answer_size, MSG_NOSIGNAL) != (ssize_t)answer_size)
            break;
    }
    return TP_OK;
}

/* Not in the terminal's group: an interrupt from there is for the parent, which ends the child. */
static void live(int line, tp_child_body *body, void *self, size_t answer_size, FILE *said)
{
    setpgid(0, 0);
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    if (said)
        dup2(fileno(said), STDERR_FILENO);
    /* _exit: what the parent has not yet printed is the parent's to print. */
    _exit((int)answer_all(line, body, self, answer_size));
}

/* ---- In the parent ---- */

enum tp_status tp_child_start(struct tp_child *child, tp_child_body *body, void *self,
                              size_t answer_size, bool quiet)
{
    struct tp_child started = {.answer_size = answer_size, .said = quiet ? tmpfile() : NULL};
    int lines[2];

    if (quiet && !started.said)
        return tp_fail(TP_ERR_IO, "no temporary file for a process: %s", strerror(errno));
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, lines) != 0)
        goto close_said;
    started.id = fork();
    if (started.id < 0)
        goto close_lines;
    if (started.id == 0) {
        close(lines[0]);
        live(lines[1], body, self, answer_size, started.said);
    }
    close(lines[1]);
    started.line = lines[0];
    *child = started;
    return TP_OK;
close_lines:
    close(lines[0]);
    close(lines[1]);
close_said:
    if (started.said)
        fclose(started.said);
    return tp_fail(TP_ERR_IO, "no process to try things in: %s", strerror(errno));
}

/* The last line that a quiet child said, without what marks it as an error of this program. */
static void last_said(FILE *said, char reason[TP_CHILD_REASON])
{
    char line[1024];

    rewind(said);
    while (fgets(line, sizeof line, said)) {
        const char *mark = strstr(line, "error: ");
        const char *text = mark ? mark + strlen("error: ") : line;
        if (text[0] != '\n')
            snprintf(reason, TP_CHILD_REASON, "%.*s", (int)strcspn(text, "\n"), text);
    }
}

/* Takes leave of a child and gives its wait status. */
static int bury(struct tp_child *child)
{
    int state = 0;

    close(child->line);
    while (waitpid(child->id, &state, 0) < 0 && errno == EINTR)
        ;
    child->id = 0;
    return state;
}

static void forget(struct tp_child *child)
{
    if (child->said)
        fclose(child->said);
    *child = (struct tp_child){0};
}

void tp_child_end(struct tp_child *child)
{
    if (child->id == 0)
        return;
    kill(child->id, SIGKILL);
    bury(child);
    forget(child);
}

/* A child that has closed its line. */
static enum tp_child_outcome find_cause(struct tp_child *child, enum tp_status *status,
                                        char reason[TP_CHILD_REASON])
{
    const int state = bury(child);
    enum tp_child_outcome outcome = TP_CHILD_DIED;

    if (WIFSIGNALED(state) && WTERMSIG(state) != SIGALRM) {
        snprintf(reason, TP_CHILD_REASON, "ended by signal %d (%s)", WTERMSIG(state),
                 strsignal(WTERMSIG(state)));
    } else if (WIFSIGNALED(state)) {
        snprintf(reason, TP_CHILD_REASON, "no answer in time");
        outcome = TP_CHILD_LATE;
    } else if (WEXITSTATUS(state) > TP_OK && WEXITSTATUS(state) < TP_STATUS_COUNT) {
        *status = (enum tp_status)WEXITSTATUS(state);
        snprintf(reason, TP_CHILD_REASON, "%s error", tp_status_name(*status));
        if (child->said)
            last_said(child->said, reason);
        outcome = TP_CHILD_FAILED;
    } else {
        snprintf(reason, TP_CHILD_REASON, "ended with exit status %d", WEXITSTATUS(state));
    }
    forget(child);
    return outcome;
}

/* Waits until the line has something to read, or is closed. */
static enum tp_child_outcome wait_for(const struct tp_child *child, double seconds)
{
    const double end = tp_clock_now() + seconds;
    struct pollfd line = {.fd = child->line, .events = POLLIN};

    for (;;) {
        const double left = end - tp_clock_now();
        if (tp_child_stop)
            return TP_CHILD_STOPPED;
        if (left <= 0)
            return TP_CHILD_LATE;
        if (poll(&line, 1, (int)(1e3 * (left < look ? left : look)) + 1) > 0)
            return TP_CHILD_ANSWERED;
    }
}

enum tp_child_outcome tp_child_ask(struct tp_child *child, int question, double seconds,
                                   void *answer, enum tp_status *status,
                                   char reason[TP_CHILD_REASON])
{
    /* The alarm only matters when this process is no longer there to wait. */
    const struct asked asked = {question, (unsigned)seconds + 5};

    *status = TP_ERR_DEVICE;
    if (send(child->line, &asked, sizeof asked, MSG_NOSIGNAL) != sizeof asked)
        return find_cause(child, status, reason);
    const enum tp_child_outcome outcome = wait_for(child, seconds);
    if (outcome != TP_CHILD_ANSWERED) {
        if (outcome == TP_CHILD_LATE)
            snprintf(reason, TP_CHILD_REASON, "no answer within %.0f s", seconds);
        tp_child_end(child);
        return outcome;
    }
    if (recv(child->line, answer, child->answer_size, MSG_WAITALL) != (ssize_t)child->answer_size)
        return find_cause(child, status, reason);
    return TP_CHILD_ANSWERED;
}
