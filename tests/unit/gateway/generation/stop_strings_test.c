#include "gateway/generation/stop_strings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* `stop_case` is a text in pieces. `pieces` are fed one by one. `want` is the text that may be
 * emitted after each piece, without the part held back, joined by '|'. `stop` is the stop string
 * that ended the text, or NULL. */
struct stop_case {
    const char *name, *stops[4], *pieces[8], *want, *stop;
};

static const struct stop_case cases[] = {
    {"whole in one piece", {"END"}, {"abcENDxyz"}, "abc", "END"},
    {"split over pieces", {"END"}, {"abE", "N", "Dx"}, "ab||", "END"},
    {"false start released", {"END"}, {"abEN", "Fc"}, "ab|ENFc", NULL},
    {"held until the end", {"END"}, {"abEN"}, "ab", NULL},
    {"self overlap", {"aab"}, {"aa", "aa", "b"}, "|aa|", "aab"},
    {"self overlap across a false start", {"abac"}, {"aba", "bac"}, "|ab", "abac"},
    {"first to be complete wins", {"xyz", "y"}, {"xyz"}, "x", "y"},
    {"longest of those complete together", {"c", "abc"}, {"zabc"}, "z", "abc"},
    {"order does not matter", {"abc", "c"}, {"zabc"}, "z", "abc"},
    {"at the very start", {"a"}, {"abc"}, "", "a"},
    {"multi-byte", {"\xE2\x82\xAC"}, {"1", "\xE2\x82\xAC"}, "1|", "\xE2\x82\xAC"},
    {"newlines", {"\n\n"}, {"a\n", "b\n", "\nc"}, "a|\nb|", "\n\n"},
    {"no stop strings", {NULL}, {"abc"}, "abc", NULL},
};

static uint32_t count(const char *const *list)
{
    uint32_t n = 0;
    while (list[n])
        n++;
    return n;
}

static void run_case(const struct stop_case *c)
{
    struct str strings[4];
    struct stop_set set;
    struct stop_matcher m = {0};
    struct stop_match match;
    struct strbuf text, shown;
    const char *stop = NULL;
    uint32_t n = count(c->stops);
    for (uint32_t i = 0; i < n; i++)
        strings[i] = str_from(c->stops[i]);
    stop_set_init(&set, strings, n);
    strbuf_init(&text, 0);
    strbuf_init(&shown, 0);
    for (uint32_t i = 0; i < count(c->pieces) && !stop; i++) {
        size_t before = text.len;
        bool hit = stop_matcher_feed(&m, &set, str_from(c->pieces[i]), false, &match);
        strbuf_append_c(&text, c->pieces[i]);
        size_t visible = text.len - stop_matcher_held(&m, &set);
        if (hit) {
            stop = c->stops[match.i_string];
            visible = before + match.end - match.bytes;
        }
        strbuf_append_c(&shown, i ? "|" : "");
        strbuf_append(&shown, text.ptr, visible);
        text.len = hit ? visible : text.len;
        strbuf_consume(&text, visible);
    }
    if (strcmp(strbuf_str(&shown).ptr, c->want) != 0 || (stop == NULL) != (c->stop == NULL))
        fail_msg("%s: shown \"%s\", want \"%s\"", c->name, strbuf_str(&shown).ptr, c->want);
    if (stop)
        assert_string_equal(stop, c->stop);
    strbuf_fini(&text);
    strbuf_fini(&shown);
    stop_set_fini(&set);
}

static void test_table(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i]);
}

/* The result depends on the text alone: every cut of the text into two pieces gives the same
 * result. */
static void test_cut_anywhere(void **state)
{
    struct str stop[] = {STR("abcabd"), STR("dab")};
    const char *text = "xxabcabcabdabzz";
    struct stop_set set;
    stop_set_init(&set, stop, 2);
    size_t n = strlen(text), want = 0;
    for (size_t cut = 0; cut <= n; cut++) {
        struct stop_matcher m = {0};
        struct stop_match match;
        size_t at = 0;
        if (stop_matcher_feed(&m, &set, (struct str){text, cut}, false, &match))
            at = match.end;
        else if (stop_matcher_feed(&m, &set, (struct str){text + cut, n - cut}, false, &match))
            at = cut + match.end;
        if (cut == 0)
            want = at;
        assert_int_equal(at, want);
    }
    assert_int_equal(want, 11);
    stop_set_fini(&set);
}

static void test_ignored_match_goes_on(void **state)
{
    struct str stop[] = {STR("aa")};
    struct stop_set set;
    struct stop_matcher m = {0};
    struct stop_match match;
    stop_set_init(&set, stop, 1);
    assert_false(stop_matcher_feed(&m, &set, STR("aa"), true, &match));
    assert_int_equal(stop_matcher_held(&m, &set), 1);
    assert_true(stop_matcher_feed(&m, &set, STR("a"), false, &match));
    assert_int_equal(match.end, 1);
    stop_set_fini(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_cut_anywhere),
        cmocka_unit_test(test_ignored_match_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
