/* Tests SentencePiece models (tokenizer.model) through text.h. The tests write a small model and
 * the JSON files beside it, open the folder and compare ids, text and errors. Cases: settings in
 * the JSON files, BPE and unigram, normalisation, ties, broken or cut models, limits.
 * Invariants: a damaged file is refused with an error text, and a cut model never opens as the
 * complete model. tests/golden (text_golden.py spm) compares ids of large models. */
#include "text_fixture.h"

/* Holds a ModelProto under construction. */
struct proto {
    uint8_t bytes[1 << 14];
    size_t len;
};

static void put(struct proto *p, const void *bytes, size_t n)
{
    assert_true(p->len + n <= sizeof p->bytes);
    memcpy(p->bytes + p->len, bytes, n);
    p->len += n;
}

static void put_byte(struct proto *p, unsigned b)
{
    put(p, &(uint8_t){(uint8_t)b}, 1);
}

static void put_length(struct proto *p, size_t n)
{
    for (; n > 127; n >>= 7)
        put_byte(p, (unsigned)(n & 127) | 128);
    put_byte(p, (unsigned)n);
}

enum { NORMAL = 1, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE };
enum { UNIGRAM = 1, BPE };

static void put_piece(struct proto *p, const char *text, float score, int kind)
{
    size_t n = strlen(text);
    put_byte(p, 0x0a);
    put_length(p, n + (n < 128 ? 9 : 10));
    put_byte(p, 0x0a);
    put_length(p, n);
    put(p, text, n);
    put_byte(p, 0x15);
    put(p, &score, 4);
    put_byte(p, 0x18);
    put_byte(p, (unsigned)kind);
}

/* Writes trainer_spec and normalizer_spec. The normalizer keeps spaces and puts one more space
 * before the text. */
static void put_specs(struct proto *p, int algorithm, bool byte_fallback)
{
    const uint8_t trainer[] = {0x12, 5, 0x18, (uint8_t)algorithm, 0x98, 2, byte_fallback};
    const uint8_t normalizer[] = {0x1a, 4, 0x18, 1, 0x20, 0};
    put(p, trainer, sizeof trainer);
    put(p, normalizer, sizeof normalizer);
}

static const struct {
    const char *text;
    float score;
    int kind;
} pieces[] = {{"<unk>", 0, UNKNOWN},       {"<s>", 0, CONTROL},    {"</s>", 0, CONTROL},
              {"<tool>", 0, USER_DEFINED}, {"\u2581", -9, NORMAL}, {"h", -8, NORMAL},
              {"e", -8, NORMAL},           {"l", -8, NORMAL},      {"he", -4, NORMAL},
              {"ll", -2, NORMAL},          {"hell", -1, NORMAL},   {"\u2581hell", -0.5F, NORMAL},
              {"\u2581\u2581", -3, NORMAL}};
enum { BLANK = 4, H, E, L, HE, LL, HELL, B_HELL, BLANKS, FIRST_BYTE };

static struct proto make(int algorithm, bool byte_fallback)
{
    struct proto p = {.len = 0};
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++)
        put_piece(&p, pieces[i].text, pieces[i].score, pieces[i].kind);
    for (unsigned b = 0; byte_fallback && b < 256; b++) {
        char text[8];
        snprintf(text, sizeof text, "<0x%02X>", b);
        put_piece(&p, text, 0, BYTE);
    }
    put_specs(&p, algorithm, byte_fallback);
    return p;
}

static const char *const small_files[] = {"tokenizer_config.json", "special_tokens_map.json",
                                          "added_tokens.json"};

/* Opens a folder with the model and those small files that are not NULL. */
static int open_folder(const struct proto *p, const char *const json[3],
                       struct text_tokenizer **out, char err[TEXT_ERR_MAX])
{
    fixture_write("tokenizer.model", p->bytes, p->len);
    for (int i = 0; i < 3; i++) {
        remove(fixture_path(small_files[i]));
        if (json[i])
            fixture_write(small_files[i], json[i], strlen(json[i]));
    }
    *out = NULL;
    return text_tokenizer_open(fixture_dir, NULL, out, err);
}

#define NAMED "\"tokenizer_class\":\"LlamaTokenizer\",\"bos_token\":\"<s>\",\"eos_token\":\"</s>\","

static void ids_follow_the_files_beside_it(void **state)
{
    const struct {
        const char *json[3], *text;
        const uint32_t *ids;
        size_t n;
    } cases[] = {
        /* Without settings, the model follows the old rules of Llama. */
        {{NULL}, "hell<s> hell", IDS(1, B_HELL, 1, BLANKS, HELL)},
        {{"{" NAMED "\"legacy\":true}"}, "hell<s>hell", IDS(1, B_HELL, 1, B_HELL)},
        {{"{" NAMED "\"legacy\":false}"}, "hell<s>hell", IDS(1, B_HELL, 1, HELL)},
        {{"{" NAMED "\"legacy\":false}"}, "hell<s> hell", IDS(1, B_HELL, 1, B_HELL)},
        {{"{" NAMED "\"legacy\":false}"}, "<s>hell", IDS(1, 1, HELL)},
        {{"{" NAMED "\"legacy\":false,\"add_prefix_space\":false}"}, "hell", IDS(1, HELL)},
        {{"{" NAMED "\"add_bos_token\":false,\"add_eos_token\":true}"}, "hell", IDS(B_HELL, 2)},
        {{"{\"tokenizer_class\":\"LlamaTokenizerFast\",\"bos_token\":{\"content\":\"<s>\"}}"},
         "hell",
         IDS(1, B_HELL)},
        /* A part contains a user-defined symbol of the model. */
        {{NULL}, "he<tool>he", IDS(1, BLANK, HE, 3, HE)},
        {{"{" NAMED "\"added_tokens_decoder\":{\"20\":{\"content\":\"<new>\",\"special\":false,"
          "\"rstrip\":true}}}"},
         "he<new>  he",
         IDS(1, BLANK, HE, 20, BLANK, HE)},
        /* In older folders, special_tokens_map.json overrides the configuration. */
        {{"{" NAMED "\"legacy\":true}", "{\"bos_token\":\"</s>\"}", "{\"<new>\":13}"},
         "he<new>",
         IDS(2, BLANK, HE, 13)},
        {{"{" NAMED "\"additional_special_tokens\":[\"<x>\"]}",
          "{\"additional_special_tokens\":[\"<x>\",{\"content\":\"<y>\"}]}"},
         "he<y><x>",
         IDS(1, BLANK, HE, 14, 13)},
        /* A null means false, except for `legacy`, whose default is None. */
        {{"{" NAMED "\"legacy\":null}"}, "hell<s>hell", IDS(1, B_HELL, 1, B_HELL)},
        {{"{" NAMED "\"legacy\":0}"}, "hell<s>hell", IDS(1, B_HELL, 1, HELL)},
        {{"{" NAMED "\"add_bos_token\":null}"}, "hell", IDS(B_HELL)},
        {{"{" NAMED "\"legacy\":false,\"add_prefix_space\":null}"}, "hell", IDS(1, HELL)},
        /* A named token that the model lacks gets a new id after all others. */
        {{"{" NAMED "\"pad_token\":\"<pad>\"}"}, "he<pad>", IDS(1, BLANK, HE, 13)},
    };
    struct proto p = make(BPE, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_tokenizer *t;
        char err[TEXT_ERR_MAX] = "";
        if (open_folder(&p, cases[i].json, &t, err) != TEXT_OK)
            fail_msg("case %zu: %s", i, err);
        assert_encodes(t, cases[i].text, true, cases[i].ids, cases[i].n);
        text_tokenizer_free(t);
    }
}

static void both_algorithms_cut_their_way(void **state)
{
    const struct {
        int algorithm;
        bool byte_fallback;
        const char *text;
        const uint32_t *ids;
        size_t n;
        const char *back;
    } cases[] = {
        {BPE, false, "hellhell", IDS(B_HELL, HELL), "hellhell"},
        {UNIGRAM, false, "hellhell", IDS(B_HELL, HELL), "hellhell"},
        {BPE, false, "  hell", IDS(BLANKS, B_HELL), "  hell"},
        /* Adjacent unknown characters become one token. */
        {BPE, false, "heXYhe", IDS(BLANK, HE, 0, HE), "he<unk>he"},
        {UNIGRAM, false, "heXYhe", IDS(BLANK, HE, 0, HE), "he<unk>he"},
        {BPE, true, "\u00e9", IDS(BLANK, FIRST_BYTE + 0xc3, FIRST_BYTE + 0xa9), "\u00e9"},
        {UNIGRAM, true, "\u00e9", IDS(BLANK, FIRST_BYTE + 0xc3, FIRST_BYTE + 0xa9), "\u00e9"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct proto p = make(cases[i].algorithm, cases[i].byte_fallback);
        struct text_tokenizer *t;
        char err[TEXT_ERR_MAX] = "";
        if (open_folder(&p, (const char *[3]){NULL}, &t, err) != TEXT_OK)
            fail_msg("case %zu: %s", i, err);
        assert_encodes(t, cases[i].text, false, cases[i].ids, cases[i].n);
        assert_decodes(t, cases[i].ids, cases[i].n, false, cases[i].back);
        text_tokenizer_free(t);
    }
}

static void the_blank_before_a_text_goes_when_it_was_put_there(void **state)
{
    static const struct {
        const char *config, *want;
    } cases[] = {
        {NULL, "hell hell"},
        {"{" NAMED "\"legacy\":true}", "hell hell"},
        {"{" NAMED "\"legacy\":false}", "hell hell"},
        {"{" NAMED "\"legacy\":false,\"add_prefix_space\":false}", " hell hell"},
        {"{\"tokenizer_class\":\"GemmaTokenizer\"}", "hell hell"},
    };
    struct proto p = make(BPE, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_tokenizer *t;
        char err[TEXT_ERR_MAX] = "";
        if (open_folder(&p, (const char *[3]){cases[i].config}, &t, err) != TEXT_OK)
            fail_msg("case %zu: %s", i, err);
        assert_decodes(t, IDS(B_HELL, B_HELL), true, cases[i].want);
        text_tokenizer_free(t);
    }
}

/* Checks that opening fails with an error that contains `words`. */
static void refused_beside(const struct proto *p, const char *const json[3], const char *words)
{
    struct text_tokenizer *t;
    char err[TEXT_ERR_MAX] = "";
    int rc = open_folder(p, json, &t, err);
    if (rc == TEXT_OK || rc == TEXT_INTERNAL || !strstr(err, words))
        fail_msg("%d '%s', expected '%s'", rc, err, words);
}

static void refused(const struct proto *p, const char *config, const char *words)
{
    refused_beside(p, (const char *[3]){config}, words);
}

static void broken_models_are_refused_by_name(void **state)
{
    struct proto good = make(BPE, true), p = good;
    put_piece(&p, "h", 0, NORMAL);
    refused(&p, NULL, "defines the piece 'h' twice");
    p = good;
    put_piece(&p, "<unk2>", 0, UNKNOWN);
    refused(&p, NULL, "defines the piece '<unk2>' twice");
    p = good;
    put_piece(&p, "", 0, NORMAL);
    refused(&p, NULL, "piece 269 is empty");
    p = good;
    put_piece(&p, "x", 0, 7);
    refused(&p, NULL, "piece 269 has the unknown type 7");
    p = good;
    put_piece(&p, "\xff", 0, NORMAL);
    refused(&p, NULL, "not UTF-8");
    char long_piece[1026];
    memset(long_piece, 'x', 1025);
    long_piece[1025] = '\0';
    p = good;
    put_piece(&p, long_piece, 0, NORMAL);
    refused(&p, NULL, "piece 269 is longer than 1024 bytes");
    p = make(BPE, false);
    put_piece(&p, "<0x00>", 0, BYTE);
    refused(&p, NULL, "byte_fallback is off");
    put_specs(&p, BPE, true);
    refused(&p, NULL, "byte_fallback needs 256 byte pieces, but there are 1");
    p = make(3, false);
    refused(&p, NULL, "model_type 3 (word)");
    p = (struct proto){.len = 0};
    put_piece(&p, "x", 0, NORMAL);
    refused(&p, NULL, "no piece of the type unknown");
    refused(&good, "{\"tokenizer_class\":\"T5Tokenizer\"}", "'T5Tokenizer'");
    refused(&good, "{\"added_tokens_decoder\":{\"4000000000\":{\"content\":\"x\"}}}",
            "must have an id less than");
    refused(&good, "[", "tokenizer_config.json");
    /* The array of a charsmap (field 2 of normalizer_spec) is longer than the charsmap. */
    p = good;
    put(&p, "\x1a\x06\x12\x04\xff\xff\xff\x7f", 8);
    refused(&p, NULL, "precompiled_charsmap");
}

/* Each small file must be an object, and has a limit on its number of values. */
static void small_files_are_bounded_objects(void **state)
{
    enum { TOO_MANY = (1 << 20) + 1 };
    struct proto good = make(BPE, false);
    char *many = malloc(TOO_MANY * 3 + 16), *end = many + sprintf(many, "{\"a\":[");
    assert_non_null(many);
    for (int i = 0; i < TOO_MANY; i++)
        end = mempcpy(end, i ? ",[]" : "[]", i ? 3 : 2);
    memcpy(end, "]}", 3);
    for (int i = 0; i < 3; i++) {
        const char *json[3] = {NULL};
        char words[64];
        json[i] = "[]";
        snprintf(words, sizeof words, "%s must be a JSON object", small_files[i]);
        refused_beside(&good, json, words);
        json[i] = many;
        snprintf(words, sizeof words, "%s has more than 1048576 values", small_files[i]);
        refused_beside(&good, json, words);
    }
    free(many);
}

/* Writes a charsmap with one rule, that replaces "e" by n times "h". */
static void put_rule(struct proto *p, size_t n)
{
    enum { LEAF = 0x100, ROOT = 0, VALUE = 1, N_UNITS = 128 };
    /* In the Darts array, "e" leads from base 0 to the place 'e', whose base is 1. The value
     * there is 0. */
    uint32_t units[N_UNITS] = {[ROOT] = 0, [VALUE] = 1U << 31};
    units['e'] = 'e' | LEAF | ('e' ^ VALUE) << 10;
    size_t blob = 4 + sizeof units + n + 1;
    put_byte(p, 0x1a);
    put_length(p, blob + 3 + 2);
    put_byte(p, 0x12);
    put_length(p, blob);
    put(p, &(uint32_t){sizeof units}, 4);
    put(p, units, sizeof units);
    for (size_t i = 0; i < n; i++)
        put_byte(p, 'h');
    put_byte(p, 0);
    put(p, (const uint8_t[]){0x20, 0}, 2); /* the normalizer keeps all spaces */
}

static void a_charsmap_makes_no_text_without_bound(void **state)
{
    struct proto p = make(BPE, false);
    struct text_tokenizer *t;
    char err[TEXT_ERR_MAX] = "", text[2000];
    uint32_t *ids = NULL;
    size_t n = 0;
    put_rule(&p, 257);
    refused(&p, NULL, "a replacement is longer than 256 bytes");
    p = make(BPE, false);
    put_rule(&p, 2);
    assert_int_equal(open_folder(&p, (const char *[3]){NULL}, &t, err), TEXT_OK);
    assert_encodes(t, "lel", false, IDS(BLANK, L, H, H, L));
    text_tokenizer_free(t);
    p = make(BPE, false);
    put_rule(&p, 200);
    assert_int_equal(open_folder(&p, (const char *[3]){NULL}, &t, err), TEXT_OK);
    memset(text, 'l', sizeof text);
    text[7] = 'e';
    assert_int_equal(text_encode(t, text, sizeof text, false, 5000, &ids, &n, err), TEXT_OK);
    text_free(ids);
    memset(text, 'e', sizeof text);
    assert_int_not_equal(text_encode(t, text, sizeof text, false, 1 << 20, &ids, &n, err), TEXT_OK);
    assert_non_null(strstr(err, "precompiled_charsmap turns 2000 bytes into more than 64064"));
    text_tokenizer_free(t);
}

/* The text zqz can be cut in two ways, with the unknown z first or last. Sums in single
 * precision decide, as in the library. */
static void ties_fall_as_in_the_library(void **state)
{
    static const struct {
        const char *text;
        float score;
        int kind;
    } tied[] = {{"<unk>", 0, UNKNOWN},     {"<s>", 0, CONTROL},    {"</s>", 0, CONTROL},
                {"\u2581", -2.3F, NORMAL}, {"a", -1.1F, NORMAL},   {"b", -7.7F, NORMAL},
                {"zq", 0, USER_DEFINED},   {"qz", 0, USER_DEFINED}};
    struct proto p = {.len = 0};
    struct text_tokenizer *t;
    char err[TEXT_ERR_MAX] = "";
    for (size_t i = 0; i < sizeof tied / sizeof *tied; i++)
        put_piece(&p, tied[i].text, tied[i].score, tied[i].kind);
    put_specs(&p, UNIGRAM, false);
    assert_int_equal(open_folder(&p, (const char *[3]){NULL}, &t, err), TEXT_OK);
    assert_encodes(t, "aazqz", false, IDS(3, 4, 4, 0, 7));
    text_tokenizer_free(t);
}

/* A control piece that no file names is never the result of encoding a text, and it is never
 * shown. */
static void a_control_piece_is_special(void **state)
{
    struct proto p = make(BPE, false);
    struct text_tokenizer *t;
    char err[TEXT_ERR_MAX] = "";
    const uint32_t id = FIRST_BYTE;
    put_piece(&p, "hh", 0, CONTROL);
    assert_int_equal(open_folder(&p, (const char *[3]){NULL}, &t, err), TEXT_OK);
    assert_true(text_token_is_special(t, id));
    assert_true(text_token_is_special(t, 1));
    assert_false(text_token_is_special(t, HELL));
    assert_encodes(t, "hh", false, IDS(BLANK, H, H));
    assert_decodes(t, IDS(B_HELL, id, HELL), true, "hellhell");
    assert_decodes(t, IDS(B_HELL, id, HELL), false, "hellhhhell");
    struct text_decoder *d = text_decoder_new(t, true, NULL, 0);
    const char *delta;
    size_t n;
    assert_int_equal(text_decoder_push(d, id, &delta, &n, err), TEXT_OK);
    assert_int_equal(n, 0);
    text_decoder_free(d);
    text_tokenizer_free(t);
    /* The file decides whether an added token is special. */
    static const char said[] = "{\"added_tokens_decoder\":{\"13\":{\"content\":\"hh\"}}}";
    assert_int_equal(open_folder(&p, (const char *[3]){said}, &t, err), TEXT_OK);
    assert_false(text_token_is_special(t, id));
    assert_decodes(t, IDS(B_HELL, id), true, "hellhh");
    text_tokenizer_free(t);
}

/* The variables of a chat template have the same special tokens as the encoder. */
static void templates_know_the_tokens(void **state)
{
    static const struct {
        const char *json[3], *want;
    } cases[] = {
        {{NULL}, "<s>|</s>|"},
        {{"{\"tokenizer_class\":\"LlamaTokenizer\"}"}, "<s>|</s>|"},
        {{"{\"tokenizer_class\":\"GemmaTokenizer\"}"}, "<bos>|<eos>|<pad>"},
        {{"{\"tokenizer_class\":\"LlamaTokenizer\",\"bos_token\":null}"}, "|</s>|"},
        {{NULL, "{\"bos_token\":{\"content\":\"<tool>\"},\"pad_token\":\"h\"}"}, "<tool>|</s>|h"},
        {{"{" NAMED "\"legacy\":true}", "{\"bos_token\":\"<tool>\"}"}, "<tool>|</s>|"},
        {{"{" NAMED "\"added_tokens_decoder\":{}}", "{\"bos_token\":\"<tool>\"}"}, "<s>|</s>|"},
    };
    static const char source[] = "{{ bos_token }}|{{ eos_token }}|{{ pad_token }}";
    struct proto p = make(BPE, false);
    fixture_write("chat_template.jinja", source, sizeof source - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text_tokenizer *t;
        struct text_template *chat = NULL;
        char err[TEXT_ERR_MAX] = "", *out = NULL;
        size_t n = 0;
        if (open_folder(&p, cases[i].json, &t, err) != TEXT_OK ||
            text_template_open(fixture_dir, NULL, NULL, &chat, err) != TEXT_OK ||
            text_template_render(chat, "{}", 2, 0, 0, &out, &n, err) != TEXT_OK)
            fail_msg("case %zu: %s", i, err);
        if (strcmp(out, cases[i].want) != 0)
            fail_msg("case %zu: %s", i, out);
        text_free(out);
        text_template_free(chat);
        text_tokenizer_free(t);
    }
    remove(fixture_path("chat_template.jinja"));
}

static void a_cut_model_never_opens_as_a_whole_one(void **state)
{
    struct proto good = make(UNIGRAM, true);
    for (size_t len = 1; len < good.len; len += 7) {
        struct proto p = good;
        struct text_tokenizer *t;
        char err[TEXT_ERR_MAX] = "";
        p.len = len;
        int rc = open_folder(&p, (const char *[3]){NULL}, &t, err);
        assert_int_not_equal(rc, TEXT_INTERNAL);
        /* A model with fewer pieces is another valid model, not a damaged file. */
        if (rc == TEXT_OK)
            text_tokenizer_free(t);
        else
            assert_true(strlen(err) > 0);
    }
}

static void the_limit_of_ids_holds(void **state)
{
    struct proto p = make(BPE, false);
    struct text_tokenizer *t;
    char err[TEXT_ERR_MAX];
    uint32_t *ids;
    size_t n;
    assert_int_equal(open_folder(&p, (const char *[3]){NULL}, &t, err), TEXT_OK);
    assert_int_equal(text_encode(t, "hellhell", 8, true, 3, &ids, &n, err), TEXT_OK);
    assert_int_equal(n, 3);
    text_free(ids);
    assert_int_equal(text_encode(t, "hellhell", 8, true, 2, &ids, &n, err), TEXT_LIMIT);
    assert_int_equal(text_bos_id(t), 1);
    assert_int_equal(text_eos_id(t), 2);
    text_tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_follow_the_files_beside_it),
        cmocka_unit_test(both_algorithms_cut_their_way),
        cmocka_unit_test(the_blank_before_a_text_goes_when_it_was_put_there),
        cmocka_unit_test(broken_models_are_refused_by_name),
        cmocka_unit_test(small_files_are_bounded_objects),
        cmocka_unit_test(a_charsmap_makes_no_text_without_bound),
        cmocka_unit_test(ties_fall_as_in_the_library),
        cmocka_unit_test(a_control_piece_is_special),
        cmocka_unit_test(templates_know_the_tokens),
        cmocka_unit_test(a_cut_model_never_opens_as_a_whole_one),
        cmocka_unit_test(the_limit_of_ids_holds),
    };
    return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
