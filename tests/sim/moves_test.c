/* Tests moves between three replicas of one simulated rank each under a whole head. Requests
 * arrive; replicas are drained, lost and formed again; blocks are copied between the ranks' KV
 * memories, lost in transfer, or never confirmed. Each position of that memory holds a hash of
 * the ids up to it, and each plan is checked against it. The test therefore finds at once blocks
 * that are mistaken for others, or written while they are read. Every token that a gateway gets
 * is compared with the null rule. Some requests have grammars. Ranks need time to compile one,
 * and some do not compile. No plan may admit a request before its rank has reported its grammar
 * as ready. */
#include <stdio.h>
#include <stdlib.h>

#include "common/base/random.h"
#include "tests/sim/sim_rank.h"
#include "tests/unit/head/core/core_fixture.h"

enum {
    N_RANKS = 3,
    GATEWAY = 4, /* connection of the gateway; ranks are on connections 1 to 3 */
    N_CLIENTS = 24,
    N_WORLDS = 40,
    N_TURNS = 500,
    MODEL_LEN = 512,
    VOCAB = 259,
    MAX_BLOCKS_MOVED = 256,
    N_SOURCES = 80, /* number of different grammars */
    BAD_SOURCE = 7, /* every BAD_SOURCE-th grammar does not compile */
    MAX_GRAMMARS = 256,
    LIVE = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4,
};

struct order {
    bool there;
    struct order_side {
        bool there, answered;
        uint64_t epoch;
    } sides[2]; /* sender and receiver */
    uint64_t id;
    uint32_t i_rank[2], n, groups[MAX_BLOCKS_MOVED], blocks[2][MAX_BLOCKS_MOVED];
};

struct known_grammar {
    uint64_t id;
    uint32_t i_source;
    bool ready;
};

struct rank {
    struct sim_rank *sim;
    struct known_grammar grammars[MAX_GRAMMARS];
    uint32_t n_grammars;
    uint64_t epoch;
    struct msg_result results[2];
    uint32_t n_results;
    bool draining;
};

struct client {
    bool live;
    uint64_t id;
    struct null_hash oracle;
    uint32_t n_seen, max_tokens, i_source;
    bool has_grammar;
};

struct world {
    struct fixture *f;
    struct rng rng;
    struct kv_group groups[2];
    uint32_t n_groups, n_draft;
    uint64_t execute_ns;
    struct rank ranks[N_RANKS];
    struct client clients[N_CLIENTS];
    struct order orders[8];
    uint64_t n_requests;
};

static struct {
    uint64_t n_tokens, n_moved, n_recomputed, n_done, n_failed, n_lost, n_dropped, n_given_up;
    uint64_t n_constrained, n_bad_grammars, n_let_go, n_most_known, n_put_aside;
} sums;

static uint32_t below(struct world *w, uint32_t n)
{
    return (uint32_t)rng_below(&w->rng, n);
}

/* ---- grammars ---- */

static uint32_t source_of(struct str source)
{
    return (uint32_t)strtoul(source.ptr + 1, NULL,
                             10); /* decoded texts end with a zero or a quote */
}

static void forget_grammar(struct rank *x, uint32_t i)
{
    x->grammars[i] = x->grammars[--x->n_grammars];
}

static void on_grammar(struct rank *x, const struct msg_grammar *m)
{
    uint32_t i = 0, n_asked = 0;
    if (m->term_epoch != x->epoch)
        return;
    while (i < x->n_grammars && x->grammars[i].id != m->id)
        n_asked += !x->grammars[i++].ready;
    if (!m->on) {
        assert_true(i < x->n_grammars);
        sums.n_let_go++;
        forget_grammar(x, i);
        return;
    }
    assert_true(i == x->n_grammars && n_asked < 2 && x->n_grammars < MAX_GRAMMARS);
    x->grammars[x->n_grammars++] =
        (struct known_grammar){.id = m->id, .i_source = source_of(m->source)};
    if (x->n_grammars > sums.n_most_known)
        sums.n_most_known = x->n_grammars;
}

/* Compiles the next grammar that the head ordered. */
static void compile(struct world *w, uint32_t i)
{
    struct rank *x = &w->ranks[i];
    uint32_t k = 0;
    while (k < x->n_grammars && x->grammars[k].ready)
        k++;
    if (k == x->n_grammars)
        return;
    bool bad = x->grammars[k].i_source % BAD_SOURCE == 0;
    struct msg m = {.type = MSG_GRAMMAR_DONE,
                    .grammar_done = {.term_epoch = x->epoch,
                                     .id = x->grammars[k].id,
                                     .status = bad ? STATUS_INVALID : STATUS_OK,
                                     .text = bad ? STR("bad") : STR(""),
                                     .bytes = (x->grammars[k].i_source % 5) << 20,
                                     .matcher_bytes = 4 << 20,
                                     .room_bytes = 64 << 20}};
    x->grammars[k].ready = true;
    if (bad)
        forget_grammar(x, k);
    say(w->f, (uint8_t)(1 + i), &m);
}

static void check_admits(const struct rank *x, const struct msg_plan *p)
{
    for (uint32_t i = 0; i < p->n_admits; i++) {
        const struct sampling_params *s = &p->admits[i].sampling;
        if (s->grammar_kind == GRAMMAR_NONE)
            continue;
        uint32_t k = 0, i_source = source_of(s->grammar);
        while (k < x->n_grammars && x->grammars[k].i_source != i_source)
            k++;
        assert_true(k < x->n_grammars && x->grammars[k].ready);
        sums.n_constrained++;
    }
}

/* ---- ranks ---- */

static void on_plan(struct world *w, struct rank *x, const struct msg_plan *p)
{
    struct error err = {0};
    if (p->term_epoch != x->epoch)
        return; /* the plan belongs to an epoch that is over on this rank */
    assert_true(x->n_results < 2);
    check_admits(x, p);
    struct msg_result *result = &x->results[x->n_results++];
    if (!sim_rank_execute(x->sim, p, p->step - x->n_results, result, &err))
        fail_msg("%s", err.text);
}

static void on_order(struct world *w, uint32_t i, const struct msg_kv_transfer *t)
{
    struct order *o = NULL;
    int side = t->sends ? 0 : 1;
    for (uint32_t k = 0; k < 8; k++)
        if (w->orders[k].there && w->orders[k].id == t->id)
            o = &w->orders[k];
    for (uint32_t k = 0; k < 8 && !o; k++)
        if (!w->orders[k].there)
            o = &w->orders[k];
    assert_true(o && t->blocks.n <= MAX_BLOCKS_MOVED && !o->sides[side].there);
    o->there = true;
    o->id = t->id;
    o->i_rank[side] = i;
    o->sides[side].there = true;
    o->sides[side].epoch = t->term_epoch;
    o->n = t->blocks.n;
    for (uint32_t k = 0; k < o->n; k++) {
        o->groups[k] = t->block_groups.n ? t->block_groups.ptr[k] : 0;
        o->blocks[side][k] = t->blocks.ptr[k];
    }
}

static void forget_if_done(struct order *o)
{
    for (int s = 0; s < 2; s++)
        if (o->sides[s].there && !o->sides[s].answered)
            return;
    *o = (struct order){0};
}

/* Ends an epoch as a rank does before it sends Aborted. Its transfers are over, and none of them
 * is confirmed. */
static void end_epoch(struct world *w, uint32_t i)
{
    for (uint32_t k = 0; k < 8; k++)
        for (int s = 0; s < 2 && w->orders[k].there; s++)
            if (w->orders[k].sides[s].there && w->orders[k].i_rank[s] == i) {
                w->orders[k].sides[s].answered = true;
                forget_if_done(&w->orders[k]);
            }
    w->ranks[i].epoch = 0;
    w->ranks[i].n_grammars = 0;
    w->ranks[i].n_results = 0;
}

static void say_hello(struct world *w, uint32_t i, enum replica_role role)
{
    struct msg hello = worker_hello(100 + i, (int32_t)i);
    hello.hello.credit_bytes = 1u << 30;
    hello.hello.worker.tp = 1;
    hello.hello.worker.max_model_len = MODEL_LEN;
    hello.hello.worker.vocab_size = VOCAB;
    hello.hello.worker.kv_groups = w->groups;
    hello.hello.worker.n_kv_groups = w->n_groups;
    hello.hello.worker.n_draft = w->n_draft;
    hello.hello.worker.replica_role = role;
    hello.hello.worker.kv_address = STR("10.0.0.1:9");
    say(w->f, (uint8_t)(1 + i), &hello);
}

/* ---- the gateway ---- */

static void on_tokens(struct world *w, const struct msg_tokens *t)
{
    for (uint32_t i = 0; i < t->n_items; i++) {
        const struct tokens_item *x = &t->items[i];
        struct client *c = NULL;
        for (uint32_t k = 0; k < N_CLIENTS; k++)
            if (w->clients[k].live && w->clients[k].id == x->id.lo)
                c = &w->clients[k];
        if (!c)
            continue; /* the request was cancelled */
        assert_int_equal(x->start, c->n_seen);
        for (uint32_t k = 0; k < x->ids.n; k++) {
            assert_int_equal(x->ids.ptr[k], null_hash_token(&c->oracle, VOCAB));
            null_hash_push(&c->oracle, x->ids.ptr[k]);
        }
        c->n_seen += x->ids.n;
        sums.n_tokens += x->ids.n;
        bool given_up =
            /* this end is allowed; losses_test.c tests it */
            x->finish == FINISH_ERROR && x->status == STATUS_INTERNAL;
        bool bad = c->has_grammar && c->i_source % BAD_SOURCE == 0;
        if (bad) {
            assert_true(x->finish == FINISH_ERROR && x->status == STATUS_INVALID);
            assert_int_equal(c->n_seen, 0);
            sums.n_bad_grammars++;
        } else if (given_up)
            sums.n_given_up++;
        else if (x->finish != FINISH_NONE)
            assert_true(x->finish == FINISH_LENGTH && c->n_seen == c->max_tokens);
        c->live = x->finish == FINISH_NONE;
    }
}

static void arrive(struct world *w)
{
    static uint32_t ids[MODEL_LEN];
    struct client *c = NULL;
    for (uint32_t i = 0; i < N_CLIENTS && !c; i++)
        c = w->clients[i].live ? NULL : &w->clients[i];
    if (!c)
        return;
    uint32_t n = 1 + below(w, 150), shared = below(w, n);
    *c = (struct client){.live = true, .id = ++w->n_requests, .max_tokens = 1 + below(w, 120)};
    c->has_grammar = below(w, 3) == 0;
    c->i_source = below(w, 2) ? below(w, N_SOURCES) : 1;
    char source[16];
    snprintf(source, sizeof source, "g%u.", c->i_source);
    null_hash_init(&c->oracle, c->id, 0, 0, 1.0f);
    for (uint32_t i = 0; i < n; i++) {
        ids[i] = i < shared ? 100 + i % 7 : 97 + below(w, 26);
        null_hash_push(&c->oracle, ids[i]);
    }
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, c->id},
                               .attempt = 1,
                               .n_prompt = n,
                               .ids = {ids, n},
                               .tenant = c->id % 3,
                               .sampling = {.temperature = 1,
                                            .top_p = 1,
                                            .repetition_penalty = 1,
                                            .seed = c->id,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = c->max_tokens}}};
    if (c->has_grammar) {
        m.submit.sampling.grammar_kind = GRAMMAR_LARK;
        m.submit.sampling.grammar = str_from(source);
    }
    say(w->f, GATEWAY, &m);
}

static void cancel(struct world *w)
{
    struct client *c = &w->clients[below(w, N_CLIENTS)];
    if (!c->live)
        return;
    say(w->f, GATEWAY,
        &(struct msg){.type = MSG_CANCEL, .cancel = {.id = {1, c->id}, .attempt = 1}});
    c->live = false;
}

/* ---- messages from the head ---- */

static void on_letter(struct world *w, uint32_t conn, const struct msg *m)
{
    uint32_t i = conn - 1;
    struct rank *x = &w->ranks[i % N_RANKS];
    switch (m->type) {
    case MSG_TOKENS:
        on_tokens(w, &m->tokens);
        break;
    case MSG_FORM:
        end_epoch(w, i);
        x->epoch = m->form.term_epoch;
        say(w->f, (uint8_t)conn,
            &(struct msg){.type = MSG_COMM_ID,
                          .comm_id = {.term_epoch = x->epoch, .id = {(const uint8_t *)"id", 2}}});
        break;
    case MSG_JOIN:
        if (m->join.term_epoch != x->epoch)
            break;
        sim_rank_reset(x->sim, x->epoch);
        say(w->f, (uint8_t)conn,
            &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = x->epoch}});
        break;
    case MSG_ABORT: {
        uint64_t epoch = m->abort_.term_epoch;
        if (epoch >= x->epoch)
            end_epoch(w, i);
        say(w->f, (uint8_t)conn,
            &(struct msg){.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}});
        break;
    }
    case MSG_PLAN:
        on_plan(w, x, &m->plan);
        break;
    case MSG_GRAMMAR:
        on_grammar(x, &m->grammar);
        break;
    case MSG_KV_TRANSFER:
        if (m->kv_transfer.term_epoch == x->epoch)
            on_order(w, i, &m->kv_transfer);
        break;
    default:
        break;
    }
}

static void read_letters(struct world *w)
{
    struct fixture *f = w->f;
    struct error err = {0};
    while (f->n_box > 0) {
        struct letter l = f->box[0];
        memmove(f->box, f->box + 1, --f->n_box * sizeof f->box[0]);
        on_letter(w, l.to, &l.m);
        arena_fini(&l.arena);
    }
    if (!head_core_check(f->core, &err))
        fail_msg("%s", err.text);
}

/* ---- events ---- */

static void answer(struct world *w, uint32_t i)
{
    struct rank *x = &w->ranks[i];
    if (x->n_results == 0)
        return;
    struct msg m = {.type = MSG_RESULT, .result = x->results[0]};
    m.result.execute_ns = w->execute_ns;
    x->results[0] = x->results[1];
    x->n_results--;
    say(w->f, (uint8_t)(1 + i), &m);
}

static void say_transferred(struct world *w, struct order *o, int side, enum status status)
{
    uint32_t i = o->i_rank[side];
    struct msg m = {.type = MSG_KV_TRANSFERRED,
                    .kv_transferred = {.term_epoch = o->sides[side].epoch,
                                       .id = o->id,
                                       .status = status,
                                       .took_ns = 1 + below(w, 1000000)}};
    o->sides[side].answered = true;
    say(w->f, (uint8_t)(1 + i), &m);
}

/* Finishes a transfer. If both sides are there, it copies all blocks, or only some, or writes
 * random values. Otherwise a side gives up. A rank whose peer's epoch is over reads from the
 * rank that is there now, as over a network. */
static void transfer_some(struct world *w, bool all)
{
    struct order *o = &w->orders[below(w, 8)];
    if (!o->there)
        return;
    struct order copy = *o;
    bool both = copy.sides[0].there && copy.sides[1].there && !copy.sides[0].answered &&
                !copy.sides[1].answered;
    bool good = both && (all || below(w, 100) < 70);
    if (!both && !all && below(w, 3) > 0)
        return;
    for (uint32_t k = 0; copy.sides[1].there && !copy.sides[1].answered && k < copy.n; k++)
        if (good || below(w, 2) == 0)
            sim_rank_copy_block(good ? w->ranks[copy.i_rank[0]].sim : NULL,
                                w->ranks[copy.i_rank[1]].sim, copy.groups[k], copy.blocks[0][k],
                                copy.blocks[1][k]);
    for (int s = 0; s < 2; s++) {
        if (!o->there || o->id != copy.id || !o->sides[s].there || o->sides[s].answered)
            continue;
        if (!good && !all && below(w, 10) == 0) {
            sums.n_dropped++; /* the side never confirms the transfer */
            continue;
        }
        say_transferred(w, o, s, good ? STATUS_OK : STATUS_TIMEOUT);
        read_letters(w);
    }
    if (o->there && o->id == copy.id)
        forget_if_done(o);
}

static void drain(struct world *w, uint32_t i, bool on)
{
    w->ranks[i].draining = on;
    assert_int_equal(head_core_drain_worker(w->f->core, 100 + i, on, "a test", w->f->now),
                     STATUS_OK);
}

static void lose(struct world *w, uint32_t i)
{
    uint64_t epoch = w->ranks[i].epoch;
    if (epoch == 0)
        return;
    sums.n_lost++;
    say(w->f, (uint8_t)(1 + i),
        &(struct msg){.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch}});
}

static void pass_time(struct world *w, uint32_t ticks)
{
    for (uint32_t t = 0; t < ticks; t++) {
        wait_ms(w->f, HEAD_TICK_MS, LIVE);
        read_letters(w);
    }
}

static void turn(struct world *w, bool arrivals)
{
    uint32_t i = below(w, N_RANKS);
    if (arrivals && below(w, 4) == 0)
        arrive(w);
    else if (arrivals && below(w, 60) == 0)
        cancel(w);
    else if (arrivals && below(w, 40) == 0)
        drain(w, i, !w->ranks[i].draining);
    else if (arrivals && below(w, 100) == 0)
        lose(w, i);
    else if (below(w, 4) == 0)
        pass_time(w, 1);
    else if (below(w, 6) == 0)
        compile(w, i);
    else if (below(w, 3) == 0)
        transfer_some(w, !arrivals);
    else
        answer(w, i);
    read_letters(w);
}

/* ---- worlds ---- */

static void draw_replicas(struct world *w)
{
    w->n_groups = 1 + below(w, 2);
    for (uint32_t i = 0; i < w->n_groups; i++) {
        uint32_t kind = below(w, 3);
        w->groups[i] = (struct kv_group){.kind = kind == 0 ? KV_WINDOW : KV_FULL,
                                         .window_tokens = kind == 0 ? 1 + below(w, 80) : 0,
                                         .block_tokens = below(w, 3) ? 16 : 32,
                                         .bytes_per_block = 100,
                                         .n_blocks = 34 + below(w, 60)};
    }
}

static void open_world(struct world *w, uint64_t seed)
{
    static const enum replica_role roles[3][N_RANKS] = {
        {REPLICA_BOTH, REPLICA_BOTH, REPLICA_BOTH},
        {REPLICA_PREFILL, REPLICA_DECODE, REPLICA_DECODE},
        {REPLICA_PREFILL, REPLICA_DECODE, REPLICA_BOTH}};
    *w = (struct world){.rng = {seed}};
    draw_replicas(w);
    w->n_draft = below(w, 2) ? 0 : 1 + below(w, 3);
    /* In one of four worlds a step takes 1 us, so that computing again is faster. */
    w->execute_ns = below(w, 4) ? 400 * MS : 1000;
    w->f = fixture_new(1);
    head_core_free(w->f->core);
    struct head_core_config *c = &w->f->config;
    c->max_num_seqs = 4 + below(w, 8);
    c->max_num_batched_tokens = 64 + below(w, 100);
    c->max_waiting = N_CLIENTS;
    c->depth = 1 + below(w, 2);
    w->f->core = head_core_new(c, &(struct head_io){.ctx = w->f, .send = fixture_send}, w->f->now);
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct sim_rank_config rc = {.max_num_seqs = c->max_num_seqs,
                                     .max_num_batched_tokens = c->max_num_batched_tokens,
                                     .max_model_len = MODEL_LEN,
                                     .vocab_size = VOCAB,
                                     .kv_groups = w->groups,
                                     .n_kv_groups = w->n_groups,
                                     .n_draft = w->n_draft,
                                     .draft_percent = 60};
        w->ranks[i].sim = sim_rank_new(&rc);
    }
    struct msg hello = {
        .type = MSG_HELLO,
        .hello = {.node = STR("g"), .instance = 1, .role = ROLE_GATEWAY, .credit_bytes = 1u << 30}};
    say(w->f, GATEWAY, &hello);
    uint32_t which = below(w, 3);
    for (uint32_t i = 0; i < N_RANKS; i++) {
        say_hello(w, i, roles[which][i]);
        read_letters(w);
    }
    pass_time(w, 10);
}

static bool is_done(const struct world *w)
{
    for (uint32_t i = 0; i < N_CLIENTS; i++)
        if (w->clients[i].live)
            return false;
    return w->f->core->transfers.n == 0;
}

static void close_world(struct world *w)
{
    const struct transfers *t = &w->f->core->transfers;
    for (uint32_t i = 0; i < N_RANKS; i++)
        drain(w, i, false);
    for (int i = 0; i < 60000 && !is_done(w); i++)
        turn(w, false);
    assert_true(is_done(w));
    for (uint32_t i = 0; i < N_RANKS; i++)
        while (w->ranks[i].n_results > 0) {
            answer(w, i);
            read_letters(w);
        }
    pass_time(w, 2);
    struct head_stats s;
    head_core_get_stats(w->f->core, &s);
    assert_int_equal(s.n_blocks_used, 0);
    sums.n_put_aside += w->f->core->grammars.n_put_aside;
    sums.n_moved += t->n_moved;
    sums.n_recomputed += t->n_recomputed;
    sums.n_done += t->n_done;
    sums.n_failed += t->n_failed;
    for (uint32_t i = 0; i < N_RANKS; i++)
        sim_rank_free(w->ranks[i].sim);
    fixture_free(w->f);
}

/* Tests that moves lose nothing. COX_MOVES_WORLDS sets the number of worlds; COX_MOVES_FIRST
 * sets the first seed. */
static void random_moves_lose_nothing(void **state)
{
    static struct world w;
    const char *wanted = getenv("COX_MOVES_WORLDS"), *from = getenv("COX_MOVES_FIRST");
    uint64_t n = wanted ? strtoull(wanted, NULL, 10) : N_WORLDS;
    uint64_t first = from ? strtoull(from, NULL, 10) : 1;
    for (uint64_t seed = first; seed < first + n; seed++) {
        if (wanted)
            print_message("seed %llu\n", (unsigned long long)seed);
        open_world(&w, seed);
        for (int i = 0; i < N_TURNS; i++)
            turn(&w, true);
        close_world(&w);
    }
    printf("%llu tokens, %llu moved (%llu computed again), %llu copies, %llu failed, %llu groups "
           "lost, %llu answers that never came, %llu admitted with a grammar, %llu with a bad one, "
           "%llu let go, %llu at most, %llu put aside\n",
           (unsigned long long)sums.n_tokens, (unsigned long long)sums.n_moved,
           (unsigned long long)sums.n_recomputed, (unsigned long long)sums.n_done,
           (unsigned long long)sums.n_failed, (unsigned long long)sums.n_lost,
           (unsigned long long)sums.n_dropped, (unsigned long long)sums.n_constrained,
           (unsigned long long)sums.n_bad_grammars, (unsigned long long)sums.n_let_go,
           (unsigned long long)sums.n_most_known, (unsigned long long)sums.n_put_aside);
    /* by chance, three replicas were lost under such a request */
    assert_true(sums.n_given_up * 5 <= n);
    assert_true(sums.n_constrained && sums.n_bad_grammars && sums.n_put_aside);
    assert_true(sums.n_moved && sums.n_recomputed && sums.n_done && sums.n_failed && sums.n_lost);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_moves_lose_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
