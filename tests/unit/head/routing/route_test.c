/* Tests the choice of a replica for a request, by prefix, load and speed. `struct bed` holds a
 * head core and simulated ranks in virtual time. A step takes the rank's time per token times
 * the tokens of its plan, and its result arrives at its end. The tests submit requests, let time
 * pass and read in which replica each request was placed. All tests run on one thread. */
#include "tests/unit/head/core/core_fixture.h"

enum { MAX_RANKS = 3, GATEWAY = 9, MAX_PLANS = 2, MAX_SAMPLES = 256 };
#define US NS_PER_US

struct rank {
    uint64_t token_ns;
    struct {
        uint64_t epoch, step, execute_ns, end_ns;
        uint32_t slots[MAX_SAMPLES], n;
    } plans[MAX_PLANS]; /* plans in flight, oldest first */
    uint32_t n_plans, n_requests;
    uint64_t end_ns; /* end of the last plan */
    bool stopped;    /* this rank sends no results */
};

struct bed {
    struct fixture *f;
    struct rank ranks[MAX_RANKS];
    uint32_t n_ranks, n_open, n_done;
    uint64_t last_id;
};

static void on_plan(struct bed *b, struct rank *k, const struct msg_plan *p)
{
    assert_true(k->n_plans < MAX_PLANS);
    uint32_t i = k->n_plans++, n_tokens = 0;
    k->plans[i].n = 0;
    for (uint32_t r = 0; r < p->n_runs; r++) {
        n_tokens += p->runs[r].n_tokens;
        if (p->runs[r].sample)
            k->plans[i].slots[k->plans[i].n++] = p->runs[r].slot;
    }
    uint64_t begin = k->end_ns > b->f->now ? k->end_ns : b->f->now;
    k->plans[i].execute_ns = n_tokens * k->token_ns;
    k->plans[i].end_ns = k->end_ns = begin + k->plans[i].execute_ns;
    k->plans[i].epoch = p->term_epoch;
    k->plans[i].step = p->step;
    k->n_requests += p->n_admits;
}

/* Delivers all letters in the box, and also those that the answers cause. */
static void read_box(struct bed *b)
{
    struct fixture *f = b->f;
    for (uint32_t i = 0; i < f->n_box; i++) {
        const struct msg *m = &f->box[i].m;
        uint8_t to = f->box[i].to;
        if (m->type == MSG_FORM && m->form.make_id) {
            struct msg id = {
                .type = MSG_COMM_ID,
                .comm_id = {.term_epoch = m->form.term_epoch, .id = {(const uint8_t *)"id", 2}}};
            say(f, to, &id);
        } else if (m->type == MSG_JOIN) {
            say(f, to,
                &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = m->join.term_epoch}});
        } else if (m->type == MSG_PLAN) {
            on_plan(b, &b->ranks[to - 1], &m->plan);
        } else if (m->type == MSG_TOKENS) {
            for (uint32_t k = 0; k < m->tokens.n_items; k++) {
                bool end = m->tokens.items[k].finish != FINISH_NONE;
                b->n_open -= end;
                b->n_done += end;
            }
        }
    }
    box_clear(f);
}

static void join(struct bed *b, uint8_t i)
{
    static const struct kv_group kv = {.block_tokens = 16, .n_blocks = 4096};
    struct msg hello = worker_hello(100 + i, i);
    hello.hello.credit_bytes = 1ull << 40;
    hello.hello.worker.tp = 1;
    hello.hello.worker.max_model_len = 8192;
    hello.hello.worker.kv_groups = &kv;
    say(b->f, i + 1, &hello);
    read_box(b);
}

static void open_bed(struct bed *b, uint32_t n_ranks, const uint64_t *token_us)
{
    struct fixture *f = fixture_new(1);
    *b = (struct bed){.f = f, .n_ranks = n_ranks};
    head_core_free(f->core);
    f->config.max_waiting = f->config.max_requests = 4096;
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    for (uint8_t i = 0; i < n_ranks; i++) {
        b->ranks[i].token_ns = token_us[i] * US;
        join(b, i);
    }
    struct msg hello = {
        .type = MSG_HELLO,
        .hello = {
            .node = STR("g"), .instance = 9, .role = ROLE_GATEWAY, .credit_bytes = 1ull << 40}};
    say(f, GATEWAY, &hello);
    read_box(b);
    assert_int_equal(f->core->n_live, n_ranks);
}

/* Lets time pass until `time_ns`. 0 means until no request is open. */
static void run_until(struct bed *b, uint64_t time_ns)
{
    static const float gap = 1;
    static const uint32_t token = 7;
    while (time_ns ? true : b->n_open > 0) {
        struct rank *k = NULL;
        for (uint32_t i = 0; i < b->n_ranks; i++) {
            struct rank *x = &b->ranks[i];
            if (!x->stopped && x->n_plans && (!k || x->plans[0].end_ns < k->plans[0].end_ns))
                k = x;
        }
        if (!k || (time_ns && k->plans[0].end_ns > time_ns))
            break;
        struct result_item items[MAX_SAMPLES];
        uint32_t n = k->plans[0].n;
        for (uint32_t i = 0; i < n; i++)
            items[i] = (struct result_item){
                .slot = k->plans[0].slots[i], .ids = {&token, 1}, .gaps = {&gap, 1}};
        struct msg m = {.type = MSG_RESULT,
                        .result = {.term_epoch = k->plans[0].epoch,
                                   .step = k->plans[0].step,
                                   .execute_ns = k->plans[0].execute_ns,
                                   .items = items,
                                   .n_items = n}};
        b->f->now = k->plans[0].end_ns;
        k->plans[0] = k->plans[1];
        k->n_plans--;
        say(b->f, (uint8_t)(k - b->ranks + 1), &m);
        read_box(b);
    }
    if (time_ns)
        b->f->now = time_ns;
    else
        assert_int_equal(b->n_open, 0);
}

/* Returns a Submit with a prompt of n ids. The first `n_shared` come from text number `prefix`,
 * and the others are unique. */
static struct msg submit_of(struct bed *b, uint32_t prefix, uint32_t n_shared, uint32_t n,
                            uint32_t max_tokens)
{
    static uint32_t ids[8192];
    b->last_id++;
    for (uint32_t i = 0; i < n; i++)
        ids[i] = i < n_shared ? (prefix * 1000 + i) % 20000 : (b->last_id * 7919 + i) % 20000;
    return (struct msg){.type = MSG_SUBMIT,
                        .submit = {.id = {1, b->last_id},
                                   .attempt = 1,
                                   .n_prompt = n,
                                   .ids = {ids, n},
                                   .sampling = {.top_p = 1,
                                                .repetition_penalty = 1,
                                                .n_logprobs = -1,
                                                .n_prompt_logprobs = -1,
                                                .max_tokens = max_tokens}}};
}

static void submit(struct bed *b, const struct msg *m)
{
    b->n_open++;
    say(b->f, GATEWAY, m);
    read_box(b);
}

static void ask(struct bed *b, uint32_t prefix, uint32_t n_shared, uint32_t n, uint32_t max_tokens)
{
    struct msg m = submit_of(b, prefix, n_shared, n, max_tokens);
    submit(b, &m);
}

static uint32_t replica_of_last(const struct bed *b)
{
    const struct request *r =
        request_table_find(b->f->core->requests, (struct request_id){1, b->last_id}, 0);
    assert_non_null(r);
    return r->i_replica;
}

static void close_bed(struct bed *b)
{
    run_until(b, 0);
    fixture_free(b->f);
}

/* Submits n requests, with at most `n_at_once` open at a time. */
static void keep_busy_with(struct bed *b, uint32_t n, uint32_t n_at_once, uint32_t n_prompt,
                           uint32_t max_tokens)
{
    for (uint32_t i = 0; i < n; i++) {
        while (b->n_open >= n_at_once) {
            uint32_t n_done = b->n_done;
            for (uint64_t t = b->f->now; b->n_done == n_done; t += 100 * US)
                run_until(b, t);
        }
        ask(b, 0, 0, n_prompt, max_tokens);
    }
}

static void keep_busy(struct bed *b, uint32_t n, uint32_t n_at_once)
{
    keep_busy_with(b, n, n_at_once, 200, 8);
}

static void assert_share(uint32_t part, uint32_t all, double low, double high)
{
    double share = (double)part / all;
    if (share < low || share > high)
        fail_msg("%u of %u, want a share of %g to %g", part, all, low, high);
}

/* ---- prefixes ---- */

static void a_hot_prefix_stays_in_one_cache_while_there_is_time(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    for (int i = 0; i < 40; i++) {
        ask(&b, 1, 1024, 1088, 4);
        run_until(&b, b.f->now + 1000 * MS);
    }
    assert_true(b.ranks[0].n_requests == 40 || b.ranks[1].n_requests == 40);
    close_bed(&b);
}

/* One replica could serve 140 requests a second, and 250 requests arrive each second. */
static void a_hot_prefix_is_shared_under_load(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    for (int i = 0; i < 400; i++) {
        ask(&b, 1, 1024, 1088, 4);
        run_until(&b, b.f->now + 4 * MS);
    }
    run_until(&b, 0);
    assert_share(b.ranks[0].n_requests, 400, 0.35, 0.65);
    close_bed(&b);
}

static void every_prefix_goes_where_it_is(void **state)
{
    struct bed b;
    uint32_t home[3] = {0}, n_homes[3] = {0};
    open_bed(&b, 3, (uint64_t[]){100, 100, 100});
    for (uint32_t i = 0; i < 60; i++) {
        uint32_t prefix = i % 3;
        ask(&b, prefix, 512, 560, 4);
        if (i < 3)
            home[prefix] = replica_of_last(&b);
        assert_int_equal(replica_of_last(&b), home[prefix]);
        run_until(&b, b.f->now + 1000 * MS);
    }
    for (uint32_t i = 0; i < 3; i++)
        n_homes[home[i]]++; /* idle replicas take turns, so that every cache is used */
    assert_true(n_homes[0] == 1 && n_homes[1] == 1 && n_homes[2] == 1);
    close_bed(&b);
}

/* All requests arrive in one turn, before any of them is planned. Waiting requests with the
 * prefix count as if it were cached. */
static void a_burst_with_one_prefix_computes_it_where_the_first_went(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    /* the other replica has to compute 2000 tokens */
    b.f->core->engine_slots[0].replica->draining = true;
    ask(&b, 0, 0, 2000, 1);
    b.f->core->engine_slots[0].replica->draining = false;
    /* this request fills the steps in flight, so that later requests wait */
    ask(&b, 2, 0, 1000, 1);
    ask(&b, 3, 0, 16, 1);
    uint32_t n_before = b.ranks[0].n_requests;
    for (int i = 0; i < 8; i++) {
        ask(&b, 1, 512, 528, 1);
        assert_int_equal(replica_of_last(&b), 0);
    }
    assert_int_equal(b.ranks[0].n_requests, n_before);
    close_bed(&b);
}

static void choices_of_a_prompt_stay_together(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    struct msg m = submit_of(&b, 0, 0, 800, 4);
    for (uint32_t i = 0; i < 8; i++) {
        m.submit.i_choice = m.submit.sampling.i_choice = i;
        submit(&b, &m);
    }
    for (uint32_t i = 0; i < 8; i++) {
        const struct request *r = request_table_find(b.f->core->requests, m.submit.id, i);
        assert_int_equal(r->i_replica, replica_of_last(&b));
    }
    uint32_t replica = replica_of_last(&b);
    ask(&b, 0, 0, 100, 4);
    assert_int_equal(replica_of_last(&b), 1 - replica);
    close_bed(&b);
}

/* ---- load and speed ---- */

static void a_busy_replica_gets_less(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    ask(&b, 0, 0, 4000, 1);
    uint32_t busy = replica_of_last(&b);
    for (int i = 0; i < 30; i++) {
        ask(&b, 0, 0, 100, 1);
        assert_int_equal(replica_of_last(&b), 1 - busy);
    }
    close_bed(&b);
}

static void what_decodes_is_load_too(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    for (int i = 0; i < 20; i++) {
        ask(&b, 0, 0, 20, 2000);
        run_until(&b, b.f->now + 50 * MS);
    }
    assert_int_equal(b.ranks[0].n_requests, 10);
    assert_int_equal(b.ranks[1].n_requests, 10);
    close_bed(&b);
}

static void a_replica_four_times_slower_gets_a_quarter(void **state)
{
    static const struct {
        uint32_t n_at_once, n_prompt, max_tokens;
    } cases[] = {{8, 200, 8}, {32, 200, 8}, {128, 200, 8}, {12, 64, 24}, {32, 16, 60}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bed b;
        open_bed(&b, 2, (uint64_t[]){100, 400});
        keep_busy_with(&b, 1000, cases[i].n_at_once, cases[i].n_prompt, cases[i].max_tokens);
        run_until(&b, 0);
        assert_share(b.ranks[1].n_requests, 1000, 0.12, 0.27);
        close_bed(&b);
    }
}

static void a_replica_that_slows_down_gets_less(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    keep_busy(&b, 400, 32);
    assert_share(b.ranks[1].n_requests, 400, 0.4, 0.6);
    b.ranks[1].token_ns = 400 * US;
    uint32_t n_before = b.ranks[1].n_requests;
    keep_busy(&b, 600, 32);
    run_until(&b, 0);
    assert_share(b.ranks[1].n_requests - n_before, 600, 0.1, 0.3);
    close_bed(&b);
}

/* A replica has the prefix, but its step is overdue. The delay counts at once, before the result
 * arrives. */
static void an_overdue_step_counts_before_its_result(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 100});
    keep_busy(&b, 50, 8);
    ask(&b, 1, 512, 528, 4);
    run_until(&b, 0);
    ask(&b, 1, 512, 528, 4);
    uint32_t home = replica_of_last(&b);
    b.ranks[home].stopped = true;
    ask(&b, 1, 512, 528, 4);
    assert_int_equal(replica_of_last(&b), home);
    run_until(&b, b.f->now + 2000 * MS);
    ask(&b, 1, 512, 528, 4);
    assert_int_equal(replica_of_last(&b), 1 - home);
    b.ranks[home].stopped = false;
    close_bed(&b);
}

/* A replica was slow once and had nothing to do since. One request tests the replica again. */
static void a_replica_that_was_slow_is_tried_again(void **state)
{
    struct bed b;
    open_bed(&b, 2, (uint64_t[]){100, 3000});
    keep_busy(&b, 200, 16);
    run_until(&b, 0);
    b.ranks[1].token_ns = 100 * US;
    uint32_t n_before = b.ranks[1].n_requests;
    /* The replica gets no request while the head remembers its slowness and the other replica is
     * idle. */
    for (int i = 0; i < 8; i++) {
        ask(&b, 0, 0, 200, 8);
        run_until(&b, b.f->now + 1000 * MS);
    }
    assert_int_equal(b.ranks[1].n_requests, n_before);
    for (int i = 0; i < 120; i++) {
        ask(&b, 0, 0, 200, 8);
        run_until(&b, b.f->now + 1000 * MS);
    }
    assert_true(b.ranks[1].n_requests > n_before + 20);
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_hot_prefix_stays_in_one_cache_while_there_is_time),
        cmocka_unit_test(a_hot_prefix_is_shared_under_load),
        cmocka_unit_test(every_prefix_goes_where_it_is),
        cmocka_unit_test(a_burst_with_one_prefix_computes_it_where_the_first_went),
        cmocka_unit_test(choices_of_a_prompt_stay_together),
        cmocka_unit_test(a_busy_replica_gets_less),
        cmocka_unit_test(what_decodes_is_load_too),
        cmocka_unit_test(a_replica_four_times_slower_gets_a_quarter),
        cmocka_unit_test(a_replica_that_slows_down_gets_less),
        cmocka_unit_test(an_overdue_step_counts_before_its_result),
        cmocka_unit_test(a_replica_that_was_slow_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
