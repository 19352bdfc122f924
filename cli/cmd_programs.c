/* `cox head`, `cox worker`, `cox gateway`, `cox replay`: become the program that lies next to this
 * one. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/command.h"
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
        fprintf(stderr, "cox %s: /proc/self/exe: %s\n", argv[0], strerror(errno));
        return EXIT_FAILED;
    }
    memcpy(slash + 1, program, strlen(program) + 1);
    const char *name = argv[0];
    argv[0] = path;
    execv(path, argv);
    fprintf(stderr, "cox %s: %s: %s\n", name, path, strerror(errno));
    return EXIT_FAILED;
}

int cmd_head(int argc, char **argv)
{
    return become("cox-head", argv);
}

/* The scheduler is in cox-head: it replays, too. */
int cmd_replay(int argc, char **argv)
{
    char program[] = "cox", mode[] = "replay";
    char **args = mem_array((size_t)argc + 2, sizeof *args);
    args[0] = program;
    args[1] = mode;
    for (int i = 1; i < argc; i++)
        args[i + 1] = argv[i];
    int code = become("cox-head", args);
    mem_free(args);
    return code;
}

int cmd_worker(int argc, char **argv)
{
    return become("cox-worker", argv);
}

int cmd_gateway(int argc, char **argv)
{
    return become("cox-gateway", argv);
}
