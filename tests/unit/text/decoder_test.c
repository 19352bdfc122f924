/* Tests the decoding of a stream: the text that each token returns, holds back, replaces or
 * flushes. */
#include "text_fixture.h"

#define BAD     "\xEF\xBF\xBD"
#define MAX_IDS 12

struct stream_case {
    const char *name;
    uint32_t ids[MAX_IDS];
    size_t n;
    bool skip;
    const char *deltas[MAX_IDS];
    const char *flush;
};

/* Cases with builtin:bytes, where an id is a byte. Each split of a character can therefore be
 * written down. */
static const struct stream_case byte_cases[] = {
    {"ascii", {'a', 'b'}, 2, false, {"a", "b"}, ""},
    {"two bytes", {0xC3, 0xA9}, 2, false, {"", "\xC3\xA9"}, ""},
    {"emoji over four",
     {0xF0, 0x9F, 0x91, 0x8D, '!'},
     5,
     false,
     {"", "", "", "\xF0\x9F\x91\x8D", "!"},
     ""},
    {"cut off", {'a', 0xF0, 0x9F}, 3, false, {"a", "", ""}, BAD},
    {"lone continuation", {0x80, 'a'}, 2, false, {BAD, "a"}, ""},
    {"never valid", {0xFF, 0xC0, 0xF5}, 3, false, {BAD, BAD, BAD}, ""},
    {"overlong", {0xE0, 0x80, 0x80}, 3, false, {"", BAD BAD, BAD}, ""},
    {"surrogate", {0xED, 0xA0, 0x80}, 3, false, {"", BAD BAD, BAD}, ""},
    {"above U+10FFFF", {0xF4, 0x90, 0x80}, 3, false, {"", BAD BAD, BAD}, ""},
    {"ascii after a cut", {0xE4, 0xBD, 'A', 0xA0}, 4, false, {"", "", BAD "A", BAD}, ""},
    {"lead after a cut", {0xC3, 0xC3, 0xA9}, 3, false, {"", BAD, "\xC3\xA9"}, ""},
    {"special kept", {0xC3, 256, 'a'}, 3, false, {"", BAD "<bos>", "a"}, ""},
    {"special skipped in a character", {0xC3, 257, 0xA9}, 3, true, {"", "", "\xC3\xA9"}, ""},
    {"no such id", {'a', 70000, 'b'}, 3, false, {"a", "", "b"}, ""},
    {"nothing", {0}, 0, false, {NULL}, ""},
};

/* Cases with the vocabulary of text_fixture.h, where 268 is "▁hello" and 259 is "▁". */
static const struct stream_case spm_cases[] = {
    {"first space goes", {268, 268}, 2, false, {"hello", " hello"}, ""},
    {"only one space goes", {259, 268}, 2, false, {"", " hello"}, ""},
    {"after a skipped special", {1, 268}, 2, true, {"", "hello"}, ""},
    {"after a kept special", {1, 268}, 2, false, {"<s>", " hello"}, ""},
    {"byte tokens",
     {3 + 0xF0, 3 + 0x9F, 3 + 0x91, 3 + 0x8D, 268},
     5,
     false,
     {"", "", "", "\xF0\x9F\x91\x8D", " hello"},
     ""},
    {"text after half a character", {3 + 0xF0, 267}, 2, false, {"", BAD "hello"}, ""},
};

static void assert_push(struct text_decoder *d, const char *name, uint32_t id, const char *want)
{
    const char *delta = NULL;
    size_t len = 0;
    char err[TEXT_ERR_MAX];
    assert_int_equal(text_decoder_push(d, id, &delta, &len, err), TEXT_OK);
    if (len != strlen(want) || memcmp(delta, want, len) != 0)
        fail_msg("%s: id %u gave '%.*s', not '%s'", name, id, (int)len, delta, want);
}

static void run_cases(struct text_tokenizer *t, const struct stream_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct text_decoder *d = text_decoder_new(t, cases[i].skip, NULL, 0);
        assert_non_null(d);
        for (size_t k = 0; k < cases[i].n; k++)
            assert_push(d, cases[i].name, cases[i].ids[k], cases[i].deltas[k]);
        const char *rest = NULL;
        size_t len = 0;
        char err[TEXT_ERR_MAX];
        assert_int_equal(text_decoder_flush(d, &rest, &len, err), TEXT_OK);
        if (len != strlen(cases[i].flush) || memcmp(rest, cases[i].flush, len) != 0)
            fail_msg("%s: flush gave '%.*s'", cases[i].name, (int)len, rest);
        text_decoder_free(d);
    }
}

static struct text_tokenizer *open_one(const char *path)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_tokenizer *t = NULL;
    if (text_tokenizer_open(path, NULL, &t, err) != TEXT_OK)
        fail_msg("%s", err);
    return t;
}

static struct text_tokenizer *open_spm(void)
{
    char *json = fixture_spm_json();
    fixture_write("tokenizer.json", json, strlen(json));
    free(json);
    return open_one(fixture_dir);
}

static void bytes_stream(void **state)
{
    struct text_tokenizer *t = open_one("builtin:bytes");
    run_cases(t, byte_cases, sizeof byte_cases / sizeof *byte_cases);
    text_tokenizer_free(t);
}

static void spm_stream(void **state)
{
    struct text_tokenizer *t = open_spm();
    run_cases(t, spm_cases, sizeof spm_cases / sizeof *spm_cases);
    text_tokenizer_free(t);
}

/* Only the first space of a text is dropped, and a prompt counts as part of the text. The first
 * tokens may finish a character that the prompt began. */
static void prompt_comes_before(void **state)
{
    struct text_tokenizer *t = open_spm();
    static const struct {
        uint32_t prompt[2];
        size_t n;
        uint32_t id;
        const char *want;
    } cases[] = {
        {{0}, 0, 268, "hello"},
        {{1}, 1, 268, "hello"}, /* <s> is skipped, so the text has not begun */
        {{1, 267}, 2, 268, " hello"},
        {{267, 3 + 0xC3}, 2, 3 + 0xA9, "\xC3\xA9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_decoder *d = text_decoder_new(t, true, cases[i].prompt, cases[i].n);
        assert_push(d, "prompt", cases[i].id, cases[i].want);
        text_decoder_free(d);
    }
    text_tokenizer_free(t);
}

/* Arbitrary bytes are decoded into whole characters. The parts together equal the text that is
 * decoded at once. */
static void random_bytes_agree_with_decode(void **state)
{
    struct text_tokenizer *t = open_one("builtin:bytes");
    uint32_t seed = 12345;
    for (int round = 0; round < 300; round++) {
        uint32_t ids[64];
        size_t n = 0;
        for (; n < 64; n++) {
            seed = seed * 1664525u + 1013904223u;
            uint32_t b = seed >> 24;
            ids[n] = seed & 0x10000 ? 0x80 | (b & 0x3F) : b;
        }
        char err[TEXT_ERR_MAX], *want = NULL, got[64 * 3 + 1];
        size_t want_len = 0, got_len = 0;
        assert_int_equal(text_decode(t, ids, n, false, &want, &want_len, err), TEXT_OK);
        struct text_decoder *d = text_decoder_new(t, false, NULL, 0);
        for (size_t i = 0; i <= n; i++) {
            const char *delta;
            size_t len;
            int rc = i < n ? text_decoder_push(d, ids[i], &delta, &len, err)
                           : text_decoder_flush(d, &delta, &len, err);
            assert_int_equal(rc, TEXT_OK);
            assert_true(len == 0 || ((unsigned char)delta[0] & 0xC0) != 0x80);
            memcpy(got + got_len, delta, len);
            got_len += len;
        }
        assert_int_equal(got_len, want_len);
        assert_memory_equal(got, want, want_len);
        text_decoder_free(d);
        text_free(want);
    }
    text_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_stream),
        cmocka_unit_test(spm_stream),
        cmocka_unit_test(prompt_comes_before),
        cmocka_unit_test(random_bytes_agree_with_decode),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
