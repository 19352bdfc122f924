/* Keeps blocks of requests that move to or from another replica, independent of steps.
 *
 * routing/transfers.c calls `scheduler_hold` on the sending side, `scheduler_import` and
 * `scheduler_imported` on the receiving side, and `scheduler_let_go` at the end.
 *
 * Invariants: these blocks have an owner like the blocks of a sequence, so no step allocates
 * them, whatever happens to the request. A complete import is an entry of the prefix cache like
 * any other, and is not evicted before its request arrives. When a running sequence lacks
 * blocks, or every sequence waits, complete imports are freed first. Their content is then
 * computed again. */
#include "head/scheduler/reserve.h"

#include <string.h>

#include "common/base/mem.h"
#include "head/scheduler/sequences.h"
#include "head/scheduler/state.h"

enum { MAX_MOVES = 64 };

struct scheduler_move {
    struct scheduler_move *next;
    uint64_t id;
    /* prefix of an import: the content of its blocks and the request that they are for; NULL = a
     * hold */
    struct request *prefix;
    bool is_whole;
    uint32_t n;
    struct blocks_part parts[];
};

/* ---- the list, oldest first ---- */

static struct scheduler_move **find(struct scheduler *s, uint64_t id)
{
    struct scheduler_move **at = &s->moves;
    while (*at && (*at)->id != id)
        at = &(*at)->next;
    return at;
}

static struct scheduler_move *move_new(uint32_t n_parts, uint64_t id)
{
    struct scheduler_move *m = mem_try_alloc(sizeof *m + n_parts * sizeof m->parts[0]);
    if (m)
        *m = (struct scheduler_move){.id = id, .n = n_parts};
    return m;
}

static void move_free(struct scheduler_move *m)
{
    if (m->prefix)
        request_free(m->prefix);
    mem_free(m);
}

static void append(struct scheduler *s, struct scheduler_move *m)
{
    struct scheduler_move **at = &s->moves;
    while (*at)
        at = &(*at)->next;
    *at = m;
    s->n_moves++;
}

static void let_go(struct scheduler *s, struct scheduler_move **at)
{
    struct scheduler_move *m = *at;
    *at = m->next;
    s->n_moves--;
    blocks_let_go(s->blocks, m->parts, m->n);
    move_free(m);
    s->stuck.seq = NULL;
}

/* ---- sending side ---- */

uint32_t scheduler_movable(const struct scheduler *s, const struct request *r)
{
    const struct seq *x = r->sched;
    /* The first token's result has arrived, so all cached blocks of the request are computed
     * too. */
    if (!s->c.enable_prefix_caching || !x || x->place != SEQ_RUNNING || !x->tail_shared ||
        !blocks_may_share(r))
        return 0;
    uint32_t n = x->n_scheduled;
    for (uint32_t i = 0; i < s->c.depth; i++) {
        if (x->entry[i] == ENTRY_NONE)
            continue;
        const struct step_entry *e = &s->records[i].entries[x->entry[i]];
        n -= e->incarnation == x->incarnation ? e->n_tokens : 0;
    }
    return blocks_align(s->blocks, n < r->n_ids ? n : r->n_ids - 1);
}

enum status scheduler_hold(struct scheduler *s, const struct request *r, uint32_t n_tokens,
                           uint64_t id)
{
    if (n_tokens == 0 || n_tokens > scheduler_movable(s, r) ||
        n_tokens != blocks_align(s->blocks, n_tokens))
        return STATUS_NOT_FOUND;
    if (s->n_moves >= MAX_MOVES || *find(s, id))
        return STATUS_LIMIT;
    const struct seq *x = r->sched;
    struct scheduler_move *m = move_new(blocks_n_parts(s->blocks, n_tokens), id);
    if (!m)
        return STATUS_NO_MEMORY;
    if (!blocks_hold(s->blocks, x->tables, n_tokens, m->parts)) {
        move_free(m);
        return STATUS_NOT_FOUND;
    }
    append(s, m);
    return STATUS_OK;
}

bool scheduler_leave(struct scheduler *s, struct request *r)
{
    struct seq *x = r->sched;
    if (x->place == SEQ_RUNNING)
        seq_preempt(s, x);
    return x->n_pending == 0;
}

bool scheduler_may_leave(const struct request *r)
{
    const struct seq *x = r->sched;
    return x->place == SEQ_WAITING && x->n_pending == 0;
}

/* ---- receiving side ---- */

/* Copies the prefix, since `r` may be gone before its blocks are complete. */
static struct request *copy_prefix(const struct request *r, uint32_t n_tokens)
{
    struct request *p = request_alloc(NULL);
    arena_init(&p->arena, 0);
    p->ids = arena_try_array(&p->arena, n_tokens, sizeof *p->ids);
    char *lora = arena_try_array(&p->arena, r->sampling.lora.len + 1, 1);
    if (!p->ids || !lora) {
        request_free(p);
        return NULL;
    }
    memcpy(p->ids, r->ids, n_tokens * sizeof *p->ids);
    if (r->sampling.lora.len > 0)
        memcpy(lora, r->sampling.lora.ptr, r->sampling.lora.len);
    p->n_prompt = p->n_ids = p->ids_cap = n_tokens;
    p->id = r->id;
    p->i_choice = r->i_choice;
    p->salt = r->salt;
    p->sampling = (struct sampling_params){.lora = {lora, r->sampling.lora.len},
                                           .lora_id = r->sampling.lora_id,
                                           .i_prompt = r->sampling.i_prompt,
                                           .n_prompt_logprobs = -1};
    return p;
}

enum status scheduler_import(struct scheduler *s, const struct request *r, uint32_t n_tokens,
                             uint64_t id)
{
    if (n_tokens == 0 || n_tokens > r->n_ids || n_tokens > s->c.max_model_len ||
        n_tokens != blocks_align(s->blocks, n_tokens) || !s->c.enable_prefix_caching)
        return STATUS_INVALID;
    if (s->n_moves >= MAX_MOVES || *find(s, id))
        return STATUS_LIMIT;
    struct scheduler_move *m = move_new(blocks_n_parts(s->blocks, n_tokens), id);
    if (!m)
        return STATUS_NO_MEMORY;
    m->prefix = copy_prefix(r, n_tokens);
    enum status status = STATUS_OK;
    if (!m->prefix || !blocks_hash(s->blocks, m->prefix))
        status = STATUS_NO_MEMORY;
    else if (!blocks_import(s->blocks, m->prefix, n_tokens, s->n_running, m->parts))
        status = STATUS_LIMIT;
    if (status == STATUS_OK)
        append(s, m);
    else
        move_free(m);
    return status;
}

const struct blocks_part *scheduler_parts(const struct scheduler *s, uint64_t id, uint32_t *n)
{
    const struct scheduler_move *m = s->moves;
    while (m && m->id != id)
        m = m->next;
    *n = m ? m->n : 0;
    return m ? m->parts : NULL;
}

void scheduler_imported(struct scheduler *s, uint64_t id)
{
    struct scheduler_move *m = *find(s, id);
    if (!m || !m->prefix || m->is_whole)
        return;
    blocks_enter_parts(s->blocks, m->prefix, m->parts, m->n);
    m->is_whole = true;
    s->stuck.seq = NULL; /* a waiting sequence may begin with this prefix */
}

/* ---- end of a move ---- */

void scheduler_let_go(struct scheduler *s, uint64_t id)
{
    struct scheduler_move **at = find(s, id);
    if (*at)
        let_go(s, at);
}

void moves_of_gone(struct scheduler *s, const struct request *r)
{
    for (struct scheduler_move **at = &s->moves; *at;) {
        const struct scheduler_move *m = *at;
        if (m->is_whole && m->prefix->id.lo == r->id.lo && m->prefix->id.hi == r->id.hi &&
            m->prefix->i_choice == r->i_choice)
            let_go(s, at);
        else
            at = &(*at)->next;
    }
}

bool moves_reclaim(struct scheduler *s)
{
    struct scheduler_move **at = &s->moves;
    while (*at && !(*at)->is_whole)
        at = &(*at)->next;
    if (!*at)
        return false;
    let_go(s, at);
    return true;
}

void moves_forget(struct scheduler *s)
{
    for (struct scheduler_move *m = s->moves, *next; m; m = next) {
        next = m->next;
        move_free(m);
    }
    s->moves = NULL;
    s->n_moves = 0;
}

/* ---- for scheduler_check ---- */

void moves_count_owners(const struct scheduler *s, uint32_t i_group, uint32_t *owners)
{
    for (const struct scheduler_move *m = s->moves; m; m = m->next)
        for (uint32_t i = 0; i < m->n; i++)
            /* ids of other groups may be out of this group's range */
            if (m->parts[i].i_group == i_group)
                owners[m->parts[i].id]++;
}
