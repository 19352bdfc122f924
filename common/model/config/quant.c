/* Reads quantization_config of a config.json. A method that this build does not run is an error
 * with its name. */
#include "common/model/config/quant.h"

#include <string.h>

#include "common/model/config/family_row.h"
#include "common/model/config/hf_error.h"
#include "common/model/files/hf_json.h"

/* Checks that an integer, if present, equals `want`. */
static enum status must_be(const struct hf_config *q, const char *key, uint32_t want,
                           struct error *err)
{
    const json_t *v = hf_json_get(q->o, key);
    if (!v || (json_is_integer(v) && json_integer_value(v) == (json_int_t)want))
        return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s/config.json: quantization_config: %s is %lld; this build supports only "
                     "%u. Use another model",
                     q->folder, key, (long long)json_integer_value(v), want);
}

/* Reads the member group_size; -1 means one group for all inputs. */
static enum status read_group(const struct hf_config *q, struct quant_config *out,
                              struct error *err)
{
    const json_t *v = hf_json_get(q->o, "group_size");
    out->group = 0;
    if (json_is_integer(v) && json_integer_value(v) == -1)
        return STATUS_OK;
    return hf_config_u32(*q, "group_size", 128, CONFIG_MAX_INTERMEDIATE, &out->group, err);
}

static enum status read_awq(const struct hf_config *q, struct quant_config *out, struct error *err)
{
    const char *version;
    bool zeros;
    out->method = QUANT_AWQ;
    out->bits = 4;
    TRY(must_be(q, "bits", 4, err));
    TRY(hf_config_text(*q, "version", &version, err));
    TRY(hf_config_bool(*q, "zero_point", true, &zeros, err));
    if (version && strcmp(version, "gemm") != 0 && strcmp(version, "GEMM") != 0)
        return model_config_unsupported(q, "AWQ version", version, "gemm", err);
    if (!zeros)
        return model_config_unsupported(q, "zero_point", "false", "true", err);
    return read_group(q, out, err);
}

static enum status read_gptq(const struct hf_config *q, struct quant_config *out, struct error *err)
{
    const char *format;
    out->method = QUANT_GPTQ;
    TRY(hf_config_u32(*q, "bits", 4, 64, &out->bits, err));
    if (out->bits != 2 && out->bits != 3 && out->bits != 4 && out->bits != 8)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s/config.json: quantization_config: bits is %u; this build supports "
                         "only 2, 3, 4 and 8. Use another model",
                         q->folder, out->bits);
    TRY(hf_config_text(*q, "checkpoint_format", &format, err));
    out->zeros_are_whole = format && strcmp(format, "gptq_v2") == 0;
    if (format && strcmp(format, "gptq") != 0 && !out->zeros_are_whole)
        return model_config_unsupported(q, "checkpoint_format", format, "gptq, gptq_v2", err);
    return read_group(q, out, err);
}

static enum status read_fp8(const struct hf_config *q, struct quant_config *out, struct error *err)
{
    const json_t *block = hf_json_get(q->o, "weight_block_size");
    const char *fmt;
    out->method = QUANT_FP8;
    TRY(hf_config_text(*q, "fmt", &fmt, err));
    if (fmt && strcmp(fmt, "e4m3") != 0)
        return model_config_unsupported(q, "fmt", fmt, "e4m3", err);
    if (!block)
        return STATUS_OK;
    json_int_t rows = json_integer_value(json_array_get(block, 0));
    json_int_t columns = json_integer_value(json_array_get(block, 1));
    if (json_array_size(block) != 2 || rows < 1 || columns < 1 || rows > CONFIG_MAX_HIDDEN ||
        columns > CONFIG_MAX_HIDDEN)
        return error_set(
            err, STATUS_INVALID,
            "%s/config.json: weight_block_size must be a list of two positive integers", q->folder);
    out->block_rows = (uint32_t)rows;
    out->block_columns = (uint32_t)columns;
    return STATUS_OK;
}

/* Reads the bits of the weights from groups of layers. The shapes of the scales define their
 * layout. Quantisation of activations is ignored: only the quantised weights affect the results. */
static enum status read_integers(const struct hf_config *q, struct quant_config *out,
                                 struct error *err)
{
    json_t *groups = json_object_get(q->o, "config_groups"), *group;
    const char *key;
    out->method = QUANT_COMPRESSED;
    out->bits = 8;
    json_object_foreach(groups, key, group)
    {
        const json_t *bits = json_object_get(json_object_get(group, "weights"), "num_bits");
        json_int_t n = json_integer_value(bits);
        if (bits && n != 4 && n != 8)
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s/config.json: quantization_config: num_bits of %s is %lld; this "
                             "build supports only 4 and 8. Use another model",
                             q->folder, key, (long long)n);
        out->bits = n == 4 ? 4 : out->bits;
    }
    return STATUS_OK;
}

static enum status read_compressed(const struct hf_config *q, struct quant_config *out,
                                   struct error *err)
{
    const char *format;
    TRY(hf_config_text(*q, "format", &format, err));
    if (format && strcmp(format, "float-quantized") == 0)
        return read_fp8(q, out, err);
    if (!format || (strcmp(format, "int-quantized") != 0 && strcmp(format, "pack-quantized") != 0))
        return model_config_unsupported(q, "compressed-tensors format", format ? format : "none",
                                        "float-quantized, int-quantized, pack-quantized", err);
    return read_integers(q, out, err);
}

enum status model_config_quant(const struct hf_config *c, const json_t *root,
                               struct model_config *out, struct error *err)
{
    static const struct {
        const char *name;
        enum status (*read)(const struct hf_config *, struct quant_config *, struct error *);
    } methods[] = {{"awq", read_awq},
                   {"gptq", read_gptq},
                   {"fp8", read_fp8},
                   {"compressed-tensors", read_compressed}};
    const json_t *o = hf_json_get(c->o, "quantization_config");
    if (!o)
        o = hf_json_get(root, "quantization_config");
    if (!o)
        return STATUS_OK;
    const struct hf_config q = {c->folder, o};
    const char *method = json_string_value(hf_json_get(o, "quant_method"));
    if (method && strcmp(method, "mxfp4") == 0) {
        out->quant.method = QUANT_MXFP4;
        return STATUS_OK;
    }
    for (size_t i = 0; method && i < sizeof methods / sizeof *methods; i++)
        if (strcmp(methods[i].name, method) == 0)
            return methods[i].read(&q, &out->quant, err);
    return model_config_unsupported(c, "quant_method", method ? method : "?",
                                    "awq, gptq, fp8, compressed-tensors and mxfp4, and GGUF files",
                                    err);
}
