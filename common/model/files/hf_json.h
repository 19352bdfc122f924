#pragma once
/* Reads the JSON files of a model's folder, and typed values of config.json. Error texts name
 * the folder, the file and the key. A null value is handled like an absent key. Only
 * common/model includes this header. */
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"

/* JSON_MAX_VALUES is the most values that are parsed, because a value of two bytes of text can
 * take 140 bytes of memory. The headers of the largest models have a quarter of this number. */
#define JSON_MAX_VALUES (1 << 22)
/* Returns false when the text may have more than JSON_MAX_VALUES values. The function checks no
 * syntax, so it is fast. */
bool json_is_bounded(const char *text, size_t n);
/* Loads folder/file, an object without duplicate keys, of at most 64 MiB and JSON_MAX_VALUES.
 * Returns STATUS_NOT_FOUND when there is no such file. The caller releases *out with
 * json_decref. It is NULL after an error. `flags` are jansson's, for decoding. */
MUST_USE enum status hf_json_load(const char *folder, const char *file, size_t flags, json_t **out,
                                  struct error *err);

/* Returns the value of `key` in `o`, or NULL when the key is absent or its value is null. */
const json_t *hf_json_get(const json_t *o, const char *key);
/* Returns the language model's part of a config.json. Multimodal models have it in
 * "text_config". */
const json_t *hf_json_text_config(const json_t *root);

/* `hf_config` is a part `o` of a config.json. `folder` is for error texts. */
struct hf_config {
    const char *folder;
    const json_t *o;
};
/* Reads an integer of a config.json, from 1 to max. An absent key gives `def`, or STATUS_INVALID
 * when `def` is 0. */
MUST_USE enum status hf_config_u32(struct hf_config c, const char *key, uint32_t def, uint32_t max,
                                   uint32_t *out, struct error *err);
/* Reads a finite number of a config.json, above 0 and at most max. An absent key gives `def`, or
 * STATUS_INVALID when `def` is 0. */
MUST_USE enum status hf_config_positive(struct hf_config c, const char *key, double def, double max,
                                        double *out, struct error *err);
MUST_USE enum status hf_config_bool(struct hf_config c, const char *key, bool def, bool *out,
                                    struct error *err);
/* Reads a text of a config.json. *out is NULL when the key is absent; the text lives as long as
 * c.o. */
MUST_USE enum status hf_config_text(struct hf_config c, const char *key, const char **out,
                                    struct error *err);
