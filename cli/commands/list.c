/* Searches the table of commands. It finds a command by its name, and the nearest name for an
 * unknown command. It also prints the text of `cox help`. */
#include "cli/commands/list.h"

#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "common/base/str.h"
#include "common/config/distance.h"

const struct command *command_find(const struct command_table *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->rows[i].name, name) == 0)
            return &t->rows[i];
    return NULL;
}

const struct command *command_nearest(const struct command_table *t, const char *name)
{
    const struct command *best = NULL;
    const bool has_blank = strchr(name, ' ') != NULL;
    const size_t n_group = has_blank ? strcspn(name, " ") + 1 : 0;
    size_t best_distance = strlen(name + n_group) / 3 + 2;
    for (size_t i = 0; i < t->n; i++) {
        const char *row = t->rows[i].name;
        bool is_like = t->rows[i].help && (strchr(row, ' ') != NULL) == has_blank &&
                       strncmp(row, name, n_group) == 0;
        size_t d = is_like ? str_distance(str_from(name), str_from(row)) : best_distance;
        if (d < best_distance) {
            best_distance = d;
            best = &t->rows[i];
        }
    }
    return best;
}

int command_run(const struct command_table *t, const struct command *c, int argc, char **argv)
{
    return c->run_among ? c->run_among(t, argc, argv) : c->run(argc, argv);
}

static void print_section(const struct command_table *t, const struct command_section *s)
{
    char name[32];
    printf("\n%s:\n", s->title);
    for (const char *at = s->names; *at; at += strspn(at, " ")) {
        size_t n = strcspn(at, " ");
        str_copy(name, sizeof name, (struct str){at, n});
        const struct command *c = command_find(t, name);
        if (c)
            printf("  %-11s %s\n", c->name, c->help);
        at += n;
    }
}

int cmd_help(const struct command_table *t, int argc, char **argv)
{
    if (argc > 1) {
        const struct command *c = command_find(t, argv[1]);
        if (!c || c->run_among == cmd_help) {
            fprintf(stderr, "cox help: unknown command \"%s\"; `cox help` lists the commands\n",
                    argv[1]);
            return EXIT_USAGE;
        }
        char name[32], help[] = "--help";
        snprintf(name, sizeof name, "%s", c->name);
        return command_run(t, c, 2, (char *[]){name, help, NULL});
    }
    printf("cox: LLM inference on a cluster\n\nusage: cox COMMAND [OPTION...]\n");
    for (const struct command_section *s = t->sections; s->title; s++)
        print_section(t, s);
    printf("\n`cox COMMAND --help` shows the options of a command.\n"
           "Exit codes: 0 success, 1 failure, 2 wrong usage or configuration.\n");
    return EXIT_FINE;
}
