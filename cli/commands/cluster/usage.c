/* Implements `cox usage`, which shows what each API key used.
 * It follows a standby to the serving head (`admin_follow`), asks for GET /api/usage, and prints
 * the JSON or the table of cli/view/usage_view.h. */
#include <stdio.h>
#include <stdlib.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/view/usage_view.h"

enum { EXIT_UNREACHABLE = 2 };

const struct option_spec usage_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_BOOL(admin_access, json, "json", NULL, "Print the head's answer as JSON."),
};
const size_t usage_n_specs = sizeof usage_specs / sizeof usage_specs[0];

static int show_usage(struct admin_access *o)
{
    struct error err = {0};
    json_t *answer;
    if (!reach_head(o, "usage", true))
        return EXIT_UNREACHABLE;
    enum status s = admin_call(o, "GET", "/api/usage", NULL, &answer, &err);
    if (s == STATUS_NOT_FOUND)
        fprintf(stderr, "cox usage: the head at %s does not count usage. Upgrade it\n",
                admin_address(o));
    else if (s != STATUS_OK)
        fprintf(stderr, "cox usage: %s\n", err.text);
    if (s != STATUS_OK)
        return s == STATUS_IO || s == STATUS_TIMEOUT || s == STATUS_DENIED ? EXIT_UNREACHABLE
                                                                           : EXIT_FAILED;
    if (o->json) {
        json_dumpf(answer, stdout, JSON_INDENT(2));
        putchar('\n');
    } else {
        struct strbuf b;
        strbuf_init(&b, 0);
        usage_view_render(answer, &b);
        fwrite(b.ptr, 1, b.len, stdout);
        strbuf_fini(&b);
    }
    json_decref(answer);
    return EXIT_FINE;
}

int cmd_usage(int argc, char **argv)
{
    struct admin_access o = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox usage [OPTION...]", .specs = usage_specs, .n_specs = usage_n_specs};
    if (command_parse(&line, argc, argv, &o, &res, &code))
        code = show_usage(&o);
    config_fini(&res);
    return code;
}
