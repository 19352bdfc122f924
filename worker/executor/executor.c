#include "worker/executor/executor.h"

#include <sodium.h>

#include "proto/limits.h"
#include "worker/runner/setup.h"

struct executor_comm executor_comm_of(const struct msg_form *f, struct bytes id)
{
    return (struct executor_comm){.term_epoch = f->term_epoch,
                                  .tp = f->tp,
                                  .pp = f->pp,
                                  .rank = f->rank,
                                  .stage = f->stage,
                                  .isa_level = f->isa_level,
                                  .addresses = f->comm_addresses,
                                  .n_addresses = f->n_comm_addresses,
                                  .n_blocks = f->n_blocks,
                                  .id = id};
}

/* Hashes the configuration as JSON. Keys are in alphabetical order without blanks, because the
 * text itself is hashed. */
void executor_config_hash(const struct config_identity *c, uint8_t out[32])
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_printf(&b,
                  "{\"block_size\":%u,\"dtype\":\"%s\",\"kv_dtype\":\"%s\",\"max_model_len\":%u,",
                  c->block_size, c->dtype, c->kv_dtype, c->max_model_len);
    if (c->expert_parallel)
        strbuf_append_c(&b, "\"experts\":\"whole\",");
    /* Ranks exchange only the best logits of greedy rows. A rank that sends all logits must not be
     * in the same replica. */
    if (c->tp > 1)
        strbuf_printf(&b, "\"logits\":\"best %u\",", RUNNER_BEST_ROWS);
    strbuf_append_c(&b, "\"model\":");
    strbuf_append_json(&b, c->model_hashes);
    if (c->tp * c->pp > 1) /* only ranks of one replica must cut steps alike */
        strbuf_printf(&b, ",\"pass_rows\":%u", c->pass_rows);
    strbuf_printf(&b, ",\"pp\":%u,\"protocol\":%u,\"quantisation\":\"%s\",", c->pp, PROTOCOL_MAJOR,
                  c->quantisation);
    /* Ranks add only the needed rows of the last layer. A rank that adds all rows must not be in
     * the same replica. */
    if (c->tp > 1)
        strbuf_append_c(&b, "\"rows\":\"kept\",");
    if (c->speculation.n_tokens > 0 && c->speculation.method == SPECULATION_DRAFT_MODEL)
        strbuf_printf(&b, "\"speculation\":\"draft_model %u %.*s\",", c->speculation.n_tokens,
                      (int)c->draft_hashes.len, c->draft_hashes.ptr);
    else if (c->speculation.n_tokens > 0)
        strbuf_printf(&b, "\"speculation\":\"ngram %u %u %u\",", c->speculation.n_tokens,
                      c->speculation.lookup_max, c->speculation.lookup_min);
    strbuf_printf(&b, "\"tp\":%u,\"vocab_size\":%u}", c->tp, c->vocab_size);
    crypto_hash_sha256(out, (const unsigned char *)b.ptr, b.len);
    strbuf_fini(&b);
}

void executor_model_hash(const struct config_identity *c, uint8_t out[32])
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, "{\"model\":");
    strbuf_append_json(&b, c->model_hashes);
    strbuf_printf(&b, ",\"vocab_size\":%u}", c->vocab_size);
    crypto_hash_sha256(out, (const unsigned char *)b.ptr, b.len);
    strbuf_fini(&b);
}
