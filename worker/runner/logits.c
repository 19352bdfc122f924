/* Computes results for rows of the last pass (see logits.h). step/ calls these functions after
 * runner_forward. Rows are gathered and normalised, then multiplied by the output matrix. The
 * ranks' parts of the logits are gathered on rank 0. Results stay on the device until the host
 * reads them. Invariants: all ranks of the last stage make the same calls. A call has at most
 * RUNNER_MAX_LOGITS_ROWS rows, and its results are valid until the next call. Before the host
 * reads a result of several ranks, it waits until all ranks are known to be connected. */
#include <string.h>

#include "worker/runner/kept.h"
#include "worker/runner/logits.h"
#include "worker/runner/ops.h"
#include "worker/runner/record.h"
#include "worker/runner/state.h"

/* Gathers every rank's part of the rows on rank 0. Rank 0's own part is at its place already:
 * the first columns. */
static enum status gather_logits(struct runner *r, uint32_t n, struct error *err)
{
    const struct program *p = r->s.program;
    struct collectives *c = r->s.collectives;
    struct cut_range of[COLLECTIVES_MAX_RANKS];
    for (uint32_t rank = 0; rank < p->tp; rank++)
        of[rank] = program_vocab_part(p, rank);
    const struct collectives_columns m = {r->logits, n, r->logits_width, of};
    enum status s = c->ops->gather_columns(c, &m, err);
    return s == STATUS_OK ? s : error_prefix(err, s, "logits");
}

/* Normalises rows of the last forward, whose numbers are in device memory, into r->gathered. */
static struct view normed_at(struct runner *r, const uint32_t *rows, uint32_t n)
{
    const struct program *p = r->s.program;
    struct device *d = r->s.device;
    uint32_t hidden = p->config->hidden;
    const struct view g = {r->gathered, hidden};
    uint32_t places[RUNNER_MAX_LOGITS_ROWS];
    rows = runner_places(r, rows, n, places);
    r->ops->math.gather(d, g, runner_view(r, REG_X), rows, n, hidden);
    r->ops->math.norm(d, &(struct norm_params){.out = g,
                                               .x = g,
                                               .w = p->final_norm.norm.w,
                                               .n_rows = n,
                                               .n_parts = 1,
                                               .dim = hidden,
                                               .eps = p->config->norm_eps});
    return g;
}

static struct view normed(struct runner *r, const uint32_t *rows, uint32_t n)
{
    return normed_at(r, r->ops->pass.upload(r->s.device, rows, n * sizeof *rows), n);
}

static float wide(uint16_t bfloat16)
{
    uint32_t bits = (uint32_t)bfloat16 << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Copies rows to the host. With several ranks it first waits for the collectives, since a
 * collective that ended because a peer ended leaves wrong numbers. */
static enum status read_rows(struct runner *r, void *host, const void *from, size_t n_bytes,
                             struct error *err)
{
    struct collectives *c = r->s.collectives;
    if (c)
        TRY(c->ops->wait(c, err));
    return r->ops->memory.read(r->s.device, host, from, n_bytes, err);
}

enum status runner_normed(struct runner *r, const uint32_t *rows, uint32_t n, const float **out,
                          struct error *err)
{
    size_t n_elements = (size_t)n * r->s.program->config->hidden;
    *out = NULL;
    if (runner_interrupted(r))
        return error_set(err, STATUS_CLOSED, "interrupted");
    struct view g = normed(r, rows, n);
    if (r->ops->on_host) {
        TRY(r->ops->pass.sync(r->s.device, err));
        *out = g.data;
        return STATUS_OK;
    }
    TRY(read_rows(r, r->host_rows, g.data, n_elements * sizeof *r->host_rows, err));
    for (size_t i = 0; i < n_elements; i++)
        r->host[i] = wide(r->host_rows[i]);
    *out = r->host;
    return STATUS_OK;
}

/* Computes this rank's part of the logits of n normalised rows. */
static void own_logits(struct runner *r, struct view g, uint32_t n)
{
    const struct program *p = r->s.program;
    const struct model_config *c = p->config;
    uint32_t n_own = program_vocab_part(p, p->rank).n;
    const struct view logits = {r->logits, r->logits_width};
    const struct linear_part head = {
        .w = &p->weights[p->i_head].w, .out = logits, .to_float = true};
    r->ops->math.linear(
        r->s.device, &(struct linear_params){.x = g, .n_rows = n, .n_parts = 1, .parts = {head}});
    if (c->final_softcap > 0)
        r->ops->math.softcap(r->s.device, logits, n, n_own, c->final_softcap);
}

static enum status logits_of(struct runner *r, struct view g, uint32_t n, struct error *err)
{
    own_logits(r, g, n);
    return r->s.program->tp > 1 ? gather_logits(r, n, err) : STATUS_OK;
}

static enum status check(const struct runner *r, struct error *err)
{
    TRY(runner_check_ranks(r, err));
    return runner_interrupted(r) ? error_set(err, STATUS_CLOSED, "interrupted") : STATUS_OK;
}

enum status runner_logits(struct runner *r, const uint32_t *rows, uint32_t n, float **out,
                          struct error *err)
{
    *out = NULL;
    TRY(check(r, err));
    TRY(logits_of(r, normed(r, rows, n), n, err));
    if (r->s.program->rank == 0)
        *out = r->logits;
    return STATUS_OK;
}

bool runner_finds_best(const struct runner *r)
{
    return r->ops->math.linear_top && (r->s.program->tp == 1 || r->s.collectives->ops->gather);
}

enum status runner_best(struct runner *r, const uint32_t *rows, uint32_t n, struct logits_top *tops,
                        struct error *err)
{
    const struct program *p = r->s.program;
    struct collectives *c = r->s.collectives;
    struct logits_top all[COLLECTIVES_MAX_RANKS][RUNNER_BEST_ROWS];
    size_t n_bytes = n * sizeof **all;
    TRY(check(r, err));
    const struct linear_part head = {.w = &p->weights[p->i_head].w, .to_float = true};
    r->ops->math.linear_top(
        r->s.device,
        &(struct linear_params){
            .x = normed(r, rows, n), .n_rows = n, .n_parts = 1, .parts = {head}},
        p->config->final_softcap, r->tops);
    if (p->tp == 1) {
        memcpy(tops, r->tops, n_bytes);
        return STATUS_OK;
    }
    enum status s = c->ops->gather(c, r->tops, p->rank == 0 ? all : NULL, n_bytes, err);
    if (s != STATUS_OK)
        return error_prefix(err, s, "selecting the best logits");
    if (p->rank != 0)
        return STATUS_OK;
    const struct logits_top *of_rank = *all;
    memcpy(tops, of_rank, n_bytes);
    for (uint32_t rank = 1; rank < p->tp; rank++) {
        of_rank += n;
        for (uint32_t i = 0; i < n; i++) {
            struct logits_top other = of_rank[i];
            other.id += program_vocab_part(p, rank).first;
            logits_top_merge(&tops[i], other);
        }
    }
    return STATUS_OK;
}

static enum status run_sample(struct runner *r, const void *ctx, struct error *err)
{
    const struct runner_sample *d = ctx;
    TRY(logits_of(r, normed_at(r, d->at, d->n), d->n, err));
    return r->s.program->rank == 0 ? d->sample(d->ctx, r->logits, err) : STATUS_OK;
}

enum status runner_sample(struct runner *r, const struct runner_sample *d, struct error *err)
{
    TRY(check(r, err));
    const struct runner_piece p = {
        .key = runner_sample_key(r, d->n, d->key), .run = run_sample, .ctx = d};
    return runner_run_piece(r, &p, err);
}

enum status runner_read_logits(struct runner *r, uint32_t first, uint32_t n, float **out,
                               struct error *err)
{
    float *from = r->logits + (size_t)first * r->logits_width;
    *out = NULL;
    if (r->ops->on_host) {
        TRY(r->ops->pass.sync(r->s.device, err));
        *out = from;
        return STATUS_OK;
    }
    TRY(read_rows(r, r->host, from, sizeof *from * n * r->logits_width, err));
    *out = r->host;
    return STATUS_OK;
}

enum status runner_look(struct runner *r, uint32_t n, struct logits_top *tops, double *sums,
                        struct error *err)
{
    struct device *d = r->s.device;
    const struct view logits = {r->logits, r->logits_width};
    float shift[RUNNER_MAX_LOGITS_ROWS];
    r->ops->math.logits_top(d, logits, n, r->logits_width, r->tops);
    TRY(read_rows(r, tops, r->tops, n * sizeof *tops, err));
    if (!sums)
        return STATUS_OK;
    for (uint32_t i = 0; i < n; i++)
        shift[i] = tops[i].best;
    const float *own = r->ops->pass.upload(d, shift, n * sizeof *shift);
    r->ops->math.sum_exp(d, logits, n, r->logits_width, own, r->exp_sums);
    return read_rows(r, sums, r->exp_sums, n * sizeof *sums, err);
}
