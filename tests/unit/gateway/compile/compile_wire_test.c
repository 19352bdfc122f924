#include "gateway/compile/wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"

static void put(struct strbuf *b, const struct compile_frame *f)
{
    unsigned char header[COMPILE_HEADER_BYTES];
    compile_frame_header(f, header);
    strbuf_append(b, header, sizeof header);
    strbuf_append_str(b, f->text);
    strbuf_append_str(b, f->more);
}

/* Feeds the bytes in two pieces, cut at `cut`. Returns the reader's status. */
static enum status feed(struct compile_reader *r, struct str bytes, size_t cut)
{
    size_t n_used;
    enum status s = compile_reader_feed(r, (struct str){bytes.ptr, cut}, &n_used);
    if (s == STATUS_AGAIN) {
        assert_int_equal(n_used, cut);
        s = compile_reader_feed(r, (struct str){bytes.ptr + cut, bytes.len - cut}, &n_used);
    }
    return s;
}

static void test_whole_at_every_cut(void **state)
{
    const struct {
        bool is_childs;
        struct compile_frame frame;
    } cases[] = {
        {false, {.what = COMPILE_GRAMMAR, .code = TEXT_GRAMMAR_LARK, .text = STR("start: \"a\"")}},
        {false,
         {.what = COMPILE_TEMPLATE, .number = -5, .text = STR("{{ a }}"), .more = STR("{}")}},
        {false, {.what = COMPILE_TEMPLATE}},
        {true, {.what = COMPILE_VERDICT, .code = TEXT_OK, .text = STR("na\xC3\xAFve")}},
        {true, {.what = COMPILE_VERDICT, .code = TEXT_INVALID, .number = 1, .text = STR("why")}},
        {true, {.what = COMPILE_DIED, .code = 9}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b;
        strbuf_init(&b, 0);
        put(&b, &cases[i].frame);
        for (size_t cut = 0; cut <= b.len; cut++) {
            struct compile_reader r;
            compile_reader_init(&r, cases[i].is_childs);
            assert_int_equal(feed(&r, strbuf_str(&b), cut), STATUS_OK);
            assert_int_equal(r.frame.what, cases[i].frame.what);
            assert_int_equal(r.frame.code, cases[i].frame.code);
            assert_int_equal(r.frame.number, cases[i].frame.number);
            assert_true(str_eq(r.frame.text, cases[i].frame.text));
            assert_true(str_eq(r.frame.more, cases[i].frame.more));
            compile_reader_fini(&r);
        }
        strbuf_fini(&b);
    }
}

/* A compile process runs a client's text, so the gateway checks every field of its answers. */
static void test_lies(void **state)
{
    static char long_words[TEXT_ERR_MAX + 1];
    memset(long_words, 'a', sizeof long_words);
    const struct {
        const char *what;
        bool is_childs;
        struct compile_frame frame;
    } cases[] = {
        {"a job from a child", true, {.what = COMPILE_GRAMMAR, .code = TEXT_GRAMMAR_LARK}},
        {"a verdict to a child", false, {.what = COMPILE_VERDICT}},
        {"no such frame", true, {.what = COMPILE_WHAT_COUNT}},
        {"no such status", true, {.what = COMPILE_VERDICT, .code = TEXT_INTERNAL + 1}},
        {"a negative status", true, {.what = COMPILE_VERDICT, .code = -1}},
        {"two texts", true, {.what = COMPILE_VERDICT, .more = STR("x")}},
        {"read and not read", true, {.what = COMPILE_VERDICT, .number = 1}},
        {"long words",
         true,
         {.what = COMPILE_VERDICT, .code = TEXT_LIMIT, .text = {long_words, sizeof long_words}}},
        {"no UTF-8", true, {.what = COMPILE_VERDICT, .text = STR("\xC3(")}},
        {"half a character", true, {.what = COMPILE_VERDICT, .text = STR("a\xC3")}},
        {"no such signal", true, {.what = COMPILE_DIED, .code = 128}},
        {"last words", true, {.what = COMPILE_DIED, .text = STR("argh")}},
        {"no such grammar",
         false,
         {.what = COMPILE_GRAMMAR, .code = TEXT_GRAMMAR_AFTER_REASONING + 1}},
        {"a grammar's context",
         false,
         {.what = COMPILE_GRAMMAR, .code = TEXT_GRAMMAR_LARK, .more = STR("{}")}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b;
        struct compile_reader r;
        strbuf_init(&b, 0);
        put(&b, &cases[i].frame);
        compile_reader_init(&r, cases[i].is_childs);
        if (feed(&r, strbuf_str(&b), COMPILE_HEADER_BYTES) != STATUS_PROTOCOL)
            fail_msg("believed: %s", cases[i].what);
        compile_reader_fini(&r);
        strbuf_fini(&b);
    }
}

/* The reader allocates nothing for an announced length before the bytes arrive, and refuses a
 * length above the bound. */
static void test_announced_lengths(void **state)
{
    unsigned char header[COMPILE_HEADER_BYTES];
    struct compile_frame f = {.what = COMPILE_VERDICT, .text = {"", COMPILE_MAX_RENDERED}};
    struct compile_reader r;
    size_t n_used;
    compile_frame_header(&f, header);
    compile_reader_init(&r, true);
    assert_int_equal(
        compile_reader_feed(&r, (struct str){(const char *)header, sizeof header}, &n_used),
        STATUS_AGAIN);
    assert_true(r.texts.cap < 4096);
    compile_reader_fini(&r);
    f.text.len++;
    compile_frame_header(&f, header);
    compile_reader_init(&r, true);
    assert_int_equal(
        compile_reader_feed(&r, (struct str){(const char *)header, sizeof header}, &n_used),
        STATUS_PROTOCOL);
    compile_reader_fini(&r);
    header[0] ^= 1; /* the header now has a wrong magic number */
    compile_reader_init(&r, true);
    assert_int_equal(
        compile_reader_feed(&r, (struct str){(const char *)header, sizeof header}, &n_used),
        STATUS_PROTOCOL);
    compile_reader_fini(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole_at_every_cut),
        cmocka_unit_test(test_lies),
        cmocka_unit_test(test_announced_lengths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
