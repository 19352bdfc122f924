#include "gateway/prepare/chunks.h"

#include <math.h>
#include <string.h>

#include "common/base/mem.h"

static uint32_t pieces_of(const struct prompt *p, uint32_t max_len)
{
    return p->n_ids > max_len ? (p->n_ids + max_len - 1) / max_len : 1;
}

/* Cuts one prompt into pieces. The first piece keeps the text. */
static void cut(struct prompt *from, uint32_t n, uint32_t max_len, struct prompt *out)
{
    const uint32_t n_ids = from->n_ids;
    uint32_t *ids = from->ids;
    out[0] = *from;
    for (uint32_t i = 0; n > 1 && i < n; i++) {
        uint32_t at = i * max_len, left = n_ids - at, k = left < max_len ? left : max_len;
        if (i > 0)
            out[i] = (struct prompt){0};
        out[i].n_ids = k;
        out[i].ids = mem_array(k, sizeof *ids);
        memcpy(out[i].ids, ids + at, k * sizeof *ids);
        out[i].goes_on = i + 1 < n;
    }
    if (n > 1)
        mem_free(ids);
}

bool chunks_cut(struct prompt_list *l, uint32_t max_len, uint32_t max_prompts)
{
    struct prompt_list out;
    uint64_t n = 0;
    for (uint32_t i = 0; i < l->n; i++)
        n += pieces_of(&l->items[i], max_len);
    if (n == l->n || n > max_prompts)
        return n == l->n;
    prompt_list_init(&out, (uint32_t)n);
    for (uint32_t i = 0, at = 0; i < l->n; i++) {
        uint32_t k = pieces_of(&l->items[i], max_len);
        cut(&l->items[i], k, max_len, &out.items[at]);
        at += k;
    }
    mem_free(l->items);
    *l = out;
    return true;
}

static double length_of(const double *v, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += v[i] * v[i];
    return sqrt(sum);
}

/* Scales a vector to length 1. A zero vector, or a vector with a value that is not finite, stays
 * unchanged. */
static void normalise_vector(double *v, uint32_t n)
{
    double length = length_of(v, n);
    for (uint32_t i = 0; length > 0 && isfinite(length) && i < n; i++)
        v[i] /= length;
}

void chunks_join(const struct generation *const *pieces, const struct prompt *const *prompts,
                 uint32_t n, bool normalise, float *out, uint32_t n_out)
{
    double *sum = mem_array(n_out ? n_out : 1, sizeof *sum);
    double *v = mem_array(n_out ? n_out : 1, sizeof *v);
    uint64_t n_ids = 0;
    for (uint32_t i = 0; i < n; i++)
        n_ids += prompts[i]->n_ids;
    for (uint32_t i = 0; i < n; i++) {
        /* vectors that were not cut already have length 1 */
        bool is_cut = n_out < pieces[i]->n_vector;
        for (uint32_t k = 0; k < n_out; k++)
            v[k] = k < pieces[i]->n_vector ? (double)pieces[i]->vector[k] : 0;
        if (normalise && is_cut)
            normalise_vector(v, n_out);
        for (uint32_t k = 0; k < n_out; k++)
            sum[k] += v[k] * (n > 1 ? (double)prompts[i]->n_ids / (double)n_ids : 1);
    }
    if (normalise && n > 1)
        normalise_vector(sum, n_out);
    for (uint32_t k = 0; k < n_out; k++)
        out[k] = (float)(isfinite(sum[k]) ? sum[k] : 0); /* JSON has no NaN or infinity */
    mem_free(sum);
    mem_free(v);
}
