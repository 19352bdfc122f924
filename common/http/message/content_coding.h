#pragma once
/* Decodes request bodies that clients have compressed (RFC 9110, 8.4): gzip, deflate (with or
 * without zlib's frame) and zstd. Up to two codings may be applied, one over the other. The
 * output has a bound, and memory is allocated only for bytes that have been decoded. The
 * functions are pure and may run on any thread. */
#include "common/base/str.h"

#define CONTENT_CODINGS     "gzip, deflate, zstd" /* value of the Accept-Encoding header */
#define CONTENT_CODINGS_MAX 2u
/* CONTENT_WINDOW_LOG_MAX is log2 of the zstd window: 8 MiB, the limit of RFC 9659 for HTTP. */
#define CONTENT_WINDOW_LOG_MAX 23

enum content_coding { CODING_GZIP, CODING_DEFLATE, CODING_ZSTD, CODING_COUNT };

struct content_codings {
    /* `list` has the codings in the order in which the client applied them */
    enum content_coding list[CONTENT_CODINGS_MAX];
    uint32_t n;
};

/* Appends the codings of one header's value to `out`, which begins as all zero. The value is a
 * list with names in any case. "identity" adds nothing. Returns false for an unknown coding or
 * too many of them. */
bool content_codings_add(struct content_codings *out, struct str value);

enum content_verdict {
    CONTENT_OK,
    CONTENT_BROKEN,    /* the body is cut off, corrupt, or followed by other bytes */
    CONTENT_TOO_LARGE, /* one of the codings produced more than `max` bytes */
    CONTENT_NO_MEMORY
};
/* Undoes all codings of `c`, the last one first. c->n must not be 0. With CONTENT_OK the caller
 * frees *out with mem_free. */
enum content_verdict content_decode(const struct content_codings *c, struct str body, uint64_t max,
                                    struct str *out);
