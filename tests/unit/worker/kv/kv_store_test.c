/* Tests the memory of a rank's KV cache. The tests compute the blocks of each KV group from a
 * `kv_shape` for several model configurations, and allocate stores on a device of plain memory.
 * Cases: windows, one group or two, a fixed number of bytes, all memory of a GPU, each data type
 * and layout. Invariants: the blocks of all layers fit into the given bytes, and no two pieces
 * of memory overlap. All tests run on one thread. */
#include "worker/kv/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/kv_layout.h"
#include "worker/model/families/program_build.h"

/* Returns a model of 18 layers with one KV head of 256. With `windows`, every sixth layer sees
 * all positions, and the others the last 512. */
static struct model_config config(bool windows)
{
    struct model_config c = {.family = "gemma3",
                             .format = MODEL_GGUF,
                             .n_layers = 18,
                             .hidden = 640,
                             .n_heads = 4,
                             .n_kv_heads = 1,
                             .head_dim = 256,
                             .intermediate = 2048,
                             .vocab_size = 1000,
                             .norm_eps = 1e-6f,
                             .window = 512,
                             .rope = {.theta = 1e6},
                             .rope_local = {.theta = 1e4},
                             .tied_embedding = true};
    for (uint32_t l = 0; l < c.n_layers; l++)
        c.layer_is_window[l] = windows && l % 6 != 5;
    return c;
}

enum { MIB = 1 << 20 };
/* LAYER_BLOCK is the bytes of a block of 16 tokens in one layer: keys and values of one head of
 * 256 in float16. */
enum { LAYER_BLOCK = 2 * 16 * 256 * 2 };

static const struct {
    const char *name;
    bool windows;
    struct kv_shape shape;
    enum status want;
    /* expected blocks of each group; the first group is layer 0's, a window's if any */
    uint32_t want_n[2];
} cases[] = {
    {"four sequences, 64 windows",
     true,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 32768,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {64 * 1024 / 16, 4 * 32768 / 16}},
    {"windows only as long as the sequences",
     true,
     {.dtype = DTYPE_F16, .block_tokens = 16, .max_model_len = 600, .available_bytes = 16ull << 30},
     STATUS_OK,
     {4 * 600 / 16, 4 * 600 / 16}},
    {"one group",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {4 * 4096 / 16}},
    {"a number of blocks wins",
     true,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 32768,
      .n_blocks = 7,
      .memory_bytes = MIB,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {7, 7}},
    {"half of what the default would take",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .memory_bytes = 512ull * 18 * LAYER_BLOCK,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {512}},
    {"more than the default when it is asked for",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .memory_bytes = 5000ull * 18 * LAYER_BLOCK,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {5000}},
    {"what is asked for holds for all groups together",
     true,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 32768,
      .memory_bytes = 20000ull * LAYER_BLOCK,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     /* One sequence needs 64 and 2048 blocks, which take 7104 of the 20000 layer blocks. The
      * default would take 86016. */
     {64 + (4096 - 64) * 12896 / 78912, 2048 + (8192 - 2048) * 12896 / 78912}},
    {"all that there is, of a GPU",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .take_all = true,
      .available_bytes = 99999ull * 18 * LAYER_BLOCK},
     STATUS_OK,
     {99999}},
    {"but no more of a small model than anybody needs",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .take_all = true,
      .available_bytes = 9999999ull * 18 * LAYER_BLOCK},
     STATUS_OK,
     {1 << 20}},
    {"of a GPU, what is asked for",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .take_all = true,
      .memory_bytes = 5000ull * 18 * LAYER_BLOCK,
      .available_bytes = 99999ull * 18 * LAYER_BLOCK},
     STATUS_OK,
     {5000}},
    {"exactly one sequence",
     true,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 32768,
      .memory_bytes = 7104ull * LAYER_BLOCK,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {64, 2048}},
    {"float32 takes twice as much",
     false,
     {.dtype = DTYPE_F32,
      .block_tokens = 16,
      .max_model_len = 4096,
      .memory_bytes = 512ull * 18 * LAYER_BLOCK,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {256}},
    {"a byte each, and a scale of a token and head",
     false,
     {.dtype = DTYPE_I8,
      .block_tokens = 16,
      .max_model_len = 4096,
      .memory_bytes = 512ull * 18 * (256 + 4) * 16 * 2,
      .available_bytes = 16ull << 30},
     STATUS_OK,
     {512}},
    {"too little for one sequence",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .memory_bytes = 255ull * 18 * LAYER_BLOCK,
      .available_bytes = 16ull << 30},
     STATUS_NO_MEMORY,
     {0}},
    {"a small machine: half of what is free when a quarter is too little",
     false,
     {.dtype = DTYPE_F16,
      .block_tokens = 16,
      .max_model_len = 4096,
      .available_bytes = 600ull * 18 * LAYER_BLOCK},
     STATUS_OK,
     {300}},
    {"nothing is free",
     false,
     {.dtype = DTYPE_F16, .block_tokens = 16, .max_model_len = 4096},
     STATUS_NO_MEMORY,
     {0}},
};

static void test_sizes(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config c = config(cases[i].windows);
        struct program *p;
        struct error err = {0};
        struct kv_group groups[PROGRAM_MAX_KV_GROUPS] = {0};
        assert_int_equal(
            program_build(&c,
                          &(struct program_setup){
                              .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                          &p, &err),
            STATUS_OK);
        enum status s = kv_store_size(p, &cases[i].shape, groups, &err);
        if (s != cases[i].want)
            fail_msg("%s: %s %s", cases[i].name, status_name(s), err.text);
        uint64_t n_bytes = 0, asked = cases[i].shape.n_blocks ? 0 : cases[i].shape.memory_bytes;
        for (uint32_t g = 0; s == STATUS_OK && g < p->n_kv_groups; g++) {
            n_bytes += groups[g].n_blocks * groups[g].bytes_per_block;
            if (groups[g].n_blocks != cases[i].want_n[g])
                fail_msg("%s: group %u has %u blocks, want %u", cases[i].name, g,
                         groups[g].n_blocks, cases[i].want_n[g]);
        }
        if (asked > 0 && n_bytes > asked)
            fail_msg("%s: %llu bytes of %llu", cases[i].name, (unsigned long long)n_bytes,
                     (unsigned long long)asked);
        program_free(p);
    }
}

static void test_groups(void **state)
{
    struct model_config c = config(true);
    struct program *p;
    struct error err = {0};
    struct kv_group g[PROGRAM_MAX_KV_GROUPS];
    const struct kv_shape s = {
        .dtype = DTYPE_F16, .block_tokens = 32, .max_model_len = 1024, .available_bytes = 1u << 30};
    assert_int_equal(program_build(&c,
                                   &(struct program_setup){
                                       .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                                   &p, &err),
                     STATUS_OK);
    assert_int_equal(kv_store_size(p, &s, g, &err), STATUS_OK);
    assert_int_equal(p->n_kv_groups, 2);
    assert_int_equal(g[0].kind, KV_WINDOW);
    assert_int_equal(g[0].window_tokens, 512);
    assert_int_equal(g[0].bytes_per_block, 15 * 2 * LAYER_BLOCK);
    assert_int_equal(g[1].kind, KV_FULL);
    assert_int_equal(g[1].window_tokens, 0);
    assert_int_equal(g[1].block_tokens, 32);
    assert_int_equal(g[1].bytes_per_block, 3 * 2 * LAYER_BLOCK);
    program_free(p);
}

/* The next functions implement a device with plain memory. */
static void *fake_alloc(struct device *d, uint64_t n)
{
    return calloc(1, n);
}
static void fake_release(struct device *d, void *ptr, uint64_t n)
{
    free(ptr);
}
static void fake_copy(struct device *d, void *to, const void *from, uint64_t n)
{
    memcpy(to, from, n);
}

enum { N_BLOCKS = 8 };

/* `piece` holds keys or values of a block in one layer, or their scales, as bytes. */
struct piece {
    uint8_t *ptr;
    size_t n_bytes;
};
static struct piece piece_of(const struct kv_cache *kv, uint32_t block, bool values, bool scales)
{
    size_t tokens = (size_t)kv->n_kv_heads * kv->block_tokens;
    uint8_t *at = (uint8_t *)(values ? kv->v : kv->k) + block * kv->block_stride;
    if (!scales)
        return (struct piece){at, tokens * kv->head_dim * kv_elem_bytes(kv->dtype)};
    if (!kv->k_scales)
        return (struct piece){NULL, 0};
    return (struct piece){(uint8_t *)kv_scales(kv, values, block, 0), tokens * sizeof(float)};
}

/* Fills each piece (layer, block, keys or values, numbers or scales) with a number of its own,
 * or checks all pieces. */
static void fill_or_check(const struct kv_store *store, uint32_t n_layers, bool check)
{
    for (uint32_t l = 0; l < n_layers; l++)
        for (uint32_t i = 0; i < 4 * N_BLOCKS; i++) {
            const struct piece x = piece_of(kv_store_layer(store, l), i / 4, i % 2, i / 2 % 2);
            uint16_t own = (uint16_t)(l * 100 + i);
            for (size_t e = 0; e < x.n_bytes; e += sizeof own)
                if (check)
                    assert_memory_equal(x.ptr + e, &own, sizeof own);
                else
                    memcpy(x.ptr + e, &own, sizeof own);
        }
}

static void check_copy(struct kv_store *store, const struct program *p)
{
    kv_store_copy(store, &(struct plan_copy){.i_group = 1, .from = 3, .to = 5});
    for (uint32_t l = 0; l < p->config->n_layers; l++)
        for (uint32_t i = 0; i < 4; i++) {
            const struct kv_cache *kv = kv_store_layer(store, l);
            const struct piece from = piece_of(kv, 3, i % 2, i / 2);
            const struct piece to = piece_of(kv, 5, i % 2, i / 2);
            bool same = from.n_bytes > 0 && memcmp(from.ptr, to.ptr, from.n_bytes) == 0;
            assert_int_equal(same, from.n_bytes > 0 && p->kv_group_of[l] == 1);
        }
}

/* Checks that the stride of a block covers all layers of its group, or one layer in the layout
 * by layers. Only a store in one piece has a view. */
static void check_layout(const struct kv_store *store, const struct program *p, bool by_layers,
                         uint32_t layer_bytes)
{
    struct kv_view view;
    assert_int_equal(kv_store_view(store, &view), !by_layers);
    for (uint32_t l = 0; l < p->config->n_layers; l++) {
        uint32_t n_layers = p->kv_groups[p->kv_group_of[l]].n_layers;
        assert_int_equal(kv_store_layer(store, l)->block_stride,
                         (by_layers ? 1 : n_layers) * layer_bytes);
    }
}

/* Checks that no two pieces overlap. `layout` is the value of COX_KV_LAYOUT; NULL = not set. */
static void check_nothing_overlaps(const char *layout)
{
    bool by_layers = layout && strcmp(layout, "layer") == 0;
    static const struct {
        enum dtype dtype;
        uint32_t layer_bytes; /* bytes of a block: keys and values of 16 tokens of 256 */
    } dtypes[] = {{DTYPE_F32, 4 * 16 * 256 * 2},
                  {DTYPE_F16, LAYER_BLOCK},
                  {DTYPE_BF16, LAYER_BLOCK},
                  {DTYPE_F8_E4M3, (256 + 4) * 16 * 2},
                  {DTYPE_I8, (256 + 4) * 16 * 2}};
    const struct ops ops = {
        .memory.alloc = fake_alloc, .memory.release = fake_release, .memory.copy = fake_copy};
    struct device d = {&ops};
    struct model_config c = config(true);
    struct program *p;
    struct kv_store *store;
    struct error err = {0};
    struct kv_group g[PROGRAM_MAX_KV_GROUPS];
    assert_int_equal(program_build(&c,
                                   &(struct program_setup){
                                       .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                                   &p, &err),
                     STATUS_OK);
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const struct kv_shape s = {.dtype = dtypes[i].dtype,
                                   .block_tokens = 16,
                                   .max_model_len = 1024,
                                   .n_blocks = N_BLOCKS,
                                   .available_bytes = 1u << 30};
        assert_int_equal(kv_store_size(p, &s, g, &err), STATUS_OK);
        assert_int_equal(g[1].bytes_per_block, 3 * dtypes[i].layer_bytes);
        assert_int_equal(kv_store_new(p, &d, dtypes[i].dtype, g, &store, &err), STATUS_OK);
        check_layout(store, p, by_layers, dtypes[i].layer_bytes);
        fill_or_check(store, c.n_layers, false);
        fill_or_check(store, c.n_layers, true);
        check_copy(store, p);
        kv_store_free(store);
    }
    program_free(p);
}

static void test_nothing_overlaps(void **state)
{
    static const char *const layouts[] = {NULL, "block", "layer"};
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        (void)unsetenv("COX_KV_LAYOUT");
        if (layouts[i])
            assert_int_equal(setenv("COX_KV_LAYOUT", layouts[i], 1), 0);
        check_nothing_overlaps(layouts[i]);
    }
    (void)unsetenv("COX_KV_LAYOUT");
}

static void test_unknown_layout(void **state)
{
    const struct ops ops = {.memory.alloc = fake_alloc, .memory.release = fake_release};
    struct device d = {&ops};
    struct model_config c = config(true);
    const struct kv_shape s = {.dtype = DTYPE_F16,
                               .block_tokens = 16,
                               .max_model_len = 1024,
                               .n_blocks = N_BLOCKS,
                               .available_bytes = 1u << 30};
    struct kv_group g[PROGRAM_MAX_KV_GROUPS];
    struct kv_store *store;
    struct program *p;
    struct error err = {0};
    assert_int_equal(program_build(&c,
                                   &(struct program_setup){
                                       .tp = 1, .rank = 0, .max_model_len = 1024, .inner_unit = 16},
                                   &p, &err),
                     STATUS_OK);
    assert_int_equal(kv_store_size(p, &s, g, &err), STATUS_OK);
    assert_int_equal(setenv("COX_KV_LAYOUT", "layers", 1), 0);
    assert_int_equal(kv_store_new(p, &d, DTYPE_F16, g, &store, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "\"layers\""));
    (void)unsetenv("COX_KV_LAYOUT");
    program_free(p);
}

static void *no_alloc(struct device *d, uint64_t n)
{
    return NULL;
}

/* The advice in the error depends on whether the memory is on the host or on a GPU. */
static void test_no_memory_of_a_device(void **state)
{
    static const struct kv_group groups[PROGRAM_MAX_KV_GROUPS] = {
        {.n_blocks = 2, .bytes_per_block = 1 << 20}};
    const struct program p = {.n_kv_groups = 1};
    for (int on_host = 0; on_host < 2; on_host++) {
        const struct ops ops = {.memory.alloc = no_alloc, .on_host = on_host};
        struct device d = {&ops};
        struct kv_store *store;
        struct error err;
        assert_int_equal(kv_store_new(&p, &d, DTYPE_F16, groups, &store, &err), STATUS_NO_MEMORY);
        assert_non_null(strstr(err.text, on_host ? "ulimit" : "--gpu-memory-utilization"));
        assert_non_null(strstr(err.text, "2.0 MiB"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes), cmocka_unit_test(test_groups),
                                       cmocka_unit_test(test_nothing_overlaps),
                                       cmocka_unit_test(test_unknown_layout),
                                       cmocka_unit_test(test_no_memory_of_a_device)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
