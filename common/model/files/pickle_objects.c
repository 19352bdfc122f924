/* Handles the names that a pickle may contain, which are a fixed list. This file interprets such
 * a name and never calls it as a function. */
#include "common/model/files/pickle_objects.h"

#include <ctype.h>

#include "common/model/files/torch_types.h"

enum global { ORDERED_DICT, REBUILD_V2, REBUILD_V3, REBUILD_PARAMETER, STORAGE_TYPE, DTYPE };
static const struct {
    const char *module, *name;
    enum global global;
    enum dtype dtype;
} globals[] = {
    {"collections", "OrderedDict", ORDERED_DICT, 0},
    {"torch._utils", "_rebuild_tensor_v2", REBUILD_V2, 0},
    {"torch._utils", "_rebuild_tensor_v3", REBUILD_V3, 0},
    {"torch._utils", "_rebuild_parameter", REBUILD_PARAMETER, 0},
    {"torch", "FloatStorage", STORAGE_TYPE, DTYPE_F32},
    {"torch", "HalfStorage", STORAGE_TYPE, DTYPE_F16},
    {"torch", "BFloat16Storage", STORAGE_TYPE, DTYPE_BF16},
    {"torch", "DoubleStorage", STORAGE_TYPE, DTYPE_F64},
    {"torch", "CharStorage", STORAGE_TYPE, DTYPE_I8},
    {"torch", "ByteStorage", STORAGE_TYPE, DTYPE_U8},
    {"torch", "ShortStorage", STORAGE_TYPE, DTYPE_I16},
    {"torch", "IntStorage", STORAGE_TYPE, DTYPE_I32},
    {"torch", "LongStorage", STORAGE_TYPE, DTYPE_I64},
    {"torch", "BoolStorage", STORAGE_TYPE, DTYPE_BOOL},
    {"torch", "UntypedStorage", STORAGE_TYPE, DTYPE_OPAQUE},
    {"torch.storage", "UntypedStorage", STORAGE_TYPE, DTYPE_OPAQUE},
    {"torch", "float32", DTYPE, DTYPE_F32},
    {"torch", "float16", DTYPE, DTYPE_F16},
    {"torch", "bfloat16", DTYPE, DTYPE_BF16},
    {"torch", "float64", DTYPE, DTYPE_F64},
    {"torch", "int8", DTYPE, DTYPE_I8},
    {"torch", "uint8", DTYPE, DTYPE_U8},
    {"torch", "int16", DTYPE, DTYPE_I16},
    {"torch", "uint16", DTYPE, DTYPE_U16},
    {"torch", "int32", DTYPE, DTYPE_I32},
    {"torch", "uint32", DTYPE, DTYPE_U32},
    {"torch", "int64", DTYPE, DTYPE_I64},
    {"torch", "uint64", DTYPE, DTYPE_U64},
    {"torch", "bool", DTYPE, DTYPE_BOOL},
    {"torch", "float8_e4m3fn", DTYPE, DTYPE_F8_E4M3},
    {"torch", "float8_e5m2", DTYPE, DTYPE_F8_E5M2},
};
enum { N_GLOBALS = sizeof globals / sizeof *globals };

static bool is_name(struct str s)
{
    bool ok = s.len > 0;
    for (size_t i = 0; i < s.len; i++)
        ok = ok && (isalnum((unsigned char)s.ptr[i]) || s.ptr[i] == '_' || s.ptr[i] == '.');
    return ok;
}

static enum status push_named(struct pickle_machine *m, struct str module, struct str name)
{
    if (!is_name(module) || !is_name(name)) /* the error text does not print an invalid name */
        return pickle_damaged(m, "it names a Python object with an invalid name");
    for (uint32_t i = 0; i < N_GLOBALS; i++)
        if (str_eq_c(module, globals[i].module) && str_eq_c(name, globals[i].name))
            return pickle_push(m, (struct pickle_value){.kind = PICKLE_GLOBAL, .at = i});
    return pickle_refuse(
        m, STATUS_UNSUPPORTED,
        "it needs %.*s.%.*s, which a dict of tensors does not need. No code of the file was run. "
        "If you trust its source, save its state dict as safetensors",
        PICKLE_NAME_ARG(module), PICKLE_NAME_ARG(name));
}

enum status pickle_push_global(struct pickle_machine *m)
{
    struct str module, name;
    TRY(pickle_take_line(m, &module));
    TRY(pickle_take_line(m, &name));
    return push_named(m, module, name);
}

enum status pickle_push_stack_global(struct pickle_machine *m)
{
    struct pickle_value module, name;
    TRY(pickle_pop_kind(m, PICKLE_TEXT, "the name of a global", &name));
    TRY(pickle_pop_kind(m, PICKLE_TEXT, "the module of a global", &module));
    return push_named(m, (struct str){module.text, module.n}, (struct str){name.text, name.n});
}

/* Pushes the storage of a persistent id. The id is a tuple: ("storage", type, key, location,
 * number of elements). */
enum status pickle_push_storage(struct pickle_machine *m)
{
    struct pickle_value id;
    TRY(pickle_pop_kind(m, PICKLE_TUPLE, "the persistent id", &id));
    const struct pickle_value *v = pickle_items(m, id);
    if (id.n != 5 || v[0].kind != PICKLE_TEXT ||
        !str_eq_c((struct str){v[0].text, v[0].n}, "storage") || v[1].kind != PICKLE_GLOBAL ||
        globals[v[1].at].global != STORAGE_TYPE || v[2].kind != PICKLE_TEXT ||
        !is_name((struct str){v[2].text, v[2].n}) || v[4].kind != PICKLE_INT || v[4].i < 0)
        return pickle_damaged(m, "a persistent id does not describe a storage");
    struct torch_storage s = {
        .key = {v[2].text, v[2].n}, .dtype = globals[v[1].at].dtype, .n_elems = (uint64_t)v[4].i};
    struct pickle_value out = {.kind = PICKLE_STORAGE, .at = m->storages.n};
    TRY(pickle_pool_add(m, &m->storages, sizeof s, PICKLE_MAX_TENSORS, &s));
    return pickle_push(m, out);
}

/* Reads a tuple of sizes or of strides. */
static enum status read_sizes(const struct pickle_machine *m, struct pickle_value tuple,
                              const char *what, uint64_t *out)
{
    const struct pickle_value *v = pickle_items(m, tuple);
    for (uint32_t i = 0; i < tuple.n; i++) {
        if (v[i].kind != PICKLE_INT || v[i].i < 0)
            return pickle_refuse(m, STATUS_INVALID,
                                 "the %s of a tensor contains a value that is not a size", what);
        out[i] = (uint64_t)v[i].i;
    }
    return STATUS_OK;
}

/* Builds a tensor from `args`: (storage, first, shape, stride, requires_grad, hooks[, dtype][,
 * metadata]). */
static enum status rebuild_tensor(struct pickle_machine *m, struct pickle_value args,
                                  bool has_dtype)
{
    const struct pickle_value *v = pickle_items(m, args);
    uint32_t n_known = has_dtype ? 7 : 6;
    if (args.n < n_known || args.n > n_known + 1 || v[0].kind != PICKLE_STORAGE ||
        v[1].kind != PICKLE_INT || v[1].i < 0 || v[2].kind != PICKLE_TUPLE ||
        v[3].kind != PICKLE_TUPLE || v[2].n != v[3].n)
        return pickle_damaged(m, "a tensor is not described as torch.save does it");
    if (args.n > n_known && v[n_known].kind != PICKLE_NONE)
        return pickle_refuse(
            m, STATUS_UNSUPPORTED,
            "a tensor has metadata (it is a conjugate or negative view). Save a copy of it");
    if (v[2].n > TORCH_MAX_DIMS)
        return pickle_refuse(m, STATUS_UNSUPPORTED,
                             "a tensor has %u dimensions; at most %d are supported", v[2].n,
                             TORCH_MAX_DIMS);
    const struct torch_storage *s = (const struct torch_storage *)m->storages.at + v[0].at;
    struct torch_tensor t = {
        .storage = v[0].at, .dtype = s->dtype, .n_dims = v[2].n, .first = (uint64_t)v[1].i};
    if (has_dtype && (v[6].kind != PICKLE_GLOBAL || globals[v[6].at].global != DTYPE))
        return pickle_damaged(m, "the dtype of a tensor is not a dtype");
    if (has_dtype != (s->dtype == DTYPE_OPAQUE))
        return pickle_damaged(m, "a tensor has two dtypes or none");
    if (has_dtype)
        t.dtype = globals[v[6].at].dtype;
    TRY(read_sizes(m, v[2], "shape", t.shape));
    TRY(read_sizes(m, v[3], "stride", t.stride));
    struct pickle_value out = {.kind = PICKLE_TENSOR, .at = m->tensors.n};
    TRY(pickle_pool_add(m, &m->tensors, sizeof t, PICKLE_MAX_TENSORS, &t));
    return pickle_push(m, out);
}

/* Builds a value where other readers would call a function. A parameter becomes just its tensor. */
enum status pickle_reduce(struct pickle_machine *m)
{
    struct pickle_value args, f;
    TRY(pickle_pop_kind(m, PICKLE_TUPLE, "the argument list of a call", &args));
    TRY(pickle_pop_kind(m, PICKLE_GLOBAL, "the called function", &f));
    const struct pickle_value *v = pickle_items(m, args);
    switch (globals[f.at].global) {
    case ORDERED_DICT:
        return args.n == 0 ? pickle_push_dict(m)
                           : pickle_damaged(m, "an OrderedDict has arguments");
    case REBUILD_V2:
        return rebuild_tensor(m, args, false);
    case REBUILD_V3:
        return rebuild_tensor(m, args, true);
    case REBUILD_PARAMETER:
        return args.n == 3 && v[0].kind == PICKLE_TENSOR
                   ? pickle_push(m, v[0])
                   : pickle_damaged(m, "a parameter is not a tensor");
    case STORAGE_TYPE:
    case DTYPE:
        break;
    }
    return pickle_refuse(m, STATUS_UNSUPPORTED,
                         "it calls %s.%s, which a dict of tensors does not need",
                         globals[f.at].module, globals[f.at].name);
}
