/* Implements a minimal head for tests. It plans steps for a few streams on executors that are
 * threads of this process, with one step or two in flight. A test chooses draft tokens, chunks
 * and shared blocks by `struct way`. The output of each stream is kept bit for bit, for
 * comparison with another run. The tests include this file. `struct driver` owns executors and
 * streams; a fault ends the process. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/random.h"
#include "worker/executor/device/open.h"
#include "worker/executor/executor.h"

enum {
    DRIVER_RANKS = 4,
    DRIVER_STREAMS = 6,
    DRIVER_IDS = 512,
    DRIVER_OUT = 64,
    DRIVER_BLOCK = 16,
    DRIVER_TABLE = DRIVER_IDS / DRIVER_BLOCK,
    DRIVER_BLOCKS = 211, /* number of blocks; a prime, so that block ids are scattered */
    DRIVER_FLIGHT = 2
};
#define DRIVER_GROUPS 2

struct sampled_token {
    uint32_t id, n_logprobs, chosen_rank;
    float gap, logprob, second_logprob;
};

struct scored_id {
    uint32_t n, chosen_rank;
    float logprob, last_logprob;
};

struct stream {
    uint32_t ids[DRIVER_IDS], n_prompt, n_ids; /* ids that the head knows */
    struct sampling_params sampling;
    bool has_prompt_logprobs; /* `sampling` requests prompt_logprobs */
    /* The first `n_shared` ids of the prompt are in blocks of stream 0. `n_shared` is a multiple
     * of the block size. */
    uint32_t n_shared;
    uint32_t n_own; /* number of shared ids that this stream computes itself, in own blocks */
    struct sampled_token out[DRIVER_OUT];
    struct scored_id scored[DRIVER_IDS]; /* [n_prompt_logprobs] */
    uint32_t n_prompt_logprobs;
    /* The next fields are the state of the plans so far. */
    bool entered;
    uint32_t n_run;                  /* number of positions in plans; the device may have more */
    uint32_t n_given[DRIVER_GROUPS]; /* number of blocks so far, including dropped ones */
    uint32_t n_dropped[DRIVER_GROUPS];
    /* `n_samples` counts runs in flight that sample, and `n_drafts` their draft tokens. */
    uint32_t n_samples, n_drafts;
    uint32_t n_empty; /* number of runs that began after the sequence's end */
};

/* `way` is a test's choice of how streams run. */
struct way {
    uint32_t chunk;     /* tokens of a prompt in a step; 0 = all */
    uint32_t max_draft; /* each run gets 0 to max_draft draft tokens, at random */
    uint32_t n_flight;  /* steps in flight: 1 or 2 */
    uint64_t seed;
    bool share;      /* blocks are shared as the fields of the streams say */
    bool one_by_one; /* only one stream in each step */
};

struct driver_rank {
    struct executor *executor;
    const struct msg_plan *plan; /* plan to execute; NULL = join */
    struct executor_comm comm;
    struct arena arena;
    struct msg_result result;
    struct error err;
    enum status status;
};

struct flight {
    struct msg_plan plan;
    struct plan_admit admits[DRIVER_STREAMS];
    struct plan_run runs[DRIVER_STREAMS];
    struct plan_blocks blocks[DRIVER_STREAMS][DRIVER_GROUPS];
    uint32_t block_ids[DRIVER_STREAMS][DRIVER_GROUPS][DRIVER_TABLE];
    /* The next fields are for the runs that sample or have prompt_logprobs. */
    uint32_t i_streams[DRIVER_STREAMS], n_granted[DRIVER_STREAMS],
        n_prompt_logprobs[DRIVER_STREAMS];
    bool samples[DRIVER_STREAMS];
    uint32_t n_answers;
};

struct driver {
    uint32_t tp, pp, n_ranks;
    uint32_t n_open; /* open executors; the first n_ranks are in the group */
    struct driver_rank ranks[DRIVER_RANKS];
    struct sequences_limits limits;
    struct stream streams[DRIVER_STREAMS];
    uint32_t n_streams;
    uint64_t step, epoch, n_drafted, n_accepted;
    struct arena arenas[DRIVER_FLIGHT]; /* arenas for steps in halves */
    struct rng rng;
};

static void driver_die(const char *what, const char *text)
{
    fprintf(stderr, "%s: %s\n", what, text);
    abort();
}

/* ---- ranks ---- */

static void *driver_thread(void *arg)
{
    struct driver_rank *r = arg;
    const struct executor_ops *ops = r->executor->ops;
    arena_reset(&r->arena);
    r->status = r->plan ? ops->step(r->executor, r->plan, &r->arena, &r->result, &r->err)
                        : ops->join_comm(r->executor, &r->comm, &r->err);
    return NULL;
}

static void driver_run_ranks(struct driver *d, const char *what)
{
    pthread_t threads[DRIVER_RANKS];
    bool failed = false;
    for (uint32_t i = 0; i < d->n_ranks; i++)
        if (pthread_create(&threads[i], NULL, driver_thread, &d->ranks[i]) != 0)
            driver_die(what, "no thread");
    for (uint32_t i = 0; i < d->n_ranks; i++)
        pthread_join(threads[i], NULL);
    for (uint32_t i = 0; i < d->n_ranks; i++)
        if (d->ranks[i].status != STATUS_OK)
            failed = fprintf(stderr, "rank %u: %s\n", i, d->ranks[i].err.text) > 0;
    if (failed) /* Each rank printed its error, because a peer's may be the cause. */
        driver_die(what, "failed");
}

static void driver_join(struct driver *d)
{
    uint8_t id[COMM_ID_MAX_BYTES];
    uint32_t n = sizeof id, n_blocks[DRIVER_GROUPS] = {DRIVER_BLOCKS, DRIVER_BLOCKS};
    struct str addresses[DRIVER_RANKS];
    struct error err = {0};
    struct executor *first = d->ranks[0].executor;
    if (first->ops->make_comm_id(first, id, &n, &err) != STATUS_OK)
        driver_die("make_comm_id", err.text);
    d->epoch++;
    for (uint32_t i = 0; i < d->n_ranks; i++) {
        const struct executor_info *info = first->ops->info(d->ranks[i].executor);
        addresses[i] = info->comm_address;
        d->ranks[i].plan = NULL;
        d->ranks[i].comm = (struct executor_comm){.term_epoch = d->epoch,
                                                  .tp = d->tp,
                                                  .pp = d->pp,
                                                  .rank = i % d->tp,
                                                  .stage = i / d->tp,
                                                  .isa_level = info->isa_level,
                                                  .addresses = addresses,
                                                  .n_addresses = d->n_ranks,
                                                  .n_blocks = {n_blocks, d->limits.n_kv_groups},
                                                  .id = {id, n}};
    }
    driver_run_ranks(d, "join");
}

typedef enum status driver_open_fn(const struct worker_options *o, struct executor **out,
                                   struct error *err);

/* Opens and joins the ranks. The ranks have the options `o` with the driver's block size,
 * number of blocks and host, and differ only in their ordinal. */
static void driver_open_by(struct driver *d, const struct worker_options *o, driver_open_fn *open)
{
    *d = (struct driver){
        .tp = (uint32_t)o->tp, .pp = (uint32_t)o->pp, .n_ranks = (uint32_t)(o->tp * o->pp)};
    for (uint32_t i = 0; i < d->n_ranks; i++) {
        struct worker_options own = *o;
        struct error err = {0};
        own.ordinal = i;
        own.comm_host = "127.0.0.1";
        own.block_size = DRIVER_BLOCK;
        own.num_gpu_blocks_override = DRIVER_BLOCKS;
        arena_init(&d->ranks[i].arena, 0);
        if (open(&own, &d->ranks[i].executor, &err) != STATUS_OK)
            driver_die("open", err.text);
    }
    for (uint32_t i = 0; i < DRIVER_FLIGHT; i++)
        arena_init(&d->arenas[i], 0);
    d->limits = d->ranks[0].executor->ops->info(d->ranks[0].executor)->limits;
    if (d->limits.n_kv_groups > DRIVER_GROUPS)
        driver_die("open", "more KV groups than this test knows");
    d->n_open = d->n_ranks;
    driver_join(d);
}

/* Continues with the first executors at another TP, which each of them offers. */
static inline void driver_reshape(struct driver *d, uint32_t tp)
{
    for (uint32_t i = 0; i < d->n_open; i++)
        d->ranks[i].executor->ops->abort_comm(d->ranks[i].executor);
    d->tp = tp;
    d->n_ranks = tp * d->pp;
    driver_join(d);
}

static inline void driver_open(struct driver *d, const struct worker_options *o)
{
    driver_open_by(d, o, executor_open);
}

static void driver_close(struct driver *d)
{
    for (uint32_t i = 0; i < DRIVER_FLIGHT; i++)
        arena_fini(&d->arenas[i]);
    for (uint32_t i = 0; i < d->n_open; i++) {
        d->ranks[i].executor->ops->close(d->ranks[i].executor);
        arena_fini(&d->ranks[i].arena);
    }
}

/* ---- plans ---- */

static uint32_t driver_limit(const struct driver *d, const struct stream *s)
{
    uint32_t n = s->n_prompt + s->sampling.max_tokens;
    return n < d->limits.max_model_len ? n : d->limits.max_model_len;
}

/* Returns the id of a block. Another seed gives other ids, so blocks of an earlier run are never
 * useful. */
static uint32_t driver_block(const struct driver *d, const struct way *w, uint32_t i_stream,
                             uint32_t i_group, uint32_t i)
{
    const struct stream *s = &d->streams[i_stream];
    bool shared = w->share && i * DRIVER_BLOCK < s->n_shared && i * DRIVER_BLOCK >= s->n_own;
    uint32_t at = (shared ? 0 : i_stream) * DRIVER_TABLE + i;
    return (uint32_t)((at * (7 + i_group) + 31 * w->seed) % DRIVER_BLOCKS);
}

/* Adds blocks up to position `end` to the run, without those that a window has left or a hit
 * skips. */
static void driver_give(struct driver *d, const struct way *w, struct flight *f, uint32_t i_stream,
                        struct plan_run *r, uint32_t end)
{
    struct stream *s = &d->streams[i_stream];
    struct plan_blocks *out = f->blocks[f->plan.n_runs];
    r->blocks = out;
    for (uint32_t g = 0; g < d->limits.n_kv_groups; g++) {
        const struct kv_group *k = &d->limits.kv_groups[g];
        uint32_t *ids = f->block_ids[f->plan.n_runs][g];
        struct plan_blocks b = {.i_group = g, .ids = {ids, 0}};
        uint32_t n = (end + DRIVER_BLOCK - 1) / DRIVER_BLOCK;
        if (k->kind == KV_WINDOW && r->start >= k->window_tokens) {
            uint32_t gone = (r->start - k->window_tokens + 1) / DRIVER_BLOCK;
            b.drop_leading = gone - s->n_dropped[g];
            s->n_dropped[g] = gone;
            if (s->n_given[g] < gone)
                s->n_given[g] = gone;
        }
        while (s->n_given[g] < n)
            ids[b.ids.n++] = driver_block(d, w, i_stream, g, s->n_given[g]++);
        if (b.ids.n > 0 || b.drop_leading > 0)
            out[r->n_blocks++] = b;
    }
}

static void driver_plan_prompt(const struct way *w, struct stream *s, struct plan_run *r)
{
    if (w->share && s->n_run >= s->n_own && s->n_run < s->n_shared)
        s->n_run = s->n_shared;
    uint32_t end = w->share && s->n_run < s->n_own ? s->n_own : s->n_prompt;
    r->start = s->n_run;
    r->n_tokens = w->chunk && end - s->n_run > w->chunk ? w->chunk : end - s->n_run;
    r->sample = r->start + r->n_tokens == s->n_prompt;
    s->n_run += r->n_tokens;
}

static bool driver_plan_stream(struct driver *d, const struct way *w, struct flight *f,
                               uint32_t i_stream)
{
    struct stream *s = &d->streams[i_stream];
    struct plan_run r = {.slot = 10 + i_stream};
    uint32_t end, granted = 0;
    if (s->n_run < s->n_prompt) {
        driver_plan_prompt(w, s, &r);
        end = s->n_run;
    } else {
        /* fewest ids that the rank has when the step begins */
        uint32_t least = s->n_ids + s->n_samples;
        if (least >= driver_limit(d, s))
            return false;
        r = (struct plan_run){.slot = r.slot,
                              .start = least - 1,
                              .n_tokens = 1,
                              .sample = true,
                              .follows = s->n_drafts > 0};
        granted = (uint32_t)rng_below(&d->rng, w->max_draft + 1);
        r.n_draft = granted;
        end = least + s->n_drafts + granted;
    }
    driver_give(d, w, f, i_stream, &r, end);
    if (!s->entered) {
        struct plan_admit *a = &f->admits[f->plan.n_admits++];
        *a = (struct plan_admit){.slot = r.slot,
                                 .n_prompt = s->n_prompt,
                                 .n_computed = r.start,
                                 .ids = {s->ids, s->n_prompt},
                                 .sampling = s->sampling};
        if (!s->has_prompt_logprobs)
            a->sampling.n_prompt_logprobs = -1;
    }
    s->entered = true;
    uint32_t last = s->n_prompt - 1, n_left = r.start < last ? last - r.start : 0;
    uint32_t n_prompt_logprobs = !s->has_prompt_logprobs ? 0
                                 : r.n_tokens < n_left   ? r.n_tokens
                                                         : n_left;
    if (r.sample) {
        s->n_samples++;
        s->n_drafts += granted;
    }
    if (r.sample || n_prompt_logprobs > 0) {
        f->samples[f->n_answers] = r.sample;
        f->n_prompt_logprobs[f->n_answers] = n_prompt_logprobs;
        f->n_granted[f->n_answers] = granted;
        f->i_streams[f->n_answers++] = i_stream;
    }
    f->runs[f->plan.n_runs++] = r;
    return true;
}

static bool driver_plan(struct driver *d, const struct way *w, struct flight *f)
{
    *f = (struct flight){.plan = {.step = d->step + 1, .admits = f->admits, .runs = f->runs}};
    for (uint32_t i = 0; i < d->n_streams; i++)
        if (driver_plan_stream(d, w, f, i) && w->one_by_one)
            break;
    d->step += f->plan.n_runs > 0;
    return f->plan.n_runs > 0;
}

/* ---- results ---- */

/* Returns rank 0 of the last stage. */
static inline struct driver_rank *driver_sampling_rank(struct driver *d)
{
    return &d->ranks[(d->pp - 1) * d->tp];
}

static void driver_take_rows(struct stream *s, uint32_t n, const struct result_item *item)
{
    if (item->n_prompt_logprobs != n)
        driver_die("result", "not a row for each position that scores");
    for (uint32_t k = 0; k < n; k++) {
        const struct logprob_row *row = &item->prompt_logprobs[k];
        if (row->ids.n == 0 || row->values.n != row->ids.n ||
            row->ids.ptr[0] != s->ids[s->n_prompt_logprobs + 1])
            driver_die("result", "a row of another id");
        s->scored[s->n_prompt_logprobs++] = (struct scored_id){
            row->ids.n, row->chosen_rank, row->values.ptr[0], row->values.ptr[row->values.n - 1]};
    }
}

static void driver_take_item(struct driver *d, struct flight *f, uint32_t i,
                             const struct result_item *item)
{
    struct stream *s = &d->streams[f->i_streams[i]];
    driver_take_rows(s, f->n_prompt_logprobs[i], item);
    if (!f->samples[i]) {
        if (item->slot != 10 + f->i_streams[i] || item->ids.n + item->n_logprobs > 0)
            driver_die("result", "an item that is none of this run, which samples nothing");
        return;
    }
    s->n_samples--;
    s->n_drafts -= f->n_granted[i];
    bool logprobs = s->sampling.n_logprobs >= 0;
    if (item->slot != 10 + f->i_streams[i] || item->ids.n > f->n_granted[i] + 1 ||
        item->gaps.n != item->ids.n || item->n_logprobs != (logprobs ? item->ids.n : 0))
        driver_die("result", "an item that is none of this run");
    if (item->ids.n == 0 && s->n_ids < driver_limit(d, s))
        driver_die("result", "no ids before the end");
    s->n_empty += item->ids.n == 0;
    d->n_accepted += item->ids.n > 0 ? item->ids.n - 1 : 0;
    for (uint32_t k = 0; k < item->ids.n; k++) {
        struct sampled_token *t = &s->out[s->n_ids - s->n_prompt];
        if (s->n_ids == driver_limit(d, s))
            driver_die("result", "more ids than may be sampled");
        *t = (struct sampled_token){.id = item->ids.ptr[k], .gap = item->gaps.ptr[k]};
        if (logprobs) {
            const struct logprob_row *row = &item->logprobs[k];
            t->n_logprobs = row->ids.n;
            t->chosen_rank = row->chosen_rank;
            t->logprob = row->values.ptr[0];
            t->second_logprob = row->values.ptr[row->ids.n - 1];
        }
        s->ids[s->n_ids++] = item->ids.ptr[k];
    }
}

/* Begins a planned step at once on a rank whose device computes by itself. */
static void driver_begin(struct driver *d, struct flight *f)
{
    struct executor *e = d->ranks[0].executor;
    struct arena *arena = &d->arenas[f->plan.step % DRIVER_FLIGHT];
    struct error err;
    if (!e->in_halves)
        return;
    arena_reset(arena);
    if (e->ops->begin(e, &f->plan, arena, &err) != STATUS_OK)
        driver_die("begin", err.text);
}

static void driver_finish(struct driver *d)
{
    struct driver_rank *r = &d->ranks[0];
    (void)r->executor->ops->is_due(r->executor);
    if (r->executor->ops->finish(r->executor, &r->result, &r->err) != STATUS_OK)
        driver_die("finish", r->err.text);
}

static void driver_execute(struct driver *d, struct flight *f)
{
    for (uint32_t i = 0; i < d->n_ranks; i++)
        d->ranks[i].plan = &f->plan;
    if (d->ranks[0].executor->in_halves)
        driver_finish(d);
    else
        driver_run_ranks(d, "step");
    const struct msg_result *r = &driver_sampling_rank(d)->result;
    for (uint32_t i = 0; i < d->n_ranks; i++)
        if (d->ranks[i].result.n_items != (&d->ranks[i].result == r ? f->n_answers : 0))
            driver_die("result", "not an item for each run that samples or has prompt_logprobs, "
                                 "from the rank that does");
    d->n_drafted += r->n_drafted;
    for (uint32_t i = 0; i < f->n_answers; i++)
        driver_take_item(d, f, i, &r->items[i]);
}

/* Runs all streams from the start to their ends. */
static void driver_run(struct driver *d, const struct way *w)
{
    static struct flight flights[DRIVER_FLIGHT];
    uint32_t n = 0;
    struct error err = {0};
    for (uint32_t i = 0; i < d->n_ranks; i++)
        if (d->ranks[i].executor->ops->reset(d->ranks[i].executor, &err) != STATUS_OK)
            driver_die("reset", err.text);
    d->step = d->n_drafted = d->n_accepted = 0;
    d->rng.state = w->seed;
    for (uint32_t i = 0; i < d->n_streams; i++) {
        struct stream *s = &d->streams[i];
        s->n_ids = s->n_prompt;
        s->n_prompt_logprobs = 0;
        s->entered = false;
        s->n_run = s->n_samples = s->n_drafts = s->n_empty = 0;
        memset(s->n_given, 0, sizeof s->n_given);
        memset(s->n_dropped, 0, sizeof s->n_dropped);
        memset(s->out, 0, sizeof s->out);
        memset(s->scored, 0, sizeof s->scored);
    }
    for (;;) {
        while (n < w->n_flight && driver_plan(d, w, &flights[n]))
            driver_begin(d, &flights[n++]);
        if (n == 0)
            break;
        driver_execute(d, &flights[0]);
        if (--n > 0) { /* the plan's arrays move with its slot */
            flights[0] = flights[1];
            flights[0].plan.admits = flights[0].admits;
            flights[0].plan.runs = flights[0].runs;
            for (uint32_t i = 0; i < flights[0].plan.n_runs; i++) {
                flights[0].runs[i].blocks = flights[0].blocks[i];
                for (uint32_t g = 0; g < DRIVER_GROUPS; g++) {
                    struct plan_blocks *b = &flights[0].blocks[i][g];
                    b->ids.ptr = flights[0].block_ids[i][b->i_group];
                }
            }
        }
    }
}

/* Returns true if this build leaves out way `i_way` of model `i_model`: under sanitizers, which
 * take ten times as long, all but a third of the combinations, unless COX_WHOLE is set. Each
 * model and each way stays. Lists of models repeat their splits after three rows, with a window, so
 * the second term gives these rows other ways. */
static inline bool driver_leaves_out(size_t i_model, size_t i_way)
{
#ifdef COX_SANITIZED
    return !getenv("COX_WHOLE") && (i_model + i_model / 3 + i_way) % 3 != 0;
#else
    return false;
#endif
}

/* Runs the streams in way `w`. Ends the process unless their output equals `want` bit for bit. */
static inline void driver_must_give(struct driver *d, const char *model, const char *way,
                                    const struct way *w, const struct stream want[DRIVER_STREAMS])
{
    driver_run(d, w);
    for (uint32_t i = 0; i < d->n_streams; i++) {
        const struct stream *s = &d->streams[i];
        if (s->n_prompt_logprobs != want[i].n_prompt_logprobs ||
            memcmp(s->scored, want[i].scored, sizeof s->scored) != 0) {
            fprintf(stderr, "stream %u: the rows of its prompt are others\n", i);
            driver_die(model, way);
        }
        for (uint32_t k = 0; k < want[i].n_ids - want[i].n_prompt; k++) {
            if (s->n_ids == want[i].n_ids &&
                memcmp(&s->out[k], &want[i].out[k], sizeof s->out[k]) == 0)
                continue;
            fprintf(stderr, "stream %u of %u ids: token %u is %u, not %u\n", i, s->n_ids, k,
                    s->out[k].id, want[i].out[k].id);
            driver_die(model, way);
        }
    }
}
