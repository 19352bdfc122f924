#pragma once
/* GGUF version 2 and 3, read only, memory-mapped, made for hostile files: every size, count, offset
 * and product is checked against the file before it is used, and all of it at open, so that reading
 * afterwards can not fail. Strings and data point into the mapping and live until gguf_close. The
 * object is immutable: any thread. A file that another program shortens while it is open ends this
 * process (SIGBUS), as with every mapped file: replace models by rename. */
#include "common/base/dtype.h"
#include "common/base/status.h"
#include "common/base/str.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPE_COUNT
};

/* Elements are unaligned in the file: read them with the functions below. */
struct gguf_array {
    enum gguf_type type; /* never GGUF_ARRAY */
    uint64_t n;
    const uint8_t *ptr, *end;
};

struct gguf_value {
    struct str key;
    enum gguf_type type;
    union {
        uint64_t u64; /* unsigned types */
        int64_t i64;  /* signed types */
        double f64;
        bool boolean;
        struct str string;
        struct gguf_array array;
    };
};

#define GGUF_MAX_DIMS 4
struct gguf_tensor {
    struct str name;
    enum dtype dtype;
    uint32_t n_dims;
    uint64_t shape[GGUF_MAX_DIMS]; /* shape[0] is contiguous; 1 beyond n_dims */
    uint64_t offset, n_bytes;      /* in the file */
    const uint8_t *data;           /* aligned as the file says (general.alignment) */
};

struct gguf;
/* path: the file, or the first of a model in several (NAME-00001-of-0000N.gguf): then all are
 * opened, and the tensors are those of all of them. A part that is missing, or of another
 * model, is named. */
MUST_USE enum status gguf_open(const char *path, struct gguf **out, struct error *err);
/* One file, whatever it says of others. */
MUST_USE enum status gguf_open_part(const char *path, struct gguf **out, struct error *err);
/* bytes are borrowed until close; name is for error texts. */
MUST_USE enum status gguf_open_memory(const void *bytes, size_t n, const char *name,
                                      struct gguf **out, struct error *err);
void gguf_close(struct gguf *g); /* NULL is fine */

/* Of one part: its file, the file's size, and its magic, metadata and table of tensors as they are
 * in the file. The model itself is its first part. */
const char *gguf_path(const struct gguf *g);
uint64_t gguf_file_bytes(const struct gguf *g);
struct str gguf_header(const struct gguf *g);
uint32_t gguf_n_parts(const struct gguf *g);                    /* 1: it is in one file */
const struct gguf *gguf_part(const struct gguf *g, uint32_t i); /* i < gguf_n_parts */

uint64_t gguf_n_values(const struct gguf *g);
const struct gguf_value *gguf_value_at(const struct gguf *g, uint64_t i);  /* in file order */
const struct gguf_value *gguf_find(const struct gguf *g, const char *key); /* NULL: absent */
/* NOT_FOUND when absent, INVALID (with key and value in err) for another type or out of range.
 * Any integer type will do for gguf_get_u64, any number for gguf_get_f64. */
MUST_USE enum status gguf_get_u64(const struct gguf *g, const char *key, uint64_t min, uint64_t max,
                                  uint64_t *out, struct error *err);
MUST_USE enum status gguf_get_f64(const struct gguf *g, const char *key, double *out,
                                  struct error *err);
MUST_USE enum status gguf_get_bool(const struct gguf *g, const char *key, bool *out,
                                   struct error *err);
MUST_USE enum status gguf_get_str(const struct gguf *g, const char *key, struct str *out,
                                  struct error *err);
/* type: what the elements must be. */
MUST_USE enum status gguf_get_array(const struct gguf *g, const char *key, enum gguf_type type,
                                    struct gguf_array *out, struct error *err);
/* Element i < n of an array of numbers (or bools), converted; F32/F64 only through _f64. */
uint64_t gguf_array_u64(const struct gguf_array *a, uint64_t i); /* signed: sign-extended */
/* Strings come in order: start with *cursor NULL; false at the end. */
bool gguf_array_next_str(const struct gguf_array *a, const uint8_t **cursor, struct str *out);

uint64_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, uint64_t i); /* in file order */
const struct gguf_tensor *gguf_find_tensor(const struct gguf *g, const char *name);

/* Names. Length of a model's name in the last component of its path: without .gguf, and without
 * what says which part of a model it is. */
size_t gguf_name_length(struct str base);
/* The path of a part's first one into out[PATH_MAX]; false: path names no part. */
bool gguf_first_part(const char *path, char *out);
/* The GGUF of a folder (any part of it) into out[PATH_MAX]. NOT_FOUND, or INVALID when there are
 * several models. */
MUST_USE enum status gguf_find_in_folder(const char *folder, char *out, struct error *err);
