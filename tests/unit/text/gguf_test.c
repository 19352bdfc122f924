/* Tests vocabularies and chat templates in GGUF files. Each test writes metadata byte by byte,
 * opens it through text.h and compares ids, text and template output. Other files are cut or
 * have changed bytes. Invariants: a damaged file is refused with an error text or opens as
 * another valid file, and the Rust library never panics. Files are in a folder of this program
 * or in memory. */
#include "text_fixture.h"

#include <sys/mman.h>

/* Holds the metadata of a GGUF file under construction. `n_keys` is written into the header at
 * the end. */
struct writer {
    uint8_t bytes[1 << 16];
    size_t len;
    uint64_t n_keys;
};

static void put(struct writer *w, const void *p, size_t n)
{
    assert_true(w->len + n <= sizeof w->bytes);
    memcpy(w->bytes + w->len, p, n);
    w->len += n;
}

static void put_u32(struct writer *w, uint32_t v)
{
    put(w, &v, 4);
}

static void put_u64(struct writer *w, uint64_t v)
{
    put(w, &v, 8);
}

static void put_text(struct writer *w, const char *s)
{
    put_u64(w, strlen(s));
    put(w, s, strlen(s));
}

static void put_key(struct writer *w, const char *key, uint32_t type)
{
    put_text(w, key);
    put_u32(w, type);
    w->n_keys++;
}

enum { TYPE_U32 = 4, TYPE_I32 = 5, TYPE_F32 = 6, TYPE_BOOL = 7, TYPE_TEXT = 8, TYPE_ARRAY = 9 };

static void put_key_u32(struct writer *w, const char *key, uint32_t v)
{
    put_key(w, key, TYPE_U32);
    put_u32(w, v);
}

static void put_key_bool(struct writer *w, const char *key, bool v)
{
    put_key(w, key, TYPE_BOOL);
    put(w, &v, 1);
}

static void put_key_text(struct writer *w, const char *key, const char *v)
{
    put_key(w, key, TYPE_TEXT);
    put_text(w, v);
}

static void put_texts(struct writer *w, const char *key, const char *const *v, size_t n)
{
    put_key(w, key, TYPE_ARRAY);
    put_u32(w, TYPE_TEXT);
    put_u64(w, n);
    for (size_t i = 0; i < n; i++)
        put_text(w, v[i]);
}

static void put_words(struct writer *w, const char *key, uint32_t type, const void *v, size_t n)
{
    put_key(w, key, TYPE_ARRAY);
    put_u32(w, type);
    put_u64(w, n);
    put(w, v, n * 4);
}

static void begin(struct writer *w, const char *model)
{
    w->len = 0;
    w->n_keys = 0;
    put(w, "GGUF", 4);
    put_u32(w, 3);
    put_u64(w, 0);
    put_u64(w, 0);
    put_key_text(w, "general.name", "tiny");
    put_key_text(w, "tokenizer.ggml.model", model);
}

static void end(struct writer *w, const char *file)
{
    memcpy(w->bytes + 16, &w->n_keys, 8);
    fixture_write(file, w->bytes, w->len);
}

/* Writes a SentencePiece vocabulary. Its scores make the merges: "hell" is the best word, and
 * "he" has priority over "el". */
static void make_spm(struct writer *w, bool space, const char *file)
{
    static const char *const texts[] = {"<unk>", "<s>",        "</s>",   "<0x00>", "\u2581", "h",
                                        "e",     "l",          "o",      "he",     "ll",     "el",
                                        "hell",  "\u2581hell", "<tool>", "<0xC3>", "<0xA9>"};
    static const int32_t types[] = {2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 6, 6};
    float scores[17] = {0};
    static const float better[] = {-4, -5, -6, -1, -2};
    memcpy(scores + 9, better, sizeof better);
    begin(w, "llama");
    put_texts(w, "tokenizer.ggml.tokens", texts, 17);
    put_words(w, "tokenizer.ggml.scores", TYPE_F32, scores, 17);
    put_words(w, "tokenizer.ggml.token_type", TYPE_I32, types, 17);
    put_key_u32(w, "tokenizer.ggml.bos_token_id", 1);
    put_key_u32(w, "tokenizer.ggml.eos_token_id", 2);
    put_key_u32(w, "tokenizer.ggml.unknown_token_id", 0);
    put_key_bool(w, "tokenizer.ggml.add_space_prefix", space);
    put_key_text(w, "tokenizer.chat_template", "{{ bos_token }}{{ messages|length }}");
    end(w, file);
}

static struct text_tokenizer *open_file(const char *name)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_tokenizer *t = NULL;
    if (text_tokenizer_open(fixture_path(name), NULL, &t, err) != TEXT_OK)
        fail_msg("%s: %s", name, err);
    return t;
}

static void spm_vocabulary(void **state)
{
    static struct writer w;
    make_spm(&w, true, "spm.gguf");
    struct text_tokenizer *t = open_file("spm.gguf");
    assert_int_equal(text_bos_id(t), 1);
    assert_int_equal(text_eos_id(t), 2);
    assert_int_equal(text_vocab_size(t), 17);
    assert_encodes(t, "hell", true, IDS(1, 13));
    assert_encodes(t, "hel lo", false, IDS(4, 9, 7, 4, 7, 8));
    assert_encodes(t, "h\xC3\xA9<tool></s>", false, IDS(4, 5, 15, 16, 14, 2));
    /* The letter z has no byte tokens, so both letters become one <unk>. */
    assert_encodes(t, "zz", false, IDS(4, 0));
    assert_decodes(t, IDS(1, 13, 4, 8), true, "hell o");
    assert_true(text_token_is_special(t, 0));
    assert_false(text_token_is_special(t, 14));
    text_tokenizer_free(t);

    make_spm(&w, false, "plain.gguf");
    t = open_file("plain.gguf");
    assert_encodes(t, "hell", true, IDS(1, 12));
    assert_decodes(t, IDS(13), true, " hell");
    text_tokenizer_free(t);
}

static void make_byte_level(struct writer *w, const char *pre, const char *file)
{
    static const char *const texts[] = {"h", "i", "\u0120", "hi",     "\u0120hi", "<|end|>",
                                        "1", "2", "12",     "\u00C3", "\u00A9"};
    static const int32_t types[] = {1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1};
    static const char *const merges[] = {"h i", "\u0120 hi", "1 2"};
    begin(w, "gpt2");
    put_key_text(w, "tokenizer.ggml.pre", pre);
    put_texts(w, "tokenizer.ggml.tokens", texts, 11);
    put_words(w, "tokenizer.ggml.token_type", TYPE_I32, types, 11);
    put_texts(w, "tokenizer.ggml.merges", merges, 3);
    put_key_u32(w, "tokenizer.ggml.eos_token_id", 5);
    end(w, file);
}

static void byte_level_vocabulary(void **state)
{
    static struct writer w;
    make_byte_level(&w, "gpt-2", "bl.gguf");
    struct text_tokenizer *t = open_file("bl.gguf");
    assert_encodes(t, "hi hi<|end|>", true, IDS(3, 4, 5));
    assert_encodes(t, "h\xC3\xA9", true, IDS(0, 9, 10));
    assert_encodes(t, "12", true, IDS(8));
    assert_decodes(t, IDS(3, 4, 5, 9, 10), true, "hi hi\xC3\xA9");
    size_t len;
    assert_int_equal(*text_token_bytes(t, 9, &len), 0xC3);
    assert_int_equal(text_bos_id(t), UINT32_MAX);
    assert_int_equal(text_eos_id(t), 5);
    text_tokenizer_free(t);

    /* qwen2's pre-tokenizer splits numbers into digits */
    make_byte_level(&w, "qwen2", "qwen2.gguf");
    t = open_file("qwen2.gguf");
    assert_encodes(t, "12", true, IDS(6, 7));
    text_tokenizer_free(t);
}

static void pre_tokenizers_all_build(void **state)
{
    static const char *const names[] = {
        "gpt-2",       "llama-bpe",    "llama3",         "dbrx",      "smaug-bpe", "glm4",
        "qwen2",       "qwen35",       "stablelm2",      "gpt-4o",    "llama4",    "tekken",
        "deepseek-v3", "deepseek-llm", "deepseek-coder", "starcoder", "command-r", "default"};
    static struct writer w;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        make_byte_level(&w, names[i], "pre.gguf");
        struct text_tokenizer *t = open_file("pre.gguf");
        assert_encodes(t, "hi", true, IDS(3));
        text_tokenizer_free(t);
    }
    char err[TEXT_ERR_MAX];
    struct text_tokenizer *t;
    make_byte_level(&w, "of-tomorrow", "pre.gguf");
    assert_int_equal(text_tokenizer_open(fixture_path("pre.gguf"), NULL, &t, err),
                     TEXT_UNSUPPORTED);
    assert_non_null(strstr(err, "of-tomorrow"));
    begin(&w, "bert");
    put_texts(&w, "tokenizer.ggml.tokens", names, 2);
    end(&w, "bert.gguf");
    assert_int_equal(text_tokenizer_open(fixture_path("bert.gguf"), NULL, &t, err),
                     TEXT_UNSUPPORTED);
}

static void template_and_its_tokens(void **state)
{
    static struct writer w;
    make_spm(&w, true, "spm.gguf");
    char err[TEXT_ERR_MAX] = "", *out = NULL;
    size_t len;
    struct text_template *t = NULL;
    assert_int_equal(text_template_open(fixture_path("spm.gguf"), NULL, NULL, &t, err), TEXT_OK);
    assert_int_equal(text_template_render(t, "{\"messages\":[0]}", 16, 0, 0, &out, &len, err),
                     TEXT_OK);
    assert_string_equal(out, "<s>1");
    text_free(out);
    text_template_free(t);
}

static void open_whatever(const uint8_t *bytes, size_t len, bool may_open)
{
    char err[TEXT_ERR_MAX] = "";
    struct text_tokenizer *t = NULL;
    struct text_template *chat = NULL;
    /* The file is in memory, because a disk would delay a thousand rewrites. */
    char path[64];
    int fd = memfd_create("broken.gguf", MFD_CLOEXEC);
    assert_int_equal(write(fd, bytes, len), len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int rc = text_tokenizer_open(path, NULL, &t, err);
    assert_int_not_equal(rc, TEXT_INTERNAL); /* the library must never panic */
    assert_true(may_open || rc != TEXT_OK);
    if (rc == TEXT_OK) {
        uint32_t *ids = NULL;
        size_t n;
        int got = text_encode(t, "hell \xC3\xA9 12", 10, true, 100, &ids, &n, err);
        assert_int_not_equal(got, TEXT_INTERNAL);
        if (got == TEXT_OK)
            text_free(ids);
        text_tokenizer_free(t);
    }
    if (text_template_open(path, NULL, NULL, &chat, err) == TEXT_OK)
        text_template_free(chat);
    close(fd);
}

static void cut_files_are_refused(void **state)
{
    static struct writer w;
    make_spm(&w, true, "whole.gguf");
    for (size_t len = 0; len < w.len; len++)
        open_whatever(w.bytes, len, false);
    make_byte_level(&w, "gpt-2", "whole.gguf");
    for (size_t len = 0; len < w.len; len++)
        open_whatever(w.bytes, len, false);
}

static void damaged_files_do_no_harm(void **state)
{
    static struct writer w, bad;
    uint32_t seed = 7;
    for (int kind = 0; kind < 2; kind++) {
        if (kind == 0)
            make_spm(&w, true, "whole.gguf");
        else
            make_byte_level(&w, "gpt-2", "whole.gguf");
        for (int round = 0; round < 600; round++) {
            bad = w;
            for (int k = 0; k <= round % 4; k++) {
                seed = seed * 1664525u + 1013904223u;
                bad.bytes[(seed >> 8) % bad.len] = (uint8_t)(round % 3 ? seed >> 24 : 0xFF);
            }
            open_whatever(bad.bytes, bad.len, true);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spm_vocabulary),           cmocka_unit_test(byte_level_vocabulary),
        cmocka_unit_test(pre_tokenizers_all_build), cmocka_unit_test(template_and_its_tokens),
        cmocka_unit_test(cut_files_are_refused),    cmocka_unit_test(damaged_files_do_no_harm),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
