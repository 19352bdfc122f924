#pragma once
/* Defines the typed values by key, and the tensors of a GGUF. Strings, arrays and data point
 * into the file. The structs are plain data, and the functions may run on any thread. */
#include "common/base/dtype.h"
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

/* `gguf_array` is an array in the file. Its elements are unaligned; gguf_array_* (values.h) read
 * them. */
struct gguf_array {
    enum gguf_type type; /* type of the elements; never GGUF_ARRAY */
    uint64_t n;
    const uint8_t *ptr, *end;
};

struct gguf_value {
    struct str key;
    enum gguf_type type;
    union {
        uint64_t u64; /* value of unsigned types */
        int64_t i64;  /* value of signed types */
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
    uint64_t shape[GGUF_MAX_DIMS]; /* sizes; the first dimension is contiguous; 1 beyond n_dims */
    uint64_t offset, n_bytes;      /* position and size in the file */
    const uint8_t *data;           /* first byte of the tensor, aligned to general.alignment */
};

/* `gguf_type_traits` has a type's name and the bytes of an element; size 0 = variable length. */
struct gguf_type_traits {
    const char *name;
    uint8_t size;
};
extern const struct gguf_type_traits gguf_types[GGUF_TYPE_COUNT];

bool gguf_type_is_signed(enum gguf_type t); /* returns true for the signed integer types */
bool gguf_type_is_unsigned(enum gguf_type t);
/* These functions load one unaligned element from the file: an integer or a bool, a signed
 * integer, F32 or F64. */
uint64_t gguf_type_load_bits(enum gguf_type type, const uint8_t *p);
int64_t gguf_type_load_signed(enum gguf_type type, const uint8_t *p);
double gguf_type_load_real(enum gguf_type type, const uint8_t *p);
