/* Fuzzes the head core with peers that have valid keys and send anything. A gateway and two
 * workers form a replica and run a request. Then they send frames whose bodies come from the
 * input. Session and numbers are made valid, so that the messages themselves are tested. A frame
 * that was not understood closes the session, and a Hello from the input opens another session.
 * After every input the head's invariants must hold. The input has frames one after the other;
 * byte 5 of a frame selects the connection, byte 7 the action. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "head/core/core.h"
#include "head/core/scale.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    N_CONNECTIONS = 6, /* number of connections: 0 and 4 are gateways; 1, 2, 3 and 5 are workers */
    N_FRAMES = 24,
    MAX_ITEMS = 64,
    N_PLANS = 4, /* number of plans to keep, more than can be in flight */
    PROMPT = 40,
    AT_TYPE = 4,
    AT_CONNECTION = 5,
    AT_WHAT = 7,
    AT_BODY_BYTES = 24
};

enum what {
    WHAT_FRAME,
    WHAT_AS_IT_IS,
    WHAT_HONEST_RESULT,
    WHAT_TIME,
    WHAT_TURN,
    WHAT_MOVE,
    WHAT_SUBMIT_GRAMMAR,
    WHAT_GRAMMAR_DONE,
    WHAT_SLEEP,
    WHAT_COUNT
};

static struct world {
    struct head_core *core;
    /* time, and epochs of the replica of workers 1 and 2 and of another replica */
    uint64_t now_ns, epoch, other_epoch;
    uint8_t other_maker; /* connection that makes the other replica's id */
    bool has_other;
    struct link links[N_CONNECTIONS];
    struct arena scratch;
    struct strbuf frame;
    struct seen {
        uint64_t step;
        uint32_t sampled[MAX_ITEMS], n_sampled;
    } plans[N_PLANS]; /* plans that the first worker received, by step */
    uint64_t last_step, answered;
    struct {
        uint64_t epoch, id;
    } grammar; /* last grammar that the head requested */
} w;

static struct bus_peer address(uint8_t connection)
{
    return (struct bus_peer){.n = 2, .id = {9, connection}};
}

static bool is_gateway(uint8_t connection)
{
    return connection == 0 || connection == 4;
}

static void see_plan(const struct msg_plan *p)
{
    struct seen *s = &w.plans[p->step % N_PLANS];
    *s = (struct seen){.step = p->step};
    w.last_step = p->step;
    w.answered = p->step == 1 ? 0 : w.answered;
    for (uint32_t i = 0; i < p->n_runs && s->n_sampled < MAX_ITEMS; i++)
        if (p->runs[i].sample)
            s->sampled[s->n_sampled++] = p->runs[i].slot;
}

static enum status on_send(void *ctx, struct bus_peer to, struct str frame)
{
    struct frame_header h;
    struct msg m;
    struct arena a;
    arena_init(&a, 0);
    if (frame_parse_header(frame, &h, NULL) != STATUS_OK ||
        codec_decode(frame, &h, &a, &m, NULL) != STATUS_OK)
        abort(); /* frames from the head must be well-formed, whatever it received */
    if (m.type == MSG_WELCOME)
        link_open(&w.links[to.id[1]], h.session, m.welcome.credit_bytes);
    if (m.type == MSG_FORM)
        *(to.id[1] <= 2 ? &w.epoch : &w.other_epoch) = m.form.term_epoch;
    if (m.type == MSG_FORM && to.id[1] > 2 && m.form.make_id)
        w.other_maker = to.id[1];
    if (m.type == MSG_GRAMMAR) {
        w.grammar.epoch = m.grammar.term_epoch;
        w.grammar.id = m.grammar.id;
    }
    if (m.type == MSG_PLAN && to.id[1] == 1)
        see_plan(&m.plan);
    arena_fini(&a);
    return STATUS_OK;
}

static void deliver(uint8_t connection, struct str frame)
{
    static const char *const keys[] = {"gateway-key", "worker-key"};
    bool g = is_gateway(connection);
    head_core_on_frame(w.core, address(connection), g ? ROLE_GATEWAY : ROLE_WORKER, keys[!g], frame,
                       w.now_ns);
    head_core_turn(w.core, w.now_ns);
}

static void say(uint8_t connection, const struct msg *m)
{
    struct link *l = &w.links[connection];
    if (m->type == MSG_HELLO)
        link_init(l, 1 << 20);
    strbuf_reset(&w.frame);
    uint64_t seq = link_next_seq(l);
    if (codec_encode(m, m->type == MSG_HELLO ? 0 : l->session, seq, &w.scratch, &w.frame) !=
        STATUS_OK)
        return;
    link_sent(l, m->type, 0);
    deliver(connection, strbuf_str(&w.frame));
}

/* ---- actions of honest peers ---- */

static void hello(uint8_t connection)
{
    static const struct kv_group kv = {.block_tokens = 16, .n_blocks = 32};
    static const uint32_t blocks_alone[] = {4};
    static const struct elastic_shape alone = {.tp = 1, .n_blocks = {blocks_alone, 1}};
    struct msg m = {.type = MSG_HELLO,
                    .hello = {.node = STR("n"),
                              .instance = 100u + connection,
                              .role = is_gateway(connection) ? ROLE_GATEWAY : ROLE_WORKER,
                              .credit_bytes = 1 << 20,
                              .has_worker = !is_gateway(connection)}};
    m.hello.worker = (struct worker_info){.host = STR("h"),
                                          .ordinal = connection - 1,
                                          .tp = 2,
                                          .pp = 1,
                                          .shard_rank = -1,
                                          .shard_stage = -1,
                                          .model = STR("m"),
                                          .max_model_len = 256,
                                          .vocab_size = 1000,
                                          .gives_prompt_logprobs = true,
                                          .kv_groups = &kv,
                                          .n_kv_groups = 1,
                                          .kv_address = STR("a:1"),
                                          .elastic = &alone,
                                          .n_elastic = 1};
    say(connection, &m);
}

static void form(void)
{
    struct msg id = {.type = MSG_COMM_ID,
                     .comm_id = {.term_epoch = w.epoch, .id = {(const uint8_t *)"id", 2}}};
    struct msg formed = {.type = MSG_FORMED, .formed = {.term_epoch = w.epoch}};
    say(1, &id);
    say(1, &formed);
    say(2, &formed);
}

static void submit(uint64_t id, enum grammar_kind kind, struct str grammar)
{
    static uint32_t ids[PROMPT];
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, id},
                               .attempt = 1,
                               .n_prompt = PROMPT,
                               .ids = {ids, PROMPT},
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = 20,
                                            .grammar_kind = kind,
                                            .grammar = grammar}}};
    say(0, &m);
}

static void honest_result(void)
{
    static const uint32_t ids[1] = {5};
    static const float gap = 1;
    struct result_item items[MAX_ITEMS];
    const struct seen *seen = &w.plans[(w.answered + 1) % N_PLANS];
    uint32_t n = seen->step == w.answered + 1 ? seen->n_sampled : 0;
    for (uint32_t i = 0; i < n; i++)
        items[i] =
            (struct result_item){.slot = seen->sampled[i], .ids = {ids, 1}, .gaps = {&gap, 1}};
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = w.epoch,
                               .step = ++w.answered,
                               .items = items,
                               .n_items = n,
                               .execute_ns = 400 * NS_PER_MS}};
    struct msg beat = {.type = MSG_HEARTBEAT,
                       .heartbeat = {.term_epoch = w.epoch,
                                     .step_received = w.last_step,
                                     .step_executed = w.last_step}};
    say(1, &m);
    say(1, &beat);
    say(2, &beat);
}

static void pass_time(uint8_t ticks)
{
    for (unsigned i = 0; i < 1u + ticks % 64; i++) {
        w.now_ns += HEAD_TICK_MS * NS_PER_MS;
        head_core_tick(w.core, w.now_ns);
    }
}

/* Forms a second replica and drains the first replica's worker. Blocks are then in transit
 * between the replicas, and the input has the workers' messages about them. */
static void move(void)
{
    if (!w.has_other) {
        w.has_other = true;
        hello(3);
        hello(5);
        pass_time(8);
        struct msg id = {
            .type = MSG_COMM_ID,
            .comm_id = {.term_epoch = w.other_epoch, .id = {(const uint8_t *)"id", 2}}};
        struct msg formed = {.type = MSG_FORMED, .formed = {.term_epoch = w.other_epoch}};
        say(w.other_maker, &id);
        say(3, &formed);
        say(5, &formed);
        for (int i = 0; i < 3; i++)
            honest_result();
    }
    if (head_core_drain_worker(w.core, 101, true, "a test", w.now_ns) == STATUS_OK)
        pass_time(0);
}

/* Lets any rank report any end of the grammar that the head requested, with any sizes. */
static void grammar_done(uint8_t connection, uint8_t status, struct str text)
{
    struct msg m = {.type = MSG_GRAMMAR_DONE,
                    .grammar_done = {.term_epoch = w.grammar.epoch,
                                     .id = w.grammar.id,
                                     .status = (enum status)(status % STATUS_COUNT),
                                     .text = text,
                                     .bytes = (uint64_t)text.len << 19,
                                     .matcher_bytes = (uint64_t)status << 18,
                                     .room_bytes = 64 << 20}};
    say(connection, &m);
}

/* Orders sleep at a level, held or not, with or without the end of all requests, or its end. */
static void order_sleep(uint8_t how)
{
    struct error err = {0};
    bool is_held = how & 0x40;
    enum sleep_level level = (enum sleep_level)(how % SLEEP_LEVEL_COUNT);
    if (level == SLEEP_LEVEL_AWAKE && is_held)
        head_core_end_rest(w.core, w.now_ns);
    else if (level == SLEEP_LEVEL_AWAKE)
        head_core_wake(w.core, "a test", w.now_ns);
    else if (!is_held)
        head_core_sleep(w.core, level, how & 0x80, "a test", w.now_ns);
    else if (head_core_rest_asleep(w.core, level, w.now_ns, &err) == STATUS_OK &&
             !head_core_sleep_state(w.core)->held)
        abort();
    head_core_turn(w.core, w.now_ns);
}

/* ---- the input ---- */

static void from_input(const uint8_t *data, size_t n)
{
    uint8_t connection = data[AT_CONNECTION] % N_CONNECTIONS;
    struct link *l = &w.links[connection];
    enum msg_type type = (enum msg_type)(1 + data[AT_TYPE] % (MSG_TYPE_COUNT - 1));
    struct frame_header h = {.type = type};
    if (type == MSG_HELLO)
        link_init(l, 1 << 20);
    /* an empty message gives the header, and the input gives the body */
    struct msg empty = {.type = MSG_HEARTBEAT};
    strbuf_reset(&w.frame);
    if (codec_encode(&empty, type == MSG_HELLO ? 0 : l->session, link_next_seq(l), &w.scratch,
                     &w.frame) != STATUS_OK)
        abort();
    w.frame.len = FRAME_HEADER_BYTES;
    strbuf_append(&w.frame, (const char *)data + FRAME_HEADER_BYTES, n - FRAME_HEADER_BYTES);
    w.frame.ptr[AT_TYPE] = (char)type;
    for (int i = 0; i < 4; i++)
        w.frame.ptr[AT_BODY_BYTES + i] = (char)(uint8_t)((n - FRAME_HEADER_BYTES) >> 8 * i);
    if (frame_parse_header(strbuf_str(&w.frame), &h, NULL) != STATUS_OK)
        abort();
    link_sent(l, type, 0);
    deliver(connection, strbuf_str(&w.frame));
}

static void take(const uint8_t *data, size_t n)
{
    const struct str body = {(const char *)data + FRAME_HEADER_BYTES, n - FRAME_HEADER_BYTES};
    switch ((enum what)(data[AT_WHAT] % WHAT_COUNT)) {
    case WHAT_FRAME:
        from_input(data, n);
        break;
    case WHAT_AS_IT_IS:
        deliver(data[AT_CONNECTION] % N_CONNECTIONS, (struct str){(const char *)data, n});
        break;
    case WHAT_HONEST_RESULT:
        honest_result();
        break;
    case WHAT_MOVE:
        move();
        break;
    case WHAT_TIME:
        pass_time(data[AT_TYPE]);
        break;
    case WHAT_SUBMIT_GRAMMAR:
        submit(10 + data[AT_TYPE] % 4u, GRAMMAR_REGEX, body);
        break;
    case WHAT_GRAMMAR_DONE:
        grammar_done(data[AT_CONNECTION] % N_CONNECTIONS, data[AT_TYPE], body);
        break;
    case WHAT_SLEEP:
        order_sleep(data[AT_TYPE]);
        break;
    default:
        head_core_turn(w.core, w.now_ns);
        break;
    }
}

static void start(void)
{
    struct head_core_config c;
    const struct head_io io = {.send = on_send};
    memset(w.links, 0, sizeof w.links);
    w.now_ns = 100 * NS_PER_S;
    w.epoch = w.other_epoch = w.last_step = w.answered = 0;
    memset(w.plans, 0, sizeof w.plans);
    memset(&w.grammar, 0, sizeof w.grammar);
    w.other_maker = 3;
    w.has_other = false;
    head_core_config_init(&c);
    c.scale.min_replicas = 0; /* otherwise every rest is refused */
    c.cluster.tp = 2;
    c.cluster.max_replicas = 2;
    c.cluster.elastic_tp = true;
    c.cluster.elastic_wait_ns = 200 * NS_PER_MS;
    c.peers.max_peers = 6;
    c.max_waiting = 4;
    c.max_requests = 16;
    w.core = head_core_new(&c, &io, w.now_ns);
    hello(0);
    hello(1);
    hello(2);
    form();
    submit(1, GRAMMAR_NONE, STR(""));
    submit(2, GRAMMAR_NONE, STR(""));
    if (!head_core_is_ready(w.core) || w.last_step == 0)
        abort(); /* without this replica nothing would be fuzzed */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct error err = {0};
    if (!w.frame.ptr) {
        log_init("fuzz", LOG_ERROR, LOG_LOGFMT);
        arena_init(&w.scratch, 0);
        strbuf_init(&w.frame, FRAME_MAX_BYTES);
    }
    start();
    for (int i = 0; i < N_FRAMES && size >= FRAME_HEADER_BYTES; i++) {
        size_t body = data[AT_BODY_BYTES] | (size_t)data[AT_BODY_BYTES + 1] << 8;
        size_t room = size - FRAME_HEADER_BYTES,
               n = FRAME_HEADER_BYTES + (body < room ? body : room);
        take(data, n);
        data += n;
        size -= n;
    }
    pass_time(10);
    if (!head_core_check(w.core, &err)) {
        fprintf(stderr, "%s\n", err.text);
        abort();
    }
    head_core_free(w.core);
    return 0;
}
