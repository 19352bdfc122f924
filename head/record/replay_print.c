#include "head/record/replay_print.h"

#include "head/scheduler/state.h"

/* Prints the replica, the epoch as "1.3", and the step. */
static void print_where(FILE *out, uint64_t replica, uint64_t term_epoch, const struct msg_plan *p)
{
    fprintf(out, "replica %llu epoch %llu.%llu step %llu", (unsigned long long)replica,
            (unsigned long long)(term_epoch >> 32), (unsigned long long)(term_epoch & 0xFFFFFFFFu),
            (unsigned long long)p->step);
}

/* Prints ids; ascending runs are printed as a range. */
static void print_ids(FILE *out, struct u32_span ids)
{
    for (uint32_t i = 0; i < ids.n;) {
        uint32_t n = 1;
        while (i + n < ids.n && ids.ptr[i + n] == ids.ptr[i] + n)
            n++;
        fprintf(out, n > 1 ? "%s%u-%u" : "%s%u", i > 0 ? "," : "", ids.ptr[i], ids.ptr[i] + n - 1);
        i += n;
    }
}

static void print_run(FILE *out, const struct plan_run *r)
{
    fprintf(out, "  run slot %u [%u,%u)", r->slot, r->start, r->start + r->n_tokens);
    if (r->sample)
        fprintf(out, " sample");
    if (r->follows)
        fprintf(out, " follows");
    if (r->n_draft > 0)
        fprintf(out, " draft %u", r->n_draft);
    for (uint32_t i = 0; i < r->n_blocks; i++) {
        fprintf(out, " kv%u", r->blocks[i].i_group);
        if (r->blocks[i].drop_leading > 0)
            fprintf(out, " drop %u", r->blocks[i].drop_leading);
        if (r->blocks[i].ids.n > 0)
            fprintf(out, " +");
        print_ids(out, r->blocks[i].ids);
    }
    fprintf(out, "\n");
}

void replay_print_plan(FILE *out, uint64_t replica, uint64_t term_epoch, const struct msg_plan *p)
{
    uint64_t n_tokens = 0;
    for (uint32_t i = 0; i < p->n_runs; i++)
        n_tokens += p->runs[i].n_tokens;
    print_where(out, replica, term_epoch, p);
    fprintf(out, ": %u runs of %llu tokens, %u admitted, %u finished, %u copies%s", p->n_runs,
            (unsigned long long)n_tokens, p->n_admits, p->finished.n, p->n_copies,
            p->full ? ", full" : "");
    if (p->digest)
        fprintf(out, ", digest %016llx", (unsigned long long)p->digest);
    fprintf(out, "\n");
    if (p->finished.n > 0) {
        fprintf(out, "  finished slots ");
        print_ids(out, p->finished);
        fprintf(out, "\n");
    }
    for (uint32_t i = 0; i < p->n_copies; i++)
        fprintf(out, "  copy kv%u %u to %u\n", p->copies[i].i_group, p->copies[i].from,
                p->copies[i].to);
    for (uint32_t i = 0; i < p->n_admits; i++)
        fprintf(out, "  admit slot %u prompt %u ids %u computed %u\n", p->admits[i].slot,
                p->admits[i].n_prompt, p->admits[i].ids.n, p->admits[i].n_computed);
    for (uint32_t i = 0; i < p->n_runs; i++)
        print_run(out, &p->runs[i]);
}

/* Prints how long a step took, and the costs that the scheduler had estimated before the step. */
void replay_print_result(FILE *out, uint64_t now_ns, const struct msg_result *m,
                         const struct scheduler *s)
{
    const struct step_budget *b = &s->budget;
    uint64_t mask_units = 0, n_prompt_logprobs = 0;
    for (uint32_t i = 0; i < m->n_items; i++) {
        mask_units += m->items[i].mask_units;
        n_prompt_logprobs += m->items[i].n_prompt_logprobs;
    }
    fprintf(out,
            "  at %.3f s: result of step %llu, executed in %.1f ms; believed: %.2f ms, %.3f a "
            "decode, %.3f a prompt token, prompts at most %u",
            (double)now_ns / 1e9, (unsigned long long)m->step, (double)m->execute_ns / 1e6,
            b->pass_ns / 1e6, b->sampled_ns / 1e6, b->token_ns / 1e6, b->cap);
    if (mask_units > 0)
        fprintf(out, ", masks %.1f ms", (double)mask_units * PROTO_MASK_UNIT_NS / 1e6);
    if (n_prompt_logprobs > 0)
        fprintf(out, ", %llu prompt_logprobs", (unsigned long long)n_prompt_logprobs);
    if (s->rows.limits)
        fprintf(out, ", %u decodes of a step", s->rows.n_rows);
    if (s->rows.longest_ns != UINT64_MAX)
        fprintf(out, ", %.1f ms at most for %u tenants", (double)s->rows.longest_ns / 1e6,
                s->rows.n_tenants);
    fprintf(out, "\n");
}
