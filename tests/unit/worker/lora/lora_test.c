/* Tests LoRA adapters of a tiny llama on one rank. The tests write adapter files, correct or
 * with one fault, and load them into the `lora_set` of an engine. Cases: refusals with their
 * texts, paths below the root, another rank after a rejoin, identities, patterns, PyTorch files.
 * Invariants: a refused adapter leaves nothing behind, and all ranks compute the same identity.
 * Golden tests check the values that adapters add to a model. All tests run on one thread. */
#include "worker/lora/lora.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/model/lora/adapter.h"
#include "tests/unit/common/model/torch_writer.c"
#include "tests/unit/worker/tiny_model.c"
#include "worker/engine/engine.h"

enum { MAX_LORAS = 2, MAX_RANK = 8 };

static char base[] = "/tmp/cox-lora-XXXXXX";
static char root[64], folder[96], outside[64];
static _Atomic uint64_t progress;
static _Atomic bool interrupt;

/* `bend` describes an adapter for the Q and down projections of both layers by its difference
 * from a correct adapter. */
struct bend {
    const char *label;
    const char *config; /* config in place of the default; ' stands for " */
    /* End of the changed tensor's name. A name after + is added to the other names. A name that
     * ends with a dot is added as both A and B. */
    const char *tensor;
    uint32_t n, k;     /* shape of the changed tensor; n 0 = the correct one */
    const char *dtype; /* data type of the changed tensor; NULL = F32 */
    bool missing, nan;
    enum status want;
    const char *text;
};

#define CONFIG(more)                                                                               \
    "{'peft_type':'LORA','r':4,'lora_alpha':8,'target_modules':['q_proj','down_proj']" more "}"

static void put_json(const char *name, const char *text)
{
    char copy[2048];
    snprintf(copy, sizeof copy, "%s", text);
    for (char *p = copy; *p; p++)
        *p = *p == '\'' ? '"' : *p;
    put_file(folder, name, str_from(copy));
}

static void put_tensor(struct tiny_file *f, const char *name, uint32_t n, uint32_t k,
                       const struct bend *b)
{
    size_t size = b && b->dtype && strcmp(b->dtype, "F32") != 0 ? 2 : 4, begin = f->data.len;
    n = b && b->n ? b->n : n;
    k = b && b->n ? b->k : k;
    for (uint32_t i = 0; i < n * k; i++) {
        uint32_t bits = b && b->nan && i == n * k - 1 ? 0x7FC07FC0 : 0x3C003C00;
        strbuf_append(&f->data, (const char *)&bits, size);
    }
    strbuf_printf(&f->header,
                  "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%u,%u],\"data_offsets\":[%zu,%zu]}",
                  f->header.len ? "," : "{", name, b && b->dtype ? b->dtype : "F32", n, k, begin,
                  f->data.len);
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static void write_adapter(const struct bend *b)
{
    static const struct {
        const char *name;
        uint32_t n, k;
    } tensors[] = {
        {"model.layers.0.self_attn.q_proj.lora_A", 4, TINY_HIDDEN},
        {"model.layers.0.self_attn.q_proj.lora_B", 32, 4},
        {"model.layers.0.mlp.down_proj.lora_A", 4, 64},
        {"model.layers.0.mlp.down_proj.lora_B", TINY_HIDDEN, 4},
        {"model.layers.1.self_attn.q_proj.lora_A", 4, TINY_HIDDEN},
        {"model.layers.1.self_attn.q_proj.lora_B", 32, 4},
        {"model.layers.1.mlp.down_proj.lora_A", 4, 64},
        {"model.layers.1.mlp.down_proj.lora_B", TINY_HIDDEN, 4},
    };
    struct tiny_file f = {.rng = {1}};
    struct strbuf file;
    strbuf_init(&f.header, 0);
    strbuf_init(&f.data, 0);
    strbuf_init(&file, 0);
    for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
        char name[160];
        snprintf(name, sizeof name, "base_model.model.%s.weight", tensors[i].name);
        bool bent = b->tensor && ends_with(tensors[i].name, b->tensor);
        if (!bent || !b->missing)
            put_tensor(&f, name, tensors[i].n, tensors[i].k, bent ? b : NULL);
    }
    if (b->tensor && b->tensor[0] == '+' && !ends_with(b->tensor, "."))
        put_tensor(&f, b->tensor + 1, 4, TINY_HIDDEN, b);
    for (int i = 0; b->tensor && b->tensor[0] == '+' && ends_with(b->tensor, ".") && i < 2; i++) {
        char name[160];
        snprintf(name, sizeof name, "%slora_%c.weight", b->tensor + 1, "AB"[i]);
        put_tensor(&f, name, i ? TINY_HIDDEN : 4, i ? 4 : TINY_HIDDEN, NULL);
    }
    strbuf_append_c(&f.header, "}");
    uint64_t n = f.header.len;
    strbuf_append(&file, (const char *)&n, sizeof n);
    strbuf_append(&file, f.header.ptr, f.header.len);
    strbuf_append(&file, f.data.ptr, f.data.len);
    put_file(folder, "adapter_model.safetensors", strbuf_str(&file));
    put_json("adapter_config.json", b->config ? b->config : CONFIG(""));
    strbuf_fini(&f.header);
    strbuf_fini(&f.data);
    strbuf_fini(&file);
}

static const struct bend right = {.label = "as it should be"};
#define REFUSED(status, words) .want = STATUS_##status, .text = words
static const struct bend bends[] = {
    {.label = "every key that changes nothing",
     .config = CONFIG(",'bias':'none','use_dora':false,'modules_to_save':null,'rank_pattern':{},"
                      "'layers_to_transform':null,'lora_dropout':0.1,'loftq_config':{}")},
    {.label = "an expression for the modules",
     .config = "{'peft_type':'LORA','r':4,'lora_alpha':8,'target_modules':'.*(q|down)_proj'}"},
    {.label = "some of the layers, the rest is missing",
     .config = CONFIG(",'layers_to_transform':[0]"),
     .tensor = "layers.1.self_attn.q_proj.lora_A",
     .missing = true,
     REFUSED(INVALID, "layers.1.self_attn.q_proj.lora_A.weight is missing")},
    {.label = "no LoRA", .config = "{'peft_type':'IA3'}", REFUSED(UNSUPPORTED, "peft_type is IA3")},
    {.label = "no JSON", .config = "root:x:0:0", REFUSED(INVALID, "adapter_config.json")},
    {.label = "DoRA",
     .config = CONFIG(",'use_dora':true"),
     REFUSED(UNSUPPORTED, "adapter_config.json: use_dora")},
    {.label = "a beginning that leaves the model's weights alone",
     .config = CONFIG(",'init_lora_weights':'Gaussian'")},
    {.label = "the usual beginning", .config = CONFIG(",'init_lora_weights':true")},
    {.label = "PiSSA",
     .config = CONFIG(",'init_lora_weights':'pissa_niter_16'"),
     REFUSED(UNSUPPORTED, "adapter_config.json: init_lora_weights is pissa_niter_16")},
    {.label = "OLoRA",
     .config = CONFIG(",'init_lora_weights':'olora'"),
     REFUSED(UNSUPPORTED, "init_lora_weights is olora")},
    {.label = "no beginning at all",
     .config = CONFIG(",'init_lora_weights':5"),
     REFUSED(INVALID, "init_lora_weights must be true, false or a name")},
    {.label = "biases",
     .config = CONFIG(",'bias':'lora_only'"),
     REFUSED(UNSUPPORTED, "adapter_config.json: bias")},
    {.label = "embeddings beside it",
     .config = CONFIG(",'modules_to_save':['embed_tokens','lm_head']"),
     REFUSED(UNSUPPORTED, "modules_to_save")},
    {.label = "no rank",
     .config = "{'peft_type':'LORA','lora_alpha':8}",
     REFUSED(INVALID, ": r must be a rank")},
    {.label = "a rank of 2^60",
     .config = "{'peft_type':'LORA','r':1152921504606846976,'lora_alpha':8}",
     REFUSED(INVALID, ": r must be a rank")},
    {.label = "an alpha that is no number",
     .config = "{'peft_type':'LORA','r':4,'lora_alpha':'8'}",
     REFUSED(INVALID, "lora_alpha")},
    {.label = "a pattern that is an expression",
     .config = CONFIG(",'rank_pattern':{'^.*q_proj':4}"),
     REFUSED(UNSUPPORTED, "is a regular expression")},
    {.label = "a pattern of another rank than the tensors",
     .config = CONFIG(",'rank_pattern':{'layers.1.mlp.down_proj':5}"),
     REFUSED(INVALID, "layers.1.mlp.down_proj.lora_A.weight: its shape is [4, 64]")},
    {.label = "a module that the model does not have",
     .tensor = "+base_model.model.model.layers.0.mlp.c_fc.",
     REFUSED(UNSUPPORTED,
             "c_fc.lora_A.weight: an adapter of this model cannot change a module of this name")},
    {.label = "an expert's",
     .tensor = "+base_model.model.model.layers.0.mlp.experts.3.up_proj.",
     REFUSED(UNSUPPORTED, "up_proj.lora_A.weight: adapters of experts are not supported")},
    {.label = "a target that the model does not have",
     .config = "{'peft_type':'LORA','r':4,'lora_alpha':8,'target_modules':['q_proj','c_attn']}",
     REFUSED(UNSUPPORTED, "target_modules names c_attn, but adapters of this model can change only "
                          "q_proj, k_proj, v_proj, "
                          "o_proj, gate_proj, up_proj, down_proj")},
    {.label = "the head",
     .config = "{'peft_type':'LORA','r':4,'lora_alpha':8,'target_modules':['lm_head']}",
     REFUSED(UNSUPPORTED,
             "target_modules names lm_head, but adapters of this model can change only")},
    {.label = "a tensor of another kind",
     .tensor = "+base_model.model.model.embed_tokens.lora_embedding_A",
     REFUSED(UNSUPPORTED, "embed_tokens.lora_embedding_A: it is neither lora_A.weight")},
    {.label = "a tensor of another form",
     .tensor = "+model.layers.0.self_attn.q_proj.lora_A.weight",
     REFUSED(UNSUPPORTED, "does not have the form")},
    {.label = "A is missing",
     .tensor = "layers.0.self_attn.q_proj.lora_A",
     .missing = true,
     REFUSED(INVALID, "tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight is "
                      "missing")},
    {.label = "B is missing",
     .tensor = "layers.1.mlp.down_proj.lora_B",
     .missing = true,
     REFUSED(INVALID, "down_proj.lora_B.weight is missing")},
    {.label = "of another model",
     .tensor = "layers.0.self_attn.q_proj.lora_A",
     .n = 4,
     .k = 48,
     REFUSED(INVALID, "q_proj.lora_A.weight has shape [4, 48], but this model needs [4, 32]")},
    {.label = "more outputs",
     .tensor = "layers.1.mlp.down_proj.lora_B",
     .n = 33,
     .k = 4,
     REFUSED(INVALID, "down_proj.lora_B.weight has shape [33, 4], but this model needs [32, 4]")},
    {.label = "another rank than it says",
     .tensor = "layers.0.self_attn.q_proj.lora_A",
     .n = 5,
     .k = TINY_HIDDEN,
     REFUSED(INVALID, "which does not match the rank 4 in adapter_config.json")},
    {.label = "integers",
     .tensor = "layers.0.self_attn.q_proj.lora_A",
     .dtype = "I16",
     REFUSED(UNSUPPORTED, "must be F32, F16 or BF16")},
    {.label = "half precision", .tensor = "layers.0.self_attn.q_proj.lora_A", .dtype = "F16"},
    {.label = "NaN",
     .tensor = "layers.1.self_attn.q_proj.lora_B",
     .nan = true,
     REFUSED(INVALID, "layers.1.self_attn.q_proj.lora_B.weight: it contains a number that is NaN")},
    {.label = "NaN in bfloat16",
     .tensor = "layers.1.self_attn.q_proj.lora_B",
     .dtype = "BF16",
     .nan = true,
     REFUSED(INVALID, "NaN")},
    {.label = "NaN in float16",
     .tensor = "layers.1.self_attn.q_proj.lora_B",
     .dtype = "F16",
     .nan = true,
     REFUSED(INVALID, "NaN")},
};

static int make_folders(void **state)
{
    if (!mkdtemp(base))
        return -1;
    snprintf(root, sizeof root, "%s/root", base);
    snprintf(folder, sizeof folder, "%s/a", root);
    snprintf(outside, sizeof outside, "%s/rootless", base);
    tiny_model_write(base, 7);
    return mkdir(root, 0700) | mkdir(folder, 0700) | symlink(folder, outside);
}

static int remove_folders(void **state)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", base);
    return system(command);
}

static struct engine *open_engine(uint32_t tp, uint32_t rank)
{
    const struct engine_setup s = {.model = base,
                                   .tp = tp,
                                   .rank = rank,
                                   .n_threads = 1,
                                   .isa_level = -1,
                                   .block_tokens = 16,
                                   .pass_rows = 16,
                                   .n_kv_blocks = 8,
                                   .max_loras = MAX_LORAS,
                                   .max_lora_rank = MAX_RANK,
                                   .lora_root = root,
                                   .progress = &progress,
                                   .interrupt = &interrupt};
    struct engine *e = NULL;
    struct error err = {0};
    if (engine_open(&s, &e, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return e;
}

/* Refusals are the same on a rank with a part of all tensors and on a rank without attention
 * heads. */
static void test_what_is_refused(void **state)
{
    struct engine *engines[] = {open_engine(1, 0), open_engine(5, 4)};
    for (size_t i = 0; i < 2 * sizeof bends / sizeof bends[0]; i++) {
        const struct bend *b = &bends[i / 2];
        struct lora_set *l = engines[i % 2]->loras;
        struct error err = {0};
        write_adapter(b);
        enum status s = lora_set_load(l, 7, "a", NULL, &err);
        if (s != b->want || (b->text && (!strstr(err.text, b->text) || !strstr(err.text, folder))))
            fail_msg("%s: %s \"%s\"", b->label, status_name(s), err.text);
        assert_int_equal(lora_set_find(l, 7), s == STATUS_OK ? 1 : 0);
        lora_set_unload(l, 7);
        write_adapter(&right);
        assert_int_equal(lora_set_load(l, 8, "a", NULL, &err), STATUS_OK);
        assert_int_equal(lora_set_find(l, 8), 1);
        lora_set_unload(l, 8);
    }
    engine_close(engines[0]);
    engine_close(engines[1]);
}

/* Fails a sync. A device that fails to pack or write reports the failure at the next sync, and
 * not before. */
static enum status failed_sync(struct device *d, struct error *err)
{
    return error_set(err, STATUS_IO, "the device is lost");
}

static void test_what_a_device_keeps_is_told(void **state)
{
    struct engine *e = open_engine(1, 0);
    struct device *d = e->device;
    const struct ops *own = d->ops;
    struct ops failing = *own;
    struct error err = {0};
    failing.pass.sync = failed_sync;
    write_adapter(&right);
    d->ops = &failing;
    assert_int_equal(lora_set_load(e->loras, 1, "a", NULL, &err), STATUS_IO);
    assert_int_equal(lora_set_find(e->loras, 1), 0);
    assert_int_equal(engine_take_rank(e, 1, 0, 0, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "the device is lost"));
    d->ops = own;
    assert_int_equal(engine_take_rank(e, 1, 0, 0, &err), STATUS_OK);
    assert_int_equal(lora_set_load(e->loras, 1, "a", NULL, &err), STATUS_OK);
    engine_close(e);
}

static void test_ranks_and_places(void **state)
{
    struct engine *e = open_engine(1, 0);
    struct error err = {0};
    write_adapter(&(struct bend){
        .config = "{'peft_type':'LORA','r':16,'lora_alpha':8,'target_modules':['o_proj']}"});
    assert_int_equal(lora_set_load(e->loras, 1, "a", NULL, &err), STATUS_INVALID);
    write_adapter(&right);
    assert_int_equal(lora_set_load(e->loras, 1, "a", NULL, &err), STATUS_OK);
    assert_int_equal(lora_set_load(e->loras, 1, "a", NULL, &err), STATUS_EXISTS);
    assert_int_equal(lora_set_load(e->loras, 2, folder, NULL, &err), STATUS_OK);
    assert_int_equal(lora_set_load(e->loras, 3, "a", NULL, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "--max-loras"));
    lora_set_unload(e->loras, 1);
    assert_int_equal(lora_set_find(e->loras, 1), 0);
    assert_int_equal(lora_set_load(e->loras, 3, "a", NULL, &err), STATUS_OK);
    assert_int_equal(lora_set_find(e->loras, 3), 1);
    assert_int_equal(lora_set_find(e->loras, 0), 0);
    engine_close(e);
}

/* The adapter has rank 4, and --max-lora-rank is 3. */
static void test_a_rank_too_large(void **state)
{
    const struct engine_setup s = {.model = base,
                                   .tp = 1,
                                   .n_threads = 1,
                                   .isa_level = -1,
                                   .block_tokens = 16,
                                   .n_kv_blocks = 8,
                                   .max_loras = 1,
                                   .max_lora_rank = 3,
                                   .progress = &progress,
                                   .interrupt = &interrupt};
    struct engine *e = NULL;
    struct error err = {0};
    assert_int_equal(engine_open(&s, &e, &err), STATUS_OK);
    write_adapter(&right);
    assert_int_equal(lora_set_load(e->loras, 1, folder, NULL, &err), STATUS_LIMIT);
    assert_non_null(strstr(err.text, "rank 4 of model.layers.0.self_attn.q_proj is above "
                                     "the limit, --max-lora-rank 3"));
    engine_close(e);
}

static void test_only_below_the_root(void **state)
{
    char up[PATH_MAX], link_out[128];
    struct engine *e = open_engine(1, 0);
    struct error err = {0};
    write_adapter(&right);
    snprintf(up, sizeof up, "../%s", strrchr(base, '/') + 1);
    snprintf(link_out, sizeof link_out, "%s/out", root);
    assert_int_equal(symlink("/etc", link_out), 0);
    const struct {
        const char *path;
        enum status want;
    } cases[] = {{"a", STATUS_OK},
                 {"./a/../a", STATUS_OK},
                 {outside, STATUS_OK}, /* this path is a link into the root */
                 {"..", STATUS_DENIED},
                 {".", STATUS_DENIED},
                 {"/etc", STATUS_DENIED},
                 {"out", STATUS_DENIED},
                 {base, STATUS_DENIED},
                 {root, STATUS_DENIED},
                 {"nothing", STATUS_NOT_FOUND},
                 {"", STATUS_INVALID}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        enum status s = lora_set_load(e->loras, 1, cases[i].path, NULL, &err);
        if (s != cases[i].want)
            fail_msg("%s: %s %s", cases[i].path, status_name(s), err.text);
        lora_set_unload(e->loras, 1);
    }
    assert_int_equal(unlink(link_out), 0);
    engine_close(e);
}

/* A file in a folder below the root is a link. It may lead into the root, as in a download
 * cache, but not out of it. */
static void test_files_below_the_root(void **state)
{
    static const char *const files[] = {"adapter_config.json", "adapter_model.safetensors",
                                        "adapter_model.bin"};
    struct engine *e = open_engine(1, 0);
    for (size_t i = 0; i < 6; i++) {
        const char *file = files[i / 2], *dir = i % 2 ? base : root;
        char from[160], to[128], text[400];
        struct error err = {0};
        write_adapter(&right);
        snprintf(from, sizeof from, "%s/%s", folder, files[i / 2 < 2 ? i / 2 : 1]);
        snprintf(to, sizeof to, "%s/blob", dir);
        assert_int_equal(rename(from, to), 0);
        snprintf(from, sizeof from, "%s/%s", folder, file);
        assert_int_equal(symlink(to, from), 0);
        snprintf(text, sizeof text, "%s is a link to a file outside of --lora-root %s", from, root);
        enum status s = lora_set_load(e->loras, 1, "a", NULL, &err);
        enum status want = i % 2 ? STATUS_DENIED : i == 4 ? STATUS_INVALID : STATUS_OK;
        if (s != want || (i % 2 && !strstr(err.text, text)))
            fail_msg("%s in %s: %s %s", file, dir, status_name(s), err.text);
        lora_set_unload(e->loras, 1);
        assert_int_equal(unlink(from) | unlink(to), 0);
    }
    engine_close(e);
}

/* Rank 0 of 2 becomes rank 1 and cuts its adapters again. Only an adapter whose files have
 * changed is lost. */
static void test_another_rank(void **state)
{
    struct engine *e = open_engine(2, 0);
    struct error err = {0};
    char copy[256];
    uint64_t id;
    write_adapter(&right);
    snprintf(copy, sizeof copy, "cp -r %s %s/b", folder, root);
    assert_int_equal(system(copy), 0);
    assert_int_equal(lora_set_load(e->loras, 5, "a", NULL, &err), STATUS_OK);
    assert_int_equal(engine_take_rank(e, 2, 1, 0, &err), STATUS_OK);
    assert_int_equal(lora_set_find(e->loras, 5), 1);
    assert_false(lora_set_next_loss(e->loras, &id, &err));
    const struct {
        struct bend bend;
        const char *text;
    } cases[] = {
        {{.tensor = "layers.0.self_attn.q_proj.lora_A", .missing = true}, "is missing"},
        {{.config = CONFIG(",'alpha_pattern':{'1.mlp.down_proj':3}")},
         "changed after it was loaded"},
    };
    for (uint32_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(lora_set_load(e->loras, 6, "b", NULL, &err), STATUS_OK);
        write_adapter(&cases[i].bend);
        assert_int_equal(engine_take_rank(e, 2, i, 0, &err), STATUS_OK);
        assert_true(lora_set_next_loss(e->loras, &id, &err) && id == 5);
        assert_non_null(strstr(err.text, cases[i].text));
        assert_false(lora_set_next_loss(e->loras, &id, &err));
        assert_int_equal(lora_set_find(e->loras, 5), 0);
        assert_int_equal(lora_set_find(e->loras, 6), 2); /* the other adapter stays as it was */
        lora_set_unload(e->loras, 6);
        write_adapter(&right);
        assert_int_equal(lora_set_load(e->loras, 5, "a", NULL, &err), STATUS_OK);
    }
    engine_close(e);
}

/* All ranks report the same identity. It changes with anything that changes the numbers, and
 * with nothing else. */
static void test_identity(void **state)
{
    struct engine *engines[] = {open_engine(1, 0), open_engine(5, 4)};
    struct lora_set *l = engines[0]->loras;
    struct adapter_identity first = {0}, other = {0};
    struct error err = {0};
    write_adapter(&right);
    assert_int_equal(lora_set_load(l, 1, "a", &first, &err), STATUS_OK);
    assert_int_equal(lora_set_load(engines[1]->loras, 1, "a", &other, &err), STATUS_OK);
    assert_true(adapter_identity_known(first) && adapter_identity_same(first, other));
    other = (struct adapter_identity){0};
    assert_int_equal(lora_set_load(l, 1, "a", &other, &err), STATUS_EXISTS);
    assert_true(adapter_identity_same(first, other));
    other.lo++;
    assert_int_equal(lora_set_load(l, 1, "a", &other, &err), STATUS_INVALID);
    lora_set_unload(l, 1);
    const struct {
        struct bend bend;
        enum status want;
    } cases[] = {
        {{.config = CONFIG(",'lora_dropout':0.25")}, STATUS_OK},
        {{.config = CONFIG(",'alpha_pattern':{'1.mlp.down_proj':3}")}, STATUS_INVALID},
        {{.tensor = "layers.0.self_attn.q_proj.lora_A", .dtype = "F16"}, STATUS_INVALID},
        {{.tensor = "layers.1.mlp.down_proj.lora_B", .dtype = "BF16"}, STATUS_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_adapter(&cases[i].bend);
        other = first;
        assert_int_equal(lora_set_load(l, 1, "a", &other, &err), cases[i].want);
        assert_int_equal(lora_set_find(l, 1), cases[i].want == STATUS_OK);
        if (cases[i].want != STATUS_OK)
            assert_non_null(strstr(err.text, "files changed after it was loaded: load it again "
                                             "with load_inplace"));
        lora_set_unload(l, 1);
    }
    engine_close(engines[0]);
    engine_close(engines[1]);
}

static void test_scales(void **state)
{
    struct lora_adapter *a;
    struct error err = {0};
    write_adapter(&(struct bend){
        .config = CONFIG(",'use_rslora':true,'alpha_pattern':{'1.mlp.down_proj':3}")});
    assert_int_equal(lora_adapter_open(folder, NULL, &a, &err), STATUS_OK);
    assert_int_equal(lora_adapter_n_modules(a), 4);
    const struct lora_module *q = lora_adapter_find(a, "model.layers.0.self_attn.q_proj");
    const struct lora_module *down = lora_adapter_find(a, "model.layers.1.mlp.down_proj");
    assert_true(q && q->rank == 4 && q->scale == 8.0f / 2.0f);
    assert_true(down && down->rank == 4 && down->scale == 3.0f / 2.0f);
    assert_null(lora_adapter_find(a, "model.layers.0.self_attn.k_proj"));
    assert_true(lora_adapter_targets(a, "a.q_proj") && lora_adapter_targets(a, "q_proj"));
    assert_false(lora_adapter_targets(a, "aq_proj") || lora_adapter_targets(a, "q_proj.a"));
    lora_adapter_close(a);
}

/* Patterns work as in PEFT: the first key that matches a module counts, not the longest. A key
 * matches only whole parts of the name. */
static void test_patterns(void **state)
{
    static const struct {
        const char *pattern;
        float alpha[2]; /* alpha of the down projection in layers 0 and 1 */
    } cases[] = {
        {"'down_proj':3,'1.mlp.down_proj':5", {3, 3}},
        {"'1.mlp.down_proj':5,'down_proj':3", {3, 5}},
        {"'model.layers.0.mlp.down_proj':2,'own_proj':3,'wn':4", {2, 8}},
        {"'mlp.down_proj.':3,'mlp':3,'x.model.layers.0.mlp.down_proj':3", {8, 8}},
        {"'0.mlp.down_proj':1,'1.mlp.down_proj':2,'mlp.down_proj':3,'down_proj':4", {1, 2}},
    };
    static const char *const names[] = {"model.layers.0.mlp.down_proj",
                                        "model.layers.1.mlp.down_proj"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char config[512];
        struct lora_adapter *a;
        struct error err = {0};
        snprintf(config, sizeof config, CONFIG(",'alpha_pattern':{%s}"), cases[i].pattern);
        write_adapter(&(struct bend){.config = config});
        assert_int_equal(lora_adapter_open(folder, NULL, &a, &err), STATUS_OK);
        for (size_t k = 0; k < 2; k++)
            if (lora_adapter_find(a, names[k])->scale != cases[i].alpha[k] / 4)
                fail_msg("%s: %s", cases[i].pattern, names[k]);
        lora_adapter_close(a);
    }
}

/* An adapter with too many names is refused, because reading them would keep the ranks of a
 * replica from their steps. */
static void test_too_many_names(void **state)
{
    static const char *const keys[] = {"rank_pattern", "alpha_pattern", "target_modules"};
    for (uint32_t i = 0; i < 6; i++) {
        const char *key = keys[i / 2];
        uint32_t n = 4096 + i % 2;
        struct lora_adapter *a;
        struct error err = {0};
        struct strbuf b;
        write_adapter(&right);
        strbuf_init(&b, 0);
        strbuf_printf(&b, "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8,\"%s\":%c", key,
                      i < 4 ? '{' : '[');
        for (uint32_t k = 0; k < n; k++)
            strbuf_printf(&b, "%s\"module_%u\"%s", k ? "," : "", k, i < 4 ? ":4" : "");
        strbuf_append_c(&b, i < 4 ? "}}" : "]}");
        put_file(folder, "adapter_config.json", strbuf_str(&b));
        strbuf_fini(&b);
        enum status s = lora_adapter_open(folder, NULL, &a, &err);
        if (s != (i % 2 ? STATUS_INVALID : STATUS_OK) ||
            (s != STATUS_OK && (!strstr(err.text, key) || !strstr(err.text, "at most 4096 names"))))
            fail_msg("%s, %u: %s", key, n, err.text);
        lora_adapter_close(a);
    }
}

#define Q_PROJ "base_model.model.model.layers.0.self_attn.q_proj.lora_"

/* Writes a PyTorch file with A [4][inputs] and B [32][4] of one module. */
static void put_bin(char inputs)
{
    static const char zeros[4 * 255];
    struct strbuf pickle, file;
    strbuf_init(&pickle, 0);
    strbuf_init(&file, 0);
    zip_put_str(&pickle, (struct str){P_BEGIN, sizeof P_BEGIN - 1});
    for (int i = 0; i < 2; i++) {
        char name[96], rows = i ? 32 : 4, columns = i ? 4 : inputs;
        int n = snprintf(name, sizeof name, Q_PROJ "%c.weight", "AB"[i]);
        char t[] = P_TENSOR(P_STORAGE("FloatStorage", "?", "N"), "\0", P_TUPLE2("R", "C"),
                            P_TUPLE2("C", "\1")) "";
        char *key = memchr(t, '?', sizeof t), *size = memmem(t, sizeof t, "KN", 2),
             *sizes = size + 6;
        *key = (char)('0' + i);
        size[1] = (char)(rows * columns);
        assert_memory_equal(sizes, "KRKC\x86KCK\1\x86", 10);
        sizes[1] = rows;
        sizes[3] = sizes[6] = columns;
        zip_put(&pickle, 'X', 1);
        zip_put(&pickle, (uint64_t)n, 4);
        zip_put_str(&pickle, str_from(name));
        zip_put_str(&pickle, (struct str){t, sizeof t - 1});
    }
    zip_put_str(&pickle, (struct str){P_END, sizeof P_END - 1});
    const struct zip_part parts[] = {{"x/data.pkl", strbuf_str(&pickle)},
                                     {"x/data/0", {zeros, 4 * 4 * (size_t)inputs}},
                                     {"x/data/1", {zeros, 4 * 32 * 4}}};
    (void)zip_put_archive(&file, parts, 3, false);
    put_file(folder, "adapter_model.bin", strbuf_str(&file));
    strbuf_fini(&pickle);
    strbuf_fini(&file);
}

static void test_errors_name_the_file_that_is_there(void **state)
{
    static const struct {
        char inputs;
        const char *text;
    } cases[] = {
        {48, "adapter_model.bin: tensor " Q_PROJ "A.weight has shape [4, 48]"},
        {TINY_HIDDEN, "adapter_model.bin: tensor base_model.model.model.layers.1.self_attn.q_proj."
                      "lora_A.weight is missing"},
    };
    char path[128];
    struct engine *e = open_engine(1, 0);
    write_adapter(&(struct bend){
        .config = "{'peft_type':'LORA','r':4,'lora_alpha':8,'target_modules':['q_proj']}"});
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    assert_int_equal(unlink(path), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        put_bin(cases[i].inputs);
        assert_int_equal(lora_set_load(e->loras, 1, "a", NULL, &err), STATUS_INVALID);
        if (!strstr(err.text, cases[i].text))
            fail_msg("%s", err.text);
    }
    snprintf(path, sizeof path, "%s/adapter_model.bin", folder);
    assert_int_equal(unlink(path), 0);
    engine_close(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_what_a_device_keeps_is_told),
        cmocka_unit_test(test_ranks_and_places),
        cmocka_unit_test(test_a_rank_too_large),
        cmocka_unit_test(test_only_below_the_root),
        cmocka_unit_test(test_files_below_the_root),
        cmocka_unit_test(test_another_rank),
        cmocka_unit_test(test_scales),
        cmocka_unit_test(test_patterns),
        cmocka_unit_test(test_too_many_names),
        cmocka_unit_test(test_errors_name_the_file_that_is_there),
        cmocka_unit_test(test_identity),
    };
    return cmocka_run_group_tests(tests, make_folders, remove_folders);
}
