/* Tests how a model's path becomes a `struct model_info`: folders, GGUF files and every other
 * form of name. The tests write files into a temporary folder and open it. A folder or file that
 * is not a model must be refused with a reason, and never blocks or exhausts memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/info/demo.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "tests/unit/common/model/gguf_writer.c"
#include "tests/unit/common/model/put_file.c"

static char dir[64];

static void write_text(const char *name, const char *text)
{
    if (text)
        put_file(dir, name, str_from(text));
}

static void remove_files(void)
{
    static const char *const names[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json", "tiny.Q8.gguf",
                                        "cache/models/demo/gemma-3-270m-q4_k_m.gguf"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
}

static int setup(void **state)
{
    snprintf(dir, sizeof dir, "/tmp/cox-model-test-XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
    static const char *const folders[] = {"/cache/models/demo", "/cache/models", "/cache", ""};
    remove_files();
    for (size_t i = 0; i < 4; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", dir, folders[i]);
        rmdir(path);
    }
    return 0;
}

static void test_null(void **state)
{
    struct model_info m;
    struct error err;
    assert_int_equal(model_info_open("null", NULL, &m, &err), STATUS_OK);
    assert_true(m.format == MODEL_NULL && m.max_model_len == 32768 && m.vocab_size == 259 &&
                m.hidden == 8);
    assert_string_equal(m.tokenizer_path, "builtin:bytes");
    assert_string_equal(m.name, "null");
    assert_string_equal(m.family, "null");
    assert_true(m.n_eos_ids == 1 && m.eos_ids[0] == 257);
    model_info_fini(&m);
    model_info_fini(&m);
}

static void test_gguf(void **state)
{
    static const struct {
        const char *name, *arch;
        uint32_t max_len, eos;
        uint64_t rows;
        enum status want;
        const char *family_or_text;
        uint32_t n_eos, last_eos;
    } cases[] = {
        {"gemma3", "gemma3", 32768, 1, 8, STATUS_OK, "gemma3", 2, 4},
        {"qwen3moe", "qwen3moe", 100, 5, 6, STATUS_OK, "qwen3_moe", 1, 5},
        {"llama", "llama", 4096, 1, 6, STATUS_OK, "llama", 1, 1},
        {"gpt-oss", "gpt-oss", 4096, 1, 6, STATUS_OK, "gpt_oss", 1, 1},
        {"deepseek", "deepseek2", 4096, 1, 6, STATUS_OK, "deepseek_v2", 1, 1},
        {"unknown", "mamba9", 4096, 1, 6, STATUS_UNSUPPORTED,
         "architecture mamba9 is not supported", 0, 0},
        {"no length", "llama", 0, 1, 6, STATUS_INVALID, "context_length", 0, 0},
        {"eos outside", "llama", 10, 6, 6, STATUS_INVALID, "id 6", 0, 0},
        {"few rows", "llama", 10, 1, 5, STATUS_INVALID, "6 tokens", 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct strbuf b;
        struct model_info m;
        struct error err = {0};
        char path[128];
        strbuf_init(&b, 0);
        put_tiny_model(&b, cases[i].arch, cases[i].max_len, cases[i].eos, cases[i].rows);
        put_file(dir, "tiny.Q8.gguf", strbuf_str(&b));
        strbuf_fini(&b);
        snprintf(path, sizeof path, "%s/./tiny.Q8.gguf", dir);
        enum status got = model_info_open(path, NULL, &m, &err);
        if (got != cases[i].want)
            fail_msg("%s: %s: %s", cases[i].name, status_name(got), err.text);
        if (got != STATUS_OK) {
            if (!strstr(err.text, cases[i].family_or_text))
                fail_msg("%s: %s", cases[i].name, err.text);
            assert_null(m.path);
            continue;
        }
        assert_string_equal(m.family, cases[i].family_or_text);
        assert_string_equal(m.name, "tiny.Q8");
        assert_true(m.path[0] == '/' && !strstr(m.path, "/./"));
        assert_string_equal(m.tokenizer_path, m.path);
        assert_true(m.format == MODEL_GGUF && m.max_model_len == cases[i].max_len);
        assert_int_equal(m.vocab_size, cases[i].rows);
        assert_int_equal(m.n_eos_ids, cases[i].n_eos);
        assert_int_equal(m.eos_ids[m.n_eos_ids - 1], cases[i].last_eos);
        model_info_fini(&m);
    }
}

/* Converters write an expert count of 0 for dense models. Only Mixtral's files have experts. */
static void test_gguf_of_no_experts(void **state)
{
    for (uint32_t n = 0; n < 2; n++) {
        struct strbuf b, with;
        struct model_info m;
        struct error err = {0};
        char path[128];
        uint64_t n_keys, key_len = 18, pad_len = 5;
        const uint32_t u32 = 4, string = 8;
        strbuf_init(&b, 0);
        strbuf_init(&with, 0);
        put_tiny_model(&b, "llama", 4096, 1, 6);
        memcpy(&n_keys, b.ptr + 16, sizeof n_keys);
        n_keys += 2;
        strbuf_append(&with, b.ptr, 16);
        strbuf_append(&with, &n_keys, sizeof n_keys);
        strbuf_append(&with, &key_len, sizeof key_len);
        strbuf_append_c(&with, "llama.expert_count");
        strbuf_append(&with, &u32, sizeof u32);
        strbuf_append(&with, &n, sizeof n);
        /* the added keys take 64 bytes in total, so that the data stays aligned */
        strbuf_append(&with, &pad_len, sizeof pad_len);
        strbuf_append_c(&with, "x.pad");
        strbuf_append(&with, &string, sizeof string);
        strbuf_append(&with, &pad_len, sizeof pad_len);
        strbuf_append_c(&with, "     ");
        strbuf_append(&with, b.ptr + 24, b.len - 24);
        put_file(dir, "tiny.Q8.gguf", strbuf_str(&with));
        strbuf_fini(&b);
        strbuf_fini(&with);
        snprintf(path, sizeof path, "%s/tiny.Q8.gguf", dir);
        if (model_info_open(path, NULL, &m, &err) != STATUS_OK)
            fail_msg("%u: %s", n, err.text);
        assert_string_equal(m.family, n ? "mixtral" : "llama");
        model_info_fini(&m);
    }
}

static const struct {
    const char *name, *config, *generation, *tokenizer, *family;
    uint32_t max_len, vocab, n_eos;
} good_folders[] = {
    {"plain",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":1024,\"vocab_size\":448,"
     "\"eos_token_id\":[7,8]}",
     "{\"eos_token_id\":[8,9]}", NULL, "llama", 1024, 448, 3},
    {"the tokenizer's own, beside an integer of 31 digits",
     "{\"model_type\":\"qwen2\",\"max_position_embeddings\":10,\"vocab_size\":20,"
     "\"eos_token_id\":null}",
     NULL,
     "{\"model_max_length\":1000000000000000019884624838656,\"eos_token\":{\"content\":\"<e>\"}"
     ","
     "\"added_tokens_decoder\":{\"3\":{\"content\":\"x\"},\"11\":{\"content\":\"<e>\"}}}",
     "qwen2", 10, 20, 1},
    {"text_config and its defaults",
     "{\"model_type\":\"gemma3\",\"eos_token_id\":[1,106],\"text_config\":{\"hidden_size\":5}}",
     NULL, NULL, "gemma3", 131072, 262208, 2},
    {"text model",
     "{\"model_type\":\"gemma3_text\",\"max_position_embeddings\":32768,\"vocab_size\":512}", NULL,
     NULL, "gemma3", 32768, 512, 0},
    {"yarn",
     "{\"model_type\":\"qwen3\",\"max_position_embeddings\":32768,\"vocab_size\":512,"
     "\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":4.0,"
     "\"original_max_position_embeddings\":32768}}",
     NULL, NULL, "qwen3", 131072, 512, 0},
    {"llama3 scaling is in the length already",
     "{\"model_type\":\"llama\",\"max_position_embeddings\":131072,\"vocab_size\":512,"
     "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
     "\"original_max_position_embeddings\":8192}}",
     NULL, NULL, "llama", 131072, 512, 0},
};

static void test_folder(void **state)
{
    for (size_t i = 0; i < sizeof good_folders / sizeof *good_folders; i++) {
        struct model_info m;
        struct error err = {0};
        remove_files();
        write_text("config.json", good_folders[i].config);
        write_text("generation_config.json", good_folders[i].generation);
        write_text("tokenizer_config.json", good_folders[i].tokenizer);
        if (model_info_open(dir, NULL, &m, &err) != STATUS_OK)
            fail_msg("%s: %s", good_folders[i].name, err.text);
        if (m.max_model_len != good_folders[i].max_len || m.vocab_size != good_folders[i].vocab ||
            m.n_eos_ids != good_folders[i].n_eos)
            fail_msg("%s: %u %u %u", good_folders[i].name, m.max_model_len, m.vocab_size,
                     m.n_eos_ids);
        assert_int_equal(m.hidden, strstr(good_folders[i].config, "hidden_size\":5") ? 5 : 0);
        assert_string_equal(m.family, good_folders[i].family);
        assert_string_equal(m.name, strrchr(dir, '/') + 1);
        assert_true(m.format == MODEL_HF);
        model_info_fini(&m);
    }
}

static const struct {
    const char *name, *config, *generation, *tokenizer;
    enum status want;
    const char *text;
} bad_folders[] = {
    {"no config", NULL, NULL, NULL, STATUS_NOT_FOUND, "config.json"},
    {"not JSON", "{\"model_type\":", NULL, NULL, STATUS_INVALID, "config.json:1"},
    {"a list", "[]", NULL, NULL, STATUS_INVALID, "object"},
    {"twice", "{\"model_type\":\"llama\",\"model_type\":\"qwen2\"}", NULL, NULL, STATUS_INVALID,
     "duplicate"},
    {"no type", "{}", NULL, NULL, STATUS_INVALID, "model_type"},
    {"unknown", "{\"model_type\":\"rwkv7\"}", NULL, NULL, STATUS_UNSUPPORTED,
     "architecture rwkv7 is not supported. Supported architectures: llama, mistral, qwen2, qwen3,"},
    {"unknown class", "{\"model_type\":\"foo\",\"architectures\":[\"FooForCausalLM\"]}", NULL, NULL,
     STATUS_UNSUPPORTED,
     "architecture FooForCausalLM is not supported. Supported architectures: llama,"},
    {"another class", "{\"model_type\":\"llama\",\"architectures\":[\"FooForCausalLM\"]}", NULL,
     NULL, STATUS_UNSUPPORTED,
     "architecture FooForCausalLM is not supported. Supported architectures: llama,"},
    {"a class that writes nothing",
     "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForSequenceClassification\"]}", NULL,
     NULL, STATUS_UNSUPPORTED, "architecture LlamaForSequenceClassification is not supported"},
    {"no length", "{\"model_type\":\"llama\",\"vocab_size\":5}", NULL, NULL, STATUS_INVALID,
     "max_position_embeddings is missing"},
    {"negative length",
     "{\"model_type\":\"llama\",\"vocab_size\":5,\"max_position_embeddings\":-1}", NULL, NULL,
     STATUS_INVALID, "-1"},
    {"huge vocabulary",
     "{\"model_type\":\"llama\",\"vocab_size\":4294967297,\"max_position_embeddings\":9}", NULL,
     NULL, STATUS_INVALID, "4294967297"},
    {"eos outside",
     "{\"model_type\":\"llama\",\"vocab_size\":5,\"max_position_embeddings\":9,"
     "\"eos_token_id\":5}",
     NULL, NULL, STATUS_INVALID, "id 5"},
    {"eos is text",
     "{\"model_type\":\"llama\",\"vocab_size\":5,\"max_position_embeddings\":9,"
     "\"eos_token_id\":[\"2\"]}",
     NULL, NULL, STATUS_INVALID, "eos_token_id"},
    {"too many",
     "{\"model_type\":\"llama\",\"vocab_size\":50,\"max_position_embeddings\":9,"
     "\"eos_token_id\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
     NULL, NULL, STATUS_INVALID, "more than 16"},
    {"broken generation config",
     "{\"model_type\":\"llama\",\"vocab_size\":50,\"max_position_embeddings\":9}", "{", NULL,
     STATUS_INVALID, "generation_config.json"},
};

static void test_folder_refused(void **state)
{
    for (size_t i = 0; i < sizeof bad_folders / sizeof *bad_folders; i++) {
        struct model_info m;
        struct error err = {0};
        remove_files();
        write_text("config.json", bad_folders[i].config);
        write_text("generation_config.json", bad_folders[i].generation);
        write_text("tokenizer_config.json", bad_folders[i].tokenizer);
        enum status got = model_info_open(dir, NULL, &m, &err);
        if (got != bad_folders[i].want || !strstr(err.text, bad_folders[i].text))
            fail_msg("%s: %s: %s", bad_folders[i].name, status_name(got), err.text);
        assert_null(m.path);
    }
}

/* JSON that is too deep, too wide, or too large must be refused. */
static void test_bombs(void **state)
{
    static const struct {
        const char *begin, *again, *text;
        size_t n;
    } bombs[] = {
        {"{\"model_type\":", "[", "maximum parsing depth", 1 << 20},
        {"{\"model_type\":", "{\"a\":", "maximum parsing depth", 1 << 20},
        {"{\"model_type\":[", "0,", "has more than 4194304 values", 1 << 22},
        {"{\"model_type\":[", "[],", "has more than 4194304 values", 1 << 22},
        {"{\"model_type\":", "                                ", "is larger than 67108864 bytes",
         1 << 21},
    };
    static const char *const files[] = {"config.json", "generation_config.json",
                                        "tokenizer_config.json"};
    for (size_t i = 0; i < sizeof bombs / sizeof *bombs; i++) {
        const char *again = bombs[i].again;
        size_t n = strlen(bombs[i].begin), step = strlen(again);
        char *text = malloc(n + bombs[i].n * step);
        memcpy(text, bombs[i].begin, n);
        for (size_t k = 0; k < bombs[i].n; k++, n += step)
            memcpy(text + n, again, step);
        const char *file = files[i % 3];
        struct model_info m;
        struct error err = {0};
        remove_files();
        write_text("config.json",
                   "{\"model_type\":\"llama\",\"vocab_size\":50,\"max_position_embeddings\":9}");
        put_file(dir, file, (struct str){text, n});
        enum status got = model_info_open(dir, NULL, &m, &err);
        if (got != STATUS_INVALID || !strstr(err.text, bombs[i].text) || !strstr(err.text, file))
            fail_msg("%zu: %s: %s", i, status_name(got), err.text);
        free(text);
    }
}

static void test_demo(void **state)
{
    char path[128];
    struct strbuf b;
    snprintf(path, sizeof path, "%s/cache", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/cache/models", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/cache", dir);
    for (uint32_t i = 0; i < n_demo_models; i++) {
        const struct demo_model *demo = &demo_models[i];
        char file[160], pull[40];
        struct model_info m;
        struct error err = {0};
        assert_int_equal(model_info_open(demo->name, path, &m, &err), STATUS_NOT_FOUND);
        snprintf(pull, sizeof pull, "`cox pull %s` first (%s)", demo->name, demo->size);
        assert_non_null(strstr(err.text, path));
        assert_non_null(strstr(err.text, pull));
        snprintf(file, sizeof file, "%s/cache/models/%s", dir, demo->folder);
        assert_int_equal(mkdir(file, 0700), 0);
        snprintf(file, sizeof file, "cache/models/%s/%s", demo->folder, demo->file);
        strbuf_init(&b, 0);
        put_tiny_model(&b, "gemma3", 77 + i, 1, 8);
        put_file(dir, file, strbuf_str(&b));
        strbuf_fini(&b);
        assert_int_equal(model_info_open(demo->name, path, &m, &err), STATUS_OK);
        assert_string_equal(m.name, demo->name);
        assert_int_equal(m.max_model_len, 77 + i);
        model_info_fini(&m);
    }
    assert_string_equal(demo_model_find("demo-base")->file, "gemma-3-270m-q4_k_m.gguf");
    assert_null(demo_model_find("demo-"));
}

static void test_not_found(void **state)
{
    struct model_info m;
    struct error err = {0};
    assert_int_equal(model_info_open("/no/such/model", NULL, &m, &err), STATUS_NOT_FOUND);
    assert_non_null(strstr(err.text, "/no/such/model"));
    assert_non_null(strstr(err.text, "The model must be"));
}

/* Opening a FIFO would wait for a writer for ever, so a FIFO is refused. */
static void test_fifo(void **state)
{
    struct model_info m;
    struct error err = {0};
    char path[] = "/tmp/cox-fifo-XXXXXX";
    assert_non_null(mkdtemp(path));
    char fifo[64];
    snprintf(fifo, sizeof fifo, "%s/model.gguf", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(model_info_open(fifo, NULL, &m, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "not a regular file"));
    unlink(fifo);
    snprintf(fifo, sizeof fifo, "%s/config.json", path);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(model_info_open(path, NULL, &m, &err), STATUS_INVALID);
    unlink(fifo);
    rmdir(path);
}

static void test_cache_dir(void **state)
{
    static const struct {
        const char *cox, *home, *want;
    } cases[] = {
        {"/c", "/h", "/c"},
        {NULL, "/h", "/h/.cache/coxswain"},
        {"", "/h", "/h/.cache/coxswain"},
        {NULL, NULL, "./.cache/coxswain"},
        {"/a/path/that/is/longer/than/there/is/room", NULL, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char out[32];
        model_cache_dir(cases[i].cox, cases[i].home, out, sizeof out);
        assert_string_equal(out, cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_null),
        cmocka_unit_test_setup_teardown(test_gguf, setup, teardown),
        cmocka_unit_test_setup_teardown(test_gguf_of_no_experts, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder, setup, teardown),
        cmocka_unit_test_setup_teardown(test_folder_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_bombs, setup, teardown),
        cmocka_unit_test_setup_teardown(test_demo, setup, teardown),
        cmocka_unit_test(test_not_found),
        cmocka_unit_test(test_fifo),
        cmocka_unit_test(test_cache_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
