/* Tests rows of prompt_logprobs in a scheduler. The tests add requests, answer their plans with
 * rows of log-probabilities (`answer_scored`) and deliver the rows to a gateway. Invariants:
 * plans request only rows that are missing, each row is delivered once and before the first
 * token, and no position comes from the prefix cache. All tests run on one thread. */
#include "head/request/prompt_logprobs.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { TOP = 2 };

static struct request *add_scored(struct bed *b, uint32_t n_prompt, uint32_t n_received)
{
    struct msg_submit m = submit(b, n_prompt, 3);
    m.sampling.n_prompt_logprobs = TOP;
    m.n_known_logprobs = n_received;
    struct request *r = make(b, &m);
    assert_int_equal(scheduler_add(b->s, r), STATUS_OK);
    return r;
}

static struct scheduler_config scoring(uint32_t n_blocks)
{
    struct scheduler_config c = config(n_blocks);
    c.gives_prompt_logprobs = c.enable_prefix_caching = true;
    return c;
}

/* Holds an answer of ranks that give prompt_logprobs. The value at position p is -p - 1. */
struct scored_answer {
    struct answer a;
    struct logprob_row rows[2048];
    uint32_t ids[2048][TOP + 1];
    float values[2048][TOP + 1];
};

static void answer_scored(const struct bed *b, const struct msg_plan *plan, struct scored_answer *x)
{
    uint32_t n_rows = 0;
    x->a.token = OTHER_ID;
    x->a.m = (struct msg_result){
        .term_epoch = plan->term_epoch, .step = plan->step, .items = x->a.items};
    for (uint32_t i = 0; i < plan->n_runs; i++) {
        const struct plan_run *run = &plan->runs[i];
        struct result_item item = {.slot = run->slot, .ids = {&x->a.token, run->sample}};
        item.prompt_logprobs = &x->rows[n_rows];
        const struct request *r = NULL;
        for (uint32_t k = 0; k < b->n_requests; k++)
            if (b->requests[k]->state == REQUEST_RUNNING && b->requests[k]->has_prompt_logprobs)
                r = b->requests[k];
        uint32_t n = r ? request_n_prompt_logprobs_of(r, run->start, run->n_tokens) : 0;
        for (uint32_t p = run->start; p < run->start + n; p++, n_rows++) {
            x->ids[n_rows][0] = b->prompt[p + 1];
            x->values[n_rows][0] = -(float)p - 1;
            x->rows[n_rows] = (struct logprob_row){
                {x->ids[n_rows], TOP + 1}, {x->values[n_rows], TOP + 1}, p + 1};
        }
        item.n_prompt_logprobs = n;
        if (run->sample || n > 0)
            x->a.items[x->a.m.n_items++] = item;
    }
}

static void turn_scored(struct bed *b)
{
    static struct scored_answer x;
    const struct msg_plan *p = step(b);
    assert_non_null(p);
    answer_scored(b, p, &x);
    give(b, &x.a);
}

/* Delivers all available rows to the gateway. The first row must be row `first`. Returns the
 * number of rows. */
static uint32_t deliver(struct request *r, uint32_t first)
{
    struct tokens_item t;
    const struct logprob_row *rows;
    uint32_t n, n_all = 0;
    while ((n = request_next_prompt_logprobs(r, &rows)) > 0) {
        n = n > 7 ? 7 : n; /* a message with little space takes 7 rows */
        request_fill_tokens(r, n, 0, &t);
        assert_int_equal(t.n_prompt_logprobs, n);
        assert_int_equal(t.prompt_start, first + n_all);
        assert_int_equal(t.finish, FINISH_NONE);
        for (uint32_t i = 0; i < n; i++) {
            const struct logprob_row *row = &t.prompt_logprobs[i];
            assert_int_equal(row->ids.n, TOP + 1);
            assert_int_equal(row->chosen_rank, first + n_all + i + 1);
            assert_true(row->values.ptr[0] == -(float)(first + n_all + i) - 1);
        }
        n_all += n;
        request_prompt_logprobs_delivered(r, n);
    }
    return n_all;
}

static void chunks_have_prompt_logprobs(void **state)
{
    static const uint32_t lengths[] = {1, 2, 16, 63, 64, 65, 66, 130};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct scheduler_config c = scoring(100);
        struct bed b;
        uint32_t n = 0;
        open_bed(&b, &c);
        struct request *r = add_scored(&b, lengths[i], 0);
        assert_int_equal(r->has_prompt_logprobs, lengths[i] > 1);
        while (request_n_generated(r) == 0) {
            turn_scored(&b);
            assert_int_equal(b.n_events, 1); /* a chunk without a token also causes an event */
            n += r->has_prompt_logprobs ? deliver(r, n) : 0;
        }
        assert_int_equal(n, lengths[i] - 1);
        while (r->finish == FINISH_NONE)
            turn_scored(&b);
        close_bed(&b);
    }
}

static void nothing_is_taken_over(void **state)
{
    struct scheduler_config c = scoring(100);
    struct bed b;
    open_bed(&b, &c);
    add(&b, 40, 1);
    turn(&b, OTHER_ID);
    assert_int_equal(b.requests[0]->state, REQUEST_FINISHED);
    add_scored(&b, 40, 0);
    const struct msg_plan *p = step(&b);
    assert_int_equal(p->admits[0].n_computed, 0);
    assert_int_equal(p->admits[0].sampling.n_prompt_logprobs, TOP);
    assert_int_equal(p->runs[0].n_tokens, 40);
    close_bed(&b);
}

/* The gateway already has these prompt_logprobs, so plans do not request them. */
static void prompt_logprobs_that_are_there_are_not_made_again(void **state)
{
    struct scheduler_config c = scoring(100);
    struct bed b;
    open_bed(&b, &c);
    struct request *r = add_scored(&b, 20, 19);
    assert_int_equal(step(&b)->admits[0].sampling.n_prompt_logprobs, -1);
    assert_int_equal(r->prompt_logprobs->n_known, 19);
    close_bed(&b);
    open_bed(&b, &c);
    r = add_scored(&b, 20, 11);
    turn_scored(&b);
    assert_int_equal(deliver(r, 11), 8);
    close_bed(&b);
}

/* Rows that were in flight at a preemption count. Rows that are computed a second time do not. */
static void preempted_prompts_go_on(void **state)
{
    struct scheduler_config c = scoring(9); /* the pool has blocks for 144 positions */
    struct bed b;
    uint32_t n = 0;
    open_bed(&b, &c);
    struct request *r = add_scored(&b, 130, 0);
    turn_scored(&b);
    assert_int_equal(r->prompt_logprobs->n_known, 64);
    n += deliver(r, n);
    scheduler_reset(b.s, EPOCH + 1, NULL, NULL); /* the loss of the replica has the same effect */
    scheduler_reset(b.s, EPOCH, NULL, NULL);
    assert_int_equal(scheduler_add(b.s, r), STATUS_OK);
    const struct msg_plan *p = step(&b);
    assert_int_equal(p->admits[0].n_computed, 0);
    static struct scored_answer x;
    answer_scored(&b, p, &x);
    give(&b, &x.a);
    assert_int_equal(deliver(r, n), 0);
    while (request_n_generated(r) == 0) {
        turn_scored(&b);
        n += deliver(r, n);
    }
    assert_int_equal(n, 129);
    close_bed(&b);
}

/* Plans request no prompt_logprobs from ranks of a version without them. */
static void old_ranks_are_spared(void **state)
{
    struct scheduler_config c = scoring(100);
    struct bed b;
    c.gives_prompt_logprobs = false;
    open_bed(&b, &c);
    struct request *r = add_scored(&b, 20, 0);
    const struct msg_plan *p = step(&b);
    assert_int_equal(p->admits[0].sampling.n_prompt_logprobs, -1);
    struct answer a;
    answer(p, OTHER_ID, &a);
    give(&b, &a);
    assert_int_equal(r->prompt_logprobs->n_known, 0);
    close_bed(&b);
}

static void rows_answer_what_was_asked(void **state)
{
    static const struct {
        const char *name;
        int32_t n_more;
        uint32_t wrong_id, n_ids;
        enum status want;
    } cases[] = {{"as asked", 0, 0, 3, STATUS_OK},       {"fewer", -1, 0, 3, STATUS_PROTOCOL},
                 {"more", 1, 0, 3, STATUS_PROTOCOL},     {"another id's", 0, 1, 3, STATUS_PROTOCOL},
                 {"too many", 0, 0, 4, STATUS_PROTOCOL}, {"none", 0, 0, 0, STATUS_PROTOCOL}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct scored_answer x;
        struct scheduler_config c = scoring(100);
        struct bed b;
        struct error err;
        static const uint32_t none[4];
        static const float zeros[4];
        open_bed(&b, &c);
        add_scored(&b, 20, 0);
        answer_scored(&b, step(&b), &x);
        x.a.items[0].n_prompt_logprobs += (uint32_t)cases[i].n_more;
        x.ids[5][0] += cases[i].wrong_id;
        if (cases[i].n_ids != 3)
            x.rows[5] = (struct logprob_row){{none, cases[i].n_ids}, {zeros, cases[i].n_ids}, 1};
        enum status s = scheduler_on_result(b.s, &x.a.m, b.now_ns, &b.events, &b.n_events, &err);
        if (s != cases[i].want)
            fail_msg("%s: %s", cases[i].name, status_name(s));
        close_bed(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_have_prompt_logprobs),
        cmocka_unit_test(nothing_is_taken_over),
        cmocka_unit_test(prompt_logprobs_that_are_there_are_not_made_again),
        cmocka_unit_test(preempted_prompts_go_on),
        cmocka_unit_test(old_ranks_are_spared),
        cmocka_unit_test(rows_answer_what_was_asked)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
