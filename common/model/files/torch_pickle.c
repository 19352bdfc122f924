/* Reads the pickle of a PyTorch checkpoint. torch_pickle_read runs its opcodes on pickle_machine
 * and then collects the tensors of the dict that is left on the stack.
 * The machine has values of a few kinds, a memo, and pools: items of tuples, entries of dicts,
 * storages and tensors. Each opcode is a row of a table. A row without a function is refused,
 * and the error names the opcode. Values refer to pools by index and only the last dict is
 * followed, so there is no recursion. All pools are bounded; names in the result point into the
 * caller's bytes. */
#include "common/model/files/torch_pickle.h"

#include <string.h>

#include "common/base/mem.h"
#include "common/model/files/pickle_machine.h"
#include "common/model/files/pickle_objects.h"

enum { MIN_PROTOCOL = 2, MAX_PROTOCOL = 5 };

/* ---- plain values ---- */

static enum status op_proto(struct pickle_machine *m)
{
    uint64_t version;
    TRY(pickle_take_number(m, 1, &version));
    if (version < MIN_PROTOCOL || version > MAX_PROTOCOL)
        return pickle_refuse(m, STATUS_UNSUPPORTED,
                             "it has the pickle protocol %u; protocols %d to %d are supported",
                             (unsigned)version, MIN_PROTOCOL, MAX_PROTOCOL);
    return STATUS_OK;
}

static enum status op_frame(struct pickle_machine *m)
{
    uint64_t n;
    TRY(pickle_take_number(m, 8, &n));
    return n > (uint64_t)(m->end - m->at) ? pickle_damaged(m, "a frame is longer than the pickle")
                                          : STATUS_OK;
}

static enum status op_stop(struct pickle_machine *m)
{
    m->done = true;
    return m->at == m->end ? STATUS_OK : pickle_damaged(m, "there are more bytes after its end");
}

static enum status op_mark(struct pickle_machine *m)
{
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_MARK});
}

static enum status op_none(struct pickle_machine *m)
{
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_NONE});
}

static enum status op_true(struct pickle_machine *m)
{
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_BOOL, .i = 1});
}

static enum status op_false(struct pickle_machine *m)
{
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_BOOL});
}

static enum status push_int(struct pickle_machine *m, unsigned n_bytes, bool is_signed)
{
    uint64_t v;
    unsigned unused_bits = 64 - 8 * n_bytes;
    TRY(pickle_take_number(m, n_bytes, &v));
    int64_t i = n_bytes == 0 ? 0
                : is_signed  ? (int64_t)(v << unused_bits) >> unused_bits
                             : (int64_t)v;
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_INT, .i = i});
}

static enum status op_binint(struct pickle_machine *m)
{
    return push_int(m, 4, true);
}

static enum status op_binint1(struct pickle_machine *m)
{
    return push_int(m, 1, false);
}

static enum status op_binint2(struct pickle_machine *m)
{
    return push_int(m, 2, false);
}

static enum status op_long1(struct pickle_machine *m)
{
    uint64_t n;
    TRY(pickle_take_number(m, 1, &n));
    if (n > 8)
        return pickle_refuse(m, STATUS_INVALID,
                             "an integer has %u bytes, but at most 8 are supported", (unsigned)n);
    return push_int(m, (unsigned)n, true);
}

static enum status op_binfloat(struct pickle_machine *m)
{
    const uint8_t *p;
    TRY(pickle_take(m, 8, &p));
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_FLOAT});
}

static enum status push_text(struct pickle_machine *m, unsigned n_length_bytes)
{
    uint64_t n;
    const uint8_t *p;
    TRY(pickle_take_number(m, n_length_bytes, &n));
    TRY(pickle_take(m, n, &p));
    return pickle_push(
        m, (struct pickle_value){.kind = PICKLE_TEXT, .n = (uint32_t)n, .text = (const char *)p});
}

static enum status op_short_text(struct pickle_machine *m)
{
    return push_text(m, 1);
}

static enum status op_text(struct pickle_machine *m)
{
    return push_text(m, 4);
}

static enum status op_text8(struct pickle_machine *m)
{
    return push_text(m, 8);
}

/* ---- memo: entries are numbered without gaps, as all writers do ---- */

static enum status memoize(struct pickle_machine *m, uint64_t i)
{
    if (m->stack.n == 0 || pickle_top(m)->kind == PICKLE_MARK)
        return pickle_damaged(m, "the opcode stores a value in the memo, but the stack is empty");
    if (i < m->memo.n) {
        ((struct pickle_value *)m->memo.at)[i] = *pickle_top(m);
        return STATUS_OK;
    }
    if (i > m->memo.n)
        return pickle_damaged(
            m, "the opcode stores a value in the memo with a number that skips others");
    return pickle_pool_add(m, &m->memo, sizeof(struct pickle_value), PICKLE_MAX_MEMO,
                           pickle_top(m));
}

static enum status op_memoize(struct pickle_machine *m)
{
    return memoize(m, m->memo.n);
}

static enum status put(struct pickle_machine *m, unsigned n_bytes)
{
    uint64_t i;
    TRY(pickle_take_number(m, n_bytes, &i));
    return memoize(m, i);
}

static enum status op_binput(struct pickle_machine *m)
{
    return put(m, 1);
}

static enum status op_long_binput(struct pickle_machine *m)
{
    return put(m, 4);
}

static enum status get(struct pickle_machine *m, unsigned n_bytes)
{
    uint64_t i;
    TRY(pickle_take_number(m, n_bytes, &i));
    if (i >= m->memo.n)
        return pickle_damaged(m, "the opcode reads a memo entry that does not exist");
    return pickle_push(m, ((const struct pickle_value *)m->memo.at)[i]);
}

static enum status op_binget(struct pickle_machine *m)
{
    return get(m, 1);
}

static enum status op_long_binget(struct pickle_machine *m)
{
    return get(m, 4);
}

/* ---- tuples, lists, dicts ---- */

static enum status push_tuple(struct pickle_machine *m, const struct pickle_value *v, uint32_t n)
{
    struct pickle_value tuple = {.kind = PICKLE_TUPLE, .n = n, .at = m->items.n};
    for (uint32_t i = 0; i < n; i++)
        TRY(pickle_pool_add(m, &m->items, sizeof *v, PICKLE_MAX_ITEMS, &v[i]));
    return pickle_push(m, tuple);
}

static enum status push_tuple_of(struct pickle_machine *m, uint32_t n)
{
    struct pickle_value v[3];
    for (uint32_t i = n; i > 0; i--)
        TRY(pickle_pop(m, &v[i - 1]));
    return push_tuple(m, v, n);
}

static enum status op_empty_tuple(struct pickle_machine *m)
{
    return push_tuple_of(m, 0);
}

static enum status op_tuple1(struct pickle_machine *m)
{
    return push_tuple_of(m, 1);
}

static enum status op_tuple2(struct pickle_machine *m)
{
    return push_tuple_of(m, 2);
}

static enum status op_tuple3(struct pickle_machine *m)
{
    return push_tuple_of(m, 3);
}

static enum status op_tuple(struct pickle_machine *m)
{
    const struct pickle_value *v;
    uint32_t n;
    TRY(pickle_pop_marked(m, &v, &n));
    /* the call is safe, because the items are copied before the stack is written */
    return push_tuple(m, v, n);
}

/* Pushes a list. The items of a list are not needed and are dropped. */
static enum status op_empty_list(struct pickle_machine *m)
{
    return pickle_push(m, (struct pickle_value){.kind = PICKLE_LIST});
}

static enum status need_top(struct pickle_machine *m, enum pickle_kind kind, const char *what)
{
    if (m->stack.n == 0 || pickle_top(m)->kind != kind)
        return pickle_refuse(m, STATUS_INVALID, "%s is %s", what,
                             m->stack.n ? pickle_kind_names[pickle_top(m)->kind] : "missing");
    return STATUS_OK;
}

static enum status op_append(struct pickle_machine *m)
{
    struct pickle_value v;
    TRY(pickle_pop(m, &v));
    return need_top(m, PICKLE_LIST, "the target of an append");
}

static enum status op_appends(struct pickle_machine *m)
{
    const struct pickle_value *v;
    uint32_t n;
    TRY(pickle_pop_marked(m, &v, &n));
    return need_top(m, PICKLE_LIST, "the target of an append");
}

static enum status set_items(struct pickle_machine *m, const struct pickle_value *v, uint32_t n)
{
    TRY(need_top(m, PICKLE_DICT, "the target of a new entry"));
    if (n % 2 != 0)
        return pickle_damaged(m, "a key has no value");
    for (uint32_t i = 0; i < n; i += 2) {
        struct pickle_entry e = {pickle_top(m)->at, v[i], v[i + 1]};
        TRY(pickle_pool_add(m, &m->entries, sizeof e, PICKLE_MAX_DICTS, &e));
    }
    return STATUS_OK;
}

static enum status op_setitem(struct pickle_machine *m)
{
    struct pickle_value v[2];
    TRY(pickle_pop(m, &v[1]));
    TRY(pickle_pop(m, &v[0]));
    return set_items(m, v, 2);
}

static enum status op_setitems(struct pickle_machine *m)
{
    const struct pickle_value *v;
    uint32_t n;
    TRY(pickle_pop_marked(m, &v, &n));
    return set_items(m, v, n);
}

/* Drops the attributes of an OrderedDict (_metadata: versions of modules). */
static enum status op_build(struct pickle_machine *m)
{
    struct pickle_value state;
    TRY(pickle_pop_kind(m, PICKLE_DICT, "the state of an object", &state));
    return need_top(m, PICKLE_DICT, "the built object");
}

/* ---- the machine ---- */

static const struct {
    const char *name;
    /* function that runs the opcode; NULL = refused */
    enum status (*run)(struct pickle_machine *m);
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
    ['Q'] = {"BINPERSID", pickle_push_storage},
    ['R'] = {"REDUCE", pickle_reduce},
    ['S'] = {"STRING", NULL},
    ['T'] = {"BINSTRING", NULL},
    ['U'] = {"SHORT_BINSTRING", NULL},
    ['V'] = {"UNICODE", NULL},
    ['X'] = {"BINUNICODE", op_text},
    ['a'] = {"APPEND", op_append},
    ['b'] = {"BUILD", op_build},
    ['c'] = {"GLOBAL", pickle_push_global},
    ['d'] = {"DICT", NULL},
    ['}'] = {"EMPTY_DICT", pickle_push_dict},
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
    [0x93] = {"STACK_GLOBAL", pickle_push_stack_global},
    [0x94] = {"MEMOIZE", op_memoize},
    [0x95] = {"FRAME", op_frame},
    [0x96] = {"BYTEARRAY8", NULL},
    [0x97] = {"NEXT_BUFFER", NULL},
    [0x98] = {"READONLY_BUFFER", NULL},
};

static enum status run(struct pickle_machine *m)
{
    if (m->bytes == m->end || *m->bytes != 0x80)
        return pickle_damaged(m, "it does not begin with the opcode PROTO");
    while (!m->done) {
        const uint8_t *op;
        m->op = m->at;
        TRY(pickle_take(m, 1, &op));
        if (!opcodes[*op].run)
            return pickle_refuse(
                m, STATUS_UNSUPPORTED,
                "it has the opcode %s (0x%02X), which a dict of tensors does not need",
                opcodes[*op].name ? opcodes[*op].name : "unknown", *op);
        TRY(opcodes[*op].run(m));
    }
    return STATUS_OK;
}

/* ---- the dict ---- */

static enum status none_of_them(const struct pickle_machine *m, const struct pickle_entry *other)
{
    if (!other)
        return pickle_damaged(m, "it contains no tensors");
    return pickle_refuse(m, STATUS_INVALID,
                         "its dict contains no tensors; for example, \"%.*s\" is %s. Save the "
                         "state dict itself, which maps names to tensors",
                         PICKLE_NAME_ARG(((struct str){other->key.text, other->key.n})),
                         pickle_kind_names[other->value.kind]);
}

/* Collects the tensors of the dict on the stack. Other values (versions, states of modules) are
 * left out. */
static enum status collect(struct pickle_machine *m, struct torch_pickle *out)
{
    struct pickle_value dict;
    const struct pickle_entry *entries = m->entries.at, *other = NULL;
    TRY(pickle_pop_kind(m, PICKLE_DICT, "the value of the pickle", &dict));
    if (m->stack.n != 0)
        return pickle_damaged(m, "it describes more than one value");
    out->tensors = mem_try_array(m->entries.n + 1ul, sizeof *out->tensors);
    if (!out->tensors)
        return pickle_refuse(m, STATUS_NO_MEMORY, "there is not enough memory for its tensors");
    for (uint32_t i = 0; i < m->entries.n; i++) {
        const struct pickle_entry *e = &entries[i];
        if (e->dict != dict.at)
            continue;
        if (e->key.kind != PICKLE_TEXT)
            return pickle_refuse(m, STATUS_INVALID, "a key of its dict is %s, but must be a string",
                                 pickle_kind_names[e->key.kind]);
        struct str name = {e->key.text, e->key.n};
        if (e->value.kind != PICKLE_TENSOR) {
            /* the error names a dict if there is one, because it explains best what the file is */
            if (!other || other->value.kind != PICKLE_DICT)
                other = e;
            continue;
        }
        if (memchr(name.ptr, 0, name.len) || str_utf8_valid(name) != name.len)
            return pickle_damaged(m, "the name of a tensor is not UTF-8 or contains a NUL");
        struct torch_tensor *t = &out->tensors[out->n_tensors++];
        *t = ((const struct torch_tensor *)m->tensors.at)[e->value.at];
        t->name = name;
    }
    return out->n_tensors ? STATUS_OK : none_of_them(m, other);
}

enum status torch_pickle_read(const void *bytes, size_t n, const char *name,
                              struct torch_pickle *out, struct error *err)
{
    struct pickle_machine m = {.bytes = bytes, .at = bytes, .op = bytes, .path = name, .err = err};
    *out = (struct torch_pickle){0};
    if (n > PICKLE_MAX_BYTES)
        return error_set(err, STATUS_LIMIT,
                         "%s: the pickle in this file has %zu bytes; Coxswain reads at most %d. "
                         "Use the model's safetensors files",
                         name, n, PICKLE_MAX_BYTES);
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
