/* Writes small zip archives and PyTorch checkpoints. They are valid, and the tests then damage
 * them. The tests include this file. */
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/str.h"

enum { ZIP_MAX_MEMBERS = 8 };

struct zip_place { /* offsets of the archive's records, for tests that damage them */
    size_t local[ZIP_MAX_MEMBERS], data[ZIP_MAX_MEMBERS], entry[ZIP_MAX_MEMBERS];
    size_t directory, end64, locator, end;
};

static inline void zip_put(struct strbuf *b, uint64_t v, size_t n)
{
    if (!strbuf_append(b, &v, n))
        __builtin_trap();
}

static inline void zip_put_str(struct strbuf *b, struct str s)
{
    if (!strbuf_append(b, s.ptr, s.len))
        __builtin_trap();
}

static inline void zip_poke(struct strbuf *b, size_t at, uint64_t v, size_t n)
{
    memcpy(b->ptr + at, &v, n);
}

struct zip_part {
    const char *name;
    struct str data;
};

static inline void zip_put_local(struct strbuf *b, const struct zip_part *p)
{
    uint64_t pad = (64 - (b->len + 30 + strlen(p->name) + 4) % 64) % 64;
    zip_put(b, 0x04034B50, 4);
    zip_put(b, 0, 2);
    zip_put(b, 0x0808, 2); /* the sizes follow the data, and are also in the directory */
    for (int i = 0; i < 9; i++)
        zip_put(b, 0, 2);
    zip_put(b, strlen(p->name), 2);
    zip_put(b, 4 + pad, 2);
    zip_put_str(b, str_from(p->name));
    zip_put(b, 0x4246, 2);
    zip_put(b, pad, 2);
    for (uint64_t i = 0; i < pad; i++)
        zip_put(b, 'Z', 1);
    zip_put_str(b, p->data);
    zip_put(b, 0x08074B50, 4);
    zip_put(b, 0, 4);
    zip_put(b, p->data.len, 4);
    zip_put(b, p->data.len, 4);
}

/* Writes an entry of the directory. With `is_64` offsets and sizes are in the zip64 field, and
 * the directory's position is only in the zip64 record. */
static inline void zip_put_entry(struct strbuf *b, const struct zip_part *p, size_t local,
                                 bool is_64)
{
    zip_put(b, 0x02014B50, 4);
    zip_put(b, 0, 4);
    zip_put(b, 0x0808, 2);
    zip_put(b, 0, 6);
    zip_put(b, 0, 4); /* the checksum may be 0, because it is never checked */
    zip_put(b, is_64 ? UINT32_MAX : p->data.len, 4);
    zip_put(b, is_64 ? UINT32_MAX : p->data.len, 4);
    zip_put(b, strlen(p->name), 2);
    zip_put(b, is_64 ? 28 + 6 : 0, 2);
    for (int i = 0; i < 5; i++)
        zip_put(b, 0, 2);
    zip_put(b, is_64 ? UINT32_MAX : local, 4);
    zip_put_str(b, str_from(p->name));
    if (!is_64)
        return;
    zip_put(b, 0x7755, 2); /* another extra field precedes zip64's */
    zip_put(b, 2, 2);
    zip_put(b, 0, 2);
    zip_put(b, 1, 2);
    zip_put(b, 24, 2);
    zip_put(b, p->data.len, 8);
    zip_put(b, p->data.len, 8);
    zip_put(b, local, 8);
}

static inline struct zip_place zip_put_archive(struct strbuf *b, const struct zip_part *parts,
                                               size_t n, bool is_64)
{
    struct zip_place at = {0};
    for (size_t i = 0; i < n; i++) {
        at.local[i] = b->len;
        zip_put_local(b, &parts[i]);
        at.data[i] = b->len - 16 - parts[i].data.len;
    }
    at.directory = b->len;
    for (size_t i = 0; i < n; i++) {
        at.entry[i] = b->len;
        zip_put_entry(b, &parts[i], at.local[i], is_64);
    }
    size_t size = b->len - at.directory;
    if (is_64) {
        at.end64 = b->len;
        zip_put(b, 0x06064B50, 4);
        zip_put(b, 44, 8);
        zip_put(b, 0, 4);
        zip_put(b, 0, 8);
        zip_put(b, n, 8);
        zip_put(b, n, 8);
        zip_put(b, size, 8);
        zip_put(b, at.directory, 8);
        at.locator = b->len;
        zip_put(b, 0x07064B50, 4);
        zip_put(b, 0, 4);
        zip_put(b, at.end64, 8);
        zip_put(b, 1, 4);
    }
    at.end = b->len;
    zip_put(b, 0x06054B50, 4);
    zip_put(b, 0, 4);
    zip_put(b, is_64 ? UINT16_MAX : n, 2);
    zip_put(b, is_64 ? UINT16_MAX : n, 2);
    zip_put(b, is_64 ? UINT32_MAX : size, 4);
    zip_put(b, is_64 ? UINT32_MAX : at.directory, 4);
    zip_put(b, 0, 2);
    return at;
}

/* ---- pickles as source text: opcodes in order ---- */

#define P_BEGIN    "\x80\2ccollections\nOrderedDict\n)R("
#define P_END      "u."
#define P_TEXT1(c) "X\1\0\0\0" c
/* In P_STORAGE and P_TENSOR a number is one character from \n to \xFF. */
#define P_STORAGE(type, key, n)                                                                    \
    "(X\7\0\0\0storagectorch\n" type "\n" P_TEXT1(key) "X\3\0\0\0cpuK" n "tQ"
#define P_HOOKS                                                                                    \
    "\x89"                                                                                         \
    "ccollections\nOrderedDict\n)R"
/* P_TENSOR pushes a tensor. `sizes` and `strides` are opcodes that push a tuple. */
#define P_TENSOR(storage, first, sizes, strides)                                                   \
    "ctorch._utils\n_rebuild_tensor_v2\n(" storage "K" first sizes strides P_HOOKS "tR"
#define P_TUPLE1(a)    "K" a "\x85"
#define P_TUPLE2(a, b) "K" a "K" b "\x86"

/* Writes a checkpoint of one-dimensional U8 tensors of four bytes, each with its own storage and
 * a name of one letter. Byte i of all data is 7 i + 1, as in put_safetensors. */
static inline void put_torch(struct strbuf *b, const char *letters)
{
    static const char begin[] = P_BEGIN, end[] = P_END;
    struct zip_part parts[ZIP_MAX_MEMBERS];
    char names[ZIP_MAX_MEMBERS][32], data[4 * ZIP_MAX_MEMBERS];
    struct strbuf pickle;
    size_t n = strlen(letters);
    strbuf_init(&pickle, 0);
    zip_put_str(&pickle, (struct str){begin, sizeof begin - 1});
    for (size_t i = 0; i < n; i++) {
        char t[] = P_TEXT1("?")
            P_TENSOR(P_STORAGE("ByteStorage", "?", "\4"), "\0", P_TUPLE1("\4"), P_TUPLE1("\1"));
        t[5] = letters[i];
        *(char *)memchr(t + 6, '?', sizeof t - 6) = (char)('0' + i);
        zip_put_str(&pickle, (struct str){t, sizeof t - 1});
        snprintf(names[i], sizeof names[i], "x/data/%zu", i);
        for (size_t k = 0; k < 4; k++)
            data[4 * i + k] = (char)((4 * i + k) * 7 + 1);
        parts[i + 1] = (struct zip_part){names[i], {data + 4 * i, 4}};
    }
    zip_put_str(&pickle, (struct str){end, sizeof end - 1});
    parts[0] = (struct zip_part){"x/data.pkl", strbuf_str(&pickle)};
    (void)zip_put_archive(b, parts, n + 1, n % 2 == 0);
    strbuf_fini(&pickle);
}
