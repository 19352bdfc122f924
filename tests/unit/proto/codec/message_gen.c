/* Describes all message structs by tables of fields, with a seeded generator of valid random
 * messages and a comparison that is exact to the bit. A test checks that the tables cover all
 * bytes of the structs, so a field that is added to messages.h must be added here. The tests of
 * the codec include this file. Messages point into an arena of the caller. */
#include <stdalign.h>
#include <stdio.h>
#include <string.h>

#include "common/base/arena.h"
#include "common/base/random.h"
#include "proto/limits.h"
#include "proto/messages.h"

enum field_kind {
    F_U32,
    F_U64,
    F_I32,
    F_F32,
    F_BOOL,
    F_ENUM,
    F_HASH,
    F_STR,
    F_TEXT,
    F_U32_SPAN,
    F_F32_SPAN,
    F_BYTES,
    F_STRUCT,
    F_ARRAY,
    F_STR_ARRAY,
    F_COUNT
};

struct table;
struct field {
    const char *name;
    enum field_kind kind;
    size_t offset, size, align;
    uint32_t max;            /* F_ENUM: number of values; spans and arrays: largest length */
    const struct table *sub; /* table of the elements, for F_STRUCT and F_ARRAY */
    size_t count_offset;     /* F_ARRAY, F_STR_ARRAY: offset of n_x, an F_COUNT field */
};
struct table {
    const char *name;
    size_t size;
    const struct field *fields;
    size_t n_fields;
    void (*fix)(struct rng *r, void *p); /* function that makes dependent fields valid */
};

#define AT(S, f)                                                                                   \
    .name = #f, .offset = offsetof(struct S, f), .size = sizeof(((struct S *)0)->f),               \
    .align = alignof(__typeof__(((struct S *)0)->f))
#define X(S, f, k)                                                                                 \
    {                                                                                              \
        AT(S, f), .kind = k                                                                        \
    }
#define X_ENUM(S, f, n)                                                                            \
    {                                                                                              \
        AT(S, f), .kind = F_ENUM, .max = n                                                         \
    }
#define X_SPAN(S, f, k, n)                                                                         \
    {                                                                                              \
        AT(S, f), .kind = k, .max = n                                                              \
    }
#define X_SUB(S, f, t)                                                                             \
    {                                                                                              \
        AT(S, f), .kind = F_STRUCT, .sub = &t                                                      \
    }
#define X_ARRAY(S, f, nf, t, n)                                                                    \
    {                                                                                              \
        AT(S, f), .kind = F_ARRAY, .sub = &t, .max = n, .count_offset = offsetof(struct S, nf)     \
    }
#define X_STRS(S, f, nf, n)                                                                        \
    {                                                                                              \
        AT(S, f), .kind = F_STR_ARRAY, .max = n, .count_offset = offsetof(struct S, nf)            \
    }
#define TABLE(S, fixer, ...)                                                                       \
    static const struct field fields_##S[] = {__VA_ARGS__};                                        \
    static const struct table table_##S = {#S, sizeof(struct S), fields_##S,                       \
                                           sizeof fields_##S / sizeof *fields_##S, fixer}

static void fix_none(struct rng *r, void *p)
{
    (void)r;
    (void)p;
}

static void fix_kv_group(struct rng *r, void *p)
{
    struct kv_group *g = p;
    g->block_tokens = 16 * (1 + (uint32_t)rng_below(r, 16));
    g->window_tokens |= g->kind == KV_WINDOW;
}
TABLE(kv_group, fix_kv_group, X_ENUM(kv_group, kind, KV_KIND_COUNT),
      X(kv_group, window_tokens, F_U32), X(kv_group, block_tokens, F_U32),
      X(kv_group, bytes_per_block, F_U64), X(kv_group, n_blocks, F_U32));

TABLE(msg_adapter, fix_none, X(msg_adapter, id, F_U64), X(msg_adapter, on, F_BOOL),
      X(msg_adapter, name, F_STR), X(msg_adapter, path, F_STR), X(msg_adapter, identity.hi, F_U64),
      X(msg_adapter, identity.lo, F_U64));
TABLE(msg_adapter_done, fix_none, X(msg_adapter_done, id, F_U64), X(msg_adapter_done, on, F_BOOL),
      X_ENUM(msg_adapter_done, status, STATUS_COUNT), X(msg_adapter_done, text, F_TEXT),
      X(msg_adapter_done, identity.hi, F_U64), X(msg_adapter_done, identity.lo, F_U64));
TABLE(adapter_name, fix_none, X(adapter_name, name, F_STR), X(adapter_name, path, F_STR));
TABLE(msg_adapters, fix_none, X_ARRAY(msg_adapters, list, n, table_adapter_name, 8),
      X(msg_adapters, n, F_COUNT));
TABLE(msg_adapter_order, fix_none, X(msg_adapter_order, ticket, F_U64),
      X(msg_adapter_order, on, F_BOOL), X(msg_adapter_order, in_place, F_BOOL),
      X(msg_adapter_order, name, F_STR), X(msg_adapter_order, path, F_STR),
      X(msg_adapter_order, by, F_TEXT));
TABLE(msg_adapter_answer, fix_none, X(msg_adapter_answer, ticket, F_U64),
      X_ENUM(msg_adapter_answer, status, STATUS_COUNT), X(msg_adapter_answer, text, F_TEXT));

TABLE(elastic_shape, fix_none, X(elastic_shape, tp, F_U32),
      X_SPAN(elastic_shape, n_blocks, F_U32_SPAN, PROTO_MAX_KV_GROUPS),
      X_SPAN(elastic_shape, block_bytes, F_U32_SPAN, PROTO_MAX_KV_GROUPS));

/* Smaller TPs must decrease, and each has a number of blocks for each KV group. */
static void fix_elastic(struct worker_info *w)
{
    static const uint32_t blocks[PROTO_MAX_KV_GROUPS] = {9, 8, 7, 6, 5, 4, 3, 2};
    struct elastic_shape *e = (struct elastic_shape *)(uintptr_t)w->elastic;
    w->n_elastic = w->n_elastic < w->tp ? w->n_elastic : w->tp - 1;
    for (uint32_t i = 0; i < w->n_elastic; i++)
        e[i] = (struct elastic_shape){
            w->tp - 1 - i, {blocks, w->n_kv_groups}, {blocks, i % 2 ? w->n_kv_groups : 0}};
}

static void fix_worker_info(struct rng *r, void *p)
{
    struct worker_info *w = p;
    w->ordinal = (int32_t)rng_below(r, 9) - 1;
    w->shard_rank = (int32_t)rng_below(r, 5) - 1;
    w->shard_stage = (int32_t)rng_below(r, 5) - 1;
    w->tp = 1 + (uint32_t)rng_below(r, 32);
    w->pp = 1 + (uint32_t)rng_below(r, 32);
    w->n_draft = (uint32_t)rng_below(r, PROTO_MAX_DRAFT + 1);
    w->shard_tp = (uint32_t)rng_below(r, w->tp + 1ull);
    w->replica_tp = (uint32_t)rng_below(r, w->tp + 1ull);
    fix_elastic(w);
}
TABLE(worker_info, fix_worker_info, X_ENUM(worker_info, device, DEVICE_COUNT),
      X(worker_info, device_name, F_STR), X(worker_info, host, F_STR), X(worker_info, zone, F_STR),
      X(worker_info, memory_bytes, F_U64), X(worker_info, isa_level, F_U32),
      X(worker_info, config_hash, F_HASH), X(worker_info, model_hash, F_HASH),
      X(worker_info, ordinal, F_I32), X(worker_info, tp, F_U32), X(worker_info, pp, F_U32),
      X(worker_info, shard_rank, F_I32), X(worker_info, shard_stage, F_I32),
      X(worker_info, comm_address, F_STR), X(worker_info, http_address, F_STR),
      X(worker_info, model, F_STR), X(worker_info, max_model_len, F_U32),
      X(worker_info, vocab_size, F_U32), X(worker_info, n_draft, F_U32),
      X(worker_info, draft_max_seqs, F_U32), X(worker_info, gives_prompt_logprobs, F_BOOL),
      X_ARRAY(worker_info, kv_groups, n_kv_groups, table_kv_group, PROTO_MAX_KV_GROUPS),
      X(worker_info, n_kv_groups, F_COUNT), X(worker_info, term_epoch, F_U64),
      X(worker_info, replica_id, F_U64), X(worker_info, step_received, F_U64),
      X(worker_info, step_executed, F_U64), X(worker_info, rank, F_U32),
      X(worker_info, stage, F_U32),
      X_ARRAY(worker_info, adapters, n_adapters, table_msg_adapter, 4),
      X(worker_info, n_adapters, F_COUNT), X(worker_info, kv_address, F_STR),
      X_ENUM(worker_info, replica_role, REPLICA_ROLE_COUNT),
      X_ARRAY(worker_info, elastic, n_elastic, table_elastic_shape, 5),
      X(worker_info, n_elastic, F_COUNT), X(worker_info, shard_tp, F_U32),
      X(worker_info, replica_tp, F_U32), X_ENUM(worker_info, sleep_level, SLEEP_LEVEL_COUNT));

TABLE(vocabulary, fix_none, X(vocabulary, n_tokens, F_U32), X(vocabulary, sketch, F_HASH));

static void fix_hello(struct rng *r, void *p)
{
    struct msg_hello *h = p;
    if (h->role == ROLE_NONE)
        h->role = ROLE_WORKER;
    h->has_worker = h->role == ROLE_WORKER;
    if (!h->has_worker)
        memset(&h->worker, 0, sizeof h->worker);
    if (!h->has_vocabulary)
        memset(&h->vocabulary, 0, sizeof h->vocabulary);
}
TABLE(msg_hello, fix_hello, X(msg_hello, node, F_STR), X(msg_hello, instance, F_U64),
      X_ENUM(msg_hello, role, ROLE_COUNT), X(msg_hello, version, F_STR),
      X(msg_hello, credit_bytes, F_U64), X(msg_hello, term_seen, F_U64),
      X(msg_hello, has_worker, F_BOOL), X_SUB(msg_hello, worker, table_worker_info),
      X(msg_hello, has_vocabulary, F_BOOL), X_SUB(msg_hello, vocabulary, table_vocabulary),
      X(msg_hello, model, F_STR));

static void fix_welcome(struct rng *r, void *p)
{
    ((struct msg_welcome *)p)->session |= 1;
}
TABLE(msg_welcome, fix_welcome, X(msg_welcome, session, F_U64),
      X(msg_welcome, head_instance, F_U64), X(msg_welcome, term, F_U64),
      X(msg_welcome, credit_bytes, F_U64), X(msg_welcome, heartbeat_ms, F_U32),
      X(msg_welcome, suspect_ms, F_U32), X(msg_welcome, version, F_STR),
      X(msg_welcome, keeps_grammar, F_BOOL), X(msg_welcome, quiet_ms, F_U32));
TABLE(msg_refused, fix_none, X_ENUM(msg_refused, status, STATUS_COUNT),
      X(msg_refused, text, F_TEXT));
static void fix_heartbeat(struct rng *r, void *p)
{
    struct msg_heartbeat *h = p;
    if (!h->has_vocabulary)
        memset(&h->vocabulary, 0, sizeof h->vocabulary);
}
TABLE(msg_heartbeat, fix_heartbeat, X(msg_heartbeat, time_ns, F_U64),
      X(msg_heartbeat, progress, F_U64), X(msg_heartbeat, term_epoch, F_U64),
      X(msg_heartbeat, step_received, F_U64), X(msg_heartbeat, step_executed, F_U64),
      X(msg_heartbeat, busy, F_BOOL), X(msg_heartbeat, load_permille, F_U32),
      X(msg_heartbeat, gpu.memory_used, F_U64), X(msg_heartbeat, gpu.memory_total, F_U64),
      X(msg_heartbeat, gpu.busy_percent, F_U32), X(msg_heartbeat, gpu.celsius, F_U32),
      X(msg_heartbeat, gpu.milliwatts, F_U32), X(msg_heartbeat, own_ns, F_U64),
      X(msg_heartbeat, own_steps, F_U64), X(msg_heartbeat, host.threads, F_U32),
      X(msg_heartbeat, host.millicores, F_U32), X(msg_heartbeat, host.resident_bytes, F_U64),
      X(msg_heartbeat, host.id, F_U64), X(msg_heartbeat, host.cpus, F_U32),
      X(msg_heartbeat, host.memory_bytes, F_U64), X(msg_heartbeat, serves, F_BOOL),
      X(msg_heartbeat, spare, F_BOOL), X(msg_heartbeat, has_vocabulary, F_BOOL),
      X_SUB(msg_heartbeat, vocabulary, table_vocabulary), X(msg_heartbeat, next_in_ms, F_U32));
TABLE(msg_credit, fix_none, X(msg_credit, bytes, F_U64));
TABLE(msg_goodbye, fix_none, X(msg_goodbye, text, F_TEXT), X(msg_goodbye, planned, F_BOOL));

TABLE(request_id, fix_none, X(request_id, hi, F_U64), X(request_id, lo, F_U64));
TABLE(logit_bias, fix_none, X(logit_bias, token, F_U32), X(logit_bias, bias, F_F32));

static void fix_sampling(struct rng *r, void *p)
{
    struct sampling_params *s = p;
    s->n_logprobs = (int32_t)rng_below(r, 22) - 1;
    s->n_prompt_logprobs = (int32_t)rng_below(r, 22) - 1;
    if (s->bad_words.n > 0)
        ((uint32_t *)(uintptr_t)s->bad_words.ptr)[s->bad_words.n - 1] = UINT32_MAX;
    if (s->grammar.len == 0)
        s->grammar_kind = GRAMMAR_NONE;
    else if (s->grammar_kind == GRAMMAR_NONE)
        s->grammar_kind = GRAMMAR_REGEX;
}
TABLE(sampling_params, fix_sampling, X(sampling_params, temperature, F_F32),
      X(sampling_params, top_p, F_F32), X(sampling_params, min_p, F_F32),
      X(sampling_params, top_k, F_I32), X(sampling_params, presence_penalty, F_F32),
      X(sampling_params, frequency_penalty, F_F32), X(sampling_params, repetition_penalty, F_F32),
      X(sampling_params, seed, F_U64), X(sampling_params, i_prompt, F_U32),
      X(sampling_params, i_choice, F_U32), X(sampling_params, n_logprobs, F_I32),
      X(sampling_params, n_prompt_logprobs, F_I32), X(sampling_params, max_tokens, F_U32),
      X(sampling_params, min_tokens, F_U32), X_SPAN(sampling_params, eos_ids, F_U32_SPAN, 4),
      X_SPAN(sampling_params, stop_ids, F_U32_SPAN, 6),
      X_SPAN(sampling_params, allowed_ids, F_U32_SPAN, 20),
      X_SPAN(sampling_params, bad_words, F_U32_SPAN, 9),
      X_ARRAY(sampling_params, logit_bias, n_logit_bias, table_logit_bias, 5),
      X(sampling_params, n_logit_bias, F_COUNT),
      X_ENUM(sampling_params, grammar_kind, GRAMMAR_COUNT), X(sampling_params, grammar, F_STR),
      X(sampling_params, lora, F_STR), X(sampling_params, lora_id, F_U64),
      X_ENUM(sampling_params, pooling, POOLING_COUNT),
      X(sampling_params, pooling_normalise, F_BOOL));

static void fix_submit(struct rng *r, void *p)
{
    struct msg_submit *s = p;
    s->n_prompt = (uint32_t)rng_below(r, s->ids.n + 1ull);
    s->n_known_logprobs = (uint32_t)rng_below(r, s->n_prompt + 1ull);
    s->same_grammar &= s->sampling.grammar_kind == GRAMMAR_NONE;
}
TABLE(msg_submit, fix_submit, X_SUB(msg_submit, id, table_request_id),
      X(msg_submit, i_choice, F_U32), X(msg_submit, attempt, F_U32), X(msg_submit, tenant, F_U64),
      X(msg_submit, cache_salt, F_STR), X(msg_submit, priority, F_I32),
      X(msg_submit, n_prompt, F_U32), X(msg_submit, n_known_logprobs, F_U32),
      X_SPAN(msg_submit, ids, F_U32_SPAN, 300), X(msg_submit, deadline_ms, F_U64),
      X_SUB(msg_submit, sampling, table_sampling_params), X(msg_submit, same_grammar, F_BOOL),
      X(msg_submit, asks_usage, F_BOOL), X(msg_submit, tenant_name, F_STR),
      X(msg_submit, slo_ttft_ms, F_U32));
TABLE(msg_cancel, fix_none, X_SUB(msg_cancel, id, table_request_id), X(msg_cancel, i_choice, F_U32),
      X(msg_cancel, attempt, F_U32));
TABLE(msg_finish, fix_none, X_SUB(msg_finish, id, table_request_id), X(msg_finish, i_choice, F_U32),
      X(msg_finish, attempt, F_U32), X(msg_finish, n_tokens, F_U32));

static void fix_row(struct rng *r, void *p)
{
    struct logprob_row *row = p;
    uint32_t n = row->ids.n < row->values.n ? row->ids.n : row->values.n;
    row->ids.n = row->values.n = n;
}
TABLE(logprob_row, fix_row, X_SPAN(logprob_row, ids, F_U32_SPAN, 6),
      X_SPAN(logprob_row, values, F_F32_SPAN, 6), X(logprob_row, chosen_rank, F_U32));

static void fix_tokens_item(struct rng *r, void *p)
{
    struct tokens_item *t = p;
    uint32_t n = t->n_logprobs < t->ids.n ? t->n_logprobs : t->ids.n;
    t->n_logprobs = n;
    if (n > 0)
        t->ids.n = n;
    if (t->n_prompt_logprobs == 0)
        t->prompt_start = 0; /* prompt_start is sent only with rows */
}
TABLE(tokens_item, fix_tokens_item, X_SUB(tokens_item, id, table_request_id),
      X(tokens_item, i_choice, F_U32), X(tokens_item, attempt, F_U32), X(tokens_item, start, F_U32),
      X_SPAN(tokens_item, ids, F_U32_SPAN, 5),
      X_ARRAY(tokens_item, logprobs, n_logprobs, table_logprob_row, 5),
      X(tokens_item, n_logprobs, F_COUNT),
      X_ARRAY(tokens_item, prompt_logprobs, n_prompt_logprobs, table_logprob_row, 4),
      X(tokens_item, n_prompt_logprobs, F_COUNT), X(tokens_item, prompt_start, F_U32),
      X_ENUM(tokens_item, finish, FINISH_REASON_COUNT), X(tokens_item, stop_id, F_U32),
      X(tokens_item, n_cached, F_U32), X_ENUM(tokens_item, status, STATUS_COUNT),
      X(tokens_item, retry_after_s, F_U32), X(tokens_item, predicted_ttft_ms, F_U32),
      X(tokens_item, text, F_TEXT), X_SPAN(tokens_item, vector, F_F32_SPAN, 5),
      X(tokens_item, queue_us, F_U64), X(tokens_item, block_ms, F_U64),
      X(tokens_item, step_ns, F_U64));
TABLE(msg_tokens, fix_none, X(msg_tokens, term_epoch, F_U64),
      X_ARRAY(msg_tokens, items, n_items, table_tokens_item, 6), X(msg_tokens, n_items, F_COUNT));
TABLE(cluster_load, fix_none, X(cluster_load, n_blocks, F_U64),
      X(cluster_load, n_blocks_used, F_U64), X(cluster_load, n_preemptions, F_U64),
      X(cluster_load, n_draft_steps, F_U64), X(cluster_load, n_drafted, F_U64),
      X(cluster_load, n_accepted, F_U64), X(cluster_load, block_tokens, F_U32),
      X(cluster_load, max_loras, F_U32), X(cluster_load, prefix_caching, F_BOOL));
TABLE(msg_cluster, fix_none, X(msg_cluster, term, F_U64), X(msg_cluster, n_replicas_ready, F_U32),
      X(msg_cluster, n_replicas, F_U32), X(msg_cluster, n_workers, F_U32),
      X(msg_cluster, model, F_STR), X(msg_cluster, max_model_len, F_U32),
      X(msg_cluster, vocab_size, F_U32), X(msg_cluster, running, F_U32),
      X(msg_cluster, waiting, F_U32), X(msg_cluster, draining, F_BOOL),
      X(msg_cluster, gives_prompt_logprobs, F_BOOL), X(msg_cluster, one_class, F_BOOL),
      X(msg_cluster, start_s, F_U32), X_SUB(msg_cluster, load, table_cluster_load));

static void fix_form(struct rng *r, void *p)
{
    struct msg_form *f = p;
    f->tp = 1 + (uint32_t)rng_below(r, 32);
    f->pp = 1 + (uint32_t)rng_below(r, 32);
    f->rank = (uint32_t)rng_below(r, f->tp);
    f->stage = (uint32_t)rng_below(r, f->pp);
}
TABLE(msg_form, fix_form, X(msg_form, term_epoch, F_U64), X(msg_form, replica_id, F_U64),
      X(msg_form, tp, F_U32), X(msg_form, pp, F_U32), X(msg_form, rank, F_U32),
      X(msg_form, stage, F_U32), X(msg_form, isa_level, F_U32), X(msg_form, make_id, F_BOOL),
      X_STRS(msg_form, comm_addresses, n_comm_addresses, 8), X(msg_form, n_comm_addresses, F_COUNT),
      X_SPAN(msg_form, n_blocks, F_U32_SPAN, PROTO_MAX_KV_GROUPS));
TABLE(msg_comm_id, fix_none, X(msg_comm_id, term_epoch, F_U64),
      X_SPAN(msg_comm_id, id, F_BYTES, 128));
TABLE(msg_join, fix_none, X(msg_join, term_epoch, F_U64), X_SPAN(msg_join, id, F_BYTES, 128));
TABLE(msg_formed, fix_none, X(msg_formed, term_epoch, F_U64),
      X_ENUM(msg_formed, status, STATUS_COUNT), X(msg_formed, text, F_TEXT));
TABLE(msg_abort, fix_none, X(msg_abort, term_epoch, F_U64), X(msg_abort, text, F_TEXT));
TABLE(msg_aborted, fix_none, X(msg_aborted, term_epoch, F_U64));
TABLE(msg_reset, fix_none, X(msg_reset, old_term_epoch, F_U64), X(msg_reset, term_epoch, F_U64));
TABLE(msg_comm_error, fix_none, X(msg_comm_error, term_epoch, F_U64),
      X(msg_comm_error, step, F_U64), X(msg_comm_error, text, F_TEXT));
TABLE(msg_drain, fix_none, X(msg_drain, on, F_BOOL));
TABLE(msg_drain_wish, fix_none, X(msg_drain_wish, text, F_TEXT));

static void fix_blocks(struct rng *r, void *p)
{
    ((struct plan_blocks *)p)->i_group %= PROTO_MAX_KV_GROUPS;
}
TABLE(plan_blocks, fix_blocks, X(plan_blocks, i_group, F_U32), X(plan_blocks, drop_leading, F_U32),
      X_SPAN(plan_blocks, ids, F_U32_SPAN, 12));

static void fix_admit(struct rng *r, void *p)
{
    struct plan_admit *a = p;
    a->n_prompt = (uint32_t)rng_below(r, a->ids.n + 1ull);
    a->n_computed = (uint32_t)rng_below(r, a->ids.n + 1ull);
}
TABLE(plan_admit, fix_admit, X(plan_admit, slot, F_U32), X(plan_admit, n_prompt, F_U32),
      X(plan_admit, n_computed, F_U32), X_SPAN(plan_admit, ids, F_U32_SPAN, 100),
      X_SUB(plan_admit, sampling, table_sampling_params));

/* Makes half of the runs decodes: one sampled token, perhaps with draft tokens. */
static void fix_run(struct rng *r, void *p)
{
    struct plan_run *run = p;
    if (rng_below(r, 2)) {
        run->sample = true;
        run->n_tokens = 1;
        run->n_draft = rng_below(r, 2) ? (uint32_t)rng_below(r, PROTO_MAX_DRAFT + 1) : 0;
    } else {
        run->follows = false;
        run->n_draft = 0;
    }
    if (run->start > UINT32_MAX - run->n_draft - run->n_tokens)
        run->start = UINT32_MAX - run->n_draft - run->n_tokens;
}
TABLE(plan_run, fix_run, X(plan_run, slot, F_U32), X(plan_run, start, F_U32),
      X(plan_run, n_tokens, F_U32), X(plan_run, n_draft, F_U32), X(plan_run, sample, F_BOOL),
      X(plan_run, follows, F_BOOL), X_ARRAY(plan_run, blocks, n_blocks, table_plan_blocks, 3),
      X(plan_run, n_blocks, F_COUNT));

static void fix_copy(struct rng *r, void *p)
{
    ((struct plan_copy *)p)->i_group %= PROTO_MAX_KV_GROUPS;
}
TABLE(plan_copy, fix_copy, X(plan_copy, i_group, F_U32), X(plan_copy, from, F_U32),
      X(plan_copy, to, F_U32));
TABLE(msg_plan, fix_none, X(msg_plan, term_epoch, F_U64), X(msg_plan, step, F_U64),
      X(msg_plan, full, F_BOOL), X_SPAN(msg_plan, finished, F_U32_SPAN, 9),
      X_ARRAY(msg_plan, copies, n_copies, table_plan_copy, 4), X(msg_plan, n_copies, F_COUNT),
      X_ARRAY(msg_plan, admits, n_admits, table_plan_admit, 4), X(msg_plan, n_admits, F_COUNT),
      X_ARRAY(msg_plan, runs, n_runs, table_plan_run, 12), X(msg_plan, n_runs, F_COUNT),
      X(msg_plan, digest, F_U64));

static void fix_result_item(struct rng *r, void *p)
{
    struct result_item *t = p;
    uint32_t n = t->n_logprobs < t->ids.n ? t->n_logprobs : t->ids.n;
    t->n_logprobs = n;
    if (n > 0)
        t->ids.n = n;
    t->ids.n = t->gaps.n = t->ids.n < t->gaps.n ? t->ids.n : t->gaps.n;
    if (t->n_logprobs > t->ids.n)
        t->n_logprobs = t->ids.n;
}
TABLE(result_item, fix_result_item, X(result_item, slot, F_U32),
      X_SPAN(result_item, ids, F_U32_SPAN, 4),
      X_ARRAY(result_item, logprobs, n_logprobs, table_logprob_row, 4),
      X(result_item, n_logprobs, F_COUNT),
      X_ARRAY(result_item, prompt_logprobs, n_prompt_logprobs, table_logprob_row, 3),
      X(result_item, n_prompt_logprobs, F_COUNT), X_SPAN(result_item, gaps, F_F32_SPAN, 4),
      X_SPAN(result_item, vector, F_F32_SPAN, 7), X(result_item, mask_units, F_U32),
      X(result_item, matcher_kib, F_U32));
TABLE(msg_result, fix_none, X(msg_result, term_epoch, F_U64), X(msg_result, step, F_U64),
      X_ARRAY(msg_result, items, n_items, table_result_item, 8), X(msg_result, n_items, F_COUNT),
      X(msg_result, execute_ns, F_U64), X(msg_result, wait_ns, F_U64),
      X(msg_result, n_drafted, F_U32));
TABLE(msg_gap, fix_none, X(msg_gap, term_epoch, F_U64), X(msg_gap, last_step, F_U64),
      X(msg_gap, got_step, F_U64), X(msg_gap, text, F_TEXT));

/* There is at least one block. Either all blocks have a KV group, or no block has a KV group. */
static void fix_kv_transfer(struct rng *r, void *p)
{
    struct msg_kv_transfer *t = p;
    static const uint32_t one = 7;
    if (t->blocks.n == 0)
        t->blocks = (struct u32_span){&one, 1};
    if (t->block_groups.n < t->blocks.n)
        t->block_groups = (struct u32_span){0};
    t->block_groups.n = t->block_groups.n ? t->blocks.n : 0;
    for (uint32_t i = 0; i < t->block_groups.n; i++)
        ((uint32_t *)(uintptr_t)t->block_groups.ptr)[i] = i / 3 % PROTO_MAX_KV_GROUPS;
}
TABLE(msg_kv_transfer, fix_kv_transfer, X(msg_kv_transfer, term_epoch, F_U64),
      X(msg_kv_transfer, id, F_U64), X(msg_kv_transfer, sends, F_BOOL),
      X(msg_kv_transfer, from_address, F_STR), X(msg_kv_transfer, to_address, F_STR),
      X_SPAN(msg_kv_transfer, comm_id, F_BYTES, 32),
      X_SPAN(msg_kv_transfer, block_groups, F_U32_SPAN, 20),
      X_SPAN(msg_kv_transfer, blocks, F_U32_SPAN, 20));
TABLE(msg_kv_transferred, fix_none, X(msg_kv_transferred, term_epoch, F_U64),
      X(msg_kv_transferred, id, F_U64), X_ENUM(msg_kv_transferred, status, STATUS_COUNT),
      X(msg_kv_transferred, text, F_TEXT), X(msg_kv_transferred, n_bytes, F_U64),
      X(msg_kv_transferred, took_ns, F_U64));

static void fix_grammar(struct rng *r, void *p)
{
    struct msg_grammar *g = p;
    g->on = g->source.len > 0;
    if (!g->on)
        g->kind = GRAMMAR_NONE;
    else if (g->kind == GRAMMAR_NONE)
        g->kind = GRAMMAR_LARK;
}

TABLE(msg_grammar, fix_grammar, X(msg_grammar, term_epoch, F_U64), X(msg_grammar, id, F_U64),
      X(msg_grammar, on, F_BOOL), X_ENUM(msg_grammar, kind, GRAMMAR_COUNT),
      X(msg_grammar, source, F_STR));
TABLE(msg_grammar_done, fix_none, X(msg_grammar_done, term_epoch, F_U64),
      X(msg_grammar_done, id, F_U64), X_ENUM(msg_grammar_done, status, STATUS_COUNT),
      X(msg_grammar_done, text, F_TEXT), X(msg_grammar_done, bytes, F_U64),
      X(msg_grammar_done, matcher_bytes, F_U64), X(msg_grammar_done, room_bytes, F_U64));

TABLE(msg_sleep, fix_none, X_ENUM(msg_sleep, level, SLEEP_LEVEL_COUNT));
TABLE(msg_slept, fix_none, X_ENUM(msg_slept, level, SLEEP_LEVEL_COUNT),
      X_ENUM(msg_slept, status, STATUS_COUNT), X(msg_slept, text, F_TEXT));

static const struct {
    const struct table *table;
    size_t offset;
} message_tables[MSG_TYPE_COUNT] = {
#define ROW(T, S, f) [MSG_##T] = {&table_##S, offsetof(struct msg, f)}
    ROW(HELLO, msg_hello, hello),
    ROW(WELCOME, msg_welcome, welcome),
    ROW(REFUSED, msg_refused, refused),
    ROW(HEARTBEAT, msg_heartbeat, heartbeat),
    ROW(CREDIT, msg_credit, credit),
    ROW(GOODBYE, msg_goodbye, goodbye),
    ROW(SUBMIT, msg_submit, submit),
    ROW(CANCEL, msg_cancel, cancel),
    ROW(FINISH, msg_finish, finish),
    ROW(TOKENS, msg_tokens, tokens),
    ROW(CLUSTER, msg_cluster, cluster),
    ROW(FORM, msg_form, form),
    ROW(JOIN, msg_join, join),
    ROW(ABORT, msg_abort, abort_),
    ROW(RESET, msg_reset, reset),
    ROW(PLAN, msg_plan, plan),
    ROW(DRAIN, msg_drain, drain),
    ROW(COMM_ID, msg_comm_id, comm_id),
    ROW(FORMED, msg_formed, formed),
    ROW(ABORTED, msg_aborted, aborted),
    ROW(RESULT, msg_result, result),
    ROW(GAP, msg_gap, gap),
    ROW(COMM_ERROR, msg_comm_error, comm_error),
    ROW(DRAIN_WISH, msg_drain_wish, drain_wish),
    ROW(ADAPTER, msg_adapter, adapter),
    ROW(ADAPTER_DONE, msg_adapter_done, adapter_done),
    ROW(ADAPTERS, msg_adapters, adapters),
    ROW(ADAPTER_ORDER, msg_adapter_order, adapter_order),
    ROW(ADAPTER_ANSWER, msg_adapter_answer, adapter_answer),
    ROW(KV_TRANSFER, msg_kv_transfer, kv_transfer),
    ROW(KV_TRANSFERRED, msg_kv_transferred, kv_transferred),
    ROW(GRAMMAR, msg_grammar, grammar),
    ROW(GRAMMAR_DONE, msg_grammar_done, grammar_done),
    ROW(SLEEP, msg_sleep, sleep),
    ROW(SLEPT, msg_slept, slept),
#undef ROW
};

/* Returns a number that is often at an edge of its range. */
static uint64_t gen_u64(struct rng *r)
{
    switch (rng_below(r, 6)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    case 2:
        return rng_below(r, 256);
    case 3:
        return rng_below(r, 1ull << 32);
    default:
        return rng_next(r);
    }
}

static float gen_finite(struct rng *r)
{
    static const uint32_t edges[] = {0, 0x80000000u, 1, 0x7F7FFFFFu, 0xFF7FFFFFu, 0x3F800000u};
    uint32_t bits = rng_below(r, 3) ? (uint32_t)rng_next(r) : edges[rng_below(r, 6)];
    if ((bits & 0x7F800000u) == 0x7F800000u)
        bits &= 0x807FFFFFu;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static struct str gen_str(struct rng *r, struct arena *a, size_t max)
{
    static const char *const pieces[] = {"a", "Z9", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x9A\xA3"};
    size_t n = rng_below(r, 4) == 0 ? 0 : (size_t)rng_below(r, max), len = 0;
    char *p = arena_try_alloc(a, n + 8);
    while (len < n) {
        const char *piece = pieces[rng_below(r, 5)];
        memcpy(p + len, piece, strlen(piece));
        len += strlen(piece);
    }
    if (len > 0 && rng_below(r, 8) == 0)
        p[0] = '\0', len = 1; /* a NUL is an ordinary byte */
    return (struct str){p, len};
}

static void gen_struct(struct rng *r, struct arena *a, const struct table *t, void *p);

static void *gen_words(struct rng *r, struct arena *a, uint32_t n)
{
    uint32_t *ids = arena_try_alloc(a, n * sizeof *ids);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = (uint32_t)gen_u64(r);
    return ids;
}

static void gen_field(struct rng *r, struct arena *a, const struct field *f, char *base)
{
    char *at = base + f->offset;
    uint32_t n = f->max && rng_below(r, 4) ? (uint32_t)rng_below(r, f->max + 1ull) : 0;
    uint64_t v = gen_u64(r);
    float real = gen_finite(r);
    switch (f->kind) {
    case F_U32:
    case F_I32:
    case F_U64:
        memcpy(at, &v, f->size);
        break;
    case F_F32:
        memcpy(at, &real, sizeof real);
        break;
    case F_BOOL:
        *(bool *)at = rng_below(r, 2);
        break;
    case F_ENUM:
        *(int *)at = (int)rng_below(r, f->max);
        break;
    case F_HASH:
        for (size_t i = 0; i < f->size; i++)
            at[i] = (char)rng_next(r);
        break;
    case F_STR:
    case F_TEXT:
        *(struct str *)at = gen_str(r, a, 60);
        break;
    case F_U32_SPAN:
        *(struct u32_span *)at = (struct u32_span){gen_words(r, a, n), n};
        break;
    case F_F32_SPAN: /* a float may have any bits, because a log-probability may be -inf */
        *(struct f32_span *)at = (struct f32_span){gen_words(r, a, n), n};
        break;
    case F_BYTES:
        *(struct bytes *)at = (struct bytes){gen_words(r, a, n / 4 + 1), n};
        break;
    case F_STRUCT:
        gen_struct(r, a, f->sub, at);
        break;
    case F_ARRAY: {
        char *items = arena_try_array(a, n + 1, f->sub->size);
        for (uint32_t i = 0; i < n; i++)
            gen_struct(r, a, f->sub, items + i * f->sub->size);
        *(void **)at = items;
        memcpy(base + f->count_offset, &n, sizeof n);
        break;
    }
    case F_STR_ARRAY: {
        struct str *items = arena_try_array(a, n + 1, sizeof *items);
        for (uint32_t i = 0; i < n; i++)
            items[i] = gen_str(r, a, 40);
        *(void **)at = items;
        memcpy(base + f->count_offset, &n, sizeof n);
        break;
    }
    case F_COUNT:
        break; /* the count is set with its array, which comes first */
    }
}

static void gen_struct(struct rng *r, struct arena *a, const struct table *t, void *p)
{
    for (size_t i = 0; i < t->n_fields; i++)
        gen_field(r, a, &t->fields[i], p);
    t->fix(r, p);
}

static void gen_message(struct rng *r, struct arena *a, enum msg_type type, struct msg *m)
{
    memset(m, 0, sizeof *m);
    m->type = type;
    gen_struct(r, a, message_tables[type].table, (char *)m + message_tables[type].offset);
}

/* Returns the name of the first field that differs, or NULL. */
static const char *diff_struct(const struct table *t, const void *a, const void *b);

static bool same_bytes(const void *a, const void *b, size_t n)
{
    return n == 0 || memcmp(a, b, n) == 0;
}

static const char *diff_items(const struct field *f, const char *a, const char *b)
{
    uint32_t n, n_b;
    memcpy(&n, a + f->count_offset, sizeof n);
    memcpy(&n_b, b + f->count_offset, sizeof n_b);
    if (n != n_b)
        return f->name;
    const char *items_a = *(char *const *)(a + f->offset),
               *items_b = *(char *const *)(b + f->offset);
    for (uint32_t i = 0; i < n; i++) {
        const char *d = NULL;
        if (f->kind == F_ARRAY)
            d = diff_struct(f->sub, items_a + i * f->sub->size, items_b + i * f->sub->size);
        else if (!str_eq(((const struct str *)items_a)[i], ((const struct str *)items_b)[i]))
            d = f->name;
        if (d)
            return d;
    }
    return NULL;
}

static const char *diff_field(const struct field *f, const char *a, const char *b)
{
    const void *x = a + f->offset, *y = b + f->offset;
    const struct u32_span *su = x, *sv = y;
    const struct bytes *bu = x, *bv = y;
    bool same;
    switch (f->kind) {
    case F_STR:
    case F_TEXT:
        same = str_eq(*(const struct str *)x, *(const struct str *)y);
        break;
    case F_U32_SPAN:
    case F_F32_SPAN:
        same = su->n == sv->n && same_bytes(su->ptr, sv->ptr, 4ull * su->n);
        break;
    case F_BYTES:
        same = bu->n == bv->n && same_bytes(bu->ptr, bv->ptr, bu->n);
        break;
    case F_STRUCT:
        return diff_struct(f->sub, x, y);
    case F_ARRAY:
    case F_STR_ARRAY:
        return diff_items(f, a, b);
    default:
        same = memcmp(x, y, f->size) == 0;
    }
    return same ? NULL : f->name;
}

static const char *diff_struct(const struct table *t, const void *a, const void *b)
{
    for (size_t i = 0; i < t->n_fields; i++) {
        const char *d = diff_field(&t->fields[i], a, b);
        if (d)
            return d;
    }
    return NULL;
}

static const char *diff_message(const struct msg *a, const struct msg *b)
{
    if (a->type != b->type)
        return "type";
    size_t offset = message_tables[a->type].offset;
    return diff_struct(message_tables[a->type].table, (const char *)a + offset,
                       (const char *)b + offset);
}
