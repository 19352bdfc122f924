/* Implements `cox run render`, which prints the run as Kubernetes objects for `kubectl apply -f
 * -`. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/base/command_line.h"
#include "cli/commands/command.h"
#include "cli/commands/run/options.h"
#include "cli/commands/tables.h"
#include "cli/run/file/problems.h"
#include "cli/run/render.h"
#include "cli/run/source.h"
#include "cli/run/yaml_print.h"

struct render_options {
    const char *file, *namespace_, *git_image;
};
#define S render_options
const struct option_spec run_render_specs[] = {
    RUN_ROW_FILE(S),
    {.name = "namespace",
     .aliases = "n",
     .type = OPTION_STRING,
     .offset = offsetof(struct S, namespace_),
     .help = "Kubernetes namespace of the objects. Default: the current one of kubectl."},
    OPT_STRING(S, git_image, "git-image", NULL,
               "Image with git and a shell, used for imports. Default: the run's image."),
};
#undef S
const size_t run_render_n_specs = sizeof run_render_specs / sizeof run_render_specs[0];

static json_t *take_env(const struct run_file *f, struct run_problems *p)
{
    json_t *taken = json_object();
    for (size_t i = 0; i < f->env.n; i++) {
        const char *value = f->env.items[i].is_taken ? getenv(f->env.items[i].name) : NULL;
        if (value)
            (void)json_object_set_new(taken, f->env.items[i].name, json_string(value));
        else if (f->env.items[i].is_taken)
            run_note(p, f->env.items[i].at,
                     "%.60s is not set in your environment, so the run does not get it",
                     f->env.items[i].name);
    }
    return taken;
}

static bool is_namespace(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= 63 && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n &&
           s[0] != '-' && s[n - 1] != '-';
}

static enum status render(const struct render_options *o, struct error *err)
{
    struct run_source source;
    struct run_problems problems;
    struct strbuf out, lines;
    json_t *objects = NULL, *each;
    size_t i;
    enum status s = run_source_open(&source, o->file, false, err);
    if (s != STATUS_OK) {
        run_source_close(&source);
        return s;
    }
    run_problems_init(&problems);
    strbuf_init(&out, 0);
    strbuf_init(&lines, 0);
    json_t *taken = take_env(&source.file, &problems);
    const struct run_render r = {.file = &source.file,
                                 .namespace_ = o->namespace_,
                                 .git_image = o->git_image,
                                 .taken = taken,
                                 .arena = &source.arena};
    run_render(&r, &objects, &problems);
    run_problems_print(&problems, o->file, &lines);
    run_notes_print(&problems, o->file, &lines);
    fwrite(strbuf_str(&lines).ptr, 1, lines.len, stderr);
    if (problems.n > 0)
        s = error_set(err, STATUS_INVALID, "%s", "");
    json_array_foreach(objects, i, each)
    {
        strbuf_append_c(&out, i ? "---\n" : "");
        yaml_print(each, &out);
    }
    if (s == STATUS_OK)
        fwrite(strbuf_str(&out).ptr, 1, out.len, stdout);
    json_decref(objects);
    json_decref(taken);
    strbuf_fini(&lines);
    strbuf_fini(&out);
    run_problems_fini(&problems);
    run_source_close(&source);
    return s;
}

int cmd_run_render(int argc, char **argv)
{
    struct render_options o = {0};
    struct config_result res;
    struct error err = {0};
    int code;
    const struct command_line line = {.usage = "cox run render -f FILE [OPTION...]",
                                      .specs = run_render_specs,
                                      .n_specs = run_render_n_specs};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        enum status s;
        if (!o.file || !o.file[0])
            s = error_set(&err, STATUS_INVALID, "the run file is missing; usage: %s", line.usage);
        else if (o.namespace_ && !is_namespace(o.namespace_))
            s = error_set(
                &err, STATUS_INVALID,
                "--namespace %.60s is invalid: use up to 63 lower-case letters, digits and '-'",
                o.namespace_);
        else
            s = render(&o, &err);
        if (s != STATUS_OK)
            code = run_fail(argv[0], s, &err);
    }
    config_fini(&res);
    return code;
}
