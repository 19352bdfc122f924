/* Implements `cox models list`, `add`, `rm` and `alias`, which show and change the models of a
 * running cluster.
 * A cluster of `cox up` is found by its control socket (cli/up/local/find.h): an order goes there,
 * and the state of its change is read until it ends. With --gateway, the calls of /admin/models
 * show and change the set of a gateway instead.
 * Invariants: text from a server is printed in its printable form. The commands run in one thread.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/base/command_line.h"
#include "cli/client/admin.h"
#include "cli/commands/cluster/reach.h"
#include "cli/commands/command.h"
#include "cli/commands/tables.h"
#include "cli/up/local/find.h"
#include "cli/up/plan/options.h"
#include "cli/up/set/read.h"
#include "cli/view/answer.h"

enum { LOOK_MS = 30, WAIT_MS = 600000, BUSY_MS = 30000, NAME_BYTES = 256 };

struct models_call {
    const char *address, *cluster, *gateway, *admin_key, *admin_key_file;
    struct option_list aliases, removed, settings;
    int start;
    bool json;
};

#define CLUSTER_ROWS                                                                               \
    OPT_STRING(models_call, cluster, "cluster", NULL,                                              \
               "Name of the cluster, as `cox ps` shows "                                           \
               "it. Default: the only one."),                                                      \
        OPT_STRING(models_call, address, "address", NULL,                                          \
                   "HOST:PORT of the cluster's admin API, if two clusters have the same name.")

#define GATEWAY_ROWS                                                                               \
    OPT_STRING(models_call, gateway, "gateway", NULL,                                              \
               "HOST:PORT of a gateway with --models, to use its set of models instead."),         \
        {.name = "admin-key",                                                                      \
         .type = OPTION_STRING,                                                                    \
         .offset = offsetof(struct models_call, admin_key),                                        \
         .help = "Key of the gateway's admin API. Prefer COX_ADMIN_KEY, since other users can "    \
                 "see a command line.",                                                            \
         .secret = true},                                                                          \
        OPT_STRING(models_call, admin_key_file, "admin-key-file", NULL,                            \
                   "File with the key of the gateway's admin API.")

const struct option_spec models_list_specs[] = {
    CLUSTER_ROWS, GATEWAY_ROWS,
    OPT_BOOL(models_call, json, "json", NULL, "Print the answer as JSON.")};
const size_t models_list_n_specs = sizeof models_list_specs / sizeof models_list_specs[0];

const struct option_spec models_add_specs[] = {
    CLUSTER_ROWS, GATEWAY_ROWS,
    OPT_LIST(models_call, aliases, "alias", "Another name of the model."),
    OPT_ENUM(models_call, start, "start", UP_START_NAMES, "always",
             "When the model has workers: always, or while it is used."),
    OPT_LIST(models_call, settings, "set",
             "KEY=VALUE, a member of the model's entry in the file of --models.")};
const size_t models_add_n_specs = sizeof models_add_specs / sizeof models_add_specs[0];

const struct option_spec models_rm_specs[] = {CLUSTER_ROWS, GATEWAY_ROWS};
const size_t models_rm_n_specs = sizeof models_rm_specs / sizeof models_rm_specs[0];

const struct option_spec models_alias_specs[] = {
    CLUSTER_ROWS, GATEWAY_ROWS, OPT_LIST(models_call, removed, "remove", "Alias to take away.")};
const size_t models_alias_n_specs = sizeof models_alias_specs / sizeof models_alias_specs[0];

/* ---- a cluster of `cox up` ---- */

static enum status ask(const struct local_cluster *c, const char *path, const char *body,
                       json_t **owned, struct error *err)
{
    struct strbuf answer;
    strbuf_init(&answer, 0);
    *owned = NULL;
    enum status s = local_cluster_ask(c, path, body, &answer, err);
    if (s == STATUS_OK) {
        *owned = json_loadb(answer.ptr ? answer.ptr : "", answer.len, 0, NULL);
        if (!json_is_object(*owned))
            s = error_set(err, STATUS_PROTOCOL,
                          "the answer of the cluster %s is not JSON. Use the cox of the same "
                          "release as the cluster",
                          c->name);
    }
    strbuf_fini(&answer);
    return s;
}

/* Reads the state of a change until it ends. */
static enum status wait_for(const struct local_cluster *c, long long number, struct error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/models?change=%lld", number);
    for (int waited_ms = 0; waited_ms < WAIT_MS; waited_ms += LOOK_MS) {
        json_t *now;
        TRY(ask(c, path, NULL, &now, err));
        const char *state = json_string_value(json_object_get(now, "change"));
        const char *why = json_string_value(json_object_get(now, "why"));
        enum status s = STATUS_AGAIN;
        if (state && strcmp(state, "done") == 0)
            s = STATUS_OK;
        else if (!state || strcmp(state, "running") != 0)
            s = error_set(err, STATUS_INVALID, "%s",
                          why && why[0] ? why : "the cluster does not know this change any more");
        json_decref(now);
        if (s != STATUS_AGAIN)
            return s;
        usleep(LOOK_MS * 1000);
    }
    return error_set(err, STATUS_TIMEOUT, "the change has not ended. `cox logs` shows the cause");
}

/* Sends the order, again while another change is under way. */
static enum status order(const struct models_call *o, const json_t *what, struct error *err)
{
    struct local_cluster c;
    json_t *answer = NULL;
    char *body = what ? json_dumps(what, JSON_COMPACT) : NULL;
    if (!body)
        return error_set(err, STATUS_INVALID, "a name or a value is not UTF-8");
    enum status s = local_cluster_find(o->cluster, o->address, &c, err);
    for (int waited_ms = 0; s == STATUS_OK; waited_ms += LOOK_MS) {
        s = ask(&c, "/models", body, &answer, err);
        if (s != STATUS_EXISTS || waited_ms >= BUSY_MS)
            break;
        json_decref(answer);
        usleep(LOOK_MS * 1000);
        s = STATUS_OK;
    }
    if (s == STATUS_OK)
        s = wait_for(&c, json_integer_value(json_object_get(answer, "change")), err);
    json_decref(answer);
    free(body);
    return s;
}

/* ---- a gateway ---- */

/* Encodes a name for a path: every byte that is not a letter or a digit becomes %XX. */
static void append_encoded(struct strbuf *b, const char *name)
{
    for (; *name; name++)
        if ((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z') ||
            (*name >= '0' && *name <= '9'))
            strbuf_append(b, name, 1);
        else
            strbuf_printf(b, "%%%02X", (unsigned)(unsigned char)*name);
}

/* Calls /admin/models of the gateway, or /admin/models/NAME if `name` is not NULL. */
static enum status call_gateway(const struct models_call *o, const char *method, const char *name,
                                const json_t *what, json_t **owned, struct error *err)
{
    const struct admin_access a = {
        .address = o->gateway, .admin_key = o->admin_key, .admin_key_file = o->admin_key_file};
    struct strbuf path;
    char *body = what ? json_dumps(what, JSON_COMPACT) : NULL;
    if (what && !body)
        return error_set(err, STATUS_INVALID, "a name or a value is not UTF-8");
    strbuf_init(&path, 0);
    strbuf_append_c(&path, name ? "/admin/models/" : "/admin/models");
    append_encoded(&path, name ? name : "");
    enum status s = admin_call(&a, method, path.ptr, body, owned, err);
    if (s == STATUS_DENIED)
        (void)error_set(err, s,
                        "the gateway at %.200s rejects the admin key, or needs one. Give its "
                        "--admin-key-file, or the key itself with COX_ADMIN_KEY",
                        o->gateway);
    strbuf_fini(&path);
    free(body);
    return s;
}

static enum status tell_gateway(const struct models_call *o, const char *method, const char *name,
                                const json_t *what, struct error *err)
{
    json_t *answer = NULL;
    enum status s = call_gateway(o, method, name, what, &answer, err);
    json_decref(answer);
    return s;
}

/* ---- the list ---- */

static void append_model(struct strbuf *b, const json_t *m, bool is_of_gateway)
{
    size_t k;
    const json_t *alias;
    strbuf_printf(b, "%-24s %-8s ", answer_text(m, "name"), answer_text(m, "state"));
    if (is_of_gateway)
        strbuf_printf(b, "%-21s  %s", answer_text(m, "head"), answer_text(m, "model"));
    else
        strbuf_printf(b, "%-9s %9.1f MiB  %s", answer_text(m, "start"),
                      answer_number(m, "bytes") / (1 << 20), answer_text(m, "model"));
    json_array_foreach(json_object_get(m, "aliases"), k, alias)
        strbuf_printf(b, "%s%s", k > 0 ? ", " : "  also ", json_string_value(alias));
    if (answer_state_is(m, "failed"))
        strbuf_printf(b, "  %s", answer_text(m, "reason"));
}

/* Appends a route of a gateway: its targets, each with the weight. */
static void append_route(struct strbuf *b, const json_t *route)
{
    size_t k;
    const json_t *target;
    strbuf_printf(b, "%-24s route    ", answer_text(route, "name"));
    json_array_foreach(json_object_get(route, "targets"), k, target)
        strbuf_printf(b, "%s%s %.0f", k > 0 ? ", " : "", answer_text(target, "model"),
                      answer_number(target, "weight"));
    if (json_object_get(route, "mirror"))
        strbuf_printf(b, "  mirror %s", answer_text(route, "mirror"));
}

static void print_models(const json_t *answer, bool is_of_gateway)
{
    struct strbuf b;
    size_t i;
    const json_t *m;
    strbuf_init(&b, 0);
    json_array_foreach(json_object_get(answer, "models"), i, m)
    {
        const size_t from = b.len;
        append_model(&b, m, is_of_gateway);
        answer_hide_controls(&b, from);
        strbuf_append_c(&b, "\n");
    }
    json_array_foreach(json_object_get(answer, "routes"), i, m)
    {
        const size_t from = b.len;
        append_route(&b, m);
        answer_hide_controls(&b, from);
        strbuf_append_c(&b, "\n");
    }
    fwrite(b.ptr ? b.ptr : "", 1, b.len, stdout);
    strbuf_fini(&b);
}

static int list(const struct models_call *o)
{
    struct local_cluster c;
    struct error err = {0};
    json_t *answer = NULL;
    enum status s = o->gateway ? call_gateway(o, "GET", NULL, NULL, &answer, &err)
                               : local_cluster_find(o->cluster, o->address, &c, &err);
    if (s == STATUS_OK && !o->gateway)
        s = ask(&c, "/models", NULL, &answer, &err);
    if (s == STATUS_OK && o->json) {
        reach_print(answer, JSON_INDENT(2));
    } else if (s == STATUS_OK) {
        print_models(answer, o->gateway != NULL);
    }
    json_decref(answer);
    return s == STATUS_OK ? EXIT_FINE : reach_fail("models list", s, &err);
}

/* ---- orders ---- */

static json_t *words_of(const struct option_list *l)
{
    json_t *out = json_array();
    for (size_t i = 0; i < l->n_items; i++)
        json_array_append_new(out, json_string(l->items[i]));
    return out;
}

/* Sets the members of --set. A value that begins with [ or { is JSON. */
static enum status add_settings(const struct option_list *l, json_t *entry, struct error *err)
{
    for (size_t i = 0; i < l->n_items; i++) {
        const char *word = l->items[i], *equals = strchr(word, '=');
        char key[NAME_BYTES];
        if (!equals || equals == word || (size_t)(equals - word) >= sizeof key)
            return error_set(err, STATUS_INVALID, "--set %.80s: the form is KEY=VALUE", word);
        snprintf(key, sizeof key, "%.*s", (int)(equals - word), word);
        const bool is_json = equals[1] == '[' || equals[1] == '{';
        json_t *v = is_json ? json_loads(equals + 1, JSON_REJECT_DUPLICATES, NULL)
                            : json_string(equals + 1);
        if (!v || json_object_set_new(entry, key, v) != 0)
            return error_set(err, STATUS_INVALID, "--set %.80s: the value is not valid", word);
    }
    return STATUS_OK;
}

/* Makes the entry of NAME=MODEL. A path is made absolute, because the cluster has another working
 * folder. */
static enum status make_entry(const struct models_call *o, const char *word, json_t *entry,
                              struct error *err)
{
    const char *model = word;
    if (up_set_is_named(word)) {
        const char *equals = strchr(word, '=');
        json_object_set_new(entry, "name", json_stringn(word, (size_t)(equals - word)));
        model = equals + 1;
    }
    char *path = access(model, F_OK) == 0 ? realpath(model, NULL) : NULL;
    json_object_set_new(entry, "model", json_string(path ? path : model));
    free(path);
    if (!o->gateway)
        json_object_set_new(entry, "start", json_string(up_start_names[o->start]));
    if (o->aliases.n_items > 0)
        json_object_set_new(entry, "aliases", words_of(&o->aliases));
    return add_settings(&o->settings, entry, err);
}

static enum status add(const struct models_call *o, const char *word, struct error *err)
{
    json_t *entry = json_object(), *what = NULL;
    enum status s = make_entry(o, word, entry, err);
    const char *name = json_string_value(json_object_get(entry, "name"));
    if (s == STATUS_OK && o->gateway && (!name || !json_object_get(entry, "head")))
        s = error_set(err, STATUS_INVALID,
                      "an entry of a gateway has a name and a head: cox models add NAME=MODEL "
                      "--set head=HOST:PORT");
    else if (s == STATUS_OK && o->gateway)
        s = tell_gateway(o, "PUT", name, entry, err);
    else if (s == STATUS_OK)
        s = order(o, what = json_pack("{s:s,s:O}", "do", "add", "entry", entry), err);
    json_decref(what);
    json_decref(entry);
    return s;
}

static enum status take_away(const struct models_call *o, const char *name, struct error *err)
{
    if (o->gateway)
        return tell_gateway(o, "DELETE", name, NULL, err);
    json_t *what = json_pack("{s:s,s:s}", "do", "rm", "name", name);
    enum status s = order(o, what, err);
    json_decref(what);
    return s;
}

static enum status change_aliases(const struct models_call *o, const struct option_list *words,
                                  struct error *err)
{
    const struct option_list added = {words->items + 1, words->n_items - 1};
    json_t *what = o->gateway
                       ? json_pack("{s:{s:o,s:o}}", "aliases", "add", words_of(&added), "remove",
                                   words_of(&o->removed))
                       : json_pack("{s:s,s:s,s:o,s:o}", "do", "alias", "name", words->items[0],
                                   "add", words_of(&added), "rm", words_of(&o->removed));
    enum status s =
        o->gateway ? tell_gateway(o, "PATCH", words->items[0], what, err) : order(o, what, err);
    json_decref(what);
    return s;
}

/* ---- commands ---- */

enum kind { LIST, ADD, RM, ALIAS };

static enum status change(const struct models_call *o, const struct option_list *words,
                          enum kind kind, struct error *err)
{
    return kind == ADD  ? add(o, words->items[0], err)
           : kind == RM ? take_away(o, words->items[0], err)
                        : change_aliases(o, words, err);
}

/* Carries out the command. Returns the exit code. */
static int carry_out(const struct models_call *o, const struct option_list *words, enum kind kind,
                     const char *command, const char *usage)
{
    static const char *const missing[] = {"", "the model is missing", "the name is missing",
                                          "the name or its aliases are missing"};
    static const char *const done[] = {
        "", "The model was added. `cox models list` shows when it serves.",
        "The model was removed. Its open requests end first.", "The names were changed."};
    const bool needs_two = kind == ALIAS && o->removed.n_items == 0;
    struct error err = {0};
    if (kind == LIST)
        return list(o);
    if (words->n_items < (needs_two ? 2u : 1u)) {
        fprintf(stderr, "cox %s: %s; usage: %s\n", command, missing[kind], usage);
        return EXIT_USAGE;
    }
    enum status s = change(o, words, kind, &err);
    if (s != STATUS_OK)
        return reach_fail(command, s, &err);
    puts(done[kind]);
    return EXIT_FINE;
}

static int run(int argc, char **argv, const struct command_line *line, enum kind kind)
{
    struct models_call o = {0};
    struct config_result res;
    int code;
    (void)unsetenv("COX_MODEL"); /* it names a model for other commands */
    if (command_parse(line, argc, argv, &o, &res, &code))
        code = carry_out(&o, &res.positional, kind, argv[0], line->usage);
    config_fini(&res);
    return code;
}

int cmd_models_list(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox models list [OPTION...]",
                                      .specs = models_list_specs,
                                      .n_specs = models_list_n_specs};
    return run(argc, argv, &line, LIST);
}

int cmd_models_add(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox models add [NAME=]MODEL [OPTION...]",
                                      .specs = models_add_specs,
                                      .n_specs = models_add_n_specs,
                                      .max_positional = 1};
    return run(argc, argv, &line, ADD);
}

int cmd_models_rm(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox models rm NAME [OPTION...]",
                                      .specs = models_rm_specs,
                                      .n_specs = models_rm_n_specs,
                                      .max_positional = 1};
    return run(argc, argv, &line, RM);
}

int cmd_models_alias(int argc, char **argv)
{
    const struct command_line line = {.usage = "cox models alias NAME [ALIAS...] [OPTION...]",
                                      .specs = models_alias_specs,
                                      .n_specs = models_alias_n_specs,
                                      .max_positional = SET_NAMES_MAX};
    return run(argc, argv, &line, ALIAS);
}
