/* Parsing in four passes of ascending precedence: defaults, file, environment, flags. argv is split
 * into settings first (config_argv.c), since it names the file. Every string that reaches the
 * config struct is a copy in one arena, freed by config_fini.
 *
 * An unknown COX_ variable is no error: the programs of one cluster share their environment, and
 * Kubernetes adds variables of its own for a Service called cox. One that looks like a misspelling
 * of a known name gets a warning. */
#include "common/config/config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/mem.h"
#include "common/config/distance.h"
#include "common/config/set.h"

enum { NAME_MAX_LEN = 64 };

#define KEY_ENDS "\r\n \t" /* characters that no key begins or ends with */

/* The arena has no limit, so NULL is plain out of memory: ends as mem_alloc would. */
static void *or_abort(void *p)
{
    return p ? p : mem_array(SIZE_MAX, 2);
}

static char *own_bytes(struct config_parser *p, const void *bytes, size_t n)
{
    char *copy = or_abort(arena_try_alloc(p->strings, n + 1));
    memcpy(copy, bytes, n);
    copy[n] = '\0';
    return copy;
}

void config_list_add(struct config_parser *p, struct option_list *l, struct str item)
{
    /* full at each power of two: the old array stays in the arena until config_fini */
    if ((l->n_items & (l->n_items - 1)) == 0) {
        size_t cap = l->n_items ? l->n_items * 2 : 1;
        const char **items = or_abort(arena_try_array(p->strings, cap, sizeof *items));
        if (l->n_items)
            memcpy(items, l->items, l->n_items * sizeof *items);
        l->items = items;
    }
    l->items[l->n_items++] = own_bytes(p, item.ptr, item.len);
}

static void warn(struct config_parser *p, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void warn(struct config_parser *p, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    config_list_add(p, &p->res->warnings, str_from(text));
}

/* ---- names ---- */

/* Dashed spelling of a name; too long a name becomes empty, which matches nothing. */
static struct str dashed(struct str name, char out[NAME_MAX_LEN])
{
    if (name.len >= NAME_MAX_LEN)
        return (struct str){"", 0};
    for (size_t i = 0; i < name.len; i++)
        out[i] = (char)(name.ptr[i] == '_' ? '-' : name.ptr[i]);
    return (struct str){out, name.len};
}

static bool next_alias(const char **rest, struct str *out)
{
    if (!*rest || !**rest)
        return false;
    size_t n = strcspn(*rest, ",");
    *out = (struct str){*rest, n};
    *rest += n + ((*rest)[n] == ',');
    return true;
}

size_t config_find(const struct option_spec *specs, size_t n_specs, struct str name)
{
    char buf[NAME_MAX_LEN];
    name = dashed(name, buf);
    for (size_t i = 0; name.len && i < n_specs; i++) {
        const char *rest = specs[i].aliases;
        struct str alias;
        if (str_eq_c(name, specs[i].name))
            return i;
        while (next_alias(&rest, &alias))
            if (str_eq(name, alias))
                return i;
    }
    return n_specs;
}

static struct str nearest_name(const struct config_parser *p, struct str name, size_t *distance)
{
    static const char *const built_in[] = {"config", "help", "version"};
    struct str best = {"", 0};
    char buf[NAME_MAX_LEN];
    name = dashed(name, buf);
    *distance = NAME_MAX_LEN;
    for (size_t i = 0; i < p->n_specs + sizeof built_in / sizeof *built_in; i++) {
        const char *rest = i < p->n_specs ? p->specs[i].aliases : NULL;
        struct str known = str_from(i < p->n_specs ? p->specs[i].name : built_in[i - p->n_specs]);
        do {
            size_t d = str_distance(name, known);
            if (d < *distance) {
                *distance = d;
                best = known;
            }
        } while (next_alias(&rest, &known));
    }
    return best;
}

const char *config_origin_text(struct config_parser *p, const char *name, struct config_origin from)
{
    char text[512];
    size_t n = 0;
    bool env = from.source == CONFIG_FROM_ENV, file = from.source == CONFIG_FROM_FILE;
    const char *dashes = from.one_dash ? "-" : "--";
    if (from.as.len > 0)
        return own_bytes(p, from.as.ptr, from.as.len);
    if (file)
        n = (size_t)snprintf(text, sizeof text, "%.300s:%zu: ", from.file, from.line);
    else
        n = (size_t)snprintf(text, sizeof text, "%s", env ? "COX_" : dashes);
    for (; *name && n + 1 < sizeof text; name++) {
        char c = (char)(*name == '-' && (env || file) ? '_' : *name);
        text[n++] = (char)(env && c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    }
    return own_bytes(p, text, n);
}

/* The same name as it is written at that origin, without its place. */
static const char *spelled(struct config_parser *p, struct str name, struct config_origin from)
{
    char text[NAME_MAX_LEN];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(name));
    const char *whole = config_origin_text(p, text, from);
    return from.source == CONFIG_FROM_FILE ? whole + strlen(whole) - name.len : whole;
}

enum status config_unknown(struct config_parser *p, struct str name, struct config_origin from)
{
    size_t distance;
    struct str near = nearest_name(p, name, &distance);
    char typed[NAME_MAX_LEN];
    snprintf(typed, sizeof typed, STR_FMT, STR_ARG(name));
    const char *where = config_origin_text(p, typed, from);
    from.one_dash = false; /* the names that are suggested have two */
    if (near.len && distance <= 2 + near.len / 6)
        return error_set(p->err, STATUS_INVALID, "%s: unknown option; did you mean %s?", where,
                         spelled(p, near, from));
    return error_set(p->err, STATUS_INVALID, "%s: unknown option; --help lists them all", where);
}

/* ---- values ---- */

struct str config_choice(const char *choices, size_t i)
{
    for (; choices; i--) {
        size_t n = strcspn(choices, "|");
        if (i == 0)
            return (struct str){choices, n};
        choices = choices[n] ? choices + n + 1 : NULL;
    }
    return (struct str){"", 0};
}

/* Case does not count: a file written for Python says True. */
bool config_parse_bool(struct str v, bool *out)
{
    static const char *const words[] = {"false", "true", "no", "yes", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (v.len == strlen(words[i]) && strncasecmp(v.ptr, words[i], v.len) == 0) {
            *out = i % 2;
            return true;
        }
    return false;
}

/* k m g are powers of 1000; Ki Mi Gi and, as vLLM has it, K M G are powers of 1024. */
static enum status parse_int(struct str v, int64_t *out)
{
    static const struct {
        const char *suffix;
        int64_t factor;
    } units[] = {{"Ki", 1ll << 10}, {"Mi", 1ll << 20}, {"Gi", 1ll << 30},
                 {"K", 1ll << 10},  {"M", 1ll << 20},  {"G", 1ll << 30},
                 {"k", 1000},       {"m", 1000000},    {"g", 1000000000}};
    int64_t factor = 1;
    for (size_t i = 0; i < sizeof units / sizeof *units && factor == 1; i++) {
        size_t n = strlen(units[i].suffix);
        if (v.len > n && memcmp(v.ptr + v.len - n, units[i].suffix, n) == 0) {
            factor = units[i].factor;
            v.len -= n;
        }
    }
    TRY(str_to_i64(v, out));
    return __builtin_mul_overflow(*out, factor, out) ? STATUS_LIMIT : STATUS_OK;
}

static bool in_range(const struct option_spec *s, double v)
{
    return s->min >= s->max || (v >= s->min && v <= s->max);
}

static bool set_value(struct config_parser *p, const struct option_spec *s, struct str v)
{
    char *field = (char *)p->out + s->offset;
    switch (s->type) {
    case OPTION_BOOL:
        return config_parse_bool(v, (bool *)(void *)field);
    case OPTION_INT: {
        int64_t i;
        if (parse_int(v, &i) != STATUS_OK || !in_range(s, (double)i))
            return false;
        *(int64_t *)(void *)field = i;
        return true;
    }
    case OPTION_FLOAT: {
        double d;
        if (str_to_f64(v, &d) != STATUS_OK || !isfinite(d) || !in_range(s, d))
            return false;
        *(double *)(void *)field = d;
        return true;
    }
    case OPTION_STRING:
        *(const char **)(void *)field = own_bytes(p, v.ptr, v.len);
        return true;
    case OPTION_ENUM:
        for (size_t i = 0; v.len && config_choice(s->choices, i).len; i++)
            if (str_eq(config_choice(s->choices, i), v)) {
                *(int *)(void *)field = (int)i;
                return true;
            }
        return false;
    case OPTION_LIST: {
        struct option_list *l = (void *)field;
        if (l->n_items >= CONFIG_ITEMS_MAX)
            return false;
        config_list_add(p, l, v);
        return true;
    }
    case OPTION_ARGUMENT:
    case OPTION_IGNORED:
    case OPTION_REFUSED:
    case OPTION_TYPE_COUNT:
        break;
    }
    return true;
}

static const char *allowed_text(const struct option_spec *s, char *buf, size_t size)
{
    if (s->type == OPTION_BOOL)
        snprintf(buf, size, "true or false");
    else if (s->type == OPTION_ENUM)
        snprintf(buf, size, "one of %s", s->choices);
    else if (s->type == OPTION_LIST)
        snprintf(buf, size, "at most %d items", CONFIG_ITEMS_MAX);
    else if (s->min < s->max)
        snprintf(buf, size, "%s from %.16g to %.16g",
                 s->type == OPTION_INT ? "a whole number" : "a number", s->min, s->max);
    else
        snprintf(buf, size, "%s", s->type == OPTION_INT ? "a whole number" : "a number");
    return buf;
}

size_t config_find_negated(const struct option_spec *specs, size_t n_specs, struct str name)
{
    if (!str_starts(name, STR("no-")) && !str_starts(name, STR("no_")))
        return n_specs;
    size_t i = config_find(specs, n_specs, (struct str){name.ptr + 3, name.len - 3});
    if (i == n_specs)
        return i;
    const struct option_spec *s = &specs[i];
    bool is_switch = s->type == OPTION_BOOL || (config_is_foreign(s) && s->takes == TAKES_NOTHING);
    return is_switch ? i : n_specs;
}

bool config_is_foreign(const struct option_spec *s)
{
    return s->type == OPTION_IGNORED || s->type == OPTION_REFUSED;
}

/* Does this value of a refused option ask for what is done anyway? */
static bool is_harmless(const struct option_spec *s, struct str value)
{
    bool on;
    if (s->takes == TAKES_NOTHING)
        return config_parse_bool(value, &on) && !on;
    for (size_t i = 0; value.len && config_choice(s->choices, i).len; i++)
        if (str_eq(config_choice(s->choices, i), value))
            return true;
    return false;
}

static enum status set_foreign(struct config_parser *p, size_t i_spec, struct str value,
                               struct config_origin from)
{
    const struct option_spec *s = &p->specs[i_spec];
    const char *where = config_origin_text(p, s->name, from);
    bool again = p->set_by[i_spec] != CONFIG_FROM_DEFAULT;
    p->set_by[i_spec] = from.source;
    if (s->type == OPTION_IGNORED) {
        if (!again)
            warn(p, "%s has no meaning here and is ignored%s%s", where, s->instead ? ": " : "",
                 s->instead ? s->instead : "");
        return STATUS_OK;
    }
    if (!is_harmless(s, value))
        return error_set(p->err, STATUS_INVALID, "%s is not supported: %s", where, s->instead);
    if (!again)
        warn(p, "%s asks for what is done here anyway and is ignored", where);
    return STATUS_OK;
}

/* What was typed bare wins; of file and environment the later one, which is the environment. */
static void set_argument(struct config_parser *p, struct str value)
{
    if (p->argument_typed)
        return;
    p->res->positional = (struct option_list){0};
    config_list_add(p, &p->res->positional, value);
}

enum status config_set(struct config_parser *p, size_t i_spec, struct str value,
                       struct config_origin from)
{
    const struct option_spec *s = &p->specs[i_spec];
    char allowed[256];
    if (config_is_foreign(s))
        return set_foreign(p, i_spec, value, from);
    if (value.len > CONFIG_VALUE_MAX || memchr(value.ptr, '\0', value.len))
        return error_set(p->err, STATUS_INVALID, "%s: too long, or holds a NUL byte",
                         config_origin_text(p, s->name, from));
    if (s->type == OPTION_ARGUMENT)
        set_argument(p, value);
    if (s->type == OPTION_LIST && from.source > p->set_by[i_spec])
        *(struct option_list *)(void *)((char *)p->out + s->offset) = (struct option_list){0};
    if (!set_value(p, s, value)) {
        /* a Service named cox makes Kubernetes set COX_PORT=tcp://10.0.0.1:8000 in every pod */
        bool service_link =
            from.source == CONFIG_FROM_ENV && str_starts(value, STR("tcp://")) && !s->secret;
        return error_set(p->err, STATUS_INVALID, "%s: \"%.*s\" is not allowed; it must be %s%s%s%s",
                         config_origin_text(p, s->name, from),
                         s->secret ? 3 : (int)(value.len > 100 ? 100 : value.len),
                         s->secret ? "***" : value.ptr, allowed_text(s, allowed, sizeof allowed),
                         s->instead ? ": " : "", s->instead ? s->instead : "",
                         service_link ? " (set enableServiceLinks: false in the pod)" : "");
    }
    p->set_by[i_spec] = from.source;
    return STATUS_OK;
}

/* A key without the blanks around it: no header could carry them. */
static struct str key_of(struct str s)
{
    for (; s.len > 0 && strchr(KEY_ENDS, s.ptr[0]); s.len--)
        s.ptr++;
    while (s.len > 0 && strchr(KEY_ENDS, s.ptr[s.len - 1]))
        s.len--;
    return s;
}

static enum status set_comma_list(struct config_parser *p, size_t i_spec, const char *text,
                                  struct config_origin from)
{
    struct str item;
    const bool is_secret = p->specs[i_spec].secret;
    while (next_alias(&text, &item)) {
        item = is_secret ? key_of(item) : item;
        if (item.len)
            TRY(config_set(p, i_spec, item, from));
    }
    return STATUS_OK;
}

/* ---- passes ---- */

static enum status apply_defaults(struct config_parser *p)
{
    struct config_origin from = {.source = CONFIG_FROM_DEFAULT};
    for (size_t i = 0; i < p->n_specs; i++) {
        const struct option_spec *s = &p->specs[i];
        if (!s->def || config_is_foreign(s))
            continue;
        if (s->type == OPTION_LIST)
            TRY(set_comma_list(p, i, s->def, from));
        else
            TRY(config_set(p, i, str_from(s->def), from));
    }
    return STATUS_OK;
}

/* name of COX_NAME=value, in lower case with dashes; false when the entry is no variable of ours.
 */
static bool env_split(const char *entry, char name[NAME_MAX_LEN], const char **value)
{
    if (strncmp(entry, "COX_", 4) != 0)
        return false;
    size_t n = strcspn(entry + 4, "=");
    if (n == 0 || n >= NAME_MAX_LEN || entry[4 + n] != '=')
        return false;
    for (size_t i = 0; i < n; i++) {
        char c = entry[4 + i];
        name[i] = (char)(c == '_' ? '-' : c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    }
    name[n] = '\0';
    *value = entry + 4 + n + 1;
    return **value != '\0'; /* empty means unset, as compose files and shells write it */
}

static const char *env_find(char *const *environ_, const char *name, size_t n)
{
    for (; environ_ && *environ_; environ_++)
        if (strncmp(*environ_, name, n) == 0 && (*environ_)[n] == '=' && (*environ_)[n + 1])
            return *environ_ + n + 1;
    return NULL;
}

/* Keys of those who may come in; a client's own is one, and no list. */
static bool is_keys(const struct option_spec *s)
{
    return s->secret && s->type == OPTION_LIST;
}

/* A Secret made of a file, or with echo, ends with a newline, which no header could carry. Blanks
 * are taken off a list of keys alone: a password may end with one. */
static struct str env_value(const struct option_spec *s, const char *value)
{
    struct str v = str_from(value);
    if (is_keys(s))
        return key_of(v);
    while (s->secret && v.len > 0 && strchr("\r\n", v.ptr[v.len - 1]))
        v.len--;
    return v;
}

static enum status holds_nothing(struct config_parser *p, const char *where)
{
    return error_set(p->err, STATUS_INVALID,
                     "%s is set, and holds nothing: unset it, or give it a value", where);
}

/* Whether ours is set: a list of others' is not added to it. */
static bool env_has_own(char *const *environ_, const struct option_spec *s)
{
    char name[NAME_MAX_LEN];
    const char *value;
    for (; environ_ && *environ_; environ_++)
        if (env_split(*environ_, name, &value) && strcmp(name, s->name) == 0)
            return true;
    return false;
}

/* Others' variables (OTEL_SERVICE_NAME): before ours, which win. */
static enum status apply_foreign_environment(struct config_parser *p, char *const *environ_)
{
    struct config_origin from = {.source = CONFIG_FROM_ENV};
    for (size_t i = 0; i < p->n_specs; i++) {
        const char *value = NULL;
        for (const char *at = p->specs[i].env; at && *at && !value; at += *at == ',') {
            size_t n = strcspn(at, ",");
            value = env_find(environ_, at, n);
            from.as = (struct str){at, n};
            at += n;
        }
        if (!value || (p->specs[i].type == OPTION_LIST && env_has_own(environ_, &p->specs[i])))
            continue;
        if (is_keys(&p->specs[i]) && env_value(&p->specs[i], value).len == 0)
            return holds_nothing(p, config_origin_text(p, p->specs[i].name, from));
        TRY(config_set(p, i, env_value(&p->specs[i], value), from));
    }
    return STATUS_OK;
}

/* Said when all is read: a flag or a variable of ours is taken instead. */
static void warn_of_foreign_keys(struct config_parser *p, char *const *environ_)
{
    for (size_t i = 0; i < p->n_specs; i++)
        if (is_keys(&p->specs[i]) && p->specs[i].env && p->set_by[i] == CONFIG_FROM_ENV &&
            !env_has_own(environ_, &p->specs[i]))
            warn(p, "%s of the environment is taken as --%s", p->specs[i].env, p->specs[i].name);
}

static enum status apply_environment(struct config_parser *p, char *const *environ_)
{
    struct config_origin from = {.source = CONFIG_FROM_ENV};
    char name[NAME_MAX_LEN];
    const char *value;
    for (; environ_ && *environ_; environ_++) {
        size_t distance;
        if (!env_split(*environ_, name, &value))
            continue;
        size_t i = config_find(p->specs, p->n_specs, str_from(name));
        from.as = (struct str){*environ_, strcspn(*environ_, "=")};
        if (i < p->n_specs && config_is_foreign(&p->specs[i]))
            continue; /* flags of another program: their names are free in our environment */
        if (i < p->n_specs && p->specs[i].type == OPTION_LIST) {
            if (is_keys(&p->specs[i]) && strspn(value, "," KEY_ENDS) == strlen(value))
                return holds_nothing(p, config_origin_text(p, name, from));
            TRY(set_comma_list(p, i, value, from));
        } else if (i < p->n_specs) {
            TRY(config_set(p, i, env_value(&p->specs[i], value), from));
        } else {
            struct str near = nearest_name(p, str_from(name), &distance);
            from.as = (struct str){0};
            if (near.len >= 6 && distance > 0 && distance <= 2)
                warn(p, "%s is no option and is ignored; did you mean %s?",
                     config_origin_text(p, name, from), spelled(p, near, from));
        }
    }
    return STATUS_OK;
}

static const char *find_config_in_env(char *const *environ_)
{
    char name[NAME_MAX_LEN];
    const char *value;
    for (; environ_ && *environ_; environ_++)
        if (env_split(*environ_, name, &value) && strcmp(name, "config") == 0)
            return value;
    return NULL;
}

static bool is_off(const struct config_parser *p, const struct option_spec *s)
{
    const char *field = (const char *)p->out + s->offset;
    if (s->type == OPTION_BOOL)
        return !*(const bool *)(const void *)field;
    const char *text = s->type == OPTION_STRING ? *(const char *const *)(const void *)field : "x";
    return !text || !text[0];
}

/* Given without the row that they are about. */
static void warn_of_the_useless(struct config_parser *p)
{
    for (size_t i = 0; i < p->n_specs; i++) {
        const struct option_spec *s = &p->specs[i];
        if (!s->needs || p->set_by[i] == CONFIG_FROM_DEFAULT)
            continue;
        size_t k = config_find(p->specs, p->n_specs, str_from(s->needs));
        bool env = p->set_by[i] == CONFIG_FROM_ENV; /* of a file its line is not known any more */
        struct config_origin from = {.source = env ? CONFIG_FROM_ENV : CONFIG_FROM_FLAG};
        if (k < p->n_specs && is_off(p, &p->specs[k]))
            warn(p, "%s has no effect without %s", config_origin_text(p, s->name, from),
                 config_origin_text(p, s->needs, from));
    }
}

static enum status parse_all(struct config_parser *p, struct argv_scan *a, char *const *environ_)
{
    TRY(config_scan_argv(p, a));
    TRY(apply_defaults(p));
    if (p->res->help || p->res->version)
        return STATUS_OK;
    const char *file = a->config_file ? a->config_file : find_config_in_env(environ_);
    if (file)
        TRY(config_read_file(p, file));
    TRY(apply_foreign_environment(p, environ_));
    TRY(apply_environment(p, environ_));
    config_give_back(p, a);
    for (size_t i = 0; i < a->n_settings; i++)
        TRY(config_set(
            p, a->settings[i].i_spec, a->settings[i].value,
            (struct config_origin){.source = CONFIG_FROM_FLAG, .as = a->settings[i].as}));
    warn_of_foreign_keys(p, environ_);
    warn_of_the_useless(p);
    return STATUS_OK;
}

enum status config_parse(const struct option_spec *specs, size_t n_specs, int argc,
                         char *const *argv, char *const *environ_, void *out,
                         struct config_result *res, struct error *err)
{
    struct arena *strings = mem_zalloc(sizeof *strings);
    arena_init(strings, 0);
    *res = (struct config_result){.owned = strings};
    struct config_parser p = {
        .specs = specs, .n_specs = n_specs, .out = out, .res = res, .strings = strings, .err = err};
    p.set_by = mem_array(n_specs, sizeof *p.set_by);
    struct argv_scan a = {.argc = argc, .argv = argv};
    a.settings = mem_array((size_t)(argc > 0 ? argc : 0), sizeof *a.settings);
    enum status s = parse_all(&p, &a, environ_);
    mem_free(p.set_by);
    mem_free(a.settings);
    if (s != STATUS_OK)
        config_fini(res);
    return s;
}

void config_fini(struct config_result *res)
{
    if (res->owned) {
        arena_fini(res->owned);
        mem_free(res->owned);
    }
    *res = (struct config_result){0};
}
