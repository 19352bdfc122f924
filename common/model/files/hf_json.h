#pragma once
/* Private to common/model: the JSON files of a model's folder, and typed values out of config.json.
 * Error texts name the folder, the file and the key. null reads as absent everywhere. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* A value takes up to 140 bytes of memory for two of text: so many are the most that is parsed. The
 * headers of the largest models have a quarter of it. */
#define JSON_MAX_VALUES (1 << 22)
/* False: it may have more. Looks at no syntax, so it is soon done. */
bool json_is_bounded(const char *text, size_t n);
/* folder/file as an object without duplicate keys, at most 64 MiB and JSON_MAX_VALUES. NOT_FOUND
 * when there is no such file. *out is the caller's to json_decref, NULL on failure. flags:
 * jansson's, for decoding. */
MUST_USE enum status hf_json_load(const char *folder, const char *file, size_t flags, json_t **out,
                                  struct error *err);

/* The value of key in o, NULL when it is absent or null. */
const json_t *hf_json_get(const json_t *o, const char *key);
/* The language model's part of a config.json: models for several media keep it in "text_config". */
const json_t *hf_json_text_config(const json_t *root);

/* folder: of the config.json that o is a part of, for error texts. */
struct hf_config {
    const char *folder;
    const json_t *o;
};
/* An integer from 1 to max; def when absent, INVALID when absent and def is 0. */
MUST_USE enum status hf_config_u32(struct hf_config c, const char *key, uint32_t def, uint32_t max,
                                   uint32_t *out, struct error *err);
/* A finite number above 0 and at most max; def when absent, INVALID when absent and def is 0. */
MUST_USE enum status hf_config_positive(struct hf_config c, const char *key, double def, double max,
                                        double *out, struct error *err);
MUST_USE enum status hf_config_bool(struct hf_config c, const char *key, bool def, bool *out,
                                    struct error *err);
/* NULL: absent. Lives as long as c.o. */
MUST_USE enum status hf_config_text(struct hf_config c, const char *key, const char **out,
                                    struct error *err);
