/* A pickle is a program for a stack machine. This one has values of a few kinds, a memo, and three
 * pools: the items of tuples, the entries of dicts, the tensors that were built. An opcode is a row
 * of a table; a row without a function is a name to refuse it by. Values refer to pools by index
 * and nothing follows them but the dict that is on the stack at the end, so there is no recursion.
 */
#include "common/model/files/torch_pickle.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"

enum {
    MAX_BYTES = 16 << 20, /* of the pickle: about 100,000 tensors */
    MAX_STACK = 1 << 16,  /* a writer pauses after 1000 entries of a dict */
    MAX_MEMO = 1 << 22,
    MAX_ITEMS = 1 << 22,
    MAX_TENSORS = 1 << 18,
    MAX_DICTS = 1 << 20,
    MIN_PROTOCOL = 2,
    MAX_PROTOCOL = 5,
};

enum kind { MARK, NONE, BOOL, INT, FLOAT, TEXT, TUPLE, LIST, DICT, GLOBAL, STORAGE, TENSOR };
static const char *const kind_names[] = {
    "a mark",  "None",   "a bool", "an integer", "a float",   "a text",
    "a tuple", "a list", "a dict", "a name",     "a storage", "a tensor",
};

struct value {
    enum kind kind;
    uint32_t n; /* TEXT: bytes; TUPLE: items */
    union {
        int64_t i; /* INT, BOOL */
        const char *text;
        uint32_t at; /* TUPLE: of its first item; others: index, or number */
    };
};

struct entry {
    uint32_t dict;
    struct value key, value;
};

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

/* A growing array of fixed limit. */
struct pool {
    void *at;
    uint32_t n, cap;
};

struct machine {
    const uint8_t *bytes, *at, *end;
    const uint8_t *op; /* where the opcode that runs begins: for error texts */
    const char *path;
    struct error *err;
    bool done;
    uint32_t n_dicts;
    struct pool stack, memo, items; /* of struct value */
    struct pool entries;            /* of struct entry */
    struct pool storages, tensors;  /* of struct torch_storage, torch_tensor */
};

/* ---- what goes wrong ---- */

static enum status refuse(const struct machine *m, enum status s, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
static enum status refuse(const struct machine *m, enum status s, const char *fmt, ...)
{
    char text[384];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return error_set(m->err, s, "%s: its pickle, at byte %zu: %s", m->path,
                     (size_t)(m->op - m->bytes), text);
}

static enum status damaged(const struct machine *m, const char *what)
{
    return refuse(m, STATUS_INVALID, "%s", what);
}

#define NAME_ARG(s) (int)((s).len > 100 ? 100 : (s).len), (s).ptr

/* ---- memory and stack ---- */

static enum status pool_add(const struct machine *m, struct pool *p, size_t size, uint32_t limit,
                            const void *element)
{
    if (p->n == limit)
        return refuse(m, STATUS_LIMIT, "more than %u values at once, tensors or dicts", limit);
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->at = mem_realloc(p->at, p->cap * size);
    }
    memcpy((char *)p->at + p->n++ * size, element, size);
    return STATUS_OK;
}

static enum status push(struct machine *m, struct value v)
{
    return pool_add(m, &m->stack, sizeof v, MAX_STACK, &v);
}

static struct value *top(const struct machine *m)
{
    return (struct value *)m->stack.at + m->stack.n - 1;
}

static enum status pop(struct machine *m, struct value *out)
{
    *out = (struct value){.kind = NONE};
    if (m->stack.n == 0 || top(m)->kind == MARK)
        return damaged(m, "nothing is on the stack");
    *out = *top(m);
    m->stack.n--;
    return STATUS_OK;
}

static enum status pop_kind(struct machine *m, enum kind kind, const char *what, struct value *out)
{
    TRY(pop(m, out));
    if (out->kind != kind)
        return refuse(m, STATUS_INVALID, "%s is %s, want %s", what, kind_names[out->kind],
                      kind_names[kind]);
    return STATUS_OK;
}

/* What lies above the last mark, which goes away with it: *v stays valid until the next push. */
static enum status pop_marked(struct machine *m, const struct value **v, uint32_t *n)
{
    const struct value *stack = m->stack.at;
    uint32_t i = m->stack.n;
    *v = NULL;
    *n = 0;
    while (i > 0 && stack[i - 1].kind != MARK)
        i--;
    if (i == 0)
        return damaged(m, "there is no mark on the stack");
    *v = stack + i;
    *n = m->stack.n - i;
    m->stack.n = i - 1;
    return STATUS_OK;
}

static const struct value *items_of(const struct machine *m, struct value tuple)
{
    return tuple.n > 0 ? (const struct value *)m->items.at + tuple.at : NULL;
}

/* ---- bytes ---- */

static enum status take(struct machine *m, uint64_t n, const uint8_t **out)
{
    *out = m->at;
    if (n > (uint64_t)(m->end - m->at))
        return damaged(m, "ends in the middle of this opcode");
    m->at += n;
    return STATUS_OK;
}

/* Little-endian, n <= 8 bytes. */
static enum status take_number(struct machine *m, unsigned n, uint64_t *out)
{
    const uint8_t *p;
    *out = 0;
    TRY(take(m, n, &p));
    for (unsigned i = 0; i < n; i++)
        *out |= (uint64_t)p[i] << 8 * i;
    return STATUS_OK;
}

static enum status take_line(struct machine *m, struct str *out)
{
    const uint8_t *end = memchr(m->at, '\n', (size_t)(m->end - m->at));
    *out = (struct str){(const char *)m->at, 0};
    if (!end)
        return damaged(m, "ends in the middle of a name");
    out->len = (size_t)(end - m->at);
    m->at = end + 1;
    return STATUS_OK;
}

/* ---- plain values ---- */

static enum status op_proto(struct machine *m)
{
    uint64_t version;
    TRY(take_number(m, 1, &version));
    if (version < MIN_PROTOCOL || version > MAX_PROTOCOL)
        return refuse(m, STATUS_UNSUPPORTED, "protocol %u; protocols %d to %d are read",
                      (unsigned)version, MIN_PROTOCOL, MAX_PROTOCOL);
    return STATUS_OK;
}

static enum status op_frame(struct machine *m)
{
    uint64_t n;
    TRY(take_number(m, 8, &n));
    return n > (uint64_t)(m->end - m->at) ? damaged(m, "a frame longer than the pickle")
                                          : STATUS_OK;
}

static enum status op_stop(struct machine *m)
{
    m->done = true;
    return m->at == m->end ? STATUS_OK : damaged(m, "there are bytes behind its end");
}

static enum status op_mark(struct machine *m)
{
    return push(m, (struct value){.kind = MARK});
}

static enum status op_none(struct machine *m)
{
    return push(m, (struct value){.kind = NONE});
}

static enum status op_true(struct machine *m)
{
    return push(m, (struct value){.kind = BOOL, .i = 1});
}

static enum status op_false(struct machine *m)
{
    return push(m, (struct value){.kind = BOOL});
}

static enum status push_int(struct machine *m, unsigned n_bytes, bool is_signed)
{
    uint64_t v;
    unsigned unused_bits = 64 - 8 * n_bytes;
    TRY(take_number(m, n_bytes, &v));
    int64_t i = n_bytes == 0 ? 0
                : is_signed  ? (int64_t)(v << unused_bits) >> unused_bits
                             : (int64_t)v;
    return push(m, (struct value){.kind = INT, .i = i});
}

static enum status op_binint(struct machine *m)
{
    return push_int(m, 4, true);
}

static enum status op_binint1(struct machine *m)
{
    return push_int(m, 1, false);
}

static enum status op_binint2(struct machine *m)
{
    return push_int(m, 2, false);
}

static enum status op_long1(struct machine *m)
{
    uint64_t n;
    TRY(take_number(m, 1, &n));
    if (n > 8)
        return refuse(m, STATUS_INVALID, "an integer of %u bytes: no tensor is so large",
                      (unsigned)n);
    return push_int(m, (unsigned)n, true);
}

static enum status op_binfloat(struct machine *m)
{
    const uint8_t *p;
    TRY(take(m, 8, &p));
    return push(m, (struct value){.kind = FLOAT});
}

static enum status push_text(struct machine *m, unsigned n_length_bytes)
{
    uint64_t n;
    const uint8_t *p;
    TRY(take_number(m, n_length_bytes, &n));
    TRY(take(m, n, &p));
    return push(m, (struct value){.kind = TEXT, .n = (uint32_t)n, .text = (const char *)p});
}

static enum status op_short_text(struct machine *m)
{
    return push_text(m, 1);
}

static enum status op_text(struct machine *m)
{
    return push_text(m, 4);
}

static enum status op_text8(struct machine *m)
{
    return push_text(m, 8);
}

/* ---- memo: dense, as every writer numbers it ---- */

static enum status memoize(struct machine *m, uint64_t i)
{
    if (m->stack.n == 0 || top(m)->kind == MARK)
        return damaged(m, "nothing to remember is on the stack");
    if (i < m->memo.n) {
        ((struct value *)m->memo.at)[i] = *top(m);
        return STATUS_OK;
    }
    if (i > m->memo.n)
        return damaged(m, "remembers under a number far from the last one");
    return pool_add(m, &m->memo, sizeof(struct value), MAX_MEMO, top(m));
}

static enum status op_memoize(struct machine *m)
{
    return memoize(m, m->memo.n);
}

static enum status put(struct machine *m, unsigned n_bytes)
{
    uint64_t i;
    TRY(take_number(m, n_bytes, &i));
    return memoize(m, i);
}

static enum status op_binput(struct machine *m)
{
    return put(m, 1);
}

static enum status op_long_binput(struct machine *m)
{
    return put(m, 4);
}

static enum status get(struct machine *m, unsigned n_bytes)
{
    uint64_t i;
    TRY(take_number(m, n_bytes, &i));
    if (i >= m->memo.n)
        return damaged(m, "asks for what was not remembered");
    return push(m, ((const struct value *)m->memo.at)[i]);
}

static enum status op_binget(struct machine *m)
{
    return get(m, 1);
}

static enum status op_long_binget(struct machine *m)
{
    return get(m, 4);
}

/* ---- tuples, lists, dicts ---- */

static enum status push_tuple(struct machine *m, const struct value *v, uint32_t n)
{
    struct value tuple = {.kind = TUPLE, .n = n, .at = m->items.n};
    for (uint32_t i = 0; i < n; i++)
        TRY(pool_add(m, &m->items, sizeof *v, MAX_ITEMS, &v[i]));
    return push(m, tuple);
}

static enum status push_tuple_of(struct machine *m, uint32_t n)
{
    struct value v[3];
    for (uint32_t i = n; i > 0; i--)
        TRY(pop(m, &v[i - 1]));
    return push_tuple(m, v, n);
}

static enum status op_empty_tuple(struct machine *m)
{
    return push_tuple_of(m, 0);
}

static enum status op_tuple1(struct machine *m)
{
    return push_tuple_of(m, 1);
}

static enum status op_tuple2(struct machine *m)
{
    return push_tuple_of(m, 2);
}

static enum status op_tuple3(struct machine *m)
{
    return push_tuple_of(m, 3);
}

static enum status op_tuple(struct machine *m)
{
    const struct value *v;
    uint32_t n;
    TRY(pop_marked(m, &v, &n));
    return push_tuple(m, v, n); /* the items move to their pool before the stack is written */
}

/* What a list holds is nobody's business here. */
static enum status op_empty_list(struct machine *m)
{
    return push(m, (struct value){.kind = LIST});
}

static enum status need_top(struct machine *m, enum kind kind, const char *what)
{
    if (m->stack.n == 0 || top(m)->kind != kind)
        return refuse(m, STATUS_INVALID, "%s is %s", what,
                      m->stack.n ? kind_names[top(m)->kind] : "missing");
    return STATUS_OK;
}

static enum status op_append(struct machine *m)
{
    struct value v;
    TRY(pop(m, &v));
    return need_top(m, LIST, "what is appended to");
}

static enum status op_appends(struct machine *m)
{
    const struct value *v;
    uint32_t n;
    TRY(pop_marked(m, &v, &n));
    return need_top(m, LIST, "what is appended to");
}

static enum status op_empty_dict(struct machine *m)
{
    if (m->n_dicts == MAX_DICTS)
        return refuse(m, STATUS_LIMIT, "more than %d dicts", MAX_DICTS);
    return push(m, (struct value){.kind = DICT, .at = m->n_dicts++});
}

static enum status set_items(struct machine *m, const struct value *v, uint32_t n)
{
    TRY(need_top(m, DICT, "what gets an entry"));
    if (n % 2 != 0)
        return damaged(m, "a key without a value");
    for (uint32_t i = 0; i < n; i += 2) {
        struct entry e = {top(m)->at, v[i], v[i + 1]};
        TRY(pool_add(m, &m->entries, sizeof e, MAX_DICTS, &e));
    }
    return STATUS_OK;
}

static enum status op_setitem(struct machine *m)
{
    struct value v[2];
    TRY(pop(m, &v[1]));
    TRY(pop(m, &v[0]));
    return set_items(m, v, 2);
}

static enum status op_setitems(struct machine *m)
{
    const struct value *v;
    uint32_t n;
    TRY(pop_marked(m, &v, &n));
    return set_items(m, v, n);
}

/* Attributes of an OrderedDict (_metadata: the versions of modules), which are not looked at. */
static enum status op_build(struct machine *m)
{
    struct value state;
    TRY(pop_kind(m, DICT, "what an object is built from", &state));
    return need_top(m, DICT, "what is built");
}

/* ---- names ---- */

static bool is_name(struct str s)
{
    bool ok = s.len > 0;
    for (size_t i = 0; i < s.len; i++)
        ok = ok && (isalnum((unsigned char)s.ptr[i]) || s.ptr[i] == '_' || s.ptr[i] == '.');
    return ok;
}

static enum status push_global(struct machine *m, struct str module, struct str name)
{
    if (!is_name(module) || !is_name(name)) /* nor is it printed */
        return damaged(m, "names what can be no name");
    for (uint32_t i = 0; i < N_GLOBALS; i++)
        if (str_eq_c(module, globals[i].module) && str_eq_c(name, globals[i].name))
            return push(m, (struct value){.kind = GLOBAL, .at = i});
    return refuse(m, STATUS_UNSUPPORTED,
                  "names %.*s.%.*s, which is no part of a dict of tensors; nothing of it was run. "
                  "If you trust where it comes from, save its state dict as safetensors",
                  NAME_ARG(module), NAME_ARG(name));
}

static enum status op_global(struct machine *m)
{
    struct str module, name;
    TRY(take_line(m, &module));
    TRY(take_line(m, &name));
    return push_global(m, module, name);
}

static enum status op_stack_global(struct machine *m)
{
    struct value module, name;
    TRY(pop_kind(m, TEXT, "a name", &name));
    TRY(pop_kind(m, TEXT, "a module's name", &module));
    return push_global(m, (struct str){module.text, module.n}, (struct str){name.text, name.n});
}

/* ("storage", type, key, location, number of elements) */
static enum status op_persistent_id(struct machine *m)
{
    struct value id;
    TRY(pop_kind(m, TUPLE, "a persistent id", &id));
    const struct value *v = items_of(m, id);
    if (id.n != 5 || v[0].kind != TEXT || !str_eq_c((struct str){v[0].text, v[0].n}, "storage") ||
        v[1].kind != GLOBAL || globals[v[1].at].global != STORAGE_TYPE || v[2].kind != TEXT ||
        !is_name((struct str){v[2].text, v[2].n}) || v[4].kind != INT || v[4].i < 0)
        return damaged(m, "a persistent id that is no storage");
    struct torch_storage s = {
        .key = {v[2].text, v[2].n}, .dtype = globals[v[1].at].dtype, .n_elems = (uint64_t)v[4].i};
    struct value out = {.kind = STORAGE, .at = m->storages.n};
    TRY(pool_add(m, &m->storages, sizeof s, MAX_TENSORS, &s));
    return push(m, out);
}

/* ---- tensors ---- */

/* A tuple of sizes, or of strides. */
static enum status read_sizes(const struct machine *m, struct value tuple, const char *what,
                              uint64_t *out)
{
    const struct value *v = items_of(m, tuple);
    for (uint32_t i = 0; i < tuple.n; i++) {
        if (v[i].kind != INT || v[i].i < 0)
            return refuse(m, STATUS_INVALID, "a tensor whose %s holds what is no size", what);
        out[i] = (uint64_t)v[i].i;
    }
    return STATUS_OK;
}

/* (storage, first, shape, stride, requires_grad, hooks[, dtype][, metadata]) */
static enum status rebuild_tensor(struct machine *m, struct value args, bool has_dtype)
{
    const struct value *v = items_of(m, args);
    uint32_t n_known = has_dtype ? 7 : 6;
    if (args.n < n_known || args.n > n_known + 1 || v[0].kind != STORAGE || v[1].kind != INT ||
        v[1].i < 0 || v[2].kind != TUPLE || v[3].kind != TUPLE || v[2].n != v[3].n)
        return damaged(m, "a tensor that is not described as torch.save does it");
    if (args.n > n_known && v[n_known].kind != NONE)
        return refuse(m, STATUS_UNSUPPORTED,
                      "a tensor with metadata (a conjugate or negative view): save a copy of it");
    if (v[2].n > TORCH_MAX_DIMS)
        return refuse(m, STATUS_UNSUPPORTED, "a tensor of %u dimensions, at most %d are read",
                      v[2].n, TORCH_MAX_DIMS);
    const struct torch_storage *s = (const struct torch_storage *)m->storages.at + v[0].at;
    struct torch_tensor t = {
        .storage = v[0].at, .dtype = s->dtype, .n_dims = v[2].n, .first = (uint64_t)v[1].i};
    if (has_dtype && (v[6].kind != GLOBAL || globals[v[6].at].global != DTYPE))
        return damaged(m, "a tensor whose dtype is none");
    if (has_dtype != (s->dtype == DTYPE_OPAQUE))
        return damaged(m, "a tensor that has two dtypes, or none");
    if (has_dtype)
        t.dtype = globals[v[6].at].dtype;
    TRY(read_sizes(m, v[2], "shape", t.shape));
    TRY(read_sizes(m, v[3], "stride", t.stride));
    struct value out = {.kind = TENSOR, .at = m->tensors.n};
    TRY(pool_add(m, &m->tensors, sizeof t, MAX_TENSORS, &t));
    return push(m, out);
}

/* What other readers would call. The one thing that is left of a parameter is its tensor. */
static enum status op_reduce(struct machine *m)
{
    struct value args, f;
    TRY(pop_kind(m, TUPLE, "the arguments of a call", &args));
    TRY(pop_kind(m, GLOBAL, "what is called", &f));
    const struct value *v = items_of(m, args);
    switch (globals[f.at].global) {
    case ORDERED_DICT:
        return args.n == 0 ? op_empty_dict(m) : damaged(m, "an OrderedDict with arguments");
    case REBUILD_V2:
        return rebuild_tensor(m, args, false);
    case REBUILD_V3:
        return rebuild_tensor(m, args, true);
    case REBUILD_PARAMETER:
        return args.n == 3 && v[0].kind == TENSOR ? push(m, v[0])
                                                  : damaged(m, "a parameter that is no tensor");
    case STORAGE_TYPE:
    case DTYPE:
        break;
    }
    return refuse(m, STATUS_UNSUPPORTED, "calls %s.%s, which no dict of tensors does",
                  globals[f.at].module, globals[f.at].name);
}

/* ---- the machine ---- */

static const struct {
    const char *name;
    enum status (*run)(struct machine *m); /* NULL: refused */
} opcodes[256] = {
    ['('] = {"MARK", op_mark},
    ['.'] = {"STOP", op_stop},
    ['0'] = {"POP", NULL},
    ['1'] = {"POP_MARK", NULL},
    ['2'] = {"DUP", NULL},
    ['F'] = {"FLOAT", NULL},
    ['I'] = {"INT", NULL},
    ['J'] = {"BININT", op_binint},
    ['K'] = {"BININT1", op_binint1},
    ['L'] = {"LONG", NULL},
    ['M'] = {"BININT2", op_binint2},
    ['N'] = {"NONE", op_none},
    ['P'] = {"PERSID", NULL},
    ['Q'] = {"BINPERSID", op_persistent_id},
    ['R'] = {"REDUCE", op_reduce},
    ['S'] = {"STRING", NULL},
    ['T'] = {"BINSTRING", NULL},
    ['U'] = {"SHORT_BINSTRING", NULL},
    ['V'] = {"UNICODE", NULL},
    ['X'] = {"BINUNICODE", op_text},
    ['a'] = {"APPEND", op_append},
    ['b'] = {"BUILD", op_build},
    ['c'] = {"GLOBAL", op_global},
    ['d'] = {"DICT", NULL},
    ['}'] = {"EMPTY_DICT", op_empty_dict},
    ['e'] = {"APPENDS", op_appends},
    ['g'] = {"GET", NULL},
    ['h'] = {"BINGET", op_binget},
    ['i'] = {"INST", NULL},
    ['j'] = {"LONG_BINGET", op_long_binget},
    ['l'] = {"LIST", NULL},
    [']'] = {"EMPTY_LIST", op_empty_list},
    ['o'] = {"OBJ", NULL},
    ['p'] = {"PUT", NULL},
    ['q'] = {"BINPUT", op_binput},
    ['r'] = {"LONG_BINPUT", op_long_binput},
    ['s'] = {"SETITEM", op_setitem},
    ['t'] = {"TUPLE", op_tuple},
    [')'] = {"EMPTY_TUPLE", op_empty_tuple},
    ['u'] = {"SETITEMS", op_setitems},
    ['G'] = {"BINFLOAT", op_binfloat},
    ['B'] = {"BINBYTES", NULL},
    ['C'] = {"SHORT_BINBYTES", NULL},
    [0x80] = {"PROTO", op_proto},
    [0x81] = {"NEWOBJ", NULL},
    [0x82] = {"EXT1", NULL},
    [0x83] = {"EXT2", NULL},
    [0x84] = {"EXT4", NULL},
    [0x85] = {"TUPLE1", op_tuple1},
    [0x86] = {"TUPLE2", op_tuple2},
    [0x87] = {"TUPLE3", op_tuple3},
    [0x88] = {"NEWTRUE", op_true},
    [0x89] = {"NEWFALSE", op_false},
    [0x8A] = {"LONG1", op_long1},
    [0x8B] = {"LONG4", NULL},
    [0x8C] = {"SHORT_BINUNICODE", op_short_text},
    [0x8D] = {"BINUNICODE8", op_text8},
    [0x8E] = {"BINBYTES8", NULL},
    [0x8F] = {"EMPTY_SET", NULL},
    [0x90] = {"ADDITEMS", NULL},
    [0x91] = {"FROZENSET", NULL},
    [0x92] = {"NEWOBJ_EX", NULL},
    [0x93] = {"STACK_GLOBAL", op_stack_global},
    [0x94] = {"MEMOIZE", op_memoize},
    [0x95] = {"FRAME", op_frame},
    [0x96] = {"BYTEARRAY8", NULL},
    [0x97] = {"NEXT_BUFFER", NULL},
    [0x98] = {"READONLY_BUFFER", NULL},
};

static enum status run(struct machine *m)
{
    if (m->bytes == m->end || *m->bytes != 0x80)
        return damaged(m, "does not begin as a pickle does");
    while (!m->done) {
        const uint8_t *op;
        m->op = m->at;
        TRY(take(m, 1, &op));
        if (!opcodes[*op].run)
            return refuse(m, STATUS_UNSUPPORTED,
                          "the opcode %s (0x%02X), which no dict of tensors needs",
                          opcodes[*op].name ? opcodes[*op].name : "unknown", *op);
        TRY(opcodes[*op].run(m));
    }
    return STATUS_OK;
}

/* ---- the dict ---- */

static enum status none_of_them(const struct machine *m, const struct entry *other)
{
    if (!other)
        return damaged(m, "holds no tensors");
    return refuse(m, STATUS_INVALID,
                  "its dict holds no tensors; \"%.*s\" for instance is %s. What is wanted is the "
                  "state dict itself, from names to tensors",
                  NAME_ARG(((struct str){other->key.text, other->key.n})),
                  kind_names[other->value.kind]);
}

/* Values that are no tensors (versions, states of modules) are left out. */
static enum status collect(struct machine *m, struct torch_pickle *out)
{
    struct value dict;
    const struct entry *entries = m->entries.at, *other = NULL;
    TRY(pop_kind(m, DICT, "what it describes", &dict));
    if (m->stack.n != 0)
        return damaged(m, "more than one value is left at its end");
    out->tensors = mem_try_array(m->entries.n + 1ul, sizeof *out->tensors);
    if (!out->tensors)
        return refuse(m, STATUS_NO_MEMORY, "no memory for its tensors");
    for (uint32_t i = 0; i < m->entries.n; i++) {
        const struct entry *e = &entries[i];
        if (e->dict != dict.at)
            continue;
        if (e->key.kind != TEXT)
            return refuse(m, STATUS_INVALID, "a key of its dict is %s, no text",
                          kind_names[e->key.kind]);
        struct str name = {e->key.text, e->key.n};
        if (e->value.kind != TENSOR) {
            if (!other || other->value.kind != DICT) /* a dict says most about what this is */
                other = e;
            continue;
        }
        if (memchr(name.ptr, 0, name.len) || str_utf8_valid(name) != name.len)
            return damaged(m, "the name of a tensor is no UTF-8, or holds a NUL");
        struct torch_tensor *t = &out->tensors[out->n_tensors++];
        *t = ((const struct torch_tensor *)m->tensors.at)[e->value.at];
        t->name = name;
    }
    return out->n_tensors ? STATUS_OK : none_of_them(m, other);
}

enum status torch_pickle_read(const void *bytes, size_t n, const char *name,
                              struct torch_pickle *out, struct error *err)
{
    struct machine m = {.bytes = bytes, .at = bytes, .op = bytes, .path = name, .err = err};
    *out = (struct torch_pickle){0};
    if (n > MAX_BYTES)
        return error_set(err, STATUS_LIMIT, "%s: its pickle has %zu bytes, at most %d are read",
                         name, n, MAX_BYTES);
    m.end = m.bytes + n;
    enum status s = run(&m);
    if (s == STATUS_OK)
        s = collect(&m, out);
    out->storages = m.storages.at;
    out->n_storages = m.storages.n;
    mem_free(m.stack.at);
    mem_free(m.memo.at);
    mem_free(m.items.at);
    mem_free(m.entries.at);
    mem_free(m.tensors.at);
    if (s != STATUS_OK)
        torch_pickle_fini(out);
    return s;
}

void torch_pickle_fini(struct torch_pickle *p)
{
    mem_free(p->storages);
    mem_free(p->tensors);
    *p = (struct torch_pickle){0};
}
