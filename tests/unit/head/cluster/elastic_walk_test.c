/* Plays random lives of a cluster of TP 4 with --elastic-tp. Workers join, leave, fall silent
 * and fail to join a replica, heads are replaced, and requests of all sizes arrive. The head's
 * invariants hold after each event. When events stop, the connected workers serve with as many
 * ranks as they can. No request ends for being too long. COX_WALKS=N plays more lives, and
 * COX_WALK_SEED=N sets the first seed. */
#include <stdlib.h>

#include "tests/unit/head/core/core_fixture.h"

enum { WORKERS = 6, GATEWAY = 7, EVENTS = 60, WAIT_MS = 1000, LONGEST = 500 };

/* Holds the state that a worker keeps about itself. */
struct rank {
    bool here, silent, fails;
    uint64_t instance, epoch, replica_id, step;
    uint32_t tp, rank;
};

struct walk {
    struct fixture *f;
    struct rng rng;
    struct rank ranks[WORKERS + 1]; /* ranks by connection */
    uint64_t seed, n_instances, n_requests, term_seen;
    uint32_t n_heads, n_whole, n_fewer;
};

static const uint32_t blocks_of_two[] = {20}, blocks_of_one[] = {6};
static const struct elastic_shape offers[] = {{.tp = 2, .n_blocks = {blocks_of_two, 1}},
                                              {.tp = 1, .n_blocks = {blocks_of_one, 1}}};

static uint32_t draw(struct walk *k, uint32_t n)
{
    return (uint32_t)(rng_next(&k->rng) % n);
}

static void check(struct walk *k)
{
    struct error err = {0};
    if (!head_core_check(k->f->core, &err))
        fail_msg("seed %llu: %s", (unsigned long long)k->seed, err.text);
}

static void hello(struct walk *k, uint8_t conn)
{
    const struct rank *r = &k->ranks[conn];
    struct msg m = worker_hello(r->instance, conn - 1);
    m.hello.term_seen = k->term_seen;
    m.hello.credit_bytes = 1u << 30;
    m.hello.worker.tp = 4;
    m.hello.worker.elastic = offers;
    m.hello.worker.n_elastic = 2;
    m.hello.worker.term_epoch = r->epoch;
    m.hello.worker.replica_id = r->replica_id;
    m.hello.worker.replica_tp = r->epoch ? r->tp : 0;
    m.hello.worker.rank = r->rank;
    m.hello.worker.step_received = m.hello.worker.step_executed = r->step;
    say(k->f, conn, &m);
}

/* ---- answers of a rank ---- */

static void answer_plan(struct walk *k, uint8_t conn, const struct msg_plan *p)
{
    static const uint32_t token = 1000;
    static const float gap = 1;
    struct result_item items[64];
    uint32_t n = 0;
    struct rank *r = &k->ranks[conn];
    if (p->term_epoch != r->epoch)
        return;
    r->step = p->step;
    for (uint32_t i = 0; i < p->n_runs && n < 64; i++) {
        if (p->runs[i].sample)
            items[n++] = (struct result_item){
                .slot = p->runs[i].slot, .ids = {&token, 1}, .gaps = {&gap, 1}};
    }
    struct msg m = {
        .type = MSG_RESULT,
        .result = {.term_epoch = p->term_epoch, .step = p->step, .items = items, .n_items = n}};
    if (r->rank == 0)
        say(k->f, conn, &m);
}

static void obey_one(struct walk *k, uint8_t conn, const struct msg *m)
{
    struct fixture *f = k->f;
    struct rank *r = &k->ranks[conn];
    struct msg formed = {.type = MSG_FORMED};
    switch (m->type) {
    case MSG_FORM:
        if (m->form.term_epoch >> 32 > k->term_seen)
            k->term_seen = m->form.term_epoch >> 32;
        *r = (struct rank){.here = true,
                           .fails = r->fails,
                           .instance = r->instance,
                           .replica_id = m->form.replica_id,
                           .tp = m->form.tp,
                           .rank = m->form.rank};
        if (m->form.make_id)
            say(f, conn,
                &(struct msg){.type = MSG_COMM_ID,
                              .comm_id = {m->form.term_epoch, {(const uint8_t *)"id", 2}}});
        break;
    case MSG_JOIN:
        formed.formed =
            (struct msg_formed){m->join.term_epoch, r->fails ? STATUS_IO : STATUS_OK, STR("")};
        r->epoch = r->fails ? 0 : m->join.term_epoch;
        say(f, conn, &formed);
        break;
    case MSG_RESET:
        r->epoch = formed.formed.term_epoch = m->reset.term_epoch;
        r->step = 0;
        say(f, conn, &formed);
        break;
    case MSG_ABORT:
        r->epoch = 0;
        say(f, conn, &(struct msg){.type = MSG_ABORTED, .aborted = {m->abort_.term_epoch}});
        break;
    case MSG_PLAN:
        answer_plan(k, conn, &m->plan);
        break;
    default:
        break;
    }
}

static void check_answers(const struct walk *k, const struct msg *m)
{
    for (uint32_t i = 0; m->type == MSG_TOKENS && i < m->tokens.n_items; i++) {
        const struct tokens_item *t = &m->tokens.items[i];
        if (t->finish == FINISH_ERROR && t->status == STATUS_INVALID)
            fail_msg("seed %llu: a request is too long: %.*s", (unsigned long long)k->seed,
                     (int)t->text.len, t->text.ptr);
    }
}

/* Answers one batch of the head's messages, so that time can pass in between. The head never
 * stops sending plans. */
static void obey(struct walk *k)
{
    static struct letter taken[BOX_MAX];
    uint32_t n = k->f->n_box;
    memcpy(taken, k->f->box, n * sizeof taken[0]);
    k->f->n_box = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint8_t conn = taken[i].to;
        check_answers(k, &taken[i].m);
        if (conn <= WORKERS && k->ranks[conn].here && !k->ranks[conn].silent &&
            taken[i].h.session == k->f->links[conn].session)
            obey_one(k, conn, &taken[i].m);
        arena_fini(&taken[i].arena);
        check(k);
    }
}

static void live(struct walk *k, uint32_t ms)
{
    for (uint32_t t = 0; t < ms; t += HEAD_TICK_MS) {
        uint32_t alive = 1u << GATEWAY;
        for (uint8_t i = 1; i <= WORKERS; i++)
            alive |= k->ranks[i].here && !k->ranks[i].silent ? 1u << i : 0;
        wait_ms(k->f, HEAD_TICK_MS, alive);
        obey(k);
    }
    uint64_t term = k->f->core->cluster.term;
    k->term_seen = term > k->term_seen ? term : k->term_seen;
}

/* ---- events ---- */

static void come(struct walk *k, uint8_t conn)
{
    k->ranks[conn] = (struct rank){.here = true, .instance = 1000 + ++k->n_instances};
    hello(k, conn);
}

static void go(struct walk *k, uint8_t conn)
{
    if (draw(k, 2)) {
        say(k->f, conn, &(struct msg){.type = MSG_GOODBYE});
    } else {
        k->ranks[conn].silent = true;
        live(k, 2000); /* the time passes until the head counts the worker as lost */
    }
    k->ranks[conn] = (struct rank){0};
}

static void trouble(struct walk *k, uint8_t conn)
{
    if (k->ranks[conn].epoch)
        say(k->f, conn,
            &(struct msg){.type = MSG_COMM_ERROR,
                          .comm_error = {.term_epoch = k->ranks[conn].epoch}});
}

static void submit(struct walk *k)
{
    static const uint32_t ids[3] = {5, 6, 7};
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, ++k->n_requests},
                               .attempt = 1,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .deadline_ms = draw(k, 4) ? 0 : 1 + draw(k, 3000),
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = 1 + draw(k, LONGEST)}}};
    say(k->f, GATEWAY, &m);
}

/* Replaces the head. All sessions end, and the ranks reconnect with their state, some of them
 * later than others. */
static void new_head(struct walk *k)
{
    struct fixture *f = k->f;
    head_core_free(f->core);
    box_clear(f);
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    k->n_heads++;
    say_gateway_hello(f, GATEWAY, 9);
    for (uint8_t i = 1; i <= WORKERS; i++) {
        if (!k->ranks[i].here)
            continue;
        hello(k, i);
        check(k);
        if (draw(k, 4) == 0)
            live(k, draw(k, 2 * WAIT_MS));
    }
}

static uint32_t n_here(const struct walk *k)
{
    uint32_t n = 0;
    for (uint8_t i = 1; i <= WORKERS; i++)
        n += k->ranks[i].here;
    return n;
}

/* Checks the head after the last event, when only the head acts. The connected workers then
 * serve. */
static void look(struct walk *k)
{
    uint32_t n = n_here(k), largest = 0;
    for (uint8_t i = 1; i <= WORKERS; i++)
        k->ranks[i].fails = false;
    live(k, 12000);
    const struct head_core *h = k->f->core;
    for (uint32_t i = 0; i < h->n_live; i++) {
        const struct replica *g = h->engine_slots[h->live[i]].replica;
        largest = g->tp > largest ? g->tp : largest;
    }
    bool whole = n >= 4;
    if (whole ? largest != 4 : (largest > 0) != (n > 0))
        fail_msg("seed %llu: %u workers are %u groups, the largest of TP %u",
                 (unsigned long long)k->seed, n, h->n_live, largest);
    *(whole ? &k->n_whole : &k->n_fewer) += n > 0;
}

static void event(struct walk *k)
{
    uint8_t conn = (uint8_t)(1 + draw(k, WORKERS));
    bool here = k->ranks[conn].here;
    switch (draw(k, 10)) {
    case 0:
    case 1:
    case 2:
        here ? go(k, conn) : come(k, conn);
        break;
    case 3:
        trouble(k, conn);
        break;
    case 4:
        k->ranks[conn].fails = here && !k->ranks[conn].fails;
        break;
    case 5:
        if (draw(k, 3) == 0)
            new_head(k);
        break;
    case 6:
        if (draw(k, 3) == 0)
            look(k);
        break;
    default:
        submit(k);
    }
    check(k);
    live(k, draw(k, 3) ? draw(k, 200) : draw(k, 3 * WAIT_MS));
}

static void walk(uint64_t seed, struct walk *total)
{
    struct walk k = {.f = fixture_new(4), .rng = {.state = seed}, .seed = seed};
    struct fixture *f = k.f;
    head_core_free(f->core);
    f->config.cluster.elastic_tp = true;
    f->config.cluster.elastic_wait_ns = WAIT_MS * MS;
    f->config.max_waiting = 1000;
    f->config.max_requests = 1000;
    f->core = head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    say_gateway_hello(f, GATEWAY, 9);
    for (uint32_t i = 0; i < EVENTS; i++)
        event(&k);
    for (uint8_t i = 1; i <= WORKERS; i++)
        if (!k.ranks[i].here)
            come(&k, i);
    look(&k);
    total->n_heads += k.n_heads;
    total->n_whole += k.n_whole;
    total->n_fewer += k.n_fewer;
    fixture_free(f);
}

static void walks(void **state)
{
    const char *n = getenv("COX_WALKS"), *first = getenv("COX_WALK_SEED");
    uint64_t begin = first ? strtoull(first, NULL, 10) : 1, count = n ? strtoull(n, NULL, 10) : 40;
    struct walk total = {0};
    for (uint64_t seed = begin; seed < begin + count; seed++)
        walk(seed, &total);
    print_message("%llu walks: %u heads, looked at %u times when it was whole, %u when not\n",
                  (unsigned long long)count, total.n_heads, total.n_whole, total.n_fewer);
    assert_true(total.n_heads > 0 && total.n_whole > count && total.n_fewer > 0);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {cmocka_unit_test(walks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
