#include "cli/pull/sources/wheel.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "common/base/mem.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a zip's numbers are read as they lie");

enum {
    END_BYTES = 22,
    ENTRY_BYTES = 46,
    LOCAL_BYTES = 30,
    COMMENT_MAX = 65535,
    STORED = 0,
    DEFLATED = 8,
    ENCRYPTED = 1,
    PIECE = 1 << 18,
};
#define END_MAGIC   0x06054B50u
#define ENTRY_MAGIC 0x02014B50u
#define LOCAL_MAGIC 0x04034B50u

struct wheel {
    const char *path;
    const uint8_t *bytes;
    uint64_t n;
};
struct entry {
    uint16_t method;
    uint32_t crc;
    /* size of the member in bytes: packed = compressed, whole = uncompressed */
    uint64_t packed, whole;
    const uint8_t *data;
};

static uint16_t u16(const uint8_t *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static enum status wrong(const struct wheel *w, const char *what, struct error *err)
{
    return error_set(err, STATUS_PROTOCOL,
                     "%s is not the expected wheel file: %s. Run the same command again", w->path,
                     what);
}

/* Finds the record that ends a zip file. Only the record's comment may follow it. */
static const uint8_t *find_end(const struct wheel *w)
{
    for (uint64_t back = END_BYTES; back <= w->n && back <= END_BYTES + COMMENT_MAX; back++) {
        const uint8_t *p = w->bytes + w->n - back;
        if (u32(p) == END_MAGIC && u16(p + 20) == back - END_BYTES)
            return p;
    }
    return NULL;
}

static enum status find_entry(const struct wheel *w, const char *member, struct entry *e,
                              struct error *err)
{
    const uint8_t *end = find_end(w);
    if (!end)
        return wrong(w, "the zip archive has no directory", err);
    uint64_t at = u32(end + 16), limit = (uint64_t)(end - w->bytes), name_bytes = strlen(member);
    for (uint32_t i = 0, n = u16(end + 10); i < n; i++) {
        if (at + ENTRY_BYTES > limit || u32(w->bytes + at) != ENTRY_MAGIC)
            return wrong(w, "the directory of the zip archive is damaged", err);
        const uint8_t *p = w->bytes + at;
        uint64_t n_name = u16(p + 28);
        at += ENTRY_BYTES + n_name + u16(p + 30) + u16(p + 32);
        if (at > limit)
            return wrong(w, "the directory of the zip archive is damaged", err);
        if (n_name != name_bytes || memcmp(p + ENTRY_BYTES, member, name_bytes) != 0)
            continue;
        uint64_t local = u32(p + 42);
        *e = (struct entry){u16(p + 10), u32(p + 16), u32(p + 20), u32(p + 24), NULL};
        if ((u16(p + 8) & ENCRYPTED) || (e->method != STORED && e->method != DEFLATED) ||
            local + LOCAL_BYTES > limit || u32(w->bytes + local) != LOCAL_MAGIC)
            return wrong(w, "the member is encrypted or has an unknown compression", err);
        local += LOCAL_BYTES + u16(w->bytes + local + 26) + u16(w->bytes + local + 28);
        if (local > limit || e->packed > limit - local ||
            (e->method == STORED && e->packed != e->whole))
            return wrong(w, "the member ends after the end of the file", err);
        e->data = w->bytes + local;
        return STATUS_OK;
    }
    return wrong(w, "the member with the model is missing", err);
}

struct sink {
    const struct entry *e;
    bool (*on_piece)(void *ctx, struct str piece);
    void *ctx;
    uint64_t n;
    uint32_t crc;
    bool stopped;
};

static bool put(struct sink *k, const uint8_t *bytes, size_t n)
{
    if (n > k->e->whole - k->n)
        return false;
    k->n += n;
    k->crc = (uint32_t)crc32(k->crc, bytes, (uInt)n);
    k->stopped = n > 0 && !k->on_piece(k->ctx, (struct str){(const char *)bytes, n});
    return !k->stopped;
}

static bool copy_stored(struct sink *k)
{
    for (uint64_t at = 0; at < k->e->packed;) {
        size_t n = k->e->packed - at < PIECE ? (size_t)(k->e->packed - at) : PIECE;
        if (!put(k, k->e->data + at, n))
            return false;
        at += n;
    }
    return true;
}

static bool inflate_all(struct sink *k)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)k->e->data, .avail_in = (uInt)k->e->packed};
    uint8_t *out = mem_alloc(PIECE);
    bool ok = inflateInit2(&z, -MAX_WBITS) == Z_OK;
    int rc = ok ? Z_OK : Z_STREAM_ERROR;
    while (ok && rc == Z_OK) {
        z.next_out = out;
        z.avail_out = PIECE;
        rc = inflate(&z, Z_NO_FLUSH);
        ok = (rc == Z_OK || rc == Z_STREAM_END) && put(k, out, PIECE - z.avail_out);
    }
    (void)inflateEnd(&z);
    mem_free(out);
    return ok && rc == Z_STREAM_END;
}

static enum status extract(const struct wheel *w, const char *member, uint64_t max_bytes,
                           struct sink *k, struct error *err)
{
    struct entry e = {0};
    TRY(find_entry(w, member, &e, err));
    if (e.whole > max_bytes)
        return wrong(w, "the member is larger than expected", err);
    k->e = &e;
    bool ok = e.method == STORED ? copy_stored(k) : inflate_all(k);
    k->e = NULL;
    if (k->stopped)
        return error_set(err, STATUS_CLOSED, "the download was stopped by a signal");
    return ok && k->n == e.whole && k->crc == e.crc ? STATUS_OK
                                                    : wrong(w, "the member is damaged", err);
}

enum status wheel_extract(const char *path, const char *member, uint64_t max_bytes,
                          bool (*on_piece)(void *ctx, struct str piece), void *ctx,
                          struct error *err)
{
    struct wheel w = {.path = path};
    struct sink k = {.on_piece = on_piece, .ctx = ctx};
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0) {
        enum status s = error_set(err, STATUS_IO, "cannot open %s: %s", path, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return s;
    }
    w.n = (uint64_t)st.st_size;
    void *at = w.n ? mmap(NULL, w.n, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    (void)close(fd);
    if (at == MAP_FAILED)
        return wrong(&w, "the file is empty", err);
    w.bytes = at;
    enum status s = extract(&w, member, max_bytes, &k, err);
    (void)munmap(at, w.n);
    return s;
}
