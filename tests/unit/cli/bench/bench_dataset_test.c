/* Tests the datasets of `cox bench`: prompts from files of every kind, valid and invalid, and
 * random prompts. `load` writes a text into a file and reads it as a dataset; cli/bench/tokens.c
 * is compiled in and counts a word as a token. Invariants: the same seed gives the same prompts,
 * and an invalid file gives an error. */
#include "cli/bench/dataset.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/bench/tokens.c" /* tokens.c counts a word as a token when there is no server */

#define OPTIONS                                                                                    \
    .n_prompts = 4, .seed = 3, .input_len = -1, .output_len = -1, .random_input_len = 6,           \
    .random_output_len = 5, .sharegpt_output_len = -1, .sonnet_input_len = 40,                     \
    .sonnet_output_len = 7, .sonnet_prefix_len = 20, .custom_output_len = -1

static struct bench_tokens *by_words(void)
{
    struct bench_tokens *t = mem_zalloc(sizeof *t);
    t->kind = BENCH_TOKENS_WORDS;
    t->pool = encode_words(STR(words));
    return t;
}

/* Writes `text` into a file and loads it. On success `*p` holds the prompts, and the caller
 * frees them. */
static enum status load(const char *text, const char *end, struct bench_dataset_options o,
                        struct bench_prompts *p, struct error *err)
{
    char path[64];
    snprintf(path, sizeof path, "/tmp/bench-dataset-XXXXXX%s", end);
    int fd = mkstemps(path, (int)strlen(end));
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    struct bench_tokens *t = by_words();
    o.path = path;
    enum status s = bench_dataset_load(&o, t, p, err);
    bench_tokens_close(t);
    unlink(path);
    return s;
}

#define TALK(id, a, b)                                                                             \
    "{\"id\": \"" id "\", \"conversations\": [{\"from\": \"human\", \"value\": \"" a "\"}, "       \
    "{\"from\": \"gpt\", \"value\": \"" b "\"}]}"

static void test_kinds(void **state)
{
    static const struct {
        const char *path, *text;
        int want; /* number of prompts; -1 = an error */
    } cases[] = {
        {"x.json", " [{}]", BENCH_DATASET_SHAREGPT},
        {"x.json", "{\"prompt\": 1}", BENCH_DATASET_CUSTOM},
        {"x.jsonl", "[]", BENCH_DATASET_CUSTOM},
        {"sonnet.txt", "FROM fairest\n", BENCH_DATASET_SONNET},
        {"x", " \n", -1},
        {"x", "\xff\xfe", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        int kind = -1;
        enum status s =
            bench_dataset_find_kind(cases[i].path, str_from(cases[i].text), &kind, &err);
        if (cases[i].want < 0 ? s != STATUS_INVALID : s != STATUS_OK || kind != cases[i].want)
            fail_msg("%s %s: %d", cases[i].path, cases[i].text, kind);
    }
}

static void test_json_objects(void **state)
{
    static const struct {
        const char *text;
        int n;
        bool wrong;
    } cases[] = {
        {"[]", 0, false},
        {" [ {} , {\"a\": \"}\\\"]\"}\n]", 2, false},
        {"[{\"a\": [{}, {}]}, {}]", 2, false},
        {"[{}", 1, true},
        {"[{}, {\"a\": ", 1, true},
        {"[1]", 0, true},
        {"{}", 0, true},
        {"", 0, true},
        {"[{\"a\": \"\\", 0, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct str object;
        size_t at = 0;
        bool wrong;
        int n = 0;
        while (bench_json_next(str_from(cases[i].text), &at, &object, &wrong))
            n++;
        if (n != cases[i].n || wrong != cases[i].wrong)
            fail_msg("%s: %d objects, wrong %d", cases[i].text, n, wrong);
    }
}

static void test_sharegpt(void **state)
{
    const char text[] = "[" TALK("1", "one two three four five", "a b c d e f") ", " TALK(
        "2", "too short", "a b c d") ", {\"id\": \"3\"}, " TALK("4", "this is \\u00e9 long enough",
                                                                "a b c d") "]";
    const struct bench_dataset_options o = {OPTIONS, .disable_shuffle = true};
    struct bench_prompts p;
    struct error err = {0};
    assert_int_equal(load(text, ".json", o, &p, &err), STATUS_OK);
    /* the file has four conversations, of which two are usable; each of these is used twice */
    assert_int_equal(p.n, 4);
    assert_string_equal(p.items[0].owned_text, "one two three four five");
    assert_int_equal(p.items[0].n_prompt_tokens, 5);
    assert_int_equal(p.items[0].n_output_tokens, 6);
    assert_string_equal(p.items[1].owned_text, "this is \xc3\xa9 long enough");
    assert_string_equal(p.items[2].owned_text, p.items[0].owned_text);
    bench_prompts_fini(&p);
    struct bench_dataset_options fixed = o;
    fixed.sharegpt_output_len = 2;
    fixed.no_oversample = true;
    assert_int_equal(load(text, ".json", fixed, &p, &err), STATUS_OK);
    assert_true(p.n == 2 && p.items[1].n_output_tokens == 2);
    bench_prompts_fini(&p);
}

static void test_custom(void **state)
{
    const struct bench_dataset_options o = {OPTIONS, .disable_shuffle = true};
    const char text[] = "{\"prompt\": \"one two\", \"output_tokens\": 3}\n\n{\"prompt\": \"x\"}\n";
    struct bench_prompts p;
    struct error err = {0};
    assert_int_equal(load(text, ".jsonl", o, &p, &err), STATUS_OK);
    assert_true(p.n == 4 && p.items[0].n_output_tokens == 3 && p.items[1].n_output_tokens == 256);
    assert_true(p.items[0].n_prompt_tokens == 2 && p.items[3].n_prompt_tokens == 1);
    bench_prompts_fini(&p);
}

static void test_what_is_no_dataset(void **state)
{
    static const struct {
        const char *text, *end, *words;
    } cases[] = {
        {"{\"prompt\": \"a\"}\n{\n", ".jsonl", ".jsonl:2: the line is not valid JSON"},
        {"{\"text\": \"a\"}\n", ".jsonl", ".jsonl:1: the line has no \"prompt\""},
        {"{\"prompt\": \"a\", \"output_tokens\": -1}\n", ".jsonl", "\"output_tokens\""},
        {"[" TALK("1", "a b c d", "a b c d"), ".json", "the JSON ends or is invalid after entry 1"},
        {"[" TALK("1", "a", "b") "]", ".json", "none of its 1 entries"},
        {"\n", ".txt", "is empty"},
        {"a line of more than forty words w w w w w w w w w w w w w w w w w w w w w w w w w w w w "
         "w "
         "w w w w w w w w w w w w w w w w w w w w w w w w w w w\n",
         ".txt", "more than the 40 tokens"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct bench_dataset_options o = {OPTIONS};
        struct bench_prompts p;
        struct error err = {0};
        enum status s = load(cases[i].text, cases[i].end, o, &p, &err);
        if (s != STATUS_INVALID || !strstr(err.text, cases[i].words))
            fail_msg("case %zu: %s", i, err.text);
    }
}

static void test_sonnet(void **state)
{
    const struct bench_dataset_options o = {OPTIONS};
    struct bench_prompts p;
    struct error err = {0};
    assert_int_equal(load("a b c d\ne f g h\ni j k l\n", ".txt", o, &p, &err), STATUS_OK);
    assert_int_equal(p.n, 4);
    for (uint32_t i = 0; i < p.n; i++) {
        const char *lines = strchr(p.items[i].owned_text, '\n') + 1;
        assert_true(p.items[i].n_prompt_tokens <= 40 && p.items[i].n_prompt_tokens > 30);
        assert_int_equal(p.items[i].n_output_tokens, 7);
        /* all prompts share these lines at their start */
        assert_memory_equal(lines, "a b c d\ne f g h\n", 16);
    }
    bench_prompts_fini(&p);
}

static void test_random(void **state)
{
    struct bench_dataset_options o = {OPTIONS, .random_prefix_len = 3, .random_range_ratio = 0.5};
    struct bench_tokens *t = by_words();
    struct bench_prompts a, b;
    struct error err = {0};
    assert_int_equal(bench_dataset_load(&o, t, &a, &err), STATUS_OK);
    assert_int_equal(bench_dataset_load(&o, t, &b, &err), STATUS_OK);
    for (uint32_t i = 0; i < a.n; i++) {
        struct str prefix = str_from(a.items[0].owned_text), rest = prefix;
        for (int k = 0; k < 3; k++)
            (void)next_word(&rest);
        prefix.len = (size_t)(rest.ptr - prefix.ptr);
        assert_string_equal(a.items[i].owned_text, b.items[i].owned_text);
        assert_true(str_starts(str_from(a.items[i].owned_text), prefix));
        assert_in_range(a.items[i].n_prompt_tokens, 3 + 3, 3 + 9);
        assert_in_range(a.items[i].n_output_tokens, 2, 8);
    }
    bench_prompts_fini(&b);
    o.seed = 4;
    assert_int_equal(bench_dataset_load(&o, t, &b, &err), STATUS_OK);
    assert_string_not_equal(a.items[3].owned_text, b.items[3].owned_text);
    bench_prompts_fini(&a);
    bench_prompts_fini(&b);
    bench_tokens_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_json_objects),
        cmocka_unit_test(test_sharegpt),
        cmocka_unit_test(test_custom),
        cmocka_unit_test(test_sonnet),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_what_is_no_dataset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
