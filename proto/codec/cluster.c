/* Maps the messages of cluster.proto to plain structs and back: opening, heartbeat, credit and
 * formation. A `put` function builds the generated struct on the scratch arena and borrows the
 * message's spans. A `get` function borrows the arrays that protobuf-c put on the arena. The
 * table at the end names both functions for each type. Invariants: no function here decides
 * whether a value is allowed (check.c does). A failure is kept in struct wire, so that each
 * mapping reads as a list of fields. The functions do no I/O and may run on any thread. */
#include <string.h>

#include "proto/adapter.pb-c.h"
#include "proto/cluster.pb-c.h"
#include "proto/codec/ops.h"

static void put_kv_groups(struct wire *w, const struct worker_info *i, Cox__WorkerInfo *p)
{
    p->kv_groups = wire_new_array(w, &cox__kv_group__descriptor, i->n_kv_groups);
    if (!p->kv_groups)
        return;
    p->n_kv_groups = i->n_kv_groups;
    for (uint32_t k = 0; k < i->n_kv_groups; k++) {
        const struct kv_group *g = &i->kv_groups[k];
        Cox__KvGroup *q = p->kv_groups[k];
        q->kind = (Cox__KvKind)g->kind;
        q->window_tokens = g->window_tokens;
        q->block_tokens = g->block_tokens;
        q->bytes_per_block = g->bytes_per_block;
        q->n_blocks = g->n_blocks;
    }
}

static void put_adapters(struct wire *w, const struct worker_info *i, Cox__WorkerInfo *p)
{
    p->adapters = wire_new_array(w, &cox__adapter__descriptor, i->n_adapters);
    for (uint32_t k = 0; p->adapters && k < i->n_adapters; k++) {
        p->adapters[k]->id = i->adapters[k].id;
        p->adapters[k]->on = i->adapters[k].on;
        p->adapters[k]->name = wire_put_str(i->adapters[k].name);
        p->adapters[k]->path = wire_put_str(i->adapters[k].path);
        p->adapters[k]->identity_hi = i->adapters[k].identity.hi;
        p->adapters[k]->identity_lo = i->adapters[k].identity.lo;
    }
    p->n_adapters = p->adapters ? i->n_adapters : 0;
}

static void get_adapters(struct wire *w, const Cox__WorkerInfo *p, struct worker_info *i)
{
    struct msg_adapter *a = wire_array(w, p->n_adapters, sizeof *a);
    for (size_t k = 0; a && k < p->n_adapters; k++)
        a[k] = (struct msg_adapter){
            .id = p->adapters[k]->id,
            .on = p->adapters[k]->on != 0,
            .name = wire_get_str(p->adapters[k]->name),
            .path = wire_get_str(p->adapters[k]->path),
            .identity = {p->adapters[k]->identity_hi, p->adapters[k]->identity_lo}};
    i->adapters = a;
    i->n_adapters = (uint32_t)p->n_adapters;
}

static void put_elastic(struct wire *w, const struct worker_info *i, Cox__WorkerInfo *p)
{
    p->elastic = wire_new_array(w, &cox__elastic_shape__descriptor, i->n_elastic);
    for (uint32_t k = 0; p->elastic && k < i->n_elastic; k++) {
        p->elastic[k]->tp = i->elastic[k].tp;
        WIRE_PUT_SPAN(p->elastic[k], n_blocks, i->elastic[k].n_blocks);
        WIRE_PUT_SPAN(p->elastic[k], block_bytes, i->elastic[k].block_bytes);
    }
    p->n_elastic = p->elastic ? i->n_elastic : 0;
}

static void get_elastic(struct wire *w, const Cox__WorkerInfo *p, struct worker_info *i)
{
    struct elastic_shape *e = wire_array(w, p->n_elastic, sizeof *e);
    for (size_t k = 0; e && k < p->n_elastic; k++) {
        e[k].tp = p->elastic[k]->tp;
        e[k].n_blocks = WIRE_GET_U32(p->elastic[k], n_blocks);
        e[k].block_bytes = WIRE_GET_U32(p->elastic[k], block_bytes);
    }
    i->elastic = e;
    i->n_elastic = (uint32_t)p->n_elastic;
}

static const uint8_t no_hash[32];

static Cox__WorkerInfo *put_worker(struct wire *w, const struct worker_info *i)
{
    WIRE_PUT(WorkerInfo, worker_info);
    p->device = (Cox__DeviceKind)i->device;
    p->device_name = wire_put_str(i->device_name);
    p->host = wire_put_str(i->host);
    p->zone = wire_put_str(i->zone);
    p->memory_bytes = i->memory_bytes;
    p->isa_level = i->isa_level;
    p->config_hash.len = sizeof i->config_hash;
    p->config_hash.data = (uint8_t *)i->config_hash;
    p->ordinal = i->ordinal;
    p->tp = i->tp;
    p->pp = i->pp;
    p->shard_rank = i->shard_rank;
    p->shard_stage = i->shard_stage;
    p->comm_address = wire_put_str(i->comm_address);
    p->http_address = wire_put_str(i->http_address);
    p->model = wire_put_str(i->model);
    p->max_model_len = i->max_model_len;
    p->vocab_size = i->vocab_size;
    p->n_draft = i->n_draft;
    p->draft_max_seqs = i->draft_max_seqs;
    p->scores_prompts = i->gives_prompt_logprobs;
    put_kv_groups(w, i, p);
    p->term_epoch = i->term_epoch;
    p->group_id = i->replica_id;
    p->step_received = i->step_received;
    p->step_executed = i->step_executed;
    p->rank = i->rank;
    p->stage = i->stage;
    put_adapters(w, i, p);
    p->kv_address = wire_put_str(i->kv_address);
    p->group_role = (Cox__GroupRole)i->replica_role;
    put_elastic(w, i, p);
    p->shard_tp = i->shard_tp;
    p->group_tp = i->replica_tp;
    p->sleep_level = (uint32_t)i->sleep_level;
    bool says = memcmp(i->model_hash, no_hash, sizeof no_hash) != 0;
    p->model_hash.len = says ? sizeof i->model_hash : 0;
    p->model_hash.data = says ? (uint8_t *)i->model_hash : NULL;
    return p;
}

static void get_worker(struct wire *w, const Cox__WorkerInfo *p, struct worker_info *i)
{
    if (p->config_hash.len != sizeof i->config_hash) {
        wire_fail(
            w, STATUS_PROTOCOL,
            "the field config_hash is not 32 bytes long. Run the same release on every machine");
        return;
    }
    if (p->model_hash.len != 0 && p->model_hash.len != sizeof i->model_hash) {
        wire_fail(
            w, STATUS_PROTOCOL,
            "the field model_hash is not 32 bytes long. Run the same release on every machine");
        return;
    }
    struct kv_group *groups = wire_array(w, p->n_kv_groups, sizeof *groups);
    for (size_t k = 0; groups && k < p->n_kv_groups; k++) {
        const Cox__KvGroup *q = p->kv_groups[k];
        groups[k] = (struct kv_group){(enum kv_kind)q->kind, q->window_tokens, q->block_tokens,
                                      q->bytes_per_block, q->n_blocks};
    }
    *i = (struct worker_info){
        .device = (enum device_kind)p->device,
        .device_name = wire_get_str(p->device_name),
        .host = wire_get_str(p->host),
        .zone = wire_get_str(p->zone),
        .memory_bytes = p->memory_bytes,
        .isa_level = p->isa_level,
        .ordinal = p->ordinal,
        .tp = p->tp,
        .pp = p->pp,
        .shard_rank = p->shard_rank,
        .shard_stage = p->shard_stage,
        .comm_address = wire_get_str(p->comm_address),
        .http_address = wire_get_str(p->http_address),
        .model = wire_get_str(p->model),
        .max_model_len = p->max_model_len,
        .vocab_size = p->vocab_size,
        .n_draft = p->n_draft,
        .draft_max_seqs = p->draft_max_seqs,
        .gives_prompt_logprobs = p->scores_prompts != 0,
        .kv_groups = groups,
        .n_kv_groups = (uint32_t)p->n_kv_groups,
        .term_epoch = p->term_epoch,
        .replica_id = p->group_id,
        .step_received = p->step_received,
        .step_executed = p->step_executed,
        .rank = p->rank,
        .stage = p->stage,
        .kv_address = wire_get_str(p->kv_address),
        .replica_role = (enum replica_role)p->group_role,
        .shard_tp = p->shard_tp,
        .replica_tp = p->group_tp,
        .sleep_level = (enum sleep_level)p->sleep_level,
    };
    memcpy(i->config_hash, p->config_hash.data, sizeof i->config_hash);
    if (p->model_hash.len)
        memcpy(i->model_hash, p->model_hash.data, sizeof i->model_hash);
    get_adapters(w, p, i);
    get_elastic(w, p, i);
}

static Cox__Vocabulary *put_vocabulary(struct wire *w, const struct vocabulary *v)
{
    WIRE_PUT(Vocabulary, vocabulary);
    p->n_tokens = v->n_tokens;
    p->sketch.len = sizeof v->sketch;
    p->sketch.data = (uint8_t *)v->sketch;
    return p;
}

/* Decodes a vocabulary. Returns false when the message has none, or an invalid one. */
static bool get_vocabulary(struct wire *w, const Cox__Vocabulary *p, struct vocabulary *v)
{
    if (!p)
        return false;
    if (p->sketch.len != sizeof v->sketch) {
        wire_fail(
            w, STATUS_PROTOCOL,
            "the vocabulary's sketch is not 256 bytes long. Run the same release on every machine");
        return false;
    }
    v->n_tokens = p->n_tokens;
    memcpy(v->sketch, p->sketch.data, sizeof v->sketch);
    return true;
}

static ProtobufCMessage *put_hello(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Hello, hello);
    p->node = wire_put_str(m->hello.node);
    p->instance = m->hello.instance;
    p->role = (Cox__PeerRole)m->hello.role;
    p->version = wire_put_str(m->hello.version);
    p->credit_bytes = m->hello.credit_bytes;
    p->term_seen = m->hello.term_seen;
    if (m->hello.has_worker)
        p->worker = put_worker(w, &m->hello.worker);
    if (m->hello.has_vocabulary)
        p->vocabulary = put_vocabulary(w, &m->hello.vocabulary);
    p->model = wire_put_str(m->hello.model);
    return &p->base;
}

static void get_hello(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Hello *p = (const Cox__Hello *)base;
    m->hello = (struct msg_hello){.node = wire_get_str(p->node),
                                  .instance = p->instance,
                                  .role = (enum peer_role)p->role,
                                  .version = wire_get_str(p->version),
                                  .credit_bytes = p->credit_bytes,
                                  .term_seen = p->term_seen,
                                  .has_worker = p->worker != NULL,
                                  .model = wire_get_str(p->model)};
    m->hello.has_vocabulary = get_vocabulary(w, p->vocabulary, &m->hello.vocabulary);
    if (p->worker)
        get_worker(w, p->worker, &m->hello.worker);
}

static ProtobufCMessage *put_welcome(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Welcome, welcome);
    p->session = m->welcome.session;
    p->head_instance = m->welcome.head_instance;
    p->term = m->welcome.term;
    p->credit_bytes = m->welcome.credit_bytes;
    p->heartbeat_ms = m->welcome.heartbeat_ms;
    p->suspect_ms = m->welcome.suspect_ms;
    p->version = wire_put_str(m->welcome.version);
    p->keeps_grammar = m->welcome.keeps_grammar;
    p->quiet_ms = m->welcome.quiet_ms;
    return &p->base;
}

static void get_welcome(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Welcome *p = (const Cox__Welcome *)base;
    m->welcome = (struct msg_welcome){.session = p->session,
                                      .head_instance = p->head_instance,
                                      .term = p->term,
                                      .credit_bytes = p->credit_bytes,
                                      .heartbeat_ms = p->heartbeat_ms,
                                      .suspect_ms = p->suspect_ms,
                                      .version = wire_get_str(p->version),
                                      .keeps_grammar = p->keeps_grammar,
                                      .quiet_ms = p->quiet_ms};
}

static ProtobufCMessage *put_refused(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Refused, refused);
    p->status = (uint32_t)m->refused.status;
    p->text = wire_put_text(m->refused.text);
    return &p->base;
}

static void get_refused(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Refused *p = (const Cox__Refused *)base;
    m->refused = (struct msg_refused){(enum status)p->status, wire_get_str(p->text)};
}

static ProtobufCMessage *put_heartbeat(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Heartbeat, heartbeat);
    p->time_ns = m->heartbeat.time_ns;
    p->progress = m->heartbeat.progress;
    p->term_epoch = m->heartbeat.term_epoch;
    p->step_received = m->heartbeat.step_received;
    p->step_executed = m->heartbeat.step_executed;
    p->busy = m->heartbeat.busy;
    p->load_permille = m->heartbeat.load_permille;
    p->gpu_memory_used = m->heartbeat.gpu.memory_used;
    p->gpu_memory_total = m->heartbeat.gpu.memory_total;
    p->gpu_busy_percent = m->heartbeat.gpu.busy_percent;
    p->gpu_celsius = m->heartbeat.gpu.celsius;
    p->gpu_milliwatts = m->heartbeat.gpu.milliwatts;
    p->own_ns = m->heartbeat.own_ns;
    p->own_steps = m->heartbeat.own_steps;
    p->serves = m->heartbeat.serves;
    p->spare = m->heartbeat.spare;
    p->cpu_threads = m->heartbeat.host.threads;
    p->cpu_millicores = m->heartbeat.host.millicores;
    p->resident_bytes = m->heartbeat.host.resident_bytes;
    p->host_id = m->heartbeat.host.id;
    p->host_cpus = m->heartbeat.host.cpus;
    p->host_memory_bytes = m->heartbeat.host.memory_bytes;
    p->next_in_ms = m->heartbeat.next_in_ms;
    if (m->heartbeat.has_vocabulary)
        p->vocabulary = put_vocabulary(w, &m->heartbeat.vocabulary);
    return &p->base;
}

static void get_heartbeat(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Heartbeat *p = (const Cox__Heartbeat *)base;
    m->heartbeat =
        (struct msg_heartbeat){.time_ns = p->time_ns,
                               .progress = p->progress,
                               .term_epoch = p->term_epoch,
                               .step_received = p->step_received,
                               .step_executed = p->step_executed,
                               .busy = p->busy != 0,
                               .load_permille = p->load_permille,
                               .gpu = {p->gpu_memory_used, p->gpu_memory_total, p->gpu_busy_percent,
                                       p->gpu_celsius, p->gpu_milliwatts},
                               .own_ns = p->own_ns,
                               .own_steps = p->own_steps,
                               .host = {p->cpu_threads, p->cpu_millicores, p->resident_bytes,
                                        p->host_id, p->host_cpus, p->host_memory_bytes},
                               .serves = p->serves != 0,
                               .spare = p->spare != 0,
                               .next_in_ms = p->next_in_ms};
    m->heartbeat.has_vocabulary = get_vocabulary(w, p->vocabulary, &m->heartbeat.vocabulary);
}

static ProtobufCMessage *put_credit(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Credit, credit);
    p->bytes = m->credit.bytes;
    return &p->base;
}

static void get_credit(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    m->credit.bytes = ((const Cox__Credit *)base)->bytes;
}

static ProtobufCMessage *put_goodbye(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Goodbye, goodbye);
    p->text = wire_put_text(m->goodbye.text);
    p->planned = m->goodbye.planned;
    return &p->base;
}

static void get_goodbye(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Goodbye *p = (const Cox__Goodbye *)base;
    m->goodbye.text = wire_get_str(p->text);
    m->goodbye.planned = p->planned;
}

static ProtobufCMessage *put_form(struct wire *w, const struct msg *m)
{
    const struct msg_form *f = &m->form;
    WIRE_PUT(Form, form);
    p->term_epoch = f->term_epoch;
    p->group_id = f->replica_id;
    p->tp = f->tp;
    p->pp = f->pp;
    p->rank = f->rank;
    p->stage = f->stage;
    p->isa_level = f->isa_level;
    p->make_id = f->make_id;
    p->comm_addresses = wire_array(w, f->n_comm_addresses, sizeof *p->comm_addresses);
    for (uint32_t i = 0; p->comm_addresses && i < f->n_comm_addresses; i++)
        p->comm_addresses[i] = wire_put_str(f->comm_addresses[i]);
    p->n_comm_addresses = f->n_comm_addresses;
    WIRE_PUT_SPAN(p, n_blocks, f->n_blocks);
    return &p->base;
}

static void get_form(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Form *p = (const Cox__Form *)base;
    struct str *addresses = wire_array(w, p->n_comm_addresses, sizeof *addresses);
    for (size_t i = 0; addresses && i < p->n_comm_addresses; i++)
        addresses[i] = wire_get_str(p->comm_addresses[i]);
    m->form = (struct msg_form){.term_epoch = p->term_epoch,
                                .replica_id = p->group_id,
                                .tp = p->tp,
                                .pp = p->pp,
                                .rank = p->rank,
                                .stage = p->stage,
                                .isa_level = p->isa_level,
                                .make_id = p->make_id != 0,
                                .comm_addresses = addresses,
                                .n_comm_addresses = (uint32_t)p->n_comm_addresses,
                                .n_blocks = WIRE_GET_U32(p, n_blocks)};
}

static ProtobufCMessage *put_comm_id(struct wire *w, const struct msg *m)
{
    WIRE_PUT(CommId, comm_id);
    p->term_epoch = m->comm_id.term_epoch;
    WIRE_PUT_BYTES(p, id, m->comm_id.id);
    return &p->base;
}

static void get_comm_id(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__CommId *p = (const Cox__CommId *)base;
    m->comm_id = (struct msg_comm_id){p->term_epoch, {p->id.data, (uint32_t)p->id.len}};
}

static ProtobufCMessage *put_join(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Join, join);
    p->term_epoch = m->join.term_epoch;
    WIRE_PUT_BYTES(p, id, m->join.id);
    return &p->base;
}

static void get_join(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Join *p = (const Cox__Join *)base;
    m->join = (struct msg_join){p->term_epoch, {p->id.data, (uint32_t)p->id.len}};
}

static ProtobufCMessage *put_formed(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Formed, formed);
    p->term_epoch = m->formed.term_epoch;
    p->status = (uint32_t)m->formed.status;
    p->text = wire_put_text(m->formed.text);
    return &p->base;
}

static void get_formed(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Formed *p = (const Cox__Formed *)base;
    m->formed = (struct msg_formed){p->term_epoch, (enum status)p->status, wire_get_str(p->text)};
}

static ProtobufCMessage *put_abort(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Abort, abort);
    p->term_epoch = m->abort_.term_epoch;
    p->text = wire_put_text(m->abort_.text);
    return &p->base;
}

static void get_abort(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Abort *p = (const Cox__Abort *)base;
    m->abort_ = (struct msg_abort){p->term_epoch, wire_get_str(p->text)};
}

static ProtobufCMessage *put_aborted(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Aborted, aborted);
    p->term_epoch = m->aborted.term_epoch;
    return &p->base;
}

static void get_aborted(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    m->aborted.term_epoch = ((const Cox__Aborted *)base)->term_epoch;
}

static ProtobufCMessage *put_reset(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Reset, reset);
    p->old_term_epoch = m->reset.old_term_epoch;
    p->term_epoch = m->reset.term_epoch;
    return &p->base;
}

static void get_reset(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__Reset *p = (const Cox__Reset *)base;
    m->reset = (struct msg_reset){p->old_term_epoch, p->term_epoch};
}

static ProtobufCMessage *put_comm_error(struct wire *w, const struct msg *m)
{
    WIRE_PUT(CommError, comm_error);
    p->term_epoch = m->comm_error.term_epoch;
    p->step = m->comm_error.step;
    p->text = wire_put_text(m->comm_error.text);
    return &p->base;
}

static void get_comm_error(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    const Cox__CommError *p = (const Cox__CommError *)base;
    m->comm_error = (struct msg_comm_error){p->term_epoch, p->step, wire_get_str(p->text)};
}

static ProtobufCMessage *put_drain(struct wire *w, const struct msg *m)
{
    WIRE_PUT(Drain, drain);
    p->on = m->drain.on;
    return &p->base;
}

static void get_drain(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    m->drain.on = ((const Cox__Drain *)base)->on != 0;
}

static ProtobufCMessage *put_drain_wish(struct wire *w, const struct msg *m)
{
    WIRE_PUT(DrainWish, drain_wish);
    p->text = wire_put_text(m->drain_wish.text);
    return &p->base;
}

static void get_drain_wish(struct wire *w, const ProtobufCMessage *base, struct msg *m)
{
    m->drain_wish.text = wire_get_str(((const Cox__DrainWish *)base)->text);
}

const struct codec_ops codec_cluster_ops[MSG_TYPE_COUNT] = {
    WIRE_ROW(HELLO, hello, 512u << 10),
    WIRE_ROW(WELCOME, welcome, CODEC_SMALL_BYTES),
    WIRE_ROW(REFUSED, refused, CODEC_SMALL_BYTES),
    WIRE_ROW(HEARTBEAT, heartbeat, CODEC_SMALL_BYTES),
    WIRE_ROW(CREDIT, credit, CODEC_SMALL_BYTES),
    WIRE_ROW(GOODBYE, goodbye, CODEC_SMALL_BYTES),
    WIRE_ROW(FORM, form, 1u << 20),
    WIRE_ROW(JOIN, join, CODEC_SMALL_BYTES),
    WIRE_ROW(ABORT, abort, CODEC_SMALL_BYTES),
    WIRE_ROW(RESET, reset, CODEC_SMALL_BYTES),
    WIRE_ROW(COMM_ID, comm_id, CODEC_SMALL_BYTES),
    WIRE_ROW(FORMED, formed, CODEC_SMALL_BYTES),
    WIRE_ROW(ABORTED, aborted, CODEC_SMALL_BYTES),
    WIRE_ROW(COMM_ERROR, comm_error, CODEC_SMALL_BYTES),
    WIRE_ROW(DRAIN, drain, CODEC_SMALL_BYTES),
    WIRE_ROW(DRAIN_WISH, drain_wish, CODEC_SMALL_BYTES),
};
