#pragma once
/* Defines the stack machine that runs a pickle's opcodes: values of a few kinds, a memo, and
 * pools with fixed limits. Values refer to pools by index. Only torch_pickle.c and
 * pickle_objects.c include this header. */
#include "common/base/status.h"
#include "common/base/str.h"

enum {
    PICKLE_MAX_BYTES = 16 << 20, /* most bytes of a pickle; enough for about 100,000 tensors */
    /* most values on the stack; a writer empties the stack after 1000 entries of a dict */
    PICKLE_MAX_STACK = 1 << 16,
    PICKLE_MAX_MEMO = 1 << 22,
    PICKLE_MAX_ITEMS = 1 << 22,
    PICKLE_MAX_TENSORS = 1 << 18,
    PICKLE_MAX_DICTS = 1 << 20,
};

enum pickle_kind {
    PICKLE_MARK,
    PICKLE_NONE,
    PICKLE_BOOL,
    PICKLE_INT,
    PICKLE_FLOAT,
    PICKLE_TEXT,
    PICKLE_TUPLE,
    PICKLE_LIST,
    PICKLE_DICT,
    PICKLE_GLOBAL,
    PICKLE_STORAGE,
    PICKLE_TENSOR
};

/* The names of the kinds are for error texts: "a mark", "None", … */
extern const char *const pickle_kind_names[];
#define PICKLE_NAME_ARG(s) (int)((s).len > 100 ? 100 : (s).len), (s).ptr

struct pickle_value {
    enum pickle_kind kind;
    uint32_t n; /* PICKLE_TEXT: number of bytes; PICKLE_TUPLE: number of items */
    union {
        int64_t i; /* value of PICKLE_INT and PICKLE_BOOL */
        const char *text;
        uint32_t at; /* PICKLE_TUPLE: index of the first item; other kinds: index into a pool */
    };
};

struct pickle_entry {
    uint32_t dict;
    struct pickle_value key, value;
};

/* `pickle_pool` is a growing array with a fixed limit. */
struct pickle_pool {
    void *at;
    uint32_t n, cap;
};

struct pickle_machine {
    const uint8_t *bytes, *at, *end;
    const uint8_t *op; /* position of the current opcode, for error texts */
    const char *path;
    struct error *err;
    bool done;
    uint32_t n_dicts;
    struct pickle_pool stack, memo, items; /* pools of struct pickle_value */
    struct pickle_pool entries;            /* pool of struct pickle_entry */
    /* pools of struct torch_storage and of struct torch_tensor */
    struct pickle_pool storages, tensors;
};

/* Sets an error text with the opcode's position, and returns `s`. */
enum status pickle_refuse(const struct pickle_machine *m, enum status s, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
enum status pickle_damaged(const struct pickle_machine *m, const char *what);

MUST_USE enum status pickle_pool_add(const struct pickle_machine *m, struct pickle_pool *p,
                                     size_t size, uint32_t limit, const void *element);
MUST_USE enum status pickle_push(struct pickle_machine *m, struct pickle_value v);
MUST_USE enum status pickle_push_dict(struct pickle_machine *m); /* pushes an empty dict */
struct pickle_value *pickle_top(const struct pickle_machine *m);
MUST_USE enum status pickle_pop(struct pickle_machine *m, struct pickle_value *out);
MUST_USE enum status pickle_pop_kind(struct pickle_machine *m, enum pickle_kind kind,
                                     const char *what, struct pickle_value *out);
/* Pops the last mark and the values above it from the stack. *v is valid until the next push. */
MUST_USE enum status pickle_pop_marked(struct pickle_machine *m, const struct pickle_value **v,
                                       uint32_t *n);
const struct pickle_value *pickle_items(const struct pickle_machine *m, struct pickle_value tuple);

MUST_USE enum status pickle_take(struct pickle_machine *m, uint64_t n, const uint8_t **out);
/* Reads a little-endian number of n <= 8 bytes after the opcode. */
MUST_USE enum status pickle_take_number(struct pickle_machine *m, unsigned n, uint64_t *out);
MUST_USE enum status pickle_take_line(struct pickle_machine *m, struct str *out);
