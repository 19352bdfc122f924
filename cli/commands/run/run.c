/* `cox run -f FILE`, and the way to its other commands. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/commands/list.h"
#include "cli/commands/run/options.h"
#include "cli/commands/tables.h"
#include "cli/run/source.h"
#include "common/config/distance.h"

#define S run_options
const struct option_spec run_specs[] = {
    RUN_ROW_FILE(S),
    OPT_BOOL(S, check, "check", NULL, "validate it only: nothing is started"),
    RUN_ROW_DIR(S),
};
#undef S
const size_t run_n_specs = sizeof run_specs / sizeof run_specs[0];

int run_fail(const char *command, enum status s, const struct error *err)
{
    if (err->text[0])
        fprintf(stderr, "cox %s: %s\n", command, err->text);
    return s == STATUS_INVALID || s == STATUS_LIMIT || s == STATUS_NOT_FOUND ? EXIT_USAGE
                                                                             : EXIT_FAILED;
}

/* A model that is not on this machine now; another one may have it, or a command make it. */
static void note_model(const struct run_file *f, struct run_problems *p)
{
    static const char *const known[] = {"demo", "null"};
    struct model_ref ref;
    struct error err;
    const char *near = NULL;
    if (!f->model.s || model_ref_parse(f->model.s, &ref, &err) != STATUS_OK)
        return;
    bool is_gone =
        ref.kind == MODEL_REF_PATH && !run_file_brings(f, ref.path) && access(ref.path, F_OK) != 0;
    for (size_t i = 0; is_gone && i < sizeof known / sizeof *known && !strchr(ref.path, '/'); i++)
        if (str_distance(str_from(ref.path), str_from(known[i])) <= 2)
            near = known[i];
    if (near)
        run_note(p, f->model.at, "`model` \"%.60s\": no such file here; did you mean `%s`?",
                 ref.path, near);
    else if (is_gone)
        run_note(p, f->model.at, "`model` \"%.300s\": no such file here yet", ref.path);
    model_ref_fini(&ref);
}

enum status run_source_open(struct run_source *s, const char *path, bool with_notes,
                            struct error *err)
{
    struct run_problems problems;
    struct strbuf lines;
    *s = (struct run_source){0};
    strbuf_init(&s->text, RUN_FILE_MAX_BYTES + (64 << 10));
    arena_init(&s->arena, 0);
    TRY(run_file_read(path, &s->text, err));
    run_problems_init(&problems);
    strbuf_init(&lines, 0);
    run_file_parse(strbuf_str(&s->text), &s->arena, &s->file, &problems);
    run_problems_print(&problems, path, &lines);
    if (with_notes)
        note_model(&s->file, &problems);
    if (with_notes)
        run_notes_print(&problems, path, &lines);
    fwrite(strbuf_str(&lines).ptr, 1, lines.len, stderr);
    size_t n = problems.n;
    strbuf_fini(&lines);
    run_problems_fini(&problems);
    return n == 0 ? STATUS_OK : error_set(err, STATUS_INVALID, "%s", "");
}

void run_source_close(struct run_source *s)
{
    run_file_fini(&s->file);
    arena_fini(&s->arena);
    strbuf_fini(&s->text);
    *s = (struct run_source){0};
}

static enum status check(const char *path, struct error *err)
{
    struct run_source source;
    enum status s = run_source_open(&source, path, true, err);
    if (s == STATUS_OK)
        printf("%s: fine; `cox run -f %s` starts it\n", path, path);
    run_source_close(&source);
    return s;
}

/* ---- which of them ---- */

static int unknown_command(const char *name)
{
    fprintf(stderr, "cox run: no command \"%.20s\"; cox run -f FILE, or", name);
    const char *between = " cox run ";
    for (size_t i = 0; i < n_commands; i++)
        if (strncmp(commands[i].name, "run ", 4) == 0) {
            fprintf(stderr, "%s%s", between, commands[i].name + 4);
            between = "|";
        }
    fputc('\n', stderr);
    return EXIT_USAGE;
}

int cmd_run(int argc, char **argv)
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
        const struct command *c = command_find(name);
        if (!c)
            return unknown_command(argv[1]);
        argv[1] = name;
        return c->run(argc - 1, argv + 1);
    }
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        enum status s = STATUS_OK;
        if (!o.file || !o.file[0])
            s = error_set(&err, STATUS_INVALID, "which file? usage: %s", line.usage);
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
