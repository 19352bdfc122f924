/* Tests grammars before admission. A request with a grammar waits in the head until the sampling
 * rank of a replica has answered that the grammar is ready, and other requests overtake it.
 * Scripted workers (`core_fixture.h`) answer the head's Grammar messages with statuses and
 * sizes. `check` verifies the head's invariants. Time advances only by the fixture. All tests
 * run on one thread. */
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/unit/head/core/core_fixture.h"

enum {
    SAMPLING_RANK = 1,
    OTHER = 2,
    GATEWAY = 3,
    ALIVE = 1u << SAMPLING_RANK | 1u << OTHER | 1u << GATEWAY
};

static uint64_t open_pair(struct fixture *f)
{
    uint64_t epoch = form_pair(f);
    say_gateway_hello(f, GATEWAY, 1);
    box_clear(f);
    return epoch;
}

/* Sends a Submit. `source` NULL means no grammar. An empty source refers to the session's last
 * Submit with a grammar. */
static void submit(struct fixture *f, uint64_t id, uint64_t tenant, const char *source)
{
    static const uint32_t ids[] = {5, 6, 7};
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, id},
                               .attempt = 1,
                               .tenant = tenant,
                               .n_prompt = 3,
                               .ids = {ids, 3},
                               .sampling = {.temperature = 1,
                                            .top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = 8}}};
    if (source && !*source) {
        m.submit.same_grammar = true;
    } else if (source) {
        m.submit.sampling.grammar_kind = GRAMMAR_REGEX;
        m.submit.sampling.grammar = str_from(source);
    }
    say(f, GATEWAY, &m);
}

static void cancel(struct fixture *f, uint64_t id)
{
    say(f, GATEWAY, &(struct msg){.type = MSG_CANCEL, .cancel = {.id = {1, id}, .attempt = 1}});
}

/* Returns message number i of the type to `conn`, or NULL when there are fewer. */
static const struct msg *nth(const struct fixture *f, uint8_t conn, enum msg_type type, uint32_t i)
{
    for (uint32_t k = 0; k < f->n_box; k++)
        if (f->box[k].to == conn && f->box[k].m.type == type && i-- == 0)
            return &f->box[k].m;
    return NULL;
}

static const struct msg_grammar *asked(const struct fixture *f, uint32_t i)
{
    const struct msg *m = nth(f, SAMPLING_RANK, MSG_GRAMMAR, i);
    assert_null(box_find(f, OTHER, MSG_GRAMMAR));
    return m ? &m->grammar : NULL;
}

static void answer(struct fixture *f, uint64_t epoch, uint64_t id, enum status status)
{
    say(f, SAMPLING_RANK,
        &(struct msg){.type = MSG_GRAMMAR_DONE,
                      .grammar_done = {.term_epoch = epoch,
                                       .id = id,
                                       .status = status,
                                       .text = status == STATUS_OK ? STR("") : STR("too deep")}});
}

enum { MIB = 1 << 20 };

/* Answers as the sampling rank, with the size of the grammar, of a matcher, and of the memory
 * for both, in MiB. */
static void answer_sizes(struct fixture *f, uint64_t epoch, uint64_t id, uint64_t bytes,
                         uint64_t matcher, uint64_t room)
{
    say(f, SAMPLING_RANK,
        &(struct msg){.type = MSG_GRAMMAR_DONE,
                      .grammar_done = {.term_epoch = epoch,
                                       .id = id,
                                       .text = STR(""),
                                       .bytes = bytes * MIB,
                                       .matcher_bytes = matcher * MIB,
                                       .room_bytes = room * MIB}});
}

static void check(const struct fixture *f)
{
    struct error err = {0};
    if (!head_core_check(f->core, &err))
        fail_msg("%s", err.text);
}

static uint32_t n_admitted(const struct fixture *f)
{
    uint32_t n = 0;
    const struct msg *m;
    for (uint32_t i = 0; (m = nth(f, SAMPLING_RANK, MSG_PLAN, i)); i++)
        n += m->plan.n_admits;
    return n;
}

/* Two requests with one grammar cause one Grammar message. A request without a grammar overtakes
 * both. */
static void others_pass_who_waits(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    submit(f, 1, 1, "a+");
    submit(f, 2, 2, "a+");
    assert_int_equal(n_admitted(f), 0);
    submit(f, 3, 1, NULL);
    assert_int_equal(n_admitted(f), 1);
    const struct msg_grammar *g = asked(f, 0);
    assert_true(g && g->on && g->kind == GRAMMAR_REGEX && g->term_epoch == epoch);
    assert_true(str_eq_c(g->source, "a+"));
    assert_null(asked(f, 1));
    assert_int_equal(f->core->grammars.n_waiting, 2);
    check(f);
    uint64_t id = g->id;
    /* these answers have another epoch and an unknown id */
    answer(f, epoch + 1, id, STATUS_OK);
    answer(f, epoch, id + 1, STATUS_OK);
    assert_int_equal(f->core->n_held, 2);
    answer(f, epoch, id, STATUS_OK);
    assert_int_equal(f->core->n_held, 0);
    submit(f, 4, 3, "a+"); /* the grammar is already compiled, so the head sends nothing */
    assert_int_equal(f->core->n_held, 0);
    assert_null(asked(f, 1));
    check(f);
    fixture_free(f);
}

/* A source is stored once, however many choices have it, until the last of these choices is
 * gone. */
static void requests_share_what_they_bring(void **state)
{
    struct fixture *f = fixture_new(2);
    (void)open_pair(f);
    for (uint64_t id = 1; id <= 50; id++)
        submit(f, id, id % 3, id % 2 ? "a+b" : "b+");
    assert_int_equal(f->core->grammars.texts.n_bytes, strlen("a+b") + strlen("b+"));
    const struct request *first =
        request_table_find(f->core->requests, (struct request_id){1, 1}, 0);
    const struct request *last =
        request_table_find(f->core->requests, (struct request_id){1, 49}, 0);
    assert_true(first && last && str_eq_c(last->sampling.grammar, "a+b"));
    assert_ptr_equal(first->sampling.grammar.ptr, last->sampling.grammar.ptr);
    for (uint64_t id = 1; id <= 48; id++)
        cancel(f, id);
    assert_int_equal(f->core->grammars.texts.n_bytes, strlen("a+b") + strlen("b+"));
    cancel(f, 49);
    cancel(f, 50);
    /* The session keeps its last source. */
    assert_int_equal(f->core->grammars.texts.n_bytes, strlen("b+"));
    submit(f, 51, 1, "c");
    cancel(f, 51);
    assert_int_equal(f->core->grammars.texts.n_bytes, strlen("c"));
    say(f, GATEWAY, &(struct msg){.type = MSG_GOODBYE});
    assert_int_equal(f->core->grammars.texts.n_bytes, 0);
    fixture_free(f);
}

static struct sampling_params sampling_of(const struct fixture *f, uint64_t id)
{
    const struct request *r = request_table_find(f->core->requests, (struct request_id){1, id}, 0);
    assert_non_null(r);
    return r->sampling;
}

/* A Submit may refer to the last grammar of its session, even after that request has ended. */
static void a_grammar_comes_once(void **state)
{
    struct fixture *f = fixture_new(2);
    (void)open_pair(f);
    submit(f, 1, 1, "a+b");
    cancel(f, 1);
    submit(f, 2, 1, NULL); /* a Submit without a grammar changes nothing */
    submit(f, 3, 1, "");
    submit(f, 4, 2, "");
    assert_int_equal(sampling_of(f, 2).grammar_kind, GRAMMAR_NONE);
    for (uint64_t id = 3; id <= 4; id++) {
        assert_int_equal(sampling_of(f, id).grammar_kind, GRAMMAR_REGEX);
        assert_true(str_eq_c(sampling_of(f, id).grammar, "a+b"));
    }
    submit(f, 5, 1, "c");
    submit(f, 6, 1, "");
    assert_true(str_eq_c(sampling_of(f, 6).grammar, "c"));
    check(f);
    fixture_free(f);
}

static const struct tokens_item *end_of(const struct fixture *f, uint64_t id)
{
    const struct msg *m;
    for (uint32_t i = 0; (m = nth(f, GATEWAY, MSG_TOKENS, i)); i++)
        for (uint32_t k = 0; k < m->tokens.n_items; k++)
            if (m->tokens.items[k].id.lo == id && m->tokens.items[k].finish != FINISH_NONE)
                return &m->tokens.items[k];
    return NULL;
}

/* A new session has no last grammar. Only a Submit that refers to the last grammar is refused,
 * because it must not run without its grammar. */
static void a_session_begins_without_one(void **state)
{
    struct fixture *f = fixture_new(2);
    (void)open_pair(f);
    assert_null(end_of(f, 1));
    submit(f, 1, 1, "a+b");
    say_gateway_hello(f, GATEWAY, 1);
    submit(f, 2, 1, "");
    submit(f, 3, 1, NULL);
    const struct tokens_item *end = end_of(f, 2);
    assert_true(end && end->finish == FINISH_ERROR && end->status == STATUS_LIMIT);
    assert_null(end_of(f, 3));
    submit(f, 4, 1, "c");
    submit(f, 5, 1, "");
    assert_true(str_eq_c(sampling_of(f, 5).grammar, "c"));
    check(f);
    fixture_free(f);
}

/* A tenant whose grammars use all of its memory is refused. Other tenants are not. */
static void a_tenant_of_large_grammars_is_refused(void **state)
{
    enum { LARGE = 1 << 20, N = SHARED_TEXTS_BYTES / 2 / LARGE };
    struct fixture *f = fixture_new(2);
    struct shared_text *held[N];
    struct error err = {0};
    char *source = mem_zalloc(LARGE);
    (void)open_pair(f);
    for (uint32_t i = 0; i < N; i++) {
        source[i] = 'b'; /* the source is different each time */
        assert_int_equal(shared_text_take(&f->core->grammars.texts, 1, (struct str){source, LARGE},
                                          false, &held[i], &err),
                         STATUS_OK);
    }
    submit(f, 1, 1, "a+");
    const struct tokens_item *end = end_of(f, 1);
    assert_true(end && end->status == STATUS_LIMIT && end->retry_after_s > 0);
    submit(f, 2, 2, "a+");
    submit(f, 3, 1, "a+"); /* this source is already stored */
    assert_null(end_of(f, 2));
    assert_null(end_of(f, 3));
    for (uint32_t i = 0; i < N; i++)
        shared_text_release(held[i]);
    fixture_free(f);
    mem_free(source);
}

static void a_failure_ends_its_own(void **state)
{
    static const struct {
        enum status said;
        const char *text;
    } cases[] = {{STATUS_INVALID, "Invalid grammar: too deep"},
                 {STATUS_INTERNAL, "A worker could not compile the request's grammar: too deep"}};
    for (size_t i = 0; i < 2; i++) {
        struct fixture *f = fixture_new(2);
        uint64_t epoch = open_pair(f);
        submit(f, 1, 1, "a+");
        submit(f, 2, 1, "b+");
        uint64_t id = asked(f, 0)->id;
        assert_non_null(asked(f, 1));
        answer(f, epoch, id, cases[i].said);
        const struct tokens_item *end = end_of(f, 1);
        assert_true(end && end->finish == FINISH_ERROR && end->status == cases[i].said);
        assert_true(str_eq_c(end->text, cases[i].text));
        assert_null(end_of(f, 2));
        assert_int_equal(f->core->n_held, 1);
        /* the head sends the grammar again, because a failed answer is not kept */
        submit(f, 3, 1, "a+");
        assert_non_null(asked(f, 2));
        fixture_free(f);
    }
}

/* The wait for an answer is bounded, and the replica continues. */
static void no_answer_is_an_end_by_name(void **state)
{
    struct fixture *f = fixture_new(2);
    (void)open_pair(f);
    submit(f, 1, 1, "a+");
    for (int i = 0; i < 119; i++) {
        wait_ms(f, 1000, ALIVE);
        box_clear(f);
    }
    assert_int_equal(f->core->n_held, 1);
    wait_ms(f, 2000, ALIVE);
    const struct tokens_item *end = end_of(f, 1);
    assert_true(end && end->finish == FINISH_ERROR && end->status == STATUS_LIMIT);
    assert_true(head_core_is_ready(f->core));
    submit(f, 2, 1, NULL);
    assert_int_equal(n_admitted(f), 1);
    fixture_free(f);
}

/* Ends the pair's epoch and forms the replica again with workers of that minor version. Returns
 * the new epoch. */
static uint64_t form_again(struct fixture *f, uint64_t epoch, uint8_t minor)
{
    say(f, OTHER, &(struct msg){.type = MSG_COMM_ERROR, .comm_error = {.term_epoch = epoch}});
    assert_false(head_core_is_ready(f->core));
    box_clear(f);
    for (uint8_t i = 1; i <= 2; i++)
        say(f, i, &(struct msg){.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}});
    wait_ms(f, 1000, ALIVE);
    epoch = box_find(f, 1, MSG_FORM)->form.term_epoch;
    say(f, 1,
        &(struct msg){.type = MSG_COMM_ID,
                      .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}});
    say(f, 1, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    peers_find_instance(&f->core->peers, ROLE_WORKER, 101)->link.minor_there = minor;
    say(f, 2, &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    return epoch;
}

/* A worker older than 2.4 gets no Grammar message. It compiles a grammar when a step needs it. */
static void an_older_worker_is_not_asked(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    (void)form_again(f, epoch, 3);
    submit(f, 1, 1, "a+");
    assert_int_equal(n_admitted(f), 1);
    assert_null(asked(f, 0));
    fixture_free(f);
}

static void a_lost_replica_is_asked_anew(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    submit(f, 1, 1, "a+");
    uint64_t id = asked(f, 0)->id;
    uint64_t old_epoch = epoch;
    epoch = form_again(f, old_epoch, PROTOCOL_MINOR);
    answer(f, old_epoch, id, STATUS_OK); /* this answer is for an epoch that is over */
    assert_int_equal(f->core->n_held, 1);
    const struct msg_grammar *g = asked(f, 0);
    assert_true(g && g->term_epoch == epoch && g->id != id);
    answer(f, epoch, g->id, STATUS_OK);
    assert_int_equal(n_admitted(f), 1);
    fixture_free(f);
}

/* The Grammar message or its answer may have been lost with the session. */
static void a_new_session_is_asked_again(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    submit(f, 1, 1, "a+");
    uint64_t id = asked(f, 0)->id;
    struct msg hello = worker_hello(101, 0);
    hello.hello.worker.term_epoch = epoch;
    hello.hello.worker.replica_id = f->core->engine_slots[0].replica->id;
    hello.hello.worker.shard_rank = hello.hello.worker.shard_stage = 0;
    box_clear(f);
    say(f, SAMPLING_RANK, &hello);
    assert_true(head_core_is_ready(f->core));
    const struct msg_grammar *g = asked(f, 0);
    assert_true(g && g->id == id && g->on);
    answer(f, epoch, id, STATUS_OK);
    assert_int_equal(n_admitted(f), 1);
    fixture_free(f);
}

/* Two Grammar messages are unanswered at a time. After a tenant was served, other tenants are
 * served first. */
static void tenants_take_turns(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    char source[16];
    for (uint32_t i = 0; i < 6; i++) {
        snprintf(source, sizeof source, "a{%u}", i + 1);
        submit(f, 1 + i, 1, source);
    }
    submit(f, 7, 2, "b+");
    assert_non_null(asked(f, 1));
    assert_null(asked(f, 2));
    answer(f, epoch, asked(f, 0)->id, STATUS_OK);
    assert_true(str_eq_c(asked(f, 2)->source, "b+"));
    assert_null(asked(f, 3));
    answer(f, epoch, asked(f, 1)->id, STATUS_OK);
    assert_true(str_eq_c(asked(f, 3)->source, "a{3}"));
    check(f);
    for (uint32_t i = 2; i < 7; i++) /* the head sends no grammars of cancelled requests */
        cancel(f, 1 + i);
    answer(f, epoch, asked(f, 2)->id, STATUS_OK);
    answer(f, epoch, asked(f, 3)->id, STATUS_OK);
    assert_null(asked(f, 4));
    assert_int_equal(f->core->n_held, 0);
    fixture_free(f);
}

/* Grammars without users are evicted, the oldest first. A grammar in use stays. */
static void unused_ones_are_let_go(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f), kept = 0;
    uint32_t n_let_go = 0, n_known = 0;
    char source[16];
    for (uint32_t i = 0; i < 100; i++) {
        snprintf(source, sizeof source, "c{%u}", i + 1);
        submit(f, 1 + i, 1, source);
        const struct msg *m;
        for (uint32_t k = 0; (m = nth(f, SAMPLING_RANK, MSG_GRAMMAR, k)); k++) {
            n_known += m->grammar.on ? 1 : -1u;
            n_let_go += !m->grammar.on;
            assert_true(m->grammar.id != kept);
            if (m->grammar.on)
                answer(f, epoch, m->grammar.id, STATUS_OK);
        }
        kept = i == 0 ? asked(f, 0)->id : kept;
        assert_int_equal(f->core->n_held, 0);
        if (i > 0)
            cancel(f, 1 + i);
        box_clear(f);
        check(f);
    }
    assert_true(n_let_go > 50 && n_known <= 34);
    fixture_free(f);
}

/* Matchers have 48 of the 64 MiB. 36 MiB are for all tenants, and a tenant may have 6 MiB of the
 * rest. A matcher counts as its first size plus 1 MiB until its rank reports the real size. */
static void a_matcher_waits_for_room(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    for (uint64_t i = 1; i <= 5; i++)
        submit(f, i, 1, "a+");
    answer_sizes(f, epoch, asked(f, 0)->id, 1, 9, 64);
    assert_int_equal(f->core->n_held, 2);
    assert_null(end_of(f, 4));
    submit(f, 6, 1, "b+");
    answer_sizes(f, epoch, asked(f, 1)->id, 1, 5, 64); /* 6 MiB fit beside the other matchers */
    assert_int_equal(f->core->n_held, 2);
    submit(f, 7, 2, "b+"); /* the rest is for tenants that have no matcher */
    submit(f, 8, 2, "b+");
    assert_int_equal(f->core->n_held, 3);
    submit(f, 9, 3, NULL); /* requests without a grammar do not wait */
    assert_int_equal(f->core->n_held, 3);
    check(f);
    cancel(f, 1);
    /* 2 x 10 + 6 + 6 MiB leave less than 10 more, but tenant 2 gets 6 more */
    wait_ms(f, 300, ALIVE);
    assert_int_equal(f->core->n_held, 3);
    cancel(f, 2);
    wait_ms(f, 300, ALIVE);
    assert_int_equal(f->core->n_held, 2);
    cancel(f, 6);
    cancel(f, 7);
    wait_ms(f, 300, ALIVE);
    assert_int_equal(f->core->n_held, 0);
    check(f);
    fixture_free(f);
}

/* A matcher that can never fit is refused at once, because no wait would help. Its requests end,
 * and the rank may drop the grammar. */
static void a_matcher_that_never_fits_is_refused(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    submit(f, 1, 1, "a+");
    submit(f, 2, 1, "b+");
    uint64_t id = asked(f, 0)->id;
    answer_sizes(f, epoch, id, 1, 48, 64);
    const struct tokens_item *end = end_of(f, 1);
    assert_true(end && end->finish == FINISH_ERROR && end->status == STATUS_INVALID);
    assert_true(strstr(end->text.ptr, "48 MiB") != NULL);
    assert_null(end_of(f, 2));
    check(f);
    const struct msg_grammar *gone = asked(f, 2);
    assert_true(gone && !gone->on && gone->id == id);
    /* A matcher that is alone may take more than the memory for all tenants. */
    answer_sizes(f, epoch, asked(f, 1)->id, 1, 47, 64);
    assert_int_equal(f->core->n_held, 0);
    assert_null(end_of(f, 2));
    fixture_free(f);
}

static void say_has(struct fixture *f, uint64_t id, uint32_t mib)
{
    struct request *r = request_table_find(f->core->requests, (struct request_id){1, id}, 0);
    assert_non_null(r);
    r->matcher_kib = mib << 10; /* a result reports the size in this way */
}

/* When matchers grow, the youngest request of the tenant with the most memory is suspended and
 * waits. */
static void matchers_that_grow_make_room(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    for (uint64_t i = 1; i <= 4; i++)
        submit(f, i, i == 4 ? 2 : 1, "a+");
    answer_sizes(f, epoch, asked(f, 0)->id, 1, 4, 64);
    assert_int_equal(f->core->n_held, 0);
    say_has(f, 1, 20);
    say_has(f, 2, 8);
    say_has(f, 3, 12);
    say_has(f, 4, 7);
    wait_ms(f, 300, ALIVE); /* the matchers take 47 of 48 MiB */
    assert_int_equal(f->core->n_held, 0);
    say_has(f, 4, 19);
    wait_ms(f, 300, ALIVE);
    assert_int_equal(f->core->n_held, 1);
    assert_int_equal(f->core->grammars.n_put_aside, 1);
    const struct request *third =
        request_table_find(f->core->requests, (struct request_id){1, 3}, 0);
    assert_true(third->awaits_grammar && third->finish == FINISH_NONE);
    check(f);
    cancel(f, 4);
    wait_ms(f, 300, ALIVE); /* 20 + 8 + 12 MiB exceed the 36 MiB for all tenants */
    assert_int_equal(f->core->n_held, 1);
    cancel(f, 2);
    wait_ms(f, 300, ALIVE);
    assert_int_equal(f->core->n_held, 0);
    cancel(f, 1);
    say_has(f, 3, 49); /* suspending any other request would not free enough memory */
    wait_ms(f, 300, ALIVE);
    const struct tokens_item *end = end_of(f, 3);
    assert_true(end && end->finish == FINISH_ERROR && end->status == STATUS_INVALID);
    assert_true(strstr(end->text.ptr, "49 MiB") != NULL);
    check(f);
    fixture_free(f);
}

/* Grammars have 16 of the 64 MiB, and 12 MiB are for all tenants. A grammar in use stays, so the
 * next grammar waits. A grammar without users is evicted. */
static void a_grammar_waits_for_room(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    submit(f, 1, 1, "a+");
    answer_sizes(f, epoch, asked(f, 0)->id, 13, 1, 64);
    assert_int_equal(f->core->n_held, 0);
    uint64_t id = asked(f, 0)->id;
    submit(f, 2, 1, "b+");
    assert_int_equal(f->core->n_held, 1);
    assert_null(asked(f, 1));
    submit(f, 3, 2, "c+"); /* another tenant, which has no grammar, sends this request */
    assert_true(str_eq_c(asked(f, 1)->source, "c+"));
    answer_sizes(f, epoch, asked(f, 1)->id, 2, 1, 64);
    assert_int_equal(f->core->n_held, 1);
    check(f);
    box_clear(f);
    cancel(f, 1);
    wait_ms(f, 300, ALIVE);
    const struct msg_grammar *gone = asked(f, 0), *next = asked(f, 1);
    assert_true(gone && next && gone->on != next->on);
    assert_int_equal((gone->on ? next : gone)->id, id);
    assert_true(str_eq_c((gone->on ? gone : next)->source, "b+"));
    check(f);
    fixture_free(f);
}

/* A rank that reports no sizes has no limit. Such a rank is a device without grammars or an
 * older worker. */
static void a_rank_that_says_no_sizes_has_no_bound(void **state)
{
    struct fixture *f = fixture_new(2);
    uint64_t epoch = open_pair(f);
    submit(f, 1, 1, "a+");
    answer_sizes(f, epoch, asked(f, 0)->id, 1 << 30, 1 << 30, 0);
    assert_int_equal(f->core->n_held, 0);
    assert_null(end_of(f, 1));
    submit(f, 2, 1, "b+");
    assert_non_null(asked(f, 1));
    check(f);
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_pass_who_waits),
        cmocka_unit_test(requests_share_what_they_bring),
        cmocka_unit_test(a_grammar_comes_once),
        cmocka_unit_test(a_session_begins_without_one),
        cmocka_unit_test(a_tenant_of_large_grammars_is_refused),
        cmocka_unit_test(a_failure_ends_its_own),
        cmocka_unit_test(no_answer_is_an_end_by_name),
        cmocka_unit_test(an_older_worker_is_not_asked),
        cmocka_unit_test(a_lost_replica_is_asked_anew),
        cmocka_unit_test(a_new_session_is_asked_again),
        cmocka_unit_test(tenants_take_turns),
        cmocka_unit_test(unused_ones_are_let_go),
        cmocka_unit_test(a_matcher_waits_for_room),
        cmocka_unit_test(a_matcher_that_never_fits_is_refused),
        cmocka_unit_test(matchers_that_grow_make_room),
        cmocka_unit_test(a_grammar_waits_for_room),
        cmocka_unit_test(a_rank_that_says_no_sizes_has_no_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
