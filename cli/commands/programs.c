/* Implements `cox head`, `worker`, `gateway`, `replay` and `plan`. Each of them replaces this
 * process by the program in the same folder. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/plan_set.h"
#include "cli/pull/plan_remote.h"
#include "cli/pull/worker_stream.h"
#include "cli/up/prepare/model_fetch.h"
#include "common/base/mem.h"

static int become(const char *program, char **argv)
{
    char path[PATH_MAX + 32];
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash = NULL;
    if (n > 0) {
        path[n] = '\0';
        slash = strrchr(path, '/');
    }
    if (!slash) {
        fprintf(stderr, "cox %s: cannot find the program's folder: /proc/self/exe: %s\n", argv[0],
                strerror(errno));
        return EXIT_FAILED;
    }
    memcpy(slash + 1, program, strlen(program) + 1);
    const char *name = argv[0];
    argv[0] = path;
    execv(path, argv);
    fprintf(stderr, "cox %s: cannot run %s: %s\n", name, path, strerror(errno));
    return EXIT_FAILED;
}

int cmd_head(int argc, char **argv)
{
    return become("cox-head", argv);
}

/* Executes a program in one of its modes, such as `replay` of cox-head. */
static int become_mode(const char *file, char *mode, int argc, char **argv)
{
    char program[] = "cox";
    char **args = mem_array((size_t)argc + 2, sizeof *args);
    args[0] = program;
    args[1] = mode;
    for (int i = 1; i < argc; i++)
        args[i + 1] = argv[i];
    int code = become(file, args);
    mem_free(args);
    return code;
}

/* Executes cox-head for `cox replay`, because cox-head contains the scheduler. */
int cmd_replay(int argc, char **argv)
{
    char mode[] = "replay";
    return become_mode("cox-head", mode, argc, argv);
}

/* Executes cox-worker for `cox plan`. cox-worker computes the memory that a rank needs, even for
 * GPUs of other machines. */
static int become_plan(int argc, char **argv)
{
    char mode[] = "plan";
    return become_mode("cox-worker", mode, argc, argv);
}

int cmd_plan(int argc, char **argv)
{
    int code = plan_set(argc, argv);
    code = code >= 0 ? code : plan_remote(argc, argv, become_plan);
    return code >= 0 ? code : become_plan(argc, argv);
}

int cmd_worker(int argc, char **argv)
{
    char **args = argv;
    int code = worker_stream(argc, argv, &args);
    if (code == EXIT_FINE && args == argv)
        code = model_fetch_for_worker(argc, argv);
    return code != EXIT_FINE ? code : become("cox-worker", args);
}

int cmd_gateway(int argc, char **argv)
{
    int code = model_fetch_for_gateway(argc, argv);
    return code != EXIT_FINE ? code : become("cox-gateway", argv);
}
