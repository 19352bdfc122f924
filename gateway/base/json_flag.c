#include "gateway/base/json_flag.h"

enum status json_flag_read(const char *flag, const char *json, json_flag_member *member, void *out,
                           struct error *err)
{
    json_error_t why;
    const char *key;
    json_t *value;
    enum status s = STATUS_OK;
    if (!json)
        return STATUS_OK;
    json_t *config = json_loads(json, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(config))
        s = error_set(err, STATUS_INVALID, "%s must be a JSON object, such as {\"key\": value}: %s",
                      flag, config ? "the value is JSON, but not an object" : why.text);
    json_object_foreach(config, key, value)
    {
        if (s == STATUS_OK && !json_is_null(value))
            s = member(key, value, out, err);
    }
    json_decref(config);
    return s;
}
