/* Tests the share of a replica's steps that grammar masks may take. The tests use `mask_shares`
 * through a scheduler (`scheduler_bed.h`): they add requests with and without a grammar, and
 * results with costs of masks. Invariants: rows without a grammar run in every step, a tenant in
 * debt waits for a bounded time, and all rows get their turn. Times are in units of 0.1 us. All
 * tests run on one thread. */
#include "head/budget/mask_shares.h"
#include "head/scheduler/state.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { UNITS_MS = 10000, NS_MS = 1000000, PLAIN_MS = 10 };

/* Adds a request of the tenant, with a grammar if `masked`. A row without a grammar costs no
 * mask. */
static struct request *add_of(struct bed *b, uint64_t tenant, bool masked, uint32_t max_tokens)
{
    struct msg_submit m = submit(b, 4, max_tokens);
    m.tenant = tenant;
    if (masked) {
        m.sampling.grammar_kind = GRAMMAR_REGEX;
        m.sampling.grammar = (struct str){"a*", 2};
    }
    struct request *r = make(b, &m);
    assert_int_equal(scheduler_add(b->s, r), STATUS_OK);
    return r;
}

static struct scheduler_config roomy(void)
{
    struct scheduler_config c = config(512);
    c.max_num_seqs = MAX_REQUESTS;
    c.max_num_batched_tokens = 512;
    c.max_waiting = MAX_REQUESTS;
    return c;
}

static const struct request *of_slot(const struct bed *b, uint32_t slot)
{
    for (uint32_t i = 0; i < b->n_requests; i++) {
        const struct seq *x = b->requests[i]->sched;
        if (x && x->slot == slot)
            return b->requests[i];
    }
    return NULL;
}

/* Runs a step in which each row of tenant 1 costs `units`, and other tenants' rows with a
 * grammar cost `cheap`. Returns the cost of all masks. */
static uint64_t costly_turn(struct bed *b, uint32_t units, uint32_t cheap, uint32_t *rows)
{
    struct answer a;
    uint64_t sum = 0;
    const struct msg_plan *p = step(b);
    assert_non_null(p);
    answer(p, OTHER_ID, &a);
    for (uint32_t i = 0; i < a.m.n_items; i++) {
        const struct request *r = of_slot(b, a.items[i].slot);
        assert_non_null(r);
        bool masked = r->sampling.grammar_kind != GRAMMAR_NONE;
        a.items[i].mask_units = !masked ? 0 : r->tenant == 1 ? units : cheap;
        *rows += r->tenant == 1;
        sum += a.items[i].mask_units;
    }
    a.m.execute_ns = PLAIN_MS * NS_MS + sum * 100;
    give(b, &a);
    return sum;
}

static void masks_take_a_third_of_the_time(void **state)
{
    struct bed b;
    struct scheduler_config c = roomy();
    uint64_t sum = 0, n_steps;
    uint32_t rows = 0;
    open_bed(&b, &c);
    struct request *plain = add_of(&b, 2, false, 1000);
    for (uint32_t i = 0; i < 16; i++)
        add_of(&b, 1, true, 1000);
    costly_turn(&b, 0, 0, &rows);
    for (n_steps = 1; plain->sched && n_steps < 3000; n_steps++)
        sum += costly_turn(&b, 100 * UNITS_MS, 0, &rows);
    /* The row without a grammar runs in every step. Masks take a third of all time (half of the
     * plain rows' time), give or take the savings and debts of the tenants. */
    assert_int_equal(request_n_generated(plain), 1000);
    assert_int_equal(n_steps, 1000);
    assert_true(sum <= (uint64_t)PLAIN_MS * UNITS_MS * n_steps / 2 + 17 * MASK_SHARES_SAVED);
    assert_true(sum >= (uint64_t)PLAIN_MS * UNITS_MS * n_steps / 2 - MASK_SHARES_SAVED);
    /* All rows with a grammar have had their turns. */
    for (uint32_t i = 2; i < b.n_requests; i++)
        assert_in_range(request_n_generated(b.requests[i]) + 1, request_n_generated(b.requests[1]),
                        request_n_generated(b.requests[1]) + 2);
    close_bed(&b);
}

static void who_owes_keeps_nobody_else_waiting(void **state)
{
    struct bed b;
    struct scheduler_config c = roomy();
    uint32_t rows = 0;
    open_bed(&b, &c);
    struct request *honest = add_of(&b, 2, true, 200);
    for (uint32_t i = 0; i < 8; i++)
        add_of(&b, 1, true, 1000);
    for (uint32_t i = 0; i < 200; i++)
        costly_turn(&b, 100 * UNITS_MS, UNITS_MS / 10, &rows);
    assert_int_equal(honest->finish, FINISH_LENGTH);
    assert_in_range(rows, 8, 60);
    close_bed(&b);
}

static void alone_nobody_waits(void **state)
{
    struct bed b;
    struct scheduler_config c = roomy();
    uint32_t rows = 0;
    open_bed(&b, &c);
    for (uint32_t i = 0; i < 12; i++)
        add_of(&b, 1, true, 50);
    for (uint32_t i = 0; i < 600 && b.requests[11]->finish == FINISH_NONE; i++)
        costly_turn(&b, 60 * UNITS_MS, 0, &rows);
    for (uint32_t i = 0; i < 12; i++)
        assert_int_equal(b.requests[i]->finish, FINISH_LENGTH);
    assert_int_equal(rows, 12 * 50);
    close_bed(&b);
}

static void a_tenant_pays_for_those_that_left(void **state)
{
    struct bed b;
    struct scheduler_config c = roomy();
    struct answer a;
    open_bed(&b, &c);
    struct request *plain = add_of(&b, 2, false, 1000);
    struct request *gone = add_of(&b, 1, true, 100), *next = add_of(&b, 1, true, 100);
    answer(step(&b), OTHER_ID, &a);
    scheduler_remove(b.s, gone);
    a.items[1].mask_units = 300 * UNITS_MS;
    give(&b, &a);
    assert_false(scheduler_takes_masks(b.s, next));
    scheduler_remove(b.s, next);
    uint32_t n = 0;
    for (; !scheduler_takes_masks(b.s, next); n++)
        turn(&b, OTHER_ID); /* a result without a time counts as one millisecond */
    assert_in_range(n, 190, 200);
    assert_true(scheduler_takes_more_masks(b.s) && !scheduler_takes_more_masks(b.s));
    assert_non_null(plain->sched);
    close_bed(&b);
}

/* A tenant's debt is bounded. Three seconds of other tenants' steps pay it, whatever cost a rank
 * reported for one step. */
static void a_debt_has_an_end(void **state)
{
    struct bed b;
    struct scheduler_config c = roomy();
    struct answer a;
    open_bed(&b, &c);
    add_of(&b, 2, false, 1000);
    struct request *r = add_of(&b, 1, true, 100);
    answer(step(&b), OTHER_ID, &a);
    a.items[1].mask_units = UINT32_MAX;
    give(&b, &a);
    uint32_t n = 0;
    for (; !scheduler_takes_masks(b.s, r); n++) {
        answer(step(&b), OTHER_ID, &a);
        assert_int_equal(a.m.n_items, 1);
        a.m.execute_ns = 30ull * NS_MS;
        give(&b, &a);
    }
    assert_in_range(n, 99, 101);
    close_bed(&b);
}

/* Two tenants owe time. The tenant that owes less finds no free block, and the other tenant's
 * row runs then. */
static void who_finds_no_block_stops_nobody(void **state)
{
    struct bed b;
    struct scheduler_config c = config(4);
    struct answer a;
    open_bed(&b, &c);
    struct request *first = add_of(&b, 1, true, 11);
    struct msg_submit m = submit(&b, 25, 35);
    m.ids.ptr += 100; /* the two prompts have no common prefix */
    m.tenant = 2;
    m.sampling.grammar_kind = GRAMMAR_REGEX;
    m.sampling.grammar = (struct str){"a*", 2};
    struct request *second = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, second), STATUS_OK);
    const struct seq *of_first = first->sched, *x = second->sched;
    do {
        answer(step(&b), OTHER_ID, &a);
        bool is_first = x->n_scheduled == 25;
        assert_int_equal(a.m.n_items, is_first ? 2 : 1);
        if (is_first)
            a.items[0].mask_units = 900 * UNITS_MS;
        if (x->n_scheduled == 48)
            a.items[0].mask_units = 200 * UNITS_MS;
        give(&b, &a);
    } while (x->n_scheduled < 48);
    const struct msg_plan *p = step(&b);
    assert_non_null(p);
    assert_int_equal(p->n_runs, 1);
    assert_int_equal(p->runs[0].slot, of_first->slot);
    assert_int_equal(x->place, SEQ_WAITING);
    answer(p, OTHER_ID, &a);
    give(&b, &a);
    close_bed(&b);
}

static void new_answers_are_bounded(void **state)
{
    struct bed b;
    struct scheduler_config c = roomy();
    open_bed(&b, &c);
    struct request *r = NULL;
    uint32_t rows = 0;
    for (uint32_t i = 0; i < MASK_SHARES_NEW; i++) {
        assert_true(!r || scheduler_takes_masks(b.s, r));
        r = add_of(&b, 1, true, 10);
    }
    assert_false(scheduler_takes_masks(b.s, r));
    struct request *other = add_of(&b, 2, true, 10);
    assert_true(scheduler_takes_masks(b.s, other));
    costly_turn(&b, 10, 10, &rows);
    assert_true(scheduler_takes_more_masks(b.s) && scheduler_takes_masks(b.s, r));
    close_bed(&b);
}

static void many_that_owe_are_bounded(void **state)
{
    struct mask_shares m = {0};
    for (uint64_t tenant = 1; tenant <= 5000; tenant++) {
        uint32_t i = mask_shares_enter(&m, tenant);
        (void)mask_shares_run(&m, i, 0);
        mask_shares_charge(&m, i, 0, 2 * MASK_SHARES_SAVED + (uint32_t)(tenant % 7));
        mask_shares_leave(&m, i, true);
    }
    assert_in_range(m.n, 1000, 1024);
    mask_shares_fini(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_take_a_third_of_the_time),
        cmocka_unit_test(who_owes_keeps_nobody_else_waiting),
        cmocka_unit_test(alone_nobody_waits),
        cmocka_unit_test(a_tenant_pays_for_those_that_left),
        cmocka_unit_test(a_debt_has_an_end),
        cmocka_unit_test(who_finds_no_block_stops_nobody),
        cmocka_unit_test(new_answers_are_bounded),
        cmocka_unit_test(many_that_owe_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
