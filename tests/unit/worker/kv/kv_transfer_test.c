/* Tests transfers of KV blocks between two ranks of different replicas. Both ranks are in this
 * process, each with a thread and a listener of its own, over loopback. The tests push orders at
 * one side or both and wait for their answers in a loop. Cases: each kind of KV cache, wrong
 * orders, a missing peer, cancels and ends in the middle. Invariants: blocks that are not in an
 * order stay unchanged, and after a cancel no thread writes into the memory. */
#include "worker/kv/transfer.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "worker/comm/comm.h"
#include "worker/kv/chunks.h"
#include "worker/kv/store.h"

enum { MAX_LIST = 2000 };

struct side {
    struct world *w;
    struct kv_transfer *t;
    uint32_t n_done;
    bool again;
    struct msg_kv_transferred done;
    char text[512];
};
struct world {
    struct loop *loop;
    struct side sides[2]; /* [0] is the sender, [1] the receiver */
    struct loop_timer *guard;
    uint32_t want; /* number of answers of both sides to wait for */
    uint8_t id[COMM_ID_BYTES];
};

static void on_done(void *ctx, const struct msg_kv_transferred *m, bool sent, bool again)
{
    struct side *s = ctx;
    assert_int_equal(sent, s == &s->w->sides[0]);
    s->n_done++;
    s->again = again;
    s->done = *m;
    snprintf(s->text, sizeof s->text, STR_FMT, STR_ARG(m->text));
    if (s->w->sides[0].n_done + s->w->sides[1].n_done >= s->w->want)
        loop_stop(s->w->loop);
}

static void on_guard(void *ctx)
{
    fail_msg("30 s without an answer");
}

static void stop_loop(void *ctx)
{
    loop_stop(ctx);
}

/* Waits for n more answers of both sides together. */
static void await(struct world *w, uint32_t n)
{
    w->want = w->sides[0].n_done + w->sides[1].n_done + n;
    w->guard = loop_timer_start(w->loop, 30000, 0, on_guard, w);
    loop_run(w->loop);
    loop_timer_stop(w->guard);
}

static void spend_ms(struct world *w, uint64_t ms)
{
    struct loop_timer *t = loop_timer_start(w->loop, ms, 0, stop_loop, w->loop);
    w->want = UINT32_MAX;
    loop_run(w->loop);
    loop_timer_stop(t);
}

static void open_world(struct world *w, bool no_shared_memory, uint32_t timeout_ms)
{
    struct error err;
    memset(w, 0, sizeof *w);
    assert_int_equal(loop_new(&w->loop, &err), STATUS_OK);
    comm_make_id(w->id);
    for (int i = 0; i < 2; i++) {
        struct side *s = &w->sides[i];
        s->w = w;
        const struct kv_transfer_options o = {.host = "127.0.0.1",
                                              .no_shared_memory = no_shared_memory,
                                              .timeout_ms = timeout_ms,
                                              .on_done = on_done,
                                              .ctx = s};
        if (kv_transfer_start(w->loop, &o, &s->t, &err) != STATUS_OK)
            fail_msg("%s", err.text);
    }
}

static void close_world(struct world *w)
{
    for (int i = 0; i < 2; i++)
        kv_transfer_stop(w->sides[i].t);
    loop_free(w->loop);
}

/* `list` holds the blocks that a test moves. */
struct list {
    uint32_t groups[MAX_LIST], blocks[2][MAX_LIST]; /* blocks[i]: block ids of side i */
    uint32_t n;
};

static enum status push(struct world *w, int i, uint64_t id, const struct list *l,
                        const struct kv_view *v, uint64_t after_step, struct error *err)
{
    const struct msg_kv_transfer m = {.term_epoch = 5ull << 32 | 1,
                                      .id = id,
                                      .sends = i == 0,
                                      .from_address = str_from(kv_transfer_address(w->sides[0].t)),
                                      .to_address = str_from(kv_transfer_address(w->sides[1].t)),
                                      .comm_id = {w->id, sizeof w->id},
                                      .block_groups = {l->groups, l->n},
                                      .blocks = {l->blocks[i], l->n}};
    const struct kv_transfer_bounds b = {.view = v, .after_step = after_step};
    return kv_transfer_push(w->sides[i].t, &m, &b, err);
}

static void push_both(struct world *w, uint64_t id, const struct list *l, const struct kv_view v[2])
{
    struct error err;
    for (int i = 0; i < 2; i++)
        if (push(w, i, id, l, &v[i], 0, &err) != STATUS_OK)
            fail_msg("%s", err.text);
}

static void check_ok(struct world *w, uint64_t id, uint64_t n_bytes)
{
    for (int i = 0; i < 2; i++) {
        const struct side *s = &w->sides[i];
        if (s->done.status != STATUS_OK)
            fail_msg("side %d: %s: %s", i, status_name(s->done.status), s->text);
        assert_true(s->done.id == id && s->done.n_bytes == n_bytes && s->done.took_ns > 0);
        assert_true(s->done.term_epoch == (5ull << 32 | 1));
    }
}

/* ---- caches made by the tests ---- */

struct cache {
    struct kv_view view;
    uint8_t *memory[2];
};

static void cache_open(struct cache *c, const uint64_t bytes[2], uint32_t n_blocks, uint8_t seed)
{
    c->view = (struct kv_view){.n_groups = 2};
    for (uint32_t g = 0; g < 2; g++) {
        c->memory[g] = calloc(n_blocks, bytes[g]);
        for (uint64_t i = 0; i < bytes[g] * n_blocks && i < (8 << 20); i++)
            c->memory[g][i] = (uint8_t)(seed + i * 7 + i / 251 * 13 + g);
        c->view.groups[g] = (struct kv_view_group){
            .pieces = {{c->memory[g], bytes[g]}}, .n_pieces = 1, .n_blocks = n_blocks};
    }
}

static void cache_close(struct cache *c)
{
    free(c->memory[0]);
    free(c->memory[1]);
}

/* Fills in n blocks, half of them in each group. Block ids have gaps at the sender and are in
 * falling order at the receiver. */
static void fill_list(struct list *l, uint32_t n)
{
    l->n = n;
    for (uint32_t i = 0; i < n; i++) {
        l->groups[i] = i >= n / 2;
        l->blocks[0][i] = 2 * i;
        l->blocks[1][i] = 2 * n - 1 - i;
    }
}

static void test_sizes(void **state)
{
    static const struct {
        uint64_t bytes[2];
        uint32_t n;
        bool tcp;
    } cases[] = {{{8, 24}, 999, false}, /* 999 blocks are more than fit into a chunk */
                 {{640, 1}, 33, true},       {{65536, 65535}, 7, false},
                 {{1500001, 4096}, 5, true}, {{1500001, 4096}, 5, false},
                 {{16, 16}, 1, false}};
    static struct list l;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        struct cache c[2];
        uint64_t n_bytes = 0;
        open_world(&w, cases[i].tcp, 0);
        fill_list(&l, cases[i].n);
        for (int k = 0; k < 2; k++)
            cache_open(&c[k], cases[i].bytes, 2 * l.n, (uint8_t)(k * 101));
        const struct kv_view v[2] = {c[0].view, c[1].view};
        for (uint32_t b = 0; b < l.n; b++)
            n_bytes += cases[i].bytes[l.groups[b]];
        push_both(&w, 7, &l, v);
        await(&w, 2);
        check_ok(&w, 7, n_bytes);
        for (uint32_t b = 0; b < l.n; b++) {
            uint64_t n = cases[i].bytes[l.groups[b]];
            assert_memory_equal(c[1].memory[l.groups[b]] + l.blocks[1][b] * n,
                                c[0].memory[l.groups[b]] + l.blocks[0][b] * n, n);
        }
        /* Blocks that are not in the order stay unchanged. Group 0 has the first half of the
         * receiver's blocks. */
        struct cache fresh;
        cache_open(&fresh, cases[i].bytes, 2 * l.n, 101);
        assert_memory_equal(c[1].memory[0], fresh.memory[0], l.n * cases[i].bytes[0]);
        cache_close(&fresh);
        cache_close(&c[0]);
        cache_close(&c[1]);
        close_world(&w);
    }
}

/* ---- a device: enqueued copies are done by sync, and not before ---- */

struct fake_copies {
    struct kv_copies base;
    struct fake_copy {
        void *to;
        const void *from;
        size_t n_bytes;
    } queue[2 * KV_CHUNK_SEGMENTS];
    uint32_t n, n_syncs, fail_at; /* fail_at: number of the copy that fails; 0 = none */
};

static enum status enqueue(struct kv_copies *c, void *to, const void *from, uint64_t n_bytes,
                           struct error *err)
{
    struct fake_copies *f = (struct fake_copies *)c;
    if (f->n == sizeof f->queue / sizeof *f->queue)
        return error_set(err, STATUS_LIMIT, "nobody has synced");
    f->queue[f->n++] = (struct fake_copy){to, from, n_bytes};
    return STATUS_OK;
}

static enum status do_all(struct kv_copies *c, struct error *err)
{
    struct fake_copies *f = (struct fake_copies *)c;
    for (uint32_t i = 0; i < f->n; i++)
        memcpy(f->queue[i].to, f->queue[i].from, f->queue[i].n_bytes);
    f->n = 0;
    if (++f->n_syncs == f->fail_at)
        return error_set(err, STATUS_IO, "the device is lost: a test");
    return STATUS_OK;
}

static void open_copies(struct fake_copies *f, uint32_t fail_at)
{
    *f = (struct fake_copies){.base = {.to_host = enqueue, .to_device = enqueue, .sync = do_all},
                              .fail_at = fail_at};
    for (int i = 0; i < 2; i++)
        f->base.buffers[i] = malloc(KV_CHUNK_BYTES);
}

static void test_devices(void **state)
{
    static const struct {
        uint64_t bytes[2];
        uint32_t n, fail_at[2];
    } cases[] = {{{8, 24}, 999, {0}},        {{4096, 5000}, 600, {0}},
                 {{65536, 300}, 21, {0}},    {{3000001, 70000}, 5, {0}},
                 {{3000001, 16}, 9, {3, 0}}, {{3000001, 16}, 9, {0, 4}}};
    static struct list l;
    static struct fake_copies k[2];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct world w;
        struct cache c[2];
        struct kv_view v[2];
        bool fails = cases[i].fail_at[0] + cases[i].fail_at[1] > 0;
        open_world(&w, false, 0);
        fill_list(&l, cases[i].n);
        for (int s = 0; s < 2; s++) {
            cache_open(&c[s], cases[i].bytes, 2 * l.n, (uint8_t)(s * 101));
            open_copies(&k[s], cases[i].fail_at[s]);
            v[s] = c[s].view;
            v[s].copies = &k[s].base;
        }
        push_both(&w, 7, &l, v);
        await(&w, 2);
        if (fails) {
            assert_int_equal(w.sides[0].done.status, STATUS_IO);
            assert_int_equal(w.sides[1].done.status, STATUS_IO);
        } else {
            check_ok(&w, 7, w.sides[0].done.n_bytes);
        }
        for (uint32_t b = 0; b < l.n && !fails; b++) {
            uint64_t n = cases[i].bytes[l.groups[b]];
            assert_memory_equal(c[1].memory[l.groups[b]] + l.blocks[1][b] * n,
                                c[0].memory[l.groups[b]] + l.blocks[0][b] * n, n);
        }
        for (int s = 0; s < 2; s++) {
            assert_int_equal(k[s].n, 0); /* no copy is enqueued */
            free(k[s].base.buffers[0]);
            free(k[s].base.buffers[1]);
            cache_close(&c[s]);
        }
        close_world(&w);
    }
}

/* ---- caches of real models ---- */

static void *plain_alloc(struct device *d, uint64_t n)
{
    return calloc(1, n);
}
static void plain_release(struct device *d, void *ptr, uint64_t n)
{
    free(ptr);
}

static const struct model_config kinds[] = {
    {.family = "llama",
     .n_layers = 3,
     .hidden = 64,
     .n_heads = 4,
     .n_kv_heads = 2,
     .head_dim = 16,
     .intermediate = 128,
     .vocab_size = 100},
    {.family = "gemma3",
     .n_layers = 7,
     .hidden = 64,
     .n_heads = 4,
     .n_kv_heads = 1,
     .head_dim = 16,
     .intermediate = 128,
     .vocab_size = 100,
     .window = 32,
     .layer_is_window = {1, 1, 1, 1, 1, 0, 1}},
    {.family = "deepseek2",
     .n_layers = 2,
     .hidden = 64,
     .n_heads = 4,
     .n_kv_heads = 1,
     .head_dim = 48,
     .intermediate = 128,
     .vocab_size = 100,
     .mla = {.kv_rank = 32, .nope = 16, .rope = 16, .v = 16}}};

/* Makes the parts of a program that a store needs, with layers grouped as `program_build` does. */
static void make_program(struct program *p, const struct model_config *c)
{
    memset(p, 0, sizeof *p);
    p->config = c;
    p->most_kv_heads = c->n_kv_heads;
    p->layer_end = c->n_layers;
    for (uint32_t l = 0; l < c->n_layers; l++) {
        /* this group is after the windows' group */
        bool own = c->window && !c->layer_is_window[l];
        p->kv_group_of[l] = own;
        p->kv_groups[own].n_layers++;
        p->kv_groups[own].most_layers++;
        p->kv_groups[own].window = own ? 0 : c->window;
        p->n_kv_groups = own + 1u > p->n_kv_groups ? own + 1u : p->n_kv_groups;
    }
}

static void test_kinds_and_dtypes(void **state)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16, DTYPE_F8_E4M3, DTYPE_I8};
    const struct ops ops = {.memory.alloc = plain_alloc, .memory.release = plain_release};
    struct device d = {&ops};
    struct world w;
    struct error err;
    open_world(&w, false, 0);
    for (uint32_t i = 0; i < 3 * 5; i++) {
        struct program *p = malloc(sizeof *p);
        struct kv_store *stores[2];
        struct kv_group g[PROGRAM_MAX_KV_GROUPS];
        struct kv_view v[2] = {0};
        const struct kv_shape s = {.dtype = dtypes[i % 5],
                                   .block_tokens = i % 2 ? 16 : 32,
                                   .max_model_len = 64,
                                   .n_blocks = 9,
                                   .available_bytes = 1u << 30};
        make_program(p, &kinds[i / 5]);
        assert_int_equal(kv_store_size(p, &s, g, &err), STATUS_OK);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(kv_store_new(p, &d, s.dtype, g, &stores[k], &err), STATUS_OK);
            assert_true(kv_store_view(stores[k], &v[k]));
        }
        struct list l = {.n = 0};
        uint64_t n_bytes = 0;
        for (uint32_t b = 0; b < 3 * p->n_kv_groups; b++, l.n++) {
            l.groups[b] = b / 3;
            l.blocks[0][b] = b % 3 * 2;
            l.blocks[1][b] = 8 - b % 3;
            const struct kv_piece *piece = &v[0].groups[b / 3].pieces[0];
            assert_true(piece->block_bytes == g[b / 3].bytes_per_block);
            memset(piece->ptr + l.blocks[0][b] * piece->block_bytes, (int)(b + 1 + i),
                   piece->block_bytes);
            n_bytes += piece->block_bytes;
        }
        push_both(&w, i, &l, v);
        await(&w, 2);
        check_ok(&w, i, n_bytes);
        for (uint32_t b = 0; b < l.n; b++) {
            const struct kv_piece *to = &v[1].groups[b / 3].pieces[0];
            for (uint64_t k = 0; k < to->block_bytes; k++)
                assert_int_equal(to->ptr[l.blocks[1][b] * to->block_bytes + k], b + 1 + i);
        }
        kv_store_free(stores[0]);
        kv_store_free(stores[1]);
        free(p);
    }
    close_world(&w);
}

/* ---- faults ---- */

static const uint64_t small[2] = {4096, 512};

static void test_wrong_orders(void **state)
{
    static struct list l;
    struct world w;
    struct cache c;
    struct error err;
    open_world(&w, false, 0);
    cache_open(&c, small, 20, 0);
    fill_list(&l, 4);
    l.blocks[0][3] = 20;
    assert_int_equal(push(&w, 0, 1, &l, &c.view, 0, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "block 20"));
    fill_list(&l, 4);
    l.groups[3] = 2;
    assert_int_equal(push(&w, 0, 1, &l, &c.view, 0, &err), STATUS_INVALID);
    const struct msg_kv_transfer short_id = {.comm_id = {w.id, 16}, .blocks = {l.blocks[0], 1}};
    assert_int_equal(kv_transfer_push(w.sides[0].t, &short_id,
                                      &(struct kv_transfer_bounds){.view = &c.view}, &err),
                     STATUS_INVALID);
    fill_list(&l, 4); /* these orders wait for a step that is never done */
    for (uint64_t id = 1; id <= KV_TRANSFER_QUEUE_MAX; id++)
        assert_int_equal(push(&w, 0, id, &l, &c.view, 9, &err), STATUS_OK);
    assert_int_equal(push(&w, 0, 99, &l, &c.view, 9, &err), STATUS_LIMIT);
    /* this order is already waiting */
    assert_int_equal(push(&w, 0, 3, &l, &c.view, 9, &err), STATUS_OK);
    cache_close(&c);
    close_world(&w);
}

/* The sides name different blocks, or blocks of other sizes. Neither side reports success. */
static void test_sides_that_differ(void **state)
{
    static const uint64_t other[2] = {4096, 1024};
    static struct list l;
    struct world w;
    struct cache c[2];
    struct error err;
    open_world(&w, false, 0);
    cache_open(&c[0], small, 20, 0);
    cache_open(&c[1], other, 20, 0);
    fill_list(&l, 4);
    assert_int_equal(push(&w, 0, 1, &l, &c[0].view, 0, &err), STATUS_OK);
    assert_int_equal(push(&w, 1, 1, &l, &c[1].view, 0, &err), STATUS_OK);
    await(&w, 2);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(w.sides[i].done.status, STATUS_INVALID);
        assert_non_null(strstr(w.sides[i].text, "bytes in total"));
    }
    cache_close(&c[0]);
    cache_close(&c[1]);
    close_world(&w);
}

/* Only one side gets the order. This side reports a time-out, as sender and as receiver. */
static void test_one_side_missing(void **state)
{
    static struct list l;
    fill_list(&l, 4);
    for (int i = 0; i < 2; i++) {
        struct world w;
        struct cache c;
        struct error err;
        open_world(&w, false, 300);
        cache_open(&c, small, 20, 0);
        assert_int_equal(push(&w, i, 1, &l, &c.view, 0, &err), STATUS_OK);
        await(&w, 1);
        assert_int_equal(w.sides[i].n_done, 1);
        assert_int_equal(w.sides[i].done.status, STATUS_TIMEOUT);
        assert_true(w.sides[i].done.n_bytes == 0);
        assert_non_null(strstr(w.sides[i].text, i == 0 ? "KV blocks to" : "KV blocks from"));
        cache_close(&c);
        close_world(&w);
    }
}

/* The process of the other side has ended. The remaining side is refused at once and reports the
 * error without waiting. */
static void test_other_side_gone(void **state)
{
    static struct list l;
    fill_list(&l, 4);
    for (int i = 0; i < 2; i++) {
        struct world w;
        struct cache c;
        struct error err;
        char addresses[2][64];
        open_world(&w, false, 0);
        cache_open(&c, small, 20, 0);
        for (int k = 0; k < 2; k++)
            snprintf(addresses[k], sizeof addresses[k], "%s", kv_transfer_address(w.sides[k].t));
        kv_transfer_stop(w.sides[!i].t);
        w.sides[!i].t = NULL;
        const struct msg_kv_transfer m = {.id = 1,
                                          .sends = i == 0,
                                          .from_address = str_from(addresses[0]),
                                          .to_address = str_from(addresses[1]),
                                          .comm_id = {w.id, sizeof w.id},
                                          .blocks = {l.blocks[i], 1}};
        assert_int_equal(
            kv_transfer_push(w.sides[i].t, &m, &(struct kv_transfer_bounds){.view = &c.view}, &err),
            STATUS_OK);
        await(&w, 1);
        assert_int_equal(w.sides[i].done.status, STATUS_IO);
        cache_close(&c);
        close_world(&w);
    }
}

/* ---- cancels and ends in the middle ---- */

static void test_cancel(void **state)
{
    static const uint64_t large[2] = {1 << 20, 64};
    static struct list l;
    fill_list(&l, 24);             /* 24 blocks are a little over 12 MiB */
    for (int i = 0; i < 30; i++) { /* either side cancels, sooner or later */
        struct world w;
        struct cache c[2];
        struct kv_view v[2];
        struct error err;
        int who = i % 2;
        open_world(&w, i % 3 == 0, 2000);
        for (int k = 0; k < 2; k++) {
            cache_open(&c[k], large, 48, (uint8_t)k);
            v[k] = c[k].view;
        }
        push_both(&w, 1, &l, v);
        if (i >= 2)
            spend_ms(&w, (uint64_t)i / 4);
        bool over = w.sides[0].n_done + w.sides[1].n_done > 0;
        uint32_t n_before = w.sides[who].n_done;
        kv_transfer_cancel(w.sides[who].t);
        kv_transfer_await(w.sides[who].t);
        /* The memory now belongs to another epoch, so no thread may write into it. */
        memset(c[who].memory[0], 0x55, large[0] * 48);
        spend_ms(&w, 5);
        for (uint64_t k = 0; k < large[0] * 48; k += 4093)
            assert_int_equal(c[who].memory[0][k], 0x55);
        if (!over) { /* The other side gets an error. This side reports nothing. */
            if (w.sides[!who].n_done == 0)
                await(&w, 1);
            assert_int_equal(w.sides[who].n_done, n_before);
        }
        /* Both sides can make the next transfer. */
        memset(c[0].memory[0], 0x33, large[0] * 48);
        kv_transfer_cancel(w.sides[!who].t);
        kv_transfer_await(w.sides[!who].t);
        comm_make_id(w.id);
        assert_int_equal(push(&w, 0, 2, &l, &v[0], 0, &err), STATUS_OK);
        assert_int_equal(push(&w, 1, 2, &l, &v[1], 0, &err), STATUS_OK);
        await(&w, 2);
        check_ok(&w, 2, 12 * large[0] + 12 * large[1]);
        assert_int_equal(c[1].memory[0][l.blocks[1][0] * large[0] + 17], 0x33);
        cache_close(&c[0]);
        cache_close(&c[1]);
        close_world(&w);
    }
}

/* The process ends during a transfer. The end takes no longer than the interrupt. */
static void test_end_while_running(void **state)
{
    static struct list l;
    struct world w;
    struct cache c;
    struct error err;
    open_world(&w, false, 20000);
    cache_open(&c, small, 20, 0);
    fill_list(&l, 4);
    assert_int_equal(push(&w, 0, 1, &l, &c.view, 0, &err), STATUS_OK);
    spend_ms(&w, 20); /* the transfer waits for the other side */
    assert_true(kv_transfer_end(w.sides[0].t, 5000));
    assert_false(kv_transfer_is_stuck(w.sides[0].t, 0));
    assert_int_equal(w.sides[0].n_done, 0);
    cache_close(&c);
    close_world(&w);
}

/* ---- answers ---- */

static void test_answers_again(void **state)
{
    static struct list l;
    struct world w;
    struct cache c[2];
    struct error err;
    open_world(&w, false, 0);
    cache_open(&c[0], small, 20, 0);
    cache_open(&c[1], small, 20, 1);
    fill_list(&l, 4);
    const struct kv_view v[2] = {c[0].view, c[1].view};
    kv_transfer_repeat(w.sides[0].t); /* no answer exists yet */
    assert_int_equal(w.sides[0].n_done, 0);
    push_both(&w, 1, &l, v);
    await(&w, 2);
    assert_false(w.sides[0].again);
    kv_transfer_repeat(w.sides[0].t);
    assert_int_equal(w.sides[0].n_done, 2);
    assert_true(w.sides[0].again);
    /* the same order is pushed again */
    assert_int_equal(push(&w, 1, 1, &l, &v[1], 0, &err), STATUS_OK);
    assert_int_equal(w.sides[1].n_done, 2);
    check_ok(&w, 1, 2 * small[0] + 2 * small[1]);
    kv_transfer_cancel(w.sides[0].t); /* answers of an ended epoch are not repeated */
    kv_transfer_repeat(w.sides[0].t);
    assert_int_equal(w.sides[0].n_done, 2);
    cache_close(&c[0]);
    cache_close(&c[1]);
    close_world(&w);
}

static void test_waits_for_a_step(void **state)
{
    static struct list l;
    struct world w;
    struct cache c[2];
    struct error err;
    open_world(&w, false, 10000);
    cache_open(&c[0], small, 20, 0);
    cache_open(&c[1], small, 20, 1);
    fill_list(&l, 4);
    assert_int_equal(push(&w, 1, 1, &l, &c[1].view, 0, &err), STATUS_OK);
    assert_int_equal(push(&w, 0, 1, &l, &c[0].view, 12, &err), STATUS_OK);
    kv_transfer_step_done(w.sides[0].t, 11);
    spend_ms(&w, 50);
    assert_int_equal(w.sides[0].n_done + w.sides[1].n_done, 0);
    memset(c[0].memory[0], 0x77, 20 * small[0]); /* the step writes this block */
    kv_transfer_step_done(w.sides[0].t, 12);
    await(&w, 2);
    check_ok(&w, 1, 2 * small[0] + 2 * small[1]);
    assert_int_equal(c[1].memory[0][l.blocks[1][0] * small[0]], 0x77);
    cache_close(&c[0]);
    cache_close(&c[1]);
    close_world(&w);
}

/* ---- many transfers ---- */

static uint32_t n_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    uint32_t n = 0;
    while (d && readdir(d))
        n++;
    closedir(d);
    return n;
}

static uint64_t mapped_pages(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%llu", &n), 1);
    fclose(f);
    return n;
}

static void test_thousand(void **state)
{
    static struct list l;
    struct world w;
    struct cache c[2];
    uint32_t n_fds = 0;
    uint64_t n_pages = 0;
    open_world(&w, false, 0);
    cache_open(&c[0], small, 20, 0);
    cache_open(&c[1], small, 20, 1);
    const struct kv_view v[2] = {c[0].view, c[1].view};
    for (uint64_t id = 1; id <= 1000; id++) {
        fill_list(&l, 1 + (uint32_t)(id % 9));
        comm_make_id(w.id);
        push_both(&w, id, &l, v);
        await(&w, 2);
        assert_int_equal(w.sides[0].done.status, STATUS_OK);
        assert_int_equal(w.sides[1].done.status, STATUS_OK);
        if (id == 100) {
            n_fds = n_descriptors();
            n_pages = mapped_pages();
        }
    }
    assert_int_equal(n_descriptors(), n_fds);
#ifndef __SANITIZE_THREAD__ /* ThreadSanitizer keeps the state of ended threads */
    assert_true(mapped_pages() <= n_pages + (4 << 20) / 4096);
#else
    (void)n_pages;
#endif
    cache_close(&c[0]);
    cache_close(&c[1]);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_devices),
        cmocka_unit_test(test_kinds_and_dtypes),
        cmocka_unit_test(test_wrong_orders),
        cmocka_unit_test(test_sides_that_differ),
        cmocka_unit_test(test_one_side_missing),
        cmocka_unit_test(test_other_side_gone),
        cmocka_unit_test(test_cancel),
        cmocka_unit_test(test_end_while_running),
        cmocka_unit_test(test_answers_again),
        cmocka_unit_test(test_waits_for_a_step),
        cmocka_unit_test(test_thousand),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
