#pragma once
/* The stack machine that a pickle is a program for: values of a few kinds, a memo, and pools of
 * fixed limits. Values refer to pools by index. Private to torch_pickle.c and pickle_objects.c. */
#include "common/base/status.h"
#include "common/base/str.h"

enum {
    PICKLE_MAX_BYTES = 16 << 20, /* of the pickle: about 100,000 tensors */
    PICKLE_MAX_STACK = 1 << 16,  /* a writer pauses after 1000 entries of a dict */
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

extern const char *const pickle_kind_names[]; /* "a mark", "None", … for error texts */
#define PICKLE_NAME_ARG(s) (int)((s).len > 100 ? 100 : (s).len), (s).ptr

struct pickle_value {
    enum pickle_kind kind;
    uint32_t n; /* PICKLE_TEXT: bytes; PICKLE_TUPLE: items */
    union {
        int64_t i; /* PICKLE_INT, PICKLE_BOOL */
        const char *text;
        uint32_t at; /* PICKLE_TUPLE: of its first item; others: index, or number */
    };
};

struct pickle_entry {
    uint32_t dict;
    struct pickle_value key, value;
};

/* A growing array of fixed limit. */
struct pickle_pool {
    void *at;
    uint32_t n, cap;
};

struct pickle_machine {
    const uint8_t *bytes, *at, *end;
    const uint8_t *op; /* where the opcode that runs begins: for error texts */
    const char *path;
    struct error *err;
    bool done;
    uint32_t n_dicts;
    struct pickle_pool stack, memo, items; /* of struct pickle_value */
    struct pickle_pool entries;            /* of struct pickle_entry */
    struct pickle_pool storages, tensors;  /* of struct torch_storage, torch_tensor */
};

/* An error text with the opcode's place. */
enum status pickle_refuse(const struct pickle_machine *m, enum status s, const char *fmt, ...)
    PRINTF_LIKE(3, 4);
enum status pickle_damaged(const struct pickle_machine *m, const char *what);

MUST_USE enum status pickle_pool_add(const struct pickle_machine *m, struct pickle_pool *p,
                                     size_t size, uint32_t limit, const void *element);
MUST_USE enum status pickle_push(struct pickle_machine *m, struct pickle_value v);
MUST_USE enum status pickle_push_dict(struct pickle_machine *m); /* an empty one */
struct pickle_value *pickle_top(const struct pickle_machine *m);
MUST_USE enum status pickle_pop(struct pickle_machine *m, struct pickle_value *out);
MUST_USE enum status pickle_pop_kind(struct pickle_machine *m, enum pickle_kind kind,
                                     const char *what, struct pickle_value *out);
/* Takes what lies above the last mark, and the mark: *v stays valid until the next push. */
MUST_USE enum status pickle_pop_marked(struct pickle_machine *m, const struct pickle_value **v,
                                       uint32_t *n);
const struct pickle_value *pickle_items(const struct pickle_machine *m, struct pickle_value tuple);

MUST_USE enum status pickle_take(struct pickle_machine *m, uint64_t n, const uint8_t **out);
/* Little-endian, n <= 8 bytes. */
MUST_USE enum status pickle_take_number(struct pickle_machine *m, unsigned n, uint64_t *out);
MUST_USE enum status pickle_take_line(struct pickle_machine *m, struct str *out);
