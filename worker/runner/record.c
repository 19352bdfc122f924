/* Records and replays small passes on a device (docs/develop/gpu.md, "Recorded passes").
 * runner.c and logits.c run pieces of work through runner_run_piece. A pass is padded to one of
 * few sizes, so that steps of similar size share a recording.
 * Invariants: a key identifies the enqueued work and all addresses that it uses. Padding rows
 * write no keys and values. With several ranks either all record or none does. A refusal on one
 * rank fails the step. A recording that was interrupted is dropped. */
#include "worker/runner/record.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/base/mem.h"
#include "worker/lora/rows.h"
#include "worker/runner/state.h"

/* `buckets` holds the sizes of recorded passes. Up to about 266 rows of bfloat16 on an H100 (798
 * TFLOP/s to 3.0 TB/s) the time is bound by reading weights, so padding costs only the rows'
 * activations. From 64 rows on, steps of 16 and then of 32 pad by at most 25 %, and by 8 % on
 * average. Each size means one or two recordings of a pass and up to four of samples. */
static const uint32_t buckets[] = {1,  2,  4,  8,   12,  16,  24,  32,  48,
                                   64, 80, 96, 112, 128, 160, 192, 224, RUNNER_RECORD_ROWS};

void runner_make_padding(struct runner *r)
{
    if (!r->ops->recording.begin || r->s.is_eager)
        return;
    r->pad_ids = mem_array(RUNNER_RECORD_ROWS, sizeof *r->pad_ids);
    r->pad_positions = mem_array(RUNNER_RECORD_ROWS, sizeof *r->pad_positions);
    r->pad_pending = mem_array(RUNNER_RECORD_ROWS, sizeof *r->pad_pending);
    r->pad_adapters = mem_array(RUNNER_RECORD_ROWS, sizeof *r->pad_adapters);
    for (uint32_t g = 0; g < r->s.program->n_kv_groups; g++)
        r->pad_kv_rows[g] = mem_array(RUNNER_RECORD_ROWS, sizeof *r->pad_kv_rows[g]);
}

void runner_free_padding(struct runner *r)
{
    mem_free(r->pad_ids);
    mem_free(r->pad_positions);
    mem_free(r->pad_pending);
    mem_free(r->pad_adapters);
    for (uint32_t g = 0; g < PROGRAM_MAX_KV_GROUPS; g++)
        mem_free(r->pad_kv_rows[g]);
}

/* Passes of a mixture with up to EXACT_ROWS rows are not padded, because every row, also a
 * padding row, may need experts of its own. */
enum { EXACT_ROWS = 16 };

/* Returns the size of the recording for n_rows <= RUNNER_RECORD_ROWS. */
static uint32_t bucket_of(const struct runner *r, uint32_t n_rows)
{
    uint32_t i = 0;
    if (r->s.program->config->moe.n_experts > 0 && n_rows <= EXACT_ROWS)
        return n_rows;
    while (buckets[i] < n_rows)
        i++;
    return buckets[i];
}

/* Mixes v into h with the finalizer of Splitmix64 (Steele et al. 2014). */
static uint64_t mix(uint64_t h, uint64_t v)
{
    h ^= v + 0x9e3779b97f4a7c15u;
    h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9u;
    h = (h ^ (h >> 27)) * 0x94d049bb133111ebu;
    return h ^ (h >> 31);
}

static bool is_recorded(const struct runner *r, uint32_t n_rows)
{
    return r->pad_ids && !r->is_eager && n_rows > 0 && n_rows <= RUNNER_RECORD_ROWS &&
           bucket_of(r, n_rows) <= r->s.pass_rows;
}

/* Returns true when the pass is worth a recording. A pass of more than 64 rows that contains a
 * prompt has different launches each time and would be recorded again and again. */
static bool is_recorded_pass(const struct runner *r, const struct row_batch *b)
{
    bool is = is_recorded(r, b->n_rows);
    for (uint32_t g = 0; is && g < r->s.program->n_kv_groups; g++)
        is = r->ops->recording.takes(r->s.device, b->kv_rows[g], b->n_rows);
    return is;
}

/* Returns the key of a pass: everything that decides its operators and the addresses that they
 * read. The runner is part of the key, since a device may have two. */
static uint64_t key_of(const struct runner *r, const struct row_batch *b)
{
    uint64_t key = mix((uintptr_t)r, b->n_rows);
    key = mix(key, b->pending ? (uintptr_t)b->last : 0);
    key = mix(key, r->has_adapters ? lora_set_digest(r->s.loras, b->adapters, b->n_rows) : 0);
    return key ? key : 1;
}

const struct row_batch *runner_pad(struct runner *r, const struct row_batch *b, uint64_t *key)
{
    uint32_t n = b->n_rows;
    *key = 0;
    if (!is_recorded_pass(r, b))
        return b;
    uint32_t bucket = bucket_of(r, n);
    r->padded = (struct row_batch){.n_rows = bucket,
                                   .ids = r->pad_ids,
                                   .positions = r->pad_positions,
                                   .pending = b->pending ? r->pad_pending : NULL,
                                   .last = b->last,
                                   .adapters = r->has_adapters ? r->pad_adapters : NULL};
    for (uint32_t i = 0; i < bucket; i++) {
        r->pad_ids[i] = i < n ? b->ids[i] : 0;
        r->pad_positions[i] = i < n ? b->positions[i] : 0;
        r->pad_pending[i] = i < n && b->pending ? b->pending[i] : UINT32_MAX;
        r->pad_adapters[i] = i < n && r->has_adapters ? b->adapters[i] : 0;
    }
    for (uint32_t g = 0; g < r->s.program->n_kv_groups; g++) {
        r->padded.kv_rows[g] = r->pad_kv_rows[g];
        for (uint32_t i = 0; i < bucket; i++)
            r->pad_kv_rows[g][i] =
                i < n ? b->kv_rows[g][i] : (struct kv_row){.position = KV_ROW_NONE};
    }
    *key = key_of(r, &r->padded);
    return &r->padded;
}

uint32_t runner_sample_rows(const struct runner *r, uint32_t n)
{
    return is_recorded(r, n) && bucket_of(r, n) <= r->ops->logits_rows ? bucket_of(r, n) : 0;
}

uint64_t runner_sample_key(const struct runner *r, uint32_t n, uint64_t key)
{
    return runner_sample_rows(r, n) && key ? mix(mix(mix((uintptr_t)r, ~(uint64_t)n), key), 1) | 1
                                           : 0;
}

/* ---- a piece of a step ---- */

/* Logs the refusal once. With several ranks it returns an error, since the piece must not run on
 * this rank alone. */
static enum status take_refusal(struct runner *r, const struct error *why, struct error *err)
{
    bool alone = !r->s.collectives;
    if (!r->told_of_refusal)
        log_warn(
            "graphs_refused", "rows=%u error=%s message=%s", r->n_rows, log_quote(why->text),
            log_quote(alone
                          ? "passes of this size now run without a CUDA graph, operator by operator"
                          : "from the next epoch on, the replica's passes run without CUDA graphs, "
                            "operator by operator"));
    r->told_of_refusal = true;
    if (alone)
        return STATUS_OK;
    return error_set(err, STATUS_IO, "this rank alone could not record a pass of %u rows: %.400s",
                     r->n_rows, why->text);
}

bool runner_refused_record(const struct runner *r)
{
    return r && r->told_of_refusal;
}

void runner_set_eager(struct runner *r, bool is_eager)
{
    r->is_eager = is_eager;
}

/* Ends a recording that began at begin_ns, runs it, and logs the first recording. Returns
 * RECORD_REFUSED when no part of it has run. */
static enum record_state end_record(struct runner *r, uint64_t key, uint64_t begin_ns,
                                    struct error *why)
{
    uint64_t before = r->ops->recording.bytes(r->s.device);
    if (r->ops->recording.end(r->s.device, key, true, why) == RECORD_REFUSED)
        return RECORD_REFUSED;
    uint64_t took = r->ops->recording.bytes(r->s.device) - before;
    double seconds = (double)(clock_mono_ns() - begin_ns) / (double)NS_PER_S;
    if (!r->told_of_records)
        log_info("graphs_captured",
                 "rows=%u message=\"Graph capturing finished in %.2f secs, took %.2f GiB\"",
                 r->n_rows, seconds, (double)took / (1 << 30));
    r->told_of_records = true;
    return RECORD_PLAYED;
}

static enum status run_refused(struct runner *r, const struct runner_piece *p,
                               const struct error *why, struct error *err)
{
    TRY(take_refusal(r, why, err));
    return p->run(r, p->ctx, err);
}

/* Records a piece and launches it. If the device refuses the recording, the piece is run
 * operator by operator. If an operator or collective fails, the recording is dropped and its
 * error is returned, unless the device had refused. */
static enum status record(struct runner *r, const struct runner_piece *p, uint64_t begin_ns,
                          struct error *err)
{
    enum status s = p->run(r, p->ctx, err);
    if (s == STATUS_CLOSED) {
        runner_drop_records(r);
        return s;
    }
    struct error why;
    enum record_state state = s == STATUS_OK
                                  ? end_record(r, p->key, begin_ns, &why)
                                  : r->ops->recording.end(r->s.device, p->key, false, &why);
    return state == RECORD_REFUSED ? run_refused(r, p, &why, err) : s;
}

enum status runner_run_piece(struct runner *r, const struct runner_piece *p, struct error *err)
{
    uint64_t begin_ns = clock_mono_ns();
    struct error why;
    enum record_state state =
        p->key ? r->ops->recording.begin(r->s.device, p->key, p->of_rows, &why) : RECORD_NONE;
    if (state == RECORD_PLAYED)
        return runner_interrupted(r) ? error_set(err, STATUS_CLOSED, "interrupted") : STATUS_OK;
    if (state == RECORD_BEGUN)
        return record(r, p, begin_ns, err);
    return state == RECORD_REFUSED ? run_refused(r, p, &why, err) : p->run(r, p->ctx, err);
}

void runner_drop_records(struct runner *r)
{
    if (r && r->ops->recording.drop)
        r->ops->recording.drop(r->s.device);
}
