/* Tests the state machine of a rank. A table holds short histories, and each row has an event,
 * the expected action and the expected phase. A seeded random walk then checks invariants after
 * each event: at most one communicator exists, steps are contiguous, and Aborted is never early.
 * `rank_state` is plain data, without threads. */
#include "worker/link/rank_state.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "common/base/random.h"

enum event {
    E_FORM,   /* a is the epoch, b is make_id */
    E_JOIN,   /* a is the epoch */
    E_ABORT,  /* a is the epoch */
    E_RESET,  /* a is the old epoch, b the new one */
    E_PLAN,   /* a is the epoch, b is the step */
    E_JOINED, /* a is the epoch, b is ok */
    E_ABORTED,
    E_EXECUTED, /* a is the epoch, b is the step */
    E_LOST,
    E_COUNT
};

struct row {
    enum event event;
    uint64_t a, b;
    enum rank_action want;
    enum rank_phase phase;
};

#define EP(term, n) ((uint64_t)(term) << 32 | (n))
#define MAX_ROWS    14

struct history {
    const char *name;
    struct row rows[MAX_ROWS];
    uint32_t n_rows;
    uint64_t term_epoch, comm_epoch;
    uint32_t n_answers;
    uint64_t answers[RANK_ANSWERS_MAX];
};

static enum rank_action apply(struct rank_state *s, const struct row *r)
{
    switch (r->event) {
    case E_FORM:
        return rank_state_on_form(
            s, &(struct msg_form){
                   .term_epoch = r->a, .replica_id = 7, .tp = 2, .pp = 1, .make_id = r->b != 0});
    case E_JOIN:
        return rank_state_on_join(s, &(struct msg_join){.term_epoch = r->a});
    case E_ABORT:
        return rank_state_on_abort(s, &(struct msg_abort){.term_epoch = r->a});
    case E_RESET:
        return rank_state_on_reset(s,
                                   &(struct msg_reset){.old_term_epoch = r->a, .term_epoch = r->b});
    case E_PLAN:
        return rank_state_on_plan(s, &(struct msg_plan){.term_epoch = r->a, .step = r->b});
    case E_JOINED:
        rank_state_on_joined(s, r->a, r->b != 0);
        return RANK_NOTHING;
    case E_ABORTED:
        return rank_state_on_aborted(s);
    case E_EXECUTED:
        rank_state_on_executed(s, r->a, r->b);
        return RANK_NOTHING;
    case E_LOST:
        rank_state_on_link_lost(s);
        return RANK_NOTHING;
    default:
        fail();
        return RANK_NOTHING;
    }
}

#define READY_AT(e)                                                                                \
    {E_FORM, e, 0, RANK_NOTHING, RANK_FORMING}, {E_JOIN, e, 0, RANK_JOIN_COMM, RANK_JOINING},      \
    {                                                                                              \
        E_JOINED, e, 1, RANK_NOTHING, RANK_READY                                                   \
    }

static const struct history histories[] = {
    {"rank 0 makes the id, joins, executes",
     {{E_FORM, EP(1, 1), 1, RANK_MAKE_COMM_ID, RANK_FORMING},
      {E_JOIN, EP(1, 1), 0, RANK_JOIN_COMM, RANK_JOINING},
      {E_JOINED, EP(1, 1), 1, RANK_NOTHING, RANK_READY},
      {E_PLAN, EP(1, 1), 1, RANK_EXECUTE, RANK_READY},
      {E_PLAN, EP(1, 1), 2, RANK_EXECUTE, RANK_READY},
      {E_EXECUTED, EP(1, 1), 1, RANK_NOTHING, RANK_READY}},
     6,
     EP(1, 1),
     EP(1, 1),
     0,
     {0}},
    {"stale Form, Join, Plan, Reset are ignored",
     {READY_AT(EP(2, 5)),
      {E_FORM, EP(2, 5), 0, RANK_IGNORE, RANK_READY},
      {E_FORM, EP(2, 4), 0, RANK_IGNORE, RANK_READY},
      {E_JOIN, EP(2, 4), 0, RANK_IGNORE, RANK_READY},
      {E_JOIN, EP(2, 5), 0, RANK_IGNORE, RANK_READY},
      {E_PLAN, EP(2, 4), 1, RANK_IGNORE, RANK_READY},
      {E_PLAN, EP(2, 6), 1, RANK_IGNORE, RANK_READY},
      {E_RESET, EP(2, 5), EP(2, 5), RANK_IGNORE, RANK_READY},
      {E_RESET, EP(2, 4), EP(3, 1), RANK_IGNORE, RANK_READY}},
     11,
     EP(2, 5),
     EP(2, 5),
     0,
     {0}},
    {"a gap is told once, and again in a new session",
     {READY_AT(EP(1, 1)),
      {E_PLAN, EP(1, 1), 2, RANK_SEND_GAP, RANK_READY},
      {E_PLAN, EP(1, 1), 3, RANK_IGNORE, RANK_READY},
      {E_LOST, 0, 0, RANK_NOTHING, RANK_READY},
      {E_PLAN, EP(1, 1), 3, RANK_SEND_GAP, RANK_READY},
      {E_PLAN, EP(1, 1), 1, RANK_EXECUTE, RANK_READY},
      {E_PLAN, EP(1, 1), 1, RANK_SEND_GAP, RANK_READY}},
     9,
     EP(1, 1),
     EP(1, 1),
     0,
     {0}},
    {"Abort of what is held: answered when the communicator is gone",
     {READY_AT(EP(1, 1)),
      {E_PLAN, EP(1, 1), 1, RANK_EXECUTE, RANK_READY},
      {E_ABORT, EP(1, 1), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_PLAN, EP(1, 1), 2, RANK_IGNORE, RANK_ABORTING},
      {E_EXECUTED, EP(1, 1), 1, RANK_NOTHING, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_SEND_ABORTED, RANK_IDLE}},
     8,
     EP(1, 1),
     0,
     1,
     {EP(1, 1)}},
    {"Abort with nothing to abort: older, own while forming, newer",
     {{E_ABORT, EP(1, 3), 0, RANK_SEND_ABORTED, RANK_IDLE},
      {E_FORM, EP(1, 3), 0, RANK_IGNORE, RANK_IDLE}, /* the rank has stored the term of the abort */
      {E_FORM, EP(1, 4), 1, RANK_MAKE_COMM_ID, RANK_FORMING},
      {E_ABORT, EP(1, 2), 0, RANK_SEND_ABORTED, RANK_FORMING},
      {E_ABORT, EP(1, 4), 0, RANK_SEND_ABORTED, RANK_IDLE},
      {E_JOIN, EP(1, 4), 0, RANK_IGNORE, RANK_IDLE}},
     6,
     EP(1, 4),
     0,
     0,
     {0}},
    {"older Abort leaves a newer group alone",
     {READY_AT(EP(1, 2)), {E_ABORT, EP(1, 1), 0, RANK_SEND_ABORTED, RANK_READY}},
     4,
     EP(1, 2),
     EP(1, 2),
     0,
     {0}},
    {"newer Abort ends an older group",
     {READY_AT(EP(1, 2)),
      {E_ABORT, EP(1, 3), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_SEND_ABORTED, RANK_IDLE},
      {E_FORM, EP(1, 3), 0, RANK_IGNORE, RANK_IDLE}},
     6,
     EP(1, 3),
     0,
     1,
     {EP(1, 3)}},
    {"Form over a running group: abort first, then form, Join may overtake",
     {READY_AT(EP(1, 1)),
      {E_FORM, EP(1, 2), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_JOIN, EP(1, 2), 0, RANK_NOTHING, RANK_ABORTING},
      {E_JOIN, EP(1, 2), 0, RANK_IGNORE, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_JOIN_COMM, RANK_JOINING},
      {E_JOINED, EP(1, 2), 1, RANK_NOTHING, RANK_READY}},
     8,
     EP(1, 2),
     EP(1, 2),
     0,
     {0}},
    {"Form over a running group, this rank makes the id",
     {READY_AT(EP(1, 1)),
      {E_FORM, EP(1, 2), 1, RANK_ABORT_COMM, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_MAKE_COMM_ID, RANK_FORMING}},
     5,
     EP(1, 2),
     0,
     0,
     {0}},
    {"two Forms while aborting: the newer counts, the Join of the older is stale",
     {READY_AT(EP(1, 1)),
      {E_FORM, EP(1, 2), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_JOIN, EP(1, 2), 0, RANK_NOTHING, RANK_ABORTING},
      {E_FORM, EP(1, 3), 0, RANK_NOTHING, RANK_ABORTING},
      {E_JOIN, EP(1, 2), 0, RANK_IGNORE, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_NOTHING, RANK_FORMING}},
     8,
     EP(1, 3),
     0,
     0,
     {0}},
    {"Abort, then a Form before the abort is done: both are served",
     {READY_AT(EP(1, 1)),
      {E_ABORT, EP(1, 1), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_FORM, EP(1, 2), 0, RANK_NOTHING, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_NOTHING, RANK_FORMING}},
     6,
     EP(1, 2),
     0,
     1,
     {EP(1, 1)}},
    {"Form pending, then its Abort and a late one of the old epoch: both wait for the end",
     {READY_AT(EP(1, 1)),
      {E_FORM, EP(1, 2), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_ABORT, EP(1, 1), 0, RANK_NOTHING, RANK_ABORTING},
      {E_ABORT, EP(1, 2), 0, RANK_NOTHING, RANK_ABORTING},
      {E_ABORT, EP(1, 2), 0, RANK_NOTHING, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_SEND_ABORTED, RANK_IDLE}},
     8,
     EP(1, 2),
     0,
     2,
     {EP(1, 1), EP(1, 2)}},
    {"Abort overtakes a join, whatever the join says afterwards",
     {{E_FORM, EP(1, 1), 0, RANK_NOTHING, RANK_FORMING},
      {E_JOIN, EP(1, 1), 0, RANK_JOIN_COMM, RANK_JOINING},
      {E_ABORT, EP(1, 1), 0, RANK_ABORT_COMM, RANK_ABORTING},
      {E_JOINED, EP(1, 1), 1, RANK_NOTHING, RANK_ABORTING},
      {E_ABORTED, 0, 0, RANK_SEND_ABORTED, RANK_IDLE}},
     5,
     EP(1, 1),
     0,
     1,
     {EP(1, 1)}},
    {"a failed join leaves nothing behind",
     {{E_FORM, EP(1, 1), 0, RANK_NOTHING, RANK_FORMING},
      {E_JOIN, EP(1, 1), 0, RANK_JOIN_COMM, RANK_JOINING},
      {E_JOINED, EP(1, 1), 0, RANK_NOTHING, RANK_IDLE},
      {E_ABORT, EP(1, 1), 0, RANK_SEND_ABORTED, RANK_IDLE}},
     4,
     EP(1, 1),
     0,
     0,
     {0}},
    {"adoption by a restarted head: only when idle",
     {READY_AT(EP(1, 1)),
      {E_PLAN, EP(1, 1), 1, RANK_EXECUTE, RANK_READY},
      {E_LOST, 0, 0, RANK_NOTHING, RANK_READY},
      {E_RESET, EP(1, 1), EP(2, 1), RANK_IGNORE, RANK_READY},
      {E_EXECUTED, EP(1, 1), 1, RANK_NOTHING, RANK_READY},
      {E_RESET, EP(1, 1), EP(2, 1), RANK_RESET, RANK_READY},
      {E_PLAN, EP(1, 1), 2, RANK_IGNORE, RANK_READY},
      {E_PLAN, EP(2, 1), 1, RANK_EXECUTE, RANK_READY},
      {E_FORM, EP(1, 9), 0, RANK_IGNORE, RANK_READY}},
     11,
     EP(2, 1),
     EP(2, 1),
     0,
     {0}},
    {"a Form of a term below one seen comes from a dead head",
     {{E_ABORT, EP(3, 1), 0, RANK_SEND_ABORTED, RANK_IDLE},
      {E_PLAN, EP(5, 1), 1, RANK_IGNORE, RANK_IDLE},
      {E_FORM, EP(4, 1), 0, RANK_IGNORE, RANK_IDLE},
      {E_FORM, EP(5, 1), 0, RANK_NOTHING, RANK_FORMING}},
     4,
     EP(5, 1),
     0,
     0,
     {0}},
};

static void test_histories(void **state)
{
    for (size_t h = 0; h < sizeof histories / sizeof histories[0]; h++) {
        const struct history *t = &histories[h];
        struct rank_state s;
        rank_state_init(&s);
        for (uint32_t i = 0; i < t->n_rows; i++) {
            enum rank_action got = apply(&s, &t->rows[i]);
            if (got != t->rows[i].want || s.phase != t->rows[i].phase)
                fail_msg("%s: row %u: action %d phase %s, want %d %s", t->name, i, got,
                         rank_phase_name(s.phase), t->rows[i].want,
                         rank_phase_name(t->rows[i].phase));
        }
        if (s.term_epoch != t->term_epoch || s.comm_epoch != t->comm_epoch)
            fail_msg("%s: epoch %llx comm %llx", t->name, (unsigned long long)s.term_epoch,
                     (unsigned long long)s.comm_epoch);
        assert_int_equal(s.n_answers, t->n_answers);
        for (uint32_t i = 0; i < t->n_answers; i++)
            assert_true(s.answers[i] == t->answers[i]);
    }
}

/* `owner` is the owner's view of the rank. At most one communicator exists, steps are
 * contiguous, and Aborted is never early. */
struct owner {
    uint64_t comm;     /* epoch of the communicator that exists, or is being joined or aborted */
    uint64_t executed; /* last step executed in `comm` */
};

static void owner_check(struct owner *o, const struct rank_state *s, const struct row *r,
                        enum rank_action act)
{
    switch (act) {
    case RANK_JOIN_COMM:
        assert_true(o->comm == 0); /* there are never two communicators at once */
        o->comm = s->term_epoch;
        o->executed = 0;
        break;
    case RANK_ABORT_COMM:
        assert_true(o->comm != 0);
        break;
    case RANK_EXECUTE:
        assert_true(o->comm == r->a);
        assert_true(r->b == o->executed + 1);
        o->executed++;
        break;
    case RANK_RESET:
        assert_true(o->comm == r->a && r->b > r->a);
        o->comm = r->b;
        o->executed = 0;
        break;
    case RANK_SEND_ABORTED:
        if (r->event == E_ABORT)
            assert_true(o->comm == 0 || o->comm != r->a);
        break;
    default:
        break;
    }
}

static void test_random_walk(void **state)
{
    const uint64_t seed = 20260101;
    struct rng rng = {seed};
    for (uint32_t run = 0; run < 400; run++) {
        struct rank_state s;
        struct owner o = {0};
        rank_state_init(&s);
        for (uint32_t i = 0; i < 400; i++) {
            uint64_t near = s.term_epoch + rng_below(&rng, 3);
            struct row r = {(enum event)rng_below(&rng, E_COUNT), near > 0 ? near - 1 : 0,
                            rng_below(&rng, 2), RANK_NOTHING, RANK_IDLE};
            if (rng_below(&rng, 50) == 0)
                r.a += EP(1, 0);
            if (r.event == E_RESET)
                r.b = r.a + 1;
            if (r.event == E_PLAN)
                r.b = s.step_received + rng_below(&rng, 3);
            if (r.event == E_JOINED) { /* owners report only joins that the state machine ordered */
                if (s.phase != RANK_JOINING)
                    continue;
                r.a = s.comm_epoch;
                o.comm = r.b ? o.comm : 0;
            }
            if (r.event == E_EXECUTED) {
                if (s.phase != RANK_READY || s.step_executed == s.step_received)
                    continue;
                r.a = s.comm_epoch;
                r.b = s.step_executed + 1;
            }
            if (r.event == E_ABORTED) {
                if (s.phase != RANK_ABORTING)
                    continue;
                o.comm = 0;
            }
            uint64_t before = s.term_epoch, term = s.term_seen;
            enum rank_action act = apply(&s, &r);
            owner_check(&o, &s, &r, act);
            assert_true(s.term_epoch >= before && s.term_seen >= term);
            assert_true(s.step_executed <= s.step_received);
            assert_true(s.comm_epoch == o.comm);
            assert_true(s.n_answers <= RANK_ANSWERS_MAX);
            assert_true((s.phase == RANK_IDLE || s.phase == RANK_FORMING) == (s.comm_epoch == 0));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_histories),
        cmocka_unit_test(test_random_walk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
