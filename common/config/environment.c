/* An unknown COX_ variable is no error: the programs of one cluster share their environment, and
 * Kubernetes adds variables of its own for a Service called cox. One that looks like a misspelling
 * of a known name gets a warning. */
#include "common/config/environment.h"

#include <string.h>

#include "common/config/lookup.h"

/* name of COX_NAME=value, in lower case with dashes; false when the entry is no variable of ours.
 */
static bool env_split(const char *entry, char name[CONFIG_NAME_MAX], const char **value)
{
    if (strncmp(entry, "COX_", 4) != 0)
        return false;
    size_t n = strcspn(entry + 4, "=");
    if (n == 0 || n >= CONFIG_NAME_MAX || entry[4 + n] != '=')
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
        return str_trim(v, CONFIG_KEY_ENDS);
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
    char name[CONFIG_NAME_MAX];
    const char *value;
    for (; environ_ && *environ_; environ_++)
        if (env_split(*environ_, name, &value) && strcmp(name, s->name) == 0)
            return true;
    return false;
}

/* Others' variables (OTEL_SERVICE_NAME): before ours, which win. */
enum status config_apply_foreign_environment(struct config_parser *p, char *const *environ_)
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
void config_warn_of_foreign_keys(struct config_parser *p, char *const *environ_)
{
    for (size_t i = 0; i < p->n_specs; i++)
        if (is_keys(&p->specs[i]) && p->specs[i].env && p->set_by[i] == CONFIG_FROM_ENV &&
            !env_has_own(environ_, &p->specs[i]))
            config_warn(p, "%s of the environment is taken as --%s", p->specs[i].env,
                        p->specs[i].name);
}

enum status config_apply_environment(struct config_parser *p, char *const *environ_)
{
    struct config_origin from = {.source = CONFIG_FROM_ENV};
    char name[CONFIG_NAME_MAX];
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
            if (is_keys(&p->specs[i]) && strspn(value, "," CONFIG_KEY_ENDS) == strlen(value))
                return holds_nothing(p, config_origin_text(p, name, from));
            TRY(config_set_comma_list(p, i, value, from));
        } else if (i < p->n_specs) {
            TRY(config_set(p, i, env_value(&p->specs[i], value), from));
        } else {
            struct str near = config_nearest_name(p->specs, p->n_specs, str_from(name), &distance);
            from.as = (struct str){0};
            if (near.len >= 6 && distance > 0 && distance <= 2)
                config_warn(p, "%s is no option and is ignored; did you mean %s?",
                            config_origin_text(p, name, from), config_spelled(p, near, from));
        }
    }
    return STATUS_OK;
}

const char *config_find_file_in_environment(char *const *environ_)
{
    char name[CONFIG_NAME_MAX];
    const char *value;
    for (; environ_ && *environ_; environ_++)
        if (env_split(*environ_, name, &value) && strcmp(name, "config") == 0)
            return value;
    return NULL;
}
