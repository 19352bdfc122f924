/* Tests whom a promised first token delays. A head core with scripted workers runs in virtual
 * time: a step takes 40 ms, 1 ms for each row that samples and 0.1 ms for each other row. The
 * tests submit requests, let time pass and read when each request entered a replica and when it
 * had its first token. All tests run on one thread. */
#include "tests/unit/head/core/core_fixture.h"

enum { MAX_RANKS = 2, GATEWAY = 9, MAX_PLANS = 4, SLOTS = 4, MAX_REQUESTS = 256 };

struct rank {
    struct {
        uint64_t epoch, step, execute_ns, end_ns;
        struct result_item items[SLOTS];
        uint32_t n;
    } plans[MAX_PLANS]; /* plans in flight, oldest first */
    uint32_t n_plans;
    uint64_t end_ns; /* end of the last plan */
    bool stopped;    /* this rank sends no results */
};

struct answer {
    uint64_t asked_ns, first_ns;
    uint32_t predicted_ms;
    bool refused, ended;
};

struct bed {
    struct fixture *f;
    struct rank ranks[MAX_RANKS];
    uint32_t n_ranks, last_id;
    struct answer answers[MAX_REQUESTS]; /* indexed by id */
};

/* Describes a request. n_shared: first ids of its prompt, which other requests have too. */
struct ask {
    uint32_t tenant, n_prompt, max_tokens, slo_ms, n_shared, attempt;
    int32_t priority;
};

static void on_plan(struct bed *b, struct rank *k, const struct msg_plan *p)
{
    static const uint32_t token = 7;
    static const float gap = 1;
    assert_true(k->n_plans < MAX_PLANS);
    uint32_t i = k->n_plans++;
    uint64_t us = 40000;
    k->plans[i].n = 0;
    for (uint32_t r = 0; r < p->n_runs; r++) {
        const struct plan_run *x = &p->runs[r];
        us += 1000 * x->sample + 100 * (x->n_tokens - x->sample);
        if (x->sample)
            k->plans[i].items[k->plans[i].n++] =
                (struct result_item){.slot = x->slot, .ids = {&token, 1}, .gaps = {&gap, 1}};
    }
    uint64_t begin = k->end_ns > b->f->now ? k->end_ns : b->f->now;
    k->plans[i].execute_ns = us * NS_PER_US;
    k->plans[i].end_ns = k->end_ns = begin + us * NS_PER_US;
    k->plans[i].epoch = p->term_epoch;
    k->plans[i].step = p->step;
}

static void on_item(struct bed *b, const struct tokens_item *t)
{
    struct answer *a = &b->answers[t->id.lo];
    a->predicted_ms = t->predicted_ttft_ms ? t->predicted_ttft_ms : a->predicted_ms;
    a->refused |= t->status == STATUS_LIMIT;
    a->ended |= t->finish != FINISH_NONE;
    if (t->ids.n > 0 && a->first_ns == 0)
        a->first_ns = b->f->now;
}

static void read_box(struct bed *b)
{
    struct fixture *f = b->f;
    for (uint32_t i = 0; i < f->n_box; i++) {
        const struct msg *m = &f->box[i].m;
        uint8_t to = f->box[i].to;
        if (m->type == MSG_FORM && m->form.make_id)
            say(f, to,
                &(struct msg){.type = MSG_COMM_ID,
                              .comm_id = {m->form.term_epoch, {(const uint8_t *)"id", 2}}});
        else if (m->type == MSG_JOIN)
            say(f, to,
                &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = m->join.term_epoch}});
        else if (m->type == MSG_PLAN)
            on_plan(b, &b->ranks[to - 1], &m->plan);
        for (uint32_t k = 0; m->type == MSG_TOKENS && k < m->tokens.n_items; k++)
            on_item(b, &m->tokens.items[k]);
    }
    box_clear(f);
}

static void join(struct bed *b, uint8_t i)
{
    static const struct kv_group kv = {.block_tokens = 16, .n_blocks = 4096};
    struct msg hello = worker_hello(100 + i, i);
    hello.hello.credit_bytes = UINT32_MAX;
    hello.hello.worker.tp = 1;
    hello.hello.worker.device = DEVICE_CUDA;
    hello.hello.worker.max_model_len = 8192;
    hello.hello.worker.kv_groups = &kv;
    say(b->f, i + 1, &hello);
    read_box(b);
}

static void open_bed(struct bed *b, uint32_t n_ranks)
{
    struct fixture *f = fixture_new(1);
    *b = (struct bed){.f = f, .n_ranks = n_ranks};
    head_core_free(f->core);
    f->config.max_waiting = f->config.max_requests = 4096;
    f->config.max_num_seqs = SLOTS;
    f->config.priorities = true;
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    for (uint8_t i = 0; i < n_ranks; i++)
        join(b, i);
    say(f, GATEWAY,
        &(struct msg){.type = MSG_HELLO,
                      .hello = {.node = STR("g"),
                                .instance = 9,
                                .role = ROLE_GATEWAY,
                                .credit_bytes = UINT32_MAX}});
    read_box(b);
    assert_int_equal(f->core->n_live, n_ranks);
}

/* Returns the rank whose next result is due first, or NULL. */
static struct rank *next_rank(struct bed *b)
{
    struct rank *k = NULL;
    for (uint32_t i = 0; i < b->n_ranks; i++) {
        struct rank *x = &b->ranks[i];
        if (!x->stopped && x->n_plans && (!k || x->plans[0].end_ns < k->plans[0].end_ns))
            k = x;
    }
    return k;
}

static void give_result(struct bed *b, struct rank *k)
{
    uint8_t conn = (uint8_t)(k - b->ranks + 1);
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = k->plans[0].epoch,
                               .step = k->plans[0].step,
                               .execute_ns = k->plans[0].execute_ns,
                               .n_items = k->plans[0].n}};
    struct result_item items[SLOTS];
    memcpy(items, k->plans[0].items, sizeof items);
    m.result.items = items;
    b->f->now = k->plans[0].end_ns;
    memmove(k->plans, k->plans + 1, --k->n_plans * sizeof *k->plans);
    say(b->f, conn, &m);
    read_box(b);
}

/* Gives results until the request has its first token; 0 = until nothing runs. */
static void run(struct bed *b, uint32_t id)
{
    for (struct rank *k; (k = next_rank(b)) != NULL && !(id && b->answers[id].first_ns);)
        give_result(b, k);
}

static uint32_t ask(struct bed *b, struct ask a)
{
    static uint32_t ids[8192];
    uint32_t id = ++b->last_id;
    assert_true(id < MAX_REQUESTS);
    for (uint32_t i = 0; i < a.n_prompt; i++)
        ids[i] = 1 + (i < a.n_shared ? i : (id * 7919 + i) % 19000);
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, id},
                               .attempt = a.attempt ? a.attempt : 1,
                               .tenant = a.tenant,
                               .priority = a.priority,
                               .n_prompt = a.n_prompt,
                               .ids = {ids, a.n_prompt},
                               .slo_ttft_ms = a.slo_ms,
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = a.max_tokens}}};
    b->answers[id].asked_ns = b->f->now;
    say(b->f, GATEWAY, &m);
    read_box(b);
    return id;
}

static struct request *request_of(const struct bed *b, uint32_t id)
{
    return request_table_find(b->f->core->requests, (struct request_id){1, id}, 0);
}

static bool is_held(const struct bed *b, uint32_t id)
{
    const struct request *r = request_of(b, id);
    assert_non_null(r);
    return r->i_replica == NO_REPLICA;
}

static const struct engine_slot *slot_of(const struct bed *b, uint32_t id)
{
    return &b->f->core->engine_slots[request_of(b, id)->i_replica];
}

static double first_token_ms(const struct bed *b, uint32_t id)
{
    assert_true(b->answers[id].first_ns > 0);
    return (double)(b->answers[id].first_ns - b->answers[id].asked_ns) / MS;
}

/* Lets the head learn the costs of a step. */
static void learn(struct bed *b)
{
    for (uint32_t i = 0; i < 6 * b->n_ranks; i++) {
        ask(b, (struct ask){.tenant = 1, .n_prompt = 50 + 150 * (i % 6), .max_tokens = 4});
        if (i % b->n_ranks == b->n_ranks - 1)
            run(b, 0);
    }
}

/* Sends a request that is accepted with just the time that it is predicted to need: a first one
 * that allows 1 ms learns the prediction. */
static uint32_t ask_with_narrow_promise(struct bed *b, struct ask a, uint32_t spare_ms)
{
    a.slo_ms = 1;
    uint32_t id = ask(b, a);
    assert_true(b->answers[id].refused);
    a.slo_ms = b->answers[id].predicted_ms + 1 + spare_ms;
    id = ask(b, a);
    assert_false(b->answers[id].refused);
    return id;
}

static void close_bed(struct bed *b)
{
    for (uint32_t i = 0; i < b->n_ranks; i++)
        b->ranks[i].stopped = false;
    run(b, 0);
    for (uint32_t id = 1; id <= b->last_id; id++)
        assert_true(b->answers[id].ended);
    fixture_free(b->f);
}

/* ---- who waits ---- */

/* Returns how long another tenant waits for its first token behind a tenant with a long queue,
 * whose last request has a promise or not. */
static double wait_beside_queue(bool promised)
{
    struct bed b;
    const struct ask last = {.tenant = 1, .n_prompt = 20, .max_tokens = 8};
    open_bed(&b, 1);
    learn(&b);
    b.f->core->mean_generated = 8; /* as after many requests */
    for (uint32_t i = 0; i < 200; i++)
        ask(&b, (struct ask){.tenant = 1, .n_prompt = 20, .max_tokens = 8});
    for (uint32_t i = 0; i < 200; i++) /* the burst no longer counts as the rate of arrivals */
        give_result(&b, next_rank(&b));
    if (promised)
        ask_with_narrow_promise(&b, last, 0);
    else
        ask(&b, last);
    uint32_t other = ask(&b, (struct ask){.tenant = 2, .n_prompt = 4000, .max_tokens = 8});
    run(&b, 0);
    double ms = first_token_ms(&b, other);
    close_bed(&b);
    return ms;
}

static void a_promise_behind_a_queue_delays_nobody(void **state)
{
    const double control = wait_beside_queue(false), ms = wait_beside_queue(true);
    print_message("another tenant: %.0f ms, without a promise %.0f ms\n", ms, control);
    assert_true(ms <= control + 40 + 1 + 2); /* the promised prompt's own step */
}

/* Makes each replica busy, and guards a promise in one of them. */
static uint32_t guard_one(struct bed *b, uint32_t n_shared)
{
    struct ask a = {.tenant = 1, .n_prompt = 1000, .max_tokens = 60, .n_shared = n_shared};
    for (uint32_t i = 0; i < b->n_ranks; i++, a.n_shared = 0)
        ask(b, a);
    for (uint32_t i = 0; i < 6 * b->n_ranks; i++)
        give_result(b, next_rank(b));
    a.n_shared = n_shared;
    a.max_tokens = 4;
    uint32_t id = ask_with_narrow_promise(b, a, 10);
    assert_false(is_held(b, id));
    assert_int_equal(slot_of(b, id)->n_guards, 1);
    return id;
}

static const struct ask large = {.tenant = 2, .n_prompt = 1000, .max_tokens = 4};
static const struct ask small = {.tenant = 2, .n_prompt = 20, .max_tokens = 4};

static void a_large_prompt_waits_for_one_step(void **state)
{
    struct bed b;
    open_bed(&b, 1);
    learn(&b);
    uint32_t promised = guard_one(&b, 0), waits = ask(&b, large), behind = ask(&b, small);
    assert_true(is_held(&b, waits));
    assert_true(is_held(&b, behind)); /* a small one does not pass a large one */
    run(&b, promised);
    assert_false(is_held(&b, waits));
    assert_false(is_held(&b, behind));
    assert_int_equal(b.f->core->promises.n_missed, 0);
    close_bed(&b);
}

static void a_better_class_passes(void **state)
{
    struct bed b;
    open_bed(&b, 1);
    learn(&b);
    guard_one(&b, 0);
    uint32_t waits = ask(&b, large);
    struct ask better = large, worse = small;
    better.priority = -10;
    worse.priority = 10;
    uint32_t passes = ask(&b, better), behind = ask(&b, worse);
    assert_true(is_held(&b, waits));
    assert_false(is_held(&b, passes));
    assert_true(is_held(&b, behind));
    close_bed(&b);
}

static void a_returning_request_passes(void **state)
{
    struct bed b;
    open_bed(&b, 1);
    learn(&b);
    guard_one(&b, 0);
    uint32_t first = ask(&b, large);
    for (uint32_t i = 0; i < 80; i++) /* more than one pass looks at closely */
        ask(&b, small);
    struct ask again = large;
    again.attempt = 2;
    uint32_t passes = ask(&b, again);
    assert_true(is_held(&b, first));
    assert_false(is_held(&b, passes));
    close_bed(&b);
}

static void a_broken_promise_guards_nothing(void **state)
{
    struct bed b;
    open_bed(&b, 1);
    learn(&b);
    uint32_t promised = guard_one(&b, 0), waits = ask(&b, large);
    b.ranks[0].stopped = true; /* no plan is made meanwhile */
    b.f->now += (uint64_t)request_of(&b, promised)->promise.slo_ms * MS - MS;
    head_core_turn(b.f->core, b.f->now);
    assert_true(is_held(&b, waits));
    b.f->now += 2 * MS;
    head_core_turn(b.f->core, b.f->now);
    assert_false(is_held(&b, waits));
    read_box(&b);
    close_bed(&b);
}

/* A better class takes the last free slot, so the next plan leaves the promised request waiting. */
static void a_guard_is_for_one_plan(void **state)
{
    struct bed b;
    open_bed(&b, 1);
    learn(&b);
    for (uint32_t i = 0; i < SLOTS - 2; i++)
        ask(&b, (struct ask){.tenant = 1, .n_prompt = 20, .max_tokens = 100});
    uint32_t promised = guard_one(&b, 0), waits = ask(&b, large);
    struct ask better = small;
    better.priority = -10;
    uint32_t passes = ask(&b, better);
    assert_true(is_held(&b, waits));
    run(&b, passes);
    assert_int_equal(b.answers[promised].first_ns, 0);
    assert_true(b.f->now < b.answers[promised].asked_ns +
                               (uint64_t)request_of(&b, promised)->promise.slo_ms * MS);
    assert_false(is_held(&b, waits));
    close_bed(&b);
}

static void another_replica_serves(void **state)
{
    struct bed b;
    open_bed(&b, 2);
    learn(&b);
    uint32_t promised = guard_one(&b, 960);
    for (uint32_t i = 0; i < 3; i++) { /* after the first, the guarded replica is the cheapest */
        uint32_t id = ask(&b, large);
        assert_false(is_held(&b, id));
        assert_ptr_not_equal(slot_of(&b, id), slot_of(&b, promised));
    }
    close_bed(&b);
}

/* ---- predictions ---- */

static void an_unknown_promise_tells_nothing(void **state)
{
    struct bed b;
    open_bed(&b, 0);
    uint32_t id = ask(&b, (struct ask){.tenant = 1, .n_prompt = 20, .max_tokens = 4, .slo_ms = 1});
    request_of(&b, id)->promise.predicted_ms = 1; /* the time of a start that took too long */
    b.n_ranks = 1;
    join(&b, 0);
    run(&b, 0);
    assert_int_equal(b.f->core->promises.n_unknown, 1);
    assert_int_equal(b.answers[id].predicted_ms, 0);
    close_bed(&b);
}

/* Predictions are told in whole milliseconds, and are too short as often as too long. */
static void a_prediction_is_rounded_to_the_nearest(void **state)
{
    struct bed b;
    double off_ms = 0;
    open_bed(&b, 1);
    for (uint32_t i = 0; i < 8; i++)
        learn(&b);
    for (uint32_t i = 0; i < 10; i++) {
        uint32_t id = ask(&b, (struct ask){1, .n_prompt = 90 + i, .max_tokens = 1, .slo_ms = 9999});
        run(&b, 0);
        off_ms += b.answers[id].predicted_ms - first_token_ms(&b, id);
    }
    assert_true(off_ms > -3 && off_ms < 3); /* 0.3 ms on average */
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_promise_behind_a_queue_delays_nobody),
        cmocka_unit_test(a_large_prompt_waits_for_one_step),
        cmocka_unit_test(a_better_class_passes),
        cmocka_unit_test(a_returning_request_passes),
        cmocka_unit_test(a_broken_promise_guards_nothing),
        cmocka_unit_test(a_guard_is_for_one_plan),
        cmocka_unit_test(another_replica_serves),
        cmocka_unit_test(an_unknown_promise_tells_nothing),
        cmocka_unit_test(a_prediction_is_rounded_to_the_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
