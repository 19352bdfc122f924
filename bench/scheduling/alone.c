/* Runs the scheduler and the codec under the trace, without the rest of the head.
 * scheduler_bench and scale_alone call this rig through a struct rig. Each step makes and
 * encodes a plan, decodes and applies the trace's answer, and encodes the gateways' tokens. All
 * of this runs on one thread. The clock does not advance, so no deadline passes. */
#include "bench/scheduling/alone.h"

#include <string.h>

#include "bench/die.h"
#include "common/base/clock.h"
#include "common/base/mem.h"
#include "common/collections/slab.h"
#include "head/scheduler/scheduler.h"
#include "proto/codec/codec.h"

enum { TOKENS_ITEMS = 512 }; /* most tokens of one frame, as in gateways.c */
#define NOW_NS NS_PER_S      /* a fixed time, so that no deadline passes */
#define EPOCH  1u

struct alone {
    struct trace *t;
    bench_mallocs *n_mallocs;
    struct scheduler *scheduler;
    struct slab slab;
    struct request **requests; /* the request of each slot */
    struct strbuf plan, tokens, results[DEPTH];
    uint64_t n_planned, n_applied, n_arrived, n_token_frames;
    struct arena encode, decode;
    struct tokens_item items[TOKENS_ITEMS];
};

static void must(enum status s, const char *what, const struct error *err)
{
    if (s != STATUS_OK)
        bench_die("%s: %s: %s", what, status_name(s), err ? err->text : "");
}

static void submit(void *state, const struct msg_submit *m)
{
    struct alone *a = state;
    struct error err = {0};
    struct request *r = NULL;
    must(request_new(&a->slab, m, MODEL_LEN, NOW_NS, &r, &err), "request_new", &err);
    r->arrival_seq = ++a->n_arrived;
    a->requests[m->id.lo] = r;
    must(scheduler_add(a->scheduler, r), "scheduler_add", NULL);
}

static void cancel(void *state, struct request_id id)
{
    struct alone *a = state;
    scheduler_remove(a->scheduler, a->requests[id.lo]);
    request_free(a->requests[id.lo]);
    a->requests[id.lo] = NULL;
}

/* ---- one step ---- */

static void encode(struct alone *a, const struct msg *m, uint64_t seq, struct strbuf *out)
{
    strbuf_reset(out);
    must(codec_encode(m, EPOCH, seq, &a->encode, out), "codec_encode", NULL);
}

static void answer(struct alone *a, const struct msg_plan *plan, struct step_cost *out)
{
    struct msg m = {.type = MSG_RESULT};
    trace_answer(a->t, plan, &m.result);
    out->n_sampled = m.result.n_items;
    encode(a, &m, plan->step, &a->results[plan->step % DEPTH]);
    a->n_planned = plan->step;
}

static void send_tokens(struct alone *a, uint32_t n)
{
    struct msg m = {.type = MSG_TOKENS,
                    .tokens = {.term_epoch = EPOCH, .items = a->items, .n_items = n}};
    encode(a, &m, ++a->n_token_frames, &a->tokens);
}

static void tell_gateway(struct alone *a, const struct scheduler_event *events, uint32_t n_events)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_events; i++) {
        struct request *r = events[i].request;
        if (i + REQUEST_PREFETCH_FAR < n_events)
            request_prefetch(events[i + REQUEST_PREFETCH_FAR].request);
        if (i + REQUEST_PREFETCH_NEAR < n_events)
            request_prefetch_ids(events[i + REQUEST_PREFETCH_NEAR].request);
        request_fill_tokens(r, 0, request_n_generated(r) - r->n_delivered, &a->items[n++]);
        r->n_delivered = request_n_generated(r);
        if (n == TOKENS_ITEMS) {
            send_tokens(a, n);
            n = 0;
        }
    }
    if (n > 0)
        send_tokens(a, n);
}

static void forget_ended(struct alone *a, const struct scheduler_event *events, uint32_t n_events)
{
    for (uint32_t i = 0; i < n_events; i++) {
        if (!events[i].ended)
            continue;
        uint32_t i_slot = (uint32_t)events[i].request->id.lo;
        a->t->ended[a->t->n_ended++] = i_slot;
        request_free(a->requests[i_slot]);
        a->requests[i_slot] = NULL;
    }
}

static void apply_oldest(struct alone *a, struct step_cost *out)
{
    struct frame_header h;
    struct msg m;
    struct error err = {0};
    const struct scheduler_event *events = NULL;
    uint32_t n_events = 0;
    struct str frame = strbuf_str(&a->results[(a->n_applied + 1) % DEPTH]);
    unsigned long n_mallocs = a->n_mallocs();
    uint64_t t0 = clock_mono_ns();
    arena_reset(&a->decode);
    must(frame_parse_header(frame, &h, &err), "frame_parse_header", &err);
    must(codec_decode(frame, &h, &a->decode, &m, &err), "codec_decode", &err);
    uint64_t t1 = clock_mono_ns();
    must(scheduler_on_result(a->scheduler, &m.result, NOW_NS, &events, &n_events, &err),
         "scheduler_on_result", &err);
    uint64_t t2 = clock_mono_ns();
    tell_gateway(a, events, n_events);
    uint64_t t3 = clock_mono_ns();
    out->n_mallocs += a->n_mallocs() - n_mallocs;
    out->ns[RESULT] = t1 - t0;
    out->ns[APPLY] = t2 - t1;
    out->ns[TOKENS] = t3 - t2;
    a->n_applied++;
    forget_ended(a, events, n_events);
}

static void step(void *state, struct step_cost *out)
{
    struct alone *a = state;
    *out = (struct step_cost){0};
    unsigned long n_mallocs = a->n_mallocs();
    uint64_t t0 = clock_mono_ns();
    const struct msg_plan *plan = scheduler_step(a->scheduler, NOW_NS);
    if (scheduler_pop_ended(a->scheduler))
        bench_die("a request ended by itself");
    uint64_t t1 = clock_mono_ns();
    if (plan) {
        struct msg m = {.type = MSG_PLAN, .plan = *plan};
        encode(a, &m, plan->step, &a->plan);
    }
    uint64_t t2 = clock_mono_ns();
    out->n_mallocs = a->n_mallocs() - n_mallocs;
    out->ns[SCHEDULE] = t1 - t0;
    out->ns[PLAN] = t2 - t1;
    if (plan)
        answer(a, plan, out);
    if (a->n_planned - a->n_applied == DEPTH || (!plan && a->n_planned > a->n_applied))
        apply_oldest(a, out);
}

/* ---- life ---- */

static void alone_free(void *state)
{
    struct alone *a = state;
    struct scheduler_stats x;
    struct error err = {0};
    scheduler_get_stats(a->scheduler, &x);
    if (x.n_preemptions > 0)
        bench_die("%llu preemptions: the pool is too small", (unsigned long long)x.n_preemptions);
    if (!scheduler_check(a->scheduler, &err))
        bench_die("scheduler_check: %s", err.text);
    for (uint32_t i = 0; i < a->t->n; i++)
        if (a->requests[i])
            cancel(a, a->requests[i]->id);
    scheduler_free(a->scheduler);
    slab_fini(&a->slab);
    mem_free(a->requests);
    strbuf_fini(&a->plan);
    strbuf_fini(&a->tokens);
    for (int i = 0; i < DEPTH; i++)
        strbuf_fini(&a->results[i]);
    arena_fini(&a->encode);
    arena_fini(&a->decode);
    mem_free(a);
}

struct rig rig_alone(struct trace *t, bench_mallocs *n_mallocs)
{
    struct alone *a = mem_zalloc(sizeof *a);
    struct error err = {0};
    struct scheduler_config c = {
        .max_num_batched_tokens = trace_budget_tokens(t->n),
        .max_num_seqs = t->n,
        .max_waiting = t->n,
        .max_model_len = MODEL_LEN,
        .depth = DEPTH,
        .enable_prefix_caching = true,
        .n_kv_groups = 1,
        .kv_groups = {{.block_tokens = BLOCK_TOKENS, .n_blocks = trace_n_blocks(t->n)}},
    };
    a->t = t;
    a->n_mallocs = n_mallocs;
    slab_init(&a->slab, sizeof(struct request), t->n);
    a->requests = mem_array(t->n, sizeof(struct request *));
    strbuf_init(&a->plan, FRAME_MAX_BYTES);
    strbuf_init(&a->tokens, FRAME_MAX_BYTES);
    for (int i = 0; i < DEPTH; i++)
        strbuf_init(&a->results[i], FRAME_MAX_BYTES);
    arena_init(&a->encode, 0);
    arena_init(&a->decode, 0);
    must(scheduler_new(&c, &a->scheduler, &err), "scheduler_new", &err);
    scheduler_reset(a->scheduler, EPOCH, NULL, NULL);
    return (struct rig){
        .state = a, .submit = submit, .cancel = cancel, .step = step, .free = alone_free};
}
