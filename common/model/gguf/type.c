#include "common/model/gguf/type.h"

#include <string.h>

const struct gguf_type_traits gguf_types[GGUF_TYPE_COUNT] = {
    [GGUF_U8] = {"u8", 1},       [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2},     [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4},     [GGUF_BOOL] = {"bool", 1}, [GGUF_STRING] = {"string", 0},
    [GGUF_ARRAY] = {"array", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

uint64_t gguf_type_load_bits(enum gguf_type type, const uint8_t *p)
{
    uint64_t v = 0;
    memcpy(&v, p, gguf_types[type].size);
    return v;
}

int64_t gguf_type_load_signed(enum gguf_type type, const uint8_t *p)
{
    unsigned unused_bits = 64 - 8u * gguf_types[type].size;
    return (int64_t)(gguf_type_load_bits(type, p) << unused_bits) >> unused_bits;
}

double gguf_type_load_real(enum gguf_type type, const uint8_t *p)
{
    float f;
    double d;
    if (type == GGUF_F32) {
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    memcpy(&d, p, sizeof d);
    return d;
}

bool gguf_type_is_signed(enum gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

bool gguf_type_is_unsigned(enum gguf_type t)
{
    return t == GGUF_U8 || t == GGUF_U16 || t == GGUF_U32 || t == GGUF_U64;
}
