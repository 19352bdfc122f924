/* From a Submit to a request. A request's memory is its own but for the grammar: all choices of a
 * request, and often all requests of an application, bring the same one, of up to
 * PROTO_MAX_GRAMMAR_BYTES each. */
#include "head/core/submit.h"

#include "head/state/head_core.h"

/* Before any worker has said what its model can do. */
#define UNKNOWN_MODEL_LEN (1u << 20)

static enum status share_grammar(struct head_core *h, const struct msg_submit *m, struct request *r,
                                 struct error *err)
{
    if (request_pools(r) || m->sampling.grammar.len == 0)
        return STATUS_OK;
    TRY(shared_text_take(&h->grammars.texts, r->tenant, m->sampling.grammar, r->resubmitted,
                         &r->grammar_text, err));
    r->sampling.grammar = shared_text_str(r->grammar_text);
    return STATUS_OK;
}

enum status core_new_request(struct head_core *h, const struct msg_submit *m, struct request **out,
                             struct error *err)
{
    struct msg_submit own = *m;
    uint32_t max_model_len = router_model(h).max_model_len;
    own.sampling.grammar = STR("");
    TRY(request_new(&h->request_slab, &own, max_model_len ? max_model_len : UNKNOWN_MODEL_LEN,
                    h->now_ns, out, err));
    enum status s = share_grammar(h, m, *out, err);
    if (s != STATUS_OK) {
        request_free(*out);
        *out = NULL;
    }
    return s;
}

/* The head holds so many bytes of a request until it has ended; its answer is not part of them. */
static uint64_t bytes_of(const struct request *r)
{
    return request_held_bytes(r) + SCHEDULER_SEQ_BYTES;
}

enum status core_has_room(const struct head_core *h, const struct request *r, struct error *err)
{
    const uint64_t n = bytes_of(r);
    if (room_is_wide(&h->room, n) || room_has(&h->room, r->tenant, n))
        return STATUS_OK;
    if (n > h->room.total / 2)
        return error_set(err, STATUS_INVALID,
                         "a prompt of %u tokens, with what came with it, takes %llu bytes of the "
                         "head: more than half of --max-request-bytes, which is what one tenant "
                         "may have",
                         r->n_prompt, (unsigned long long)n);
    return error_set(err, STATUS_LIMIT,
                     "the cluster is overloaded: the prompts that wait or run leave no room for "
                     "another one of %u tokens",
                     r->n_prompt);
}

void core_take_room(struct head_core *h, struct request *r)
{
    room_set(&h->room, &r->charge, r->tenant, bytes_of(r));
}

void core_leave_room(struct head_core *h, struct request *r)
{
    room_set(&h->room, &r->charge, r->tenant, 0);
}

void core_leave_all(struct head_core *h)
{
    for (struct request *r = request_table_next(h->requests, NULL); r;
         r = request_table_next(h->requests, r))
        core_leave_room(h, r);
    room_fini(&h->room);
}

void core_forget_grammar(struct kept_grammar *k)
{
    shared_text_release(k->text);
    *k = (struct kept_grammar){0};
}

enum status core_recall_grammar(struct head_core *h, struct kept_grammar *k,
                                const struct msg_submit *m, struct msg_submit *out,
                                struct error *err)
{
    *out = *m;
    if (!m->same_grammar && m->sampling.grammar.len == 0)
        return STATUS_OK;
    if (!m->same_grammar) {
        struct error ignored; /* the request itself finds no room then */
        core_forget_grammar(k);
        k->kind = m->sampling.grammar_kind;
        (void)!shared_text_take(&h->grammars.texts, m->tenant, m->sampling.grammar,
                                m->attempt > 1 || m->ids.n > m->n_prompt, &k->text, &ignored);
        return STATUS_OK;
    }
    if (!k->text)
        return error_set(err, STATUS_LIMIT,
                         "the cluster is overloaded: there was no room for this request's grammar");
    out->sampling.grammar_kind = k->kind;
    out->sampling.grammar = shared_text_str(k->text);
    return STATUS_OK;
}
