/* Tests requests between a gateway and the head. Scripted gateways and workers
 * (`core_fixture.h`) send Submits and results, and the tests read the Tokens that the head sends
 * back. Cases: attempts, refusals, the grace time of a lost gateway, deadlines, and tokens that
 * outlive an epoch. Time advances only by the fixture. All tests run on one thread. */
#include "head/core/gateways.h"
#include "head/request/logprobs.h"
#include "head/request/prompt_logprobs.h"
#include "tests/unit/head/core/core_fixture.h"

static const uint32_t ids[16] = {5, 6, 7, 1000, 1001, 1002};

static struct msg submit_of(uint64_t lo, uint32_t attempt, uint32_t n_ids)
{
    return (struct msg){.type = MSG_SUBMIT,
                        .submit = {.id = {1, lo},
                                   .attempt = attempt,
                                   .n_prompt = 3,
                                   .ids = {ids, n_ids},
                                   .sampling = {.top_p = 1,
                                                .repetition_penalty = 1,
                                                .n_logprobs = -1,
                                                .n_prompt_logprobs = -1,
                                                .max_tokens = 4}}};
}

static const struct tokens_item *only_item(const struct fixture *f, uint8_t conn)
{
    const struct msg *m = box_find(f, conn, MSG_TOKENS);
    assert_non_null(m);
    assert_int_equal(m->tokens.n_items, 1);
    return &m->tokens.items[0];
}

/* Rank 0 answers the oldest plan in the box with one token. Removes that plan and all earlier
 * letters from the box. */
static void answer_plan_at(struct fixture *f, uint32_t token, float gap)
{
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_non_null(p);
    struct result_item item = {.slot = p->plan.runs[0].slot, .ids = {&token, 1}, .gaps = {&gap, 1}};
    struct msg m = {.type = MSG_RESULT,
                    .result = {.term_epoch = p->plan.term_epoch,
                               .step = p->plan.step,
                               .wait_ns = f->wait_ns,
                               .items = &item,
                               .n_items = p->plan.runs[0].sample}};
    /* Everything up to that plan is dropped, and later letters stay. */
    uint32_t n = 0;
    while (&f->box[n].m != p)
        n++;
    say(f, 1, &m);
    for (uint32_t i = 0; i <= n; i++)
        arena_fini(&f->box[i].arena);
    memmove(f->box, &f->box[n + 1], (f->n_box - n - 1) * sizeof f->box[0]);
    f->n_box -= n + 1;
}

static void answer_plan(struct fixture *f, uint32_t token)
{
    answer_plan_at(f, token, 1);
}

static struct fixture *ready_cluster(void)
{
    struct fixture *f = fixture_new(2);
    form_pair(f);
    say_gateway_hello(f, 3, 9);
    box_clear(f);
    return f;
}

static void both_ranks_get_the_same_plan(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    const struct msg *a = box_find(f, 1, MSG_PLAN), *b = box_find(f, 2, MSG_PLAN);
    assert_non_null(a);
    assert_non_null(b);
    assert_int_equal(a->plan.step, 1);
    assert_int_equal(b->plan.step, 1);
    assert_int_equal(a->plan.admits[0].ids.n, 3);
    answer_plan(f, 1000);
    const struct tokens_item *t = only_item(f, 3);
    assert_int_equal(t->start, 0);
    assert_int_equal(t->ids.ptr[0], 1000);
    fixture_free(f);
}

static void ends_as_an_error(float gap, const char *words)
{
    static uint32_t eos = 1000;
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    m.submit.sampling.eos_ids = (struct u32_span){&eos, 1};
    say(f, 3, &m);
    answer_plan(f, 999);
    answer_plan_at(f, eos, gap);
    const struct msg *got = NULL;
    for (uint32_t i = 0; i < f->n_box; i++)
        if (f->box[i].m.type == MSG_TOKENS)
            got = &f->box[i].m;
    assert_non_null(got);
    const struct tokens_item *t = &got->tokens.items[0];
    assert_int_equal(t->finish, FINISH_ERROR);
    assert_int_equal(t->status, STATUS_INVALID);
    assert_non_null(memmem(t->text.ptr, t->text.len, words, strlen(words)));
    assert_int_equal(f->core->n_failed, 1);
    assert_int_equal(f->core->n_finished, 0);
    fixture_free(f);
}

/* A token at a position where the grammar allows no token ends the answer with an error. This
 * holds even for an EOS token. */
static void a_dead_end_is_an_error(void **state)
{
    ends_as_an_error(RESULT_DEAD_END,
                     "After 1 tokens the answer's grammar allows none of this model's tokens");
}

static void a_mask_that_costs_too_much_is_an_error(void **state)
{
    ends_as_an_error(RESULT_MASK_COST,
                     "After 1 tokens it takes too long to find the tokens that the grammar allows");
}

/* Without --step-target-ms, replicas on CPUs start with small steps. With --step-target-ms,
 * replicas on every device do. Small chunks are for CPUs only. */
static void steps_are_short_by_device_or_as_told(void **state)
{
    static const struct {
        enum device_kind device;
        uint64_t target_ns;
        uint32_t threshold, want;
    } cases[] = {
        {DEVICE_CPU, STEP_TARGET_BY_DEVICE, 0, 64},
        {DEVICE_CPU, STEP_TARGET_BY_DEVICE, 50, 50},
        {DEVICE_CPU, 100 * MS, 0, 64},
        {DEVICE_CPU, 0, 0, 256},
        {DEVICE_CPU, 0, 270, 270},
        {DEVICE_NULL, STEP_TARGET_BY_DEVICE, 0, 300},
        {DEVICE_CUDA, STEP_TARGET_BY_DEVICE, 0, 300},
        {DEVICE_NULL, 250 * MS, 0, 64},
        {DEVICE_CUDA, 250 * MS, 0, 64},
        {DEVICE_CUDA, 250 * MS, 40, 40},
        {DEVICE_CUDA, 0, 290, 290},
    };
    static uint32_t prompt[300];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = fixture_new(2);
        /* this is the default */
        assert_true(f->core->config.step_target_ns == STEP_TARGET_BY_DEVICE);
        f->core->config.step_target_ns = cases[i].target_ns;
        f->core->config.long_prefill_token_threshold = cases[i].threshold;
        f->device = cases[i].device;
        form_pair(f);
        say_gateway_hello(f, 3, 9);
        struct msg m = submit_of(1, 1, 3);
        m.submit.ids = (struct u32_span){prompt, 300};
        m.submit.n_prompt = 300;
        say(f, 3, &m);
        const struct msg *p = box_find(f, 1, MSG_PLAN);
        assert_non_null(p);
        assert_int_equal(p->plan.runs[0].n_tokens, cases[i].want);
        fixture_free(f);
    }
}

/* A replica drafts no more tokens than its weakest rank can. */
static void a_replica_drafts_as_its_least_rank(void **state)
{
    static const struct {
        uint32_t n_draft[2], max_seqs[2], want_draft, want_max_seqs;
    } cases[] = {
        {{4, 2}, {0, 0}, 2, 0},
        {{2, 4}, {0, 8}, 2, 8},
        {{3, 3}, {6, 8}, 3, 6},
        {{0, 4}, {8, 0}, 0, 8},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = fixture_new(2);
        memcpy(f->n_draft, cases[i].n_draft, sizeof f->n_draft);
        memcpy(f->draft_max_seqs, cases[i].max_seqs, sizeof f->draft_max_seqs);
        form_pair(f);
        const struct replica *g = f->core->engine_slots[0].replica;
        assert_int_equal(g->n_draft, cases[i].want_draft);
        assert_int_equal(g->draft_max_seqs, cases[i].want_max_seqs);
        fixture_free(f);
    }
}

/* A step that starts after an idle time waited for a request. Only waiting while there was work
 * counts as waiting for the head. */
static void ranks_wait_counts_where_there_was_work(void **state)
{
    struct fixture *f = ready_cluster();
    struct metrics *m = metrics_new();
    static const double bounds[] = {0.001, 1};
    struct metric *histogram = metrics_histogram(m, "w", "", "", bounds, 2);
    head_core_set_rank_wait(f->core, histogram);
    f->core->config.depth = 1;
    for (uint32_t round = 1; round <= 2; round++) {
        struct msg s = submit_of(round, 1, 3);
        say(f, 3, &s);
        for (uint32_t i = 0; i < 4; i++) {
            f->wait_ns = i == 0 ? 900 * MS : 2 * MS;
            answer_plan(f, 1000 + i);
        }
        assert_int_equal(f->core->n_rank_waits, 3 * round);
        assert_int_equal(f->core->rank_wait_ns, 6 * MS * round);
        f->now += 1000 * MS;
        box_clear(f);
    }
    assert_true(metric_value(histogram) > 0.011 && metric_value(histogram) < 0.013);
    head_core_set_rank_wait(f->core, NULL);
    metrics_free(m);
    fixture_free(f);
}

static void a_token_beyond_the_vocabulary_dissolves_the_replica(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    answer_plan(f, 20000);
    assert_null(box_find(f, 3, MSG_TOKENS));
    assert_non_null(box_find(f, 2, MSG_ABORT));
    assert_int_equal(f->core->n_held, 1);
    fixture_free(f);
}

/* A gateway that reconnects late gets all tokens, in messages of bounded size. */
static void a_large_backlog_goes_in_pieces(void **state)
{
    enum { N = 300000 };
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    static uint32_t many[N];
    for (uint32_t i = 0; i < N; i++)
        many[i] = i;
    struct msg m = submit_of(1, 1, 3);
    m.submit.ids = (struct u32_span){many, N};
    m.submit.sampling.max_tokens = N;
    say(f, 3, &m);
    say_gateway_hello(f, 4, 9); /* a new session starts, whose gateway has only the prompt */
    box_clear(f);
    m.submit.attempt = 2;
    m.submit.ids.n = 3;
    say(f, 4, &m);
    struct msg credit = {.type = MSG_CREDIT, .credit = {1 << 20}};
    say(f, 4, &credit); /* the gateway returns the credit of the first messages */
    uint32_t at = 0, n_messages = 0;
    for (uint32_t i = 0; i < f->n_box; i++) {
        if (f->box[i].m.type != MSG_TOKENS)
            continue;
        const struct tokens_item *x = &f->box[i].m.tokens.items[0];
        assert_true(f->box[i].h.body_bytes < 2u << 20);
        assert_int_equal(x->start, at);
        assert_int_equal(x->ids.ptr[0], many[3 + at]);
        at += x->ids.n;
        n_messages++;
    }
    assert_int_equal(at, N - 3);
    assert_true(n_messages > 1);
    fixture_free(f);
}

static void tokens_survive_the_end_of_an_epoch(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3), gap = {.type = MSG_GAP};
    say(f, 3, &m);
    answer_plan(f, 1000);
    uint64_t epoch = f->core->cluster.replicas[0]->epoch;
    gap.gap.term_epoch = epoch;
    say(f, 2, &gap);
    assert_int_equal(f->core->n_held, 1);
    box_clear(f);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg aborted = {.type = MSG_ABORTED, .aborted = {.term_epoch = epoch}};
        say(f, i, &aborted);
    }
    for (int i = 0; i < 6; i++)
        wait_ms(f, 50, 0xE);
    uint64_t next = f->core->cluster.replicas[0]->epoch;
    assert_true(next > epoch);
    struct msg id = {.type = MSG_COMM_ID,
                     .comm_id = {.term_epoch = next, .id = {(const uint8_t *)"id", 2}}};
    say(f, 1, &id);
    for (uint8_t i = 1; i <= 2; i++) {
        struct msg formed = {.type = MSG_FORMED, .formed = {.term_epoch = next}};
        say(f, i, &formed);
    }
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_non_null(p);
    assert_int_equal(p->plan.admits[0].ids.n, 4); /* the ids are the prompt and the earlier token */
    assert_int_equal(p->plan.admits[0].n_prompt, 3);
    box_clear(f);
    fixture_free(f);
}

static void a_newer_attempt_goes_on_where_it_is(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    answer_plan(f, 1000);
    answer_plan(f, 1001);
    uint64_t steps = f->core->engine_slots[0].last_step;
    say_gateway_hello(f, 4, 9); /* a new session starts, and two tokens may be lost */
    box_clear(f);
    struct msg again = submit_of(1, 2, 4); /* the gateway has the first token */
    say(f, 4, &again);
    const struct tokens_item *t = only_item(f, 4);
    assert_int_equal(t->attempt, 2);
    assert_int_equal(t->start, 1);
    assert_int_equal(t->ids.n, 1);
    assert_int_equal(t->ids.ptr[0], 1001);
    assert_int_equal(f->core->engine_slots[0].last_step, steps);
    box_clear(f);
    struct msg old = submit_of(1, 1, 3); /* an older attempt changes nothing */
    say(f, 4, &old);
    assert_null(box_find(f, 4, MSG_TOKENS));
    fixture_free(f);
}

/* Returns a cluster with a prompt of three ids with prompt_logprobs. Rank 0 has answered its
 * first token. */
static struct fixture *scored_prompt(void)
{
    struct fixture *f = fixture_new(2);
    f->prompt_logprobs[0] = f->prompt_logprobs[1] = true;
    form_pair(f);
    say_gateway_hello(f, 3, 9);
    struct msg m = submit_of(1, 1, 3);
    m.submit.sampling.n_prompt_logprobs = 0;
    say(f, 3, &m);
    const struct msg *p = box_find(f, 1, MSG_PLAN);
    assert_int_equal(p->plan.admits[0].sampling.n_prompt_logprobs, 0);
    static const float values[] = {-1, -2}, gap = 1;
    static const uint32_t token = 1000;
    const struct logprob_row rows[] = {{{ids + 1, 1}, {values, 1}, 4},
                                       {{ids + 2, 1}, {values + 1, 1}, 5}};
    const struct result_item item = {.slot = p->plan.runs[0].slot,
                                     .ids = {&token, 1},
                                     .gaps = {&gap, 1},
                                     .prompt_logprobs = rows,
                                     .n_prompt_logprobs = 2};
    struct msg r = {
        .type = MSG_RESULT,
        .result = {
            .term_epoch = p->plan.term_epoch, .step = p->plan.step, .items = &item, .n_items = 1}};
    say(f, 1, &r);
    return f;
}

static void rows_of_a_prompt_come_with_its_first_token(void **state)
{
    struct fixture *f = scored_prompt();
    const struct tokens_item *t = only_item(f, 3);
    assert_int_equal(t->prompt_start, 0);
    assert_int_equal(t->n_prompt_logprobs, 2);
    assert_int_equal(t->prompt_logprobs[1].chosen_rank, 5);
    assert_true(t->prompt_logprobs[1].values.ptr[0] == -2);
    assert_int_equal(t->ids.ptr[0], 1000);
    fixture_free(f);
}

/* The head drops rows of prompt_logprobs once they are sent. When a gateway lacks some, the
 * prompt is computed again. */
static void rows_that_are_lost_start_it_over(void **state)
{
    static const struct {
        uint32_t n_prompt_logprobs;
        bool goes_on;
    } cases[] = {{0, false}, {1, false}, {2, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fixture *f = scored_prompt();
        say_gateway_hello(f, 4, 9);
        box_clear(f);
        struct msg again = submit_of(1, 2, 3);
        again.submit.n_known_logprobs = cases[i].n_prompt_logprobs;
        again.submit.sampling.n_prompt_logprobs = cases[i].goes_on ? -1 : 0;
        say(f, 4, &again);
        const struct request *r = request_table_next(f->core->requests, NULL);
        assert_int_equal(r->n_ids, cases[i].goes_on ? 4 : 3);
        assert_true(r->has_prompt_logprobs && r->attempt == 2);
        assert_int_equal(box_find(f, 4, MSG_TOKENS) != NULL, cases[i].goes_on);
        fixture_free(f);
    }
}

/* Returns a cluster with a request with log-probabilities. Its first three tokens have been
 * sent, each with a row. */
static struct fixture *sent_rows(void)
{
    static const float values[] = {-1, -2}, gap = 1;
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    m.submit.sampling.n_logprobs = 1;
    say(f, 3, &m);
    for (uint32_t i = 0; i < 3; i++) {
        const struct msg *p = box_find(f, 1, MSG_PLAN);
        const struct logprob_row row = {{ids + 3 + i, 2}, {values, 2}, 1};
        const struct result_item item = {.slot = p->plan.runs[0].slot,
                                         .ids = {ids + 3 + i, 1},
                                         .gaps = {&gap, 1},
                                         .logprobs = &row,
                                         .n_logprobs = 1};
        struct msg r = {.type = MSG_RESULT,
                        .result = {.term_epoch = p->plan.term_epoch,
                                   .step = p->plan.step,
                                   .items = &item,
                                   .n_items = 1}};
        struct letter *l = &f->box[0];
        while (&l->m != p)
            l++;
        l->to = 0; /* this letter has been read */
        say(f, 1, &r);
    }
    return f;
}

/* The head drops rows of tokens once they are sent. When a gateway lacks some, the tokens after
 * its last row are generated again. */
static void rows_of_tokens_that_are_lost_are_made_again(void **state)
{
    for (uint32_t n_has = 0; n_has <= 3; n_has++) {
        struct fixture *f = sent_rows();
        const struct request *r = request_table_next(f->core->requests, NULL);
        assert_int_equal(r->n_ids, 6);
        assert_int_equal(r->logprobs->n, 0);
        say_gateway_hello(f, 4, 9);
        box_clear(f);
        struct msg again = submit_of(1, 2, 3 + n_has);
        again.submit.sampling.n_logprobs = 1;
        say(f, 4, &again);
        r = request_table_next(f->core->requests, NULL);
        assert_int_equal(r->n_ids, 3 + n_has);
        assert_true(r->attempt == 2 && r->n_delivered == n_has);
        /* the head made a new request from the Submit */
        assert_int_equal(r->resubmitted, n_has < 3);
        fixture_free(f);
    }
}

/* A replica with one rank of an older version supports no prompt_logprobs. The head reports this
 * to gateways. */
static void a_replica_gives_prompt_logprobs_if_all_its_ranks_do(void **state)
{
    for (uint32_t n = 0; n <= 2; n++) {
        struct fixture *f = fixture_new(2);
        for (uint32_t i = 0; i < n; i++)
            f->prompt_logprobs[i] = true;
        form_pair(f);
        say_gateway_hello(f, 3, 9);
        assert_int_equal(box_find(f, 3, MSG_CLUSTER)->cluster.gives_prompt_logprobs, n == 2);
        assert_int_equal(box_find(f, 3, MSG_CLUSTER)->cluster.one_class, !f->config.priorities);
        struct msg m = submit_of(1, 1, 3);
        m.submit.sampling.n_prompt_logprobs = 3;
        say(f, 3, &m);
        const struct msg *p = box_find(f, 1, MSG_PLAN);
        assert_int_equal(p->plan.admits[0].sampling.n_prompt_logprobs, n == 2 ? 3 : -1);
        fixture_free(f);
    }
}

static void other_tokens_than_ours_start_it_over(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    answer_plan(f, 77);
    /* the gateway has token 1000, but the head has token 77 */
    struct msg again = submit_of(1, 2, 4);
    say(f, 3, &again);
    struct request *r = request_table_find(f->core->requests, (struct request_id){1, 1}, 0);
    assert_non_null(r);
    assert_int_equal(r->ids[3], 1000);
    assert_true(r->resubmitted);
    fixture_free(f);
}

static void a_full_queue_refuses_new_requests_only(void **state)
{
    struct fixture *f = fixture_new(2); /* the head has no workers, so all requests wait */
    say_gateway_hello(f, 3, 9);
    for (uint32_t i = 0; i < 4; i++) {
        struct msg m = submit_of(i, 1, 3);
        say(f, 3, &m);
    }
    box_clear(f);
    struct msg m = submit_of(10, 1, 3);
    say(f, 3, &m);
    const struct tokens_item *t = only_item(f, 3);
    assert_int_equal(t->finish, FINISH_ERROR);
    assert_int_equal(t->status, STATUS_LIMIT);
    assert_true(t->retry_after_s > 0);
    box_clear(f);
    struct msg again = submit_of(11, 2, 3), replayed = submit_of(12, 1, 4);
    say(f, 3, &again);
    say(f, 3, &replayed);
    assert_null(box_find(f, 3, MSG_TOKENS));
    assert_int_equal(f->core->n_held, 6);
    fixture_free(f);
}

static void what_cannot_be_is_answered_as_invalid(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg m = submit_of(1, 1, 3);
    m.submit.sampling.max_tokens = 0;
    say(f, 3, &m);
    assert_int_equal(only_item(f, 3)->status, STATUS_INVALID);
    assert_int_equal(request_table_count(f->core->requests), 0);
    fixture_free(f);
}

static void an_id_out_of_vocabulary_costs_one_request(void **state)
{
    struct fixture *f = ready_cluster();
    const uint32_t foreign[3] = {5, 1u << 30, 7};
    struct msg m = submit_of(1, 1, 3);
    m.submit.ids.ptr = foreign;
    say(f, 3, &m);
    assert_null(box_find(f, 1, MSG_PLAN));
    const struct tokens_item *x = only_item(f, 3);
    assert_int_equal(x->finish, FINISH_ERROR);
    assert_int_equal(x->status, STATUS_INVALID);
    assert_true(head_core_is_ready(f->core));
    fixture_free(f);
}

static void cancel_and_finish_take_the_request_out(void **state)
{
    struct fixture *f = ready_cluster();
    struct msg a = submit_of(1, 2, 3), b = submit_of(2, 1, 3);
    say(f, 3, &a);
    say(f, 3, &b);
    struct msg old = {.type = MSG_CANCEL, .cancel = {.id = {1, 1}, .attempt = 1}};
    say(f, 3, &old);
    assert_int_equal(request_table_count(f->core->requests), 2);
    struct msg cancel = {.type = MSG_CANCEL, .cancel = {.id = {1, 1}, .attempt = 2}};
    struct msg finish = {.type = MSG_FINISH, .finish = {.id = {1, 2}, .attempt = 1}};
    say(f, 3, &cancel);
    say(f, 3, &finish);
    assert_int_equal(request_table_count(f->core->requests), 0);
    assert_int_equal(f->core->n_cancelled, 1);
    assert_int_equal(f->core->n_finished, 1);
    fixture_free(f);
}

static void a_lost_gateway_has_five_seconds(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    wait_ms(f, 1500 + 4900, 0);
    assert_int_equal(request_table_count(f->core->requests), 1);
    wait_ms(f, 200, 0);
    assert_int_equal(request_table_count(f->core->requests), 0);
    assert_int_equal(f->core->n_gateways, 0);
    fixture_free(f);
}

static void what_is_not_submitted_again_is_cancelled(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    struct msg a = submit_of(1, 1, 3), b = submit_of(2, 1, 3), again = submit_of(2, 2, 3);
    say(f, 3, &a);
    say(f, 3, &b);
    say_gateway_hello(f, 3, 9);
    say(f, 3, &again);
    box_clear(f);
    for (int i = 0; i < 6; i++) {
        wait_ms(f, 1000, 1u << 3);
        box_clear(f);
    }
    assert_int_equal(request_table_count(f->core->requests), 1);
    assert_non_null(request_table_find(f->core->requests, (struct request_id){1, 2}, 0));
    fixture_free(f);
}

static void a_deadline_ends_a_waiting_request(void **state)
{
    struct fixture *f = fixture_new(2);
    say_gateway_hello(f, 3, 9);
    struct msg m = submit_of(1, 1, 3);
    m.submit.deadline_ms = 500;
    say(f, 3, &m);
    box_clear(f);
    wait_ms(f, 550, 1u << 3);
    assert_int_equal(only_item(f, 3)->finish, FINISH_TIMEOUT);
    assert_int_equal(request_table_count(f->core->requests), 0);
    fixture_free(f);
}

static void without_credit_tokens_wait_and_come_together(void **state)
{
    struct fixture *f = ready_cluster();
    struct peer *gateway = f->core->gateways[0]->peer;
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    gateway->blocked = true;
    answer_plan(f, 1000);
    answer_plan(f, 1001);
    assert_null(box_find(f, 3, MSG_TOKENS));
    struct msg credit = {.type = MSG_CREDIT, .credit = {.bytes = 1}};
    say(f, 3, &credit);
    assert_int_equal(only_item(f, 3)->ids.n, 2);
    fixture_free(f);
}

static void a_rank_without_credit_holds_the_replica_back(void **state)
{
    struct fixture *f = ready_cluster();
    f->core->cluster.replicas[0]->members[1]->peer->blocked = true;
    struct msg m = submit_of(1, 1, 3);
    say(f, 3, &m);
    assert_non_null(box_find(f, 1, MSG_PLAN));
    assert_null(box_find(f, 2, MSG_PLAN));
    assert_int_equal(f->core->engine_slots[0].last_step,
                     1); /* the head sends no second plan before rank 1 has the first */
    struct msg credit = {.type = MSG_CREDIT, .credit = {.bytes = 1}};
    say(f, 2, &credit);
    assert_non_null(box_find(f, 2, MSG_PLAN));
    assert_int_equal(f->core->engine_slots[0].last_step, 2);
    fixture_free(f);
}

static bool is_refused(struct fixture *f, const struct msg *m)
{
    box_clear(f);
    say(f, 3, m);
    const struct msg *t = box_find(f, 3, MSG_TOKENS);
    if (!t)
        return false;
    assert_int_equal(t->tokens.items[0].status, STATUS_LIMIT);
    assert_int_equal(t->tokens.items[0].retry_after_s, 1);
    return true;
}

/* Each key has two slots and two places in the queue, with and without a replica. */
static void a_key_cannot_fill_the_queue(void **state)
{
    for (int with_replica = 0; with_replica < 2; with_replica++) {
        struct fixture *f = fixture_new(2);
        f->core->config.max_waiting_per_tenant = 2;
        f->core->config.max_num_seqs = 2;
        f->core->config.priorities = true;
        if (with_replica)
            form_pair(f);
        say_gateway_hello(f, 3, 9);
        uint32_t n_fit = with_replica ? 4 : 2, k = 0;
        for (; k < n_fit + 2; k++) {
            struct msg m = submit_of(100 + k, 1, 3);
            m.submit.tenant = 5;
            m.submit.priority = (int32_t)k; /* a request with a priority is limited too */
            if (is_refused(f, &m) != (k >= n_fit))
                fail_msg("group %d, request %u", with_replica, k);
        }
        struct msg m = submit_of(200, 1, 3);
        m.submit.tenant = 6;
        assert_false(is_refused(f, &m));
        struct msg again = submit_of(300, 2, 4); /* a resubmitted request is never refused */
        again.submit.tenant = 5;
        assert_false(is_refused(f, &again));
        fixture_free(f);
    }
}

/* The queue has 32 places. A key that fills the queue has its further requests refused, while
 * another key gets as many places as may wait in all. */
static void a_full_queue_has_places_for_others(void **state)
{
    struct fixture *f = fixture_new(2);
    f->core->config.max_waiting = 32;
    say_gateway_hello(f, 3, 9);
    for (uint32_t k = 0; k < 40; k++) {
        struct msg m = submit_of(100 + k, 1, 3);
        m.submit.tenant = 5;
        assert_int_equal(is_refused(f, &m), k >= 32);
        head_core_tick(f->core, f->now); /* waiting requests are counted once a turn */
    }
    for (uint32_t k = 0; k < 60; k++) {
        struct msg m = submit_of(200 + k, 1, 3);
        m.submit.tenant = 6 + k / 3;
        assert_int_equal(is_refused(f, &m), k % 3 == 2 || k >= 48);
        head_core_tick(f->core, f->now);
    }
    fixture_free(f);
}

static struct msg long_submit(uint64_t lo, uint64_t tenant, const uint32_t *prompt, uint32_t n)
{
    struct msg m = submit_of(lo, 1, 3);
    m.submit.tenant = tenant;
    m.submit.n_prompt = n;
    m.submit.ids = (struct u32_span){prompt, n};
    m.submit.sampling.max_tokens = UINT32_MAX;
    return m;
}

/* Choices and prompts are charged by the bytes that the head holds now, without their possible
 * growth. One tenant may have half of the memory, and the next tenant half of the rest.
 * Resubmitted requests are always accepted. */
static void prompts_cannot_fill_the_memory(void **state)
{
    enum { N = 5000, MORE = 110000 };
    static uint32_t prompt[MORE];
    struct fixture *f = fixture_new(2);
    struct room *room = &f->core->room;
    f->core->config.max_waiting = 1000;
    room->total = 1 << 20;
    say_gateway_hello(f, 3, 9);
    uint32_t n_fit[2] = {0};
    for (uint64_t who = 0; who < 2; who++)
        for (struct msg m;; n_fit[who]++) {
            m = long_submit(1000 * (who + 1), 5 + who, prompt, N);
            m.submit.i_choice = n_fit[who];
            if (is_refused(f, &m))
                break;
        }
    const uint64_t each = room->used / (n_fit[0] + n_fit[1]);
    assert_true(each > 5 * N && each < 5 * N + 4096);
    assert_int_equal(n_fit[0], room->total / 2 / each);
    assert_in_range(n_fit[1], room->total / 4 / each, room->total / 4 / each + 1);
    struct msg again = long_submit(3000, 5, prompt, N), never = long_submit(3001, 7, prompt, MORE);
    again.submit.attempt = 2;
    assert_false(is_refused(f, &again));
    box_clear(f);
    say(f, 3, &never);
    assert_int_equal(only_item(f, 3)->status, STATUS_INVALID);
    assert_int_equal(room->used, each * (n_fit[0] + n_fit[1] + 1));
    for (uint32_t i = 0; i < n_fit[0]; i++) {
        struct msg c = {.type = MSG_CANCEL,
                        .cancel = {.id = {1, 1000}, .i_choice = i, .attempt = 1}};
        say(f, 3, &c);
    }
    assert_int_equal(room->used, each * (n_fit[1] + 1));
    struct msg next = long_submit(4000, 5, prompt, N);
    assert_false(is_refused(f, &next));
    fixture_free(f);
}

/* A head that may have no workers reports when a replica would serve. The time is in the
 * cluster's state and in the refusals of requests. */
static void a_cluster_that_rests_is_not_a_broken_one(void **state)
{
    struct fixture *f = fixture_new(2);
    f->core->config.scale.min_replicas = 0;
    f->core->config.max_waiting = 1;
    say_gateway_hello(f, 3, 9);
    /* the time is not known yet */
    assert_int_equal(box_find(f, 3, MSG_CLUSTER)->cluster.start_s, 0);
    head_core_tick(f->core, f->now);
    f->now += SCALE_HINT_BLIND_NS;
    head_core_tick(f->core, f->now);
    assert_true(head_core_is_ready(f->core));
    box_clear(f);
    say_gateway_hello(f, 4, 10);
    assert_int_equal(box_find(f, 4, MSG_CLUSTER)->cluster.start_s, 60);
    struct msg first = submit_of(1, 1, 3), second = submit_of(2, 1, 3);
    say(f, 4, &first);
    box_clear(f);
    say(f, 4, &second);
    assert_int_equal(box_find(f, 4, MSG_TOKENS)->tokens.items[0].status, STATUS_LIMIT);
    assert_int_equal(box_find(f, 4, MSG_TOKENS)->tokens.items[0].retry_after_s, 60);
    f->now += NS_PER_S / 20; /* the next tick is less than a second later */
    head_core_tick(f->core, f->now);
    assert_int_equal(head_core_desired_workers(f->core), 2);
    box_clear(f);
    form_pair(f);
    assert_int_equal(f->core->n_live, 1);
    assert_false(head_core_rests(f->core));
    assert_int_equal(f->core->gateways[1]->told.start_s, 0);
    fixture_free(f);
}

/* There are two slots and two places in the queue. An idle pair of workers takes four requests
 * that arrive at once. It takes no more than two while the cache has no blocks for waiting
 * requests. */
static void a_burst_for_which_there_is_a_place_is_no_queue(void **state)
{
    enum { NO_REPLICA_YET, IDLE, LEFT_BEHIND, N_STATES };
    for (int how = 0; how < N_STATES; how++) {
        struct fixture *f = fixture_new(2);
        f->core->config.max_waiting = 2;
        f->core->config.max_num_seqs = 2;
        if (how != NO_REPLICA_YET)
            form_pair(f);
        say_gateway_hello(f, 3, 9);
        if (how == LEFT_BEHIND)
            f->core->engine_slots[f->core->live[0]].n_left = 1;
        uint32_t n_fit = how == IDLE ? 4 : 2, n_before = (uint32_t)f->core->n_failed;
        for (uint32_t k = 0; k < n_fit + 2; k++) { /* all requests arrive in one batch of frames */
            struct msg m = submit_of(100 + k, 1, 3);
            gateways_on_msg(f->core, f->core->gateways[0], &m);
            if (f->core->n_failed - n_before != (k < n_fit ? 0 : k - n_fit + 1))
                fail_msg("state %d, request %u", how, k);
        }
        fixture_free(f);
    }
}

/* A request with a priority is refused unless priorities are enabled. Otherwise any client could
 * give its requests precedence over all others. */
static void a_priority_is_refused_unless_there_are_some(void **state)
{
    for (int wanted = 0; wanted < 2; wanted++) {
        struct fixture *f = fixture_new(2);
        f->core->config.priorities = wanted;
        say_gateway_hello(f, 3, 9);
        struct msg m = submit_of(100, 1, 3);
        m.submit.priority = -1;
        uint64_t before = f->core->n_failed;
        gateways_on_msg(f->core, f->core->gateways[0], &m);
        assert_int_equal(f->core->n_failed - before, !wanted);
        assert_int_equal(request_table_count(f->core->requests), wanted);
        fixture_free(f);
    }
}

static void a_draining_cluster_takes_nothing_new(void **state)
{
    struct fixture *f = ready_cluster();
    head_core_drain_all(f->core, true, "a test", f->now);
    head_core_turn(f->core, f->now);
    assert_true(box_find(f, 3, MSG_CLUSTER)->cluster.draining);
    struct msg m = submit_of(1, 1, 3), again = submit_of(2, 2, 3);
    say(f, 3, &m);
    assert_int_equal(only_item(f, 3)->status, STATUS_LIMIT);
    say(f, 3, &again);
    assert_int_equal(request_table_count(f->core->requests), 1);
    fixture_free(f);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_ranks_get_the_same_plan),
        cmocka_unit_test(a_dead_end_is_an_error),
        cmocka_unit_test(a_mask_that_costs_too_much_is_an_error),
        cmocka_unit_test(steps_are_short_by_device_or_as_told),
        cmocka_unit_test(a_replica_drafts_as_its_least_rank),
        cmocka_unit_test(ranks_wait_counts_where_there_was_work),
        cmocka_unit_test(a_token_beyond_the_vocabulary_dissolves_the_replica),
        cmocka_unit_test(a_large_backlog_goes_in_pieces),
        cmocka_unit_test(tokens_survive_the_end_of_an_epoch),
        cmocka_unit_test(a_newer_attempt_goes_on_where_it_is),
        cmocka_unit_test(rows_of_a_prompt_come_with_its_first_token),
        cmocka_unit_test(rows_that_are_lost_start_it_over),
        cmocka_unit_test(rows_of_tokens_that_are_lost_are_made_again),
        cmocka_unit_test(a_replica_gives_prompt_logprobs_if_all_its_ranks_do),
        cmocka_unit_test(other_tokens_than_ours_start_it_over),
        cmocka_unit_test(a_full_queue_refuses_new_requests_only),
        cmocka_unit_test(what_cannot_be_is_answered_as_invalid),
        cmocka_unit_test(an_id_out_of_vocabulary_costs_one_request),
        cmocka_unit_test(cancel_and_finish_take_the_request_out),
        cmocka_unit_test(a_lost_gateway_has_five_seconds),
        cmocka_unit_test(what_is_not_submitted_again_is_cancelled),
        cmocka_unit_test(a_deadline_ends_a_waiting_request),
        cmocka_unit_test(without_credit_tokens_wait_and_come_together),
        cmocka_unit_test(a_rank_without_credit_holds_the_replica_back),
        cmocka_unit_test(a_key_cannot_fill_the_queue),
        cmocka_unit_test(a_full_queue_has_places_for_others),
        cmocka_unit_test(prompts_cannot_fill_the_memory),
        cmocka_unit_test(a_cluster_that_rests_is_not_a_broken_one),
        cmocka_unit_test(a_burst_for_which_there_is_a_place_is_no_queue),
        cmocka_unit_test(a_draining_cluster_takes_nothing_new),
        cmocka_unit_test(a_priority_is_refused_unless_there_are_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
