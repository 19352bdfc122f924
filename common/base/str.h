#pragma once
/* `struct str` borrows bytes that need not end with NUL, and is passed by value. `struct strbuf`
 * owns a growing byte buffer with a hard limit, which always has a NUL after the bytes. Only one
 * thread at a time may use a string buffer. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/status.h"

struct str {
    const char *ptr;
    size_t len;
};

#define STR(lit)   ((struct str){(lit), sizeof(lit) - 1})
#define STR_FMT    "%.*s"
#define STR_ARG(s) (int)((s).len > 4096 ? 4096 : (s).len), (s).ptr

struct str str_from(const char *c_string); /* NULL gives an empty str */
bool str_eq(struct str a, struct str b);
bool str_eq_c(struct str a, const char *b);
bool str_is_one_of(struct str a, const char *const *list); /* the list ends with NULL */
/* Compares bytes, as memcmp does. A prefix sorts before the longer text. */
int str_compare(struct str a, struct str b);
bool str_starts(struct str s, struct str prefix);
bool str_ends(struct str s, struct str suffix);
/* Removes the characters of the C string `blanks` from both ends. */
struct str str_trim(struct str s, const char *blanks);
/* Copies `s` and a NUL into out[size]. A text that does not fit is cut. */
void str_copy(char *out, size_t size, struct str s);
/* Returns the length of the longest prefix that is valid UTF-8 (RFC 3629). It equals s.len when
 * all of `s` is valid. */
size_t str_utf8_valid(struct str s);
/* These functions parse a whole string as a decimal number. Blanks, trailing bytes and, for u64,
 * a sign are errors. */
MUST_USE enum status str_to_u64(struct str s, uint64_t *out);
MUST_USE enum status str_to_i64(struct str s, int64_t *out);
MUST_USE enum status str_to_f64(struct str s, double *out);

struct strbuf {
    char *ptr;
    size_t len, cap, limit; /* limit 0 = 1 GiB */
    bool failed;            /* an append was refused at the limit; stays set until a reset */
};

void strbuf_init(struct strbuf *b, size_t limit);
void strbuf_fini(struct strbuf *b);
void strbuf_reset(struct strbuf *b); /* empties the buffer and keeps its memory */
/* Empties the buffer, and frees its memory when that is more than keep_bytes. */
void strbuf_trim(struct strbuf *b, size_t keep_bytes);
bool strbuf_append(struct strbuf *b, const void *bytes, size_t n); /* returns false at the limit */
/* Appends n uninitialised bytes and returns their address. Returns NULL at the limit. */
char *strbuf_extend(struct strbuf *b, size_t n);
bool strbuf_append_str(struct strbuf *b, struct str s);
bool strbuf_append_c(struct strbuf *b, const char *c_string);
/* Appends `v` in decimal. It uses no format, because it runs for each token. */
bool strbuf_append_u64(struct strbuf *b, uint64_t v);
bool strbuf_printf(struct strbuf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
/* Appends s as a quoted JSON string. Invalid UTF-8 becomes U+FFFD. */
bool strbuf_append_json(struct strbuf *b, struct str s);
void strbuf_consume(struct strbuf *b, size_t n); /* drops n bytes from the front */
static inline struct str strbuf_str(const struct strbuf *b)
{
    return (struct str){b->ptr ? b->ptr : "", b->len};
}
