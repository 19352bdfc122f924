/* Reads options from the environment. An unknown COX_ variable is not an error. The programs of
 * one cluster share their environment, and Kubernetes adds variables of its own for a Service
 * called cox. A variable that looks like a misspelt option gets a warning. */
#include "common/config/environment.h"

#include <string.h>

#include "common/config/lookup.h"

/* Reads the name of COX_NAME=value, in lower case with dashes. Returns false when the entry is
 * not a COX_ variable with a value. */
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
    /* an empty value means that the variable is unset, as in compose files and shells */
    return **value != '\0';
}

static const char *env_find(char *const *environ_, const char *name, size_t n)
{
    for (; environ_ && *environ_; environ_++)
        if (strncmp(*environ_, name, n) == 0 && (*environ_)[n] == '=' && (*environ_)[n + 1])
            return *environ_ + n + 1;
    return NULL;
}

/* Returns true for a list of API keys that clients may use. A client's own key is one value and
 * not a list. */
static bool is_keys(const struct option_spec *s)
{
    return s->secret && s->type == OPTION_LIST;
}

/* Returns the value without a trailing newline when the value is a secret. A Secret that was
 * made from a file or with echo ends with a newline, and an HTTP header cannot carry it. Other
 * blanks are removed from lists of keys only, because a password may end with a blank. */
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
                     "%s is set but has no value. Unset it or give it a value", where);
}

/* Returns true when COX_<OPTION> is set. In that case the values of a standard variable are not
 * added to the list. */
static bool env_has_own(char *const *environ_, const struct option_spec *s)
{
    char name[CONFIG_NAME_MAX];
    const char *value;
    for (; environ_ && *environ_; environ_++)
        if (env_split(*environ_, name, &value) && strcmp(name, s->name) == 0)
            return true;
    return false;
}

/* Applies variables of other standards (OTEL_SERVICE_NAME). They are applied first, because COX_
 * variables override them. */
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

/* Warns about keys taken from another program's variable. The function runs at the end, because
 * a flag or a COX_ variable replaces that value. */
void config_warn_of_foreign_keys(struct config_parser *p, char *const *environ_)
{
    for (size_t i = 0; i < p->n_specs; i++)
        if (is_keys(&p->specs[i]) && p->specs[i].env && p->set_by[i] == CONFIG_FROM_ENV &&
            !env_has_own(environ_, &p->specs[i]))
            config_warn(p, "the environment variable %s is used as --%s", p->specs[i].env,
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
            /* the option is a vLLM flag, and its name has no meaning in our environment */
            continue;
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
                config_warn(p, "%s is not an option and is ignored; did you mean %s?",
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
