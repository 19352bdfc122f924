/* Implements `cox plan` with several models.
 * The command line is that of `cox up`, with --json, and the plan is made by the same functions
 * (cli/up/several), so both print the same table. Each model is measured by a `cox plan` of its
 * own. Invariants: nothing is downloaded and no process of a cluster starts. */
#include "cli/commands/plan_set.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/up/prepare/machine.h"
#include "cli/up/several/plan.h"
#include "common/base/mem.h"
#include "common/options/groups.h"
#include "common/options/plan.h"

/* Copies the words without --json, which `cox up` does not have. The caller frees the copy with
 * `mem_free`. */
static char **without_json(int *argc, char **argv, bool *as_json)
{
    char **out = mem_array((size_t)*argc + 1, sizeof *out);
    int n = 0, i = 0;
    for (; i < *argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0)
            *as_json = true;
        else
            out[n++] = argv[i];
    for (; i < *argc; i++)
        out[n++] = argv[i];
    out[n] = NULL;
    *argc = n;
    return out;
}

/* Returns true when the words name a set. Words that only `cox plan` of one model knows, such as
 * --gpu L4, are errors of a set, if several models are named. */
static bool names_set(int argc, char **argv)
{
    struct up_options *o = mem_zalloc(sizeof *o);
    struct plan_options *one = mem_zalloc(sizeof *one);
    struct config_result as_set = {0}, as_one = {0};
    struct error err;
    bool out = false;
    if (config_parse(up_specs, up_n_specs, argc, argv, environ, o, &as_set, &err) == STATUS_OK)
        out = !as_set.help && !as_set.version && up_set_is_wanted(o, &as_set.positional);
    else if (config_parse(plan_specs, plan_n_specs, argc, argv, environ, one, &as_one, &err) ==
             STATUS_OK)
        out = as_one.positional.n_items > 1;
    config_fini(&as_set);
    config_fini(&as_one);
    mem_free(one);
    mem_free(o);
    return out;
}

static int run(const struct set_input *in, bool as_json)
{
    struct up_machine *m = mem_zalloc(sizeof *m);
    struct set_run *r = NULL;
    struct error err = {0};
    struct strbuf out;
    struct arena arena;
    arena_init(&arena, 0);
    strbuf_init(&out, 0);
    enum status s = set_run_read(in, &arena, &r, &err);
    if (s == STATUS_OK)
        s = up_machine_find_programs(m, &err);
    if (s == STATUS_OK)
        s = set_run_memory(r, m->bin_dir, as_json, &out, &err);
    int code = s == STATUS_OK ? EXIT_FINE : s == STATUS_NO_MEMORY ? EXIT_FAILED : EXIT_USAGE;
    if (out.len > 0 && command_print(&out) != EXIT_FINE)
        code = EXIT_USAGE;
    if (s != STATUS_OK)
        fprintf(stderr, "cox plan: %s\n", err.text);
    set_run_free(r);
    strbuf_fini(&out);
    arena_fini(&arena);
    mem_free(m);
    return code;
}

int plan_set(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox plan MODEL... [OPTION...]",
                                      .specs = up_specs,
                                      .n_specs = up_n_specs,
                                      .max_positional = UP_SET_MAX,
                                      .groups = option_groups};
    bool as_json = false;
    char **words = without_json(&argc, argv, &as_json);
    int code = -1;
    if (names_set(argc, words)) {
        struct up_options *o = mem_zalloc(sizeof *o);
        struct config_result res = {0};
        if (command_parse(&line, argc, words, o, &res, &code)) {
            const struct set_input in = {.argc = argc,
                                         .argv = words,
                                         .environ_ = environ,
                                         .specs = up_specs,
                                         .n_specs = up_n_specs,
                                         .options = o,
                                         .models = &res.positional};
            code = run(&in, as_json);
        }
        config_fini(&res);
        mem_free(o);
    }
    mem_free(words);
    return code;
}
