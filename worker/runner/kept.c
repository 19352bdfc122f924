/* Leaves out rows of a pass. After the last layer only the hidden states of some rows are
 * needed, usually a prompt's last row. The other rows only serve attention. Once the last
 * operator that writes keys and values is done, the pass therefore continues with only the kept
 * rows. A row's bits do not depend on its neighbours (protocol.md, Invariance), so only the time
 * changes. This is done on CPUs only. A device's passes are recorded by their number of rows. */
#include <assert.h>

#include "common/base/mem.h"
#include "worker/lora/rows.h"
#include "worker/runner/kept.h"
#include "worker/runner/state.h"

/* regs_written returns the buffers that an operator overwrites. regs_read returns the buffers
 * that it reads, also when it writes them too. */
static uint32_t regs_written(const struct program *p, const struct op *o)
{
    uint32_t regs = 1u << o->out;
    for (uint32_t i = 0; o->kind == OP_LINEAR && i < o->linear.n; i++)
        regs |= 1u << p->weights[o->linear.first + i].out;
    return regs;
}

static uint32_t regs_read(const struct op *o)
{
    switch (o->kind) {
    case OP_GATED:
    case OP_ADD:
    case OP_COPY_HEADS:
    case OP_GATE_ROWS:
    case OP_ADD_RANKS:
        return 1u << o->in | 1u << o->out;
    default:
        return 1u << o->in;
    }
}

/* Returns the buffers whose present content is read by the operators from i_op on, or by the
 * output matrix. */
static uint32_t regs_live(const struct program *p, uint32_t i_op)
{
    uint32_t live = 0, written = 0;
    for (uint32_t i = i_op; i < p->n_ops; i++) {
        live |= regs_read(&p->ops[i]) & ~written;
        written |= regs_written(p, &p->ops[i]);
    }
    return live | (1u << REG_X & ~written);
}

/* Returns the index after the last operator that writes keys and values or reads the angles of
 * all rows; 0 = there is none. */
static uint32_t find_cut(const struct program *p)
{
    for (uint32_t i = p->n_ops; i > 0; i--)
        if (p->ops[i - 1].kind == OP_KV_WRITE || p->ops[i - 1].kind == OP_ROPE)
            return i;
    return 0;
}

void runner_make_kept(struct runner *r)
{
    const struct program *p = r->s.program;
    struct runner_kept *k = &r->kept;
    if (!r->ops->on_host || !program_is_last(p))
        return;
    k->i_op = find_cut(p);
    k->regs = regs_live(p, k->i_op);
    k->adapters = mem_array(r->s.pass_rows, sizeof *k->adapters);
    for (uint32_t g = 0; g < p->n_kv_groups; g++)
        k->kv_rows[g] = mem_array(r->s.pass_rows, sizeof *k->kv_rows[g]);
}

void runner_free_kept(struct runner *r)
{
    mem_free(r->kept.adapters);
    for (uint32_t g = 0; g < PROGRAM_MAX_KV_GROUPS; g++)
        mem_free(r->kept.kv_rows[g]);
}

void runner_begin_kept(struct runner *r, const struct row_batch *b)
{
    bool some = r->kept.i_op > 0 && b->kept && b->n_kept < b->n_rows;
    r->kept.rows = some ? b->kept : NULL;
    r->kept.n = some ? b->n_kept : 0;
}

bool runner_cuts_here(const struct runner *r, uint32_t i_op)
{
    return r->kept.rows && i_op == r->kept.i_op;
}

/* Moves the kept rows to the front, in order, so that no row overwrites a row that must still
 * move. */
struct row_batch runner_cut_rows(struct runner *r, const struct row_batch *b)
{
    const struct program *p = r->s.program;
    struct runner_kept *k = &r->kept;
    struct row_batch own = {.n_rows = k->n};
    for (uint32_t reg = 0; reg < REG_COUNT; reg++)
        if (k->regs >> reg & 1) {
            const struct view v = runner_view(r, (enum reg)reg);
            r->ops->math.gather(r->s.device, v, v, k->rows, k->n, p->widths[reg]);
        }
    for (uint32_t g = 0; g < p->n_kv_groups; g++) {
        for (uint32_t i = 0; i < k->n; i++)
            k->kv_rows[g][i] = b->kv_rows[g][k->rows[i]];
        own.kv_rows[g] = k->kv_rows[g];
    }
    if (r->has_adapters) {
        for (uint32_t i = 0; i < k->n; i++)
            k->adapters[i] = b->adapters[k->rows[i]];
        lora_set_begin(r->s.loras, k->adapters, k->n);
    }
    r->n_rows = k->n;
    return own;
}

/* Returns the present place of a row of the pass. Uses a binary search, since the rows are in
 * order. */
static uint32_t place_of(const struct runner_kept *k, uint32_t row)
{
    uint32_t begin = 0, end = k->n;
    while (begin < end) {
        uint32_t i = begin + (end - begin) / 2;
        if (k->rows[i] == row)
            return i;
        if (k->rows[i] < row)
            begin = i + 1;
        else
            end = i;
    }
    assert(!"a row that was not kept is asked for");
    return 0;
}

const uint32_t *runner_places(const struct runner *r, const uint32_t *rows, uint32_t n,
                              uint32_t out[RUNNER_MAX_LOGITS_ROWS])
{
    if (!r->kept.rows)
        return rows;
    for (uint32_t i = 0; i < n; i++)
        out[i] = place_of(&r->kept, rows[i]);
    return out;
}
