#pragma once
/* Provides a scheduler with its requests and a rank that samples given tokens, for the tests of
 * the scheduler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "head/scheduler/scheduler.h"

enum { EPOCH = 7, MAX_REQUESTS = 64, STOP_ID = 50, OTHER_ID = 1 };

struct bed {
    struct scheduler *s;
    struct request *requests[MAX_REQUESTS];
    uint32_t n_requests;
    uint32_t prompt[2048];
    uint64_t now_ns;
    const struct scheduler_event *events;
    uint32_t n_events;
};

static inline struct scheduler_config config(uint32_t n_blocks)
{
    return (struct scheduler_config){
        .max_num_batched_tokens = 64,
        .max_num_seqs = 4,
        .max_waiting = 10,
        .max_model_len = 1024,
        .depth = 1,
        .n_kv_groups = 1,
        .kv_groups = {{.kind = KV_FULL, .block_tokens = 16, .n_blocks = n_blocks}},
    };
}

static inline void open_bed(struct bed *b, const struct scheduler_config *c)
{
    struct error err;
    *b = (struct bed){.now_ns = 1};
    for (uint32_t i = 0; i < 2048; i++)
        b->prompt[i] = 1000 + i;
    if (scheduler_new(c, &b->s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    scheduler_reset(b->s, EPOCH, NULL, NULL);
}

static inline void close_bed(struct bed *b)
{
    struct error err;
    if (!scheduler_check(b->s, &err))
        fail_msg("%s", err.text);
    scheduler_free(b->s);
    for (uint32_t i = 0; i < b->n_requests; i++)
        request_free(b->requests[i]);
}

static inline struct msg_submit submit(struct bed *b, uint32_t n_prompt, uint32_t max_tokens)
{
    static const uint32_t stop_id = STOP_ID;
    return (struct msg_submit){
        .id = {1, b->n_requests},
        .attempt = 1,
        .n_prompt = n_prompt,
        .ids = {b->prompt, n_prompt},
        .sampling = {.top_p = 1.0f,
                     .max_tokens = max_tokens,
                     .n_logprobs = -1,
                     .n_prompt_logprobs = -1,
                     .stop_ids = {&stop_id, 1}},
    };
}

static inline struct request *make(struct bed *b, const struct msg_submit *m)
{
    struct request *r;
    assert_int_equal(request_new(NULL, m, 1024, b->now_ns, &r, NULL), STATUS_OK);
    r->arrival_seq = b->n_requests + 1;
    b->requests[b->n_requests++] = r;
    return r;
}

static inline struct request *add(struct bed *b, uint32_t n_prompt, uint32_t max_tokens)
{
    struct msg_submit m = submit(b, n_prompt, max_tokens);
    struct request *r = make(b, &m);
    assert_int_equal(scheduler_add(b->s, r), STATUS_OK);
    return r;
}

/* Describes an answer to a plan. All its tokens are `token`. */
struct answer {
    struct msg_result m;
    struct result_item items[MAX_REQUESTS];
    uint32_t token;
};

static inline void answer(const struct msg_plan *plan, uint32_t token, struct answer *a)
{
    a->token = token;
    a->m =
        (struct msg_result){.term_epoch = plan->term_epoch, .step = plan->step, .items = a->items};
    for (uint32_t i = 0; i < plan->n_runs; i++)
        if (plan->runs[i].sample)
            a->items[a->m.n_items++] =
                (struct result_item){.slot = plan->runs[i].slot, .ids = {&a->token, 1}};
}

static inline void give(struct bed *b, const struct answer *a)
{
    struct error err;
    if (scheduler_on_result(b->s, &a->m, b->now_ns, &b->events, &b->n_events, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static inline const struct msg_plan *step(struct bed *b)
{
    struct error err;
    const struct msg_plan *p = scheduler_step(b->s, b->now_ns);
    if (!scheduler_check(b->s, &err))
        fail_msg("%s", err.text);
    return p;
}

/* Plans a step and answers it. */
static inline void turn(struct bed *b, uint32_t token)
{
    struct answer a;
    const struct msg_plan *p = step(b);
    assert_non_null(p);
    answer(p, token, &a);
    give(b, &a);
}
