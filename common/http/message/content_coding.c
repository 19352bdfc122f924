/* Undoes the content codings of a request body. conn/coding.c calls content_decode on a thread
 * of libuv's pool with a compressed body, and gets a new buffer with the plain body.
 * The output grows by doubling, only as far as bytes have been decoded, and never beyond `max` +
 * 1 bytes. So a small body that claims a huge size costs nothing. No state is kept between
 * calls. The result belongs to the caller. After an error nothing is left to free. */
#include "common/http/message/content_coding.h"

#include <limits.h>
#include <string.h>
#include <strings.h>
#include <zlib.h>
#include <zstd.h>

#include "common/base/mem.h"

enum { FIRST_BYTES = 16 << 10, GZIP_BITS = 15 + 16, ZLIB_BITS = 15, RAW_BITS = -15 };

/* ---- names ---- */

static bool is_named(struct str s, const char *name)
{
    return s.len == strlen(name) && strncasecmp(s.ptr, name, s.len) == 0;
}

static bool add_coding(struct content_codings *out, struct str name)
{
    static const struct {
        const char *name;
        enum content_coding coding;
    } names[] = {{"gzip", CODING_GZIP},
                 {"x-gzip", CODING_GZIP}, /* x-gzip is an older name of gzip (RFC 9110) */
                 {"deflate", CODING_DEFLATE},
                 {"zstd", CODING_ZSTD}};
    if (name.len == 0 || is_named(name, "identity"))
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!is_named(name, names[i].name))
            continue;
        if (out->n == CONTENT_CODINGS_MAX)
            return false;
        out->list[out->n++] = names[i].coding;
        return true;
    }
    return false;
}

bool content_codings_add(struct content_codings *out, struct str value)
{
    while (value.len > 0) {
        const char *comma = memchr(value.ptr, ',', value.len);
        size_t n = comma ? (size_t)(comma - value.ptr) : value.len;
        if (!add_coding(out, str_trim((struct str){value.ptr, n}, " \t")))
            return false;
        n += comma != NULL;
        value = (struct str){value.ptr + n, value.len - n};
    }
    return true;
}

/* ---- output ---- */

struct output {
    char *bytes;
    size_t n, cap;
    uint64_t max;
};

/* Extends the buffer for more output, up to one byte beyond `max`. The extra byte lets a body of
 * exactly `max` bytes reach its end. */
static enum content_verdict make_room(struct output *o)
{
    uint64_t cap = o->cap ? 2 * (uint64_t)o->cap : FIRST_BYTES;
    if (o->n < o->cap)
        return CONTENT_OK;
    if (o->n > o->max)
        return CONTENT_TOO_LARGE;
    cap = cap < o->max + 1 ? cap : o->max + 1;
    char *bytes = mem_try_array(cap, 1);
    if (!bytes)
        return CONTENT_NO_MEMORY;
    if (o->n > 0)
        memcpy(bytes, o->bytes, o->n);
    mem_free(o->bytes);
    o->bytes = bytes;
    o->cap = (size_t)cap;
    return CONTENT_OK;
}

static enum content_verdict end_at(const struct output *o, bool complete)
{
    if (o->n > o->max)
        return CONTENT_TOO_LARGE;
    return complete ? CONTENT_OK : CONTENT_BROKEN;
}

/* ---- gzip and deflate, by zlib ---- */

static unsigned at_most_uint(size_t n)
{
    return n < UINT_MAX ? (unsigned)n : UINT_MAX;
}

/* Performs one step of decoding a stream. Sets *done when the stream has ended. */
static enum content_verdict inflate_some(z_stream *z, struct str in, struct output *o, bool *done)
{
    enum content_verdict v = make_room(o);
    if (v != CONTENT_OK)
        return v;
    size_t used = (size_t)((const char *)z->next_in - in.ptr), room = o->cap - o->n;
    z->avail_in = at_most_uint(in.len - used);
    z->next_out = (Bytef *)o->bytes + o->n;
    z->avail_out = at_most_uint(room);
    unsigned before = z->avail_out, before_in = z->avail_in;
    int rc = inflate(z, Z_NO_FLUSH);
    o->n += before - z->avail_out;
    *done = rc == Z_STREAM_END;
    if (rc == Z_MEM_ERROR)
        return CONTENT_NO_MEMORY;
    if (rc != Z_OK && rc != Z_STREAM_END)
        return CONTENT_BROKEN;
    bool stuck = before == z->avail_out && before_in == z->avail_in && !*done;
    return stuck ? CONTENT_BROKEN : CONTENT_OK;
}

/* Decodes a whole compressed stream. `several` allows members that follow each other, as in
 * gzip. */
static enum content_verdict inflate_all(struct str in, int bits, bool several, struct output *o)
{
    z_stream z = {.next_in = (Bytef *)in.ptr};
    bool done = false;
    enum content_verdict v = CONTENT_OK;
    if (inflateInit2(&z, bits) != Z_OK)
        return CONTENT_NO_MEMORY;
    while (v == CONTENT_OK && !done) {
        v = inflate_some(&z, in, o, &done);
        bool more = done && (const char *)z.next_in < in.ptr + in.len;
        if (v == CONTENT_OK && more && several && inflateReset(&z) == Z_OK)
            done = false;
        else if (v == CONTENT_OK && more)
            v = CONTENT_BROKEN;
    }
    inflateEnd(&z);
    return v == CONTENT_OK ? end_at(o, done) : v;
}

/* Decodes deflate. RFC 1950 requires zlib's frame, but some clients leave it out. Two bytes
 * identify the frame, and raw data may match them by chance. So after a failure the function
 * tries again without a frame. */
static enum content_verdict undeflate(struct str in, struct output *o)
{
    const unsigned char *b = (const unsigned char *)in.ptr;
    bool framed = in.len >= 2 && (b[0] & 0x0F) == 8 && ((unsigned)b[0] << 8 | b[1]) % 31 == 0;
    enum content_verdict v = CONTENT_BROKEN;
    if (framed)
        v = inflate_all(in, ZLIB_BITS, false, o);
    if (v != CONTENT_BROKEN)
        return v;
    o->n = 0;
    return inflate_all(in, RAW_BITS, false, o);
}

/* ---- zstd ---- */

static enum content_verdict unzstd(struct str in, struct output *o)
{
    ZSTD_DCtx *z = ZSTD_createDCtx();
    ZSTD_inBuffer from = {in.ptr, in.len, 0};
    enum content_verdict v = CONTENT_OK;
    size_t left = 1; /* bytes that are left of the frame; 0 at its end */
    if (!z)
        return CONTENT_NO_MEMORY;
    (void)ZSTD_DCtx_setParameter(z, ZSTD_d_windowLogMax, CONTENT_WINDOW_LOG_MAX);
    while ((v = make_room(o)) == CONTENT_OK) {
        ZSTD_outBuffer to = {o->bytes, o->cap, o->n};
        size_t used = from.pos;
        left = ZSTD_decompressStream(z, &to, &from);
        bool stuck = used == from.pos && o->n == to.pos;
        o->n = to.pos;
        if (ZSTD_isError(left)) {
            v = CONTENT_BROKEN;
            break;
        }
        if (stuck || (left == 0 && from.pos == from.size))
            break;
    }
    ZSTD_freeDCtx(z);
    return v == CONTENT_OK ? end_at(o, left == 0 && from.pos == from.size) : v;
}

enum content_verdict content_decode(const struct content_codings *c, struct str body, uint64_t max,
                                    struct str *out)
{
    enum content_verdict v = CONTENT_OK;
    char *owned = NULL; /* output of the coding that was undone last */
    *out = body;
    for (uint32_t i = c->n; i-- > 0 && v == CONTENT_OK;) {
        struct output o = {.max = max};
        switch (c->list[i]) {
        case CODING_ZSTD:
            v = unzstd(*out, &o);
            break;
        case CODING_DEFLATE:
            v = undeflate(*out, &o);
            break;
        default:
            v = inflate_all(*out, GZIP_BITS, true, &o);
            break;
        }
        mem_free(owned);
        owned = o.bytes;
        *out = (struct str){o.bytes, o.n};
    }
    if (v != CONTENT_OK)
        mem_free(owned);
    return v;
}
