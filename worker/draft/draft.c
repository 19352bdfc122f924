#include "worker/draft/draft.h"

_Static_assert(SPECULATION_MAX_TOKENS <= SEQUENCES_MAX_DRAFT, "what is asked for can be drafted");
_Static_assert(SPECULATION_MAX_LOOKUP <= DRAFT_NGRAM_MAX_LOOKUP, "and looked for");

enum status draft_runs(const struct speculation *s, struct sequence_runs runs, struct error *err)
{
    const struct draft_ngram_config c = {.n_max = s->lookup_max, .n_min = s->lookup_min};
    if (s->n_tokens == 0)
        return STATUS_OK;
    for (uint32_t i = 0; i < runs.n; i++) {
        struct sequence_run *r = &runs.ptr[i];
        uint32_t n = r->n_draft < s->n_tokens ? r->n_draft : s->n_tokens;
        if (n > 0)
            TRY(draft_ngram_propose(&r->q->draft, &c, r->q->ids, r->q->n_ids, n, &r->n_drafted,
                                    err));
    }
    return STATUS_OK;
}
