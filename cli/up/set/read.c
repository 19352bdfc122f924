/* Reads the models of a set from the command line or from the file of --models.
 * An entry of the file is a mapping: name, aliases, model, start, and options of `cox up`. Its
 * options become flags, which are parsed behind those of the command line, so that one parser
 * checks both and the entry's value wins. The options that the gateways need are kept as text for
 * the gateways' file.
 * Invariants: a name and an alias occur once in the set. A tag occurs once. An option belongs to a
 * model when its group (common/options/groups.h) or `model_words` says so; any other one is refused
 * by name. */
#include "cli/up/set/read.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/up/local/name.h"
#include "cli/up/set/links.h"
#include "common/base/mem.h"
#include "common/config/lookup.h"
#include "common/config/yaml_tree.h"
#include "common/model/info/info.h"
#include "common/model/info/ref.h"
#include "common/options/gateway.h"
#include "common/options/groups.h"

enum { FILE_MAX_BYTES = 1 << 20, NAME_MAX_BYTES = 255, ALIASES_MAX = SET_NAMES_MAX - 1 };

/* `reading` is the state of one read. */
struct reading {
    const struct set_input *in;
    struct arena *arena;
    struct up_set *set;
    struct error *err;
    const char *file; /* path of the file; NULL = the models are in no file */
};

static const char *text(struct reading *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
static const char *text(struct reading *r, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    char *s = arena_try_alloc(r->arena, (size_t)(n < 0 ? 0 : n) + 1);
    vsnprintf(s, (size_t)(n < 0 ? 0 : n) + 1, fmt, again);
    va_end(again);
    return s;
}

static enum status fault(struct reading *r, const struct yaml_node *at, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
static enum status fault(struct reading *r, const struct yaml_node *at, const char *fmt, ...)
{
    char why[sizeof r->err->text];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    if (!r->file) /* the text is that of an order, and no file has its lines */
        return error_set(r->err, STATUS_INVALID, "%s", why);
    return error_set(r->err, STATUS_INVALID, "%s:%u: %s", r->file, at ? at->at.line : 1, why);
}

/* ---- names ---- */

/* Returns the name that a model has without a name of its own: that of a cluster of one model. */
static const char *usual_name(struct reading *r, const char *source)
{
    struct str name = model_name_of(source);
    struct model_ref ref;
    struct error unread;
    const char *out = text(r, STR_FMT, STR_ARG(name));
    if (model_ref_parse(source, &ref, &unread) != STATUS_OK)
        return out;
    if (model_ref_is_remote(&ref) && !(ref.is_plain && access(source, F_OK) == 0))
        out = text(r, "%s", ref.name);
    model_ref_fini(&ref);
    return out;
}

static bool is_name(const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] <= 0x20 || name[i] == 0x7F || name[i] == ',')
            return false;
    return n > 0 && n <= NAME_MAX_BYTES;
}

static bool is_taken(const struct up_set *s, const char *name)
{
    for (uint32_t i = 0; i < s->n; i++)
        for (size_t k = 0; k < s->models[i].names.n_items; k++)
            if (strcmp(s->models[i].names.items[k], name) == 0)
                return true;
    return false;
}

/* Makes the model's part of process names, with a number when another model has the same one. */
static void choose_tag(const struct up_set *s, struct set_model *m)
{
    char stem[UP_NAME_BYTES];
    up_name_of_model(m->name, stem);
    snprintf(m->tag, sizeof m->tag, "%s", stem);
    for (uint32_t i = 0, number = 2; i < s->n; i++)
        if (&s->models[i] != m && strcmp(s->models[i].tag, m->tag) == 0) {
            snprintf(m->tag, sizeof m->tag, "%.40s-%u", stem, number++);
            i = UINT32_MAX; /* the loop begins again with the new tag */
        }
}

static enum status add_name(struct reading *r, struct set_model *m, const char *name,
                            const struct yaml_node *at)
{
    if (!is_name(name))
        return error_set(r->err, STATUS_INVALID,
                         "the model name \"%.60s\" is invalid: use 1 to %d characters without "
                         "blanks and commas",
                         name, NAME_MAX_BYTES);
    if (is_taken(r->set, name) && r->file)
        return fault(r, at, "two models have the name %s. Names and aliases must be unique", name);
    if (is_taken(r->set, name))
        return error_set(r->err, STATUS_INVALID,
                         "two models have the name %s. Give one of them another name: NAME=MODEL, "
                         "such as second=%s",
                         name, m->source);
    m->names.items[m->names.n_items++] = name;
    return STATUS_OK;
}

/* Appends an empty model to the set. */
static struct set_model *add_model(struct reading *r)
{
    struct set_model *m = &r->set->models[r->set->n++];
    m->o = mem_zalloc(sizeof *m->o);
    m->names.items = arena_try_array(r->arena, SET_NAMES_MAX, sizeof *m->names.items);
    return m;
}

/* ---- options ---- */

/* `group_words` lists the groups whose options belong to a model, and `cluster_words` the options
 * of those groups that belong to the cluster. */
static const char *const groups_of_models[] = {"model",    "size",        "device", "scheduling",
                                               "kv-cache", "speculation", "lora",   "answers",
                                               "null",     "models"};
static const char cluster_words[] =
    "model served-model-name cache-dir offline gateways gpu grammar-processes grammar-memory "
    "unknown-fields models on-demand models-memory spares";
/* `model_words` lists the options of other groups that belong to a model. */
static const char model_words[] = "step-log step-log-max-bytes";

static bool has_word(const char *words, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = words; *at; at += strcspn(at, " "), at += *at == ' ')
        if (strncmp(at, name, n) == 0 && (at[n] == ' ' || at[n] == '*' || at[n] == '\0'))
            return true;
    return false;
}

static bool belongs_to_model(const char *name)
{
    if (has_word(cluster_words, name) || has_word(model_words, name))
        return has_word(model_words, name);
    for (const struct option_group *g = option_groups; g->key; g++)
        for (size_t i = 0; i < sizeof groups_of_models / sizeof *groups_of_models; i++)
            if (strcmp(g->key, groups_of_models[i]) == 0 && has_word(g->names, name))
                return true;
    return false;
}

static const char *json_of(struct reading *r, const struct yaml_node *v)
{
    struct strbuf b;
    strbuf_init(&b, 2ul * FILE_MAX_BYTES);
    yaml_node_append_json(v, &b);
    const char *out = text(r, "%s", b.ptr ? b.ptr : "null");
    strbuf_fini(&b);
    return out;
}

static void keep_for_gateways(struct reading *r, struct set_model *m, const char *name,
                              const struct yaml_node *v)
{
    if (!set_links_is_key(name) &&
        config_find(gateway_options, n_gateway_options, str_from(name)) == n_gateway_options)
        return;
    char *key = arena_try_alloc(r->arena, strlen(name) + 1);
    for (size_t i = 0; i <= strlen(name); i++)
        key[i] = (char)(name[i] == '-' ? '_' : name[i]);
    m->settings[m->n_settings++] = (struct set_setting){key, json_of(r, v)};
}

/* Appends the flags of one option of an entry. */
static enum status add_flags(struct reading *r, struct set_model *m, const struct yaml_node *v,
                             char **argv, int *argc, int max)
{
    const struct set_input *in = r->in;
    size_t i = config_find(in->specs, in->n_specs, str_from(v->key->text));
    if (i == in->n_specs) {
        size_t distance;
        struct str near =
            config_nearest_name(in->specs, in->n_specs, str_from(v->key->text), &distance);
        return fault(r, v->key, "`%.60s` is not an option of `cox up`; the nearest one is " STR_FMT,
                     v->key->text, STR_ARG(near));
    }
    const struct option_spec *spec = &in->specs[i];
    if (config_is_foreign(spec) || !belongs_to_model(spec->name))
        return fault(r, v->key,
                     "`%.60s` is not an option of one model. Remove it here, or give it on the "
                     "command line for the whole cluster",
                     v->key->text);
    if (v->kind == YAML_KIND_LIST ? *argc + (int)v->n > max : *argc == max)
        return fault(r, v, "the model has too many options");
    if (v->kind == YAML_KIND_LIST)
        for (const struct yaml_node *c = v->first; c; c = c->next) {
            if (c->kind != YAML_KIND_TEXT)
                return fault(r, c, "`%.60s` must be a list of words", v->key->text);
            argv[(*argc)++] = (char *)text(r, "--%s=%s", spec->name, c->text);
        }
    else if (!yaml_node_is_null(v))
        argv[(*argc)++] = (char *)text(r, "--%s=%s", spec->name,
                                       v->kind == YAML_KIND_MAP ? json_of(r, v) : v->text);
    keep_for_gateways(r, m, spec->name, v);
    return STATUS_OK;
}

/* Returns the number of words in front of "--", behind which no option is read. */
static int count_options(const struct set_input *in)
{
    for (int i = 1; i < in->argc; i++)
        if (strcmp(in->argv[i], "--") == 0)
            return i;
    return in->argc;
}

static bool is_own_key(const char *key)
{
    return strcmp(key, "name") == 0 || strcmp(key, "aliases") == 0 || strcmp(key, "model") == 0 ||
           strcmp(key, "start") == 0;
}

/* Appends a value in one form, whether the file has its words in quotes or not, because
 * `cox models` writes the file with quotes (common/json/yaml_file.h). */
static void append_value(const struct yaml_node *v, struct strbuf *out)
{
    if (v->kind == YAML_KIND_TEXT) {
        if (yaml_node_is_null(v))
            strbuf_append_c(out, "null");
        else
            strbuf_append_json(out, str_from(v->text));
        return;
    }
    if (v->kind == YAML_KIND_LIST) {
        for (const struct yaml_node *c = v->first; c; c = c->next) {
            strbuf_append_c(out, c == v->first ? "[" : ",");
            append_value(c, out);
        }
        strbuf_append_c(out, v->n > 0 ? "]" : "[]");
        return;
    }
    struct strbuf json;
    strbuf_init(&json, 2ul * FILE_MAX_BYTES);
    yaml_node_append_json(v, &json);
    json_t *tree = json_loadb(json.ptr, json.len, 0, NULL);
    char *text = tree ? json_dumps(tree, JSON_COMPACT) : NULL; /* one form of 1e5 and 100000.0 */
    strbuf_append(out, text ? text : json.ptr, text ? strlen(text) : json.len);
    free(text);
    json_decref(tree);
    strbuf_fini(&json);
}

/* Writes down what the processes of a model are made of. Models with equal texts run the same
 * processes, whatever their names. */
static void describe(struct reading *r, struct set_model *m, const struct yaml_node *entry)
{
    struct strbuf b;
    strbuf_init(&b, 2ul * FILE_MAX_BYTES);
    strbuf_append_json(&b, str_from(m->source));
    strbuf_printf(&b, " %u", m->o->start);
    for (const struct yaml_node *v = entry ? entry->first : NULL; v; v = v->next)
        if (!is_own_key(v->key->text) && !set_links_is_key(v->key->text)) {
            strbuf_append_c(&b, " ");
            strbuf_append_json(&b, str_from(v->key->text));
            append_value(v, &b);
        }
    m->made_of = text(r, "%s", b.ptr);
    strbuf_fini(&b);
}

/* Parses the options of a model: those of the command line, then those of its entry. */
static enum status read_options(struct reading *r, struct set_model *m,
                                const struct yaml_node *entry)
{
    enum { FLAGS_MAX = 512 };
    int n = count_options(r->in), argc = n;
    char **argv = mem_array((size_t)n + FLAGS_MAX + 1, sizeof *argv);
    enum status s = STATUS_OK;
    memcpy(argv, r->in->argv, (size_t)n * sizeof *argv);
    m->settings = arena_try_array(r->arena, entry ? entry->n : 1, sizeof *m->settings);
    for (const struct yaml_node *v = entry ? entry->first : NULL; v && s == STATUS_OK; v = v->next)
        if (set_links_is_key(v->key->text))
            keep_for_gateways(r, m, v->key->text, v);
        else if (!is_own_key(v->key->text))
            s = add_flags(r, m, v, argv, &argc, n + FLAGS_MAX);
    argv[argc] = NULL;
    if (s == STATUS_OK) {
        s = config_parse(r->in->specs, r->in->n_specs, argc, argv, r->in->environ_, m->o,
                         &m->o_owned, r->err);
        if (s != STATUS_OK && entry) {
            const struct error why = *r->err;
            s = fault(r, entry, "model %s: %s", m->name, why.text);
        }
    }
    mem_free(argv);
    m->o->served_model_names = m->names;
    return s;
}

/* ---- the command line ---- */

bool up_set_is_named(const char *word)
{
    const char *equals = strchr(word, '=');
    return equals && equals > word && equals[1] && access(word, F_OK) != 0 &&
           !memchr(word, '/', (size_t)(equals - word)) &&
           !memchr(word, ':', (size_t)(equals - word));
}

/* Splits NAME=MODEL. */
static const char *split_name(struct reading *r, const char *word, const char **name)
{
    const char *equals = strchr(word, '=');
    *name = NULL;
    if (!up_set_is_named(word))
        return word;
    *name = text(r, "%.*s", (int)(equals - word), word);
    return equals + 1;
}

static enum status read_words(struct reading *r)
{
    for (size_t i = 0; i < r->in->models->n_items; i++) {
        struct set_model *m = add_model(r);
        m->source = split_name(r, r->in->models->items[i], &m->name);
        m->name = m->name ? m->name : usual_name(r, m->source);
        TRY(add_name(r, m, m->name, NULL));
        choose_tag(r->set, m);
        TRY(read_options(r, m, NULL));
        m->o->start = r->in->options->on_demand ? UP_START_ON_DEMAND : UP_START_ALWAYS;
        describe(r, m, NULL);
    }
    return STATUS_OK;
}

/* ---- the file ---- */

static const struct yaml_node *child(const struct yaml_node *map, const char *key)
{
    for (const struct yaml_node *c = map->first; c; c = c->next)
        if (strcmp(c->key->text, key) == 0)
            return c;
    return NULL;
}

static enum status read_start(struct reading *r, struct set_model *m, const struct yaml_node *v)
{
    m->o->start = r->in->options->on_demand ? UP_START_ON_DEMAND : UP_START_ALWAYS;
    for (unsigned i = 0; v && v->kind == YAML_KIND_TEXT && i < 3; i++)
        if (strcmp(v->text, up_start_names[i]) == 0) {
            m->o->start = (enum up_start_kind)i;
            return STATUS_OK;
        }
    return v ? fault(r, v, "`start` must be always, on-demand or asleep") : STATUS_OK;
}

static enum status read_aliases(struct reading *r, struct set_model *m, const struct yaml_node *v)
{
    if (!v)
        return STATUS_OK;
    if (v->kind != YAML_KIND_LIST || v->n > ALIASES_MAX)
        return fault(r, v, "`aliases` must be a list of at most %d names", ALIASES_MAX);
    for (const struct yaml_node *c = v->first; c; c = c->next) {
        if (c->kind != YAML_KIND_TEXT)
            return fault(r, c, "an alias must be a word");
        TRY(add_name(r, m, c->text, c));
    }
    return STATUS_OK;
}

static enum status read_entry(struct reading *r, const struct yaml_node *entry)
{
    if (entry->kind != YAML_KIND_MAP)
        return fault(r, entry, "a model must be a mapping with at least `model`");
    const struct yaml_node *source = child(entry, "model"), *name = child(entry, "name");
    if (!source || source->kind != YAML_KIND_TEXT || !source->text[0])
        return fault(r, entry, "a model has no `model`: give a path or a name to download");
    if (name && name->kind != YAML_KIND_TEXT)
        return fault(r, name, "`name` must be a word");
    struct set_model *m = add_model(r);
    m->source = source->text;
    m->name = name ? name->text : usual_name(r, m->source);
    TRY(add_name(r, m, m->name, name ? name : source));
    TRY(read_aliases(r, m, child(entry, "aliases")));
    choose_tag(r->set, m);
    TRY(read_options(r, m, entry));
    TRY(read_start(r, m, child(entry, "start")));
    describe(r, m, entry);
    return STATUS_OK;
}

enum status up_set_text(const char *file, struct strbuf *out, struct error *err)
{
    char piece[4096];
    ssize_t n = -1;
    int fd = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    strbuf_init(out, FILE_MAX_BYTES);
    while (fd >= 0 && (n = read(fd, piece, sizeof piece)) > 0)
        if (!strbuf_append(out, piece, (size_t)n)) {
            close(fd);
            return error_set(err, STATUS_INVALID, "%s is larger than 1 MiB (--models)", file);
        }
    int why = errno;
    if (fd >= 0)
        close(fd);
    return n == 0 ? STATUS_OK
                  : error_set(err, STATUS_INVALID, "cannot read %s (--models): %s", file,
                              strerror(why));
}

static enum status read_tree(struct reading *r, const struct yaml_node *root)
{
    const struct yaml_node *models =
        root && root->kind == YAML_KIND_MAP ? child(root, "models") : NULL;
    if (!models || models->kind != YAML_KIND_LIST || models->n == 0 || models->n > UP_SET_MAX)
        return fault(r, root, "the file must have a list `models` with 1 to %d models", UP_SET_MAX);
    for (const struct yaml_node *c = root->first; c; c = c->next)
        if (strcmp(c->key->text, "routes") == 0)
            r->set->routes = json_of(r, c);
        else if (c != models)
            return fault(r, c->key, "unknown key `%.60s`; the keys are models and routes",
                         c->key->text);
    for (const struct yaml_node *c = models->first; c; c = c->next)
        TRY(read_entry(r, c));
    return set_links_check(r->set, models, child(root, "routes"), r->file, r->err);
}

static enum status read_yaml(struct reading *r, struct str yaml)
{
    struct yaml_node *root = NULL;
    struct yaml_mark at;
    if (yaml_tree_parse(yaml, r->arena, &root, &at, r->err) != STATUS_OK) {
        const struct error why = *r->err;
        const struct yaml_node place = {.at = at};
        return fault(r, &place, "%s", why.text);
    }
    return read_tree(r, root);
}

static enum status read_file(struct reading *r)
{
    struct strbuf b;
    enum status s = up_set_text(r->file, &b, r->err);
    if (s == STATUS_OK)
        s = read_yaml(r, strbuf_str(&b));
    strbuf_fini(&b);
    return s;
}

enum status up_set_read_again(const struct set_input *in, const char *file, struct str yaml,
                              struct arena *arena, struct up_set *out, struct error *err)
{
    struct reading r = {in, arena, out, err, file};
    out->models = mem_zalloc(UP_SET_MAX * sizeof *out->models);
    return read_yaml(&r, yaml);
}

void up_set_write(const struct up_set *set, struct strbuf *out)
{
    strbuf_append_c(out, "models:\n");
    for (uint32_t i = 0; i < set->n; i++) {
        strbuf_append_c(out, "- {name: ");
        strbuf_append_json(out, str_from(set->models[i].name));
        strbuf_append_c(out, ", model: ");
        strbuf_append_json(out, str_from(set->models[i].source));
        strbuf_printf(out, ", start: %s}\n", up_start_names[set->models[i].o->start]);
    }
}

enum status up_set_read(const struct set_input *in, struct arena *arena, struct up_set *out,
                        struct error *err)
{
    struct reading r = {in, arena, out, err, in->options->models_file};
    if (r.file && in->models->n_items > 0)
        return error_set(err, STATUS_INVALID,
                         "--models %s has the models, so %s on the command line would be one more. "
                         "Write it into the file",
                         r.file, in->models->items[0]);
    if (in->models->n_items > UP_SET_MAX)
        return error_set(err, STATUS_INVALID,
                         "%zu models are too many for one cluster: at most %d are allowed",
                         in->models->n_items, UP_SET_MAX);
    out->models = mem_zalloc(UP_SET_MAX * sizeof *out->models);
    return r.file ? read_file(&r) : read_words(&r);
}

void up_set_free(struct up_set *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        config_fini(&s->models[i].o_owned);
        mem_free(s->models[i].o);
    }
    mem_free(s->models);
    *s = (struct up_set){0};
}

bool up_set_is_wanted(const struct up_options *o, const struct option_list *models)
{
    bool is_named = models->n_items == 1 && up_set_is_named(models->items[0]);
    return models->n_items > 1 || is_named || o->models_file || o->on_demand;
}
