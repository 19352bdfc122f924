/* Fuzzes the two readers of foreign text in gateway/models: the scan for the requested model must
 * find the name that the parser of bodies finds, and the file of models must be read or refused. */
#include <assert.h>
#include <stdint.h>
#include <string.h>

#include "common/json/bounded.h"
#include "gateway/models/file.h"
#include "gateway/models/peek.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_peek(struct str body)
{
    char buf[MODEL_PEEK_MAX];
    struct str name;
    struct json_refusal why;
    const bool found = model_peek_name(body, model_peek_find(body), buf, &name);
    json_t *tree = json_bounded_load(body, JSON_BODY_MAX_DEPTH, JSON_BODY_MAX_VALUES, &why);
    const json_t *v = json_object_get(tree, "model");
    if (tree && json_string_length(v) < MODEL_PEEK_MAX) {
        assert(found == json_is_string(v));
        assert(!found || (name.len == json_string_length(v) &&
                          memcmp(name.ptr, json_string_value(v), name.len) == 0));
    }
    json_decref(tree);
}

static void check_file(struct str text)
{
    struct models_file f;
    struct error err = {0};
    if (models_file_parse(text, "f", &f, &err) == STATUS_OK)
        for (uint32_t i = 0; i < f.n_entries; i++) {
            struct gateway_config config = {0};
            struct config_result owned = {0};
            if (models_file_options(&f.entries[i], &config, &owned, &err) == STATUS_OK)
                config_fini(&owned);
        }
    else
        assert(err.text[0]);
    models_file_fini(&f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct str text = {(const char *)data, size};
    check_peek(text);
    check_file(text);
    return 0;
}
