/* Implements `cox bench BENCHMARK`: finds the benchmark's command and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/base/program_name.h"
#include "cli/commands/list.h"

int cmd_bench(const struct command_table *t, int argc, char **argv)
{
    char name[40];
    if (argc > 1 && argv[1][0] != '-') {
        snprintf(name, sizeof name, "bench %.20s", argv[1]);
        const struct command *c = command_find(t, name);
        if (c) {
            argv[1] = name;
            return command_run(t, c, argc - 1, argv + 1);
        }
        fprintf(stderr, "cox bench: unknown benchmark \"%.20s\"; ", argv[1]);
    }
    bool asked = argc == 2 && (strncmp(argv[1], "--help", 6) == 0 || strcmp(argv[1], "-h") == 0);
    FILE *to = asked ? stdout : stderr;
    fprintf(to, "usage: %s bench BENCHMARK [OPTION...]\n\n", program_name());
    for (size_t i = 0; i < t->n; i++)
        if (strncmp(t->rows[i].name, "bench ", 6) == 0)
            fprintf(to, "  %-11s %s\n", t->rows[i].name + 6, t->rows[i].help);
    fprintf(to, "\n`%s bench BENCHMARK --help` lists its options.\n", program_name());
    return asked ? EXIT_FINE : EXIT_USAGE;
}
