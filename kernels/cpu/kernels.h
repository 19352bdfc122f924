#pragma once
/* Declares the table that each ISA file fills: single-threaded kernels for the part of an
 * operator in one task. kernels/cpu/backend/backend.c chooses the table, and the other files of
 * that folder cut operators into tasks. All levels are compiled from the same *_impl.h files
 * over the 16-lane vectors of vec.h. */
#include "kernels/cpu/cpu.h"

/* PANEL_N is the number of outputs per panel of a packed matrix: one vector
 * (kernels/cpu/pack/pack.h). */
#define PANEL_N 16u

/* A task has a whole number of groups of LINEAR_TASK_PANELS panels if there are enough panels.
 * The kernels process the panels of a group side by side, so a single panel costs as much as a
 * group. */
#define LINEAR_TASK_PANELS 4u
/* The scratch of a product holds two panels of 256 inputs, which fit in a first-level cache
 * beside the rows. */
#define LINEAR_SCRATCH_FLOATS (2u * 256u * PANEL_N)

/* `panels_ahead` names panels in the layout of the task's own panels, which this thread probably
 * computes next. They are prefetched while the last of the task's panels are multiplied. `data`
 * is NULL when there are none. */
struct panels_ahead {
    const uint8_t *data;
    uint32_t n;
};
struct linear_task {
    const struct weight *w;
    const float *bias; /* `bias` has the shape [w->n], or is NULL */
    const float *x;    /* `x` has the shape [n_rows][x_stride] */
    float *out;        /* `out` has the shape [n_rows][out_stride]: column 0 is output 0 of w */
    uint32_t n_rows, x_stride, out_stride;
    uint32_t panel_begin, panel_end;
    struct panels_ahead next;
    /* `scratch` has LINEAR_SCRATCH_FLOATS floats of one thread, for parts of panels. */
    float *scratch;
};

struct cpu_kernels {
    const char *isa;
    /* linear/ISA.c implements this function */
    void (*linear)(const struct linear_task *t);
    void (*embed_row)(const struct weight *w, uint32_t id, float scale, float *out);
    /* row/ISA.c implements these functions; each call processes one row */
    float (*sum_squares)(const float *x, uint32_t dim);
    void (*norm)(float *out, const float *x, const float *w, uint32_t dim, float mean_square);
    /* rotates one head of one row */
    void (*rope)(float *x, const float *cos_sin, uint32_t n_rot, bool interleaved);
    void (*gated)(float *out, const float *gate, const float *up, uint32_t dim, enum activation act,
                  float limit);
    void (*add)(float *x, const float *y, uint32_t dim);
    /* computes x += share * y */
    void (*add_scaled)(float *x, const float *y, uint32_t dim, float share);
    void (*scale)(float *x, uint32_t dim, float share);
    void (*softcap)(float *x, uint32_t dim, float cap);
    struct logits_top (*logits_top)(const float *x, uint32_t dim);
    double (*sum_exp)(const float *x, uint32_t dim, float shift);
    /* attention/ISA.c implements these functions */
    /* Stores dim numbers in the cache's dtype. For a dtype of codes, *scale is set to the scale
     * of the codes, or to NaN when one of the numbers is NaN. */
    void (*kv_store)(void *to, enum dtype dtype, float *scale, const float *from, uint32_t dim);
    /* Computes all query heads of one KV head of one row. `scratch` belongs to this thread and
     * has attention_scratch_floats(). */
    void (*attention)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                      float *scratch);
    /* Computes all query heads of one KV head for n_rows rows from i_row on. The rows must be
     * successive positions of one sequence, at most ATTENTION_ROWS. `scratch` has
     * attention_rows_floats(). */
    void (*attention_rows)(const struct attention_params *p, uint32_t i_row, uint32_t n_rows,
                           uint32_t i_kv_head, float *scratch);
    /* These are the three steps of `attention` for one row, when there are more threads than
     * rows. attention_split computes one split into a part of its own, for each split from
     * attention_first() to the row's position. attention_merge merges the parts of a head in
     * order; `first` marks the first part. attention_finish writes the result. `part` and `acc`
     * have attention_part_floats(). `i_next` is the split that this thread computes next, for
     * prefetching; a number without a split means no prefetch. */
    void (*attention_split)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                            uint32_t i_split, uint32_t i_next, float *scratch, float *part);
    void (*attention_merge)(const struct attention_params *p, uint32_t i_head, bool first,
                            float *acc, const float *part);
    void (*attention_finish)(const struct attention_params *p, uint32_t i_row, uint32_t i_kv_head,
                             uint32_t i_head, const float *acc);
};

#define CPU_KERNELS_DECLARE(upper, lower) extern const struct cpu_kernels cpu_kernels_##lower;
CPU_LEVELS(CPU_KERNELS_DECLARE)

/* Returns the first position that a row at position `position` sees. */
static inline uint32_t attention_first(const struct attention_params *p, uint32_t position)
{
    return p->window && position >= p->window ? position - p->window + 1 : 0;
}
/* `attention_heads` names the query heads of this rank that read a KV head. The first and the
 * last KV head may have only some of a group. */
struct attention_heads {
    uint32_t begin, end;
};
static inline struct attention_heads attention_heads_of(const struct attention_params *p,
                                                        uint32_t i_kv_head)
{
    uint32_t begin = i_kv_head * p->group, end = begin + p->group, skip = p->first_in_group;
    begin = begin > skip ? begin - skip : 0;
    end = end > skip ? end - skip : 0;
    end = end < p->n_heads ? end : p->n_heads;
    return (struct attention_heads){begin < end ? begin : end, end};
}
/* Returns the number of KV heads that are read. */
static inline uint32_t attention_n_kv(const struct attention_params *p)
{
    return (p->first_in_group + p->n_heads + p->group - 1) / p->group;
}
/* attention_width() rounds head_dim up to whole vectors. For each query head of a KV head, a
 * part has that many values, and the maximum and the sum of the scores. The maximum and the sum
 * have a cache line, so that the values stay aligned. */
#define ATTENTION_PART_EXTRA 16u
static inline uint32_t attention_width(uint32_t head_dim)
{
    return (head_dim + 15) / 16 * 16;
}
static inline uint64_t attention_part_floats(uint32_t heads_per_kv, uint32_t v_dim)
{
    return (uint64_t)heads_per_kv * (attention_width(v_dim) + ATTENTION_PART_EXTRA);
}
/* Returns the number of scratch floats that attention needs for heads_per_kv query heads of one
 * KV head: queries and scores of a split, its part and the merged part. */
static inline uint64_t attention_scratch_floats(uint32_t heads_per_kv, const struct kv_cache *kv)
{
    return (uint64_t)heads_per_kv * (attention_width(kv->head_dim) + ATTENTION_SPLIT) +
           2 * attention_part_floats(heads_per_kv, kv->v_dim);
}
/* attention_rows_floats() returns the number of scratch floats for n_queries (row, head) pairs.
 * Each query has its query vector, the split's values, the merged values and six numbers. It
 * also has its scores of a split, with space for a vector before and behind them. The rest holds
 * some tokens' keys or values as floats. Queries are counted in fours, numbers in sixteens. */
#define ATTENTION_ROWS        32u
#define ATTENTION_ROWS_SCORES (ATTENTION_ROWS + ATTENTION_SPLIT + 48u)
#define ATTENTION_ROWS_TOKENS 64u   /* most tokens whose values are loaded at once */
#define ATTENTION_ROWS_VALUES 8192u /* most floats of values that are loaded at once */
#define ATTENTION_ROWS_KEYS   32u
static inline uint64_t attention_rows_floats(uint32_t n_queries, const struct kv_cache *kv)
{
    uint64_t n = (n_queries + 15ull) / 16 * 16, k_width = attention_width(kv->head_dim) + 16;
    uint64_t v_width = attention_width(kv->v_dim), keys = ATTENTION_ROWS_KEYS * k_width;
    return n * (k_width + ATTENTION_ROWS_SCORES + 2 * v_width + 6) +
           (keys > ATTENTION_ROWS_VALUES ? keys : ATTENTION_ROWS_VALUES + v_width);
}
