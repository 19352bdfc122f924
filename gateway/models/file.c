/* Reads the file of --models into entries.
 * `models_file_parse` walks the YAML tree: `read_entry` takes the members that the set itself needs
 * (name, aliases, state, reason), and keeps every other member as a pair for the option table.
 * `models_file_options` applies the pairs to a copy of the gateway's options.
 * Only options of the list `model_options` may be in an entry, because all others belong to the
 * whole process. Names are unique in the file. All texts belong to the file's arena. */
#include "gateway/models/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/mem.h"
#include "common/config/lookup.h"
#include "common/config/yaml_tree.h"

/* options of cox-gateway that one model may have for itself */
static const char *const model_options[] = {"model",
                                            "head",
                                            "keys-dir",
                                            "insecure",
                                            "allow-remote-insecure",
                                            "chat-template",
                                            "generation-config",
                                            "reasoning-parser",
                                            "tool-call-parser",
                                            "enable-auto-tool-choice",
                                            "trust-request-chat-template",
                                            "disable-any-whitespace",
                                            "pooler-config",
                                            "structured-outputs-config",
                                            "max-logprobs",
                                            "max-open-choices",
                                            "queue-timeout",
                                            "head-timeout",
                                            "pause-timeout"};

enum { MODEL_REQUESTS_MAX = 1000000 };

struct reader {
    struct models_file *f;
    const char *path;
    struct error *err;
};

static enum status complain(const struct reader *r, const struct yaml_node *n, const char *what)
{
    return error_set(r->err, STATUS_INVALID, "%s:%u: %s", r->path, n->at.line, what);
}

static enum status no_memory(const struct reader *r)
{
    return error_set(r->err, STATUS_NO_MEMORY, "%s: there is not enough memory to read the file",
                     r->path);
}

/* ---- one entry ---- */

static bool is_model_option(const char *key)
{
    const size_t i = config_find(gateway_options, n_gateway_options, str_from(key));
    for (size_t k = 0; k < sizeof model_options / sizeof *model_options; k++)
        if (i < n_gateway_options && strcmp(gateway_options[i].name, model_options[k]) == 0)
            return true;
    return false;
}

/* Returns true when the text has no control character, which no header or log line could carry. */
static bool is_printable(const char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < ' ' || *text == 0x7f)
            return false;
    return true;
}

static enum status add_name(const struct reader *r, struct models_file_entry *e,
                            const struct yaml_node *n)
{
    if (n->kind != YAML_KIND_TEXT || yaml_node_is_null(n) || !*n->text)
        return complain(r, n, "a name must be a text that is not empty");
    if (strlen(n->text) > MODEL_NAME_MAX)
        return complain(r, n, "the name is longer than 255 bytes");
    if (!is_printable(n->text))
        return complain(r, n, "the name has a control character");
    if (e->n_names == 1 + MODEL_ALIASES_MAX)
        return complain(r, n, "the model has more than 64 aliases");
    e->names[e->n_names++] = n->text;
    return STATUS_OK;
}

static enum status read_aliases(const struct reader *r, struct models_file_entry *e,
                                const struct yaml_node *n)
{
    if (n->kind != YAML_KIND_LIST)
        return complain(r, n, "aliases must be a list of names");
    for (const struct yaml_node *item = n->first; item; item = item->next)
        TRY(add_name(r, e, item));
    return STATUS_OK;
}

/* Returns the text of an option's value: a plain value, or JSON for a mapping. */
static const char *value_text(const struct reader *r, const struct yaml_node *n)
{
    if (n->kind == YAML_KIND_TEXT)
        return n->text;
    struct strbuf b;
    strbuf_init(&b, 0);
    yaml_node_append_json(n, &b);
    char *text = arena_try_alloc(&r->f->texts, b.len + 1);
    if (text) {
        memcpy(text, b.ptr, b.len);
        text[b.len] = '\0';
    }
    strbuf_fini(&b);
    return text;
}

static enum status add_option(const struct reader *r, struct models_file_entry *e,
                              const struct yaml_node *n)
{
    const char *key = n->key->text;
    char text[512];
    if (!is_model_option(key)) {
        snprintf(text, sizeof text,
                 "an entry of a model cannot have \"%.64s\". Give it to the gateway itself, or "
                 "remove it",
                 key);
        return complain(r, n->key, text);
    }
    if (yaml_node_is_null(n))
        return STATUS_OK;
    const char *value = value_text(r, n);
    if (!value)
        return no_memory(r);
    e->pairs.items[e->pairs.n++] = (struct config_pair){str_from(key), str_from(value), n->at.line};
    return STATUS_OK;
}

static enum status read_state(const struct reader *r, const struct yaml_node *n, bool *failed)
{
    *failed = n->kind == YAML_KIND_TEXT && strcmp(n->text, "failed") == 0;
    if (!*failed && !yaml_node_is_null(n))
        return complain(r, n, "state can only be \"failed\", or be left out");
    return STATUS_OK;
}

static enum status read_text(const struct reader *r, const struct yaml_node *n, const char **out)
{
    if (n->kind != YAML_KIND_TEXT || yaml_node_is_null(n) || !*n->text)
        return complain(r, n, "expected a text that is not empty here");
    *out = n->text;
    return STATUS_OK;
}

static enum status read_number(const struct reader *r, const struct yaml_node *n, uint32_t least,
                               uint32_t most, uint32_t *out)
{
    char text[96], *end = NULL;
    const bool is_text = n->kind == YAML_KIND_TEXT && *n->text >= '0' && *n->text <= '9';
    const unsigned long v = is_text ? strtoul(n->text, &end, 10) : 0;
    if (!is_text || *end || v < least || v > most) {
        snprintf(text, sizeof text, "expected a whole number from %u to %u here", least, most);
        return complain(r, n, text);
    }
    *out = (uint32_t)v;
    return STATUS_OK;
}

static enum status read_member(const struct reader *r, struct models_file_entry *e,
                               const struct yaml_node *n, bool *failed)
{
    const char *key = n->key->text;
    if (strcmp(key, "name") == 0)
        return STATUS_OK; /* read before, because the name is the first of the names */
    if (strcmp(key, "aliases") == 0)
        return read_aliases(r, e, n);
    if (strcmp(key, "state") == 0)
        return read_state(r, n, failed);
    if (strcmp(key, "reason") == 0)
        return read_text(r, n, &e->reason);
    if (strcmp(key, "fallback") == 0)
        return read_text(r, n, &e->fallback);
    if (strcmp(key, "max_requests") == 0)
        return read_number(r, n, 1, MODEL_REQUESTS_MAX, &e->max_requests);
    return add_option(r, e, n);
}

static const struct yaml_node *member(const struct yaml_node *map, const char *key)
{
    for (const struct yaml_node *n = map->first; n; n = n->next)
        if (strcmp(n->key->text, key) == 0)
            return n;
    return NULL;
}

/* Writes the pairs as one text, in the order of the file. */
static const char *text_of_pairs(const struct reader *r, const struct models_file_entry *e)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    for (size_t i = 0; i < e->pairs.n; i++) {
        strbuf_append_json(&b, e->pairs.items[i].name);
        strbuf_append_json(&b, e->pairs.items[i].value);
    }
    char *text = arena_try_alloc(&r->f->texts, b.len + 1);
    if (text) {
        memcpy(text, b.len ? b.ptr : "", b.len);
        text[b.len] = '\0';
    }
    strbuf_fini(&b);
    return text;
}

static enum status read_entry(const struct reader *r, const struct yaml_node *n)
{
    struct models_file_entry *e = &r->f->entries[r->f->n_entries];
    bool failed = false;
    if (n->kind != YAML_KIND_MAP)
        return complain(r, n, "each model must be a mapping with a name");
    const struct yaml_node *name = member(n, "name");
    if (!name)
        return complain(r, n, "the model has no name");
    e->line = n->at.line;
    e->name = name->text;
    TRY(add_name(r, e, name));
    e->pairs.file = r->path;
    e->pairs.items = arena_try_array(&r->f->texts, n->n, sizeof *e->pairs.items);
    if (!e->pairs.items)
        return no_memory(r);
    for (const struct yaml_node *m = n->first; m; m = m->next)
        TRY(read_member(r, e, m, &failed));
    e->options = text_of_pairs(r, e);
    e->reason = failed ? e->reason ? e->reason : "the file of models says so" : NULL;
    r->f->n_entries++;
    return e->options ? STATUS_OK : no_memory(r);
}

/* ---- names ---- */

static const struct models_file_entry *owner_of(const struct models_file *f, const char *name,
                                                const struct models_file_entry *but)
{
    for (uint32_t i = 0; i < f->n_entries; i++)
        for (uint32_t k = 0; k < f->entries[i].n_names && &f->entries[i] != but; k++)
            if (strcmp(f->entries[i].names[k], name) == 0)
                return &f->entries[i];
    return NULL;
}

/* Refuses a name that two models have, or that one model has twice. */
static enum status check_names(const struct reader *r)
{
    for (uint32_t i = 0; i < r->f->n_entries; i++) {
        const struct models_file_entry *e = &r->f->entries[i], *other = NULL;
        for (uint32_t k = 0; k < e->n_names; k++) {
            for (uint32_t j = 0; j < k && !other; j++)
                other = strcmp(e->names[j], e->names[k]) == 0 ? e : NULL;
            other = other ? other : owner_of(r->f, e->names[k], e);
            if (other)
                return error_set(r->err, STATUS_INVALID,
                                 "%s:%zu: the name \"%s\" is also a name of the model of line %zu. "
                                 "Choose another name for one of them",
                                 r->path, e->line, e->names[k], other->line);
        }
    }
    return STATUS_OK;
}

/* ---- routes ---- */

static enum status find_model(const struct reader *r, const struct yaml_node *n, const char *name)
{
    char text[512];
    for (uint32_t i = 0; i < r->f->n_entries; i++)
        if (strcmp(r->f->entries[i].name, name) == 0)
            return STATUS_OK;
    snprintf(text, sizeof text, "the file has no model of the name \"%.256s\"", name);
    return complain(r, n, text);
}

static enum status read_target(const struct reader *r, struct models_file_route *route,
                               const struct yaml_node *n)
{
    const struct yaml_node *model = n->kind == YAML_KIND_MAP ? member(n, "model") : NULL,
                           *weight = n->kind == YAML_KIND_MAP ? member(n, "weight") : NULL;
    if (!model || n->n != 1 + (weight != NULL))
        return complain(r, n,
                        "each target must have the member \"model\", and may have \"weight\"");
    if (route->n_targets == ROUTE_TARGETS_MAX)
        return complain(r, n, "the route has more than 16 targets");
    route->targets[route->n_targets].weight = 1;
    TRY(read_text(r, model, &route->targets[route->n_targets].model));
    if (weight)
        TRY(read_number(r, weight, 0, ROUTE_WEIGHT_MAX, &route->targets[route->n_targets].weight));
    return find_model(r, model, route->targets[route->n_targets++].model);
}

static enum status read_targets(const struct reader *r, struct models_file_route *route,
                                const struct yaml_node *n)
{
    uint64_t sum = 0;
    if (n->kind != YAML_KIND_LIST)
        return complain(r, n, "targets must be a list");
    for (const struct yaml_node *item = n->first; item; item = item->next)
        TRY(read_target(r, route, item));
    for (uint32_t i = 0; i < route->n_targets; i++)
        sum += route->targets[i].weight;
    return sum > 0 ? STATUS_OK : complain(r, n, "at least one target needs a weight above 0");
}

static enum status read_route(const struct reader *r, const struct yaml_node *n)
{
    struct models_file_route *route = &r->f->routes[r->f->n_routes++];
    const struct yaml_node *name = n->kind == YAML_KIND_MAP ? member(n, "name") : NULL,
                           *targets = name ? member(n, "targets") : NULL;
    if (!name || !targets)
        return complain(r, n, "each route must be a mapping with a name and targets");
    route->line = n->at.line;
    TRY(read_text(r, name, &route->name));
    if (strlen(route->name) > MODEL_NAME_MAX || !is_printable(route->name))
        return complain(r, name, "the name is longer than 255 bytes or has a control character");
    for (uint32_t i = 0; i + 1 < r->f->n_routes; i++)
        if (strcmp(r->f->routes[i].name, route->name) == 0)
            return complain(r, name, "the file has two routes of this name");
    for (const struct yaml_node *m = n->first; m; m = m->next)
        if (strcmp(m->key->text, "mirror") == 0)
            TRY(read_text(r, m, &route->mirror));
        else if (m != name && m != targets)
            return complain(r, m->key, "a route has only name, targets and mirror");
    if (route->mirror)
        TRY(find_model(r, member(n, "mirror"), route->mirror));
    return read_targets(r, route, targets);
}

static enum status read_routes(const struct reader *r, const struct yaml_node *list)
{
    if (!list)
        return STATUS_OK;
    if (list->kind != YAML_KIND_LIST)
        return complain(r, list, "routes must be a list");
    if (list->n > MODELS_MAX)
        return complain(r, list, "the list has more than 256 routes");
    r->f->routes = arena_try_array(&r->f->texts, list->n ? list->n : 1, sizeof *r->f->routes);
    if (!r->f->routes)
        return no_memory(r);
    for (const struct yaml_node *n = list->first; n; n = n->next)
        TRY(read_route(r, n));
    return STATUS_OK;
}

/* ---- the file ---- */

static enum status check_fallbacks(const struct reader *r, const struct yaml_node *list)
{
    const struct yaml_node *n = list->first;
    for (uint32_t i = 0; i < r->f->n_entries; i++, n = n->next)
        if (r->f->entries[i].fallback &&
            strcmp(r->f->entries[i].fallback, r->f->entries[i].name) == 0)
            return complain(r, member(n, "fallback"), "a model cannot be its own fallback");
        else if (r->f->entries[i].fallback)
            TRY(find_model(r, member(n, "fallback"), r->f->entries[i].fallback));
    return STATUS_OK;
}

static enum status read_root(const struct reader *r, const struct yaml_node *root)
{
    const bool is_map = root && root->kind == YAML_KIND_MAP;
    const struct yaml_node *list = is_map ? member(root, "models") : NULL,
                           *routes = is_map ? member(root, "routes") : NULL,
                           *owner = is_map ? member(root, "managed_by") : NULL;
    if (!list || list->kind != YAML_KIND_LIST)
        return error_set(r->err, STATUS_INVALID,
                         "%s: the file must have the member \"models\" with a list of models",
                         r->path);
    for (const struct yaml_node *n = root->first; n; n = n->next)
        if (n != list && n != routes && n != owner)
            return complain(r, n->key,
                            "this file has only the members \"models\", \"routes\" and "
                            "\"managed_by\"");
    if (list->n > MODELS_MAX)
        return complain(r, list, "the list has more than 256 models");
    r->f->entries = arena_try_array(&r->f->texts, list->n ? list->n : 1, sizeof *r->f->entries);
    if (!r->f->entries)
        return no_memory(r);
    for (const struct yaml_node *n = list->first; n; n = n->next)
        TRY(read_entry(r, n));
    TRY(check_names(r));
    TRY(check_fallbacks(r, list));
    return read_routes(r, routes);
}

enum status models_file_parse(struct str text, const char *path, struct models_file *out,
                              struct error *err)
{
    struct yaml_node *root;
    struct yaml_mark at = {0};
    struct error why = {0};
    *out = (struct models_file){0};
    arena_init(&out->texts, 0);
    const enum status s = yaml_tree_parse(text, &out->texts, &root, &at, &why);
    if (s != STATUS_OK)
        return error_set(err, s, "%s:%u: %s", path, at.line, why.text);
    return read_root(&(struct reader){out, path, err}, root);
}

enum status models_file_text(const char *path, struct strbuf *text, struct error *err)
{
    char chunk[16384];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : 1;
    while (n > 0 && (n = read(fd, chunk, sizeof chunk)) > 0)
        if (!strbuf_append(text, chunk, (size_t)n))
            break;
    const int e = errno;
    if (fd >= 0)
        close(fd);
    if (n < 0)
        return error_set(err, e == ENOENT ? STATUS_NOT_FOUND : STATUS_IO,
                         "cannot read the file of models %s: %s. Check the path of --models", path,
                         strerror(e));
    if (text->failed)
        return error_set(err, STATUS_LIMIT,
                         "the file of models %s is larger than the limit of %d bytes", path,
                         MODELS_FILE_MAX);
    return STATUS_OK;
}

enum status models_file_read(const char *path, struct models_file *out, struct error *err)
{
    struct strbuf text;
    *out = (struct models_file){0};
    arena_init(&out->texts, 0);
    strbuf_init(&text, MODELS_FILE_MAX);
    enum status s = models_file_text(path, &text, err);
    if (s == STATUS_OK) {
        arena_fini(&out->texts);
        s = models_file_parse(strbuf_str(&text), path, out, err);
    }
    strbuf_fini(&text);
    return s;
}

void models_file_fini(struct models_file *f)
{
    arena_fini(&f->texts);
    *f = (struct models_file){0};
}

enum status models_file_options(const struct models_file_entry *e, struct gateway_config *config,
                                struct config_result *owned, struct error *err)
{
    return config_apply(gateway_options, n_gateway_options, &e->pairs, config, owned, err);
}
