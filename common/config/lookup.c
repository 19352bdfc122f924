#include "common/config/lookup.h"

#include <string.h>

#include "common/config/distance.h"

/* Returns a name spelt with dashes. A name that is too long becomes empty and then matches
 * nothing. */
static struct str dashed(struct str name, char out[CONFIG_NAME_MAX])
{
    if (name.len >= CONFIG_NAME_MAX)
        return (struct str){"", 0};
    for (size_t i = 0; i < name.len; i++)
        out[i] = (char)(name.ptr[i] == '_' ? '-' : name.ptr[i]);
    return (struct str){out, name.len};
}

bool config_next_item(const char **rest, struct str *out)
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
    char buf[CONFIG_NAME_MAX];
    name = dashed(name, buf);
    for (size_t i = 0; name.len && i < n_specs; i++) {
        const char *rest = specs[i].aliases;
        struct str alias;
        if (str_eq_c(name, specs[i].name))
            return i;
        while (config_next_item(&rest, &alias))
            if (str_eq(name, alias))
                return i;
    }
    return n_specs;
}

struct str config_nearest_name(const struct option_spec *specs, size_t n_specs, struct str name,
                               size_t *distance)
{
    static const char *const built_in[] = {"config", "help", "version"};
    struct str best = {"", 0};
    char buf[CONFIG_NAME_MAX];
    name = dashed(name, buf);
    *distance = CONFIG_NAME_MAX;
    for (size_t i = 0; i < n_specs + sizeof built_in / sizeof *built_in; i++) {
        const char *rest = i < n_specs ? specs[i].aliases : NULL;
        struct str known = str_from(i < n_specs ? specs[i].name : built_in[i - n_specs]);
        do {
            size_t d = str_distance(name, known);
            if (d < *distance) {
                *distance = d;
                best = known;
            }
        } while (config_next_item(&rest, &known));
    }
    return best;
}

struct str config_longer_name(const struct option_spec *specs, size_t n_specs, struct str name)
{
    struct str found = {"", 0};
    char buf[CONFIG_NAME_MAX];
    name = dashed(name, buf);
    for (size_t i = 0; i < n_specs; i++) {
        struct str known = str_from(specs[i].name);
        if (config_is_foreign(&specs[i]) || known.len <= name.len + 1 || !str_ends(known, name) ||
            known.ptr[known.len - name.len - 1] != '-')
            continue;
        if (found.len)
            return (struct str){"", 0};
        found = known;
    }
    return found;
}

bool config_is_foreign(const struct option_spec *s)
{
    return s->type == OPTION_IGNORED || s->type == OPTION_REFUSED;
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
