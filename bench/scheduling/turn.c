/* Runs the whole head core under the trace, as cox-head drives it for a replica of one rank. A
 * result's frame arrives, and the next turn makes the next plan and sends the tokens to the
 * gateway. This file simulates the rank and the gateway: their frames stay in memory, and the
 * clock does not advance, so no heartbeat is due. Sent frames are copied once, as ZeroMQ does. */
#include "bench/scheduling/turn.h"

#include <string.h>

#include "bench/die.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "head/core/core.h"
#include "head/record/file.h"
#include "proto/link/link.h"

enum { RANK = 1, GATEWAY = 2, BOX_FRAMES = 256, MAX_RESULTS = DEPTH };
#define NOW_NS (100 * NS_PER_S)
/* bytes of a window, so many that the head never waits for a Credit */
#define WINDOW_BYTES (1ull << 40)

struct turn {
    struct trace *t;
    bench_mallocs *n_mallocs;
    struct head_core *core;
    struct step_log_file *step_log_file;
    struct step_log *step_log;
    struct link links[3];
    struct strbuf box[BOX_FRAMES]; /* frames that the head has sent, oldest first */
    uint8_t to[BOX_FRAMES];
    uint32_t n_box;
    struct strbuf frame, results[MAX_RESULTS];
    uint64_t n_planned, n_answered;
    uint32_t n_sampled;
    struct arena encode, decode;
};

static enum status take_frame(void *ctx, struct bus_peer to, struct str frame)
{
    struct turn *x = ctx;
    if (x->n_box == BOX_FRAMES)
        bench_die("the head sent more than %d frames in one turn", BOX_FRAMES);
    struct strbuf *b = &x->box[x->n_box];
    x->to[x->n_box++] = to.id[0];
    strbuf_reset(b);
    return strbuf_append(b, frame.ptr, frame.len) ? STATUS_OK : STATUS_LIMIT;
}

static void encode(struct turn *x, uint8_t who, const struct msg *m, struct strbuf *out)
{
    struct link *l = &x->links[who];
    if (m->type == MSG_HELLO)
        link_init(l, WINDOW_BYTES);
    strbuf_reset(out);
    if (codec_encode(m, l->session, link_next_seq(l), &x->encode, out) != STATUS_OK)
        bench_die("cannot encode a %s", msg_type_name(m->type));
    link_sent(l, m->type, out->len);
}

static void hand_over(struct turn *x, uint8_t who, const struct strbuf *frame)
{
    struct bus_peer from = {.n = 1, .id = {who}};
    head_core_on_frame(x->core, from, ROLE_NONE, "", strbuf_str(frame), NOW_NS);
    head_core_turn(x->core, NOW_NS);
}

static void say(struct turn *x, uint8_t who, const struct msg *m);

static void on_plan(struct turn *x, const struct msg_plan *plan)
{
    struct msg m = {.type = MSG_RESULT};
    trace_answer(x->t, plan, &m.result);
    x->n_sampled = m.result.n_items;
    if (plan->step != ++x->n_planned || x->n_planned - x->n_answered > MAX_RESULTS)
        bench_die("plan %llu came unexpected", (unsigned long long)plan->step);
    encode(x, RANK, &m, &x->results[plan->step % MAX_RESULTS]);
}

static void on_tokens(struct turn *x, const struct msg_tokens *m)
{
    for (uint32_t i = 0; i < m->n_items; i++) {
        if (m->items[i].finish == FINISH_NONE)
            continue;
        if (m->items[i].finish != FINISH_STOP)
            bench_die("a request failed: " STR_FMT, STR_ARG(m->items[i].text));
        x->t->ended[x->t->n_ended++] = (uint32_t)m->items[i].id.lo;
    }
}

static void on_frame(struct turn *x, uint8_t who, struct str frame)
{
    struct frame_header h;
    struct msg m;
    struct error err = {0};
    arena_reset(&x->decode);
    if (frame_parse_header(frame, &h, &err) != STATUS_OK ||
        codec_decode(frame, &h, &x->decode, &m, &err) != STATUS_OK)
        bench_die("a frame of the head: %s", err.text);
    struct msg comm_id = {.type = MSG_COMM_ID, .comm_id = {.id = {(const uint8_t *)"id", 2}}};
    struct msg formed = {.type = MSG_FORMED};
    switch (m.type) {
    case MSG_WELCOME:
        link_open(&x->links[who], h.session, m.welcome.credit_bytes);
        break;
    case MSG_FORM:
        comm_id.comm_id.term_epoch = m.form.term_epoch;
        if (m.form.make_id)
            say(x, who, &comm_id);
        break;
    case MSG_JOIN:
        formed.formed.term_epoch = m.join.term_epoch;
        say(x, who, &formed);
        break;
    case MSG_PLAN:
        on_plan(x, &m.plan);
        break;
    case MSG_TOKENS:
        on_tokens(x, &m.tokens);
        break;
    case MSG_CLUSTER:
    case MSG_ADAPTERS:
    case MSG_CREDIT:
        break;
    default:
        bench_die("unexpected: %s", msg_type_name(m.type));
    }
}

/* Handles frames until none are left; an answer may cause further frames. */
static void empty_box(struct turn *x)
{
    for (uint32_t i = 0; i < x->n_box; i++)
        on_frame(x, x->to[i], strbuf_str(&x->box[i]));
    x->n_box = 0;
}

static void say(struct turn *x, uint8_t who, const struct msg *m)
{
    encode(x, who, m, &x->frame);
    hand_over(x, who, &x->frame);
}

/* ---- the rig ---- */

static void submit(void *state, const struct msg_submit *m)
{
    struct turn *x = state;
    struct msg msg = {.type = MSG_SUBMIT, .submit = *m};
    say(x, GATEWAY, &msg);
}

static void cancel(void *state, struct request_id id)
{
    struct turn *x = state;
    struct msg m = {.type = MSG_CANCEL, .cancel = {.id = id, .attempt = 1}};
    say(x, GATEWAY, &m);
}

static void step(void *state, struct step_cost *out)
{
    struct turn *x = state;
    *out = (struct step_cost){0};
    empty_box(x); /* when no step ran, the arrivals may have caused a plan */
    if (x->n_answered == x->n_planned)
        bench_die("no plan after step %llu", (unsigned long long)x->n_planned);
    const struct strbuf *result = &x->results[++x->n_answered % MAX_RESULTS];
    unsigned long n_mallocs = x->n_mallocs();
    uint64_t begin = clock_mono_ns();
    hand_over(x, RANK, result);
    out->ns[SCHEDULE] = clock_mono_ns() - begin;
    out->n_mallocs = x->n_mallocs() - n_mallocs;
    empty_box(x);
    out->n_sampled = x->n_sampled;
}

static void turn_free(void *state)
{
    struct turn *x = state;
    struct error err = {0};
    struct head_stats s;
    head_core_get_stats(x->core, &s);
    if (s.n_preemptions > 0)
        bench_die("%llu preemptions: the pool is too small", (unsigned long long)s.n_preemptions);
    if (!head_core_check(x->core, &err))
        bench_die("head_core_check: %s", err.text);
    head_core_free(x->core);
    step_log_file_close(x->step_log_file);
    step_log_free(x->step_log);
    for (int i = 0; i < BOX_FRAMES; i++)
        strbuf_fini(&x->box[i]);
    for (int i = 0; i < MAX_RESULTS; i++)
        strbuf_fini(&x->results[i]);
    strbuf_fini(&x->frame);
    arena_fini(&x->encode);
    arena_fini(&x->decode);
    mem_free(x);
}

static void say_hellos(struct turn *x)
{
    struct kv_group kv = {.block_tokens = BLOCK_TOKENS, .n_blocks = trace_n_blocks(x->t->n)};
    struct msg gateway = {.type = MSG_HELLO,
                          .hello = {.node = STR("gateway"),
                                    .instance = 1,
                                    .role = ROLE_GATEWAY,
                                    .credit_bytes = WINDOW_BYTES}};
    struct msg rank = {.type = MSG_HELLO,
                       .hello = {.node = STR("rank"),
                                 .instance = 2,
                                 .role = ROLE_WORKER,
                                 .credit_bytes = WINDOW_BYTES,
                                 .has_worker = true,
                                 .worker = {.host = STR("host"),
                                            .ordinal = 0,
                                            .tp = 1,
                                            .pp = 1,
                                            .shard_rank = -1,
                                            .shard_stage = -1,
                                            .model = STR("model"),
                                            .max_model_len = MODEL_LEN,
                                            .vocab_size = VOCABULARY,
                                            .kv_groups = &kv,
                                            .n_kv_groups = 1}}};
    say(x, GATEWAY, &gateway);
    say(x, RANK, &rank);
    for (int i = 0; i < 8 && !head_core_is_ready(x->core); i++)
        empty_box(x);
    if (!head_core_is_ready(x->core))
        bench_die("no group formed");
}

static void open_step_log(struct turn *x, const char *path)
{
    struct error err;
    if (step_log_file_open(path, 0, &x->step_log_file, &err) != STATUS_OK)
        bench_die("%s", err.text);
    struct step_log_sink sink = step_log_file_sink(x->step_log_file);
    x->step_log = step_log_new(&sink, 0);
}

struct rig rig_turn(struct trace *t, const char *step_log, bench_mallocs *n_mallocs)
{
    struct turn *x = mem_zalloc(sizeof *x);
    struct head_core_config c;
    x->t = t;
    x->n_mallocs = n_mallocs;
    head_core_config_init(&c);
    c.peers.insecure = true;
    c.peers.window_bytes = WINDOW_BYTES;
    c.max_num_seqs = t->n;
    c.max_num_batched_tokens = trace_budget_tokens(t->n);
    c.max_waiting = c.max_requests = 2 * t->n + 16;
    c.depth = DEPTH;
    if (step_log)
        open_step_log(x, step_log);
    c.step_log = x->step_log;
    for (int i = 0; i < BOX_FRAMES; i++)
        strbuf_init(&x->box[i], FRAME_MAX_BYTES);
    for (int i = 0; i < MAX_RESULTS; i++)
        strbuf_init(&x->results[i], FRAME_MAX_BYTES);
    strbuf_init(&x->frame, FRAME_MAX_BYTES);
    arena_init(&x->encode, 0);
    arena_init(&x->decode, 0);
    x->core = head_core_new(&c, &(struct head_io){.ctx = x, .send = take_frame}, NOW_NS);
    say_hellos(x);
    return (struct rig){
        .state = x, .submit = submit, .cancel = cancel, .step = step, .free = turn_free};
}
