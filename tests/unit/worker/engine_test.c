/* A tiny llama over one, two and four ranks of this process: what the parts give together, how they
 * change places, and how a rank ends whose peers do not answer. */
#include "worker/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/base/random.h"
#include "tests/golden/golden_ranks.c"
#include "tests/unit/model/put_file.c"

enum { VOCAB = 100, HIDDEN = 64, N_ROWS = 40, N_SAMPLED = 3, BLOCK = 16, N_BLOCKS = 4 };

/* Layers are filled in; k 0: a vector. */
static const struct {
    const char *name;
    uint32_t n, k;
} tensors[] = {
    {"model.embed_tokens.weight", VOCAB, HIDDEN},
    {"lm_head.weight", VOCAB, HIDDEN},
    {"model.norm.weight", HIDDEN, 0},
    {"model.layers.%u.input_layernorm.weight", HIDDEN, 0},
    {"model.layers.%u.post_attention_layernorm.weight", HIDDEN, 0},
    {"model.layers.%u.self_attn.q_proj.weight", 64, HIDDEN},
    {"model.layers.%u.self_attn.k_proj.weight", 32, HIDDEN},
    {"model.layers.%u.self_attn.v_proj.weight", 32, HIDDEN},
    {"model.layers.%u.self_attn.o_proj.weight", HIDDEN, 64},
    {"model.layers.%u.mlp.gate_proj.weight", 128, HIDDEN},
    {"model.layers.%u.mlp.up_proj.weight", 128, HIDDEN},
    {"model.layers.%u.mlp.down_proj.weight", HIDDEN, 128},
};
enum { N_TENSORS = sizeof tensors / sizeof tensors[0] };

static char folder[] = "/tmp/cox-engine-XXXXXX";
static _Atomic uint64_t progress;
static _Atomic bool interrupt;

static void add_tensor(struct strbuf *header, struct strbuf *data, uint32_t i, uint32_t layer,
                       struct rng *rng)
{
    char name[TENSOR_NAME_MAX], shape[32];
    uint32_t n = tensors[i].n, k = tensors[i].k;
    size_t begin = data->len;
    const struct tensor_name tn = {.hf = tensors[i].name};
    tensor_name_format(&tn, MODEL_HF, layer, name);
    for (uint32_t e = 0; e < n * (k ? k : 1); e++) {
        float v = (float)rng_below(rng, 2001) / 1000 - 1;
        v = k ? v * 0.2f : 1 + v / 4;
        strbuf_append(data, &v, sizeof v);
    }
    snprintf(shape, sizeof shape, k ? "%u,%u" : "%u", n, k);
    strbuf_printf(header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
                  header->len ? "," : "{", name, shape, begin, data->len);
}

static void write_model(uint64_t seed)
{
    struct strbuf header, data, file;
    struct rng rng = {seed};
    strbuf_init(&header, 0);
    strbuf_init(&data, 0);
    strbuf_init(&file, 0);
    for (uint32_t layer = 0; layer < 2; layer++)
        for (uint32_t i = 0; i < N_TENSORS; i++)
            if (layer == 0 || strstr(tensors[i].name, "%u"))
                add_tensor(&header, &data, i, layer, &rng);
    strbuf_append_c(&header, "}");
    uint64_t n = header.len;
    strbuf_append(&file, &n, sizeof n);
    strbuf_append(&file, header.ptr, header.len);
    strbuf_append(&file, data.ptr, data.len);
    put_file(folder, "model.safetensors", strbuf_str(&file));
    put_file(folder, "config.json",
             str_from("{\"model_type\":\"llama\",\"hidden_size\":64,\"num_attention_heads\":4,"
                      "\"num_key_value_heads\":2,\"num_hidden_layers\":2,\"intermediate_size\":128,"
                      "\"vocab_size\":100,\"max_position_embeddings\":64,\"rms_norm_eps\":1e-5,"
                      "\"hidden_act\":\"silu\",\"rope_theta\":10000}"));
    strbuf_fini(&header);
    strbuf_fini(&data);
    strbuf_fini(&file);
}

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    write_model(7);
    return 0;
}

static int remove_folder(void **state)
{
    char path[64];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    (void)unlink(path);
    snprintf(path, sizeof path, "%s/config.json", folder);
    (void)unlink(path);
    return rmdir(folder);
}

static struct engine_setup setup_of(uint32_t tp)
{
    return (struct engine_setup){.model = folder,
                                 .tp = tp,
                                 .n_threads = 1,
                                 .isa_level = -1,
                                 .block_tokens = BLOCK,
                                 .pass_rows = N_ROWS,
                                 .n_kv_blocks = N_BLOCKS,
                                 .progress = &progress,
                                 .interrupt = &interrupt};
}

/* One sequence's rows, with ids of every rank's part of the vocabulary. */
static struct row_batch rows_of_a_sequence(void)
{
    static uint32_t ids[N_ROWS], positions[N_ROWS];
    static const uint32_t blocks[N_BLOCKS] = {2, 0, 3, 1};
    static struct kv_row rows[N_ROWS];
    for (uint32_t i = 0; i < N_ROWS; i++) {
        ids[i] = i * 37 % VOCAB;
        positions[i] = i;
        rows[i] = (struct kv_row){.blocks = blocks, .position = i};
    }
    return (struct row_batch){
        .n_rows = N_ROWS, .ids = ids, .positions = positions, .kv_rows = {rows, rows}};
}

struct answer {
    float logits[N_SAMPLED][VOCAB];
};

static void ask(struct golden_ranks *g, struct answer *a)
{
    static const uint32_t sampled[N_SAMPLED] = {N_ROWS - 1, 0, 17};
    struct error err = {0};
    struct row_batch b = rows_of_a_sequence();
    float *at;
    if (golden_ranks_forward(g, &b, &err) != STATUS_OK ||
        golden_ranks_logits(g, sampled, N_SAMPLED, &at, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    memcpy(a->logits, at, sizeof a->logits);
}

static struct golden_ranks *open_ranks(uint32_t tp, bool sockets)
{
    struct golden_ranks *g;
    struct error err = {0};
    const struct engine_setup s = setup_of(tp);
    if (golden_ranks_open(&s, sockets, &g, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return g;
}

static void test_ranks_say_what_one_says(void **state)
{
    static struct answer one, two[2], four;
    struct golden_ranks *g = open_ranks(1, false);
    ask(g, &one);
    golden_ranks_close(g);
    for (int sockets = 0; sockets < 2; sockets++) {
        g = open_ranks(2, sockets);
        ask(g, &two[sockets]);
        golden_ranks_close(g);
    }
    g = open_ranks(4, false); /* more ranks than KV heads */
    ask(g, &four);
    golden_ranks_close(g);
    assert_memory_equal(&two[0], &two[1], sizeof two[0]);
    double largest = 0;
    for (uint32_t i = 0; i < N_SAMPLED; i++)
        for (uint32_t j = 0; j < VOCAB; j++) {
            double want = (double)one.logits[i][j];
            largest = fmax(largest, fabs(want));
            assert_true(fabs((double)two[0].logits[i][j] - want) < 1e-4);
            assert_true(fabs((double)four.logits[i][j] - want) < 1e-4);
        }
    assert_true(largest > 0.5); /* they say something */
}

/* What differs between ranks is the vocabulary's part; the KV cache must not. */
static void test_sizes(void **state)
{
    struct golden_ranks *g = open_ranks(4, false);
    static const uint32_t parts[] = {32, 32, 32, 4};
    const struct engine *first = golden_ranks_engine(g, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const struct engine *e = golden_ranks_engine(g, i);
        uint64_t width = i == 0 ? VOCAB : parts[i];
        assert_int_equal(program_vocab_part(e->program, i).n, parts[i]);
        assert_int_equal(first->activation_bytes - e->activation_bytes,
                         RUNNER_LOGITS_ROWS * sizeof(float) * (VOCAB - width));
        assert_memory_equal(e->kv_groups, first->kv_groups, sizeof e->kv_groups);
        assert_int_equal(e->kv_bytes, first->kv_bytes);
        /* panels of 16 outputs, embedding and head */
        assert_int_equal(first->weights_bytes - e->weights_bytes,
                         i == 3 ? 2 * 16 * HIDDEN * sizeof(float) : 0);
    }
    golden_ranks_close(g);
}

static void test_ranks_change_places(void **state)
{
    static struct answer first, other;
    struct error err = {0};
    struct golden_ranks *g = open_ranks(2, false);
    ask(g, &first);
    for (uint32_t i = 0; i < 4; i++) { /* there, back, there, and where it is already */
        if (golden_ranks_turn(g, i < 3 ? (i + 1) % 2 : 1, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        memset(&other, 0, sizeof other);
        ask(g, &other);
        assert_memory_equal(&first, &other, sizeof first);
    }
    /* a rank that is none of the group's changes nothing */
    assert_int_equal(engine_take_rank(golden_ranks_engine(g, 0), 2, &err), STATUS_INVALID);
    ask(g, &other);
    assert_memory_equal(&first, &other, sizeof first);
    golden_ranks_close(g);
}

static void test_files_that_changed(void **state)
{
    static struct answer first, other;
    struct error err = {0};
    struct golden_ranks *g = open_ranks(2, false);
    struct engine *e = golden_ranks_engine(g, 1);
    ask(g, &first);
    write_model(8);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(engine_take_rank(e, 0, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "changed since"));
        assert_non_null(strstr(err.text, folder));
        assert_true(!e->program && !e->runner && !e->files && !e->loaded.memory);
    }
    write_model(7);
    assert_int_equal(golden_ranks_turn(g, 0, &err), STATUS_OK);
    ask(g, &other);
    assert_memory_equal(&first, &other, sizeof first);
    golden_ranks_close(g);
}

/* Numbers of a shard that is not what the communicator takes it for would look like any others. */
static void test_another_rank_than_joined(void **state)
{
    struct error err = {0};
    struct row_batch b = rows_of_a_sequence();
    float *logits = NULL;
    const uint32_t row = 0;
    struct golden_ranks *g = open_ranks(2, false);
    struct engine *e = golden_ranks_engine(g, 1);
    assert_int_equal(engine_take_rank(e, 0, &err), STATUS_OK);
    assert_int_equal(runner_forward(e->runner, &b, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the shard is rank 0 of 2, the communicator rank 1 of 2");
    assert_int_equal(runner_logits(e->runner, &row, 1, &logits, &err), STATUS_INVALID);
    assert_null(logits);
    comm_leave(golden_ranks_comm(g, 0));
    assert_int_equal(runner_forward(golden_ranks_engine(g, 0)->runner, &b, &err), STATUS_INVALID);
    assert_string_equal(err.text, "the shard is rank 0 of 2, the communicator rank 0 of 1");
    golden_ranks_close(g);
}

static void test_peers_that_do_not_answer(void **state)
{
    struct error err = {0};
    struct row_batch b = rows_of_a_sequence();
    struct golden_ranks *g = open_ranks(2, false);
    struct runner *r = golden_ranks_engine(g, 0)->runner;
    comm_interrupt(golden_ranks_comm(g, 0));
    assert_int_equal(runner_forward(r, &b, &err), STATUS_CLOSED);
    assert_ptr_equal(strstr(err.text, "embedding: "), err.text);
    assert_int_equal(golden_ranks_turn(g, 0, &err), STATUS_OK);
    r = golden_ranks_engine(g, 0)->runner;
    comm_leave(golden_ranks_comm(g, 1));
    assert_int_equal(runner_forward(r, &b, &err), STATUS_IO);
    assert_ptr_equal(strstr(err.text, "embedding: rank 1 "), err.text);
    assert_int_equal(golden_ranks_turn(g, 0, &err), STATUS_OK);
    atomic_store(&interrupt, true); /* on both: between two operators, after the embedding's sum */
    assert_int_equal(golden_ranks_forward(g, &b, &err), STATUS_CLOSED);
    assert_string_equal(err.text, "interrupted");
    atomic_store(&interrupt, false);
    golden_ranks_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_say_what_one_says),
                                       cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_ranks_change_places),
                                       cmocka_unit_test(test_files_that_changed),
                                       cmocka_unit_test(test_another_rank_than_joined),
                                       cmocka_unit_test(test_peers_that_do_not_answer)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
