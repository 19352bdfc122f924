#include "common/model/info/sampling_defaults.h"

#include <jansson.h>

#include "common/model/files/hf_json.h"

#define FILE_NAME "generation_config.json"

static enum status read_number(const char *folder, const json_t *root, const char *key, double min,
                               double max, double *out, struct error *err)
{
    const json_t *v = hf_json_get(root, key);
    if (!v)
        return STATUS_OK;
    double n = json_number_value(v);
    if (!json_is_number(v) || !(n >= min && n <= max))
        return error_set(err, STATUS_INVALID, "%s/" FILE_NAME ": %s must be a number from %g to %g",
                         folder, key, min, max);
    *out = n;
    return STATUS_OK;
}

static enum status read_all(const char *folder, const json_t *root, struct sampling_defaults *d,
                            struct error *err)
{
    double top_k = (double)d->top_k;
    TRY(read_number(folder, root, "temperature", 0, 2, &d->temperature, err));
    TRY(read_number(folder, root, "top_p", 1e-6, 1, &d->top_p, err));
    TRY(read_number(folder, root, "min_p", 0, 1, &d->min_p, err));
    TRY(read_number(folder, root, "repetition_penalty", 1e-6, 1e6, &d->repetition_penalty, err));
    TRY(read_number(folder, root, "top_k", -1, INT32_MAX, &top_k, err));
    d->top_k = top_k < 0 ? 0 : (int64_t)top_k;
    return STATUS_OK;
}

enum status sampling_defaults_read(const char *folder, struct sampling_defaults *out,
                                   struct error *err)
{
    json_t *root = NULL;
    struct sampling_defaults d = *out;
    enum status s = hf_json_load(folder, FILE_NAME, 0, &root, err);
    if (s == STATUS_OK && (s = read_all(folder, root, &d, err)) == STATUS_OK)
        *out = d;
    json_decref(root);
    return s;
}
