/* Runs the engines of all ranks of a replica in one process (golden_ranks.h), for the golden
 * programs. Each rank has a thread that waits for a call: on_all sets `fn` and its arguments,
 * wakes the threads, and waits until all have run it. The ranks' collectives use a communicator
 * over shared memory or sockets. With one rank the caller's thread runs the call itself; with
 * GPUs this process has only its own rank.
 * `mutex` guards the call and its result. When a rank fails, the others' collectives are
 * interrupted, and the first error is returned. The first n of the n_all opened ranks take part;
 * the others wait for golden_ranks_reshape. */
#include "tests/golden/golden_ranks.h"

#include <pthread.h>
#include <string.h>

#include "common/base/mem.h"
#include "tests/golden/golden_gpus.h"
#include "worker/comm/stages.h"
#include "worker/runner/logits.h"

struct rank;
typedef enum status rank_fn(struct rank *r, struct error *err);

struct rank {
    struct golden_ranks *group;
    /* place in the communicator; after golden_ranks_turn it differs from the rank's index */
    struct comm_place place;
    struct engine *engine;
    struct comm *comm;
    struct comm_stages comms;
    struct collectives_comm collectives;
    pthread_t thread;
    bool has_thread;
    float *logits;
};

struct golden_ranks {
    struct engine_setup setup;
    uint32_t n, tp, pp;
    uint32_t n_all; /* number of ranks that were opened; the first n of them serve */
    bool sockets;
    /* communicator of ranks on GPUs; if set, this process has only ranks[0] */
    struct golden_gpus *gpus;
    struct rank ranks[COMM_MAX_RANKS];
    /* `mutex` guards the call that all threads run now. */
    pthread_mutex_t mutex;
    pthread_cond_t begin, end;
    rank_fn *fn; /* function of the call; NULL = the threads end */
    uint64_t n_begun;
    uint32_t n_running;
    enum status status; /* status of the first rank that failed */
    struct error error;
    /* The following fields are the arguments of the call. */
    uint64_t term_epoch;
    uint8_t id[COMM_ID_BYTES];
    struct str addresses[COMM_MAX_RANKS]; /* address of each rank */
    const struct row_batch *batch;
    const uint32_t *rows;
    uint32_t n_rows;
};

/* Interrupts the ranks that wait for a failed rank, so that they end too. */
static void give_up(struct golden_ranks *g, enum status s, const struct error *err)
{
    if (g->status == STATUS_OK) {
        g->status = s;
        g->error = *err;
    }
    for (uint32_t i = 0; i < g->n; i++)
        if (g->ranks[i].comm)
            comm_interrupt(g->ranks[i].comm);
}

static void *rank_thread(void *arg)
{
    struct rank *r = arg;
    struct golden_ranks *g = r->group;
    pthread_mutex_lock(&g->mutex);
    for (uint64_t n_seen = 0;; n_seen++) {
        while (g->n_begun == n_seen)
            pthread_cond_wait(&g->begin, &g->mutex);
        rank_fn *fn = g->fn;
        if (!fn)
            break;
        struct error err = {0};
        pthread_mutex_unlock(&g->mutex);
        bool is_in = (uint32_t)(r - g->ranks) < g->n;
        enum status s = is_in ? fn(r, &err) : STATUS_OK;
        pthread_mutex_lock(&g->mutex);
        if (s != STATUS_OK)
            give_up(g, s, &err);
        if (--g->n_running == 0)
            pthread_cond_signal(&g->end);
    }
    pthread_mutex_unlock(&g->mutex);
    return NULL;
}

static void begin(struct golden_ranks *g, rank_fn *fn)
{
    g->fn = fn;
    g->n_running = g->n_all;
    g->n_begun++;
    g->status = STATUS_OK;
    pthread_cond_broadcast(&g->begin);
}

static enum status on_all(struct golden_ranks *g, rank_fn *fn, struct error *err)
{
    if (g->n_all == 1)
        return fn(&g->ranks[0], err);
    pthread_mutex_lock(&g->mutex);
    begin(g, fn);
    while (g->n_running > 0)
        pthread_cond_wait(&g->end, &g->mutex);
    enum status s = g->status;
    if (s != STATUS_OK)
        *err = g->error;
    pthread_mutex_unlock(&g->mutex);
    return s;
}

/* ---- calls of one rank ---- */

static enum status open_rank(struct rank *r, struct error *err)
{
    struct engine_setup s = r->group->setup;
    s.rank = r->place.rank;
    s.stage = r->place.stage;
    s.collectives = r->comm ? &r->collectives.base : NULL;
    if (r->group->gpus)
        s.collectives = golden_gpus_collectives(r->group->gpus);
    return engine_open(&s, &r->engine, err);
}

static enum status join_rank(struct rank *r, struct error *err)
{
    struct golden_ranks *g = r->group;
    comm_leave(r->comm);
    return comm_stages_join(&r->comms, &r->place,
                            &(struct comm_group){.term_epoch = g->term_epoch,
                                                 .rank = comm_place_position(&r->place),
                                                 .n_ranks = g->n,
                                                 .addresses = g->addresses,
                                                 .id = {g->id, sizeof g->id}},
                            err);
}

static enum status take_rank(struct rank *r, struct error *err)
{
    return engine_take_rank(r->engine, r->place.tp, r->place.rank, r->place.stage, err);
}

static enum status forward(struct rank *r, struct error *err)
{
    return runner_forward(r->engine->runner, r->group->batch, err);
}

static enum status logits(struct rank *r, struct error *err)
{
    const struct golden_ranks *g = r->group;
    r->logits = NULL;
    if (r->place.stage + 1 < g->pp)
        return STATUS_OK;
    TRY(runner_logits(r->engine->runner, g->rows, g->n_rows, &r->logits, err));
    return r->logits ? runner_read_logits(r->engine->runner, 0, g->n_rows, &r->logits, err)
                     : STATUS_OK;
}

/* ---- all ranks ---- */

static enum status join_all(struct golden_ranks *g, struct error *err)
{
    if (g->n == 1)
        return STATUS_OK;
    comm_make_id(g->id);
    g->term_epoch++;
    for (uint32_t i = 0; i < g->n; i++)
        g->addresses[comm_place_position(&g->ranks[i].place)] =
            str_from(comm_address(g->ranks[i].comm));
    return on_all(g, join_rank, err);
}

static enum status open_all(struct golden_ranks *g, struct error *err)
{
    for (uint32_t i = 0; i < g->n; i++) {
        struct rank *r = &g->ranks[i];
        *r = (struct rank){.group = g, .place = {g->tp, g->pp, i % g->tp, i / g->tp}};
        if (g->n == 1)
            continue;
        const struct comm_options o = {
            .host = "127.0.0.1", .progress = g->setup.progress, .no_shared_memory = g->sockets};
        TRY(comm_open(&o, &r->comm, err));
        TRY(comm_stages_open(r->comm, g->tp, g->pp, &r->comms, err));
        collectives_comm_init(&r->collectives, &r->comms);
        if (pthread_create(&r->thread, NULL, rank_thread, r) != 0)
            __builtin_trap();
        r->has_thread = true;
    }
    TRY(on_all(g, open_rank, err));
    return join_all(g, err);
}

/* Opens this process's rank on its GPU. */
static enum status open_gpu(struct golden_ranks *g, struct error *err)
{
    g->ranks[0] = (struct rank){.group = g, .place = golden_gpus_place()};
    TRY(golden_gpus_open(&g->gpus, err));
    TRY(open_rank(&g->ranks[0], err));
    return golden_gpus_join(g->gpus, err);
}

enum status golden_ranks_open(const struct engine_setup *setup, bool sockets,
                              struct golden_ranks **out, struct error *err)
{
    uint32_t pp = setup->pp ? setup->pp : 1;
    if (setup->tp > COMM_MAX_RANKS / pp)
        return error_set(err, STATUS_LIMIT, "--tp %u --pp %u", setup->tp, pp);
    struct golden_ranks *g = mem_zalloc(sizeof *g);
    g->setup = *setup;
    g->tp = setup->tp;
    g->pp = pp;
    /* a device that golden_gpus_use did not name has only one rank */
    if (setup->device && !golden_gpus_has(setup->device))
        g->setup.tp = g->setup.pp = g->tp = g->pp = 1;
    bool on_gpus = golden_gpus_has(setup->device);
    g->n = g->n_all = on_gpus ? 1 : g->tp * g->pp;
    g->sockets = sockets;
    pthread_mutex_init(&g->mutex, NULL);
    pthread_cond_init(&g->begin, NULL);
    pthread_cond_init(&g->end, NULL);
    enum status s = on_gpus ? open_gpu(g, err) : open_all(g, err);
    /* the ranks must have one dtype, because the head would form no replica of ranks with
     * different dtypes */
    for (uint32_t i = 1; s == STATUS_OK && i < g->n; i++)
        if (g->ranks[i].engine->main_dtype != g->ranks[0].engine->main_dtype)
            s = error_set(err, STATUS_INTERNAL, "ranks 0 and %u: most weights are of other types",
                          i);
    if (s != STATUS_OK) {
        golden_ranks_close(g);
        return s;
    }
    *out = g;
    return STATUS_OK;
}

void golden_ranks_close(struct golden_ranks *g)
{
    if (!g)
        return;
    pthread_mutex_lock(&g->mutex);
    begin(g, NULL);
    pthread_mutex_unlock(&g->mutex);
    golden_gpus_leave(g->gpus, g->ranks[0].engine);
    for (uint32_t i = 0; i < g->n_all; i++) {
        if (g->ranks[i].has_thread)
            pthread_join(g->ranks[i].thread, NULL);
        engine_close(g->ranks[i].engine);
        comm_close(g->ranks[i].comm);
    }
    pthread_mutex_destroy(&g->mutex);
    pthread_cond_destroy(&g->begin);
    pthread_cond_destroy(&g->end);
    mem_free(g);
}

struct engine *golden_ranks_engine(const struct golden_ranks *g, uint32_t i)
{
    return g->ranks[i].engine;
}

struct comm *golden_ranks_comm(const struct golden_ranks *g, uint32_t i)
{
    return g->ranks[i].comm;
}

enum status golden_ranks_load(struct golden_ranks *g, uint64_t id, const char *folder,
                              uint32_t *adapter, struct error *err)
{
    for (uint32_t i = 0; i < g->n; i++)
        TRY(lora_set_load(g->ranks[i].engine->loras, id, folder, NULL, err));
    *adapter = lora_set_find(g->ranks[0].engine->loras, id);
    return STATUS_OK;
}

enum status golden_ranks_forward(struct golden_ranks *g, const struct row_batch *b,
                                 struct error *err)
{
    g->batch = b;
    TRY(on_all(g, forward, err));
    for (uint32_t i = 1; i < g->n; i++) {
        uint32_t first = i / g->tp * g->tp, n_rows = b->n_rows;
        /* the last stage has only the kept rows, at the front of the buffer */
        if (b->kept && i / g->tp + 1 == g->n / g->tp)
            n_rows = b->n_kept;
        struct view x = runner_hidden(g->ranks[first].engine->runner);
        struct view y = runner_hidden(g->ranks[i].engine->runner);
        if (memcmp(x.data, y.data, (size_t)n_rows * x.stride * sizeof(float)) != 0)
            return error_set(err, STATUS_INTERNAL, "rank %u has other hidden states than rank %u",
                             comm_place_position(&g->ranks[i].place),
                             comm_place_position(&g->ranks[first].place));
    }
    return STATUS_OK;
}

enum status golden_ranks_logits(struct golden_ranks *g, const uint32_t *rows, uint32_t n,
                                float **out, struct error *err)
{
    g->rows = rows;
    g->n_rows = n;
    TRY(on_all(g, logits, err));
    for (uint32_t i = 0; i < g->n; i++) {
        struct rank *r = &g->ranks[i];
        if ((r->logits != NULL) != comm_place_samples(&r->place))
            return error_set(err, STATUS_INTERNAL, "rank %u of %u has %s logits",
                             comm_place_position(&r->place), g->n, r->logits ? "" : "no");
        if (r->logits)
            *out = r->logits;
    }
    if (g->gpus)
        *out = golden_gpus_share(g->ranks[0].logits,
                                 (size_t)n * g->ranks[0].engine->config.vocab_size);
    return STATUS_OK;
}

static enum status leave_rank(struct rank *r, struct error *err)
{
    (void)err;
    comm_leave(r->comm);
    return STATUS_OK;
}

enum status golden_ranks_reshape(struct golden_ranks *g, uint32_t tp, struct error *err)
{
    TRY(on_all(g, leave_rank, err));
    g->tp = tp;
    g->n = tp * g->pp;
    for (uint32_t i = 0; i < g->n; i++) {
        g->ranks[i].place = (struct comm_place){tp, g->pp, i % tp, i / tp};
        g->ranks[i].comms.sampling_rank = (g->pp - 1) * tp;
    }
    TRY(on_all(g, take_rank, err));
    return join_all(g, err);
}

enum status golden_ranks_turn_stages(struct golden_ranks *g, uint32_t by, struct error *err)
{
    for (uint32_t i = 0; i < g->n; i++)
        g->ranks[i].place.stage = (i / g->tp + by) % g->pp;
    TRY(on_all(g, take_rank, err));
    return join_all(g, err);
}

enum status golden_ranks_turn(struct golden_ranks *g, uint32_t by, struct error *err)
{
    for (uint32_t i = 0; i < g->n; i++)
        g->ranks[i].place.rank = (i + by) % g->tp;
    TRY(on_all(g, take_rank, err));
    return join_all(g, err);
}
