#pragma once
/* Bodies as clients have compressed them (RFC 9110, 8.4): gzip, deflate (with zlib's frame, or
 * without, as some send it) and zstd, one or two of them, one over the other. Nothing is taken on
 * trust: what comes out has a bound, and memory is only ever taken for what has come out. Pure; any
 * thread. */
#include "common/base/str.h"

#define CONTENT_CODINGS        "gzip, deflate, zstd" /* for Accept-Encoding */
#define CONTENT_CODINGS_MAX    2u
#define CONTENT_WINDOW_LOG_MAX 23 /* of zstd: 8 MiB, as RFC 9659 allows in HTTP */

enum content_coding { CODING_GZIP, CODING_DEFLATE, CODING_ZSTD, CODING_COUNT };

struct content_codings {
    enum content_coding list[CONTENT_CODINGS_MAX]; /* in the order they were applied in */
    uint32_t n;
};

/* Adds those of one header's value to out, which begins as all zero: a list, names of any case,
 * "identity" is none. False: one is not known here, or there are more than the most. */
bool content_codings_add(struct content_codings *out, struct str value);

enum content_verdict {
    CONTENT_OK,
    CONTENT_BROKEN,    /* cut off, corrupt, or followed by something else */
    CONTENT_TOO_LARGE, /* more than max came out of one of them */
    CONTENT_NO_MEMORY
};
/* c->n is not 0. out: the body, to be freed with mem_free where the verdict is OK. */
enum content_verdict content_decode(const struct content_codings *c, struct str body, uint64_t max,
                                    struct str *out);
