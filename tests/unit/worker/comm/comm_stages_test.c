/* Tests a replica of several stages, with its ranks as threads of this process. A rank opens one
 * comm with parts: for its stage, for the stages before and after it, and for the sampled ids.
 * The tests pass hidden states and ids through shapes of up to 6 ranks, and count links and
 * mapped memory. Invariants: a message of one part is never taken for another part's, and a
 * fault ends all parts. */
#include "worker/comm/stages.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "worker/comm/links/link.h"
#include "worker/comm/part.h"
#include "worker/comm/state.h"

enum { MAX_WORLD = 6, N_FLOATS = 100, N_STEPS = 3 };

struct rank_slot {
    struct comm *comm;
    struct comm_stages comms;
    struct comm_place place;
    struct comm_group group;
    pthread_t thread;
    enum status (*body)(struct rank_slot *s, struct error *err);
    enum status status;
    struct error err;
};

struct world {
    struct rank_slot rank_slots[MAX_WORLD];
    struct str addresses[MAX_WORLD];
    uint8_t id[COMM_ID_BYTES];
    uint32_t n;
};

static void open_world(struct world *w, uint32_t tp, uint32_t pp, bool sockets)
{
    struct error err = {0};
    *w = (struct world){.n = tp * pp};
    comm_make_id(w->id);
    for (uint32_t i = 0; i < w->n; i++) {
        struct rank_slot *s = &w->rank_slots[i];
        const struct comm_options o = {.host = "127.0.0.1", .no_shared_memory = sockets};
        s->place = (struct comm_place){tp, pp, i % tp, i / tp};
        assert_int_equal(comm_open(&o, &s->comm, &err), STATUS_OK);
        assert_int_equal(comm_stages_open(s->comm, tp, pp, &s->comms, &err), STATUS_OK);
        w->addresses[i] = str_from(comm_address(s->comm));
        s->group = (struct comm_group){.term_epoch = 1,
                                       .rank = i,
                                       .n_ranks = w->n,
                                       .addresses = w->addresses,
                                       .id = {w->id, sizeof w->id}};
    }
}

static void close_world(struct world *w)
{
    for (uint32_t i = 0; i < w->n; i++)
        comm_close(w->rank_slots[i].comm);
}

static void *run_rank_slot(void *arg)
{
    struct rank_slot *s = arg;
    s->status = s->body(s, &s->err);
    return NULL;
}

static void run_world(struct world *w, enum status (*body)(struct rank_slot *s, struct error *err))
{
    for (uint32_t i = 0; i < w->n; i++) {
        w->rank_slots[i].body = body;
        assert_int_equal(
            pthread_create(&w->rank_slots[i].thread, NULL, run_rank_slot, &w->rank_slots[i]), 0);
    }
    for (uint32_t i = 0; i < w->n; i++)
        pthread_join(w->rank_slots[i].thread, NULL);
    for (uint32_t i = 0; i < w->n; i++)
        if (w->rank_slots[i].status != STATUS_OK)
            fail_msg("rank %u: %s", i, w->rank_slots[i].err.text);
}

static enum status join(struct rank_slot *s, struct error *err)
{
    return comm_stages_join(&s->comms, &s->place, &s->group, err);
}

static enum status want(bool fine, const char *what, struct error *err)
{
    return fine ? STATUS_OK : error_set(err, STATUS_INTERNAL, "%s", what);
}

/* Passes the hidden states of a step through the stages, with a sum in each stage. */
static enum status pass_through(struct rank_slot *s, uint32_t step, struct error *err)
{
    float x[N_FLOATS] = {0};
    if (s->place.stage > 0)
        TRY(comm_broadcast(s->comms.before, 0, x, sizeof x, err));
    for (uint32_t i = 0; i < N_FLOATS; i++)
        TRY(want(x[i] == (float)(s->place.stage * s->place.tp * (step + 1)), "hidden states", err));
    float more[N_FLOATS];
    for (uint32_t i = 0; i < N_FLOATS; i++)
        more[i] = (float)(step + 1);
    if (s->comms.stage)
        TRY(comm_all_reduce(s->comms.stage, more, N_FLOATS, err));
    for (uint32_t i = 0; i < N_FLOATS; i++)
        x[i] += more[i];
    return s->place.stage + 1 < s->place.pp ? comm_broadcast(s->comms.after, 0, x, sizeof x, err)
                                            : STATUS_OK;
}

static enum status take_ids(struct rank_slot *s, uint32_t step, struct error *err)
{
    uint32_t id = comm_place_samples(&s->place) ? 1000 + step : 0;
    TRY(comm_broadcast(s->comms.ids, s->comms.sampling_rank, &id, sizeof id, err));
    return want(id == 1000 + step, "ids", err);
}

/* Runs the steps. The first stage runs ahead through all steps and reads their ids afterwards.
 * The other stages take turns. */
static enum status steps(struct rank_slot *s, struct error *err)
{
    bool ahead = s->place.stage == 0 && s->place.pp > 1;
    TRY(join(s, err));
    TRY(want(!s->comms.stage || comm_n_ranks(s->comms.stage) == s->place.tp, "stage", err));
    for (uint32_t i = 0; i < N_STEPS; i++) {
        TRY(pass_through(s, i, err));
        if (!ahead)
            TRY(take_ids(s, i, err));
    }
    for (uint32_t i = 0; ahead && i < N_STEPS; i++)
        TRY(take_ids(s, i, err));
    return STATUS_OK;
}

static const uint32_t shapes[][2] = {{2, 1}, {1, 2}, {2, 2}, {1, 3}, {3, 2}, {2, 3}, {1, 6}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void test_steps(void **state)
{
    for (size_t i = 0; i < N_SHAPES; i++)
        for (int sockets = 0; sockets < 2; sockets++) {
            struct world w;
            open_world(&w, shapes[i][0], shapes[i][1], sockets);
            run_world(&w, steps);
            close_world(&w);
        }
}

static uint64_t mapped_now(void)
{
    char line[512];
    uint64_t n = 0;
    FILE *f = fopen("/proc/self/maps", "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        unsigned long long from, to;
        if (strstr(line, "/memfd:cox-comm") && sscanf(line, "%llx-%llx", &from, &to) == 2)
            n += to - from;
    }
    fclose(f);
    return n;
}

/* Each rank counts its own links, and has no link that no call uses. */
static void test_links(void **state)
{
    for (size_t i = 0; i < N_SHAPES; i++) {
        struct world w;
        uint64_t before = mapped_now(), links = 0;
        uint32_t tp = shapes[i][0], pp = shapes[i][1];
        open_world(&w, tp, pp, false);
        run_world(&w, join);
        for (uint32_t r = 0; r < w.n; r++) {
            const struct comm *c = w.rank_slots[r].comm;
            uint32_t n = 0;
            for (uint32_t p = 0; p < w.n; p++)
                n += c->exchange.peers[p].link != NULL;
            const struct comm_place *at = &w.rank_slots[r].place;
            uint64_t others = comm_stages_bytes(at) - n * comm_link_bytes();
            uint64_t sums = pp > 1 && tp == 1 ? 0 : tp * COMM_BLOCK_FLOATS * sizeof(float);
            assert_in_range(others, sums, sums + 64 * sizeof(struct exchange_peer));
            links += n * link_shm_bytes();
            if (pp > 2 && at->stage == 0)
                /* The rank has links to its stage, to one rank of the next stage and to the
                 * sampling rank. */
                assert_int_equal(n, tp - 1 + 2);
        }
        assert_int_equal(mapped_now() - before, links);
        close_world(&w);
        assert_int_equal(mapped_now(), before);
    }
}

/* ---- faults ---- */

/* Rank 0 broadcasts hidden states where the sampling rank waits for a broadcast of ids. The part
 * in the message distinguishes them. */
static enum status receive_wrong(struct rank_slot *s, struct error *err)
{
    uint32_t id = 0;
    TRY(join(s, err));
    if (s->place.stage == 0)
        return comm_broadcast(s->comms.after, 0, &id, sizeof id, err);
    struct comm *ids = s->comms.ids; /* rank 0 acts as if it were the sampling rank */
    enum status got = comm_broadcast(ids, 0, &id, sizeof id, err);
    return want(got == STATUS_INVALID && strstr(err->text, "of part"), "another part", err);
}

static void test_parts_are_told_apart(void **state)
{
    struct world w;
    open_world(&w, 1, 2, false);
    run_world(&w, receive_wrong);
    close_world(&w);
}

/* A part fails together with its group, and its errors number ranks as the head does. The part
 * is empty until the next group. */
static void test_a_peer_that_leaves(void **state)
{
    struct world w;
    struct error err = {0};
    float x[N_FLOATS] = {0};
    open_world(&w, 2, 2, false);
    run_world(&w, join);
    struct rank_slot *s = &w.rank_slots[3];
    comm_leave(w.rank_slots[1].comm);
    assert_int_equal(comm_broadcast(s->comms.before, 0, x, sizeof x, &err), STATUS_IO);
    assert_ptr_equal(strstr(err.text, "rank 1 at 127.0.0.1:"), err.text);
    assert_int_equal(comm_all_reduce(s->comms.stage, x, N_FLOATS, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "failed earlier"));
    comm_leave(s->comm);
    assert_int_equal(comm_n_ranks(s->comms.stage), 1);
    assert_int_equal(comm_n_ranks(s->comms.before), 1);
    comm_interrupt(s->comm);
    assert_int_equal(comm_broadcast(s->comms.ids, 0, x, sizeof x, &err), STATUS_CLOSED);
    for (uint32_t i = 0; i < w.n; i++)
        comm_leave(w.rank_slots[i].comm);
    for (uint32_t i = 0; i < w.n; i++)
        w.rank_slots[i].group.term_epoch = 2;
    run_world(&w, steps);
    close_world(&w);
}

static void test_members_that_are_none(void **state)
{
    static const uint32_t ranks[] = {0, 1, 2};
    static const struct comm_members cases[] = {{.ranks = ranks, .n = 0},
                                                {.ranks = ranks, .n = 3},
                                                {.ranks = ranks, .n = 2, .rank = 2},
                                                {.ranks = ranks, .n = 2, .rank = 1},
                                                {.ranks = ranks + 1, .n = 2}};
    struct world w;
    struct error err = {0};
    struct comm *part;
    float x = 0;
    open_world(&w, 1, 2, false);
    run_world(&w, join);
    struct comm *c = w.rank_slots[0].comm;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(comm_join_part(w.rank_slots[0].comms.after, &cases[i], &err),
                         STATUS_INVALID);
    assert_int_equal(comm_all_reduce(w.rank_slots[0].comms.ids, &x, 1, &err), STATUS_INVALID);
    assert_int_equal(comm_all_reduce(c, &x, 1, &err), STATUS_INVALID); /* collectives need a part */
    assert_int_equal(comm_open_part(c, 9, &part, &err), STATUS_OK);
    assert_int_equal(comm_open_part(c, 9, &part, &err), STATUS_LIMIT);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps),
        cmocka_unit_test(test_links),
        cmocka_unit_test(test_parts_are_told_apart),
        cmocka_unit_test(test_a_peer_that_leaves),
        cmocka_unit_test(test_members_that_are_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
