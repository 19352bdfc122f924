/* Tests the engine with a tiny llama over one, two and four ranks of this process, in one or two
 * stages. The tests open ranks by golden_ranks, run the rows of a sequence and compare logits,
 * sizes of memory and errors. Cases: ranks that change places, peers that do not answer, a
 * smaller TP than at the start, offers of blocks, a full device. Invariants: the KV cache has
 * the same size on all ranks, and no rank exceeds its memory. Each engine belongs to one thread
 * at a time. */
#include "worker/engine/engine.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "kernels/cpu/cpu.h"
#include "tests/golden/golden_file.c"
#include "tests/golden/golden_gpus.c"
#include "tests/golden/golden_ranks.c"
#include "tests/unit/worker/tiny_model.c"
#include "worker/engine/shapes.h"
#include "worker/runner/logits.h"

enum { N_ROWS = 40, N_SAMPLED = 3, BLOCK = 16, N_BLOCKS = 4 };

static char folder[] = "/tmp/cox-engine-XXXXXX";
static _Atomic uint64_t progress;
static _Atomic bool interrupt;

static int make_folder(void **state)
{
    if (!mkdtemp(folder))
        return -1;
    tiny_model_write(folder, 7);
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

static struct engine_setup setup_of(uint32_t tp, uint32_t pp)
{
    return (struct engine_setup){.model = folder,
                                 .tp = tp,
                                 .pp = pp,
                                 .n_threads = 1,
                                 .isa_level = -1,
                                 .block_tokens = BLOCK,
                                 .pass_rows = N_ROWS,
                                 .n_kv_blocks = N_BLOCKS,
                                 .progress = &progress,
                                 .interrupt = &interrupt};
}

/* Returns the rows of one sequence, with ids from each rank's part of the vocabulary. */
static struct row_batch rows_of_a_sequence(void)
{
    static uint32_t ids[N_ROWS], positions[N_ROWS];
    static const uint32_t blocks[N_BLOCKS] = {2, 0, 3, 1};
    static struct kv_row rows[N_ROWS];
    for (uint32_t i = 0; i < N_ROWS; i++) {
        ids[i] = i * 37 % TINY_VOCAB;
        positions[i] = i;
        rows[i] = (struct kv_row){.blocks = blocks, .position = i};
    }
    return (struct row_batch){
        .n_rows = N_ROWS, .ids = ids, .positions = positions, .kv_rows = {rows, rows}};
}

struct answer {
    float logits[N_SAMPLED][TINY_VOCAB];
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

static struct golden_ranks *open_stages(uint32_t tp, uint32_t pp, bool sockets)
{
    struct golden_ranks *g;
    struct error err = {0};
    const struct engine_setup s = setup_of(tp, pp);
    if (golden_ranks_open(&s, sockets, &g, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return g;
}

static struct golden_ranks *open_ranks(uint32_t tp, bool sockets)
{
    return open_stages(tp, 1, sockets);
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
    g = open_ranks(4, false); /* there are more ranks than KV heads */
    ask(g, &four);
    golden_ranks_close(g);
    assert_memory_equal(&two[0], &two[1], sizeof two[0]);
    double largest = 0;
    for (uint32_t i = 0; i < N_SAMPLED; i++)
        for (uint32_t j = 0; j < TINY_VOCAB; j++) {
            double want = (double)one.logits[i][j];
            largest = fmax(largest, fabs(want));
            assert_true(fabs((double)two[0].logits[i][j] - want) < 1e-4);
            assert_true(fabs((double)four.logits[i][j] - want) < 1e-4);
        }
    assert_true(largest > 0.5); /* the logits are large enough to compare */
}

/* Stages use the same operators in the same order, so their logits are equal bit for bit. */
static void test_stages_say_what_one_says(void **state)
{
    static struct answer whole, staged;
    for (uint32_t tp = 1; tp <= 2; tp++) {
        struct golden_ranks *g = open_ranks(tp, false);
        ask(g, &whole);
        golden_ranks_close(g);
        for (int sockets = 0; sockets < 2; sockets++) {
            g = open_stages(tp, TINY_LAYERS, sockets);
            ask(g, &staged);
            golden_ranks_close(g);
            assert_memory_equal(&whole, &staged, sizeof whole);
        }
    }
}

/* Embedding, head and logits take memory only in the stages that need them. A layer is in one
 * stage. */
static void test_sizes_of_stages(void **state)
{
    struct golden_ranks *g = open_ranks(1, false), *h = open_stages(1, TINY_LAYERS, false);
    const struct engine *whole = golden_ranks_engine(g, 0);
    uint64_t n_weights = 0, n_kv = 0;
    for (uint32_t i = 0; i < TINY_LAYERS; i++) {
        const struct engine *e = golden_ranks_engine(h, i);
        n_weights += e->weights_bytes;
        n_kv += e->kv_bytes;
        assert_int_equal(e->kv_groups[0].n_blocks, N_BLOCKS);
        assert_int_equal(e->kv_groups[0].bytes_per_block,
                         whole->kv_groups[0].bytes_per_block / TINY_LAYERS);
        assert_int_equal(whole->activation_bytes - e->activation_bytes,
                         i + 1 == TINY_LAYERS ? 0
                                              : sizeof(float) * (RUNNER_LOGITS_ROWS * TINY_VOCAB +
                                                                 RUNNER_BEST_ROWS * TINY_HIDDEN));
        assert_true(e->comm_bytes > 0);
    }
    assert_int_equal(n_weights, whole->weights_bytes);
    assert_int_equal(n_kv, whole->kv_bytes);
    golden_ranks_close(g);
    golden_ranks_close(h);
}

enum { TOLD = 1 << 20 };
static uint64_t told_bytes(uint32_t tp, uint32_t pp)
{
    return TOLD;
}

/* Memory of the communicator counts once in the table, whether the memory is already allocated
 * or not. The KV cache takes all of the rest. */
static void test_what_is_held_is_not_taken_twice(void **state)
{
    enum { HELD = 640 << 10 };
    uint64_t most = 64ull << 20, n_blocks[2];
    for (int i = 0; i < 2; i++) {
        struct engine_setup s = setup_of(2, 1);
        struct engine *e;
        struct error err = {0};
        s.n_kv_blocks = 0;
        s.kv_takes_all = true;
        s.reserved_bytes = 1 << 20;
        s.told_bytes = told_bytes;
        s.told_held_bytes = i == 0 ? 0 : HELD;
        if (engine_measure(&s, &e, &err) != STATUS_OK ||
            engine_size_kv(e, &(struct engine_beside){0}, most - s.told_held_bytes, &err) !=
                STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(e->comm_bytes, TOLD);
        uint64_t left = most - e->weights_bytes - e->activation_bytes - TOLD - s.reserved_bytes;
        n_blocks[i] = e->kv_groups[0].n_blocks;
        assert_int_equal(n_blocks[i], left / e->kv_groups[0].bytes_per_block);
        engine_close(e);
    }
    assert_int_equal(n_blocks[0], n_blocks[1]);
}

/* A stage takes over the other stage's layers, with a KV cache for them. */
static void test_stages_change_places(void **state)
{
    static struct answer first, other;
    struct error err = {0};
    struct golden_ranks *g = open_stages(2, 2, false);
    ask(g, &first);
    for (uint32_t i = 0; i < 3; i++) {
        if (golden_ranks_turn_stages(g, (i + 1) % 2, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        memset(&other, 0, sizeof other);
        ask(g, &other);
        assert_memory_equal(&first, &other, sizeof first);
    }
    assert_int_equal(engine_take_rank(golden_ranks_engine(g, 0), 2, 0, 2, &err), STATUS_INVALID);
    golden_ranks_close(g);
}

/* The error of an interrupted or failed wait names the awaited data and the awaited rank. */
static void test_stages_that_do_not_answer(void **state)
{
    struct error err = {0};
    struct row_batch b = rows_of_a_sequence();
    struct golden_ranks *g = open_stages(1, 2, false);
    struct runner *last = golden_ranks_engine(g, 1)->runner;
    comm_interrupt(golden_ranks_comm(g, 1));
    assert_int_equal(runner_forward(last, &b, &err), STATUS_CLOSED);
    assert_ptr_equal(strstr(err.text, "receiving the hidden states of stage 0: "), err.text);
    assert_int_equal(golden_ranks_turn(g, 0, &err), STATUS_OK);
    last = golden_ranks_engine(g, 1)->runner;
    comm_leave(golden_ranks_comm(g, 0));
    assert_int_equal(runner_forward(last, &b, &err), STATUS_IO);
    assert_ptr_equal(strstr(err.text, "receiving the hidden states of stage 0: rank 0 at "),
                     err.text);
    struct runner *first = golden_ranks_engine(g, 0)->runner;
    assert_int_equal(runner_forward(first, &b, &err), STATUS_INVALID); /* this rank has left */
    assert_non_null(strstr(err.text, "stage 0 of 2"));
    golden_ranks_close(g);
}

static void test_stages_that_cannot_be(void **state)
{
    struct golden_ranks *g;
    struct error err = {0};
    const struct engine_setup s = setup_of(1, TINY_LAYERS + 1);
    assert_int_equal(golden_ranks_open(&s, false, &g, &err), STATUS_UNSUPPORTED);
    assert_non_null(strstr(err.text, "--pp 3 is too large: the model has 2 layers"));
}

/* Ranks differ only in their part of the vocabulary. Their KV caches have the same size. */
static void test_sizes(void **state)
{
    struct golden_ranks *g = open_ranks(4, false);
    static const uint32_t parts[] = {32, 32, 32, 4};
    const struct engine *first = golden_ranks_engine(g, 0);
    for (uint32_t i = 0; i < 4; i++) {
        const struct engine *e = golden_ranks_engine(g, i);
        uint64_t width = i == 0 ? TINY_VOCAB : parts[i];
        assert_int_equal(program_vocab_part(e->program, i).n, parts[i]);
        assert_int_equal(first->activation_bytes - e->activation_bytes,
                         RUNNER_LOGITS_ROWS * sizeof(float) * (TINY_VOCAB - width));
        assert_memory_equal(e->kv_groups, first->kv_groups, sizeof e->kv_groups);
        assert_int_equal(e->kv_bytes, first->kv_bytes);
        /* Embedding and head have panels of 16 outputs. */
        assert_int_equal(first->weights_bytes - e->weights_bytes,
                         i == 3 ? 2 * 16 * TINY_HIDDEN * sizeof(float) : 0);
    }
    golden_ranks_close(g);
}

static void test_ranks_change_places(void **state)
{
    static struct answer first, other;
    struct error err = {0};
    struct golden_ranks *g = open_ranks(2, false);
    ask(g, &first);
    /* the ranks swap places, swap back, swap again, and then keep their places */
    for (uint32_t i = 0; i < 4; i++) {
        if (golden_ranks_turn(g, i < 3 ? (i + 1) % 2 : 1, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        memset(&other, 0, sizeof other);
        ask(g, &other);
        assert_memory_equal(&first, &other, sizeof first);
    }
    /* A rank number outside the group changes nothing. */
    assert_int_equal(engine_take_rank(golden_ranks_engine(g, 0), 2, 2, 0, &err), STATUS_INVALID);
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
    tiny_model_write(folder, 8);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(engine_take_rank(e, 2, 0, 0, &err), STATUS_INVALID);
        assert_non_null(strstr(err.text, "changed after this worker started"));
        assert_non_null(strstr(err.text, folder));
        assert_true(!e->program && !e->runner && !e->files && !e->loaded.memory);
    }
    tiny_model_write(folder, 7);
    assert_int_equal(golden_ranks_turn(g, 0, &err), STATUS_OK);
    ask(g, &other);
    assert_memory_equal(&first, &other, sizeof first);
    golden_ranks_close(g);
}

static void wake(struct engine *e, uint32_t rank)
{
    struct error err = {0};
    enum status s = e->sleep_level == SLEEP_LEVEL_WEIGHTS ? engine_take_rank(e, 2, rank, 0, &err)
                                                          : engine_wake(e, &err);
    assert_int_equal(s, STATUS_OK);
    assert_int_equal(e->sleep_level, SLEEP_LEVEL_AWAKE);
}

/* Ranks answer as before after each level, and after a deeper level in their sleep. */
static void sleep_and_wake(struct golden_ranks *g)
{
    static const enum sleep_level orders[][2] = {{SLEEP_LEVEL_KV, SLEEP_LEVEL_KV},
                                                 {SLEEP_LEVEL_WEIGHTS, SLEEP_LEVEL_KV},
                                                 {SLEEP_LEVEL_KV, SLEEP_LEVEL_WEIGHTS}};
    static struct answer first, other;
    struct error err = {0};
    ask(g, &first);
    for (size_t k = 0; k < sizeof orders / sizeof *orders; k++) {
        for (uint32_t i = 0; i < 2; i++) {
            struct engine *e = golden_ranks_engine(g, i);
            assert_int_equal(engine_sleep(e, orders[k][0], &err), STATUS_OK);
            assert_int_equal(engine_sleep(e, orders[k][1], &err), STATUS_OK);
            assert_int_equal(e->sleep_level, k > 0 ? SLEEP_LEVEL_WEIGHTS : SLEEP_LEVEL_KV);
            assert_true(k == 0 || (!e->program && !e->runner && !e->kv && !e->loaded.memory));
        }
        for (uint32_t i = 0; i < 2; i++)
            wake(golden_ranks_engine(g, i), i);
        ask(g, &other);
        assert_memory_equal(&first, &other, sizeof first);
    }
}

static void test_sleep(void **state)
{
    struct golden_ranks *g = open_ranks(2, false);
    sleep_and_wake(g);
    golden_ranks_close(g);
}

static uint32_t n_parked;
static bool host_is_full;

static void *alloc_host(struct device *d, uint64_t n_bytes)
{
    if (host_is_full)
        return NULL;
    n_parked++;
    return malloc(n_bytes);
}

static void release_host(struct device *d, void *ptr)
{
    n_parked--;
    free(ptr);
}

/* Stands for a GPU: the weights are copied to the host, and come back to another address. */
static void test_sleep_of_a_device_with_memory(void **state)
{
    struct golden_ranks *g = open_ranks(2, false);
    const struct ops *own = golden_ranks_engine(g, 0)->device->ops;
    struct error err = {0};
    struct ops ops = *own;
    ops.memory.discard = NULL;
    ops.memory.alloc_host = alloc_host;
    ops.memory.release_host = release_host;
    for (uint32_t i = 0; i < 2; i++)
        golden_ranks_engine(g, i)->device->ops = &ops;
    sleep_and_wake(g);
    struct engine *e = golden_ranks_engine(g, 1);
    assert_int_equal(engine_sleep(e, SLEEP_LEVEL_KV, &err), STATUS_OK);
    assert_true(n_parked == 1 && !e->loaded.memory && !e->runner && !e->kv);
    wake(e, 1);
    assert_int_equal(n_parked, 0);
    host_is_full = true;
    assert_int_equal(engine_sleep(e, SLEEP_LEVEL_KV, &err), STATUS_NO_MEMORY);
    assert_true(e->sleep_level == SLEEP_LEVEL_WEIGHTS && !e->program);
    wake(e, 1);
    golden_ranks_close(g);
}

/* A rank with another shard than the communicator expects is refused. Its numbers would look
 * valid. */
static void test_another_rank_than_joined(void **state)
{
    struct error err = {0};
    struct row_batch b = rows_of_a_sequence();
    float *logits = NULL;
    const uint32_t row = 0;
    struct golden_ranks *g = open_ranks(2, false);
    struct engine *e = golden_ranks_engine(g, 1);
    assert_int_equal(engine_take_rank(e, 2, 0, 0, &err), STATUS_OK);
    assert_int_equal(runner_forward(e->runner, &b, &err), STATUS_INVALID);
    assert_string_equal(
        err.text,
        "the shard is for rank 0 of 2, but the communicator has rank 1 of 2. Report this bug");
    assert_int_equal(runner_logits(e->runner, &row, 1, &logits, &err), STATUS_INVALID);
    assert_null(logits);
    comm_leave(golden_ranks_comm(g, 0));
    assert_int_equal(runner_forward(golden_ranks_engine(g, 0)->runner, &b, &err), STATUS_INVALID);
    assert_string_equal(
        err.text,
        "the shard is for rank 0 of 2, but the communicator has rank 0 of 1. Report this bug");
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
    atomic_store(&interrupt, true); /* both ranks are interrupted after the sum of the embedding */
    assert_int_equal(golden_ranks_forward(g, &b, &err), STATUS_CLOSED);
    assert_string_equal(err.text, "interrupted");
    atomic_store(&interrupt, false);
    golden_ranks_close(g);
}

/* ---- fewer ranks than at the start ---- */

enum { ROOMY_BLOCKS = 200 };

static uint64_t taken_bytes(const struct engine *e)
{
    return e->weights_bytes + e->activation_bytes + e->comm_bytes + e->lora_bytes + e->kv_bytes;
}

static void must_reshape(struct golden_ranks *g, uint32_t tp)
{
    struct error err = {0};
    if (golden_ranks_reshape(g, tp, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

/* Four ranks with two KV heads, in one and in two stages, shrink and grow again. Their logits
 * equal those of an engine opened with that TP, bit for bit. They never take more memory than at
 * the start. */
static void test_fewer_ranks_and_back(void **state)
{
    static const uint32_t way[] = {2, 1, 4, 1, 2, 4};
    static struct answer want[5], got;
    for (uint32_t pp = 1; pp <= 2; pp++) {
        for (uint32_t tp = 1; tp <= 4; tp *= 2) {
            struct golden_ranks *own = open_stages(tp, pp, false);
            ask(own, &want[tp]);
            golden_ranks_close(own);
        }
        struct engine_setup s = setup_of(4, pp);
        struct golden_ranks *g;
        struct error err = {0};
        uint64_t most[8];
        s.is_elastic = true;
        s.n_kv_blocks = ROOMY_BLOCKS;
        if (golden_ranks_open(&s, false, &g, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        for (uint32_t i = 0; i < 4 * pp; i++)
            most[i] = taken_bytes(golden_ranks_engine(g, i));
        for (uint32_t w = 0; w < sizeof way / sizeof way[0]; w++) {
            must_reshape(g, way[w]);
            ask(g, &got);
            assert_memory_equal(&got, &want[way[w]], sizeof got);
            for (uint32_t i = 0; i < way[w] * pp; i++) {
                const struct engine *e = golden_ranks_engine(g, i);
                assert_int_equal(e->tp, way[w]);
                assert_true(taken_bytes(e) <= most[i]);
                assert_true(way[w] < 4 || e->kv_groups[0].n_blocks == ROOMY_BLOCKS);
            }
        }
        golden_ranks_close(g);
    }
}

static void test_a_tp_that_is_not_offered(void **state)
{
    static struct answer first, other;
    struct error err = {0};
    struct golden_ranks *g = open_ranks(2, false);
    ask(g, &first);
    assert_int_equal(engine_take_rank(golden_ranks_engine(g, 0), 1, 0, 0, &err), STATUS_INVALID);
    assert_int_equal(engine_take_rank(golden_ranks_engine(g, 0), 4, 0, 0, &err), STATUS_INVALID);
    assert_int_equal(engine_take_rank(golden_ranks_engine(g, 0), 0, 0, 0, &err), STATUS_INVALID);
    ask(g, &other);
    assert_memory_equal(&first, &other, sizeof first);
    golden_ranks_close(g);
}

enum { TOLD_LITTLE = 16 };
static uint64_t told_little(uint32_t tp, uint32_t pp)
{
    return TOLD_LITTLE;
}

/* Returns the bytes that a rank slot takes with `n_blocks` blocks, without the collectives. */
static uint64_t rank_slot_bytes(uint32_t tp, uint32_t rank, uint32_t n_blocks)
{
    struct engine_setup s = setup_of(tp, 1);
    struct engine *e;
    struct error err = {0};
    s.rank = rank;
    s.n_kv_blocks = n_blocks;
    if (engine_open(&s, &e, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    uint64_t n = taken_bytes(e) - e->comm_bytes;
    engine_close(e);
    return n;
}

/* An offer has as many blocks as fit into the rank slot with the largest need. A TP with fewer
 * blocks than one full-length sequence needs is not offered. The result is the same whether
 * blocks or bytes were configured. */
static void test_what_is_offered(void **state)
{
    enum { LEAST = TINY_LENGTH / BLOCK };
    static const uint32_t blocks[] = {LEAST, 20, 30, 40, 60, 100, 400};
    uint32_t n_none = 0, n_cut = 0;
    for (uint32_t i = 0; i < 2 * sizeof blocks / sizeof blocks[0]; i++) {
        struct engine_setup s = setup_of(4, 1);
        struct engine *e;
        struct error err = {0};
        uint32_t n = blocks[i / 2];
        s.is_elastic = true;
        s.told_bytes = told_little; /* told_little is the same for each number of ranks above one */
        s.n_kv_blocks = i % 2 ? 0 : n;
        s.kv_memory_bytes = i % 2 ? n * 16ull * 8 * 4 * 2 * TINY_LAYERS : 0;
        if (engine_open(&s, &e, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_int_equal(e->shapes[0].tp, 4);
        assert_int_equal(e->shapes[0].n_blocks[0], n);
        uint64_t most = taken_bytes(e);
        for (uint32_t k = 1; k < e->n_shapes; k++) {
            const struct engine_shape *at = &e->shapes[k];
            uint32_t told = at->tp > 1 ? TOLD_LITTLE : 0;
            uint64_t largest = 0, next = 0;
            assert_true(at->tp == 2 || at->tp == 1);
            assert_true(at->tp < e->shapes[k - 1].tp);
            assert_true(at->n_blocks[0] >= LEAST && at->n_blocks[0] <= n);
            /* With two KV heads, four ranks hold one each, as two ranks do. */
            assert_int_equal(at->block_bytes[0],
                             e->kv_groups[0].bytes_per_block * (at->tp == 1 ? 2 : 1));
            for (uint32_t r = 0; r < at->tp; r++) {
                uint64_t now = rank_slot_bytes(at->tp, r, at->n_blocks[0]);
                uint64_t then = rank_slot_bytes(at->tp, r, at->n_blocks[0] + 1);
                largest = now > largest ? now : largest;
                next = then > next ? then : next;
            }
            assert_true(largest + told <= most);
            assert_true(at->n_blocks[0] == n || next + told > most);
            n_cut += at->n_blocks[0] < n;
        }
        n_none += e->n_shapes < 3;
        engine_close(e);
    }
    assert_true(n_none > 0 && n_cut > 0); /* both cases occurred */
}

/* Memory that the process needs for sampling counts in the rank slot that samples. */
static void test_a_rank_slot_that_samples(void **state)
{
    uint32_t n[2];
    for (int i = 0; i < 2; i++) {
        struct engine_setup s = setup_of(2, 1);
        struct engine *e;
        struct error err = {0};
        s.is_elastic = true;
        s.rank = 1;
        s.told_bytes = told_little;
        s.n_kv_blocks = ROOMY_BLOCKS;
        assert_int_equal(engine_measure(&s, &e, &err), STATUS_OK);
        e->sampling_bytes = i ? 40 * kv_store_block_bytes(e->program, &e->kv_shape, 0) : 0;
        assert_int_equal(engine_load(e, &(struct engine_beside){0}, &err), STATUS_OK);
        assert_int_equal(e->n_shapes, 2);
        n[i] = e->shapes[1].n_blocks[0];
        engine_close(e);
    }
    /* 20 blocks of two KV heads take the memory of 40 blocks of one head */
    assert_int_equal(n[0] - n[1], 20);
}

/* The test's device has a fixed number of bytes, like a GPU's share. */
static uint64_t small_limit, small_used;
static const struct ops *small_ops;
static uint64_t small_available(const struct device *d)
{
    return small_limit - small_used;
}
static void *small_alloc(struct device *d, uint64_t n)
{
    void *at = n > small_limit - small_used ? NULL : small_ops->memory.alloc(d, n);
    small_used += at ? n : 0;
    return at;
}
static void small_release(struct device *d, void *at, uint64_t n)
{
    small_ops->memory.release(d, at, n);
    small_used -= at ? n : 0;
}

/* Opens an engine whose KV cache takes all memory that the rank slot leaves. Each rank slot of
 * each TP can still be taken. */
static void take_every_rank_slot(bool is_elastic)
{
    struct engine_setup s = setup_of(4, 1);
    struct engine *e;
    struct error err = {0};
    struct device *d;
    struct ops own;
    assert_int_equal(
        cpu_device_open(&(struct cpu_device_options){.n_threads = 1, .isa_level = -1}, &d, &err),
        STATUS_OK);
    small_ops = d->ops;
    own = *d->ops;
    own.memory.available_bytes = small_available;
    own.memory.alloc = small_alloc;
    own.memory.release = small_release;
    d->ops = &own;
    small_limit = 4 << 20;
    s.device = d;
    s.is_elastic = is_elastic;
    s.rank = 3; /* rank 3 has the smallest shard */
    s.n_kv_blocks = 0;
    s.kv_takes_all = true;
    s.reserved_bytes = 1;
    s.told_bytes = told_little;
    if (engine_open(&s, &e, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(e->n_shapes, is_elastic ? 3 : 1);
    for (uint32_t tp = 4, i = 0; i < (is_elastic ? 5 : 1); tp = i % 2 ? 4 : i < 2 ? 2 : 1, i++)
        for (uint32_t r = 0; r < tp; r++)
            if (engine_take_rank(e, tp, r, 0, &err) != STATUS_OK)
                fail_msg("rank %u of %u: %s", r, tp, err.text);
    engine_close(e);
    assert_int_equal(small_used, 0);
    d->ops = small_ops;
    d->ops->close(d);
}

static void test_every_rank_slot_of_a_full_device(void **state)
{
    take_every_rank_slot(false);
    take_every_rank_slot(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ranks_say_what_one_says),
                                       cmocka_unit_test(test_stages_say_what_one_says),
                                       cmocka_unit_test(test_sizes),
                                       cmocka_unit_test(test_sizes_of_stages),
                                       cmocka_unit_test(test_what_is_held_is_not_taken_twice),
                                       cmocka_unit_test(test_stages_change_places),
                                       cmocka_unit_test(test_stages_that_do_not_answer),
                                       cmocka_unit_test(test_stages_that_cannot_be),
                                       cmocka_unit_test(test_ranks_change_places),
                                       cmocka_unit_test(test_files_that_changed),
                                       cmocka_unit_test(test_sleep),
                                       cmocka_unit_test(test_sleep_of_a_device_with_memory),
                                       cmocka_unit_test(test_another_rank_than_joined),
                                       cmocka_unit_test(test_peers_that_do_not_answer),
                                       cmocka_unit_test(test_fewer_ranks_and_back),
                                       cmocka_unit_test(test_a_tp_that_is_not_offered),
                                       cmocka_unit_test(test_what_is_offered),
                                       cmocka_unit_test(test_a_rank_slot_that_samples),
                                       cmocka_unit_test(test_every_rank_slot_of_a_full_device)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
