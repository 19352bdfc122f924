#include "cli/commands/cluster/reach.h"

#include <stdio.h>

#include "cli/up/local/find.h"
#include "cli/view/answer.h"

int reach_run(int argc, char **argv, const struct command_line *line,
              int (*run)(const char *command, struct admin_access *o,
                         const struct option_list *words))
{
    struct admin_access o = {0};
    struct config_result res;
    int code;
    if (command_parse(line, argc, argv, &o, &res, &code))
        code = run(argv[0], &o, &res.positional);
    config_fini(&res);
    return code;
}

bool reach_head(struct admin_access *o, const char *command, bool tell)
{
    if (admin_follow(o, command, tell))
        return true;
    local_cluster_hint(command, "address", o->address);
    return false;
}

int reach_fail(const char *command, enum status s, const struct error *err)
{
    struct strbuf text;
    strbuf_init(&text, 0);
    strbuf_append_c(&text, err->text);
    answer_hide_controls(&text, 0);
    fprintf(stderr, "cox %s: " STR_FMT "\n", command, STR_ARG(strbuf_str(&text)));
    strbuf_fini(&text);
    return s == STATUS_IO || s == STATUS_TIMEOUT || s == STATUS_DENIED ? EXIT_UNREACHABLE
                                                                       : EXIT_FAILED;
}

void reach_print(const json_t *answer, size_t flags)
{
    json_dumpf(answer, stdout, flags);
    putchar('\n');
}
