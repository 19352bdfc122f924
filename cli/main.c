#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/commands/list.h"
#include "cli/commands/vllm.h"
#include "cli/table.h"
#include "common/host/crash.h"
#include "common/host/first_process.h"

/* Returns the final exit code of the command. When output could not be written, for example on a
 * full disk, it is a failure. */
static int end(const char *name, int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr,
            "cox %s: the output is incomplete: writing failed. Check that the output is open and "
            "has free space\n",
            name);
    return code == EXIT_FINE ? EXIT_FAILED : code;
}

/* Returns the command of `cox` that equals a command of Ollama or Docker. Returns `name` for all
 * other names. */
static const char *meant(const char *name)
{
    static const char *const others[][2] = {
        {"list", "models"}, {"ls", "models"}, {"images", "models"}, {"start", "up"}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i][0]) == 0)
            return others[i][1];
    return name;
}

int main(int argc, char **argv)
{
    crash_install();
    first_process_install();
    if (vllm_is_called(argv[0]))
        return end(argc > 1 ? argv[1] : "help", vllm_main(&commands, argc, argv));
    if (argc < 2) {
        char help[] = "help";
        (void)cmd_help(&commands, 1, (char *[]){help, NULL});
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return end("help", cmd_help(&commands, 1, argv + 1));
    if (strcmp(name, "--version") == 0)
        return cmd_version_line();
    const struct command *c = command_find(&commands, name);
    if (c)
        return end(name, command_run(&commands, c, argc - 1, argv + 1));
    const struct command *near = command_nearest(&commands, meant(name));
    if (near)
        fprintf(stderr, "cox: unknown command \"%s\"; did you mean \"%s\"?\n", name, near->name);
    else
        fprintf(stderr, "cox: unknown command \"%s\"; `cox help` lists the commands\n", name);
    return EXIT_USAGE;
}
