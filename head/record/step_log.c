/* Writes the step log's events; format.h has the format.
 *
 * core/, routing/ and state/ call one function per event, before the call that the event
 * describes. Events are written to the payload of an open chunk; `step_log_flush` seals it at
 * the end of a turn and passes it to the sink.
 *
 * Invariants: everything runs on the loop thread. After the sink fails, nothing more is logged.
 * A step without a plan, the usual end of a turn, is only counted. The count is written before
 * the next event of its replica. `step_log_last_words` must stay async-signal-safe. */
#include "head/record/step_log.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/base/mem.h"
#include "common/base/version.h"
#include "head/record/format.h"
#include "head/request/prompt_logprobs.h"

enum {
    V = STEP_LOG_VARINT_MAX,
    EVENT_BYTES = 1 + 6 * V,
    REPLICA_BYTES = 16 * V,
    KV_GROUP_BYTES = 5 * V,
    REQUEST_BYTES = 33 * V,
    RESULT_BYTES = 7 * V,
    ITEM_BYTES = 2 * V, /* most bytes of an item, more than STEP_LOG_PAIR_ROOM */
    ID_BYTES = 5,
    KEEP_BYTES = 1 << 20, /* a larger buffer is freed after a burst */
};

struct replica_log {
    bool up;
    uint64_t n_idle, idle_ns;
    /* `step_at` is the start of the last step_log_step, and the fields below are the values
     * before it. */
    size_t step_at;
    uint64_t step_ns, before_step_ns, before_step_n_idle, before_step_idle_ns;
};

struct step_log {
    struct step_log_sink sink;
    struct step_log_out out; /* buffer that begins with the chunk's header */
    struct replica_log *replicas;
    uint32_t n_replicas, n_up;
    uint64_t i_chunk, wall_offset_ns, last_ns;
    bool ended, told; /* ended: the sink accepts no more bytes; told: the owner has been notified */
    struct error why;
};

/* ---- chunks ---- */

static void open_chunk(struct step_log *l)
{
    step_log_room(&l->out, STEP_LOG_HEAD_BYTES);
    l->out.n += STEP_LOG_HEAD_BYTES;
}

static void begin(struct step_log *l)
{
    const char version[] = COX_VERSION;
    l->out.n = 0;
    l->i_chunk = l->last_ns = 0;
    l->ended = l->told = false;
    memcpy(step_log_room(&l->out, STEP_LOG_MAGIC_BYTES), STEP_LOG_MAGIC, STEP_LOG_MAGIC_BYTES);
    l->out.n += STEP_LOG_MAGIC_BYTES;
    open_chunk(l);
    uint8_t *p = step_log_room(&l->out, EVENT_BYTES + sizeof version);
    *p++ = STEP_LOG_START;
    p = step_log_put_varint(p, sizeof version - 1);
    memcpy(p, version, sizeof version - 1);
    p = step_log_put_varint(p + sizeof version - 1, l->wall_offset_ns);
    l->out.n = (size_t)(p - l->out.bytes);
}

/* Returns the offset of the chunk's header. The magic precedes the first chunk. */
static size_t head_at(const struct step_log *l)
{
    return l->i_chunk == 0 ? STEP_LOG_MAGIC_BYTES : 0;
}

static void seal(struct step_log *l)
{
    size_t at = head_at(l);
    step_log_seal(l->out.bytes + at, (uint32_t)(l->out.n - at - STEP_LOG_HEAD_BYTES), l->i_chunk);
}

struct step_log *step_log_new(const struct step_log_sink *sink, uint64_t wall_offset_ns)
{
    struct step_log *l = mem_zalloc(sizeof *l);
    l->sink = *sink;
    l->wall_offset_ns = wall_offset_ns;
    begin(l);
    return l;
}

void step_log_free(struct step_log *l)
{
    if (!l)
        return;
    step_log_out_fini(&l->out);
    mem_free(l->replicas);
    mem_free(l);
}

static void hand_over(struct step_log *l)
{
    if (l->ended || l->out.n == head_at(l) + STEP_LOG_HEAD_BYTES)
        return;
    seal(l);
    struct str bytes = {(const char *)l->out.bytes, l->out.n};
    l->ended = l->sink.write(l->sink.ctx, bytes, &l->why) != STATUS_OK;
    if (l->out.cap > KEEP_BYTES)
        step_log_out_fini(&l->out);
    l->out.n = 0;
    l->i_chunk++;
    open_chunk(l);
}

bool step_log_flush(struct step_log *l, struct error *err)
{
    if (!l)
        return true;
    hand_over(l);
    if (!l->ended || l->told)
        return true;
    l->told = true;
    *err = l->why;
    return false;
}

struct str step_log_last_words(struct step_log *l)
{
    size_t at = head_at(l);
    if (l->ended || l->out.n <= at + STEP_LOG_HEAD_BYTES)
        return (struct str){"", 0};
    seal(l);
    return (struct str){(const char *)l->out.bytes, l->out.n};
}

/* ---- events ---- */

static struct replica_log *replica_of(struct step_log *l, uint32_t i_replica)
{
    assert(i_replica < STEP_LOG_MAX_REPLICAS);
    if (i_replica >= l->n_replicas) {
        uint32_t n = i_replica + 1;
        l->replicas = mem_realloc(l->replicas, n * sizeof *l->replicas);
        memset(l->replicas + l->n_replicas, 0, (n - l->n_replicas) * sizeof *l->replicas);
        l->n_replicas = n;
    }
    return &l->replicas[i_replica];
}

static uint8_t *put_time(struct step_log *l, uint8_t *p, uint64_t now_ns)
{
    p = step_log_put_varint(p, step_log_zigzag((int64_t)(now_ns - l->last_ns)));
    l->last_ns = now_ns;
    return p;
}

/* Reserves buffer space for an event of a replica and writes kind and replica. Counted idle
 * steps are written before it. */
static uint8_t *put_event(struct step_log *l, uint32_t i_replica, enum step_log_kind kind, size_t n)
{
    struct replica_log *g = replica_of(l, i_replica);
    uint8_t *p = step_log_room(&l->out, (size_t)2 * EVENT_BYTES + n);
    if (g->n_idle > 0) {
        *p++ = STEP_LOG_IDLE;
        p = step_log_put_varint(p, i_replica);
        p = step_log_put_varint(p, g->n_idle);
        p = put_time(l, p, g->idle_ns);
        g->n_idle = 0;
    }
    *p++ = (uint8_t)kind;
    return step_log_put_varint(p, i_replica);
}

static void end_event(struct step_log *l, const uint8_t *p)
{
    l->out.n = (size_t)(p - l->out.bytes);
    assert(l->out.n <= l->out.cap);
}

static uint8_t *put_config(uint8_t *p, const struct scheduler_config *c)
{
    const uint64_t fields[] = {c->max_num_batched_tokens,
                               c->max_num_seqs,
                               c->max_waiting,
                               c->long_prefill_token_threshold,
                               c->max_partial_prefills,
                               c->max_model_len,
                               c->depth,
                               c->n_draft,
                               c->draft_max_seqs,
                               c->step_target_ns,
                               c->enable_prefix_caching ? STEP_LOG_PREFIX_CACHING : 0,
                               c->n_kv_groups};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        p = step_log_put_varint(p, fields[i]);
    for (uint32_t i = 0; i < c->n_kv_groups; i++) {
        const struct kv_group *k = &c->kv_groups[i];
        p = step_log_put_varint(p, k->kind);
        p = step_log_put_varint(p, k->window_tokens);
        p = step_log_put_varint(p, k->block_tokens);
        p = step_log_put_varint(p, k->bytes_per_block);
        p = step_log_put_varint(p, k->n_blocks);
    }
    return p;
}

void step_log_replica(struct step_log *l, uint32_t i_replica, uint64_t id, uint64_t term_epoch,
                      const struct scheduler_config *c)
{
    if (!l)
        return;
    if (l->n_up == 0) {
        hand_over(l);
        if (l->sink.restart && l->sink.restart(l->sink.ctx))
            begin(l);
    }
    struct replica_log *g = replica_of(l, i_replica);
    l->n_up += !g->up;
    *g = (struct replica_log){.up = true};
    if (l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_REPLICA,
                           REPLICA_BYTES + SCHEDULER_MAX_KV_GROUPS * KV_GROUP_BYTES);
    p = step_log_put_varint(p, id);
    p = step_log_put_varint(p, term_epoch);
    end_event(l, put_config(p, c));
}

static uint8_t *put_u64(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
    return p + sizeof v;
}

static uint8_t *put_ids(uint8_t *p, struct u32_span ids)
{
    p = step_log_put_varint(p, ids.n);
    for (uint32_t i = 0; i < ids.n; i++)
        p = step_log_put_varint(p, ids.ptr[i]);
    return p;
}

static uint32_t kept_name(const struct sampling_params *s)
{
    const uint32_t most = STEP_LOG_MAX_NAME - STEP_LOG_LORA_ID_BYTES;
    return s->lora.len < most ? (uint32_t)s->lora.len : most;
}

/* Writes the adapter's name, then a line break (which no name contains) and the id. */
static uint8_t *put_adapter(uint8_t *p, const struct sampling_params *s)
{
    char id[STEP_LOG_LORA_ID_BYTES + 1] = "";
    uint32_t n = kept_name(s);
    if (s->lora_id != 0)
        snprintf(id, sizeof id, "\n%016llx", (unsigned long long)s->lora_id);
    size_t n_id = strlen(id);
    p = step_log_put_varint(p, n + n_id);
    if (n > 0)
        memcpy(p, s->lora.ptr, n);
    memcpy(p + n, id, n_id); /* NOLINT(bugprone-not-null-terminated-result): bytes, not a text */
    return p + n + n_id;
}

/* Writes the sampling parameters that a scheduler may read, without the lists and texts that it
 * never reads. */
static uint8_t *put_sampling(uint8_t *p, const struct request *r)
{
    const struct sampling_params *s = &r->sampling;
    const float floats[] = {
        s->temperature,       s->top_p, s->min_p, s->presence_penalty, s->frequency_penalty,
        s->repetition_penalty};
    memcpy(p, floats, sizeof floats);
    p = put_u64(p + sizeof floats, s->seed);
    p = step_log_put_varint(p, step_log_zigzag(s->top_k));
    p = step_log_put_varint(p, s->i_prompt);
    p = step_log_put_varint(p, s->i_choice);
    p = step_log_put_varint(p, step_log_zigzag(s->n_logprobs));
    /* POOLING_MEAN forbids prefix hits, as prompt_logprobs do; a replay needs only that */
    int32_t whole = s->n_prompt_logprobs;
    if (s->pooling == POOLING_MEAN || (whole >= 0 && !request_asks_prompt_logprobs(r)))
        whole = INT32_MAX;
    p = step_log_put_varint(p, step_log_zigzag(whole));
    p = step_log_put_varint(p, s->max_tokens);
    p = step_log_put_varint(p, s->min_tokens);
    p = step_log_put_varint(p, s->grammar_kind);
    p = put_ids(p, s->eos_ids);
    p = put_ids(p, s->stop_ids);
    return put_adapter(p, s);
}

static size_t request_bytes(const struct request *r)
{
    const struct sampling_params *s = &r->sampling;
    size_t n_ids = (size_t)r->n_ids + s->eos_ids.n + s->stop_ids.n;
    return REQUEST_BYTES + STEP_LOG_MAX_NAME + n_ids * ID_BYTES;
}

/* Returns the part of request_sampling_bytes that put_sampling writes. */
static uint64_t kept_bytes(const struct sampling_params *s)
{
    return ((uint64_t)s->eos_ids.n + s->stop_ids.n) * sizeof(uint32_t) + kept_name(s);
}

static uint8_t *put_request(uint8_t *p, const struct request *r)
{
    const uint64_t fixed[] = {r->id.hi, r->id.lo, r->tenant, r->salt.lo, r->salt.hi};
    memcpy(p, fixed, sizeof fixed);
    p += sizeof fixed;
    const uint64_t fields[] = {r->arrival_seq,
                               r->i_choice,
                               step_log_zigzag(r->priority),
                               (r->resubmitted ? STEP_LOG_RESUBMITTED : 0) |
                                   (r->state == REQUEST_PREEMPTED ? STEP_LOG_PREEMPTED : 0),
                               r->arrival_ns,
                               r->deadline_ns,
                               r->first_token_ns,
                               r->scheduled_ns,
                               r->n_prompt,
                               r->ids_cap,
                               r->n_cached,
                               r->finish,
                               r->stop_id,
                               request_sampling_bytes(r) - kept_bytes(&r->sampling)};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        p = step_log_put_varint(p, fields[i]);
    p = put_ids(p, (struct u32_span){r->ids, r->n_ids});
    return put_sampling(p, r);
}

void step_log_add(struct step_log *l, uint32_t i_replica, const struct request *r, uint64_t now_ns)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_ADD, request_bytes(r));
    p = put_time(l, p, now_ns);
    end_event(l, put_request(p, r));
}

void step_log_refused(struct step_log *l, uint32_t i_replica, enum status status)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_REFUSED, V);
    end_event(l, step_log_put_varint(p, status));
}

void step_log_remove(struct step_log *l, uint32_t i_replica, const struct request *r)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_REMOVE, V);
    end_event(l, step_log_put_varint(p, r->arrival_seq));
}

void step_log_step(struct step_log *l, uint32_t i_replica, uint64_t now_ns)
{
    if (!l || l->ended)
        return;
    struct replica_log *g = replica_of(l, i_replica);
    g->step_at = l->out.n;
    g->before_step_ns = l->last_ns;
    g->before_step_n_idle = g->n_idle;
    g->before_step_idle_ns = g->idle_ns;
    g->step_ns = now_ns;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_STEP, V);
    end_event(l, put_time(l, p, now_ns));
}

void step_log_plan(struct step_log *l, uint32_t i_replica, const struct msg_plan *plan)
{
    if (!l || l->ended)
        return;
    struct replica_log *g = replica_of(l, i_replica);
    if (!plan) {
        l->out.n = g->step_at;
        l->last_ns = g->before_step_ns;
        g->n_idle = g->before_step_n_idle + 1;
        g->idle_ns = g->step_ns;
        return;
    }
    uint8_t *p = put_event(l, i_replica, STEP_LOG_PLAN, sizeof(uint32_t));
    end_event(l, p + sizeof(uint32_t));
    size_t begins = l->out.n;
    step_log_put_plan(&l->out, plan);
    uint32_t n = (uint32_t)(l->out.n - begins);
    memcpy(l->out.bytes + begins - sizeof n, &n, sizeof n);
}

/* Returns true when a replay needs the item. A replay makes no prompt_logprobs, so an item with
 * only those is left out. */
static bool is_replayed(const struct result_item *x)
{
    return x->ids.n > 0 || x->n_prompt_logprobs == 0;
}

static uint32_t n_replayed(const struct msg_result *m)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < m->n_items; i++)
        n += is_replayed(&m->items[i]);
    return n;
}

/* Returns how the answer ends because of its mask: 0 = it does not, 1 = dead end, 2 = the mask
 * cost too much. */
static uint8_t end_of(const struct result_item *x)
{
    float gap = x->gaps.n > 0 ? x->gaps.ptr[x->gaps.n - 1] : 0;
    return gap < 0 ? (gap > RESULT_MASK_COST ? 1 : 2) : 0;
}

static bool is_masked(const struct result_item *x)
{
    return x->mask_units > 0 || end_of(x) > 0;
}

/* Writes an item that is not a plain pair, after reserving buffer space for its ids. */
static uint8_t *put_other(struct step_log *l, uint8_t *p, const struct result_item *x,
                          uint32_t n_left)
{
    end_event(l, p);
    p = step_log_room(&l->out, (size_t)(n_left + 1) * ITEM_BYTES + (size_t)x->ids.n * ID_BYTES);
    if (is_masked(x)) {
        *p++ = STEP_LOG_MASKED;
        p = step_log_put_varint(p, x->mask_units);
        *p++ = end_of(x);
    } else {
        *p++ = STEP_LOG_OTHER;
    }
    p = step_log_put_varint(p, x->slot);
    return put_ids(p, x->ids);
}

void step_log_result(struct step_log *l, uint32_t i_replica, const struct msg_result *m,
                     uint64_t now_ns)
{
    if (!l || l->ended)
        return;
    uint8_t *p =
        put_event(l, i_replica, STEP_LOG_RESULT, RESULT_BYTES + (size_t)m->n_items * ITEM_BYTES);
    p = put_time(l, p, now_ns);
    p = step_log_put_varint(p, m->term_epoch);
    p = step_log_put_varint(p, m->step);
    p = step_log_put_varint(p, m->execute_ns);
    p = step_log_put_varint(p, m->wait_ns);
    p = step_log_put_varint(p, m->n_drafted);
    p = step_log_put_varint(p, n_replayed(m));
    for (uint32_t i = 0; i < m->n_items; i++) {
        const struct result_item *x = &m->items[i];
        if (!is_replayed(x))
            continue;
        if (x->ids.n == 1 && !is_masked(x) && step_log_is_pair(x->slot, x->ids.ptr[0]))
            p = step_log_put_pair(p, x->slot, x->ids.ptr[0]);
        else
            p = put_other(l, p, x, m->n_items - i);
    }
    end_event(l, p);
}

void step_log_done(struct step_log *l, uint32_t i_replica, enum status status,
                   const struct scheduler_event *events, uint32_t n_events)
{
    if (!l || l->ended)
        return;
    uint32_t n_ended = 0, n_told = 0;
    for (uint32_t i = 0; i < n_events; i++) {
        n_ended += events[i].ended;
        /* the condition selects the same items as is_replayed */
        n_told += events[i].ended || events[i].n_new > 0;
    }
    uint8_t *p = put_event(l, i_replica, STEP_LOG_DONE, (size_t)3 * V);
    p = step_log_put_varint(p, status);
    p = step_log_put_varint(p, n_told);
    end_event(l, step_log_put_varint(p, n_ended));
}

void step_log_ended(struct step_log *l, uint32_t i_replica, const struct request *r)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_ENDED, (size_t)2 * V);
    p = step_log_put_varint(p, r->arrival_seq);
    end_event(l, step_log_put_varint(p, r->finish));
}

void step_log_down(struct step_log *l, uint32_t i_replica)
{
    if (!l)
        return;
    if (!l->ended)
        end_event(l, put_event(l, i_replica, STEP_LOG_DOWN, 0));
    struct replica_log *g = replica_of(l, i_replica);
    l->n_up -= g->up;
    *g = (struct replica_log){0};
}

/* ---- moves ---- */

void step_log_hold(struct step_log *l, uint32_t i_replica, const struct request *r,
                   uint32_t n_tokens, uint64_t id)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_HOLD, (size_t)3 * V);
    p = step_log_put_varint(p, id);
    p = step_log_put_varint(p, n_tokens);
    end_event(l, step_log_put_varint(p, r->arrival_seq));
}

void step_log_import(struct step_log *l, uint32_t i_replica, const struct request *r,
                     uint32_t n_tokens, uint64_t id)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, STEP_LOG_IMPORT, 2 * (size_t)V + request_bytes(r));
    p = step_log_put_varint(p, id);
    p = step_log_put_varint(p, n_tokens);
    end_event(l, put_request(p, r));
}

static void put_one(struct step_log *l, uint32_t i_replica, enum step_log_kind kind, uint64_t v)
{
    if (!l || l->ended)
        return;
    uint8_t *p = put_event(l, i_replica, kind, V);
    end_event(l, step_log_put_varint(p, v));
}

void step_log_imported(struct step_log *l, uint32_t i_replica, uint64_t id)
{
    put_one(l, i_replica, STEP_LOG_IMPORTED, id);
}

void step_log_let_go(struct step_log *l, uint32_t i_replica, uint64_t id)
{
    put_one(l, i_replica, STEP_LOG_LET_GO, id);
}

void step_log_leave(struct step_log *l, uint32_t i_replica, const struct request *r)
{
    put_one(l, i_replica, STEP_LOG_LEAVE, r->arrival_seq);
}
