/* Tests transfers of KV blocks between two replicas of two ranks each. Scripted ranks
 * (`core_fixture.h`) answer plans, and report each copy as done or failed. The tests submit
 * requests, drain a replica or give it a role, and check the tokens at the gateway. Invariants:
 * a request that moves loses no token and gets none twice, and all blocks are freed at the end.
 * Each token's id contains its position. All tests run on one thread. */
#include "tests/unit/head/core/core_fixture.h"

#include "head/admin/json.h"

enum { N_PROMPT = 100, ALIVE = 1u << 1 | 1u << 2 | 1u << 3 | 1u << 4 | 1u << 5, FIRST = 1000 };

/* `conns` names the connections of replica 0 (1 and 2) and of replica 1 (4 and 5). The gateway
 * has connection 3. */
static const uint8_t conns[2][2] = {{1, 2}, {4, 5}};

struct spec {
    enum replica_role roles[2];
    /* `other_blocks` gives replica 1 larger blocks. */
    bool no_address, no_caching, other_blocks;
    uint32_t n_blocks; /* blocks of replica 1; 0 = default */
};

static uint32_t ids[N_PROMPT];

static void form_replica(struct fixture *f, int i, const struct spec *spec)
{
    static const struct kv_group few = {.block_tokens = 16, .n_blocks = 4};
    static const struct kv_group larger = {.block_tokens = 32, .n_blocks = 32};
    for (int k = 0; k < 2; k++) {
        struct msg hello = worker_hello(101 + (uint64_t)(2 * i + k), 2 * i + k);
        hello.hello.worker.replica_role = spec->roles[i];
        if (!spec->no_address)
            hello.hello.worker.kv_address = k ? STR("10.0.0.2:9") : STR("10.0.0.1:9");
        if (i == 1 && spec->n_blocks)
            hello.hello.worker.kv_groups = &few;
        if (i == 1 && spec->other_blocks)
            hello.hello.worker.kv_groups = &larger;
        say(f, conns[i][k], &hello);
    }
    const struct msg *form = box_find(f, conns[i][0], MSG_FORM);
    assert_non_null(form);
    uint64_t epoch = form->form.term_epoch;
    say(f, conns[i][0],
        &(struct msg){.type = MSG_COMM_ID,
                      .comm_id = {.term_epoch = epoch, .id = {(const uint8_t *)"id", 2}}});
    for (int k = 0; k < 2; k++)
        say(f, conns[i][k], &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = epoch}});
    box_clear(f);
}

static struct fixture *open_replicas(const struct spec *spec)
{
    struct fixture *f = fixture_new(2);
    if (spec->no_caching) { /* the fixture has already made a core */
        head_core_free(f->core);
        f->config.enable_prefix_caching = false;
        f->core =
            head_core_new(&f->config, &(struct head_io){.ctx = f, .send = fixture_send}, f->now);
    }
    say_gateway_hello(f, 3, 1);
    for (int i = 0; i < 2; i++)
        form_replica(f, i, spec);
    assert_int_equal(cluster_count_replicas(&f->core->cluster, REPLICA_READY), 2);
    return f;
}

static void submit_prompt(struct fixture *f, uint64_t lo, uint32_t first_id, uint32_t max_tokens)
{
    for (uint32_t i = 0; i < N_PROMPT; i++)
        ids[i] = first_id + i;
    struct msg m = {.type = MSG_SUBMIT,
                    .submit = {.id = {1, lo},
                               .attempt = 1,
                               .n_prompt = N_PROMPT,
                               .ids = {ids, N_PROMPT},
                               .sampling = {.top_p = 1,
                                            .repetition_penalty = 1,
                                            .n_logprobs = -1,
                                            .n_prompt_logprobs = -1,
                                            .max_tokens = max_tokens}}};
    say(f, 3, &m);
}

static void submit(struct fixture *f, uint64_t lo, uint32_t max_tokens)
{
    submit_prompt(f, lo, (uint32_t)lo * 10, max_tokens);
}

static struct request *request_of(const struct fixture *f, uint64_t lo)
{
    return request_table_find(f->core->requests, (struct request_id){1, lo}, 0);
}

static void drop_letter(struct fixture *f, uint32_t i)
{
    arena_fini(&f->box[i].arena);
    memmove(f->box + i, f->box + i + 1, (f->n_box - i - 1) * sizeof f->box[0]);
    f->n_box--;
}

/* Answers the oldest plan of replica i. The id of each token contains its position. Returns
 * false when there is no plan. */
static bool answer(struct fixture *f, int i)
{
    static const float gap = 1;
    uint32_t at = 0;
    while (at < f->n_box && !(f->box[at].to == conns[i][0] && f->box[at].m.type == MSG_PLAN))
        at++;
    if (at == f->n_box)
        return false;
    const struct msg_plan *p = &f->box[at].m.plan;
    struct result_item items[16];
    uint32_t tokens[16], n = 0;
    for (uint32_t k = 0; k < p->n_admits; k++) /* earlier tokens keep their ids */
        for (uint32_t j = N_PROMPT; j < p->admits[k].ids.n; j++)
            assert_int_equal(p->admits[k].ids.ptr[j], FIRST + j);
    for (uint32_t k = 0; k < p->n_runs; k++) {
        if (!p->runs[k].sample)
            continue;
        tokens[n] = FIRST + p->runs[k].start + p->runs[k].n_tokens;
        items[n] = (struct result_item){
            .slot = p->runs[k].slot, .ids = {&tokens[n], 1}, .gaps = {&gap, 1}};
        n++;
    }
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = p->term_epoch,
                               .step = p->step,
                               .items = items,
                               .n_items = n,
                               .execute_ns = 400 * MS}};
    drop_letter(f, at);
    say(f, conns[i][0], &m);
    return true;
}

/* Checks that newly arrived tokens continue the answer. Returns the number of tokens so far. */
static uint32_t n_heard(struct fixture *f, uint64_t lo, uint32_t n_before)
{
    for (uint32_t i = 0; i < f->n_box; i++) {
        const struct msg_tokens *t = &f->box[i].m.tokens;
        if (f->box[i].m.type != MSG_TOKENS)
            continue;
        for (uint32_t k = 0; k < t->n_items; k++) {
            const struct tokens_item *x = &t->items[k];
            if (x->id.lo != lo)
                continue;
            assert_int_equal(x->finish == FINISH_ERROR, 0);
            assert_int_equal(x->start, n_before);
            for (uint32_t j = 0; j < x->ids.n; j++)
                assert_int_equal(x->ids.ptr[j], FIRST + N_PROMPT + n_before + j);
            n_before += x->ids.n;
        }
    }
    for (uint32_t i = f->n_box; i-- > 0;)
        if (f->box[i].m.type == MSG_TOKENS)
            drop_letter(f, i);
    return n_before;
}

/* Drops all letters that the tests do not read. */
static void tidy(struct fixture *f)
{
    for (uint32_t k = f->n_box; k-- > 0;) {
        const struct letter *l = &f->box[k];
        bool is_plan = l->m.type == MSG_PLAN && (l->to == 1 || l->to == 4);
        if (!is_plan && l->m.type != MSG_TOKENS)
            drop_letter(f, k);
    }
}

/* Answers plans until the request is done. The request must get all tokens, each once. */
static void finish(struct fixture *f, uint64_t lo, uint32_t n_before, uint32_t n_all)
{
    for (int i = 0; i < 400 && n_before < n_all; i++) {
        bool any = answer(f, 0);
        any = answer(f, 1) || any;
        n_before = n_heard(f, lo, n_before);
        if (!any)
            wait_ms(f, 50, ALIVE);
        tidy(f);
    }
    assert_int_equal(n_before, n_all);
    assert_true(!request_of(f, lo) || request_of(f, lo)->finish != FINISH_NONE);
}

static void transferred(struct fixture *f, uint8_t conn, uint64_t id, enum status status)
{
    int i = conn >= 4;
    const struct replica *g = f->core->cluster.replicas[i];
    say(f, conn,
        &(struct msg){.type = MSG_KV_TRANSFERRED,
                      .kv_transferred = {.term_epoch = g->epoch,
                                         .id = id,
                                         .status = status,
                                         .text = status ? STR("cannot be reached") : STR(""),
                                         .n_bytes = 5,
                                         .took_ns = MS}});
}

static uint32_t n_used(const struct fixture *f, int i)
{
    struct scheduler_stats s = {0};
    if (f->core->engine_slots[i].scheduler)
        scheduler_get_stats(f->core->engine_slots[i].scheduler, &s);
    return s.n_blocks_used;
}

static struct transfers *transfers_of(struct fixture *f)
{
    return &f->core->transfers;
}

/* Starts a request with three tokens and drains its replica. Sets `lo` to the request and `from`
 * to the replica. Returns the id of the transfer, whose blocks are being copied. */
static uint64_t begin_drain(struct fixture *f, uint64_t *lo, int *from)
{
    submit(f, 1, 40);
    *from = (int)request_of(f, 1)->i_replica;
    *lo = 1;
    for (int i = 0; i < 3; i++)
        assert_true(answer(f, *from));
    assert_int_equal(n_heard(f, 1, 0), 3);
    assert_int_equal(
        head_core_drain_worker(f->core, conns[*from][0] == 1 ? 101 : 103, true, "a test", f->now),
        STATUS_OK);
    wait_ms(f, 50, ALIVE);
    const struct transfer *x = transfers_of(f)->first;
    assert_true(x && x->state == TRANSFER_COPYING);
    return x->id;
}

static void drained_requests_go_on_elsewhere(void **state)
{
    static const struct spec spec = {0};
    struct fixture *f = open_replicas(&spec);
    uint64_t lo;
    int from;
    uint64_t id = begin_drain(f, &lo, &from);
    for (int s = 0; s < 2; s++)
        for (int k = 0; k < 2; k++) {
            int i = s ? 1 - from : from;
            const struct msg *m = box_find(f, conns[i][k], MSG_KV_TRANSFER);
            assert_non_null(m);
            const struct msg_kv_transfer *t = &m->kv_transfer;
            assert_true(t->id == id && t->sends == (s == 0) && t->blocks.n == 6);
            assert_int_equal(t->term_epoch, f->core->cluster.replicas[i]->epoch);
            assert_true(str_eq(t->from_address, k ? STR("10.0.0.2:9") : STR("10.0.0.1:9")));
            assert_int_equal(t->comm_id.n, 32);
        }
    assert_memory_equal(box_find(f, conns[0][0], MSG_KV_TRANSFER)->kv_transfer.comm_id.ptr,
                        box_find(f, conns[1][0], MSG_KV_TRANSFER)->kv_transfer.comm_id.ptr, 32);
    assert_int_equal(n_used(f, 1 - from), 6);
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < 2; k++) {
            /* the request runs on during the copy */
            assert_int_equal(request_of(f, lo)->i_replica, from);
            transferred(f, conns[c][k], id, STATUS_OK);
        }
    assert_int_equal(transfers_of(f)->n_done, 1);
    assert_int_equal(request_of(f, lo)->i_replica, from); /* two steps are in flight */
    uint32_t n = 3;
    while (request_of(f, lo)->i_replica == (uint32_t)from) {
        assert_true(answer(f, from));
        n = n_heard(f, lo, n);
    }
    assert_int_equal(request_of(f, lo)->i_replica, 1 - from);
    assert_int_equal(n, 5);
    const struct msg *p = box_find(f, conns[1 - from][0], MSG_PLAN);
    assert_true(p && p->plan.n_admits == 1 && p->plan.admits[0].n_computed == 96);
    assert_true(transfers_of(f)->n_moved == 1 && transfers_of(f)->n_recomputed == 0);
    finish(f, lo, n, 40);
    wait_ms(f, 100, ALIVE);
    /* The replica is idle and therefore dissolved. */
    assert_true(f->core->cluster.replicas[from]->state != REPLICA_READY);
    assert_int_equal(n_used(f, 1 - from), 0);
    fixture_free(f);
}

static void answer_all(struct fixture *f, uint64_t id, enum status status)
{
    for (int c = 0; c < 2; c++)
        for (int k = 0; k < 2; k++)
            transferred(f, conns[c][k], id, status);
}

/* Timers run before the turn. A tick may find the last result applied while the request has not
 * left yet. */
static void a_drained_replica_is_not_done_while_one_leaves(void **state)
{
    for (int copies = 0; copies < 2; copies++) {
        const struct spec spec = {.no_address = !copies};
        struct fixture *f = open_replicas(&spec);
        uint64_t lo = 1;
        int from;
        if (copies) {
            answer_all(f, begin_drain(f, &lo, &from), STATUS_OK);
        } else {
            submit(f, lo, 40);
            from = (int)request_of(f, lo)->i_replica;
            assert_true(answer(f, from));
            assert_int_equal(head_core_drain_worker(f->core, conns[from][0] == 1 ? 101 : 103, true,
                                                    "a test", f->now),
                             STATUS_OK);
            wait_ms(f, 50, ALIVE);
        }
        assert_int_equal(request_of(f, lo)->i_replica, from); /* two steps are in flight */
        f->ticks = true;
        while (request_of(f, lo)->i_replica == (uint32_t)from)
            assert_true(answer(f, from));
        assert_int_equal(request_of(f, lo)->i_replica, 1 - from);
        assert_int_equal(transfers_of(f)->n_moved, 1);
        assert_int_equal(transfers_of(f)->n_recomputed, !copies);
        f->ticks = false;
        fixture_free(f);
    }
}

static void lose(struct fixture *f, int i)
{
    say(f, conns[i][0],
        &(struct msg){.type = MSG_COMM_ERROR,
                      .comm_error = {.term_epoch = f->core->cluster.replicas[i]->epoch}});
    uint64_t epoch = f->core->cluster.replicas[i]->epoch;
    for (int k = 0; k < 2; k++)
        say(f, conns[i][k], &(struct msg){.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}});
}

/* Returns the admission of the request in the plans to replica i, or NULL. Answers all earlier
 * plans. */
static const struct plan_admit *find_admit(struct fixture *f, int i, uint64_t lo)
{
    while (true) {
        const struct msg *m = box_find(f, conns[i][0], MSG_PLAN);
        if (!m)
            return NULL;
        for (uint32_t k = 0; k < m->plan.n_admits; k++) {
            const struct plan_admit *a = &m->plan.admits[k];
            if (a->ids.ptr[0] == lo)
                return a;
        }
        assert_true(answer(f, i));
    }
}

/* Copied blocks are shared only between the requests that came from that replica. Other requests
 * with the same prompt compute it themselves. A request that came from there also computes its
 * prompt if it continues in another replica without its blocks. */
static void copied_blocks_are_for_those_who_came_with_them(void **state)
{
    static const struct spec spec = {0};
    enum { FIRST_ID = 10 };
    struct fixture *f = open_replicas(&spec);
    uint64_t lo;
    int from;
    uint64_t id = begin_drain(f, &lo, &from);
    answer_all(f, id, STATUS_OK);
    while (request_of(f, lo)->i_replica == (uint32_t)from)
        assert_true(answer(f, from));
    const struct plan_admit *came = find_admit(f, 1 - from, FIRST_ID);
    assert_true(came && came->n_computed == 96);
    assert_true(answer(f, 1 - from));
    submit_prompt(f, 7, FIRST_ID, 5);
    assert_int_equal(request_of(f, 7)->i_replica, 1 - from);
    const struct plan_admit *other = find_admit(f, 1 - from, FIRST_ID);
    assert_true(other && other->n_computed == 0);
    assert_true(answer(f, 1 - from));
    /* request 7 computed the prompt here, so all of it is shared */
    submit_prompt(f, 8, FIRST_ID, 5);
    const struct plan_admit *third = find_admit(f, 1 - from, FIRST_ID);
    assert_true(third && third->n_computed >= 96);
    const struct request *r = request_of(f, lo);
    assert_memory_not_equal(&r->salt, &r->own_salt, sizeof r->salt);
    lose(f, 1 - from);
    assert_memory_equal(&r->salt, &r->own_salt, sizeof r->salt);
    fixture_free(f);
}

/* Names the faults during a copy. The tokens must be right and the blocks must be freed in each
 * case. */
enum trouble {
    RANK_FAILS,
    RANK_FAILS_EARLY, /* one rank fails while the other ranks still copy */
    SENDER_LOST,
    RECEIVER_LOST,
    SILENCE,
    UNDRAINED,
    CANCELLED,
    SENDER_ENDS,      /* the request ends before the copy does */
    SENDER_ENDS_LAST, /* the request ends before the copy, and the drained replica ends with it */
    LIES,
    N_TROUBLES
};

static void lie(struct fixture *f, uint64_t id, int from)
{
    transferred(f, conns[0][0], id + 1, STATUS_OK);
    say(f, conns[0][0],
        &(struct msg){.type = MSG_KV_TRANSFERRED,
                      .kv_transferred = {.term_epoch = 1, .id = id, .status = STATUS_IO}});
    for (int i = 0; i < 3; i++)
        /* the rank gives the same answer three times */
        transferred(f, conns[from][0], id, STATUS_OK);
    assert_int_equal(transfers_of(f)->first->state, TRANSFER_COPYING);
    assert_false(transfers_of(f)->first->failed);
    answer_all(f, id, STATUS_OK);
    transferred(f, conns[0][0], id, STATUS_IO);
    assert_int_equal(transfers_of(f)->n_failed, 0);
}

static void make_trouble(struct fixture *f, enum trouble what, uint64_t id, int from)
{
    switch (what) {
    case RANK_FAILS:
        answer_all(f, id, STATUS_IO);
        break;
    case RANK_FAILS_EARLY:
        transferred(f, conns[from][1], id, STATUS_IO);
        /* the other ranks may still write into these blocks */
        assert_int_equal(n_used(f, 1 - from), 6);
        answer_all(f, id, STATUS_OK);
        break;
    case SENDER_LOST:
        lose(f, from);
        /* the receiving ranks may still write into their blocks */
        assert_int_equal(transfers_of(f)->n, 1);
        answer_all(f, id, STATUS_IO);
        break;
    case RECEIVER_LOST:
        lose(f, 1 - from);
        answer_all(f, id, STATUS_IO);
        break;
    case SILENCE:
        f->core->cluster.replicas[from]->drain_deadline_ns = UINT64_MAX;
        for (int i = 0; i < 31; i++) {
            wait_ms(f, 500, ALIVE);
            if (i % 2 == 0 && transfers_of(f)->n_failed == 0)
                assert_true(answer(f, from));
            tidy(f);
        }
        assert_int_equal(transfers_of(f)->n_failed, 1);
        assert_int_equal(transfers_of(f)->first->state, TRANSFER_STUCK);
        answer_all(f, id, STATUS_OK);
        break;
    case UNDRAINED:
        assert_int_equal(head_core_drain_worker(f->core, from ? 103 : 101, false, "a test", f->now),
                         STATUS_OK);
        answer_all(f, id, STATUS_OK);
        break;
    case LIES:
        lie(f, id, from);
        break;
    default:
        break;
    }
}

static void trouble_costs_time_and_nothing_else(void **state)
{
    static const struct spec spec = {0};
    for (enum trouble what = 0; what < N_TROUBLES; what++) {
        struct fixture *f = open_replicas(&spec);
        uint64_t lo;
        int from;
        uint64_t id = begin_drain(f, &lo, &from);
        uint32_t n = n_heard(f, lo, 3);
        make_trouble(f, what, id, from);
        n = n_heard(f, lo, n);
        if (what == CANCELLED) {
            say(f, 3, &(struct msg){.type = MSG_CANCEL, .cancel = {.id = {1, lo}, .attempt = 1}});
            assert_null(request_of(f, lo));
            answer_all(f, id, STATUS_OK);
            while (answer(f, from))
                ;
        } else if (what == SENDER_ENDS || what == SENDER_ENDS_LAST) {
            while (n < 40 && answer(f, from))
                n = n_heard(f, lo, n);
            assert_int_equal(n, 40);
            if (what == SENDER_ENDS_LAST) {
                wait_ms(f, 100, ALIVE);
                assert_true(f->core->cluster.replicas[from]->state != REPLICA_READY);
                /* a cut connection gives this answer */
                transferred(f, conns[1 - from][0], id, STATUS_IO);
                transferred(f, conns[1 - from][1], id, STATUS_IO);
            }
            answer_all(f, id, STATUS_OK);
        } else {
            finish(f, lo, n, 40);
        }
        wait_ms(f, 200, ALIVE);
        assert_int_equal(transfers_of(f)->n, 0);
        assert_int_equal(n_used(f, 0) + n_used(f, 1), 0);
        bool failed = what == RANK_FAILS || what == RANK_FAILS_EARLY || what == SENDER_LOST ||
                      what == RECEIVER_LOST || what == SILENCE;
        assert_int_equal(transfers_of(f)->n_failed, failed);
        fixture_free(f);
    }
}

/* A request that cannot be copied is computed again at once. */
static void without_a_way_it_is_computed_again(void **state)
{
    static const struct spec specs[] = {{.no_address = true}, {.no_caching = true}};
    for (size_t i = 0; i < 2; i++) {
        struct fixture *f = open_replicas(&specs[i]);
        submit(f, 1, 40);
        uint32_t from = request_of(f, 1)->i_replica;
        for (int k = 0; k < 3; k++)
            answer(f, (int)from);
        uint32_t n = n_heard(f, 1, 0);
        assert_int_equal(head_core_drain_worker(f->core, from ? 103 : 101, true, "a test", f->now),
                         STATUS_OK);
        wait_ms(f, 50, ALIVE);
        while (answer(f, (int)from))
            n = n_heard(f, 1, n);
        assert_int_equal(request_of(f, 1)->i_replica, 1 - from);
        assert_true(transfers_of(f)->n_moved == 1 && transfers_of(f)->n_recomputed == 1);
        finish(f, 1, n, 40);
        fixture_free(f);
    }
}

/* The other replica could never hold the request. The request stays until it ends or the drain
 * times out. */
static void without_room_it_stays(void **state)
{
    static const struct spec spec = {.n_blocks = 4};
    struct fixture *f = open_replicas(&spec);
    submit(f, 1, 20);
    if (request_of(f, 1)->i_replica == 1 || request_of(f, 1)->i_replica == NO_REPLICA)
        fail_msg("it was given to a group in which it does not fit");
    answer(f, 0);
    assert_int_equal(head_core_drain_worker(f->core, 101, true, "a test", f->now), STATUS_OK);
    wait_ms(f, 200, ALIVE);
    assert_int_equal(request_of(f, 1)->i_replica, 0);
    assert_int_equal(transfers_of(f)->n, 0);
    finish(f, 1, n_heard(f, 1, 0), 20);
    fixture_free(f);
}

static void prefill_replicas_hand_over(void **state)
{
    static const struct spec spec = {.roles = {REPLICA_PREFILL, REPLICA_DECODE}};
    struct fixture *f = open_replicas(&spec);
    submit(f, 1, 40);
    assert_int_equal(request_of(f, 1)->i_replica, 0);
    submit(f, 2, 40);
    assert_int_equal(request_of(f, 2)->i_replica, 0); /* request 2 stays whatever the load */
    while (transfers_of(f)->n == 0)
        assert_true(answer(f, 0));
    const struct transfer *x = transfers_of(f)->first;
    assert_true(x->state == TRANSFER_COPYING && x->request.lo == 1);
    assert_int_equal(transfers_of(f)->n, 1); /* the head runs one copy at a time */
    uint32_t n1 = n_heard(f, 1, 0);
    answer_all(f, x->id, STATUS_OK);
    while (request_of(f, 1)->i_replica == 0)
        assert_true(answer(f, 0));
    const struct msg *p = box_find(f, 4, MSG_PLAN);
    assert_true(p && p->plan.n_admits == 1 && p->plan.admits[0].n_computed == 96);
    assert_true(transfers_of(f)->n == 1 && transfers_of(f)->first->request.lo == 2);
    answer_all(f, transfers_of(f)->first->id, STATUS_IO); /* the request continues at its replica */
    assert_int_equal(transfers_of(f)->n, 0);
    assert_int_equal(request_of(f, 2)->i_replica, 0);
    wait_ms(f, 900, ALIVE);
    assert_int_equal(transfers_of(f)->n, 0);
    wait_ms(f, 200, ALIVE); /* the head tries again later */
    assert_int_equal(transfers_of(f)->n, 1);
    answer_all(f, transfers_of(f)->first->id, STATUS_OK);
    (void)n1;
    for (int i = 0; i < 300 && (request_of(f, 1) || request_of(f, 2)); i++) {
        answer(f, 0);
        answer(f, 1);
        if (i % 8 == 0)
            wait_ms(f, 50, ALIVE);
        tidy(f);
        (void)n_heard(f, 0, 0);
    }
    assert_int_equal(transfers_of(f)->n_moved, 2);
    fixture_free(f);
}

/* A later request with the same prefix from the same replica needs no second copy. A decode
 * replica therefore holds a system prompt once. */
static void what_came_from_there_before_is_not_copied_again(void **state)
{
    static const struct spec spec = {.roles = {REPLICA_PREFILL, REPLICA_DECODE}};
    struct fixture *f = open_replicas(&spec);
    for (uint64_t lo = 1; lo <= 2; lo++) {
        submit_prompt(f, lo, 50, 40);
        assert_int_equal(request_of(f, lo)->i_replica, 0);
        while (request_of(f, lo)->i_replica == 0) {
            const struct transfer *x = transfers_of(f)->first;
            if (x && x->state == TRANSFER_COPYING) {
                assert_int_equal(lo, 1);
                assert_int_equal(x->n_blocks, 6);
                answer_all(f, x->id, STATUS_OK);
            }
            assert_true(answer(f, 0));
        }
        const struct plan_admit *a = find_admit(f, 1, 50);
        assert_true(a && a->n_computed == 96);
        assert_true(answer(f, 1));
    }
    assert_int_equal(transfers_of(f)->n_done, 1);
    assert_int_equal(transfers_of(f)->n_moved, 2);
    fixture_free(f);
}

/* A role is a preference. A single replica computes prompts and decodes. Prompts are placed in
 * decode replicas when there are no other replicas. */
static void who_is_alone_does_both(void **state)
{
    static const struct spec specs[] = {{.roles = {REPLICA_DECODE, REPLICA_DECODE}},
                                        {.roles = {REPLICA_PREFILL, REPLICA_PREFILL}}};
    for (size_t i = 0; i < 2; i++) {
        struct fixture *f = open_replicas(&specs[i]);
        submit(f, 1, 20);
        assert_true(request_of(f, 1)->i_replica != NO_REPLICA);
        finish(f, 1, 0, 20);
        assert_int_equal(transfers_of(f)->n_moved, 0);
        fixture_free(f);
    }
}

/* Returns the number of status warnings that contain `what`. */
static uint32_t n_warned(const struct fixture *f, const char *what)
{
    json_t *s = admin_json_status(f->core, false), *line;
    uint32_t n = 0;
    size_t i;
    json_array_foreach(json_object_get(s, "warnings"), i, line) n +=
        strstr(json_string_value(line), what) != NULL;
    json_decref(s);
    return n;
}

/* A decode replica that cannot receive blocks would be idle for ever. Both replicas then compute
 * prompts, and a warning says why and what to change. */
static void roles_without_a_way_are_none(void **state)
{
    static const struct {
        struct spec spec;
        const char *why; /* text of the warning; NULL = the roles count */
    } cases[] = {
        {{.roles = {REPLICA_PREFILL, REPLICA_DECODE}}, NULL},
        {{.roles = {REPLICA_PREFILL, REPLICA_DECODE}, .no_address = true}, "--kv-port"},
        {{.roles = {REPLICA_PREFILL, REPLICA_DECODE}, .no_caching = true},
         "roles need the prefix cache"},
        {{.roles = {REPLICA_PREFILL, REPLICA_DECODE}, .other_blocks = true}, "--block-size"},
    };
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        struct fixture *f = open_replicas(&cases[k].spec);
        bool ignored = cases[k].why != NULL;
        for (uint64_t lo = 1; lo <= 2; lo++)
            submit(f, lo, 20);
        if ((request_of(f, 1)->i_replica != request_of(f, 2)->i_replica) != ignored)
            fail_msg("case %zu", k);
        assert_int_equal(n_warned(f, "role"), ignored);
        json_t *events = admin_json_events(f->core, 0);
        char *text = json_dumps(events, 0);
        if (ignored)
            assert_int_equal(n_warned(f, cases[k].why), 1);
        if (ignored)
            assert_int_equal(n_warned(f, "2 replicas"), 1);
        assert_int_equal(strstr(text, "group_role_ignored") != NULL, ignored);
        free(text);
        json_decref(events);
        for (int i = 0; ignored && i < 100 && (request_of(f, 1) || request_of(f, 2)); i++) {
            answer(f, 0);
            answer(f, 1);
            tidy(f);
            (void)n_heard(f, 0, 0);
        }
        assert_int_equal(transfers_of(f)->n_moved, 0);
        fixture_free(f);
    }
}

/* No request moves to this decode replica, because a replica for both roles keeps its requests. */
static void a_decode_replica_beside_replicas_for_both_is_one(void **state)
{
    static const struct spec spec = {.roles = {REPLICA_BOTH, REPLICA_DECODE}};
    struct fixture *f = open_replicas(&spec);
    submit(f, 1, 20);
    submit(f, 2, 20);
    assert_int_not_equal(request_of(f, 1)->i_replica, request_of(f, 2)->i_replica);
    assert_int_equal(n_warned(f, "role"), 0);
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drained_requests_go_on_elsewhere),
        cmocka_unit_test(a_drained_replica_is_not_done_while_one_leaves),
        cmocka_unit_test(trouble_costs_time_and_nothing_else),
        cmocka_unit_test(without_a_way_it_is_computed_again),
        cmocka_unit_test(without_room_it_stays),
        cmocka_unit_test(prefill_replicas_hand_over),
        cmocka_unit_test(copied_blocks_are_for_those_who_came_with_them),
        cmocka_unit_test(what_came_from_there_before_is_not_copied_again),
        cmocka_unit_test(who_is_alone_does_both),
        cmocka_unit_test(roles_without_a_way_are_none),
        cmocka_unit_test(a_decode_replica_beside_replicas_for_both_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
