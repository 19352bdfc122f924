#include "common/json/aliases.h"

#include <string.h>

static bool drop_alias(json_t *aliases, const char *name)
{
    for (size_t i = 0; i < json_array_size(aliases); i++) {
        const char *now = json_string_value(json_array_get(aliases, i));
        if (now && strcmp(now, name) == 0)
            return json_array_remove(aliases, i) == 0;
    }
    return false;
}

enum status json_aliases_change(json_t *entry, const char *name, const json_t *add,
                                const json_t *rm, struct error *err)
{
    size_t i;
    json_t *word, *aliases = json_object_get(entry, "aliases");
    if (!json_is_array(aliases)) {
        aliases = json_array();
        json_object_set_new(entry, "aliases", aliases);
    }
    json_array_foreach(rm, i, word)
    {
        const char *alias = json_string_value(word);
        if (!alias || !drop_alias(aliases, alias))
            return error_set(err, STATUS_NOT_FOUND, "%.80s has no alias %.80s", name,
                             alias ? alias : "of this form");
    }
    json_array_foreach(add, i, word)
    {
        if (!json_is_string(word))
            return error_set(err, STATUS_INVALID, "an alias must be a word");
        json_array_append(aliases, word);
    }
    if (json_array_size(aliases) == 0)
        json_object_del(entry, "aliases");
    return STATUS_OK;
}
