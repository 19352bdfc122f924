#include "gateway/generation/forbidden.h"

#include <string.h>

static bool has_id(struct u32_span ids, uint32_t id)
{
    for (uint32_t i = 0; i < ids.n; i++)
        if (ids.ptr[i] == id)
            return true;
    return false;
}

bool forbidden_any(const struct forbidden *f)
{
    const struct sampling_params *p = f->params;
    return p->allowed_ids.n > 0 || p->bad_words.n > 0 || p->min_tokens > 0;
}

/* Returns true when `id` would complete a bad word whose earlier ids were just generated.
 * `words` holds the ids of all bad words, each one followed by UINT32_MAX. */
static bool ends_bad_word(struct u32_span words, const uint32_t *out, uint32_t n_out, uint32_t id)
{
    for (uint32_t start = 0, end; start < words.n; start = end + 1) {
        for (end = start; end < words.n && words.ptr[end] != UINT32_MAX;)
            end++;
        if (end == start || words.ptr[end - 1] != id || end - start - 1 > n_out)
            continue;
        uint32_t n_before = end - start - 1;
        if (n_before == 0 ||
            memcmp(out + (n_out - n_before), words.ptr + start, n_before * sizeof *words.ptr) == 0)
            return true;
    }
    return false;
}

bool forbidden_id(const struct forbidden *f, const uint32_t *out, uint32_t n_out, uint32_t id)
{
    const struct sampling_params *p = f->params;
    if (p->grammar_kind != GRAMMAR_NONE && has_id(f->eos_ids, id))
        return false;
    if (p->allowed_ids.n > 0 && !has_id(p->allowed_ids, id))
        return true;
    if (n_out < p->min_tokens && (has_id(f->eos_ids, id) || has_id(p->stop_ids, id)))
        return true;
    return ends_bad_word(p->bad_words, out, n_out, id);
}

bool forbidden_all(const struct forbidden *f)
{
    struct u32_span ids = f->params->allowed_ids;
    for (uint32_t i = 0; i < ids.n; i++)
        if (!forbidden_id(f, NULL, 0, ids.ptr[i]))
            return false;
    return ids.n > 0;
}
