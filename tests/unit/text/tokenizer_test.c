/* Tests tokenizers through text.h: tokenizer.json and builtin:bytes. The tests write small
 * files, open them, and compare ids, text, limits and errors. Other tests damage the compiled
 * file in the cache, or name a cache that cannot be written. Invariants: a damaged cache is
 * rebuilt, a text that is too long costs little memory, and a damaged file is refused with an
 * error text. Tests of memory peaks run in a forked child. */
#include "text_fixture.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>

static struct text_tokenizer *open_spm(const char *cache)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_tokenizer *t = NULL;
    char *json = fixture_spm_json();
    fixture_write("tokenizer.json", json, strlen(json));
    free(json);
    if (text_tokenizer_open(fixture_dir, cache, &t, err) != TEXT_OK)
        fail_msg("%s", err);
    return t;
}

static void check_spm(const struct text_tokenizer *t)
{
    assert_encodes(t, "", false, NO_IDS);
    assert_encodes(t, "", true, IDS(1));
    assert_encodes(t, "hello", false, IDS(268));
    assert_encodes(t, "hello", true, IDS(1, 268));
    assert_encodes(t, "hell hello", false, IDS(259, 266, 268));
    assert_encodes(t, "lll", false, IDS(259, 265, 262));
    assert_encodes(t, "h\xC3\xA9", false, IDS(259, 260, 3 + 0xC3, 3 + 0xA9));
    assert_encodes(t, "</s>hello", false, IDS(2, 268));
    assert_encodes(t, "o<tool>o", false, IDS(259, 263, 269, 259, 263));
}

static void spm_ids_and_text(void **state)
{
    struct text_tokenizer *t = open_spm(NULL);
    check_spm(t);
    assert_int_equal(text_vocab_size(t), 270);
    assert_decodes(t, IDS(1, 268, 268), true, "hello hello");
    assert_decodes(t, IDS(1, 268), false, "<s> hello");
    assert_decodes(t, IDS(3 + 0xC3, 3 + 0xA9, 269), true, "\xC3\xA9<tool>");
    assert_decodes(t, IDS(268, 4000000000u), true, "hello");

    size_t len = 0;
    assert_memory_equal(text_token_bytes(t, 268, &len), " hello", 6);
    assert_int_equal(len, 6);
    assert_int_equal(*text_token_bytes(t, 3 + 0xFF, &len), 0xFF);
    assert_int_equal(len, 1);
    assert_memory_equal(text_token_bytes(t, 269, &len), "<tool>", 6);
    assert_null(text_token_bytes(t, 270, &len));
    assert_int_equal(len, 0);
    assert_true(text_token_is_special(t, 2));
    assert_false(text_token_is_special(t, 269));
    assert_false(text_token_is_special(t, 268));
    assert_int_equal(text_token_id(t, "<tool>", 6), 269);
    assert_int_equal(text_token_id(t, "hell", 4), 266);
    assert_int_equal(text_token_id(t, "none", 4), UINT32_MAX);
    assert_int_equal(text_bos_id(t), UINT32_MAX); /* no file names a bos token */
    text_tokenizer_free(t);
}

static void special_ids_come_from_the_small_files(void **state)
{
    static const char config[] = "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}";
    fixture_write("tokenizer_config.json", config, sizeof config - 1);
    struct text_tokenizer *t = open_spm(NULL);
    assert_int_equal(text_bos_id(t), 1);
    assert_int_equal(text_eos_id(t), 2);
    text_tokenizer_free(t);
    /* The map in special_tokens_map.json has priority, unless `added_tokens_decoder` shows that
     * the configuration was written after 2023. */
    static const char map[] = "{\"bos_token\":\"<unk>\"}";
    fixture_write("special_tokens_map.json", map, sizeof map - 1);
    t = open_spm(NULL);
    assert_int_equal(text_bos_id(t), 0);
    assert_int_equal(text_eos_id(t), 2);
    text_tokenizer_free(t);
    static const char listed[] = "{\"bos_token\":\"<s>\",\"added_tokens_decoder\":{}}";
    fixture_write("tokenizer_config.json", listed, sizeof listed - 1);
    t = open_spm(NULL);
    assert_int_equal(text_bos_id(t), 1);
    text_tokenizer_free(t);
    assert_int_equal(unlink(fixture_path("special_tokens_map.json")), 0);
    static const char ids[] = "{\"bos_token_id\":1,\"eos_token_id\":[2,0]}";
    assert_int_equal(unlink(fixture_path("tokenizer_config.json")), 0);
    fixture_write("config.json", ids, sizeof ids - 1);
    t = open_spm(NULL);
    assert_int_equal(text_bos_id(t), 1);
    assert_int_equal(text_eos_id(t), 2);
    text_tokenizer_free(t);
    unlink(fixture_path("config.json"));
}

/* Returns the path of the only compiled file in the cache folder. */
static const char *cached_file(const char *cache)
{
    static char path[1024];
    DIR *d = opendir(cache);
    assert_non_null(d);
    int n = 0;
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
            n++;
        }
    closedir(d);
    assert_int_equal(n, 1);
    return path;
}

static void damaged_cache_is_rebuilt(void **state)
{
    char cache[256];
    snprintf(cache, sizeof cache, "%s", fixture_path("cache"));
    struct text_tokenizer *t = open_spm(cache);
    check_spm(t);
    text_tokenizer_free(t);
    char *whole = NULL;
    size_t len = fixture_read(cached_file(cache), &whole);
    assert_true(len > 4096);

    for (size_t at = 0; at < len + 3; at += len / 40) {
        char *bad = malloc(len);
        memcpy(bad, whole, len);
        size_t n = at + 1 < len ? len : len / 2; /* the last rounds cut the file */
        if (n == len)
            bad[at] = (char)~bad[at];
        FILE *f = fopen(cached_file(cache), "wb");
        assert_int_equal(fwrite(bad, 1, n, f), n);
        fclose(f);
        free(bad);
        t = open_spm(cache);
        check_spm(t);
        text_tokenizer_free(t);
        char *again = NULL;
        assert_int_equal(fixture_read(cached_file(cache), &again), len);
        assert_memory_equal(again, whole, len);
        free(again);
    }
    free(whole);
}

static void unwritable_cache_is_no_error(void **state)
{
    fixture_write("a_file", "x", 1);
    struct text_tokenizer *t = open_spm(fixture_path("a_file"));
    check_spm(t);
    text_tokenizer_free(t);
}

static void limits_and_bad_input(void **state)
{
    char err[TEXT_ERR_MAX];
    struct text_tokenizer *t = open_spm(NULL);
    uint32_t *ids;
    size_t n;
    assert_int_equal(text_encode(t, "hello hello", 11, true, 3, &ids, &n, err), TEXT_OK);
    assert_int_equal(n, 3);
    text_free(ids);
    assert_int_equal(text_encode(t, "hello hello", 11, true, 2, &ids, &n, err), TEXT_LIMIT);
    assert_non_null(strstr(err, "2 tokens"));
    assert_int_equal(text_encode(t, "h\xFF", 2, true, 9, &ids, &n, err), TEXT_INVALID);
    size_t big = 8 << 20;
    char *text = malloc(big);
    memset(text, 'x', big);
    assert_int_equal(text_encode(t, text, big, true, 100, &ids, &n, err), TEXT_LIMIT);
    free(text);
    text_tokenizer_free(t);
}

static long peak_kib(void)
{
    struct rusage use;
    assert_int_equal(getrusage(RUSAGE_SELF, &use), 0);
    return use.ru_maxrss;
}

/* A text far above the limit is refused after only its beginning is encoded. This needs less
 * memory than a copy of the text. */
static void a_text_far_too_long_is_refused_by_its_beginning(void **state)
{
    static const struct {
        const char *name, *unit;
    } texts[] = {{"words", "hello "}, {"one letter", "l"}, {"blanks", " "}, {"bytes", "\xC3\xA9"}};
    enum { BIG = 16 << 20 };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        pid_t child = fork(); /* each child has its own memory peak */
        assert_true(child >= 0);
        if (child > 0) {
            int status;
            assert_int_equal(waitpid(child, &status, 0), child);
            if (status != 0)
                fail_msg("%s: exit status %d", texts[i].name, status);
            continue;
        }
        char err[TEXT_ERR_MAX];
        uint32_t *ids;
        size_t n, n_unit = strlen(texts[i].unit), len = BIG / n_unit * n_unit;
        struct text_tokenizer *t = open_spm(NULL);
        char *text = malloc(len);
        for (size_t at = 0; at < len; at += n_unit)
            memcpy(text + at, texts[i].unit, n_unit);
        long before = peak_kib();
        int got = text_encode(t, text, len, true, 1000, &ids, &n, err);
        _exit(got != TEXT_LIMIT ? 1 : peak_kib() - before > BIG / 1024 ? 2 : 0);
    }
}

static void broken_files_are_refused(void **state)
{
    static const struct {
        const char *json;
        int want;
    } cases[] = {
        {"{", TEXT_INVALID},
        {"[]", TEXT_INVALID},
        {"{\"model\":5}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"Nonsense\"}}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4294967295},\"merges\":[]}}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}", TEXT_INVALID},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},\"normalizer\":7}",
         TEXT_INVALID},
        {"", TEXT_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char err[TEXT_ERR_MAX] = "";
        struct text_tokenizer *t = NULL;
        fixture_write("bad.json", cases[i].json, strlen(cases[i].json));
        int got = text_tokenizer_open(fixture_path("bad.json"), NULL, &t, err);
        if (got != cases[i].want || !err[0])
            fail_msg("%s: %d (%s)", cases[i].json, got, err);
    }
    char err[TEXT_ERR_MAX];
    struct text_tokenizer *t;
    assert_int_equal(text_tokenizer_open(fixture_path("absent.json"), NULL, &t, err), TEXT_IO);
    assert_int_equal(mkdir(fixture_path("empty"), 0700), 0);
    assert_int_equal(text_tokenizer_open(fixture_path("empty"), NULL, &t, err), TEXT_UNSUPPORTED);
}

/* Values of JSON are counted before a tree is made of them. Two bytes of JSON can take hundreds
 * of bytes in memory. */
static void lists_without_end_are_refused(void **state)
{
    static const struct {
        const char *before, *after, *words;
        size_t n;
    } cases[] = {
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{},\"merges\":[]},\"added_tokens\":[", "]}",
         "tokenizer.json without its model has more than 1048576 values", (1 << 20) + 1},
        {"{\"model\":{\"type\":\"WordPiece\",\"vocab\":[", "]}}",
         "the model in tokenizer.json has more than 4194304 values", (1 << 22) + 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char err[TEXT_ERR_MAX] = "", *json = NULL;
        struct text_tokenizer *t = NULL;
        size_t len = 0;
        FILE *f = open_memstream(&json, &len);
        assert_non_null(f);
        fputs(cases[i].before, f);
        for (size_t k = 0; k < cases[i].n; k++)
            fputs(k ? ",0" : "0", f);
        fputs(cases[i].after, f);
        fclose(f);
        fixture_write("endless.json", json, len);
        int got = text_tokenizer_open(fixture_path("endless.json"), NULL, &t, err);
        if (got != TEXT_LIMIT || !strstr(err, cases[i].words))
            fail_msg("%zu: %d (%s)", i, got, err);
        free(json);
        unlink(fixture_path("endless.json"));
    }
}

/* A model that is not compiled runs in the tokenizers crate's own code. */
static void other_models_work(void **state)
{
    static const char json[] =
        "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":[],"
        "\"normalizer\":null,"
        "\"pre_tokenizer\":{\"type\":\"Whitespace\"},\"post_processor\":null,\"decoder\":{\"type\":"
        "\"WordPiece\",\"prefix\":\"##\",\"cleanup\":false},\"model\":{\"type\":\"WordPiece\","
        "\"unk_token\":"
        "\"[UNK]\",\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":100,\"vocab\":"
        "{\"[UNK]\":0,\"row\":1,\"##ing\":2,\"boat\":3}}}";
    char err[TEXT_ERR_MAX] = "";
    struct text_tokenizer *t = NULL;
    fixture_write("wp.json", json, sizeof json - 1);
    assert_int_equal(text_tokenizer_open(fixture_path("wp.json"), NULL, &t, err), TEXT_OK);
    assert_encodes(t, "rowing boat cox", true, IDS(1, 2, 3, 0));
    assert_decodes(t, IDS(1, 2, 3), false, "rowing boat");
    struct text_decoder *d = text_decoder_new(t, false, NULL, 0);
    char all[64] = "";
    for (uint32_t id = 1; id <= 3; id++) {
        const char *delta;
        size_t len;
        assert_int_equal(text_decoder_push(d, id, &delta, &len, err), TEXT_OK);
        strncat(all, delta, len);
    }
    const char *rest;
    size_t len;
    assert_int_equal(text_decoder_flush(d, &rest, &len, err), TEXT_OK);
    strncat(all, rest, len);
    assert_string_equal(all, "rowing boat");
    text_decoder_free(d);
    text_tokenizer_free(t);
}

static void builtin_bytes(void **state)
{
    char err[TEXT_ERR_MAX];
    struct text_tokenizer *t = NULL;
    assert_int_equal(text_tokenizer_open("builtin:bytes", NULL, &t, err), TEXT_OK);
    assert_int_equal(text_vocab_size(t), 259);
    assert_int_equal(text_bos_id(t), 256);
    assert_int_equal(text_eos_id(t), 257);
    assert_int_equal(text_token_id(t, "<pad>", 5), 258);
    assert_int_equal(text_token_id(t, "a", 1), 'a');
    assert_true(text_token_is_special(t, 256));
    assert_false(text_token_is_special(t, 0));
    assert_encodes(t, "h\xC3\xA9", true, IDS('h', 0xC3, 0xA9));
    assert_encodes(t, "<bos>", true, IDS('<', 'b', 'o', 's', '>'));
    assert_decodes(t, IDS(256, 'h', 0xC3, 0xA9, 257, 259), true, "h\xC3\xA9");
    assert_decodes(t, IDS(256, 'h', 0xC3), false, "<bos>h\xEF\xBF\xBD");
    uint32_t *ids;
    size_t n;
    assert_int_equal(text_encode(t, "abc", 3, true, 2, &ids, &n, err), TEXT_LIMIT);
    text_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_ids_and_text),
        cmocka_unit_test(special_ids_come_from_the_small_files),
        cmocka_unit_test(damaged_cache_is_rebuilt),
        cmocka_unit_test(unwritable_cache_is_no_error),
        cmocka_unit_test(limits_and_bad_input),
        cmocka_unit_test(a_text_far_too_long_is_refused_by_its_beginning),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(lists_without_end_are_refused),
        cmocka_unit_test(other_models_work),
        cmocka_unit_test(builtin_bytes),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
