#pragma once
/* Provides a head core with scripted peers: the test writes each frame and reads each answer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/core.h"
#include "head/state/head_core.h"

#define BOX_MAX 256u
#define MS      NS_PER_MS

struct letter {
    uint8_t to;
    struct arena arena;
    struct frame_header h;
    struct msg m;
};

struct fixture {
    struct head_core *core;
    struct head_core_config config;
    uint64_t now, wait_ns;   /* wait_ns: field of that name in the next result */
    bool ticks;              /* each frame is followed by a tick */
    enum device_kind device; /* device of all workers */
    uint32_t n_box, n_draft[2], draft_max_seqs[2], prompt_logprobs[2]; /* indexed by worker - 1 */
    struct letter box[BOX_MAX]; /* messages of the head, oldest first */
    struct link links[16];      /* links by connection */
};

static inline struct bus_peer addr_of(uint8_t conn)
{
    return (struct bus_peer){.n = 2, .id = {7, conn}};
}

static inline enum status fixture_send(void *ctx, struct bus_peer to, struct str frame)
{
    struct fixture *f = ctx;
    assert_true(f->n_box < BOX_MAX);
    struct letter *l = &f->box[f->n_box++];
    struct error err = {0};
    l->to = to.id[1];
    arena_init(&l->arena, 0);
    assert_int_equal(frame_parse_header(frame, &l->h, &err), STATUS_OK);
    struct msg m;
    struct arena scratch;
    arena_init(&scratch, 0);
    assert_int_equal(codec_decode(frame, &l->h, &scratch, &m, &err), STATUS_OK);
    assert_int_equal(msg_copy(&m, &l->arena, &l->m), STATUS_OK);
    arena_fini(&scratch);
    if (m.type == MSG_WELCOME)
        link_open(&f->links[l->to], l->h.session, m.welcome.credit_bytes);
    return STATUS_OK;
}

static inline void box_clear(struct fixture *f)
{
    while (f->n_box > 0)
        arena_fini(&f->box[--f->n_box].arena);
}

/* Returns the oldest message of this type to `conn`, or NULL. */
static inline const struct msg *box_find(const struct fixture *f, uint8_t conn, enum msg_type type)
{
    for (uint32_t i = 0; i < f->n_box; i++)
        if (f->box[i].to == conn && f->box[i].m.type == type)
            return &f->box[i].m;
    return NULL;
}

static inline struct fixture *fixture_new(uint32_t tp)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    f->now = 100 * NS_PER_S;
    head_core_config_init(&f->config);
    f->config.cluster.tp = tp;
    f->config.cluster.max_replicas = 4;
    f->config.peers.insecure = true;
    f->config.peers.max_peers = 8;
    f->config.max_waiting = 4;
    f->config.max_requests = 64;
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    return f;
}

static inline void fixture_free(struct fixture *f)
{
    struct error err = {0};
    if (!head_core_check(f->core, &err))
        fail_msg("%s", err.text);
    head_core_free(f->core);
    box_clear(f);
    mem_free(f);
}

static inline void frame_raw(struct fixture *f, uint8_t conn, const struct msg *m, uint64_t session,
                             uint64_t seq)
{
    struct strbuf b;
    struct arena scratch;
    strbuf_init(&b, 0);
    arena_init(&scratch, 0);
    assert_int_equal(codec_encode(m, session, seq, &scratch, &b), STATUS_OK);
    head_core_on_frame(f->core, addr_of(conn), ROLE_NONE, "", strbuf_str(&b), f->now);
    (f->ticks ? head_core_tick : head_core_turn)(f->core, f->now);
    strbuf_fini(&b);
    arena_fini(&scratch);
}

static inline void say(struct fixture *f, uint8_t conn, const struct msg *m)
{
    struct link *l = &f->links[conn];
    if (m->type == MSG_HELLO)
        link_init(l, 1 << 20);
    uint64_t seq = link_next_seq(l);
    link_sent(l, m->type, 0);
    frame_raw(f, conn, m, m->type == MSG_HELLO ? 0 : l->session, seq);
}

static const struct kv_group fixture_kv = {.block_tokens = 16, .n_blocks = 64};

static inline struct msg worker_hello(uint64_t instance, int32_t ordinal)
{
    struct msg m = {.type = MSG_HELLO,
                    .hello = {.node = STR("n"),
                              .instance = instance,
                              .role = ROLE_WORKER,
                              .credit_bytes = 1 << 20,
                              .has_worker = true}};
    m.hello.worker = (struct worker_info){.host = STR("h"),
                                          .ordinal = ordinal,
                                          .tp = 2,
                                          .pp = 1,
                                          .shard_rank = -1,
                                          .shard_stage = -1,
                                          .model = STR("null"),
                                          .max_model_len = 512,
                                          .vocab_size = 20000,
                                          .kv_groups = &fixture_kv,
                                          .n_kv_groups = 1};
    return m;
}

static inline void say_gateway_hello(struct fixture *f, uint8_t conn, uint64_t instance)
{
    struct msg m = {
        .type = MSG_HELLO,
        .hello = {
            .node = STR("g"), .instance = instance, .role = ROLE_GATEWAY, .credit_bytes = 1 << 20}};
    say(f, conn, &m);
}

static inline void beat(struct fixture *f, uint8_t conn)
{
    say(f, conn, &(struct msg){.type = MSG_HEARTBEAT});
}

/* Lets `ms` milliseconds pass. Connection i sends heartbeats if bit i of `alive` is set. */
static inline void wait_ms(struct fixture *f, uint64_t ms, uint32_t alive)
{
    for (uint64_t t = 0; t < ms; t += HEAD_TICK_MS) {
        f->now += HEAD_TICK_MS * MS;
        for (uint8_t i = 0; i < 16; i++)
            if ((alive & 1u << i) && t % 250 == 0)
                beat(f, i);
        head_core_tick(f->core, f->now);
    }
}

/* Connects two workers with TP 2 as 1 and 2, which become replica 0. Returns the epoch. */
static inline uint64_t form_pair(struct fixture *f)
{
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg hello = worker_hello(100 + i, i - 1);
        hello.hello.worker.device = f->device;
        hello.hello.worker.n_draft = f->n_draft[i - 1];
        hello.hello.worker.gives_prompt_logprobs = f->prompt_logprobs[i - 1] > 0;
        hello.hello.worker.draft_max_seqs = f->draft_max_seqs[i - 1];
        say(f, i, &hello);
    }
    const struct msg *form = box_find(f, 1, MSG_FORM);
    assert_non_null(form);
    uint64_t epoch = form->form.term_epoch;
    struct msg id = {.type = MSG_COMM_ID,
                     .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}};
    say(f, 1, &id);
    for (uint8_t i = 1; i <= 2; i++) {
        assert_non_null(box_find(f, i, MSG_JOIN));
        say(f, i, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    }
    assert_true(head_core_is_ready(f->core));
    box_clear(f);
    return epoch;
}
