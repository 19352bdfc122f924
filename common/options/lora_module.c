#include "common/options/lora_module.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

static enum status bad(struct error *err, const char *item, const char *why)
{
    return error_set(err, STATUS_INVALID,
                     "--lora-modules %s is not valid: %s. Write NAME=FOLDER or {\"name\": NAME, "
                     "\"path\": FOLDER}",
                     item, why);
}

static bool set(char *out, size_t most, const char *from, size_t n)
{
    if (n == 0 || n > most || memchr(from, '\0', n))
        return false;
    memcpy(out, from, n);
    out[n] = '\0';
    return true;
}

static enum status read_json(const char *item, const json_t *o, struct lora_modules_item *out,
                             struct error *err)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)o, key, v)
    {
        const char *text = json_is_string(v) ? json_string_value(v) : "";
        size_t n = json_string_length(v);
        bool fine = json_is_null(v);
        if (strcmp(key, "name") == 0)
            fine = set(out->name, LORA_MODULE_NAME_MAX, text, n);
        else if (strcmp(key, "path") == 0)
            fine = set(out->path, LORA_MODULE_PATH_MAX, text, n);
        else if (strcmp(key, "base_model_name") == 0)
            fine = fine || json_is_string(v);
        if (!fine) {
            char why[80];
            snprintf(why, sizeof why, "the key %.40s or its value is not allowed", key);
            return bad(err, item, why);
        }
    }
    return out->name[0] && out->path[0] ? STATUS_OK
                                        : bad(err, item, "the name or the path is missing");
}

enum status lora_module_read(const char *item, struct lora_modules_item *out, struct error *err)
{
    const char *is = strchr(item, '=');
    *out = (struct lora_modules_item){0};
    if (*item == '{') {
        json_t *o = json_loads(item, JSON_REJECT_DUPLICATES, NULL);
        enum status s = o ? read_json(item, o, out, err) : bad(err, item, "it is not valid JSON");
        json_decref(o);
        return s;
    }
    if (!is || !set(out->name, LORA_MODULE_NAME_MAX, item, (size_t)(is - item)) ||
        !set(out->path, LORA_MODULE_PATH_MAX, is + 1, strlen(is + 1)))
        return bad(err, item, "the name or the folder is missing or too long");
    return STATUS_OK;
}
