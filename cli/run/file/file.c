/* Reads the top level of a run file and checks that its parts fit together.
 * `run_file_parse` parses the YAML text and calls the function of each key. places.c reads
 * `import`, `export` and `volumes`, options.c reads `options` and `resources`. The result is a
 * `struct run_file` and a list of problems.
 * Invariants: only the text is read, so the problems are the same on every machine. The reader
 * continues after a problem. All strings are on the caller's arena. Only one thread calls these
 * functions. */
#include "cli/run/file/file.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/run/file/options.h"
#include "cli/run/file/places.h"
#include "cli/run/file/problems.h"
#include "cli/run/file/reader.h"
#include "cli/up/plan/options.h"
#include "common/base/mem.h"
#include "common/model/info/ref.h"

enum {
    NAME_MAX_BYTES = 100,
    DESCRIPTION_MAX_BYTES = 2000,
    IMAGE_MAX_BYTES = 500,
    PORT_NAME_MAX = 15, /* name of a service (RFC 6335); Kubernetes has the same limit */
    TAGS_MAX = 32,
    COMMANDS_MAX = 64,
    PORTS_MAX = 32,
    ENV_MAX = 256
};

/* ---- name, description, tags, image, model ---- */

/* Returns true for a text without control characters. The C1 controls, U+0080 to U+009F, count
 * as control characters, since some terminals interpret them. */
static bool is_one_line(const char *s)
{
    for (; *s; s++)
        if ((unsigned char)*s < ' ' || *s == 0x7F ||
            ((unsigned char)*s == 0xC2 && (unsigned char)s[1] < 0xA0))
            return false;
    return true;
}

static bool is_id_like(const char *s)
{
    return s[strspn(s, "0123456789")] == '\0';
}

static void read_name(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    const char *s = run_read_text(r, v, "`name`");
    if (!s)
        return;
    if (strlen(s) > NAME_MAX_BYTES || !is_one_line(s))
        run_problem(r->p, v->at, "`name` must be one line of at most %d bytes", NAME_MAX_BYTES);
    else if (is_id_like(s))
        run_problem(r->p, v->at,
                    "`name` \"%s\" looks like a run's ID, because it has only digits. Add a letter",
                    s);
    else if (!strpbrk(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"))
        run_problem(r->p, v->at, "`name` \"%s\" must contain a letter from a to z", s);
    else
        r->f->name = (struct run_text){s, v->at};
}

static void read_description(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    const char *s = run_read_text(r, v, "`description`");
    if (s && strlen(s) > DESCRIPTION_MAX_BYTES)
        run_problem(r->p, v->at, "`description` is too long: at most %d bytes are allowed",
                    DESCRIPTION_MAX_BYTES);
    else if (s)
        r->f->description = (struct run_text){s, v->at};
}

static void read_tags(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    if (v->kind != YAML_KIND_LIST || v->n > TAGS_MAX) {
        run_problem(r->p, v->at, "`tags` must be a list of at most %d strings", TAGS_MAX);
        return;
    }
    for (const struct yaml_node *t = v->first; t; t = t->next) {
        const char *s = run_read_text(r, t, "a tag");
        if (s && (strlen(s) > NAME_MAX_BYTES || !is_one_line(s)))
            run_problem(r->p, t->at, "each tag must be one line of at most %d bytes",
                        NAME_MAX_BYTES);
        else if (s)
            *(const char **)RUN_ADD(r, r->f->tags) = s;
    }
}

static void read_image(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    const char *s = run_read_text(r, v, "`image`");
    bool is_one = s && strlen(s) <= IMAGE_MAX_BYTES && s[0] != '-' && is_one_line(s);
    if (s && (!is_one || strpbrk(s, " \t\"'\\")))
        run_problem(r->p, v->at, "`image` \"%.60s\" is not the name of a container image", s);
    else if (s)
        r->f->image = (struct run_text){s, v->at};
}

static void read_model(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct model_ref ref;
    struct error err = {0};
    const char *s = run_read_text(r, v, "`model`");
    if (!s)
        return;
    if (strncmp(s, "hf://", 5) == 0)
        s = run_print(r, "hf:%s", s + 5);
    if (s[0] == '-')
        run_problem(r->p, v->at,
                    "`model` \"%.60s\" is an option, not a model. Put options below `options`", s);
    else if (model_ref_parse(s, &ref, &err) != STATUS_OK)
        run_problem(r->p, v->at, "`model`: %s", err.text);
    else {
        model_ref_fini(&ref);
        r->f->model = (struct run_text){s, v->at};
    }
}

static void read_monitoring(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    bool is_true = v->kind == YAML_KIND_TEXT && strcasecmp(v->text, "true") == 0;
    if (!is_true && (v->kind != YAML_KIND_TEXT || strcasecmp(v->text, "false") != 0))
        run_problem(r->p, v->at, "`monitoring` must be true or false");
    r->f->monitoring = is_true;
}

/* ---- run ---- */

static void read_command_text(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_command *c = ctx;
    c->command = run_read_text(r, v, "`command`");
}

static void read_workdir(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_command *c = ctx;
    const char *s = run_read_text(r, v, "`workdir`");
    if (s)
        c->workdir = strcmp(s, "/") == 0 ? NULL : run_read_path(r, s, v->at);
}

static void read_command(struct run_reader *r, const struct yaml_node *v)
{
    static const struct run_key keys[] = {{"command", read_command_text},
                                          {"workdir", read_workdir}};
    struct run_command *c = RUN_ADD(r, r->f->commands);
    c->at = v->at;
    if (v->kind == YAML_KIND_TEXT) {
        c->command = run_read_text(r, v, "a command");
        return;
    }
    size_t n = r->p->n;
    RUN_READ_MAP(r, v, "`run`", keys, c);
    if (!c->command && r->p->n == n)
        run_problem(r->p, v->at, "an entry of `run` has no `command`");
}

static void read_run(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    if (v->kind != YAML_KIND_LIST) {
        read_command(r, v);
        return;
    }
    if (v->n > COMMANDS_MAX)
        run_problem(r->p, v->at, "`run` has too many commands: at most %d are allowed",
                    COMMANDS_MAX);
    for (const struct yaml_node *c = v->first; c && v->n <= COMMANDS_MAX; c = c->next)
        read_command(r, c);
}

/* ---- ports ---- */

static bool is_port_name(const char *s)
{
    size_t n = strlen(s);
    return n > 0 && n <= PORT_NAME_MAX && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == n &&
           !is_id_like(s) && s[0] != '-' && s[n - 1] != '-' && !strstr(s, "--");
}

static void read_port_name(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_port *port = ctx;
    const char *s = run_read_text(r, v, "a port's `name`");
    if (s && !is_port_name(s))
        run_problem(r->p, v->at,
                    "a port's `name` must have up to %d lower-case letters, digits and '-', with "
                    "at least one letter",
                    PORT_NAME_MAX);
    else
        port->name = s;
}

static void read_port_type(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_port *port = ctx;
    bool is_text = v->kind == YAML_KIND_TEXT;
    port->is_http = is_text && strcmp(v->text, "http") == 0;
    if (!port->is_http && (!is_text || strcmp(v->text, "tcp") != 0))
        run_problem(r->p, v->at, "a port's `type` must be http or tcp");
}

static void read_port_number(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    struct run_port *port = ctx;
    int64_t n = 0;
    if (run_read_int(r, v, "`port`", 1, 65535, &n))
        port->port = (uint16_t)n;
}

static void check_port(struct run_reader *r, const struct run_port *port)
{
    for (const struct run_port *q = r->f->ports.items; q < port; q++) {
        if (port->port && q->port == port->port)
            run_problem(r->p, port->at, "port %u is already used in line %u. Choose another port",
                        port->port, q->at.line);
        if (port->name && q->name && strcmp(q->name, port->name) == 0)
            run_problem(r->p, port->at,
                        "the port name \"%s\" is already used in line %u. Choose another name",
                        port->name, q->at.line);
    }
}

static void read_ports(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    static const struct run_key keys[] = {
        {"name", read_port_name}, {"type", read_port_type}, {"port", read_port_number}};
    if (v->kind != YAML_KIND_LIST || v->n > PORTS_MAX) {
        run_problem(r->p, v->at,
                    "`ports` must be a list of at most %d entries with `name`, `type` and `port`",
                    PORTS_MAX);
        return;
    }
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        struct run_port *port = RUN_ADD(r, r->f->ports);
        size_t n = r->p->n;
        *port = (struct run_port){.is_http = true, .at = c->at};
        RUN_READ_MAP(r, c, "`ports`", keys, port);
        if (r->p->n == n && (!port->name || !port->port))
            run_problem(r->p, c->at, "an entry of `ports` needs `name` and `port`");
        check_port(r, port);
    }
}

/* ---- env ---- */

static bool is_env_name(const char *s)
{
    if (!isalpha((unsigned char)*s) && *s != '_')
        return false;
    for (; *s; s++)
        if (!isalnum((unsigned char)*s) && *s != '_')
            return false;
    return true;
}

/* Returns true when the name contains a word for secrets, such as TOKEN. */
static bool is_secret_name(const char *name)
{
    static const char *const words[] = {"KEY", "TOKEN", "SECRET", "PASSWORD"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

static void read_env(struct run_reader *r, const struct yaml_node *v, void *ctx)
{
    if (v->kind != YAML_KIND_MAP || v->n > ENV_MAX) {
        run_problem(r->p, v->at, "`env` must be a mapping of at most %d `NAME: value` lines",
                    ENV_MAX);
        return;
    }
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        const char *name = c->key->text;
        if (!is_env_name(name))
            run_problem(
                r->p, c->key->at,
                "`env`: \"%.60s\" is not a valid variable name. Use letters, digits and '_'", name);
        else if (c->kind != YAML_KIND_TEXT || yaml_node_is_null(c))
            run_problem(r->p, c->at,
                        "`env`: the value of %.60s must be a string, a number, true or false",
                        name);
        else
            *(struct run_env *)RUN_ADD(r, r->f->env) =
                (struct run_env){.name = name,
                                 .value = c->text,
                                 .is_taken = strcmp(name, c->text) == 0,
                                 .is_secret = is_secret_name(name),
                                 .at = c->key->at};
    }
}

/* ---- the whole file ---- */

static const struct run_key top_keys[] = {{"name", read_name},
                                          {"description", read_description},
                                          {"tags", read_tags},
                                          {"model", read_model},
                                          {"options", run_read_options},
                                          {"resources", run_read_resources},
                                          {"image", read_image},
                                          {"import", run_read_imports},
                                          {"export", run_read_exports},
                                          {"volumes", run_read_volumes},
                                          {"run", read_run},
                                          {"ports", read_ports},
                                          {"env", read_env},
                                          {"monitoring", read_monitoring}};

static bool is_prometheus(const struct run_port *port)
{
    return port->name && strcmp(port->name, "prometheus") == 0;
}

/* Adds the option that sets the gateway's port to the first port of the list. */
static void add_gateway_port(struct run_reader *r)
{
    for (size_t i = 0; i < r->f->ports.n; i++) {
        const struct run_port *port = &r->f->ports.items[i];
        if (r->f->monitoring && is_prometheus(port))
            continue;
        if (port->port)
            run_add_option(r, port->at, "`ports`", "port", run_print(r, "%u", port->port));
        return;
    }
}

static void check_whole(struct run_reader *r, const struct yaml_node *root)
{
    struct run_file *f = r->f;
    bool has_name = false, has_work = false;
    for (const struct yaml_node *v = root->first; v; v = v->next) {
        const char *key = v->key->text;
        has_name |= strcmp(key, "name") == 0 && !yaml_node_is_null(v);
        if (strcmp(key, "model") == 0 && v->kind == YAML_KIND_TEXT && yaml_node_is_null(v) &&
            v->text[0])
            run_problem(r->p, v->at,
                        "`model: null` means no model in YAML. For the null model, write `model: "
                        "\"null\"`");
        has_work |= strcmp(key, "run") == 0 || strcmp(key, "model") == 0;
    }
    if (!has_name)
        run_problem(r->p, root->at, "`name` is missing: give the run a name");
    if (!has_work)
        run_problem(r->p, root->at,
                    "nothing to start: give `model: MODEL` or `run:` with commands");
    else if (!f->model.s && f->commands.n == 0 && r->p->n == 0)
        run_problem(r->p, root->at, "nothing to start: `model` and `run` are empty");
    if (f->model.s)
        add_gateway_port(r);
    run_check_places(r);
    run_check_options(r);
}

void run_file_parse(struct str text, struct arena *arena, struct run_file *out,
                    struct run_problems *p)
{
    struct yaml_node *root;
    struct yaml_mark at;
    struct error err = {0};
    struct run_reader r = {.arena = arena, .f = out, .p = p};
    *out = (struct run_file){.resources = {.gpus = -1}};
    if (yaml_tree_parse(text, arena, &root, &at, &err) != STATUS_OK) {
        run_problem(p, at, "%s", err.text);
        return;
    }
    if (!root || root->kind != YAML_KIND_MAP) {
        run_problem(p, at,
                    "a run file must be a mapping such as `name: …`, `model: …`; see "
                    "docs/reference/runs.md");
        return;
    }
    RUN_READ_MAP(&r, root, "a run file", top_keys, NULL);
    check_whole(&r, root);
}

void run_file_fini(struct run_file *f)
{
    config_fini(&f->up_owned);
}

enum status run_file_read(const char *path, struct strbuf *text, struct error *err)
{
    char chunk[16384];
    FILE *file = fopen(path, "rbe");
    if (!file)
        return error_set(err, errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO,
                         "cannot open the run file %s: %s", path, strerror(errno));
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, file)) > 0;)
        if (!strbuf_append(text, chunk, n) || text->len > RUN_FILE_MAX_BYTES)
            break;
    int failure = ferror(file) ? errno : 0;
    fclose(file);
    if (failure)
        return error_set(err, STATUS_IO, "cannot read the run file %s: %s", path,
                         strerror(failure));
    if (text->failed || text->len > RUN_FILE_MAX_BYTES)
        return error_set(
            err, STATUS_LIMIT,
            "the run file %s is too large: at most %d bytes are allowed. Use a shorter file", path,
            RUN_FILE_MAX_BYTES);
    return STATUS_OK;
}

uint16_t run_file_prometheus_port(const struct run_file *f)
{
    for (size_t i = 0; f->monitoring && i < f->ports.n; i++)
        if (is_prometheus(&f->ports.items[i]))
            return f->ports.items[i].port;
    return f->monitoring ? 9090 : 0;
}

bool run_file_pulls(const struct run_file *f, const struct model_ref *ref)
{
    bool is_streamed = model_ref_is_remote(ref) && f->up.load_format >= UP_LOAD_STREAM;
    return (model_ref_is_remote(ref) && !is_streamed) || ref->kind == MODEL_REF_DEMO;
}
