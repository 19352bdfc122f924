/* Reads config.json (required), and the optional generation_config.json and
 * tokenizer_config.json. Multimodal models have the language model in "text_config". */
#include "common/model/info/hf.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/model/files/hf_json.h"
#include "common/model/info/base.h"
#include "common/model/info/family.h"

/* Multiplies the length by the scaling's factor when the scaling is YaRN. With other kinds of
 * scaling max_position_embeddings already is the stretched length. */
static void stretch(struct model_info *m, const json_t *config)
{
    const json_t *rope = json_object_get(config, "rope_scaling");
    if (!json_is_object(rope))
        rope = json_object_get(config, "rope_parameters");
    const json_t *type = json_object_get(rope, "rope_type");
    if (!type)
        type = json_object_get(rope, "type");
    double factor = json_number_value(json_object_get(rope, "factor"));
    double original = json_number_value(json_object_get(rope, "original_max_position_embeddings"));
    if (!json_is_string(type) || strcmp(json_string_value(type), "yarn") != 0)
        return;
    if (factor >= 1 && factor <= 1024 && original >= 1 && original <= MODEL_MAX_LEN &&
        factor * original <= MODEL_MAX_LEN && factor * original > m->max_model_len)
        m->max_model_len = (uint32_t)(factor * original);
}

/* Adds the EOS ids of a configuration. eos_token_id is a number, a list of numbers, null, or
 * missing. */
static enum status add_eos_ids(struct model_info *m, const json_t *o, struct error *err)
{
    const json_t *v = json_object_get(o, "eos_token_id");
    size_t n = json_is_array(v) ? json_array_size(v) : v && !json_is_null(v);
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(v) ? json_array_get(v, i) : v;
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return error_set(
                err, STATUS_INVALID,
                "%s: eos_token_id contains a value that is not a token id. Fetch the file again",
                m->path);
        TRY(model_info_add_eos(m, (uint64_t)json_integer_value(id), err));
    }
    return STATUS_OK;
}

static enum status read_config(struct model_info *m, const json_t *root, struct error *err)
{
    const json_t *type = json_object_get(root, "model_type");
    const json_t *config = hf_json_text_config(root);
    if (!json_is_string(type))
        return error_set(err, STATUS_INVALID,
                         "%s/config.json: model_type is missing. Fetch the file again", m->path);
    struct str name = {json_string_value(type), json_string_length(type)};
    const struct family *f = family_by_hf_type(name);
    const json_t *class = json_array_get(json_object_get(root, "architectures"), 0);
    /* the error names the class, which is the name that people use for the model */
    if (json_is_string(class)) {
        name = (struct str){json_string_value(class), json_string_length(class)};
        f = f && family_has_class(f, name) ? f : NULL;
    }
    if (!f)
        return model_info_unknown(m, name, err);
    struct hf_config c = {m->path, config};
    TRY(hf_config_u32(c, "max_position_embeddings", f->default_max_len, MODEL_MAX_LEN,
                      &m->max_model_len, err));
    TRY(hf_config_u32(c, "vocab_size", f->default_vocab, MODEL_MAX_VOCAB, &m->vocab_size, err));
    json_int_t hidden = json_integer_value(json_object_get(config, "hidden_size"));
    m->hidden = hidden > 0 && hidden <= UINT32_MAX ? (uint32_t)hidden : 0;
    stretch(m, config);
    m->family = mem_strdup(f->name);
    TRY(add_eos_ids(m, config, err));
    return config == root ? STATUS_OK : add_eos_ids(m, root, err);
}

/* Adds the tokenizer's EOS id. The tokenizer names its EOS token by text, and
 * added_tokens_decoder has the id of that text. */
static enum status read_tokenizer_config(struct model_info *m, const json_t *root,
                                         struct error *err)
{
    json_t *added = json_object_get(root, "added_tokens_decoder"), *token;
    const json_t *eos = json_object_get(root, "eos_token");
    const char *key;
    if (json_is_object(eos))
        eos = json_object_get(eos, "content");
    if (!json_is_string(eos))
        return STATUS_OK;
    json_object_foreach(added, key, token)
    {
        const json_t *content = json_object_get(token, "content");
        uint64_t id;
        if (json_is_string(content) && json_equal((json_t *)content, (json_t *)eos)) {
            if (str_to_u64(str_from(key), &id) != STATUS_OK)
                return error_set(err, STATUS_INVALID,
                                 "%s/tokenizer_config.json: the id of an added token must be a "
                                 "number. Fetch the file again",
                                 m->path);
            TRY(model_info_add_eos(m, id, err));
        }
    }
    return STATUS_OK;
}

static enum status read_optional(struct model_info *m, const char *file, size_t flags,
                                 enum status (*read_it)(struct model_info *, const json_t *,
                                                        struct error *),
                                 struct error *err)
{
    json_t *root = NULL;
    enum status s = hf_json_load(m->path, file, flags, &root, err);
    if (s == STATUS_OK)
        s = read_it(m, root, err);
    else if (s == STATUS_NOT_FOUND)
        s = STATUS_OK;
    json_decref(root);
    return s;
}

enum status model_info_read_hf(struct model_info *m, struct error *err)
{
    json_t *config = NULL;
    TRY(hf_json_load(m->path, "config.json", 0, &config, err));
    enum status s = read_config(m, config, err);
    json_decref(config);
    if (s == STATUS_OK)
        s = read_optional(m, "generation_config.json", 0, add_eos_ids, err);
    if (s == STATUS_OK)
        /* model_max_length is often 10^30, which is too large for an integer. */
        s = read_optional(m, "tokenizer_config.json", JSON_DECODE_INT_AS_REAL,
                          read_tokenizer_config, err);
    return s;
}
