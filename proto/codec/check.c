/* Checks the contents of a message, with one set of rules for both directions. The rules for
 * outgoing messages are the same, so a peer accepts the messages that this process sends.
 *
 * Data flow: the codec calls msg_check on the plain struct, before it encodes a message and after
 * it has decoded one. check_by_type calls the rules of the message's type. The rules check sizes
 * and counts (proto/limits.h), enum values, counts that must agree, and that texts are UTF-8.
 *
 * Invariants: struct check keeps the first fault, and later rules do not replace it. A loop that
 * follows a count stops after a fault, because the count may be out of range. Runs and items of a
 * step without any field that could break a rule are passed by a short test (plain_run and the
 * like). Outgoing texts for humans are not checked, because encoding cuts them to valid UTF-8.
 * The functions change nothing in the message and may run on any thread. */
#include "proto/codec/check.h"

#include <math.h>

#include "proto/limits.h"

struct check {
    struct error *err;
    const char *name;
    bool outgoing;
    enum status status;
};

static void refuse(struct check *c, const char *what, uint64_t value, uint64_t max)
{
    if (c->status == STATUS_OK)
        c->status = error_set(c->err, c->outgoing ? STATUS_INVALID : STATUS_PROTOCOL,
                              "invalid %s message: %s is %llu, but at most %llu is allowed",
                              c->name, what, (unsigned long long)value, (unsigned long long)max);
}

static void must(struct check *c, bool ok, const char *what)
{
    if (!ok && c->status == STATUS_OK)
        c->status = error_set(c->err, c->outgoing ? STATUS_INVALID : STATUS_PROTOCOL,
                              "invalid %s message: %s", c->name, what);
}

static void at_most(struct check *c, const char *what, uint64_t value, uint64_t max)
{
    if (value > max)
        refuse(c, what, value, max);
}

/* Checks an enum's value as it arrived, negative values included. */
static void in_enum(struct check *c, const char *what, int value, int count)
{
    if (value < 0 || value >= count)
        refuse(c, what, (uint64_t)(unsigned)value, (uint64_t)count - 1);
}

static void exact(struct check *c, const char *what, struct str s, size_t max)
{
    at_most(c, what, s.len, max);
    if (c->status == STATUS_OK && str_utf8_valid(s) != s.len)
        must(c, false, "a text is not UTF-8");
}

/* Checks a text for humans. In an outgoing message it may be too long, because encoding cuts it. */
static void text(struct check *c, struct str s)
{
    if (!c->outgoing)
        exact(c, "text", s, PROTO_MAX_TEXT_BYTES);
}

static void check_rows(struct check *c, const struct logprob_row *rows, uint32_t n, uint32_t max)
{
    at_most(c, "the number of logprob rows", n, max);
    for (uint32_t i = 0; c->status == STATUS_OK && i < n; i++) {
        at_most(c, "the number of logprobs in a row", rows[i].ids.n, PROTO_MAX_LOGPROBS);
        must(c, rows[i].ids.n == rows[i].values.n,
             "a logprob row has different numbers of ids and values");
    }
}

static void check_sampling(struct check *c, const struct sampling_params *s)
{
    const float floats[] = {
        s->temperature,       s->top_p, s->min_p, s->presence_penalty, s->frequency_penalty,
        s->repetition_penalty};
    for (size_t i = 0; i < sizeof floats / sizeof *floats; i++)
        must(c, isfinite(floats[i]), "a sampling parameter is not a finite number");
    must(c,
         s->n_logprobs >= -1 && s->n_logprobs <= (int32_t)PROTO_MAX_LOGPROBS &&
             s->n_prompt_logprobs >= -1 && s->n_prompt_logprobs <= (int32_t)PROTO_MAX_LOGPROBS,
         "the number of logprobs is out of range");
    at_most(c, "the number of eos ids", s->eos_ids.n, PROTO_MAX_EOS_IDS);
    at_most(c, "the number of stop ids", s->stop_ids.n, PROTO_MAX_STOP_IDS);
    at_most(c, "the number of allowed ids", s->allowed_ids.n, PROTO_MAX_ALLOWED_IDS);
    at_most(c, "the number of bad words", s->bad_words.n, PROTO_MAX_BAD_WORDS);
    must(c,
         c->status != STATUS_OK || s->bad_words.n == 0 ||
             s->bad_words.ptr[s->bad_words.n - 1] == UINT32_MAX,
         "the list of bad words does not end with an end mark");
    at_most(c, "the number of logit biases", s->n_logit_bias, PROTO_MAX_LOGIT_BIAS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < s->n_logit_bias; i++)
        must(c, isfinite(s->logit_bias[i].bias), "a logit bias is not a finite number");
    in_enum(c, "grammar kind", (int)s->grammar_kind, GRAMMAR_COUNT);
    exact(c, "grammar bytes", s->grammar, PROTO_MAX_GRAMMAR_BYTES);
    must(c, (s->grammar_kind == GRAMMAR_NONE) == (s->grammar.len == 0),
         "the grammar and its kind do not match");
    exact(c, "adapter name", s->lora, PROTO_MAX_MODEL_BYTES);
    in_enum(c, "pooling", (int)s->pooling, POOLING_COUNT);
}

static void check_adapter(struct check *c, struct str name, struct str path)
{
    exact(c, "adapter name", name, PROTO_MAX_MODEL_BYTES);
    exact(c, "adapter path", path, PROTO_MAX_PATH_BYTES);
}

static void check_worker(struct check *c, const struct worker_info *w)
{
    in_enum(c, "device", (int)w->device, DEVICE_COUNT);
    exact(c, "device name", w->device_name, PROTO_MAX_NAME_BYTES);
    exact(c, "host", w->host, PROTO_MAX_NAME_BYTES);
    exact(c, "zone", w->zone, PROTO_MAX_NAME_BYTES);
    exact(c, "comm_address", w->comm_address, PROTO_MAX_ADDRESS_BYTES);
    exact(c, "http_address", w->http_address, PROTO_MAX_ADDRESS_BYTES);
    exact(c, "model", w->model, PROTO_MAX_MODEL_BYTES);
    must(c, w->ordinal >= -1 && w->shard_rank >= -1 && w->shard_stage >= -1,
         "the ordinal or the shard is below -1");
    must(c, w->tp >= 1 && w->pp >= 1, "tp and pp must be at least 1");
    at_most(c, "tp * pp", (uint64_t)w->tp * w->pp, PROTO_MAX_RANKS);
    at_most(c, "n_draft", w->n_draft, PROTO_MAX_DRAFT);
    at_most(c, "the number of KV groups", w->n_kv_groups, PROTO_MAX_KV_GROUPS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < w->n_kv_groups; i++) {
        const struct kv_group *g = &w->kv_groups[i];
        in_enum(c, "KV kind", (int)g->kind, KV_KIND_COUNT);
        at_most(c, "block_tokens", g->block_tokens, PROTO_MAX_BLOCK_TOKENS);
        must(c, g->block_tokens > 0 && g->block_tokens % 16 == 0,
             "block_tokens is not a multiple of 16");
        must(c, g->kind != KV_WINDOW || g->window_tokens > 0,
             "a KV group of kind window has no window");
    }
    exact(c, "kv_address", w->kv_address, PROTO_MAX_ADDRESS_BYTES);
    in_enum(c, "group role", (int)w->replica_role, REPLICA_ROLE_COUNT);
    in_enum(c, "sleep_level", (int)w->sleep_level, SLEEP_LEVEL_COUNT);
    must(c, w->shard_tp <= w->tp && w->replica_tp <= w->tp,
         "the shard or the replica has more ranks than tp");
    at_most(c, "the number of smaller TPs", w->n_elastic, PROTO_MAX_ELASTIC);
    uint32_t tp = w->tp;
    for (uint32_t i = 0; c->status == STATUS_OK && i < w->n_elastic; i++) {
        must(c, w->elastic[i].tp >= 1 && w->elastic[i].tp < tp,
             "the smaller TPs are not in descending order");
        must(c, w->elastic[i].n_blocks.n == w->n_kv_groups,
             "a smaller TP does not give one number of blocks for each KV group");
        must(c, w->elastic[i].block_bytes.n == 0 || w->elastic[i].block_bytes.n == w->n_kv_groups,
             "a smaller TP does not give one block size for each KV group");
        tp = w->elastic[i].tp;
    }
    at_most(c, "adapters", w->n_adapters, PROTO_MAX_ADAPTERS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < w->n_adapters; i++)
        check_adapter(c, w->adapters[i].name, w->adapters[i].path);
}

static void check_hello(struct check *c, const struct msg_hello *h)
{
    exact(c, "node", h->node, PROTO_MAX_NAME_BYTES);
    exact(c, "version", h->version, PROTO_MAX_NAME_BYTES);
    in_enum(c, "role", (int)h->role, ROLE_COUNT);
    must(c, h->role != ROLE_NONE, "the peer names no role");
    must(c, h->has_worker == (h->role == ROLE_WORKER),
         "a worker must describe its device, and other roles must not");
    exact(c, "model", h->model, PROTO_MAX_MODEL_BYTES);
    if (h->has_worker)
        check_worker(c, &h->worker);
}

static void check_form(struct check *c, const struct msg_form *f)
{
    must(c, f->tp >= 1 && f->pp >= 1 && f->rank < f->tp && f->stage < f->pp,
         "the rank or the stage is outside of tp x pp");
    at_most(c, "tp * pp", (uint64_t)f->tp * f->pp, PROTO_MAX_RANKS);
    at_most(c, "addresses", f->n_comm_addresses, PROTO_MAX_RANKS);
    at_most(c, "the number of KV groups", f->n_blocks.n, PROTO_MAX_KV_GROUPS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < f->n_comm_addresses; i++)
        exact(c, "comm_address", f->comm_addresses[i], PROTO_MAX_ADDRESS_BYTES);
}

static void check_submit(struct check *c, const struct msg_submit *s)
{
    exact(c, "cache_salt", s->cache_salt, PROTO_MAX_SALT_BYTES);
    exact(c, "tenant_name", s->tenant_name, PROTO_MAX_NAME_BYTES);
    at_most(c, "ids", s->ids.n, PROTO_MAX_IDS);
    at_most(c, "n_prompt", s->n_prompt, s->ids.n);
    at_most(c, "n_scored", s->n_known_logprobs, s->n_prompt);
    must(c, !s->same_grammar || s->sampling.grammar_kind == GRAMMAR_NONE,
         "the message has both a grammar and a reference to the previous Submit's grammar");
    check_sampling(c, &s->sampling);
}

/* Returns true for an item without any field that could break a rule. A step has thousands of
 * runs and items, and nearly all of them are plain. */
static bool plain_tokens(const struct tokens_item *it)
{
    return (it->n_logprobs | it->n_prompt_logprobs | (uint32_t)it->finish | (uint32_t)it->status |
            it->vector.n) == 0 &&
           it->text.len == 0 && it->ids.n <= PROTO_MAX_IDS;
}

static bool plain_run(const struct plan_run *r)
{
    return r->start <= UINT32_MAX - r->n_tokens && (r->n_draft | r->n_blocks) == 0 && !r->follows;
}

static bool plain_result(const struct result_item *it)
{
    return it->ids.n <= PROTO_MAX_DRAFT + 1 && it->gaps.n == it->ids.n &&
           (it->n_logprobs | it->n_prompt_logprobs | it->vector.n) == 0;
}

static void check_tokens_item(struct check *c, const struct tokens_item *it)
{
    at_most(c, "ids", it->ids.n, PROTO_MAX_IDS);
    must(c, it->n_logprobs == 0 || it->n_logprobs == it->ids.n,
         "the logprobs do not cover every token");
    check_rows(c, it->logprobs, it->n_logprobs, PROTO_MAX_ROWS);
    check_rows(c, it->prompt_logprobs, it->n_prompt_logprobs, PROTO_MAX_ROWS);
    in_enum(c, "finish", (int)it->finish, FINISH_REASON_COUNT);
    in_enum(c, "status", (int)it->status, STATUS_COUNT);
    text(c, it->text);
    at_most(c, "the number of floats in a vector", it->vector.n, PROTO_MAX_VECTOR);
}

static void check_tokens(struct check *c, const struct msg_tokens *t)
{
    at_most(c, "items", t->n_items, PROTO_MAX_ITEMS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < t->n_items; i++)
        if (!plain_tokens(&t->items[i]))
            check_tokens_item(c, &t->items[i]);
}

static void check_run(struct check *c, const struct plan_run *r)
{
    at_most(c, "n_draft", r->n_draft, PROTO_MAX_DRAFT);
    at_most(c, "start + n_tokens + n_draft", (uint64_t)r->start + r->n_tokens + r->n_draft,
            UINT32_MAX);
    must(c, (r->n_draft == 0 && !r->follows) || (r->sample && r->n_tokens == 1),
         "a run with draft tokens, or one that follows such a run, must have one token and sample");
    at_most(c, "the number of KV groups", r->n_blocks, PROTO_MAX_KV_GROUPS);
    for (uint32_t k = 0; c->status == STATUS_OK && k < r->n_blocks; k++) {
        at_most(c, "i_group", r->blocks[k].i_group, PROTO_MAX_KV_GROUPS - 1);
        at_most(c, "blocks", r->blocks[k].ids.n, PROTO_MAX_IDS);
    }
}

static void check_plan(struct check *c, const struct msg_plan *p)
{
    at_most(c, "the number of finished slots", p->finished.n, PROTO_MAX_ITEMS);
    at_most(c, "copies", p->n_copies, PROTO_MAX_COPIES);
    at_most(c, "admits", p->n_admits, PROTO_MAX_ITEMS);
    at_most(c, "runs", p->n_runs, PROTO_MAX_ITEMS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < p->n_copies; i++)
        at_most(c, "i_group", p->copies[i].i_group, PROTO_MAX_KV_GROUPS - 1);
    for (uint32_t i = 0; c->status == STATUS_OK && i < p->n_admits; i++) {
        const struct plan_admit *a = &p->admits[i];
        at_most(c, "ids", a->ids.n, PROTO_MAX_IDS);
        at_most(c, "n_prompt", a->n_prompt, a->ids.n);
        at_most(c, "n_computed", a->n_computed, a->ids.n);
        check_sampling(c, &a->sampling);
    }
    for (uint32_t i = 0; c->status == STATUS_OK && i < p->n_runs; i++)
        if (!plain_run(&p->runs[i]))
            check_run(c, &p->runs[i]);
}

static void check_result_item(struct check *c, const struct result_item *it)
{
    at_most(c, "ids", it->ids.n, PROTO_MAX_DRAFT + 1);
    must(c, it->n_logprobs == 0 || it->n_logprobs == it->ids.n,
         "the logprobs do not cover every token");
    must(c, it->gaps.n == it->ids.n, "the numbers of gaps and tokens differ");
    check_rows(c, it->logprobs, it->n_logprobs, PROTO_MAX_ROWS);
    check_rows(c, it->prompt_logprobs, it->n_prompt_logprobs, PROTO_MAX_ROWS);
    at_most(c, "the number of floats in a vector", it->vector.n, PROTO_MAX_VECTOR);
}

static void check_result(struct check *c, const struct msg_result *r)
{
    at_most(c, "items", r->n_items, PROTO_MAX_ITEMS);
    for (uint32_t i = 0; c->status == STATUS_OK && i < r->n_items; i++)
        if (!plain_result(&r->items[i]))
            check_result_item(c, &r->items[i]);
}

static void check_adapters(struct check *c, const struct msg *m)
{
    switch (m->type) {
    case MSG_ADAPTER:
        check_adapter(c, m->adapter.name, m->adapter.path);
        break;
    case MSG_ADAPTER_DONE:
        in_enum(c, "status", (int)m->adapter_done.status, STATUS_COUNT);
        text(c, m->adapter_done.text);
        break;
    case MSG_ADAPTERS:
        at_most(c, "adapters", m->adapters.n, PROTO_MAX_ADAPTERS);
        for (uint32_t i = 0; c->status == STATUS_OK && i < m->adapters.n; i++)
            check_adapter(c, m->adapters.list[i].name, m->adapters.list[i].path);
        break;
    case MSG_ADAPTER_ORDER:
        check_adapter(c, m->adapter_order.name, m->adapter_order.path);
        text(c, m->adapter_order.by);
        break;
    case MSG_ADAPTER_ANSWER:
        in_enum(c, "status", (int)m->adapter_answer.status, STATUS_COUNT);
        text(c, m->adapter_answer.text);
        break;
    default:
        break;
    }
}

static void outcome(struct check *c, enum status status, struct str why)
{
    in_enum(c, "status", (int)status, STATUS_COUNT);
    text(c, why);
}

static void check_transfer(struct check *c, const struct msg_kv_transfer *t)
{
    exact(c, "from_address", t->from_address, PROTO_MAX_ADDRESS_BYTES);
    exact(c, "to_address", t->to_address, PROTO_MAX_ADDRESS_BYTES);
    at_most(c, "the number of communicator id bytes", t->comm_id.n, PROTO_MAX_COMM_ID_BYTES);
    at_most(c, "blocks", t->blocks.n, PROTO_MAX_TRANSFER_BLOCKS);
    must(c, t->blocks.n > 0, "the message names no blocks");
    must(c, t->block_groups.n == 0 || t->block_groups.n == t->blocks.n,
         "the numbers of KV groups and blocks differ");
    for (uint32_t i = 0; c->status == STATUS_OK && i < t->block_groups.n; i++) {
        at_most(c, "i_group", t->block_groups.ptr[i], PROTO_MAX_KV_GROUPS - 1);
        must(c, i == 0 || t->block_groups.ptr[i] >= t->block_groups.ptr[i - 1],
             "the KV groups of the blocks are not in ascending order");
    }
}

static void check_transfers(struct check *c, const struct msg *m)
{
    if (m->type == MSG_KV_TRANSFER) {
        check_transfer(c, &m->kv_transfer);
        return;
    }
    outcome(c, m->kv_transferred.status, m->kv_transferred.text);
}

static void check_grammars(struct check *c, const struct msg *m)
{
    if (m->type == MSG_GRAMMAR_DONE) {
        outcome(c, m->grammar_done.status, m->grammar_done.text);
        return;
    }
    const struct msg_grammar *g = &m->grammar;
    in_enum(c, "grammar_kind", (int)g->kind, GRAMMAR_COUNT);
    exact(c, "grammar", g->source, PROTO_MAX_GRAMMAR_BYTES);
    must(c, g->on == (g->kind != GRAMMAR_NONE) && g->on == (g->source.len > 0),
         "the grammar, its kind and `on` do not match");
}

static void check_sleep(struct check *c, const struct msg *m)
{
    enum sleep_level level = m->type == MSG_SLEEP ? m->sleep.level : m->slept.level;
    in_enum(c, "level", (int)level, SLEEP_LEVEL_COUNT);
    if (m->type == MSG_SLEPT)
        outcome(c, m->slept.status, m->slept.text);
}

static void check_beside_steps(struct check *c, const struct msg *m)
{
    if (m->type == MSG_SLEEP || m->type == MSG_SLEPT)
        check_sleep(c, m);
    else if (m->type == MSG_KV_TRANSFER || m->type == MSG_KV_TRANSFERRED)
        check_transfers(c, m);
    else
        check_grammars(c, m);
}

static void check_comm_id(struct check *c, const struct msg *m)
{
    const struct bytes id = m->type == MSG_JOIN ? m->join.id : m->comm_id.id;
    at_most(c, "the number of communicator id bytes", id.n, PROTO_MAX_COMM_ID_BYTES);
}

static void check_by_type(struct check *c, const struct msg *m)
{
    switch (m->type) {
    case MSG_HELLO:
        check_hello(c, &m->hello);
        break;
    case MSG_WELCOME:
        must(c, m->welcome.session != 0, "the session number is 0");
        exact(c, "version", m->welcome.version, PROTO_MAX_NAME_BYTES);
        break;
    case MSG_REFUSED:
        outcome(c, m->refused.status, m->refused.text);
        break;
    case MSG_GOODBYE:
        text(c, m->goodbye.text);
        break;
    case MSG_SUBMIT:
        check_submit(c, &m->submit);
        break;
    case MSG_TOKENS:
        check_tokens(c, &m->tokens);
        break;
    case MSG_CLUSTER:
        exact(c, "model", m->cluster.model, PROTO_MAX_MODEL_BYTES);
        break;
    case MSG_FORM:
        check_form(c, &m->form);
        break;
    case MSG_JOIN:
    case MSG_COMM_ID:
        check_comm_id(c, m);
        break;
    case MSG_ABORT:
        text(c, m->abort_.text);
        break;
    case MSG_PLAN:
        check_plan(c, &m->plan);
        break;
    case MSG_FORMED:
        outcome(c, m->formed.status, m->formed.text);
        break;
    case MSG_RESULT:
        check_result(c, &m->result);
        break;
    case MSG_GAP:
        text(c, m->gap.text);
        break;
    case MSG_COMM_ERROR:
        text(c, m->comm_error.text);
        break;
    case MSG_DRAIN_WISH:
        text(c, m->drain_wish.text);
        break;
    case MSG_ADAPTER:
    case MSG_ADAPTER_DONE:
    case MSG_ADAPTERS:
    case MSG_ADAPTER_ORDER:
    case MSG_ADAPTER_ANSWER:
        check_adapters(c, m);
        break;
    case MSG_KV_TRANSFER:
    case MSG_KV_TRANSFERRED:
    case MSG_GRAMMAR:
    case MSG_GRAMMAR_DONE:
    case MSG_SLEEP:
    case MSG_SLEPT:
        check_beside_steps(c, m);
        break;
    case MSG_NONE:
    case MSG_HEARTBEAT:
    case MSG_CREDIT:
    case MSG_CANCEL:
    case MSG_FINISH:
    case MSG_RESET:
    case MSG_DRAIN:
    case MSG_ABORTED:
    case MSG_TYPE_COUNT:
        break; /* the message has only plain numbers, and every value is allowed */
    }
}

enum status msg_check(const struct msg *m, bool outgoing, struct error *err)
{
    struct check c = {.err = err, .name = msg_type_name(m->type), .outgoing = outgoing};
    check_by_type(&c, m);
    return c.status;
}
