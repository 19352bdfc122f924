/* Tests the loading of a rank's weights. The tests write a model of one layer to a folder,
 * correct or with one changed tensor, and load the parts of each rank onto a device that keeps
 * float32 as it is. Cases: files that do not fit the program, parts of each rank, more data than
 * is packed at once, quantised blocks that cannot be cut. Invariants: each rank gets exactly its
 * part, and a refusal names the tensor. All tests run on one thread. */
#include "worker/weights/loader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/model/info/open.h"
#include "tests/unit/common/model/gguf_writer.c"
#include "tests/unit/common/model/put_file.c"
#include "worker/model/families/program_build.h"

/* `tensors` describes a llama of one layer: hidden 16, 2 heads of 8, 1 KV head, inner 32,
 * vocabulary 48. */
static const struct {
    const char *name;
    uint32_t n, k; /* shape; k 0 = a vector */
} tensors[] = {
    {"model.embed_tokens.weight", 48, 16},
    {"lm_head.weight", 48, 16},
    {"model.norm.weight", 16, 0},
    {"model.layers.0.input_layernorm.weight", 16, 0},
    {"model.layers.0.post_attention_layernorm.weight", 16, 0},
    {"model.layers.0.self_attn.q_proj.weight", 16, 16},
    {"model.layers.0.self_attn.k_proj.weight", 8, 16},
    {"model.layers.0.self_attn.v_proj.weight", 8, 16},
    {"model.layers.0.self_attn.o_proj.weight", 16, 16},
    {"model.layers.0.mlp.gate_proj.weight", 32, 16},
    {"model.layers.0.mlp.up_proj.weight", 32, 16},
    {"model.layers.0.mlp.down_proj.weight", 16, 32},
};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

/* `bend` is the difference between one tensor of the file and the tensor that the program needs. */
struct bend {
    const char *label, *tensor, *dtype; /* dtype NULL = F32 */
    uint32_t n, k;
    bool missing;
    enum status want;
    const char *text;
};
static const char vocabulary[] =
    "model.embed_tokens.weight"; /* with this pointer the configuration changes, too */

static uint32_t dtype_size(const char *dtype)
{
    return strcmp(dtype, "F32") == 0 || strcmp(dtype, "I32") == 0 ? 4 : 2;
}

/* Writes a model. Element i of each tensor is i, so that each cut has other values. */
static void write_model(const char *folder, const struct bend *b)
{
    struct strbuf header, data, file;
    strbuf_init(&header, 0);
    strbuf_init(&data, 0);
    strbuf_init(&file, 0);
    for (int i = 0; i < N_TENSORS; i++) {
        bool bent = b->tensor && strcmp(b->tensor, tensors[i].name) == 0;
        const char *dtype = bent && b->dtype ? b->dtype : "F32";
        uint32_t n = bent && b->n ? b->n : tensors[i].n;
        uint32_t k = bent && b->n ? b->k : tensors[i].k;
        size_t begin = data.len;
        if (bent && b->missing)
            continue;
        for (uint32_t e = 0; e < n * (k ? k : 1); e++) {
            float v = (float)e;
            strbuf_append(&data, (const char *)&v, dtype_size(dtype));
        }
        char shape[32];
        snprintf(shape, sizeof shape, k ? "%u,%u" : "%u", n, k);
        strbuf_printf(&header,
                      "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                      header.len ? "," : "{", tensors[i].name, dtype, shape, begin, data.len);
    }
    strbuf_append_c(&header, "}");
    uint64_t n = header.len;
    strbuf_append(&file, (const char *)&n, sizeof n);
    strbuf_append(&file, header.ptr, header.len);
    strbuf_append(&file, data.ptr, data.len);
    put_file(folder, "model.safetensors", strbuf_str(&file));
    strbuf_reset(&file);
    strbuf_printf(&file,
                  "{\"model_type\":\"llama\",\"hidden_size\":16,\"num_attention_heads\":2,"
                  "\"num_key_value_heads\":1,\"num_hidden_layers\":1,\"intermediate_size\":32,"
                  "\"vocab_size\":%u,\"tie_word_embeddings\":%s,\"max_position_embeddings\":64,"
                  "\"rms_norm_eps\":1e-5,\"hidden_act\":\"silu\",\"rope_theta\":10000}",
                  b->tensor == vocabulary ? b->n : 48, b->tensor == vocabulary ? "true" : "false");
    put_file(folder, "config.json", strbuf_str(&file));
    strbuf_fini(&header);
    strbuf_fini(&data);
    strbuf_fini(&file);
}

/* The next functions implement a device that stores matrices unchanged, and only float32. */
static uint64_t plain_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                            uint32_t group)
{
    return dtype == DTYPE_F32 ? (uint64_t)n * k * 4 : 0;
}
static void *plain_alloc(struct device *d, uint64_t n)
{
    return calloc(1, n);
}
static void plain_release(struct device *d, void *ptr, uint64_t n)
{
    free(ptr);
}
static void plain_pack(struct device *d, struct weight *w, const struct weight_rows *rows)
{
    for (uint32_t i = 0; i < w->n; i++)
        memcpy((uint8_t *)w->data + (size_t)i * w->k * 4, rows->ptr + i * rows->stride_bytes,
               (size_t)w->k * 4);
}
static void plain_write(struct device *d, void *to, const void *host, uint64_t n)
{
    memcpy(to, host, n);
}
static const struct ops plain_ops = {.memory.write = plain_write,
                                     .loading.weight_bytes = plain_bytes,
                                     .memory.alloc = plain_alloc,
                                     .memory.release = plain_release,
                                     .loading.weight_pack = plain_pack};

/* Returns the bytes of a matrix on a device that, like a real one, accepts only whole blocks. */
static uint64_t blocks_bytes(const struct device *d, enum dtype dtype, uint32_t n, uint32_t k,
                             uint32_t group)
{
    uint64_t bytes;
    return dtype_bytes(dtype, k, n, &bytes) ? bytes : 0;
}
static const struct ops blocks_ops = {.loading.weight_bytes = blocks_bytes};

struct fixture {
    char folder[32];
    struct model_info info;
    struct model_config config;
    struct weights *weights;
    struct device device;
};

static void open_fixture(struct fixture *f, const struct bend *b)
{
    struct error err = {0};
    *f = (struct fixture){.folder = "/tmp/cox-loader-XXXXXX", .device = {&plain_ops}};
    assert_non_null(mkdtemp(f->folder));
    write_model(f->folder, b);
    if (model_info_open(f->folder, "/nowhere", &f->info, &err) != STATUS_OK ||
        model_config_read(&f->info, &f->config, &err) != STATUS_OK ||
        weights_open(&f->info, &f->weights, &err) != STATUS_OK)
        fail_msg("%s: %s", b->label, err.text);
}

static void close_fixture(struct fixture *f)
{
    static const char *const files[] = {"model.safetensors", "config.json"};
    for (int i = 0; i < 2; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", f->folder, files[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(f->folder), 0);
    weights_close(f->weights);
    model_info_fini(&f->info);
}

static const struct bend bends[] = {
    {"as it should be", NULL, NULL, 0, 0, false, STATUS_OK, ""},
    {"a matrix is missing", "model.layers.0.self_attn.k_proj.weight", NULL, 0, 0, true,
     STATUS_INVALID, "k_proj.weight is missing"},
    {"the head is missing", "lm_head.weight", NULL, 0, 0, true, STATUS_INVALID,
     "lm_head.weight is missing"},
    {"a norm is missing", "model.norm.weight", NULL, 0, 0, true, STATUS_INVALID,
     "model.norm.weight is missing"},
    {"a matrix lies on its side", "model.layers.0.mlp.down_proj.weight", NULL, 32, 16, false,
     STATUS_INVALID, "[32, 16]"},
    {"too many KV heads", "model.layers.0.self_attn.k_proj.weight", NULL, 16, 16, false,
     STATUS_INVALID, "needs [8, 16]"},
    {"a vector where a matrix should be", "lm_head.weight", NULL, 768, 0, false, STATUS_INVALID,
     "has shape [768], but the model's configuration needs [48, 16]"},
    {"a matrix where a vector should be", "model.norm.weight", NULL, 16, 1, false, STATUS_INVALID,
     "has shape [16, 1], but the model's configuration needs [16]"},
    {"a norm too long", "model.norm.weight", NULL, 17, 0, false, STATUS_INVALID,
     "has shape [17], but the model's configuration needs [16]"},
    {"integers", "lm_head.weight", "I32", 0, 0, false, STATUS_UNSUPPORTED, "no kernel"},
    {"a norm of integers", "model.norm.weight", "I16", 0, 0, false, STATUS_UNSUPPORTED, "I16"},
};

static void test_files_that_do_not_fit(void **state)
{
    for (size_t i = 0; i < sizeof bends / sizeof bends[0]; i++) {
        struct fixture f;
        struct program *p;
        struct error err = {0};
        struct loaded l = {0};
        uint64_t n = 0;
        _Atomic uint32_t permille = 0;
        open_fixture(&f, &bends[i]);
        assert_int_equal(
            program_build(&f.config,
                          &(struct program_setup){
                              .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                          &p, &err),
            STATUS_OK);
        enum status s = loader_measure(p, f.weights, &f.device, &n, &err);
        if (s != bends[i].want || !strstr(err.text, bends[i].text))
            fail_msg("%s: %s \"%s\"", bends[i].label, status_name(s), err.text);
        struct load_progress progress = {.permille = &permille, .n_ranks = 1};
        load_progress_begin(&progress);
        assert_int_equal(loader_load(p, f.weights, &f.device, &l, &progress, &err), s);
        load_progress_end(&progress);
        assert_true(s != STATUS_OK || l.n_bytes == n);
        assert_true(permille >= 1 && permille <= 1000 && (s != STATUS_OK || permille > 500));
        loader_unload(&f.device, &l);
        program_free(p);
        close_fixture(&f);
    }
}

/* Checks that each rank gets its part. Element [i][j] of a matrix [n][k] is i * k + j. */
static void check_parts(const struct bend *b)
{
    struct fixture f;
    open_fixture(&f, b);
    for (uint32_t rank = 0; rank < 2; rank++) {
        struct program *p;
        struct error err = {0};
        struct loaded l = {0};
        assert_int_equal(
            program_build(&f.config,
                          &(struct program_setup){
                              .tp = 2, .rank = rank, .max_model_len = 1024, .inner_unit = 16},
                          &p, &err),
            STATUS_OK);
        assert_int_equal(loader_load(p, f.weights, &f.device, &l, NULL, &err), STATUS_OK);
        uint32_t n_cut = 0;
        for (uint32_t i = 0; i < p->n_weights; i++) {
            const struct op_weight *w = &p->weights[i];
            const float *at = w->w.data;
            n_cut += w->n_len < w->n || w->k_len < w->k;
            for (uint32_t r = 0; r < w->n_len; r++)
                for (uint32_t c = 0; c < w->k_len; c++)
                    assert_true(at[r * w->k_len + c] == (float)((w->n0 + r) * w->k + w->k0 + c));
        }
        /* The embedding, the head if it is separate, q, o, gate, up and down are cut. All ranks
         * have the KV head. */
        assert_int_equal(n_cut, 7 - (b->tensor == vocabulary));
        for (uint32_t i = 0; i < 16; i++)
            assert_true(p->final_norm.norm.w[i] == (float)i);
        assert_int_equal(loader_main_dtype(p, f.weights), DTYPE_F32);
        loader_unload(&f.device, &l);
        program_free(p);
    }
    close_fixture(&f);
}

static void test_parts(void **state)
{
    check_parts(&bends[0]);
}

/* The weights are 39 MB, so each of two ranks gets more than is packed at once. */
static void test_pieces(void **state)
{
    check_parts(&(struct bend){.tensor = vocabulary, .n = 600 << 10, .k = 16});
}

/* The inputs of a quantised row are cut only between blocks. The file ends after the projection
 * whose inputs are cut. With a shape that fits, loading therefore fails only at the first
 * missing tensor. */
static void test_blocks_are_not_cut(void **state)
{
    static const struct {
        uint32_t tp, n_heads;
        enum status want;
        const char *texts[4];
    } cases[] = {
        {2,
         2,
         STATUS_UNSUPPORTED,
         {"--tp 2", "blk.0.attn_output.weight is Q8_0", "16 of its 32", "fewer ranks"}},
        {4,
         4,
         STATUS_UNSUPPORTED,
         {"--tp 4", "blocks of 32", "16 of its 64", "Q8_0 and Q4_0 have blocks of 32"}},
        {2, 4, STATUS_INVALID, {"blk.0.ffn_gate.weight is missing", "", "", ""}},
        {1, 2, STATUS_INVALID, {"blk.0.ffn_gate.weight is missing", "", "", ""}},
    };
    char folder[] = "/tmp/cox-loader-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/x.gguf", folder);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t heads = cases[i].n_heads * 16, tensors_n[] = {64, heads, heads, heads, 64};
        static const char *const names[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                            "blk.0.attn_k.weight", "blk.0.attn_v.weight",
                                            "blk.0.attn_output.weight"};
        struct model_config c = {.family = "llama",
                                 .format = MODEL_GGUF,
                                 .n_layers = 1,
                                 .hidden = 64,
                                 .n_heads = cases[i].n_heads,
                                 .n_kv_heads = cases[i].n_heads,
                                 .head_dim = 16,
                                 .intermediate = 128,
                                 .vocab_size = 64,
                                 .tied_embedding = true,
                                 .rope = {.theta = 10000}};
        struct model_info m = {.format = MODEL_GGUF, .path = path, .name = path};
        struct device device = {&blocks_ops};
        struct strbuf b;
        struct weights *w;
        struct program *p;
        struct error err = {0};
        uint64_t n = 0;
        strbuf_init(&b, 0);
        put_header(&b, 3, 5, 0);
        for (uint32_t t = 0; t < 5; t++) {
            uint64_t k = t == 4 ? heads : 64;
            put_tensor(&b, names[t], DTYPE_Q8_0, k, tensors_n[t], n);
            n += k / 32 * 34 * tensors_n[t]; /* the size is already aligned to 32 */
        }
        put_padding(&b, 32);
        put_data(&b, n);
        put_file(folder, "x.gguf", strbuf_str(&b));
        if (weights_open(&m, &w, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(program_build(&c,
                                       &(struct program_setup){.tp = cases[i].tp,
                                                               .rank = cases[i].tp - 1,
                                                               .max_model_len = 1024,
                                                               .inner_unit = 16},
                                       &p, &err),
                         STATUS_OK);
        assert_int_equal(loader_measure(p, w, &device, &n, &err), cases[i].want);
        for (int t = 0; t < 4; t++)
            if (!strstr(err.text, cases[i].texts[t]))
                fail_msg("no \"%s\" in \"%s\"", cases[i].texts[t], err.text);
        program_free(p);
        weights_close(w);
        strbuf_fini(&b);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(folder), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_files_that_do_not_fit),
                                       cmocka_unit_test(test_parts), cmocka_unit_test(test_pieces),
                                       cmocka_unit_test(test_blocks_are_not_cut)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
