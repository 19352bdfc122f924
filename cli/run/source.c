/* Opens a run file for a command: reads and checks it, and prints its problems to stderr. */
#include "cli/run/source.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/run/file/file.h"
#include "cli/run/file/places.h"
#include "cli/run/file/problems.h"
#include "common/config/distance.h"

int run_fail(const char *command, enum status s, const struct error *err)
{
    if (err->text[0])
        fprintf(stderr, "cox %s: %s\n", command, err->text);
    return s == STATUS_INVALID || s == STATUS_LIMIT || s == STATUS_NOT_FOUND ? EXIT_USAGE
                                                                             : EXIT_FAILED;
}

/* Adds a note when the model is not on this machine. It is only a note, because another machine
 * may have the model, or a command of the run may make it. */
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
        run_note(p, f->model.at,
                 "`model` \"%.60s\" is not a file on this machine; did you mean `%s`?", ref.path,
                 near);
    else if (is_gone)
        run_note(p, f->model.at, "`model` \"%.300s\" does not exist on this machine yet", ref.path);
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
