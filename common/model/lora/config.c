/* Reads and checks adapter_config.json. lora_config_read loads the file, refuses settings that
 * would change the results and are not supported, and sorts the names of its patterns and
 * targets for look-ups. lora_config_of then gives each module's rank and scale.
 * Keys that do not change the results (lora_dropout, task_type, ...) are ignored. The file is
 * not trusted: ranks, alphas and the number of names are bounded, and no expression is
 * evaluated. The struct keeps the JSON, because its names point into it. */
#include "common/model/lora/config.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "common/base/mem.h"
#include "common/model/files/hf_json.h"
#include "common/model/lora/files.h"

enum { MAX_NAMES = 4096 }; /* most names of a pattern or of target_modules */
#define MAX_RANK  (1u << 16)
#define MAX_ALPHA 1e9

static const char file[] = "adapter_config.json";

/* Returns true when a value has no effect: it is absent, null, false, "none" or empty. */
static bool says_nothing(const json_t *v)
{
    const char *text = json_string_value(v);
    return !v || json_is_null(v) || json_is_false(v) || (text && strcmp(text, "none") == 0) ||
           (json_is_array(v) && json_array_size(v) == 0) ||
           (json_is_object(v) && json_object_size(v) == 0);
}

/* Refuses features of PEFT that this build does not run. */
static enum status check_unsupported(const struct lora_config *c, struct error *err)
{
    static const struct {
        const char *key, *what;
    } keys[] = {
        {"use_dora", "DoRA"},
        {"lora_bias", "a bias of lora_B"},
        {"bias", "biases of the modules"},
        {"modules_to_save", "whole modules in addition to the adapter (embeddings, the head)"},
        {"trainable_token_indices", "token embeddings in addition to the adapter"},
        {"fan_in_fan_out", "transposed weights"},
        {"layer_replication", "repeated layers"},
        {"target_parameters", "adapters of parameters (such as stacked experts)"},
        {"alora_invocation_tokens", "activated LoRA"},
        {"use_qalora", "QALoRA"},
        {"use_bdlora", "BD-LoRA"},
        {"megatron_config", "Megatron's modules"},
    };
    const char *type = json_string_value(json_object_get(c->root, "peft_type"));
    if (!type || strcmp(type, "LORA") != 0)
        return error_set(err, STATUS_UNSUPPORTED,
                         "%s/%s: peft_type is %.64s; it must be LORA. Use a LoRA adapter",
                         c->folder, file, type ? type : "missing");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (!says_nothing(json_object_get(c->root, keys[i].key)))
            return error_set(
                err, STATUS_UNSUPPORTED,
                "%s/%s: %s is set, but Coxswain does not support %s. Use another adapter",
                c->folder, file, keys[i].key, keys[i].what);
    return STATUS_OK;
}

/* Checks how the adapter was initialised. Some initialisations subtract the initial A and B from
 * the base weights, and PEFT repeats that whenever it loads the adapter. With unchanged base
 * weights such an adapter gives wrong results. The listed initialisations do not change the base
 * weights. A new one is refused until it is added to the list. */
static enum status check_beginning(const struct lora_config *c, struct error *err)
{
    static const char *const fine[] = {"gaussian", "eva", "orthogonal", "mica", "lora_ga"};
    const json_t *v = json_object_get(c->root, "init_lora_weights");
    const char *text = json_string_value(v);
    if (!v || json_is_null(v) || json_is_boolean(v))
        return STATUS_OK;
    if (!text)
        return error_set(err, STATUS_INVALID,
                         "%s/%s: init_lora_weights must be true, false or a name", c->folder, file);
    for (size_t i = 0; i < sizeof fine / sizeof fine[0]; i++)
        if (strcasecmp(text, fine[i]) == 0)
            return STATUS_OK;
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s/%s: init_lora_weights is %.64s, which changes the weights of the model "
                     "itself and is not supported. Convert the adapter to a plain one (PEFT: "
                     "save_pretrained with path_initial_model_for_weight_conversion)",
                     c->folder, file, text);
}

static enum status to_rank(const struct lora_config *c, const char *key, const json_t *v,
                           uint32_t *out, struct error *err)
{
    json_int_t i = json_integer_value(v);
    if (!json_is_integer(v) || i < 1 || i > (json_int_t)MAX_RANK)
        return error_set(err, STATUS_INVALID, "%s/%s: %.96s must be a rank from 1 to %u", c->folder,
                         file, key, MAX_RANK);
    *out = (uint32_t)i;
    return STATUS_OK;
}

static enum status to_alpha(const struct lora_config *c, const char *key, const json_t *v,
                            double *out, struct error *err)
{
    double x = json_number_value(v);
    if (!json_is_number(v) || !isfinite(x) || fabs(x) > MAX_ALPHA)
        return error_set(
            err, STATUS_INVALID,
            "%s/%s: %.96s must be a finite number with an absolute value of at most %g", c->folder,
            file, key, MAX_ALPHA);
    *out = x;
    return STATUS_OK;
}

/* Reads rank_pattern or alpha_pattern. PEFT treats keys as regular expressions. A key of plain
 * text with dots is taken as that text. Any other expression is refused and never evaluated. */
static enum status read_pattern(const struct lora_config *c, const char *key,
                                struct lora_names *out, struct error *err)
{
    const json_t *v = json_object_get(c->root, key);
    const char *name;
    json_t *value;
    uint32_t rank;
    double alpha;
    if (says_nothing(v))
        return STATUS_OK;
    if (!json_is_object(v) || json_object_size(v) > MAX_NAMES)
        return error_set(err, STATUS_INVALID, "%s/%s: %s must be an object with at most %d names",
                         c->folder, file, key, MAX_NAMES);
    lora_names_init(out, (uint32_t)json_object_size(v));
    json_object_foreach((json_t *)v, name, value)
    {
        if (name[0] == '\0' || strpbrk(name, "^$*+?()[]{}|\\"))
            return error_set(err, STATUS_UNSUPPORTED,
                             "%s/%s: %s: \"%.96s\" is a regular expression, but Coxswain supports "
                             "only names of modules. Write one entry for each module",
                             c->folder, file, key, name);
        TRY(key[0] == 'r' ? to_rank(c, name, value, &rank, err)
                          : to_alpha(c, name, value, &alpha, err));
        lora_names_add(out, name, value);
    }
    lora_names_sort(out);
    return STATUS_OK;
}

static enum status read_targets(struct lora_config *c, struct error *err)
{
    const json_t *v = json_object_get(c->root, "target_modules");
    c->some_layers = !says_nothing(json_object_get(c->root, "layers_to_transform")) ||
                     !says_nothing(json_object_get(c->root, "exclude_modules"));
    if (json_is_string(v) || json_is_null(v) || !v)
        /* target_modules is an expression, and the file's tensors show the modules */
        return STATUS_OK;
    if (!json_is_array(v) || json_array_size(v) > MAX_NAMES)
        return error_set(err, STATUS_INVALID,
                         "%s/%s: target_modules must be a list of at most %d names", c->folder,
                         file, MAX_NAMES);
    lora_names_init(&c->targets, (uint32_t)json_array_size(v));
    for (size_t i = 0; i < json_array_size(v); i++) {
        const char *name = json_string_value(json_array_get(v, i));
        if (!name || !name[0])
            return error_set(err, STATUS_INVALID, "%s/%s: target_modules must be a list of names",
                             c->folder, file);
        lora_names_add(&c->targets, name, NULL);
    }
    lora_names_sort(&c->targets);
    return STATUS_OK;
}

static enum status load(struct lora_config *c, const char *root, struct error *err)
{
    char path[PATH_MAX];
    TRY(lora_file_find(c->folder, root, file, path, err));
    char *slash = strrchr(path, '/');
    *slash = '\0';
    return hf_json_load(path, slash + 1, 0, &c->root, err);
}

enum status lora_config_read(const char *folder, const char *root, struct lora_config *c,
                             struct error *err)
{
    *c = (struct lora_config){.folder = folder};
    TRY(load(c, root, err));
    TRY(check_unsupported(c, err));
    TRY(check_beginning(c, err));
    TRY(to_rank(c, "r", json_object_get(c->root, "r"), &c->rank, err));
    TRY(to_alpha(c, "lora_alpha", json_object_get(c->root, "lora_alpha"), &c->alpha, err));
    TRY(read_pattern(c, "rank_pattern", &c->ranks, err));
    TRY(read_pattern(c, "alpha_pattern", &c->alphas, err));
    const json_t *root_of_rank = json_object_get(c->root, "use_rslora");
    if (root_of_rank && !json_is_boolean(root_of_rank) && !json_is_null(root_of_rank))
        return error_set(err, STATUS_INVALID, "%s/%s: use_rslora must be true or false", folder,
                         file);
    c->rslora = json_is_true(root_of_rank);
    return read_targets(c, err);
}

void lora_config_fini(struct lora_config *c)
{
    lora_names_fini(&c->ranks);
    lora_names_fini(&c->alphas);
    lora_names_fini(&c->targets);
    json_decref(c->root);
    *c = (struct lora_config){0};
}

void lora_config_of(const struct lora_config *c, const char *module, uint32_t *rank, float *scale)
{
    const struct lora_name *r = lora_names_find(&c->ranks, module);
    const struct lora_name *a = lora_names_find(&c->alphas, module);
    *rank = r ? (uint32_t)json_integer_value(r->value) : c->rank;
    double alpha = a ? json_number_value(a->value) : c->alpha;
    *scale = (float)(alpha / (c->rslora ? sqrt((double)*rank) : (double)*rank));
}
