/* Defines the fields that /v1/embeddings has and completions do not. */
#include <string.h>

#include "gateway/fields/rows.h"

static bool parse_encoding_format(struct params *p, const json_t *v, const struct field_context *c)
{
    const char *word = json_string_value(v);
    if (!word || (strcmp(word, "float") != 0 && strcmp(word, "base64") != 0))
        return api_error_set(c->e, 400, c->name, "%s must be \"float\" or \"base64\".", c->name);
    p->embed_base64 = *word == 'b';
    return true;
}

static const struct field rows[] = {
    {ROW("input", FIELD_JSON, EMBEDDINGS), .offset = AT(prompt), .want = JSON_NULL,
     .why = "a string, strings, ids, or lists of ids; up to 1024"},
    ROW_CUSTOM(encoding_format, EMBEDDINGS, "float, or base64 of little-endian float32"),
    {ROW("dimensions", FIELD_U32, EMBEDDINGS), .offset = AT(dimensions), .min = 1, .max = 1 << 20,
     .why = "the vector's first numbers, scaled to length 1; at most as many as the model has"},
    {ROW("use_activation", FIELD_BOOL, EMBEDDINGS), .offset = AT(use_activation),
     .why = "false: vectors are not scaled to length 1"},
    ROW_ONLY("embed_dtype", EMBEDDINGS, "\"float32\"", "there is only one type"),
    ROW_ONLY("endianness", EMBEDDINGS, "\"native\"|\"little\"", "there is only one byte order"),
};

FIELD_TABLE(embeddings);
