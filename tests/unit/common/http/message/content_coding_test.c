/* Tests compressed bodies: decoding gives the original bytes, broken data is reported, and a
 * body that would grow too large takes no memory. The last test sends the same bodies to a
 * server. */
#include "common/http/message/content_coding.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <zlib.h>
#include <zstd.h>

#include <cmocka.h>

#include "common/base/mem.h"

enum { GZIP = 15 + 16, ZLIB = 15, RAW = -15, ROOM = 1 << 20 };

static size_t pack(int bits, const void *in, size_t n, unsigned char *out)
{
    z_stream z = {.next_in = (Bytef *)in, .avail_in = (uInt)n, .next_out = out, .avail_out = ROOM};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, bits, 8, Z_DEFAULT_STRATEGY), Z_OK);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    n = ROOM - z.avail_out;
    deflateEnd(&z);
    return n;
}

static size_t zstd(const void *in, size_t n, unsigned char *out)
{
    n = ZSTD_compress(out, ROOM, in, n, 3);
    assert_false(ZSTD_isError(n));
    return n;
}

static enum content_verdict undo(const char *codings, const void *body, size_t n, uint64_t max,
                                 struct str *out)
{
    struct content_codings c = {0};
    assert_true(content_codings_add(&c, str_from(codings)));
    return content_decode(&c, (struct str){body, n}, max, out);
}

static void assert_undone(const char *codings, const void *body, size_t n, struct str want)
{
    struct str got;
    assert_int_equal(undo(codings, body, n, want.len + 64, &got), CONTENT_OK);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.ptr, want.ptr, want.len);
    mem_free((void *)got.ptr);
}

static unsigned char a[ROOM], b[ROOM];

static void what_went_in_comes_out(void **state)
{
    static char text[300000];
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (char)('a' + i * i % 23);
    const size_t sizes[] = {0, 1, 17, 16 << 10, (16 << 10) + 1, sizeof text};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct str want = {text, sizes[i]};
        assert_undone("gzip", a, pack(GZIP, text, want.len, a), want);
        assert_undone("deflate", a, pack(ZLIB, text, want.len, a), want);
        assert_undone("deflate", a, pack(RAW, text, want.len, a), want);
        assert_undone("zstd", a, zstd(text, want.len, a), want);
        size_t n = pack(GZIP, text, want.len, a);
        assert_undone("GZIP , identity,\tzstd", b, zstd(a, n, b), want);
    }
}

/* Several gzip members or zstd frames may follow each other. */
static void several_in_one(void **state)
{
    size_t n = pack(GZIP, "ab", 2, a);
    n += pack(GZIP, "cd", 2, a + n);
    assert_undone("x-gzip", a, n, STR("abcd"));
    n = zstd("ab", 2, a);
    n += zstd("cd", 2, a + n);
    assert_undone("zstd", a, n, STR("abcd"));
}

static void broken_ones_are_refused(void **state)
{
    static const char *const codings[] = {"gzip", "deflate", "deflate", "zstd"};
    struct str got;
    for (int i = 0; i < 4; i++) {
        static const int bits[] = {GZIP, ZLIB, RAW};
        const char text[] = "some text that is compressed, some text that is cut off";
        size_t n = i < 3 ? pack(bits[i], text, sizeof text, a) : zstd(text, sizeof text, a);
        for (size_t cut = 1; cut < n; cut++)
            assert_int_equal(undo(codings[i], a, cut, 1000, &got), CONTENT_BROKEN);
        memcpy(a + n, "x", 1);
        assert_int_equal(undo(codings[i], a, n + 1, 1000, &got), CONTENT_BROKEN);
        assert_int_equal(undo(codings[i], "no such thing", 13, 1000, &got), CONTENT_BROKEN);
    }
    size_t n = pack(GZIP, "some text", 9, a);
    a[n - 8] ^= 1; /* the changed byte makes the checksum wrong */
    assert_int_equal(undo("gzip", a, n, 1000, &got), CONTENT_BROKEN);
}

/* A frame with a window of 128 MiB is refused before the window is allocated. */
static void a_large_window_is_refused(void **state)
{
    struct str got;
    ZSTD_CCtx *z = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(z, ZSTD_c_windowLog, 27);
    ZSTD_inBuffer in = {"abc", 3, 0};
    ZSTD_outBuffer out = {a, ROOM, 0};
    assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_flush), 0);
    assert_int_equal(ZSTD_compressStream2(z, &out, &in, ZSTD_e_end), 0);
    ZSTD_freeCCtx(z);
    assert_int_equal(undo("zstd", a, out.pos, 1000, &got), CONTENT_BROKEN);
}

static long peak_kib(void)
{
    struct rusage u;
    assert_int_equal(getrusage(RUSAGE_SELF, &u), 0);
    return u.ru_maxrss;
}

/* 128 MiB of zeros take 128 KiB when compressed once, and less than 1 KiB when compressed twice. */
static void a_bomb_takes_no_memory(void **state)
{
    enum { PIECE = 1 << 20, PIECES = 128, MAX = 1 << 20 };
    char *zeros = mem_array(PIECE, 1);
    struct str got;
    z_stream z = {.next_out = a, .avail_out = ROOM};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, GZIP, 8, Z_DEFAULT_STRATEGY), Z_OK);
    for (int i = 0; i < PIECES; i++) {
        z.next_in = (Bytef *)zeros;
        z.avail_in = PIECE;
        assert_int_equal(deflate(&z, i + 1 < PIECES ? Z_NO_FLUSH : Z_FINISH),
                         i + 1 < PIECES ? Z_OK : Z_STREAM_END);
    }
    size_t n = ROOM - z.avail_out;
    deflateEnd(&z);
    mem_free(zeros);
    long before = peak_kib();
    assert_int_equal(undo("gzip", a, n, MAX, &got), CONTENT_TOO_LARGE);
    size_t n_outer = zstd(a, n, b);
    assert_int_equal(undo("gzip, zstd", b, n_outer, MAX, &got), CONTENT_TOO_LARGE);
    assert_true(peak_kib() - before < 16 << 10);
}

static void what_is_just_as_large_as_it_may(void **state)
{
    char text[1000];
    struct str got;
    memset(text, 'x', sizeof text);
    size_t n = pack(GZIP, text, sizeof text, a), m = zstd(text, sizeof text, b);
    assert_int_equal(undo("gzip", a, n, 1000, &got), CONTENT_OK);
    mem_free((void *)got.ptr);
    assert_int_equal(undo("gzip", a, n, 999, &got), CONTENT_TOO_LARGE);
    assert_int_equal(undo("zstd", b, m, 1000, &got), CONTENT_OK);
    mem_free((void *)got.ptr);
    assert_int_equal(undo("zstd", b, m, 999, &got), CONTENT_TOO_LARGE);
}

static void names(void **state)
{
    static const struct {
        const char *value;
        bool ok;
        uint32_t n;
    } cases[] = {
        {"", true, 0},          {"identity", true, 0},     {" Identity ,", true, 0},
        {"gzip", true, 1},      {"ZSTD,gzip", true, 2},    {"gzip,gzip,gzip", false, 0},
        {"br", false, 0},       {"gzip br", false, 0},     {"gzip;q=1", false, 0},
        {"compress", false, 0}, {"aws-chunked", false, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct content_codings c = {0};
        bool ok = content_codings_add(&c, str_from(cases[i].value));
        if (ok != cases[i].ok || (ok && c.n != cases[i].n))
            fail_msg("%s: %d, %u", cases[i].value, ok, c.n);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* this test must be first, because it reads the process's peak memory */
        cmocka_unit_test(a_bomb_takes_no_memory),
        cmocka_unit_test(what_went_in_comes_out),
        cmocka_unit_test(several_in_one),
        cmocka_unit_test(broken_ones_are_refused),
        cmocka_unit_test(a_large_window_is_refused),
        cmocka_unit_test(what_is_just_as_large_as_it_may),
        cmocka_unit_test(names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
