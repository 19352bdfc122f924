/* Tests a worker with the null device, and a head that the test plays over a real bus, on one
 * thread. `expect` runs the loop until a message type arrives. A guard ends a test after 20 s. */
#include "worker/worker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/codec/codec.h"
#include "proto/link/link.h"
#include "proto/null_tokens.h"
#include "worker/comm/comm.h"
#include "worker/drain.h"
#include "worker/executor/device/open.h"
#include "worker/kv/transfer.h"

#define EPOCH(n) (1ull << 32 | (n))

struct fixture {
    struct loop *loop;
    struct bus *bus; /* bus of the head */
    struct worker_options o;
    struct executor *executor;
    struct metrics *metrics;
    struct worker_process *worker;
    struct loop_timer *guard;
    char endpoint[128];
    /* The next fields are the head's side of the link. */
    struct bus_peer peer;
    struct link link;
    struct arena decode, scratch;
    struct strbuf frame;
    uint64_t session, instance, n_hello, n_heartbeat;
    struct msg_heartbeat beat;
    struct msg last;        /* newest message other than a heartbeat or credit */
    struct msg_hello hello; /* newest Hello; later only its plain fields are read */
    enum msg_type wait_for;
    uint8_t comm_id[64];
    uint32_t n_comm_id;
    char comm_address[64], kv_address[64];                /* addresses from the newest Hello */
    uint32_t n_elastic, elastic_tp[4], elastic_blocks[4]; /* smaller TPs from the newest Hello */
    bool has_peers; /* the executor needs addresses of other ranks */
    uint32_t n_listen, n_listen_failures, n_check;
    bool mute;                   /* the head sends no heartbeats */
    struct msg_heartbeat answer; /* content of the head's heartbeats */
    enum status refuse;          /* status with which the head refuses Hello */
};

static void send_msg(struct fixture *f, const struct msg *m)
{
    strbuf_reset(&f->frame);
    assert_int_equal(
        codec_encode(m, f->link.session, link_next_seq(&f->link), &f->scratch, &f->frame),
        STATUS_OK);
    assert_int_equal(bus_send(f->bus, f->peer, strbuf_str(&f->frame)), STATUS_OK);
    link_sent(&f->link, m->type, f->frame.len);
}

static void keep_elastic(struct fixture *f, const struct worker_info *w)
{
    f->n_elastic = w->n_elastic;
    for (uint32_t i = 0; i < w->n_elastic && i < 4; i++) {
        f->elastic_tp[i] = w->elastic[i].tp;
        assert_int_equal(w->elastic[i].n_blocks.n, 1);
        f->elastic_blocks[i] = w->elastic[i].n_blocks.ptr[0];
    }
}

static void welcome(struct fixture *f, const struct msg_hello *h)
{
    keep_elastic(f, &h->worker);
    f->n_hello++;
    f->hello = *h;
    snprintf(f->comm_address, sizeof f->comm_address, STR_FMT, STR_ARG(h->worker.comm_address));
    snprintf(f->kv_address, sizeof f->kv_address, STR_FMT, STR_ARG(h->worker.kv_address));
    if (f->instance)
        assert_true(f->instance == h->instance); /* it is the same worker in each session */
    f->instance = h->instance;
    link_init(&f->link, 1 << 20);
    link_open(&f->link, ++f->session, h->credit_bytes);
    send_msg(f, &(struct msg){.type = MSG_WELCOME,
                              .welcome = {.session = f->session,
                                          .term = 1,
                                          .credit_bytes = 1 << 20,
                                          .heartbeat_ms = 20}});
}

static void refuse(struct fixture *f)
{
    f->n_hello++;
    link_init(&f->link, 1 << 20);
    send_msg(f, &(struct msg){.type = MSG_REFUSED,
                              .refused = {.status = f->refuse, .text = STR("not you")}});
}

static void on_frame(void *ctx, struct bus_peer from, enum peer_role role, const char *key,
                     struct str frame)
{
    struct fixture *f = ctx;
    struct frame_header h;
    struct error err = {0};
    struct msg m;
    assert_int_equal(frame_parse_header(frame, &h, &err), STATUS_OK);
    if (h.type != MSG_HEARTBEAT && h.type != MSG_CREDIT)
        arena_reset(&f->decode);
    assert_int_equal(codec_decode(frame, &h, &f->decode, &m, &err), STATUS_OK);
    if (h.type == MSG_HELLO) {
        assert_int_equal(h.session, 0);
        f->peer = from;
        if (f->refuse)
            refuse(f);
        else
            welcome(f, &m.hello);
    } else if (link_received(&f->link, &h, &err) != STATUS_OK) {
        fail_msg("%s", err.text);
    }
    if (m.type == MSG_HEARTBEAT) {
        f->n_heartbeat++;
        f->beat = m.heartbeat;
        if (!f->mute)
            send_msg(f, &(struct msg){.type = MSG_HEARTBEAT, .heartbeat = f->answer});
    } else if (m.type != MSG_CREDIT) {
        f->last = m;
    }
    if (m.type == MSG_COMM_ID) {
        f->n_comm_id = m.comm_id.id.n;
        memcpy(f->comm_id, m.comm_id.id.ptr, f->n_comm_id);
    }
    if (m.type == f->wait_for)
        loop_stop(f->loop);
}

static void on_guard(void *ctx)
{
    fail_msg("waited 20 s for %s", msg_type_name(((struct fixture *)ctx)->wait_for));
}

/* Runs the loop until a message of this type arrives. Returns the newest message. */
static const struct msg *expect(struct fixture *f, enum msg_type t)
{
    f->wait_for = t;
    f->guard = loop_timer_start(f->loop, 20000, 0, on_guard, f);
    loop_run(f->loop);
    loop_timer_stop(f->guard);
    return &f->last;
}

static enum { WELL, LOST_BY_ABORT, LOST } device; /* state of an executor with peers */

static int set_up(void **state)
{
    device = WELL;
    struct fixture *f = calloc(1, sizeof *f);
    struct error err = {0};
    *state = f;
    f->o = (struct worker_options){.model = "null",
                                   .device = WORKER_DEVICE_NULL,
                                   .tp = 2,
                                   .pp = 1,
                                   .ordinal = 0,
                                   .block_size = 16,
                                   .insecure = true,
                                   .drain_timeout_s = 20};
    arena_init(&f->decode, 0);
    arena_init(&f->scratch, 0);
    strbuf_init(&f->frame, 0);
    f->metrics = metrics_new();
    assert_int_equal(loop_new(&f->loop, &err), STATUS_OK);
    const struct bus_handlers h = {.ctx = f, .on_frame = on_frame};
    const struct bus_options b = {.endpoint = "tcp://127.0.0.1:0",
                                  .insecure = true,
                                  .max_frame_bytes = FRAME_MAX_BYTES,
                                  .hwm = 1000};
    if (bus_bind(f->loop, &b, &h, &f->bus, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    snprintf(f->endpoint, sizeof f->endpoint, "%s", bus_endpoint(f->bus));
    return 0;
}

/* ---- the null device with ranks that talk to each other ---- */

static struct {
    struct fixture *f;
    const struct executor_ops *null;
    struct executor_ops ops;
    struct executor_info info;
} peers;

static enum status peers_listen(struct executor *e, const char *host, struct error *err)
{
    assert_string_equal(host, "127.0.0.1"); /* host of the route to this head */
    if (peers.f->n_listen++ < peers.f->n_listen_failures)
        return error_set(err, STATUS_IO, "not yet");
    peers.info.comm_address = STR("127.0.0.1:4711");
    return STATUS_OK;
}

static const struct executor_info *peers_info(const struct executor *e)
{
    return &peers.info;
}

static enum status peers_check(struct executor *e, struct error *err)
{
    return ++peers.f->n_check == 1 ? STATUS_OK : error_set(err, STATUS_IO, "rank 1 is gone");
}

static bool peers_lost(const struct executor *e, struct error *why)
{
    return device == LOST && error_set(why, STATUS_IO, "the GPU is lost: a test") != STATUS_OK;
}

static void peers_abort(struct executor *e)
{
    peers.null->abort_comm(e);
    if (device == LOST_BY_ABORT)
        device = LOST;
}

static void give_peers(struct fixture *f)
{
    peers.f = f;
    peers.null = f->executor->ops;
    peers.info = *peers.null->info(f->executor);
    peers.ops = *peers.null;
    peers.ops.listen = peers_listen;
    peers.ops.info = peers_info;
    peers.ops.check = peers_check;
    peers.ops.lost = peers_lost;
    peers.ops.abort_comm = peers_abort;
    f->executor->ops = &peers.ops;
}

static void start(struct fixture *f)
{
    struct error err = {0};
    if (executor_open(&f->o, &f->executor, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    if (f->has_peers)
        give_peers(f);
    const struct worker_setup s = {.loop = f->loop,
                                   .options = &f->o,
                                   .executor = f->executor,
                                   .metrics = f->metrics,
                                   .link = {.bus = {.endpoint = f->endpoint,
                                                    .insecure = true,
                                                    .server_public_key = "",
                                                    .max_frame_bytes = FRAME_MAX_BYTES,
                                                    .hwm = 1000},
                                            .window_bytes = 4096},
                                   .node = "here",
                                   .http_address = "127.0.0.1:1"};
    if (worker_start(&s, &f->worker, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    worker_free(f->worker);
    bus_close(f->bus);
    loop_free(f->loop);
    if (f->executor)
        f->executor->ops->close(f->executor);
    metrics_free(f->metrics);
    arena_fini(&f->decode);
    arena_fini(&f->scratch);
    strbuf_fini(&f->frame);
    free(f);
    return 0;
}

/* ---- actions of the head ---- */

static void form(struct fixture *f, uint64_t epoch)
{
    static const uint32_t n_blocks[] = {64};
    static const struct str addresses[] = {{"a:1", 3}, {"b:1", 3}};
    send_msg(f, &(struct msg){.type = MSG_FORM,
                              .form = {.term_epoch = epoch,
                                       .replica_id = 4,
                                       .tp = 2,
                                       .pp = 1,
                                       .make_id = true,
                                       .comm_addresses = addresses,
                                       .n_comm_addresses = 2,
                                       .n_blocks = {n_blocks, 1}}});
}

static void join(struct fixture *f, uint64_t epoch)
{
    send_msg(f, &(struct msg){.type = MSG_JOIN,
                              .join = {.term_epoch = epoch, .id = {f->comm_id, f->n_comm_id}}});
}

static void become_ready(struct fixture *f, uint64_t epoch)
{
    form(f, epoch);
    assert_true(expect(f, MSG_COMM_ID)->comm_id.term_epoch == epoch);
    join(f, epoch);
    const struct msg *m = expect(f, MSG_FORMED);
    assert_true(m->formed.term_epoch == epoch);
    assert_int_equal(m->formed.status, STATUS_OK);
}

/* Sends a plan for slot 0: step 1 admits "ab", and each step samples one token. */
static void plan(struct fixture *f, uint64_t epoch, uint64_t step)
{
    static const uint32_t ids[] = {97, 98}, blocks[] = {5};
    const struct plan_admit admit = {
        .slot = 0,
        .n_prompt = 2,
        .ids = {ids, 2},
        .sampling = {.seed = 3, .temperature = 1, .n_prompt_logprobs = -1}};
    const struct plan_blocks table = {.ids = {blocks, 1}};
    const struct plan_run run = {.slot = 0,
                                 .start = step == 1 ? 0 : (uint32_t)step,
                                 .n_tokens = step == 1 ? 2 : 1,
                                 .sample = true,
                                 .blocks = &table,
                                 .n_blocks = step == 1};
    send_msg(f, &(struct msg){.type = MSG_PLAN,
                              .plan = {.term_epoch = epoch,
                                       .step = step,
                                       .admits = &admit,
                                       .n_admits = step == 1,
                                       .runs = &run,
                                       .n_runs = 1}});
}

static uint32_t rule(uint64_t step)
{
    struct null_hash h;
    uint32_t token = 0;
    null_hash_init(&h, 3, 0, 0, 1);
    null_hash_push(&h, 97);
    null_hash_push(&h, 98);
    for (uint64_t i = 0; i < step; i++) {
        token = null_hash_token(&h, 259);
        null_hash_push(&h, token);
    }
    return token;
}

static void expect_token(struct fixture *f, uint64_t epoch, uint64_t step)
{
    const struct msg *m = expect(f, MSG_RESULT);
    assert_true(m->result.term_epoch == epoch && m->result.step == step);
    assert_int_equal(m->result.n_items, 1);
    assert_int_equal(m->result.items[0].ids.ptr[0], rule(step));
    assert_int_equal(m->result.items[0].gaps.n, 1);
}

static void expect_aborted(struct fixture *f, uint64_t epoch)
{
    assert_true(expect(f, MSG_ABORTED)->aborted.term_epoch == epoch);
}

static void send_abort(struct fixture *f, uint64_t epoch)
{
    send_msg(f, &(struct msg){.type = MSG_ABORT, .abort_ = {epoch, STR("a test\nsays so")}});
}

/* ---- a rank of another replica, played by this test ---- */

struct other_group {
    struct kv_transfer *t;
    uint64_t blocks[64];
    struct kv_view view;
    struct msg_kv_transferred done;
};

static void on_other_done(void *ctx, const struct msg_kv_transferred *m, bool sent, bool again)
{
    struct other_group *g = ctx;
    g->done = *m;
}

static void open_other(struct fixture *f, struct other_group *g)
{
    struct error err;
    *g = (struct other_group){
        .view = {
            .n_groups = 1,
            .groups = {{.pieces = {{(uint8_t *)g->blocks, 8}}, .n_pieces = 1, .n_blocks = 64}}}};
    const struct kv_transfer_options o = {
        .host = "127.0.0.1", .timeout_ms = 5000, .on_done = on_other_done, .ctx = g};
    assert_int_equal(kv_transfer_start(f->loop, &o, &g->t, &err), STATUS_OK);
}

static const uint8_t kv_id[COMM_ID_BYTES] = {1, 2, 3};

/* Sends the worker an order for a transfer. */
static void order(struct fixture *f, const struct other_group *g, uint64_t epoch, uint64_t id,
                  bool sends, uint32_t block)
{
    struct str other = str_from(kv_transfer_address(g->t)), own = str_from(f->kv_address);
    send_msg(f, &(struct msg){.type = MSG_KV_TRANSFER,
                              .kv_transfer = {.term_epoch = epoch,
                                              .id = id,
                                              .sends = sends,
                                              .from_address = sends ? own : other,
                                              .to_address = sends ? other : own,
                                              .comm_id = {kv_id, sizeof kv_id},
                                              .blocks = {&block, 1}}});
}

/* Sends the other rank the matching order. */
static void order_other(struct fixture *f, struct other_group *g, uint64_t id, bool sends,
                        uint32_t block)
{
    struct str own = str_from(kv_transfer_address(g->t)), other = str_from(f->kv_address);
    struct error err;
    const struct msg_kv_transfer m = {.id = id,
                                      .sends = sends,
                                      .from_address = sends ? own : other,
                                      .to_address = sends ? other : own,
                                      .comm_id = {kv_id, sizeof kv_id},
                                      .blocks = {&block, 1}};
    assert_int_equal(
        kv_transfer_push(g->t, &m, &(struct kv_transfer_bounds){.view = &g->view}, &err),
        STATUS_OK);
}

static const struct msg_kv_transferred *expect_transferred(struct fixture *f, uint64_t epoch,
                                                           uint64_t id, enum status want)
{
    const struct msg_kv_transferred *m = &expect(f, MSG_KV_TRANSFERRED)->kv_transferred;
    if (m->status != want)
        fail_msg("%s: " STR_FMT, status_name(m->status), STR_ARG(m->text));
    assert_true(m->term_epoch == epoch && m->id == id);
    return m;
}

/* ---- tests ---- */

static void test_hello_says_what_it_is(void **state)
{
    struct fixture *f = *state;
    start(f);
    const struct msg_hello *h = &expect(f, MSG_HELLO)->hello;
    assert_int_equal(h->role, ROLE_WORKER);
    assert_true(h->has_worker);
    assert_true(str_eq_c(h->node, "here"));
    assert_int_equal(h->worker.n_kv_groups, 1);
    assert_int_equal(h->worker.kv_groups[0].n_blocks, 8192);
    assert_int_equal(h->worker.vocab_size, 259);
    assert_true(h->worker.term_epoch == 0);
    assert_int_equal(h->worker.shard_rank, -1);
    f->answer.spare = true;
    while (!worker_is_ready(f->worker))
        (void)expect(f, MSG_HEARTBEAT);
    f->answer = (struct msg_heartbeat){0}; /* the head has to say `spare` only once */
    (void)expect(f, MSG_HEARTBEAT);
    assert_true(worker_is_ready(f->worker));
    send_msg(f, &(struct msg){.type = MSG_DRAIN, .drain = {.on = true}});
    while (worker_is_ready(f->worker))
        (void)expect(f, MSG_HEARTBEAT);
    assert_string_equal(worker_why_not_ready(f->worker), "draining");
}

/* Hello lists the smaller TPs that the worker offers, and the TP of its present replica. */
static void test_hello_says_smaller_tps(void **state)
{
    struct fixture *f = *state;
    f->o.tp = 4;
    f->o.elastic_tp = true;
    f->o.null_elastic_blocks = 100;
    start(f);
    (void)expect(f, MSG_HELLO);
    assert_int_equal(f->hello.worker.tp, 4);
    assert_int_equal(f->hello.worker.replica_tp, 0);
    assert_int_equal(f->n_elastic, 2);
    assert_int_equal(f->elastic_tp[0], 2);
    assert_int_equal(f->elastic_tp[1], 1);
    assert_int_equal(f->elastic_blocks[0], 100);
    become_ready(f, EPOCH(1));
    f->link.seq_out += 5; /* the sequence number becomes wrong, so the worker sends Hello again */
    plan(f, EPOCH(1), 1);
    (void)expect(f, MSG_HELLO);
    assert_int_equal(f->hello.worker.replica_tp, 2);
}

static void test_steps_gap_abort(void **state)
{
    struct fixture *f = *state;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    for (uint64_t step = 1; step <= 10; step++) { /* the plans have more bytes than the window */
        plan(f, EPOCH(1), step);
        expect_token(f, EPOCH(1), step);
    }
    while (f->beat.step_executed != 10)
        (void)expect(f, MSG_HEARTBEAT);
    assert_true(f->beat.term_epoch == EPOCH(1));
    plan(f, EPOCH(1), 12);
    const struct msg *m = expect(f, MSG_GAP);
    assert_true(m->gap.last_step == 10 && m->gap.got_step == 12);
    send_abort(f, EPOCH(1));
    expect_aborted(f, EPOCH(1));
    send_abort(f, EPOCH(1)); /* each Abort is answered */
    expect_aborted(f, EPOCH(1));
    become_ready(f, EPOCH(2)); /* the sequences are gone, so slot 0 can be admitted again */
    plan(f, EPOCH(2), 1);
    expect_token(f, EPOCH(2), 1);
}

static void test_invalid_plan_is_a_gap(void **state)
{
    struct fixture *f = *state;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    const struct plan_run run = {.slot = 3, .n_tokens = 1};
    send_msg(f,
             &(struct msg){.type = MSG_PLAN,
                           .plan = {.term_epoch = EPOCH(1), .step = 1, .runs = &run, .n_runs = 1}});
    const struct msg *m = expect(f, MSG_GAP);
    assert_true(m->gap.last_step == 0 && m->gap.got_step == 1);
    assert_true(m->gap.text.len > 0);
    form(f, EPOCH(2)); /* the broken replica is aborted first, without an order */
    assert_true(expect(f, MSG_COMM_ID)->comm_id.term_epoch == EPOCH(2));
}

/* Blocks move beside steps. An order for another epoch or an unknown block gets an error. */
static void test_kv_transfers(void **state)
{
    struct fixture *f = *state;
    struct other_group g;
    f->o.role = REPLICA_DECODE;
    start(f);
    assert_int_equal(expect(f, MSG_HELLO)->hello.worker.replica_role, REPLICA_DECODE);
    assert_int_equal(strncmp(f->kv_address, "127.0.0.1:", 10), 0);
    open_other(f, &g);
    order(f, &g, EPOCH(1), 1, true, 5); /* the worker is not in a replica yet */
    expect_transferred(f, EPOCH(1), 1, STATUS_CLOSED);
    become_ready(f, EPOCH(1));
    for (uint64_t step = 1; step <= 15; step++) { /* "ab" and 14 sampled tokens fill block 5 */
        plan(f, EPOCH(1), step);
        expect_token(f, EPOCH(1), step);
    }
    order(f, &g, EPOCH(1), 2, true, 5);
    order_other(f, &g, 2, false, 60);
    assert_int_equal(expect_transferred(f, EPOCH(1), 2, STATUS_OK)->n_bytes, 8);
    assert_true(g.blocks[60] != 0 && g.blocks[5] == 0);
    order_other(f, &g, 3, true, 60); /* the block returns to this worker, as another block */
    order(f, &g, EPOCH(1), 3, false, 7);
    expect_transferred(f, EPOCH(1), 3, STATUS_OK);
    struct kv_view v;
    f->executor->ops->kv_view(f->executor, &v);
    const uint64_t *own = (const uint64_t *)(const void *)v.groups[0].pieces[0].ptr;
    assert_true(own[5] == g.blocks[60] && own[7] == own[5]);
    order(f, &g, EPOCH(1), 4, true, 64); /* the Form gave only blocks 0 to 63 */
    expect_transferred(f, EPOCH(1), 4, STATUS_INVALID);
    order(f, &g, EPOCH(2), 5, true, 5);
    expect_transferred(f, EPOCH(2), 5, STATUS_CLOSED);
    kv_transfer_stop(g.t);
}

/* A transfer that waits for the other side ends with its epoch, before Aborted or Formed. The
 * worker reports nothing else about it. */
static void test_kv_transfer_and_an_end(void **state)
{
    struct fixture *f = *state;
    struct other_group g;
    start(f);
    (void)expect(f, MSG_HELLO);
    open_other(f, &g);
    become_ready(f, EPOCH(1));
    order(f, &g, EPOCH(1), 1, true, 5); /* the other side never connects */
    order(f, &g, EPOCH(1), 2, true, 5);
    send_abort(f, EPOCH(1));
    expect_aborted(f, EPOCH(1)); /* Aborted arrives long before the transfer's time-out */
    become_ready(f, EPOCH(2));
    order(f, &g, EPOCH(2), 3, false, 5);
    send_msg(f, &(struct msg){.type = MSG_RESET, .reset = {EPOCH(2), EPOCH(3)}});
    assert_true(expect(f, MSG_FORMED)->formed.term_epoch == EPOCH(3));
    order_other(f, &g, 4, true, 9); /* the next transfer works */
    g.blocks[9] = 77;
    order(f, &g, EPOCH(3), 4, false, 5);
    expect_transferred(f, EPOCH(3), 4, STATUS_OK);
    order(f, &g, EPOCH(3), 5, false, 5);
    form(f, EPOCH(4)); /* the new replica ends a transfer in progress */
    assert_true(expect(f, MSG_COMM_ID)->comm_id.term_epoch == EPOCH(4));
    order(f, &g, EPOCH(4), 6, false, 5);
    expect_transferred(f, EPOCH(4), 6, STATUS_CLOSED); /* the new replica is not ready yet */
    kv_transfer_stop(g.t);
}

/* A process that ends during a transfer does not wait for the transfer. */
static void test_kv_transfer_and_the_end(void **state)
{
    struct fixture *f = *state;
    struct other_group g;
    start(f);
    (void)expect(f, MSG_HELLO);
    open_other(f, &g);
    become_ready(f, EPOCH(1));
    order(f, &g, EPOCH(1), 1, true, 5);
    order(f, &g, EPOCH(9), 2, true, 5); /* the answer shows that the first order has been taken */
    expect_transferred(f, EPOCH(9), 2, STATUS_CLOSED);
    assert_true(worker_end(f->worker));
    kv_transfer_stop(g.t);
}

static void test_no_kv_transfers(void **state)
{
    struct fixture *f = *state;
    struct other_group g;
    f->o.kv_port = -1;
    start(f);
    (void)expect(f, MSG_HELLO);
    assert_string_equal(f->kv_address, "");
    open_other(f, &g);
    become_ready(f, EPOCH(1));
    order(f, &g, EPOCH(1), 1, true, 5);
    expect_transferred(f, EPOCH(1), 1, STATUS_UNSUPPORTED);
    kv_transfer_stop(g.t);
}

static void test_insane_form_and_wrong_id(void **state)
{
    struct fixture *f = *state;
    start(f);
    (void)expect(f, MSG_HELLO);
    const uint32_t too_many[] = {8193};
    send_msg(f, &(struct msg){
                    .type = MSG_FORM,
                    .form = {.term_epoch = EPOCH(1), .tp = 2, .pp = 1, .n_blocks = {too_many, 1}}});
    assert_int_equal(expect(f, MSG_FORMED)->formed.status, STATUS_PROTOCOL);
    form(f, EPOCH(2));
    (void)expect(f, MSG_COMM_ID);
    f->comm_id[0] ^= 1;
    join(f, EPOCH(2));
    assert_int_equal(expect(f, MSG_FORMED)->formed.status, STATUS_INVALID);
    send_abort(f, EPOCH(2));
    expect_aborted(f, EPOCH(2));
    become_ready(f, EPOCH(3));
}

/* A Form must have a TP and numbers of blocks that the executor offers, or it is refused. */
static void test_forms_of_smaller_tps(void **state)
{
    static const struct {
        uint32_t tp, n_blocks, rank;
        enum status want; /* expected status; OK = CommId arrives */
        const char *text;
    } cases[] = {
        {1, 100, 0, STATUS_OK, ""},
        {1, 101, 0, STATUS_PROTOCOL, "101 blocks in KV group 0, but this rank has 100"},
        {2, 100, 1, STATUS_OK, ""},
        {3, 100, 0, STATUS_PROTOCOL, "TP 3, but this worker was started for TP 4"},
        {8, 100, 0, STATUS_PROTOCOL, "TP 8, but this worker was started for TP 4"},
        {1000, 100, 0, STATUS_PROTOCOL, "does not offer this smaller TP"},
        {4, 8192, 3, STATUS_OK, ""},
        {4, 8193, 3, STATUS_PROTOCOL, "this rank has 8192"},
    };
    struct fixture *f = *state;
    f->o.tp = 4;
    f->o.elastic_tp = true;
    f->o.null_elastic_blocks = 100;
    start(f);
    (void)expect(f, MSG_HELLO);
    for (uint64_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const uint32_t n_blocks[] = {cases[i].n_blocks};
        send_msg(f, &(struct msg){.type = MSG_FORM,
                                  .form = {.term_epoch = EPOCH(1 + i),
                                           .tp = cases[i].tp,
                                           .pp = 1,
                                           .rank = cases[i].rank,
                                           .make_id = true,
                                           .n_blocks = {n_blocks, 1}}});
        if (cases[i].want == STATUS_OK) {
            assert_true(expect(f, MSG_COMM_ID)->comm_id.term_epoch == EPOCH(1 + i));
            continue;
        }
        const struct msg_formed *got = &expect(f, MSG_FORMED)->formed;
        assert_int_equal(got->status, cases[i].want);
        char text[300];
        snprintf(text, sizeof text, STR_FMT, STR_ARG(got->text));
        assert_non_null(strstr(text, cases[i].text));
    }
}

static void test_abort_interrupts_a_stall(void **state)
{
    struct fixture *f = *state;
    f->o.null_stall_after_step = 1;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    plan(f, EPOCH(1), 1);
    expect_token(f, EPOCH(1), 1);
    plan(f, EPOCH(1), 2); /* this step hangs: the worker is busy without progress */
    do
        (void)expect(f, MSG_HEARTBEAT);
    while (!f->beat.busy);
    uint64_t progress = f->beat.progress;
    (void)expect(f, MSG_HEARTBEAT);
    assert_true(f->beat.busy && f->beat.progress == progress);
    send_abort(f, EPOCH(1));
    expect_aborted(f, EPOCH(1));
    become_ready(f, EPOCH(2));
    plan(f, EPOCH(2), 1);
    expect_token(f, EPOCH(2), 1);
}

/* Reading a shard is not interrupted. Heartbeats report its progress, and Aborted is sent at its
 * end. */
static void test_loading_is_told(void **state)
{
    struct fixture *f = *state;
    f->o.null_load_ms = 1000; /* loading takes long enough for several heartbeats */
    start(f);
    (void)expect(f, MSG_HELLO);
    form(f, EPOCH(1));
    (void)expect(f, MSG_COMM_ID);
    assert_int_equal(f->beat.load_permille, 0);
    join(f, EPOCH(1));
    do
        (void)expect(f, MSG_HEARTBEAT);
    while (f->beat.load_permille == 0);
    send_abort(f, EPOCH(1));
    uint64_t n = f->n_heartbeat;
    expect_aborted(f, EPOCH(1));
    assert_true(f->n_heartbeat > n);
    (void)expect(f, MSG_HEARTBEAT);
    assert_int_equal(f->beat.load_permille, 0);
    become_ready(f, EPOCH(2));
}

static void test_lost_link_and_adoption(void **state)
{
    struct fixture *f = *state;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    plan(f, EPOCH(1), 1);
    expect_token(f, EPOCH(1), 1);
    f->link.seq_out += 5; /* the sequence number becomes wrong, so the worker sends Hello again */
    plan(f, EPOCH(1), 2);
    (void)expect(f, MSG_HELLO);
    assert_int_equal(f->n_hello, 2);
    assert_true(f->hello.worker.term_epoch == EPOCH(1));
    assert_true(f->hello.worker.step_received == 1 && f->hello.worker.step_executed == 1);
    assert_int_equal(f->hello.worker.replica_id, 4);
    send_msg(f, &(struct msg){.type = MSG_RESET, .reset = {EPOCH(7), 2ull << 32 | 1}});
    /* the Reset is for another replica */
    assert_int_equal(expect(f, MSG_FORMED)->formed.status, STATUS_INVALID);
    send_msg(f, &(struct msg){.type = MSG_RESET, .reset = {EPOCH(1), 2ull << 32 | 2}});
    const struct msg *m = expect(f, MSG_FORMED);
    assert_true(m->formed.status == STATUS_OK && m->formed.term_epoch == (2ull << 32 | 2));
    plan(f, 2ull << 32 | 2, 1); /* slot 0 is free, and steps begin at 1 */
    expect_token(f, 2ull << 32 | 2, 1);
}

static void test_refused_for_good(void **state)
{
    struct fixture *f = *state;
    f->refuse = STATUS_LIMIT; /* this refusal is temporary */
    start(f);
    (void)expect(f, MSG_HELLO);
    (void)expect(f, MSG_HELLO);
    assert_string_equal(worker_refusal(f->worker), "");
    f->refuse = STATUS_VERSION;
    (void)expect(f, MSG_NONE); /* the worker ends the loop */
    assert_string_equal(worker_refusal(f->worker), "version: not you");
}

static void test_silent_head(void **state)
{
    struct fixture *f = *state;
    start(f);
    (void)expect(f, MSG_HELLO);
    (void)expect(f, MSG_HEARTBEAT);
    f->mute = true;
    (void)expect(f, MSG_HELLO); /* the worker sends Hello again after 1.5 s without a heartbeat */
    f->mute = false;
    become_ready(f, EPOCH(1));
}

/* The worker's address for other ranks is known only once the head can be reached. It sends no
 * Hello without the address. */
static void test_address_found_late(void **state)
{
    struct fixture *f = *state;
    f->has_peers = true;
    f->n_listen_failures = 3;
    start(f);
    (void)expect(f, MSG_HELLO);
    assert_string_equal(f->comm_address, "127.0.0.1:4711");
    assert_int_equal(f->n_listen, 4);
    f->mute = true;
    (void)expect(f, MSG_HELLO); /* the address is the same, so the worker does not listen again */
    assert_string_equal(f->comm_address, "127.0.0.1:4711");
    assert_int_equal(f->n_listen, 4);
}

static void test_address_given(void **state)
{
    struct fixture *f = *state;
    f->has_peers = true;
    f->o.comm_host = "192.0.2.1";
    start(f);
    (void)expect(f, MSG_HELLO);
    assert_int_equal(f->n_listen, 0);
}

/* The ranks lose each other while no step runs. The worker reports the loss once in each epoch. */
static void test_idle_peer_is_gone(void **state)
{
    struct fixture *f = *state;
    f->has_peers = true;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    plan(f, EPOCH(1), 1);
    expect_token(f, EPOCH(1), 1);
    const struct msg *m = expect(f, MSG_COMM_ERROR);
    assert_true(m->comm_error.term_epoch == EPOCH(1) && m->comm_error.step == 1);
    assert_true(str_eq_c(m->comm_error.text, "rank 1 is gone"));
    assert_int_equal(f->n_check, 2);
    send_abort(f, EPOCH(1));
    expect_aborted(f, EPOCH(1));
    become_ready(f, EPOCH(2));
    assert_true(expect(f, MSG_COMM_ERROR)->comm_error.term_epoch == EPOCH(2));
}

/* An Abort loses the device. The worker reports the cause instead of Aborted, and must end. */
static void test_lost_by_an_abort(void **state)
{
    struct fixture *f = *state;
    f->has_peers = true;
    device = LOST_BY_ABORT;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    assert_string_equal(worker_failure(f->worker), "");
    f->wait_for = MSG_ABORTED;
    send_abort(f, EPOCH(1));
    loop_run(f->loop); /* the worker or Aborted stops the loop */
    assert_string_equal(worker_failure(f->worker), "the GPU is lost: a test");
    assert_true(f->last.type == MSG_GOODBYE && !f->last.goodbye.planned);
    assert_true(str_eq_c(f->last.goodbye.text, "the GPU is lost: a test"));
}

/* The device is lost while the compute thread has no job. The worker detects the loss. */
static void test_lost_without_a_job(void **state)
{
    struct fixture *f = *state;
    f->has_peers = true;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    device = LOST;
    assert_true(str_eq_c(expect(f, MSG_GOODBYE)->goodbye.text, "the GPU is lost: a test"));
}

static void test_drain(void **state)
{
    struct fixture *f = *state;
    start(f);
    (void)expect(f, MSG_HELLO);
    become_ready(f, EPOCH(1));
    worker_stop(f->worker, "SIGTERM");
    (void)expect(f, MSG_DRAIN_WISH);
    assert_false(worker_is_ready(f->worker));
    plan(f, EPOCH(1), 1); /* the worker runs steps until the head releases it */
    expect_token(f, EPOCH(1), 1);
    send_abort(f, EPOCH(1));
    expect_aborted(f, EPOCH(1));
    assert_true(expect(f, MSG_GOODBYE)->goodbye.planned);
    loop_run(f->loop); /* the worker stops the loop */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(t) cmocka_unit_test_setup_teardown(t, set_up, tear_down)
        T(test_hello_says_what_it_is),    T(test_hello_says_smaller_tps),
        T(test_steps_gap_abort),          T(test_invalid_plan_is_a_gap),
        T(test_insane_form_and_wrong_id), T(test_abort_interrupts_a_stall),
        T(test_loading_is_told),          T(test_lost_link_and_adoption),
        T(test_refused_for_good),         T(test_silent_head),
        T(test_address_found_late),       T(test_address_given),
        T(test_idle_peer_is_gone),        T(test_lost_by_an_abort),
        T(test_lost_without_a_job),       T(test_drain),
        T(test_forms_of_smaller_tps),     T(test_kv_transfers),
        T(test_kv_transfer_and_an_end),   T(test_kv_transfer_and_the_end),
        T(test_no_kv_transfers),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
