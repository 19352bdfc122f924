/* Implements `cox run -f FILE`, and calls the subcommands of `cox run`. */
#include <stdio.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/commands/list.h"
#include "cli/commands/run/create.h"
#include "cli/commands/run/options.h"
#include "cli/commands/tables.h"
#include "cli/run/source.h"

#define S run_options
const struct option_spec run_specs[] = {
    RUN_ROW_FILE(S),
    OPT_BOOL(S, check, "check", NULL, "Check the file and start nothing."),
    RUN_ROW_DIR(S),
};
#undef S
const size_t run_n_specs = sizeof run_specs / sizeof run_specs[0];

static enum status check(const char *path, struct error *err)
{
    struct run_source source;
    enum status s = run_source_open(&source, path, true, err);
    if (s == STATUS_OK)
        printf("%s is valid; `cox run -f %s` starts it\n", path, path);
    run_source_close(&source);
    return s;
}

/* ---- subcommands ---- */

static int unknown_command(const struct command_table *t, const char *name)
{
    fprintf(stderr, "cox run: unknown command \"%.20s\"; use cox run -f FILE, or", name);
    const char *between = " cox run ";
    for (size_t i = 0; i < t->n; i++)
        if (strncmp(t->rows[i].name, "run ", 4) == 0) {
            fprintf(stderr, "%s%s", between, t->rows[i].name + 4);
            between = "|";
        }
    fputc('\n', stderr);
    return EXIT_USAGE;
}

int cmd_run(const struct command_table *t, int argc, char **argv)
{
    char name[40];
    struct run_options o = {0};
    struct config_result res;
    struct error err = {0};
    int code;
    const struct command_line line = {
        .usage =
            "cox run -f FILE [OPTION...], cox run create|list|show|logs|terminate|delete|render",
        .specs = run_specs,
        .n_specs = run_n_specs};
    if (argc > 1 && argv[1][0] != '-') {
        snprintf(name, sizeof name, "run %.20s", argv[1]);
        const struct command *c = command_find(t, name);
        if (!c)
            return unknown_command(t, argv[1]);
        argv[1] = name;
        return command_run(t, c, argc - 1, argv + 1);
    }
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        enum status s = STATUS_OK;
        if (!o.file || !o.file[0])
            s = error_set(&err, STATUS_INVALID, "the run file is missing; usage: %s", line.usage);
        else if (o.check)
            s = check(o.file, &err);
        else
            s = run_here(o.file, o.runs_dir, &err);
        if (s != STATUS_OK)
            code = run_fail("run", s, &err);
    }
    config_fini(&res);
    return code;
}
