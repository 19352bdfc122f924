/* Tests fair shares: deficit round robin over tokens between the tenants of a class. */
#include "common/base/random.h"
#include "head/scheduler/state.h"
#include "tests/unit/head/scheduler/scheduler_bed.h"

enum { QUANTUM = 100, N_SEQS = 300 };

struct pit {
    struct seq_queue q;
    struct seq *seqs[N_SEQS];
    uint32_t n;
};

static struct seq *enter(struct pit *p, uint64_t tenant, int32_t priority, bool again)
{
    struct seq *x = mem_zalloc(sizeof *x);
    x->tenant = tenant;
    x->priority = priority;
    x->again = x->resubmitted = again;
    x->arrival_seq = x->add_seq = ++p->n;
    p->seqs[p->n - 1] = x;
    seq_queue_enter(&p->q, x);
    seq_queue_push(&p->q, x);
    return x;
}

static void leave_all(struct pit *p)
{
    while (p->q.n)
        seq_queue_remove(&p->q, seq_queue_first(&p->q));
    for (uint32_t i = 0; i < p->n; i++)
        if (p->seqs[i]) {
            seq_queue_leave(&p->q, p->seqs[i]);
            mem_free(p->seqs[i]);
        }
    assert_true(seq_queue_check(&p->q) && p->q.n_classes == 0);
    seq_queue_fini(&p->q);
}

static struct seq *serve(struct pit *p, uint32_t n_tokens)
{
    struct seq *x = seq_queue_first(&p->q);
    assert_ptr_equal(seq_queue_first(&p->q), x); /* a query does not change the order */
    seq_queue_remove(&p->q, x);
    seq_queue_charge(&p->q, x, n_tokens);
    assert_true(seq_queue_check(&p->q));
    return x;
}

static void one_request_does_not_wait_for_five_hundred(void **state)
{
    struct pit p = {0};
    seq_queue_init(&p.q, QUANTUM);
    for (int i = 0; i < 250; i++)
        enter(&p, 1, 0, false);
    for (int i = 0; i < 10; i++)
        serve(&p, 1000); /* this tenant is alone, and debts of this time must not count later */
    enter(&p, 2, 0, false);
    struct seq *a = serve(&p, 1000), *b = serve(&p, 1000);
    assert_true(a->tenant == 2 || b->tenant == 2);
    for (uint32_t i = 0; i < 240 && p.q.n; i++)
        serve(&p, 10);
    leave_all(&p);
}

/* Tenants that always wait get the same number of tokens, whatever the cost of their requests. */
static void tenants_get_equal_tokens(void **state)
{
    struct pit p = {0};
    static const uint32_t weight[] = {30, 90, 1000};
    uint64_t got[3] = {0};
    seq_queue_init(&p.q, QUANTUM);
    for (uint32_t t = 0; t < 3; t++)
        for (uint32_t i = 0; i < 3; i++)
            enter(&p, t, 0, false);
    for (uint32_t i = 0; i < 3000; i++) {
        struct seq *x = serve(&p, weight[seq_queue_first(&p.q)->tenant]);
        got[x->tenant] += weight[x->tenant];
        seq_queue_push(&p.q, x); /* `x` represents the tenant's next request */
    }
    for (uint32_t t = 1; t < 3; t++)
        assert_true(got[t] + 1100 > got[0] && got[0] + 1100 > got[t]);
    leave_all(&p);
}

static void classes_then_what_came_back_then_shares(void **state)
{
    struct pit p = {0};
    seq_queue_init(&p.q, QUANTUM);
    struct seq *low = enter(&p, 1, 7, true), *first = enter(&p, 1, 0, false),
               *back = enter(&p, 2, 0, true), *urgent = enter(&p, 3, -2, false);
    assert_ptr_equal(serve(&p, 5000), urgent);
    assert_ptr_equal(serve(&p, 5000), back);
    assert_ptr_equal(serve(&p, 5000), first);
    assert_int_equal(seq_queue_first_priority(&p.q), 7);
    assert_ptr_equal(serve(&p, 5000), low);
    assert_null(seq_queue_first(&p.q));
    leave_all(&p);
}

/* Random pushes, removals from the middle and departures leave each list intact. The sequences
 * of one tenant stay in order of age. */
static void random_operations_keep_it_whole(void **state)
{
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct rng rng = {seed};
        struct pit p = {0};
        bool waits[N_SEQS] = {0};
        seq_queue_init(&p.q, QUANTUM);
        for (int i = 0; i < 2000; i++) {
            uint32_t k = p.n ? (uint32_t)rng_below(&rng, p.n) : 0;
            if (p.n < N_SEQS && rng_below(&rng, 3) == 0) {
                waits[p.n] = true;
                enter(&p, rng_below(&rng, 9), (int32_t)rng_below(&rng, 4), rng_below(&rng, 9) == 0);
            } else if (p.n && p.seqs[k] && waits[k] && rng_below(&rng, 2)) {
                seq_queue_remove(&p.q, p.seqs[k]);
                waits[k] = false;
            } else if (p.n && p.seqs[k] && !waits[k] && rng_below(&rng, 2)) {
                seq_queue_push(&p.q, p.seqs[k]);
                waits[k] = true;
            } else if (p.n && p.seqs[k] && !waits[k]) {
                seq_queue_leave(&p.q, p.seqs[k]);
                mem_free(p.seqs[k]);
                p.seqs[k] = NULL;
            } else if (p.q.n && rng_below(&rng, 2)) {
                struct seq *x = serve(&p, (uint32_t)rng_below(&rng, 400));
                waits[x->add_seq - 1] = false;
                for (uint32_t o = 0; o < p.n; o++)
                    if (p.seqs[o] && waits[o] && p.seqs[o]->tenant == x->tenant)
                        assert_true(p.seqs[o]->priority > x->priority || seq_before(x, p.seqs[o]) ||
                                    p.seqs[o]->priority < x->priority);
            }
            assert_true(seq_queue_check(&p.q));
        }
        for (uint32_t k = 0; k < p.n; k++)
            if (p.seqs[k] && waits[k])
                seq_queue_remove(&p.q, p.seqs[k]);
        leave_all(&p);
    }
}

/* The same rule holds through the scheduler: tenant B's only request waits for at most one turn
 * of tenant A. */
static void a_flood_does_not_starve_another_tenant(void **state)
{
    struct bed b;
    struct scheduler_config c = config(64);
    c.max_num_seqs = 2;
    c.max_waiting = 100;
    open_bed(&b, &c);
    for (int i = 0; i < 40; i++) {
        struct msg_submit m = submit(&b, 20, 3);
        m.tenant = 1;
        assert_int_equal(scheduler_add(b.s, make(&b, &m)), STATUS_OK);
    }
    for (int i = 0; i < 5; i++)
        turn(&b, OTHER_ID);
    struct msg_submit m = submit(&b, 20, 3);
    m.tenant = 2;
    struct request *r = make(&b, &m);
    assert_int_equal(scheduler_add(b.s, r), STATUS_OK);
    uint32_t n_turns = 0;
    for (; r->state == REQUEST_QUEUED; n_turns++)
        turn(&b, OTHER_ID);
    assert_true(n_turns <= 4); /* tenant B's request is next when a slot is free */
    close_bed(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_request_does_not_wait_for_five_hundred),
        cmocka_unit_test(tenants_get_equal_tokens),
        cmocka_unit_test(classes_then_what_came_back_then_shares),
        cmocka_unit_test(random_operations_keep_it_whole),
        cmocka_unit_test(a_flood_does_not_starve_another_tenant),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
