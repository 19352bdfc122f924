#include "gateway/prepare/pooling.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/json_flag.h"
#include "gateway/prepare/chunks.h"

static bool is_on(const json_t *config, const char *mode)
{
    char key[64];
    /* newer files of sentence-transformers have a single word instead of flags */
    const json_t *word = json_object_get(config, "pooling_mode");
    snprintf(key, sizeof key, "pooling_mode_%s%s", mode,
             strcmp(mode, "lasttoken") ? "_tokens" : "");
    return json_is_true(json_object_get(config, key)) ||
           (json_is_string(word) && strcmp(json_string_value(word), mode) == 0);
}

enum pooling_kind pooling_of_model(const char *path)
{
    static const char *const others[] = {"cls", "max", "mean_sqrt_len", "weightedmean"};
    char file[4096];
    int n = snprintf(file, sizeof file, "%s/1_Pooling/config.json", path ? path : "");
    if (n < 0 || (size_t)n >= sizeof file || access(file, F_OK) != 0)
        return POOLING_LAST;
    json_t *config = json_load_file(file, 0, NULL);
    bool mean = is_on(config, "mean"), last = is_on(config, "lasttoken");
    bool other = json_is_true(json_object_get(config, "pooling_mode_cls_token")) ||
                 json_is_true(json_object_get(config, "pooling_mode_mean_sqrt_len_tokens"));
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        other = other || is_on(config, others[i]);
    json_decref(config);
    if (other || mean == last)
        return POOLING_NONE;
    return mean ? POOLING_MEAN : POOLING_LAST;
}

static enum status bad_config(struct error *err, const char *key, const char *want)
{
    return error_set(err, STATUS_INVALID, "--pooler-config: %s %s", key, want);
}

static enum status read_member(const char *key, const json_t *v, void *to, struct error *err)
{
    struct pooler_config *out = to;
    if (strcmp(key, "enable_chunked_processing") == 0) {
        out->chunks = json_is_true(v);
        return json_is_boolean(v) ? STATUS_OK : bad_config(err, key, "must be true or false");
    }
    if (strcmp(key, "max_embed_len") == 0) {
        json_int_t n = json_integer_value(v);
        if (!json_is_integer(v) || n < 1 || n > CHUNKS_MAX_IDS)
            return bad_config(err, key, "must be a number of tokens from 1 to 16777216");
        out->max_embed_len = (uint32_t)n;
        return STATUS_OK;
    }
    return bad_config(err, key,
                      "is an unknown key. Known keys are enable_chunked_processing and "
                      "max_embed_len; the kind of pooling is read from the model's folder");
}

enum status pooler_config_read(const char *json, struct pooler_config *out, struct error *err)
{
    *out = (struct pooler_config){0};
    return json_flag_read("--pooler-config", json, read_member, out, err);
}
