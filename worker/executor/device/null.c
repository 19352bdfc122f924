/* Implements the null device (docs/develop/null-worker.md), which has real sequences and block
 * tables but no tensors. compute.c calls it like any executor. Each sampled token is a hash of
 * the sequence's ids. Every rank computes every token by this rule, so ranks need not
 * communicate. The communicator is only an id, which rank 0 compares with the id that it made.
 * Options can cause failures (a failed join, a hung step, a crash), so that recovery is tested
 * with the shipped binary. `mutex` guards `interrupted`; everything else belongs to the compute
 * thread after the opening. */
#include "worker/executor/device/null.h"

#include "worker/executor/device/null.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "common/base/random.h"
#include "common/host/host.h"
#include "common/model/info/info.h"
#include "common/model/info/open.h"
#include "proto/null_tokens.h"
#include "worker/draft/draft.h"
#include "worker/executor/device/null_kv.h"
#include "worker/kv/chunks.h"
#include "worker/setup/options.h"

enum {
    NULL_ID_BYTES = 16,
    NULL_BLOCKS_DEFAULT = 8192,
    NULL_BYTES_PER_TOKEN = 4,
    NULL_LOAD_PIECE_US = 1000,
    /* as a vocabulary size, NULL_DICE gives 10000 different tokens, a multiple of 100 */
    NULL_DICE = 1 << 20,
};
#define NULL_SLEEP_PIECE_NS (100 * NS_PER_MS)
#define NULL_LOGPROBS_MAX   64u

struct executor_null {
    struct executor base;
    struct executor_info info;
    struct model_info model;
    char *served_name;
    struct sequences *sequences;
    struct null_kv *kv;
    struct null_hash *hashes; /* [n_hashes] by slot; hash of the first `hashed` ids */
    uint32_t *hashed;         /* [n_hashes] by slot; ids hashed so far */
    uint32_t n_hashes;
    bool answers; /* true on the sampling rank: rank 0 of the last stage */
    /* id that this rank made; written by the loop thread before Join */
    uint8_t made_id[NULL_ID_BYTES];
    bool has_made_id;
    uint64_t step_ns, token_ns, debt_ns;
    uint64_t fail_joins, load_ms, stall_after, n_steps;
    uint32_t die_at_id; /* id that ends the process; 0 = none */
    struct speculation speculation;
    uint32_t draft_percent;
    pthread_mutex_t mutex; /* guards `interrupted` */
    pthread_cond_t wake;
    bool interrupted;
};

static struct executor_null *of(struct executor *e)
{
    return (struct executor_null *)e;
}

static const struct executor_info *null_info(const struct executor *e)
{
    return &((const struct executor_null *)e)->info;
}

static enum status null_make_comm_id(struct executor *e, uint8_t *out, uint32_t *n,
                                     struct error *err)
{
    struct executor_null *x = of(e);
    if (*n < NULL_ID_BYTES)
        return error_set(err, STATUS_LIMIT,
                         "the buffer for the communicator id is too small. Report this bug");
    random_secure(x->made_id, NULL_ID_BYTES);
    x->has_made_id = true;
    memcpy(out, x->made_id, NULL_ID_BYTES);
    *n = NULL_ID_BYTES;
    return STATUS_OK;
}

/* Sleeps for the time of --null-load-ms. Like the loading of a real shard, this loading cannot
 * be interrupted. */
static void load(struct executor_null *x)
{
    uint64_t begin_ns = clock_mono_ns(), all_ns = x->load_ms * NS_PER_MS, done_ns = 0;
    for (; done_ns < all_ns; done_ns = clock_mono_ns() - begin_ns) {
        atomic_store(&x->base.load_permille, 1 + (uint32_t)(999 * done_ns / all_ns));
        usleep(NULL_LOAD_PIECE_US);
    }
    atomic_store(&x->base.load_permille, 0);
}

/* Notes the level. The null device has no weights, and its KV cache is small. */
static enum status null_sleep(struct executor *e, enum sleep_level level, struct error *err)
{
    atomic_store(&e->sleep_level, (uint32_t)level);
    return STATUS_OK;
}

static enum status null_join_comm(struct executor *e, const struct executor_comm *c,
                                  struct error *err)
{
    struct executor_null *x = of(e);
    atomic_store(&e->sleep_level, SLEEP_LEVEL_AWAKE);
    load(x);
    if (x->fail_joins > 0) {
        x->fail_joins--;
        return error_set(err, STATUS_IO, "the join failed as requested by --null-fail-join");
    }
    if (c->id.n != NULL_ID_BYTES)
        return error_set(err, STATUS_INVALID,
                         "the communicator id has %u bytes instead of %d. Report this bug", c->id.n,
                         NULL_ID_BYTES);
    bool first = c->rank == 0 && c->stage == 0;
    if (first && (!x->has_made_id || memcmp(c->id.ptr, x->made_id, NULL_ID_BYTES) != 0))
        return error_set(
            err, STATUS_INVALID,
            "the communicator id differs from the id that rank 0 made. Report this bug");
    x->has_made_id = false;
    x->answers = c->rank == 0 && c->stage + 1 == c->pp;
    executor_bump(e);
    return sequences_reset(x->sequences, c->n_blocks, err);
}

static void null_abort_comm(struct executor *e)
{
    struct executor_null *x = of(e);
    struct error err;
    if (sequences_reset(x->sequences, (struct u32_span){0}, &err) != STATUS_OK)
        log_error("null_abort_failed", "error=%s", log_quote(err.text));
    pthread_mutex_lock(&x->mutex);
    x->interrupted = false;
    pthread_mutex_unlock(&x->mutex);
    x->debt_ns = 0;
}

static enum status null_reset(struct executor *e, struct error *err)
{
    return sequences_reset(of(e)->sequences, (struct u32_span){0}, err);
}

static void null_interrupt(struct executor *e)
{
    struct executor_null *x = of(e);
    pthread_mutex_lock(&x->mutex);
    x->interrupted = true;
    pthread_cond_broadcast(&x->wake);
    pthread_mutex_unlock(&x->mutex);
}

/* Sleeps until the deadline and reports progress after each piece if show_progress is set.
 * Returns false when interrupted. */
static bool sleep_until(struct executor_null *x, uint64_t deadline_ns, bool show_progress)
{
    pthread_mutex_lock(&x->mutex);
    uint64_t now = clock_mono_ns();
    while (!x->interrupted && now < deadline_ns) {
        uint64_t until =
            deadline_ns - now > NULL_SLEEP_PIECE_NS ? now + NULL_SLEEP_PIECE_NS : deadline_ns;
        struct timespec t = {(time_t)(until / NS_PER_S), (long)(until % NS_PER_S)};
        pthread_cond_timedwait(&x->wake, &x->mutex, &t);
        if (show_progress)
            executor_bump(&x->base);
        now = clock_mono_ns();
    }
    bool ok = !x->interrupted;
    pthread_mutex_unlock(&x->mutex);
    return ok;
}

/* Sleeps for the time that the step should take. A remainder too short for a sleep is added to
 * later steps (debt_ns), so the mean is right. */
static bool spend_time(struct executor_null *x, struct sequence_runs runs, uint64_t started_ns)
{
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < runs.n; i++)
        n_tokens += runs.ptr[i].n_tokens + runs.ptr[i].n_drafted;
    uint64_t cost_ns = x->step_ns + x->token_ns * n_tokens + x->debt_ns;
    uint64_t now = clock_mono_ns();
    x->debt_ns = 0;
    if (started_ns + cost_ns <= now)
        return true;
    if (started_ns + cost_ns - now < 20 * NS_PER_US) {
        x->debt_ns = started_ns + cost_ns - now;
        return true;
    }
    return sleep_until(x, started_ns + cost_ns, true);
}

static bool grow_hashes(struct executor_null *x, uint32_t slot)
{
    if (slot < x->n_hashes)
        return true;
    uint32_t want = x->n_hashes ? x->n_hashes : 64;
    while (want <= slot)
        want *= 2;
    struct null_hash *hashes = mem_try_array(want, sizeof *hashes);
    uint32_t *hashed = mem_try_array(want, sizeof *hashed);
    if (!hashes || !hashed) {
        mem_free(hashes);
        mem_free(hashed);
        return false;
    }
    if (x->n_hashes > 0) {
        memcpy(hashes, x->hashes, x->n_hashes * sizeof *hashes);
        memcpy(hashed, x->hashed, x->n_hashes * sizeof *hashed);
    }
    mem_free(x->hashes);
    mem_free(x->hashed);
    x->hashes = hashes;
    x->hashed = hashed;
    x->n_hashes = want;
    return true;
}

/* Returns the hash of all ids of the sequence. */
static const struct null_hash *hash_of(struct executor_null *x, const struct sequence *q)
{
    struct null_hash *h = &x->hashes[q->slot];
    const struct sampling_params *sp = &q->sampling;
    if (x->hashed[q->slot] == 0)
        null_hash_init(h, sp->seed, sp->i_prompt, sp->i_choice, sp->temperature);
    for (uint32_t i = x->hashed[q->slot]; i < q->n_ids; i++)
        null_hash_push(h, q->ids[i]);
    x->hashed[q->slot] = q->n_ids;
    return h;
}

/* Makes draft tokens for --null-draft-percent. Hashed tokens never repeat, so n-grams would find
 * none. The draft tokens are the tokens that will be sampled. A hash decides for each of them
 * whether a wrong token replaces it. */
static void propose_by_rule(struct executor_null *x, struct sequence_run *r)
{
    struct sequence *q = r->q;
    struct null_hash h = *hash_of(x, q);
    uint32_t k = x->speculation.n_tokens;
    r->n_drafted = r->n_draft < k ? r->n_draft : k;
    for (uint32_t i = 0; i < r->n_drafted; i++) {
        uint32_t id = null_hash_token(&h, x->info.limits.vocab_size);
        null_hash_push(&h, id);
        struct null_hash dice = h;
        null_hash_push(&dice, UINT32_MAX);
        bool right = null_hash_token(&dice, NULL_DICE) % 100 < x->draft_percent;
        q->ids[q->n_ids + i] = right ? id : id ^ 1;
    }
}

static enum status draft_token(struct executor_null *x, struct sequence_runs runs,
                               struct error *err)
{
    if (x->draft_percent == 0 || x->speculation.n_tokens == 0)
        return draft_runs(&x->speculation, runs, err);
    for (uint32_t i = 0; i < runs.n; i++)
        if (runs.ptr[i].n_draft > 0)
            propose_by_rule(x, &runs.ptr[i]);
    return STATUS_OK;
}

/* Fills in the log-probabilities of the chosen id and of k candidates. Each of them gets
 * log(1/(k+1)). The candidates are the chosen id and the ids after it
 * (docs/develop/null-worker.md). */
static bool fill_logprobs(const struct executor_null *x, uint32_t token, int32_t k_asked,
                          struct arena *arena, struct logprob_row *row)
{
    uint32_t k = (uint32_t)k_asked > NULL_LOGPROBS_MAX ? NULL_LOGPROBS_MAX : (uint32_t)k_asked;
    uint32_t *ids = arena_try_array(arena, k + 1, sizeof *ids);
    float *values = arena_try_array(arena, k + 1, sizeof *values);
    if (!ids || !values)
        return false;
    for (uint32_t i = 0; i <= k; i++) {
        /* The first entry is the chosen id; then follow the top k, whose first id is the chosen
         * id again. */
        ids[i] = i == 0 ? token : (token + i - 1) % x->info.limits.vocab_size;
        values[i] = -logf((float)(k + 1));
    }
    *row = (struct logprob_row){.ids = {ids, k + 1}, .values = {values, k + 1}, .chosen_rank = 1};
    return true;
}

/* Makes a row from a hash of the prompt's ids up to `id` (docs/develop/null-worker.md). */
static bool prompt_logprob_of(const struct null_hash *h, uint32_t id, uint32_t k,
                              uint32_t vocab_size, struct arena *arena, struct logprob_row *row)
{
    uint32_t *ids = arena_try_array(arena, k + 1, sizeof *ids);
    float *values = arena_try_array(arena, k + 1, sizeof *values);
    if (!ids || !values)
        return false;
    uint32_t rank = null_hash_token(h, 1) - 96; /* rank from 1 to 26 */
    ids[0] = id;
    values[0] = -(float)rank / 8;
    for (uint32_t i = 1; i <= k; i++) {
        ids[i] = (id + vocab_size + i - rank) % vocab_size;
        values[i] = -(float)i / 8;
    }
    *row = (struct logprob_row){.ids = {ids, k + 1}, .values = {values, k + 1}, rank};
    return true;
}

static enum status prompt_logprobs_of_run(const struct executor_null *x,
                                          const struct sequence_run *r, struct arena *arena,
                                          struct result_item *item, struct error *err)
{
    const struct sequence *q = r->q;
    uint32_t n = sequence_run_n_prompt_logprobs(r), k = (uint32_t)q->sampling.n_prompt_logprobs;
    if (n == 0)
        return STATUS_OK;
    struct logprob_row *rows = arena_try_array(arena, n, sizeof *rows);
    struct null_hash h;
    null_hash_init(&h, 0, 0, 0, 0);
    for (uint32_t i = 0; i <= r->start; i++)
        null_hash_push(&h, q->ids[i]);
    k = k < NULL_LOGPROBS_MAX ? k : NULL_LOGPROBS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t id = q->ids[r->start + i + 1];
        null_hash_push(&h, id);
        if (!rows || !prompt_logprob_of(&h, id, k, x->info.limits.vocab_size, arena, &rows[i]))
            return error_set(
                err, STATUS_NO_MEMORY,
                "not enough memory for log-probabilities. Free memory on this machine");
    }
    item->prompt_logprobs = rows;
    item->n_prompt_logprobs = n;
    return STATUS_OK;
}

/* Makes a vector with one element for each of the lowest eight bits. An element is the bit of
 * the last id, or the bit's mean over all ids. */
static bool fill_vector(const struct sequence *q, struct arena *arena, struct f32_span *out)
{
    enum { N = 8 };
    bool mean = q->sampling.pooling == POOLING_MEAN;
    float *v = arena_try_array(arena, N, sizeof *v);
    for (uint32_t k = 0; v && k < N; k++) {
        uint32_t n = 0, first = mean ? 0 : q->n_prompt - 1;
        for (uint32_t i = first; i < q->n_prompt; i++)
            n += q->ids[i] >> k & 1;
        v[k] = (float)n / (float)(q->n_prompt - first);
    }
    *out = (struct f32_span){v, N};
    return v != NULL;
}

/* Samples one token after each draft token and one more, but stops at the first that differs
 * from its draft token. */
static enum status answer_run(struct executor_null *x, const struct sequence_run *r,
                              struct arena *arena, struct result_item *item, struct error *err)
{
    struct sequence *q = r->q;
    uint32_t n_max = r->n_drafted + 1, n = 0;
    int32_t k = q->sampling.n_logprobs;
    uint32_t *ids = arena_try_array(arena, n_max, sizeof *ids);
    float *gaps = arena_try_array(arena, n_max, sizeof *gaps);
    struct logprob_row *rows = k >= 0 ? arena_try_array(arena, n_max, sizeof *rows) : NULL;
    if (!ids || !gaps || (k >= 0 && !rows))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for a result. Free memory on this machine");
    for (bool right = true; right && n < n_max; n++) {
        ids[n] = null_hash_token(hash_of(x, q), x->info.limits.vocab_size);
        gaps[n] = 1.0f;
        right = n < r->n_drafted && q->ids[q->n_ids] == ids[n];
        if (!sequence_push(q, ids[n], x->info.limits.max_model_len))
            return error_set(
                err, STATUS_NO_MEMORY,
                "not enough memory for the ids of slot %u. Free memory on this machine", q->slot);
        if (rows && !fill_logprobs(x, ids[n], k, arena, &rows[n]))
            return error_set(
                err, STATUS_NO_MEMORY,
                "not enough memory for log-probabilities. Free memory on this machine");
    }
    *item = (struct result_item){.slot = q->slot,
                                 .ids = {ids, n},
                                 .logprobs = rows,
                                 .n_logprobs = rows ? n : 0,
                                 .gaps = {gaps, n}};
    if (q->sampling.pooling != POOLING_NONE && !fill_vector(q, arena, &item->vector))
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for the vector of slot %u. Free memory on this machine",
                         q->slot);
    return STATUS_OK;
}

/* Makes an item for every run that samples or has prompt_logprobs, in the plan's order. The item
 * of a run whose sequence has ended has no ids. */
static enum status answer_runs(struct executor_null *x, struct sequence_runs runs,
                               struct arena *arena, struct msg_result *out, struct error *err)
{
    struct result_item *items = arena_try_array(arena, runs.n ? runs.n : 1, sizeof *items);
    if (!items)
        return error_set(err, STATUS_NO_MEMORY,
                         "not enough memory for %u results. Free memory on this machine", runs.n);
    uint32_t n = 0;
    for (uint32_t i = 0; i < runs.n; i++) {
        const struct sequence_run *r = &runs.ptr[i];
        executor_bump(&x->base);
        out->n_drafted += r->n_drafted;
        items[n] = (struct result_item){.slot = r->q->slot};
        if (r->sample && r->n_tokens > 0)
            TRY(answer_run(x, r, arena, &items[n], err));
        TRY(prompt_logprobs_of_run(x, r, arena, &items[n], err));
        n += r->sample || items[n].n_prompt_logprobs > 0;
    }
    if (x->answers) {
        out->items = items;
        out->n_items = n;
    }
    return STATUS_OK;
}

/* Kills the process when a prompt contains --null-die-at-id. This simulates a request that
 * triggers a fault of the program or the machine. */
static void die_if_told(const struct executor_null *x, const struct msg_plan *p)
{
    for (uint32_t i = 0; x->die_at_id && i < p->n_admits; i++) {
        for (uint32_t k = 0; k < p->admits[i].ids.n; k++) {
            if (p->admits[i].ids.ptr[k] != x->die_at_id)
                continue;
            log_warn("null_die", "step=%llu slot=%u", (unsigned long long)p->step,
                     p->admits[i].slot);
            raise(SIGKILL);
        }
    }
}

static enum status null_step(struct executor *e, const struct msg_plan *p, struct arena *arena,
                             struct msg_result *out, struct error *err)
{
    struct executor_null *x = of(e);
    uint64_t started_ns = clock_mono_ns();
    TRY(sequences_apply(x->sequences, p, err));
    die_if_told(x, p);
    for (uint32_t i = 0; i < p->n_admits; i++) {
        if (!grow_hashes(x, p->admits[i].slot))
            return error_set(err, STATUS_NO_MEMORY,
                             "not enough memory for slot %u. Free memory on this machine",
                             p->admits[i].slot);
        x->hashed[p->admits[i].slot] = 0;
    }
    if (x->stall_after > 0 && x->n_steps == x->stall_after) {
        x->stall_after = 0;
        log_warn("null_stall", "step=%llu", (unsigned long long)p->step);
        (void)sleep_until(x, UINT64_MAX / 2, false);
    }
    struct sequence_runs runs = sequences_runs(x->sequences);
    TRY(null_kv_run(x->kv, p, runs, err));
    *out = (struct msg_result){.term_epoch = p->term_epoch, .step = p->step};
    TRY(draft_token(x, runs, err));
    TRY(answer_runs(x, runs, arena, out, err));
    null_kv_sampled(x->kv, runs);
    if (!spend_time(x, runs, started_ns))
        return error_set(err, STATUS_CLOSED, "interrupted");
    x->n_steps++;
    executor_bump(e);
    out->execute_ns = clock_mono_ns() - started_ns;
    executor_worked(e, out->execute_ns);
    return STATUS_OK;
}

/* Succeeds without loading anything. */
static enum status null_adapter(struct executor *e, struct msg_adapter *m, struct error *err)
{
    executor_bump(e);
    return STATUS_OK;
}

static bool null_view(const struct executor *e, struct kv_view *out)
{
    null_kv_view(((const struct executor_null *)e)->kv, out);
    return true;
}

static void null_close(struct executor *e)
{
    struct executor_null *x = of(e);
    null_kv_free(x->kv);
    sequences_free(x->sequences);
    model_info_fini(&x->model);
    mem_free(x->served_name);
    mem_free(x->hashes);
    mem_free(x->hashed);
    pthread_cond_destroy(&x->wake);
    pthread_mutex_destroy(&x->mutex);
    mem_free(x);
}

static const struct executor_ops null_ops = {
    .info = null_info,
    .make_comm_id = null_make_comm_id,
    .join_comm = null_join_comm,
    .sleep = null_sleep,
    .abort_comm = null_abort_comm,
    .reset = null_reset,
    .step = null_step,
    .adapter = null_adapter,
    .kv_view = null_view,
    .interrupt = null_interrupt,
    .close = null_close,
};

/* Computes the size of the KV cache, which has 4 bytes per token and real block numbers. */
static void size_kv(struct executor_info *info, const struct worker_options *o)
{
    uint64_t block_bytes = (uint64_t)o->block_size * NULL_BYTES_PER_TOKEN;
    uint64_t one =
        (info->limits.max_model_len + (uint64_t)o->block_size - 1) / (uint64_t)o->block_size;
    uint64_t n = 2 * one > NULL_BLOCKS_DEFAULT ? 2 * one : NULL_BLOCKS_DEFAULT;
    if (o->kv_cache_memory_bytes > 0)
        n = (uint64_t)o->kv_cache_memory_bytes / block_bytes;
    if (o->num_gpu_blocks_override > 0)
        n = (uint64_t)o->num_gpu_blocks_override;
    if (n > 1u << 30)
        n = 1u << 30;
    info->limits.n_kv_groups = 1;
    info->limits.kv_groups[0] = (struct kv_group){.kind = KV_FULL,
                                                  .block_tokens = (uint32_t)o->block_size,
                                                  .bytes_per_block = block_bytes,
                                                  .n_blocks = (uint32_t)n};
    info->kv_bytes = n * block_bytes;
    info->comm_bytes = o->kv_port < 0 ? 0 : kv_chunks_memory_bytes();
}

/* Offers every TP that divides this device's TP, since every rank computes everything. */
static void offer_smaller(struct executor_info *info, const struct worker_options *o)
{
    uint32_t n_blocks = info->limits.kv_groups[0].n_blocks;
    uint32_t block_bytes = (uint32_t)info->limits.kv_groups[0].bytes_per_block;
    if (o->null_elastic_blocks > 0 && (uint64_t)o->null_elastic_blocks < n_blocks)
        n_blocks = (uint32_t)o->null_elastic_blocks;
    for (int64_t tp = o->tp - 1; o->elastic_tp && tp > 0 && info->n_elastic < PROTO_MAX_ELASTIC;
         tp--) {
        if (o->tp % tp == 0)
            info->elastic[info->n_elastic++] =
                (struct executor_shape){(uint32_t)tp, {n_blocks}, {block_bytes}};
    }
}

static enum status fill_info(struct executor_null *x, const struct worker_options *o,
                             struct error *err)
{
    struct executor_info *info = &x->info;
    struct sequences_limits *l = &info->limits;
    l->max_model_len = o->max_model_len ? (uint32_t)o->max_model_len : x->model.max_model_len;
    l->vocab_size = o->vocab_size ? (uint32_t)o->vocab_size : x->model.vocab_size;
    if (l->max_model_len < 2 || l->vocab_size < 128)
        return error_set(err, STATUS_INVALID,
                         "the null device needs a --max-model-len of at least 2 and a vocabulary "
                         "of at least 128, but they are %u and %u",
                         l->max_model_len, l->vocab_size);
    size_kv(info, o);
    if (l->kv_groups[0].n_blocks == 0)
        return error_set(
            err, STATUS_INVALID,
            "--kv-cache-memory-bytes %lld is too small: one block has %llu bytes. Raise the option",
            (long long)o->kv_cache_memory_bytes,
            (unsigned long long)l->kv_groups[0].bytes_per_block);
    offer_smaller(info, o);
    info->device = DEVICE_NULL;
    info->device_name = STR("null");
    info->n_draft = x->speculation.n_tokens;
    info->draft_max_seqs = x->speculation.max_seqs;
    info->model = str_from(x->served_name);
    info->memory_bytes = host_memory_bytes();
    const struct config_identity identity = {.model_hashes = str_from(x->model.name),
                                             .dtype = "null",
                                             .quantisation = "none",
                                             .kv_dtype = "null",
                                             .block_size = (uint32_t)o->block_size,
                                             .tp = (uint32_t)o->tp,
                                             .pp = (uint32_t)o->pp,
                                             .max_model_len = l->max_model_len,
                                             .vocab_size = l->vocab_size,
                                             .speculation = x->speculation};
    executor_config_hash(&identity, info->config_hash);
    executor_model_hash(&identity, info->model_hash);
    return STATUS_OK;
}

static enum status open_model(struct executor_null *x, const struct worker_options *o,
                              struct error *err)
{
    TRY(model_info_open(o->model, o->cache_dir, &x->model, err));
    x->served_name = mem_strdup(worker_options_name(o, x->model.name));
    return fill_info(x, o, err);
}

enum status executor_null_open(const struct worker_options *o, struct executor **out,
                               struct error *err)
{
    struct executor_null *x = mem_zalloc(sizeof *x);
    x->base.ops = &null_ops;
    x->base.shard_rank = x->base.shard_stage = -1;
    pthread_mutex_init(&x->mutex, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&x->wake, &attr);
    pthread_condattr_destroy(&attr);
    x->step_ns = (uint64_t)o->null_step_us * NS_PER_US;
    x->token_ns = (uint64_t)o->null_token_us * NS_PER_US;
    x->fail_joins = (uint64_t)o->null_fail_join;
    x->load_ms = (uint64_t)o->null_load_ms;
    x->stall_after = (uint64_t)o->null_stall_after_step;
    x->die_at_id = (uint32_t)o->null_die_at_id;
    x->draft_percent = (uint32_t)o->null_draft_percent;
    enum status s = speculation_read(&o->speculation, &x->speculation, err);
    if (s == STATUS_OK && x->speculation.method == SPECULATION_DRAFT_MODEL)
        s = error_set(
            err, STATUS_UNSUPPORTED,
            "draft model %s: the null device cannot run a model. Use --spec-method ngram instead",
            x->speculation.model);
    if (s == STATUS_OK)
        s = open_model(x, o, err);
    if (s == STATUS_OK) {
        const struct kv_group *g = &x->info.limits.kv_groups[0];
        x->kv = null_kv_new(g->n_blocks, g->block_tokens);
        if (!x->kv)
            s = error_set(err, STATUS_NO_MEMORY,
                          "not enough memory for %u blocks. Free memory on this machine",
                          g->n_blocks);
    }
    if (s != STATUS_OK) {
        null_close(&x->base);
        return s;
    }
    x->sequences = sequences_new(&x->info.limits);
    *out = &x->base;
    return STATUS_OK;
}
