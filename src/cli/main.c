/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mpi.h>

#include "base/log.h"
#include "cli/command.h"
#include "device/device.h"
#include "plan/search.h"
#include "train/phase.h"

enum { EXIT_USAGE = 2 };

const struct tp_command *const tp_commands[] = {
    &tp_command_train,   &tp_command_eval, &tp_command_generate,
    &tp_command_profile, &tp_command_plan, &tp_command_simulate,
    &tp_command_doctor,  &tp_command_tune, NULL};

static void print_usage(void)
{
    printf(
        "usage: terapipe COMMAND [OPTION...]\n"
        "       mpirun -n RANKS terapipe COMMAND [OPTION...]\n\n"
        "Trains GPT-like models over OpenCL devices and MPI ranks, pipelining token slices.\n\n");
    for (int i = 0; tp_commands[i]; i++)
        printf("  %-10s %s\n", tp_commands[i]->name, tp_commands[i]->summary);
    printf("\n  terapipe COMMAND --help lists a command's options; terapipe --version\n");
}

static const struct tp_command *find_command(const char *name)
{
    for (int i = 0; tp_commands[i]; i++)
        if (strcmp(tp_commands[i]->name, name) == 0)
            return tp_commands[i];
    return NULL;
}

/* A command line that was read. */
struct request {
    const struct tp_command *command;
    struct tp_option rows[TP_COMMAND_OPTIONS];
    int n_rows;
    struct tp_settings settings;
    struct tp_options options;
    char *record;
};

static enum tp_status fail_command(const char *name)
{
    char names[128] = "";

    for (int i = 0; tp_commands[i]; i++) {
        strcat(names, i > 0 ? ", " : "");
        strcat(names, tp_commands[i]->name);
    }
    return tp_fail(TP_ERR_USAGE, "%s: unknown command, expected one of %s", name, names);
}

/* What there is besides options. */
static enum tp_status take_argument(struct request *request)
{
    const struct tp_option_list *given = &request->options.positional;
    const struct tp_command *command = request->command;
    const int wanted = command->argument != NULL;

    if (given->count < wanted)
        return tp_fail(TP_ERR_USAGE, "%s is missing, see terapipe %s --help", command->argument,
                       command->name);
    if (given->count > wanted)
        return tp_fail(TP_ERR_USAGE, "%s: expected %s, see terapipe %s --help", given->at[wanted],
                       wanted ? "options and one file" : "options only", command->name);
    if (wanted && !given->at[0][0])
        return tp_fail(TP_ERR_USAGE, "%s: the value is empty, expected a file", command->argument);
    if (wanted)
        request->settings.plan = given->at[0];
    return TP_OK;
}

static enum tp_status read_request(struct request *request, int argc, char **argv)
{
    *request = (struct request){.settings.tokenizer = TP_TOKENIZER_NONE,
                                .settings.recompute = TP_RECOMPUTE_NEEDED};
    request->command = find_command(argv[1]);
    if (!request->command)
        return fail_command(argv[1]);
    request->n_rows = tp_command_rows(request->command, request->rows);
    TP_TRY(tp_options_parse(&request->options, request->rows, request->n_rows, &request->settings,
                            argc - 1, argv + 1));
    if (request->options.help)
        return TP_OK;
    TP_TRY(take_argument(request));
    TP_TRY(tp_settings_check_names(&request->settings));
    request->record =
        tp_command_record(request->command, request->rows, request->n_rows, &request->settings);
    if (!request->record)
        return tp_fail(TP_ERR_MEMORY, "no memory to record the options");
    request->settings.record = request->record;
    return TP_OK;
}

static void request_fini(struct request *request)
{
    tp_options_fini(&request->options);
    free(request->record);
}

static void print_help(const struct request *request)
{
    const struct tp_command *command = request->command;

    printf("usage: terapipe %s%s%s [OPTION...]\n\n%s\n\n", command->name,
           command->argument ? " " : "", command->argument ? command->argument : "",
           command->summary);
    tp_options_help(request->rows, request->n_rows, stdout);
}

/* Did mpirun or the like start this process as one of several? */
static bool is_launched(void)
{
    static const char *const marks[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK",
                                        "PMI_RANK"};

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (getenv(marks[i]))
            return true;
    return false;
}

static int exit_status(enum tp_status status)
{
    if (status == TP_OK)
        return EXIT_SUCCESS;
    return status == TP_ERR_USAGE ? EXIT_USAGE : EXIT_FAILURE;
}

/* All ranks together: is the command line right for all, then the command. */
static enum tp_status run_together(const struct request *request, enum tp_status read,
                                   struct tp_comm *world)
{
    bool alone = false;

    TP_TRY(tp_phase_end(world, read));
    if (tp_comm_rank(world) > 0)
        tp_log_set_level(TP_LOG_ERROR); /* notes and warnings come once */
    enum tp_status status = request->command->run(&request->settings, world, &alone);
    if (alone)
        MPI_Abort(MPI_COMM_WORLD, exit_status(status));
    return status;
}

/* A command for which this process is enough. */
static int run_locally(const struct request *request, enum tp_status read)
{
    bool alone;

    tp_log_release(true);
    return exit_status(read == TP_OK ? request->command->run(&request->settings, NULL, &alone)
                                     : read);
}

static int run_under_mpi(const struct request *request, enum tp_status read, int argc, char **argv)
{
    struct tp_comm *world;
    int provided;

    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS) {
        tp_log_release(true);
        return exit_status(tp_fail(TP_ERR_COMM, "MPI cannot be initialised"));
    }
    enum tp_status status = tp_comm_world(&world);
    if (status != TP_OK) {
        tp_log_release(true);
        MPI_Abort(MPI_COMM_WORLD, exit_status(status));
    }
    status = run_together(request, read, world);
    tp_comm_free(world);
    MPI_Finalize();
    return exit_status(status);
}

/* What was printed has to arrive, or the command has failed. */
static int end_output(int code)
{
    if ((fflush(stdout) == 0 && !ferror(stdout)) || code != EXIT_SUCCESS)
        return code;
    return exit_status(tp_fail(TP_ERR_IO, "standard output: cannot write all of it"));
}

int main(int argc, char **argv)
{
    struct request request;
    int code = EXIT_SUCCESS;

    tp_device_prepare(argv);
    /* A file that grows beyond its limit is an error to report, not a reason to die. */
    signal(SIGXFSZ, SIG_IGN);
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (argc < 2 || strcmp(argv[1], "--help") == 0) {
        print_usage();
        return end_output(argc < 2 ? EXIT_USAGE : EXIT_SUCCESS);
    }
    if (strcmp(argv[1], "--version") == 0) {
        puts(PACKAGE_STRING);
        return end_output(EXIT_SUCCESS);
    }
    tp_phase_begin();
    enum tp_status read = read_request(&request, argc, argv);
    if (read == TP_OK && request.options.help) {
        print_help(&request);
        tp_log_release(true);
    } else if (request.command && request.command->local) {
        code = run_locally(&request, read);
    } else if (read != TP_OK && !is_launched()) {
        tp_log_release(true);
        code = exit_status(read);
    } else {
        code = run_under_mpi(&request, read, argc, argv);
    }
    request_fini(&request);
    return end_output(code);
}
