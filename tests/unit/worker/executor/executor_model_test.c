/* Tests the CPU device as a rank. Two executors, as threads of this process, are each other's
 * peers, over loopback or shared memory. tests/golden checks the tokens against references.
 * These tests check that tokens are the same for either order of executors and ranks, and after
 * joins, resets, interrupts and lost shards. A false rank 0 sends wrong or late words. An
 * executor's calls run in a thread of its own, and the test's thread sends interrupts. */
#include "worker/executor/executor.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "tests/unit/worker/tiny_model.c"
#include "worker/comm/comm.h"
#include "worker/executor/device/open.h"
#include "worker/executor/state.h"

enum { N_RANKS = 2, N_PROMPT = 20, N_STEPS = 12, N_SLOTS = 3, N_BLOCKS = 16 };

struct rank {
    struct executor *executor;
    struct executor_comm comm; /* communicator for the next join */
    struct msg_plan plan;      /* plan for the next step */
    bool joins;
    struct arena arena;
    struct msg_result result;
    struct error err;
    enum status status;
    pthread_t thread;
    _Atomic bool done;
};

struct fixture {
    char folder[64];
    struct rank ranks[N_RANKS]; /* executors by rank */
    struct str addresses[N_RANKS];
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n_id;
    uint64_t epoch;
};

enum what_is_sampled { SAMPLED_IN_ALL_WAYS, SAMPLED_GREEDILY, SAMPLED_GREEDILY_WITH_LOGPROBS };
/* rule of sampling for a test; `tear_down` resets it */
static enum what_is_sampled what_is_sampled;
/* distances of the two best scores, from the last `run_steps` */
static float gaps[N_STEPS][N_SLOTS];

static struct worker_options options(const struct fixture *f, int64_t ordinal)
{
    return (struct worker_options){.model = f->folder,
                                   .device = WORKER_DEVICE_CPU,
                                   .tp = N_RANKS,
                                   .pp = 1,
                                   .ordinal = ordinal,
                                   .comm_host = "127.0.0.1",
                                   .no_shared_memory = ordinal >= N_RANKS,
                                   .threads = 1,
                                   .block_size = 16,
                                   .num_gpu_blocks_override = N_BLOCKS};
}

static struct executor *open_cpu(const struct worker_options *o)
{
    struct executor *e;
    struct error err = {0};
    if (executor_open(o, &e, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return e;
}

/* Opens the executors. `ordinals[i]` is the ordinal of the executor that first has rank i; -1 =
 * none. */
static void open_ranks(struct fixture *f, const int64_t ordinals[N_RANKS])
{
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct worker_options o = options(f, ordinals[i]);
        arena_init(&f->ranks[i].arena, 0);
        f->ranks[i].executor = open_cpu(&o);
    }
}

static const int64_t in_place[] = {0, 1};

static int set_up(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    *state = f;
    strcpy(f->folder, "/tmp/cox-executor-XXXXXX");
    if (!mkdtemp(f->folder))
        return -1;
    tiny_model_write(f->folder, 7);
    return 0;
}

static int tear_down(void **state)
{
    struct fixture *f = *state;
    char path[128];
    for (uint32_t i = 0; i < N_RANKS; i++) {
        if (f->ranks[i].executor)
            f->ranks[i].executor->ops->close(f->ranks[i].executor);
        arena_fini(&f->ranks[i].arena);
    }
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/config.json", f->folder);
    unlink(path);
    rmdir(f->folder);
    free(f);
    what_is_sampled = SAMPLED_IN_ALL_WAYS;
    return 0;
}

/* ---- ranks in threads ---- */

static void *run(void *arg)
{
    struct rank *r = arg;
    const struct executor_ops *ops = r->executor->ops;
    r->status = r->joins ? ops->join_comm(r->executor, &r->comm, &r->err)
                         : ops->step(r->executor, &r->plan, &r->arena, &r->result, &r->err);
    r->done = true;
    return NULL;
}

static void begin(struct rank *r)
{
    r->done = false;
    r->err = (struct error){0};
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
}

static enum status end(struct rank *r)
{
    pthread_join(r->thread, NULL);
    return r->status;
}

static void prepare_join(struct fixture *f)
{
    static const uint32_t n_blocks[] = {N_BLOCKS};
    struct error err = {0};
    struct executor *first = f->ranks[0].executor;
    f->n_id = sizeof f->id;
    assert_int_equal(first->ops->make_comm_id(first, f->id, &f->n_id, &err), STATUS_OK);
    f->epoch++;
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct rank *r = &f->ranks[i];
        f->addresses[i] = r->executor->ops->info(r->executor)->comm_address;
        r->joins = true;
        r->comm =
            (struct executor_comm){.term_epoch = f->epoch,
                                   .tp = N_RANKS,
                                   .pp = 1,
                                   .rank = i,
                                   .isa_level = r->executor->ops->info(r->executor)->isa_level,
                                   .addresses = f->addresses,
                                   .n_addresses = N_RANKS,
                                   .n_blocks = {n_blocks, 1},
                                   .id = {f->id, f->n_id}};
    }
}

static void join_all(struct fixture *f)
{
    prepare_join(f);
    for (uint32_t i = 0; i < N_RANKS; i++)
        begin(&f->ranks[i]);
    for (uint32_t i = 0; i < N_RANKS; i++)
        if (end(&f->ranks[i]) != STATUS_OK)
            fail_msg("rank %u: %s", i, f->ranks[i].err.text);
}

static void abort_all(struct fixture *f)
{
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct executor *e = f->ranks[i].executor;
        e->ops->interrupt(e);
        e->ops->abort_comm(e);
    }
}

/* `steps` holds the data of a step's plan. In the first step slots 0 to N_SLOTS - 1 enter. Each
 * step samples one token of each slot. From the second step on, only the ranks know the ids that
 * run. */
struct steps {
    uint32_t ids[N_PROMPT], blocks[N_SLOTS][2];
    struct plan_admit admits[N_SLOTS];
    struct plan_blocks tables[N_SLOTS];
    struct plan_run runs[N_SLOTS];
};

static struct msg_plan plan_of(struct steps *s, uint32_t step)
{
    for (uint32_t i = 0; i < N_PROMPT; i++)
        s->ids[i] = (i * 7 + 3) % TINY_VOCAB;
    for (uint32_t k = 0; k < N_SLOTS; k++) {
        s->blocks[k][0] = 2 * k + 1;
        s->blocks[k][1] = 2 * k;
        s->tables[k] = (struct plan_blocks){.ids = {s->blocks[k], 2}};
        s->admits[k] = (struct plan_admit){.slot = k,
                                           .n_prompt = N_PROMPT - k,
                                           .ids = {s->ids, N_PROMPT - k},
                                           .sampling = {.temperature = k == 0 ? 0.0f : 1.0f,
                                                        .top_p = 1,
                                                        .repetition_penalty = 1,
                                                        .seed = 5,
                                                        .i_choice = k,
                                                        .n_logprobs = k == 1 ? 2 : -1,
                                                        .n_prompt_logprobs = -1}};
        s->runs[k] = (struct plan_run){.slot = k,
                                       .start = step == 1 ? 0 : N_PROMPT - k + step - 2,
                                       .n_tokens = step == 1 ? N_PROMPT - k : 1,
                                       .sample = true,
                                       .blocks = &s->tables[k],
                                       .n_blocks = step == 1};
        if (what_is_sampled != SAMPLED_IN_ALL_WAYS) {
            s->admits[k].sampling.temperature = 0;
            s->admits[k].sampling.n_logprobs =
                what_is_sampled == SAMPLED_GREEDILY_WITH_LOGPROBS ? 0 : -1;
        }
    }
    return (struct msg_plan){.step = step,
                             .admits = s->admits,
                             .n_admits = step == 1 ? N_SLOTS : 0,
                             .runs = s->runs,
                             .n_runs = N_SLOTS};
}

static void prepare_step(struct rank *r, struct steps *s, uint32_t step)
{
    arena_reset(&r->arena);
    r->joins = false;
    r->plan = plan_of(s, step);
}

static void run_steps(struct fixture *f, uint32_t out[N_STEPS][N_SLOTS])
{
    static struct steps steps;
    for (uint32_t step = 1; step <= N_STEPS; step++) {
        for (uint32_t i = 0; i < N_RANKS; i++)
            prepare_step(&f->ranks[i], &steps, step);
        for (uint32_t i = 0; i < N_RANKS; i++)
            begin(&f->ranks[i]);
        for (uint32_t i = 0; i < N_RANKS; i++)
            if (end(&f->ranks[i]) != STATUS_OK)
                fail_msg("step %u, rank %u: %s", step, i, f->ranks[i].err.text);
        /* rank 0 answers, so rank 1 has no items */
        assert_int_equal(f->ranks[1].result.n_items, 0);
        const struct msg_result *r = &f->ranks[0].result;
        assert_int_equal(r->n_items, N_SLOTS);
        for (uint32_t k = 0; k < N_SLOTS; k++) {
            assert_int_equal(r->items[k].slot, k);
            assert_int_equal(r->items[k].ids.n, 1);
            assert_int_equal(r->items[k].n_logprobs, steps.admits[k].sampling.n_logprobs >= 0);
            gaps[step - 1][k] = r->items[k].gaps.ptr[0];
            out[step - 1][k] = r->items[k].ids.ptr[0];
            assert_true(out[step - 1][k] < TINY_VOCAB);
        }
    }
}

/* ---- tests ---- */

static void test_what_hello_will_say(void **state)
{
    static const struct {
        int64_t ordinal;
        int32_t shard;
    } cases[] = {{-1, 0}, {0, 0}, {1, 1}, {2, 0}, {5, 1}};
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct worker_options o = options(f, cases[i].ordinal);
        struct executor *e = open_cpu(&o);
        const struct executor_info *info = e->ops->info(e);
        assert_int_equal(e->shard_rank, cases[i].shard);
        assert_int_equal(e->shard_stage, 0);
        assert_true(str_starts(info->comm_address, STR("127.0.0.1:")));
        assert_false(str_starts(info->comm_address, STR("127.0.0.1:0")));
        e->ops->close(e);
    }
    struct worker_options o = options(f, 0);
    o.tp = 1;
    o.comm_host = NULL;
    struct executor *e = open_cpu(&o);
    assert_int_equal(e->ops->info(e)->comm_address.len, 0); /* a single rank needs no address */
    e->ops->close(e);
}

static void test_what_cannot_be_opened(void **state)
{
    static const struct {
        int64_t tp, pp;
        const char *comm_host;
        enum status want;
        const char *text;
    } cases[] = {
        {1, 3, "127.0.0.1", STATUS_UNSUPPORTED, "--pp 3 is too large: the model has 2 layers"},
        {16, 5, "127.0.0.1", STATUS_UNSUPPORTED,
         "--tp 16 --pp 5 is too large: a replica has at most 64 ranks"},
        {65, 1, "127.0.0.1", STATUS_UNSUPPORTED, "at most 64"},
        {2, 1, "0.0.0.0", STATUS_INVALID, "0.0.0.0"},
        /* this address belongs to another host */
        {2, 1, "203.0.113.1", STATUS_INVALID, "203.0.113.1"},
        {33, 1, "127.0.0.1", STATUS_UNSUPPORTED, "leaves none for rank 32"},
    };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct worker_options o = options(f, 0);
        struct executor *e = NULL;
        struct error err = {0};
        o.tp = cases[i].tp;
        o.pp = cases[i].pp;
        o.comm_host = cases[i].comm_host;
        enum status s = executor_open(&o, &e, &err);
        if (s != cases[i].want || !strstr(err.text, cases[i].text))
            fail_msg("case %zu: %s: %s", i, status_name(s), err.text);
    }
}

static void test_ranks_sample_the_same_in_any_order(void **state)
{
    struct fixture *f = *state;
    uint32_t first[N_STEPS][N_SLOTS], again[N_STEPS][N_SLOTS];
    open_ranks(f, in_place);
    join_all(f);
    run_steps(f, first);
    /* The communicator stays, but the sequences are gone. */
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct executor *e = f->ranks[i].executor;
        assert_int_equal(e->ops->reset(e, &f->ranks[i].err), STATUS_OK);
    }
    run_steps(f, again);
    assert_memory_equal(again, first, sizeof first);
    for (int round = 0; round < 2; round++) { /* The ranks swap their shards, and swap back. */
        abort_all(f);
        struct rank moved = f->ranks[0];
        f->ranks[0] = f->ranks[1];
        f->ranks[1] = moved;
        join_all(f);
        assert_int_equal(f->ranks[0].executor->shard_rank, 0);
        assert_int_equal(f->ranks[1].executor->shard_rank, 1);
        run_steps(f, again);
        assert_memory_equal(again, first, sizeof first);
    }
}

/* Ranks may exchange only their best logits. The sampled tokens equal those of a rank that has
 * all logits. */
static void test_the_best_of_the_ranks_is_the_best_of_all(void **state)
{
    struct fixture *f = *state;
    uint32_t best[N_STEPS][N_SLOTS], all[N_STEPS][N_SLOTS];
    float gaps_of_best[N_STEPS][N_SLOTS];
    open_ranks(f, in_place);
    join_all(f);
    what_is_sampled = SAMPLED_GREEDILY;
    run_steps(f, best);
    memcpy(gaps_of_best, gaps, sizeof gaps);
    abort_all(f);
    join_all(f);
    what_is_sampled = SAMPLED_GREEDILY_WITH_LOGPROBS;
    run_steps(f, all);
    assert_memory_equal(best, all, sizeof all);
    assert_memory_equal(gaps_of_best, gaps, sizeof gaps);
    abort_all(f);
}

/* Two spares, each loaded for the first rank slot of another replica, form a replica over
 * sockets. The second spare then loads the shard of its new rank slot. */
static void test_a_rank_loads_the_shard_it_is_asked_for(void **state)
{
    static const int64_t spares[] = {2, 4};
    struct fixture *f = *state;
    uint32_t first[N_STEPS][N_SLOTS], again[N_STEPS][N_SLOTS];
    open_ranks(f, spares);
    assert_int_equal(f->ranks[1].executor->shard_rank, 0);
    join_all(f);
    assert_int_equal(f->ranks[1].executor->shard_rank, 1);
    run_steps(f, first);
    abort_all(f);
    join_all(f);
    run_steps(f, again);
    assert_memory_equal(again, first, sizeof first);
}

/* A formation that fails while a slow disk is read must not make the rank read again. */
static void test_an_interrupted_rank_has_its_shard_all_the_same(void **state)
{
    static const int64_t spares[] = {0, 2};
    struct fixture *f = *state;
    uint32_t out[N_STEPS][N_SLOTS];
    open_ranks(f, spares);
    struct rank *r = &f->ranks[1];
    prepare_join(f);
    r->executor->ops->interrupt(r->executor);
    begin(r);
    assert_int_equal(end(r), STATUS_CLOSED);
    assert_int_equal(r->executor->shard_rank, 1);
    r->executor->ops->abort_comm(r->executor);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    assert_int_equal(unlink(path), 0); /* the shard is not read again */
    join_all(f);
    run_steps(f, out);
}

/* A shard that cannot be read is an error at each join. The rank loads the shard once it can be
 * read. Meanwhile the rank does not say that it sleeps, because no head has ordered that. */
static void test_a_shard_that_cannot_be_read(void **state)
{
    static const int64_t spares[] = {0, 2};
    struct fixture *f = *state;
    char path[128], away[160];
    uint32_t out[N_STEPS][N_SLOTS];
    snprintf(path, sizeof path, "%s/model.safetensors", f->folder);
    snprintf(away, sizeof away, "%s.away", path);
    open_ranks(f, spares);
    assert_int_equal(rename(path, away), 0);
    for (int i = 0; i < 2; i++) {
        prepare_join(f);
        begin(&f->ranks[1]);
        assert_int_not_equal(end(&f->ranks[1]), STATUS_OK);
        assert_non_null(strstr(f->ranks[1].err.text, f->folder));
        struct executor *e = f->ranks[1].executor;
        struct error err;
        assert_int_equal(e->shard_rank, -1);
        assert_int_equal(e->sleep_level, SLEEP_LEVEL_AWAKE);
        assert_int_equal(e->ops->sleep(e, SLEEP_LEVEL_KV, &err), STATUS_OK);
        assert_int_equal(e->sleep_level, SLEEP_LEVEL_WEIGHTS);
    }
    assert_int_equal(rename(away, path), 0);
    join_all(f);
    run_steps(f, out);
}

static void test_joins_that_are_refused(void **state)
{
    struct fixture *f = *state;
    open_ranks(f, in_place);
    for (int i = 0; i < 7; i++) {
        prepare_join(f);
        struct rank *r = &f->ranks[i == 6 ? 1 : 0];
        struct executor_comm *c = &r->comm;
        c->tp += i == 0;
        c->pp += i == 1;
        c->rank += i == 2 ? N_RANKS : 0;
        c->n_addresses -= i == 3;
        c->id.n -= i == 4 || i == 6;
        f->id[0] ^= i == 5;
        begin(r);
        assert_int_not_equal(end(r), STATUS_OK);
        assert_true(strlen(r->err.text) > 0);
    }
    uint32_t out[N_STEPS][N_SLOTS];
    join_all(f); /* the error leaves no state behind */
    run_steps(f, out);
}

/* An id that rank 0 makes is valid for one formation. A repeated Join does not make an old id
 * valid again. */
static void test_an_id_is_of_one_formation(void **state)
{
    struct fixture *f = *state;
    open_ranks(f, in_place);
    join_all(f);
    abort_all(f);
    begin(&f->ranks[0]); /* the head sends the same Join again */
    assert_int_equal(end(&f->ranks[0]), STATUS_INVALID);
    assert_non_null(strstr(f->ranks[0].err.text, "the communicator id differs"));
    join_all(f);
}

/* The lowest number of blocks and the lowest instruction set of the group apply to all ranks, as
 * long as the group exists. */
static void test_a_formation_sets_blocks_and_instructions(void **state)
{
    static const uint32_t few[] = {2 * N_SLOTS - 1};
    struct fixture *f = *state;
    struct steps steps;
    uint32_t out[N_STEPS][N_SLOTS];
    open_ranks(f, in_place);
    for (int round = 0; round < 2; round++) {
        prepare_join(f);
        for (uint32_t i = 0; i < N_RANKS; i++) {
            f->ranks[i].comm.isa_level = 0;
            f->ranks[i].comm.n_blocks.ptr = few;
            begin(&f->ranks[i]);
        }
        for (uint32_t i = 0; i < N_RANKS; i++) {
            struct rank *r = &f->ranks[i];
            struct device *d = ((struct executor_model *)r->executor)->engine->device;
            assert_int_equal(end(r), STATUS_OK);
            assert_int_equal(d->ops->isa_level(d), 0);
        }
        /* The plan names a block beyond the lowest number. */
        for (uint32_t i = 0; i < N_RANKS; i++) {
            prepare_step(&f->ranks[i], &steps, 1);
            begin(&f->ranks[i]);
            assert_int_equal(end(&f->ranks[i]), STATUS_PROTOCOL);
        }
        abort_all(f);
        join_all(f);
        for (uint32_t i = 0; i < N_RANKS; i++) {
            struct executor *e = f->ranks[i].executor;
            struct device *d = ((struct executor_model *)e)->engine->device;
            assert_int_equal(d->ops->isa_level(d), e->ops->info(e)->isa_level);
        }
        run_steps(f, out);
        abort_all(f);
    }
}

static void wait_for_progress(struct executor *e, uint64_t from)
{
    while (atomic_load(&e->progress) == from)
        usleep(1000);
}

static void test_an_interrupt_ends_a_join_and_a_step(void **state)
{
    struct fixture *f = *state;
    uint32_t first[N_STEPS][N_SLOTS], again[N_STEPS][N_SLOTS];
    struct steps steps;
    open_ranks(f, in_place);
    join_all(f);
    run_steps(f, first);
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct rank *r = &f->ranks[i];
        struct executor *e = r->executor;
        for (int in_step = 0; in_step < 2; in_step++) {
            abort_all(f);
            prepare_join(f);
            if (in_step) {
                join_all(f);
                prepare_step(r, &steps, 1);
            }
            uint64_t progress = atomic_load(&e->progress);
            begin(r); /* the peer of this rank does nothing */
            wait_for_progress(e, progress);
            assert_false(r->done);
            e->ops->interrupt(e);
            if (end(r) != STATUS_CLOSED)
                fail_msg("rank %u: %s: %s", i, status_name(r->status), r->err.text);
        }
    }
    abort_all(f);
    join_all(f);
    run_steps(f, again);
    assert_memory_equal(again, first, sizeof first);
}

static void test_a_peer_that_leaves_fails_the_step(void **state)
{
    struct fixture *f = *state;
    struct steps steps;
    open_ranks(f, in_place);
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct rank *r = &f->ranks[i];
        struct executor *other = f->ranks[1 - i].executor;
        abort_all(f);
        join_all(f);
        prepare_step(r, &steps, 1);
        uint64_t progress = atomic_load(&r->executor->progress);
        begin(r);
        wait_for_progress(r->executor, progress);
        other->ops->abort_comm(other);
        enum status s = end(r);
        if (s == STATUS_OK || s == STATUS_CLOSED || s == STATUS_PROTOCOL)
            fail_msg("rank %u: %s: %s", i, status_name(s), r->err.text);
        assert_non_null(strstr(r->err.text, i == 0 ? "rank 1" : "rank 0"));
    }
}

/* ---- an impostor as rank 0 ---- */

struct impostor {
    struct fixture *f;
    struct comm *comm;
    /* numbers of steps, and of rows and sampled rows in each step */
    uint32_t n_steps, n_rows[2], n_sampled[2];
    uint32_t sent[2][6], n_sent[2]; /* ids and counts that the impostor sends last */
    bool best_only;                 /* all rows are greedy, so no logits are gathered */
    uint32_t pause_ms;              /* pause before these ids, in milliseconds */
    enum status joined, status;
};

static enum status pretend(struct impostor *p, uint32_t step)
{
    static float sums[N_PROMPT * N_SLOTS * TINY_HIDDEN], logits[TINY_VOCAB];
    struct error err = {0};
    memset(sums, 0, sizeof sums);
    for (uint32_t i = 0; i < 1 + 2 * TINY_LAYERS; i++) {
        /* this sum is after keys and values of the last layer */
        bool of_sampled = i + 2 > 2 * TINY_LAYERS;
        size_t n_rows = of_sampled ? p->n_sampled[step] : p->n_rows[step];
        TRY(comm_all_reduce(p->comm, sums, n_rows * TINY_HIDDEN, &err));
    }
    if (p->best_only) {
        static struct logits_top tops[N_RANKS][N_PROMPT];
        const size_t n_bytes = p->n_sampled[step] * sizeof **tops;
        const struct comm_part parts[N_RANKS] = {{tops[0], n_bytes}, {tops[1], n_bytes}};
        TRY(comm_gather(p->comm, 0, parts, &err));
    }
    for (uint32_t i = 0; !p->best_only && i < p->n_sampled[step]; i++) {
        /* the impostor has half of the vocabulary, in whole panels of 16 */
        const size_t own = 64 * sizeof *logits;
        const struct comm_part parts[N_RANKS] = {{logits, own}, {logits + 64, sizeof logits - own}};
        TRY(comm_gather(p->comm, 0, parts, &err));
    }
    usleep(p->pause_ms * 1000);
    return comm_broadcast(p->comm, 0, p->sent[step], p->n_sent[step] * sizeof(uint32_t), &err);
}

static void *run_impostor(void *arg)
{
    struct impostor *p = arg;
    struct error err = {0};
    const struct comm_group g = {.term_epoch = p->f->epoch,
                                 .rank = 0,
                                 .n_ranks = N_RANKS,
                                 .addresses = p->f->addresses,
                                 .id = {p->f->id, p->f->n_id}};
    p->joined = comm_join(p->comm, &g, &err);
    p->status = p->joined;
    for (uint32_t step = 0; p->status == STATUS_OK && step < p->n_steps; step++)
        p->status = pretend(p, step);
    return NULL;
}

static void impostor_open(struct impostor *p, struct fixture *f)
{
    struct error err = {0};
    const struct comm_options co = {.host = "127.0.0.1"};
    *p = (struct impostor){.f = f};
    assert_int_equal(comm_open(&co, &p->comm, &err), STATUS_OK);
}

/* Joins rank 1 to the impostor, which then executes its steps. */
static pthread_t impostor_begin(struct impostor *p)
{
    struct fixture *f = p->f;
    pthread_t thread;
    prepare_join(f);
    f->addresses[0] = str_from(comm_address(p->comm));
    assert_int_equal(pthread_create(&thread, NULL, run_impostor, p), 0);
    begin(&f->ranks[1]);
    assert_int_equal(end(&f->ranks[1]), STATUS_OK);
    return thread;
}

static void impostor_end(struct impostor *p, pthread_t thread)
{
    pthread_join(thread, NULL);
    assert_int_equal(p->status, STATUS_OK);
    comm_leave(p->comm);
    p->f->ranks[1].executor->ops->abort_comm(p->f->ranks[1].executor);
}

static void test_ids_outside_the_vocabulary(void **state)
{
    static const struct {
        uint32_t id;
        enum status want;
    } cases[] = {
        {TINY_VOCAB - 1, STATUS_OK}, {TINY_VOCAB, STATUS_INVALID}, {UINT32_MAX, STATUS_INVALID}};
    struct fixture *f = *state;
    struct impostor p;
    open_ranks(f, in_place);
    impostor_open(&p, f);
    struct rank *r = &f->ranks[1];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct steps steps;
        p.n_steps = 1;
        p.n_rows[0] = 3 * N_PROMPT - 3;
        p.n_sampled[0] = p.n_sent[0] = N_SLOTS;
        for (uint32_t k = 0; k < N_SLOTS; k++)
            p.sent[0][k] = cases[i].id;
        pthread_t thread = impostor_begin(&p);
        prepare_step(r, &steps, 1);
        begin(r);
        enum status s = end(r);
        impostor_end(&p, thread);
        if (s != cases[i].want)
            fail_msg("id %u: %s: %s", cases[i].id, status_name(s), r->err.text);
    }
    comm_close(p.comm);
}

/* A rank 0 that sends its sampled ids late makes the step long. The other rank's own time must
 * not grow, so that the head reports rank 0 as slow. */
static void test_waiting_for_ids_is_no_work(void **state)
{
    struct fixture *f = *state;
    struct impostor p;
    struct steps steps;
    open_ranks(f, in_place);
    impostor_open(&p, f);
    struct rank *r = &f->ranks[1];
    p.n_steps = 1;
    p.n_rows[0] = 3 * N_PROMPT - 3;
    p.n_sampled[0] = p.n_sent[0] = N_SLOTS;
    p.pause_ms = 1000;
    pthread_t thread = impostor_begin(&p);
    prepare_step(r, &steps, 1);
    begin(r);
    assert_int_equal(end(r), STATUS_OK);
    impostor_end(&p, thread);
    uint64_t own_ns = atomic_load(&r->executor->own_ns);
    assert_int_equal(atomic_load(&r->executor->own_steps), 1);
    assert_true(r->result.execute_ns > own_ns);
    assert_true(r->result.execute_ns - own_ns > p.pause_ms * NS_PER_MS / 2);
    comm_close(p.comm);
}

/* The prompt ends with the ids before AT, and the first step "samples" the id at AT. The second
 * step has the two ids after AT as draft tokens. */
static void test_what_rank_0_says_of_drafts(void **state)
{
    enum {
        AT = 6,
        DRAFT_TOKEN = ((AT + 1) * 7 + 3) % TINY_VOCAB,
        NEXT = ((AT + 2) * 7 + 3) % TINY_VOCAB
    };
    static const struct {
        const char *name;
        uint32_t ids[3], count;
        enum status want;
    } cases[] = {
        {"both right", {DRAFT_TOKEN, NEXT, 7}, 3, STATUS_OK},
        {"one right", {DRAFT_TOKEN, 7, 0}, 2, STATUS_OK},
        {"none right", {7, 0, 0}, 1, STATUS_OK},
        {"none counts", {DRAFT_TOKEN, NEXT, 7}, 0, STATUS_INVALID},
        {"more than there are places", {DRAFT_TOKEN, NEXT, 7}, 4, STATUS_INVALID},
        {"far more", {DRAFT_TOKEN, NEXT, 7}, UINT32_MAX, STATUS_INVALID},
        {"what was not drafted here", {7, 8, 0}, 2, STATUS_INVALID},
        {"no id", {DRAFT_TOKEN, TINY_VOCAB, 0}, 2, STATUS_INVALID},
    };
    struct fixture *f = *state;
    struct impostor p;
    for (uint32_t i = 0; i < N_RANKS; i++) {
        struct worker_options o = options(f, i);
        o.speculation = (struct speculation_options){.n_tokens = 2, .lookup_min = 1};
        arena_init(&f->ranks[i].arena, 0);
        f->ranks[i].executor = open_cpu(&o);
    }
    impostor_open(&p, f);
    struct rank *r = &f->ranks[1];
    p.best_only = true;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct steps steps;
        p.n_steps = 2;
        p.n_rows[0] = N_PROMPT;
        p.n_sampled[0] = p.n_sent[0] = 1;
        p.sent[0][0] = (AT * 7 + 3) % TINY_VOCAB;
        p.n_rows[1] = p.n_sampled[1] = 3;
        p.n_sent[1] = 4;
        memcpy(p.sent[1], cases[i].ids, sizeof cases[i].ids);
        p.sent[1][3] = cases[i].count;
        pthread_t thread = impostor_begin(&p);
        for (uint32_t step = 1; step <= 2; step++) {
            prepare_step(r, &steps, step);
            r->plan.n_runs = 1;
            r->plan.n_admits = step == 1;
            steps.admits[0].sampling.max_tokens = 8;
            memcpy(steps.ids + N_PROMPT - 4, steps.ids + AT - 4, 4 * sizeof *steps.ids);
            steps.runs[0].n_draft = step == 1 ? 0 : 2;
            begin(r);
            enum status s = end(r);
            if (s != (step == 1 ? STATUS_OK : cases[i].want))
                fail_msg("%s, step %u: %s: %s", cases[i].name, step, status_name(s), r->err.text);
        }
        const struct sequences *all = ((struct executor_model *)r->executor)->sequences;
        const struct sequence *q = sequences_find(all, 0);
        if (cases[i].want == STATUS_OK) {
            assert_int_equal(q->n_ids, N_PROMPT + 1 + cases[i].count);
            assert_int_equal(q->n_computed, N_PROMPT + cases[i].count);
            assert_memory_equal(q->ids + N_PROMPT + 1, cases[i].ids, cases[i].count * 4);
        }
        impostor_end(&p, thread);
    }
    comm_close(p.comm);
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_what_hello_will_say),
        TEST(test_what_cannot_be_opened),
        TEST(test_ranks_sample_the_same_in_any_order),
        TEST(test_the_best_of_the_ranks_is_the_best_of_all),
        TEST(test_a_rank_loads_the_shard_it_is_asked_for),
        TEST(test_an_interrupted_rank_has_its_shard_all_the_same),
        TEST(test_a_shard_that_cannot_be_read),
        TEST(test_joins_that_are_refused),
        TEST(test_an_id_is_of_one_formation),
        TEST(test_a_formation_sets_blocks_and_instructions),
        TEST(test_an_interrupt_ends_a_join_and_a_step),
        TEST(test_a_peer_that_leaves_fails_the_step),
        TEST(test_ids_outside_the_vocabulary),
        TEST(test_waiting_for_ids_is_no_work),
        TEST(test_what_rank_0_says_of_drafts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
