/* Implements `cox lora`: lists the cluster's LoRA adapters, and loads or unloads them while the
 * cluster runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"

enum { POLL_MS = 100 };

const struct option_spec lora_specs[] = {
    ADMIN_ROWS,
    ADMIN_FOLLOW_ROW,
    OPT_BOOL(admin_access, json, "json", NULL, "Print the head's answer as JSON (list only)."),
    OPT_BOOL(admin_access, in_place, "in-place", NULL,
             "Replace an adapter of the same name (load only). Open requests keep the old adapter, "
             "so --max-loras must allow both."),
    OPT_INT(
        admin_access, timeout_s, "timeout", 0, 86400, "300",
        "Seconds to wait until all workers have loaded or unloaded the adapter. 0 = do not wait."),
};
const size_t lora_n_specs = sizeof lora_specs / sizeof lora_specs[0];

static const char *get(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));
    return text ? text : "";
}

static void say_none(const json_t *answer)
{
    int room = (int)json_integer_value(json_object_get(answer, "max_loras"));
    if (room > 0)
        printf("No adapter is loaded; there is room for %d (--max-loras). `cox lora load "
               "NAME=FOLDER` loads one.\n",
               room);
    else
        puts("No adapter is loaded, and this cluster does not support adapters. Start it with "
             "--enable-lora.");
}

static int list(const struct admin_access *o)
{
    struct error err = {0};
    json_t *answer, *a;
    size_t i;
    enum status s = admin_call(o, "GET", "/api/adapters", NULL, &answer, &err);
    if (s != STATUS_OK)
        return reach_fail("lora", s, &err);
    if (o->json) {
        reach_print(answer, JSON_INDENT(2));
    }
    json_array_foreach(json_object_get(answer, "adapters"), i, a)
    {
        if (!o->json)
            printf("%-24s %-10s %s%s%s\n", get(a, "name"), get(a, "state"), get(a, "path"),
                   get(a, "text")[0] ? "  " : "", get(a, "text"));
    }
    if (!o->json && json_array_size(json_object_get(answer, "adapters")) == 0)
        say_none(answer);
    json_decref(answer);
    return EXIT_FINE;
}

/* `progress` lists the states of the load or unload of an adapter. While an adapter replaces
 * another adapter of the same name, the list has the name twice. The old adapter serves until
 * the new one is ready, and stays as "leaving" while requests use it. When the command waits for
 * the new adapter, it ignores the old one. */
enum progress { PROGRESS_WAITS, PROGRESS_READY, PROGRESS_FAILED, PROGRESS_GONE };
static enum progress look(const json_t *answer, const char *name, bool on, char *text, size_t size)
{
    const json_t *a;
    size_t i;
    enum progress p = PROGRESS_GONE;
    json_array_foreach(json_object_get(answer, "adapters"), i, a)
    {
        const char *state = get(a, "state");
        bool goes = strcmp(state, "leaving") == 0 || strcmp(state, "unloading") == 0;
        if (strcmp(get(a, "name"), name) != 0 || (on && goes))
            continue;
        if (strcmp(state, "failed") == 0) {
            snprintf(text, size, "%s", get(a, "text"));
            return PROGRESS_FAILED;
        }
        if (strcmp(state, "ready") != 0)
            p = PROGRESS_WAITS;
        else if (p == PROGRESS_GONE)
            p = PROGRESS_READY;
    }
    return p;
}

static int wait_for(const struct admin_access *o, const char *name, bool on)
{
    struct error err = {0};
    for (int64_t waited_ms = 0; waited_ms < o->timeout_s * 1000; waited_ms += POLL_MS) {
        json_t *answer;
        char text[512] = "";
        enum status s = admin_call(o, "GET", "/api/adapters", NULL, &answer, &err);
        if (s != STATUS_OK)
            return reach_fail("lora", s, &err);
        enum progress p = look(answer, name, on, text, sizeof text);
        json_decref(answer);
        if (p == PROGRESS_FAILED) {
            fprintf(stderr, "cox lora: cannot load the adapter %s: %s\n", name, text);
            return EXIT_FAILED;
        }
        if (p == (on ? PROGRESS_READY : PROGRESS_GONE)) {
            printf("%s is %s\n", name, on ? "loaded" : "unloaded");
            return EXIT_FINE;
        }
        usleep(POLL_MS * 1000);
    }
    if (o->timeout_s > 0)
        fprintf(
            stderr,
            "cox lora: the adapter %s is not %s after %lld s. `cox lora list` shows its progress\n",
            name, on ? "loaded" : "unloaded", (long long)o->timeout_s);
    return o->timeout_s > 0 ? EXIT_FAILED : EXIT_FINE;
}

static int order(const struct admin_access *o, json_t *owned_ask, const char *name, bool on)
{
    struct error err = {0};
    json_t *answer = NULL;
    char *body = owned_ask ? json_dumps(owned_ask, JSON_COMPACT) : NULL;
    json_decref(owned_ask);
    enum status s = body ? admin_call(o, "POST", "/api/adapters", body, &answer, &err)
                         : error_set(&err, STATUS_INVALID,
                                     "the adapter's name or folder is not UTF-8. Rename it");
    free(body);
    if (s != STATUS_OK)
        return reach_fail("lora", s, &err);
    json_decref(answer);
    return wait_for(o, name, on);
}

static int load(const struct admin_access *o, const char *module)
{
    char name[256];
    const char *is = strchr(module, '=');
    size_t n = is ? (size_t)(is - module) : 0;
    if (n == 0 || n >= sizeof name || !is[1]) {
        fprintf(stderr, "cox lora: give `load NAME=FOLDER`, not `load %s`\n", module);
        return EXIT_USAGE;
    }
    memcpy(name, module, n);
    name[n] = '\0';
    return order(
        o, json_pack("{s:s, s:s, s:b}", "name", name, "path", is + 1, "in_place", (int)o->in_place),
        name, true);
}

int cmd_lora(int argc, char **argv)
{
    struct admin_access o = {0};
    struct config_result res;
    int code;
    const struct command_line line = {
        .usage = "cox lora list | load NAME=FOLDER | unload NAME [OPTION...]",
        .specs = lora_specs,
        .n_specs = lora_n_specs,
        .max_positional = 2};
    if (command_parse(&line, argc, argv, &o, &res, &code)) {
        size_t n = res.positional.n_items;
        const char *verb = n > 0 ? res.positional.items[0] : "list";
        const char *what = n > 1 ? res.positional.items[1] : NULL;
        if (strcmp(verb, "list") == 0 && !what) {
            code = reach_head(&o, "lora", true) ? list(&o) : EXIT_UNREACHABLE;
        } else if (strcmp(verb, "load") == 0 && what) {
            code = reach_head(&o, "lora", false) ? load(&o, what) : EXIT_UNREACHABLE;
        } else if (strcmp(verb, "unload") == 0 && what) {
            code = reach_head(&o, "lora", false)
                       ? order(&o, json_pack("{s:s, s:b}", "name", what, "on", 0), what, false)
                       : EXIT_UNREACHABLE;
        } else {
            fprintf(stderr, "cox lora: the action is missing or unknown. Give list, load "
                            "NAME=FOLDER or unload NAME\n");
            code = EXIT_USAGE;
        }
    }
    config_fini(&res);
    return code;
}
