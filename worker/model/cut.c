#include "worker/model/cut.h"

#include <stdbool.h>

static uint32_t least(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* Returns the first element of the rank's part, rounded up so that the first ranks have the
 * larger parts. */
static uint64_t begin_of(uint64_t n, uint32_t n_ranks, uint32_t rank)
{
    return (n * rank + n_ranks - 1) / n_ranks;
}

struct cut_range cut_units(uint32_t n, uint32_t unit, uint32_t n_ranks, uint32_t rank)
{
    uint64_t n_units = ((uint64_t)n + unit - 1) / unit;
    uint32_t first = least(begin_of(n_units, n_ranks, rank) * unit, n);
    uint32_t end = least(begin_of(n_units, n_ranks, rank + 1) * unit, n);
    return (struct cut_range){first, end - first};
}

struct cut_heads cut_heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_ranks, uint32_t rank)
{
    uint32_t group = n_heads / n_kv_heads;
    struct cut_range q = cut_units(n_heads, 1, n_ranks, rank);
    if (q.n == 0)
        return (struct cut_heads){.q = q, .kv = {n_kv_heads - 1, 1}};
    uint32_t first = q.first / group, end = (q.first + q.n + group - 1) / group;
    return (struct cut_heads){
        .q = q, .kv = {first, end - first}, .first_in_group = q.first % group};
}

struct cut_range cut_layers(uint32_t n_layers, uint32_t n_stages, uint32_t stage)
{
    uint32_t each = n_layers / n_stages, n_longer = n_layers % n_stages;
    uint32_t first_longer = n_stages - 1 - n_longer;
    uint32_t n_before = stage > first_longer ? least(stage - first_longer, n_longer) : 0;
    bool longer = stage >= first_longer && stage + 1 < n_stages;
    return (struct cut_range){stage * each + n_before, each + longer};
}

uint32_t cut_most_kv_heads(uint32_t n_heads, uint32_t n_kv_heads, uint32_t n_ranks)
{
    uint32_t most = 0;
    for (uint32_t rank = 0; rank < n_ranks; rank++) {
        uint32_t n = cut_heads(n_heads, n_kv_heads, n_ranks, rank).kv.n;
        most = n > most ? n : most;
    }
    return most;
}
