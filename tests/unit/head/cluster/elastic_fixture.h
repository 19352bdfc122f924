#pragma once
/* Provides a head with --elastic-tp, and workers that offer to serve with a smaller TP. */
#include "tests/unit/head/core/core_fixture.h"

enum { GATEWAY = 7, BLOCKS = 64, BLOCKS_OF_TWO = 20, BLOCKS_OF_ONE = 5 };

static const uint32_t blocks_of_two[] = {BLOCKS_OF_TWO}, blocks_of_one[] = {BLOCKS_OF_ONE};
static const struct elastic_shape offers[] = {{.tp = 2, .n_blocks = {blocks_of_two, 1}},
                                              {.tp = 1, .n_blocks = {blocks_of_one, 1}}};

static inline struct fixture *elastic_new(uint32_t tp)
{
    struct fixture *f = fixture_new(tp);
    f->core->cluster.config.elastic_tp = true;
    return f;
}

static inline struct replica *replica0(const struct fixture *f)
{
    return f->core->cluster.replicas[0];
}

/* Returns a Hello of connection i: instance 100 + i with ordinal i - 1. */
static inline struct msg elastic_hello(const struct fixture *f, uint8_t conn)
{
    struct msg m = worker_hello(100u + conn, conn - 1);
    m.hello.worker.tp = f->core->cluster.config.tp;
    m.hello.worker.pp = f->core->cluster.config.pp;
    m.hello.worker.elastic = offers;
    m.hello.worker.n_elastic = m.hello.worker.tp == 4 ? 2 : 1;
    if (m.hello.worker.tp == 2)
        m.hello.worker.elastic = offers + 1;
    return m;
}

static inline void join_workers(struct fixture *f, uint8_t first, uint8_t last)
{
    for (uint8_t i = first; i <= last; i++) {
        struct msg m = elastic_hello(f, i);
        say(f, i, &m);
    }
}

/* Makes all workers carry out the head's orders until it sends no more. */
static inline void obey(struct fixture *f)
{
    for (uint32_t i = 0; i < f->n_box; i++) {
        uint8_t conn = f->box[i].to;
        const struct msg m = f->box[i].m;
        if (m.type == MSG_FORM && m.form.make_id)
            say(f, conn,
                &(struct msg){.type = MSG_COMM_ID,
                              .comm_id = {m.form.term_epoch, {(const uint8_t *)"id", 2}}});
        else if (m.type == MSG_JOIN)
            say(f, conn,
                &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = m.join.term_epoch}});
        else if (m.type == MSG_RESET)
            say(f, conn,
                &(struct msg){.type = MSG_FORMED, .formed = {.term_epoch = m.reset.term_epoch}});
        else if (m.type == MSG_ABORT)
            say(f, conn, &(struct msg){.type = MSG_ABORTED, .aborted = {m.abort_.term_epoch}});
    }
    box_clear(f);
}

/* Lets `ms` milliseconds pass. The connections in `alive` (bit i = connection i) send heartbeats
 * and obey. */
static inline void live_ms(struct fixture *f, uint64_t ms, uint32_t alive)
{
    struct error err = {0};
    for (uint64_t t = 0; t < ms; t += 250) {
        wait_ms(f, ms - t < 250 ? ms - t : 250, alive);
        obey(f);
        if (!head_core_check(f->core, &err))
            fail_msg("%s", err.text);
    }
}

static inline void leave(struct fixture *f, uint8_t conn)
{
    say(f, conn, &(struct msg){.type = MSG_GOODBYE});
}

static inline void expect_replica(const struct replica *g, uint32_t tp, uint32_t n_blocks)
{
    assert_int_equal(g->state, REPLICA_READY);
    assert_int_equal(g->tp, tp);
    assert_int_equal(g->n_blocks[0], n_blocks);
}
