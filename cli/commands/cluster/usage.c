/* Implements `cox usage`, which shows what each API key used.
 * It follows a standby to the serving head (`admin_follow`), asks for GET /api/usage, and prints
 * the JSON or the table of cli/view/usage_view.h. */
#include <stdio.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/view/usage_view.h"

const struct option_spec usage_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_BOOL(admin_access, json, "json", NULL, "Print the head's answer as JSON."),
};
const size_t usage_n_specs = sizeof usage_specs / sizeof usage_specs[0];

/* Tells why an address has no usage. A gateway, for example, has no status of a head. */
static void say_not_found(const struct admin_access *o)
{
    struct error err = {0};
    json_t *status = NULL;
    if (admin_call(o, "GET", "/api/status", NULL, &status, &err) == STATUS_OK)
        fprintf(stderr, "cox usage: the head at %s does not count usage. Upgrade it\n",
                admin_address(o));
    else
        fprintf(stderr,
                "cox usage: the server at %s is no head of Coxswain. Check that --address is the "
                "head's admin port (its --admin-port) and not a gateway\n",
                admin_address(o));
    json_decref(status);
}

static int show_usage(const char *command, struct admin_access *o, const struct option_list *words)
{
    struct error err = {0};
    json_t *answer;
    if (!reach_head(o, command, true))
        return EXIT_UNREACHABLE;
    enum status s = admin_call(o, "GET", "/api/usage", NULL, &answer, &err);
    if (s == STATUS_NOT_FOUND) {
        say_not_found(o);
        return EXIT_FAILED;
    }
    if (s != STATUS_OK)
        return reach_fail(command, s, &err);
    if (o->json) {
        reach_print(answer, JSON_INDENT(2));
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
    const struct command_line line = {
        .usage = "cox usage [OPTION...]", .specs = usage_specs, .n_specs = usage_n_specs};
    return reach_run(argc, argv, &line, show_usage);
}
