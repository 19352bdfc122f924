#include <stdio.h>
#include <string.h>

#include "cli/command.h"
#include "common/base/crash.h"
#include "common/base/first_process.h"

int main(int argc, char **argv)
{
    crash_install();
    first_process_install();
    if (argc < 2) {
        char help[] = "help";
        (void)cmd_help(1, (char *[]){help, NULL});
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0)
        return cmd_help(1, argv + 1);
    if (strcmp(name, "--version") == 0)
        return cmd_version(1, argv + 1);
    const struct command *c = command_find(name);
    if (c)
        return c->run(argc - 1, argv + 1);
    const struct command *near = command_nearest(name);
    if (near)
        fprintf(stderr, "cox: no command \"%s\"; did you mean \"%s\"?\n", name, near->name);
    else
        fprintf(stderr, "cox: no command \"%s\"; `cox help` lists them\n", name);
    return EXIT_USAGE;
}
