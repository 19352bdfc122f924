/* Checks one value and writes it into the config struct. All passes (defaults, file,
 * environment, flags) call config_set with a row, a text and the origin of the text for error
 * messages.
 * Every string is copied into the arena of the result, so the config struct never points into
 * argv, the environment or the file. A later pass replaces a list of an earlier one. Within a
 * pass items are appended. A value is at most CONFIG_VALUE_MAX bytes and a list CONFIG_ITEMS_MAX
 * items. Only one thread calls these functions. */
#include "common/config/set.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/base/mem.h"
#include "common/config/lookup.h"

/* Returns `p`, or aborts on NULL as mem_alloc does. The arena has no limit, so NULL means out of
 * memory. */
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
    /* The array is full when n_items is a power of two. The old array stays in the arena until
     * config_fini. */
    if ((l->n_items & (l->n_items - 1)) == 0) {
        size_t cap = l->n_items ? l->n_items * 2 : 1;
        const char **items = or_abort(arena_try_array(p->strings, cap, sizeof *items));
        if (l->n_items)
            memcpy(items, l->items, l->n_items * sizeof *items);
        l->items = items;
    }
    l->items[l->n_items++] = own_bytes(p, item.ptr, item.len);
}

void config_warn(struct config_parser *p, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    config_list_add(p, &p->res->warnings, str_from(text));
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

/* Returns the name as the user wrote it at that origin, without the file and line. */
const char *config_spelled(struct config_parser *p, struct str name, struct config_origin from)
{
    char text[CONFIG_NAME_MAX];
    snprintf(text, sizeof text, STR_FMT, STR_ARG(name));
    const char *whole = config_origin_text(p, text, from);
    return from.source == CONFIG_FROM_FILE ? whole + strlen(whole) - name.len : whole;
}

enum status config_unknown(struct config_parser *p, struct str name, struct config_origin from)
{
    size_t distance;
    struct str near = config_nearest_name(p->specs, p->n_specs, name, &distance);
    char typed[CONFIG_NAME_MAX];
    snprintf(typed, sizeof typed, STR_FMT, STR_ARG(name));
    const char *where = config_origin_text(p, typed, from);
    from.one_dash = false; /* suggested names have two dashes */
    bool is_near = near.len && distance <= 2 + near.len / 6;
    struct str longer = config_longer_name(p->specs, p->n_specs, name);
    if (longer.len && (!is_near || distance > 1)) {
        near = longer;
        is_near = true;
    }
    if (is_near)
        return error_set(p->err, STATUS_INVALID, "%s: unknown option; did you mean %s?", where,
                         config_spelled(p, near, from));
    return error_set(p->err, STATUS_INVALID, "%s: unknown option; --help=all lists all options",
                     where);
}

/* ---- values ---- */

/* Parses a bool and ignores case, because a file written for Python says True. */
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

/* Parses an integer with a suffix: k m g are powers of 1000. Ki Mi Gi and, as in vLLM, K M G are
 * powers of 1024. */
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
        snprintf(buf, size, "a list of at most %d items", CONFIG_ITEMS_MAX);
    else if (s->min < s->max)
        snprintf(buf, size, "%s from %.16g to %.16g",
                 s->type == OPTION_INT ? "a whole number" : "a number", s->min, s->max);
    else
        snprintf(buf, size, "%s", s->type == OPTION_INT ? "a whole number" : "a number");
    return buf;
}

/* Returns true when this value of a refused option requests the behaviour that the program has
 * anyway. */
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
            config_warn(p, "%s has no effect here and is ignored%s%s", where,
                        s->instead ? ". " : "", s->instead ? s->instead : "");
        return STATUS_OK;
    }
    if (!is_harmless(s, value))
        return error_set(p->err, STATUS_INVALID, "%s is not supported. %s", where, s->instead);
    if (!again)
        config_warn(p, "%s asks for the behaviour that is built in and is ignored", where);
    return STATUS_OK;
}

/* Sets the program's argument. An argument typed on the command line has precedence. Between
 * file and environment, the environment has precedence because it is applied later. */
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
    if (memchr(value.ptr, '\0', value.len))
        return error_set(p->err, STATUS_INVALID, "%s: the value contains a NUL byte. Remove it",
                         config_origin_text(p, s->name, from));
    if (value.len > CONFIG_VALUE_MAX)
        return error_set(p->err, STATUS_INVALID,
                         "%s: the value is longer than %d bytes, the limit. Use a shorter value",
                         config_origin_text(p, s->name, from), CONFIG_VALUE_MAX);
    if (s->type == OPTION_ARGUMENT)
        set_argument(p, value);
    if (s->type == OPTION_LIST && from.source > p->set_by[i_spec])
        *(struct option_list *)(void *)((char *)p->out + s->offset) = (struct option_list){0};
    if (!set_value(p, s, value)) {
        /* A Service named cox makes Kubernetes set COX_PORT=tcp://10.0.0.1:8000 in every pod. */
        bool service_link =
            from.source == CONFIG_FROM_ENV && str_starts(value, STR("tcp://")) && !s->secret;
        return error_set(p->err, STATUS_INVALID, "%s: \"%.*s\" is not allowed; it must be %s%s%s%s",
                         config_origin_text(p, s->name, from),
                         s->secret ? 3 : (int)(value.len > 100 ? 100 : value.len),
                         s->secret ? "***" : value.ptr, allowed_text(s, allowed, sizeof allowed),
                         s->instead ? ". " : "", s->instead ? s->instead : "",
                         service_link ? " (set enableServiceLinks: false in the pod)" : "");
    }
    p->set_by[i_spec] = from.source;
    return STATUS_OK;
}

enum status config_set_comma_list(struct config_parser *p, size_t i_spec, const char *text,
                                  struct config_origin from)
{
    struct str item;
    const bool is_secret = p->specs[i_spec].secret;
    while (config_next_item(&text, &item)) {
        item = is_secret ? str_trim(item, CONFIG_KEY_ENDS) : item;
        if (item.len)
            TRY(config_set(p, i_spec, item, from));
    }
    return STATUS_OK;
}
