/* Implements the product of rounded.h with vdpbf16ps. An instruction multiplies words of
 * weights, two inputs of an output each, by the same two inputs of a row.
 *
 * Data flow: backend/linear.c calls the set with a task of panels and rows of bfloat16; sums go
 * to the task's `out`. With up to FEW_ROWS rows, reading weights is the limit. Several panels
 * are then multiplied side by side, and each is read once from its first byte to its last. With
 * more rows, two panels are multiplied, CHUNK_PAIRS pairs of inputs at a time. They stay in the
 * second-level cache for all rows, and each tile of rows prefetches its part of the next chunk.
 * Invariants: between chunks of K the sums are kept in `out`, which loses no bits. The last
 * input of an odd K is a fused multiply-add. */
#include "kernels/cpu/vec/avx512.h"
/* this header must be included after the header above it */
#include "kernels/cpu/formats/columns_impl.h"
#include "kernels/cpu/linear/rounded_sets.h"
#include "kernels/cpu/pack/pack.h"

enum {
    TILE_ROWS = 12,
    TILE_PANELS = 2,
    FEW_ROWS = 8,
    FEW_PANELS = 4, /* number of panels side by side, for up to four rows */
    CHUNK_PAIRS = 512,
    WORDS_BYTES = 4 * PANEL_N, /* bytes of one pair of inputs in a panel */
    PREFETCH_PAIRS = 32        /* distance of the prefetch with a few rows, in pairs of inputs */
};

/* `tile` describes rows of x and panels, or one chunk of their inputs. */
struct tile {
    const uint8_t *w; /* weights of the first panel */
    uint64_t panel_bytes;
    const float *x, *bias; /* `bias`: NULL in all but the last chunk */
    float *out;
    uint32_t n_rows; /* number of rows to store; a larger tile repeats the last row */
    uint32_t x_stride, out_stride;
    uint32_t n_columns; /* number of columns in all panels together */
    uint32_t n_pairs;
    /* n_asks: prefetches before each `every` pairs; `every` 0 means no prefetch */
    uint32_t n_asks, every;
    const uint8_t *ask; /* next address to prefetch; each prefetch takes one pair of inputs */
    bool has_single;    /* K is odd: one input follows the pairs */
    bool first;         /* true in the first chunk: sums begin at zero */
};

/* `place` is the position of a tile in its rows and panels; row_at is the offset of each row in
 * x. */
struct place {
    const float *x;
    const uint8_t *w;
    uint64_t row_at[TILE_ROWS];
};

KERNEL_INLINE __m512i both_of(const float *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
    return _mm512_set1_epi32(word);
}

/* Adds n pairs of inputs. With ahead > 0 it prefetches the weights that are `ahead` bytes
 * further, for tiles of a few rows. n_panels and n_rows are constants, so that the sums stay in
 * registers. */
enum { NOTHING_AHEAD = 0 };
KERNEL_INLINE void add_pairs(uint32_t n_panels, uint32_t n_rows, uint32_t n, uint64_t ahead,
                             const struct tile *t, struct place *at, vf acc[TILE_ROWS][FEW_PANELS])
{
    const float *x = at->x;
    const uint8_t *w = at->w;
    for (uint32_t k = 0; k < n; k++, x++, w += WORDS_BYTES) {
        __m512i wk[FEW_PANELS];
        KERNEL_UNROLL
        for (uint32_t i = 0; i < n_panels; i++) {
            const uint8_t *p = w + i * t->panel_bytes;
            wk[i] = _mm512_loadu_si512(p);
            if (ahead > 0)
                __builtin_prefetch((const void *)((uintptr_t)p + ahead), 0, 3);
        }
        KERNEL_UNROLL
        for (uint32_t r = 0; r < n_rows; r++) {
            const __m512i xk = both_of(x + at->row_at[r]);
            KERNEL_UNROLL
            for (uint32_t i = 0; i < n_panels; i++)
                acc[r][i] = _mm512_dpbf16_ps(acc[r][i], (__m512bh)wk[i], (__m512bh)xk);
        }
    }
    at->x = x;
    at->w = w;
}

/* Adds the products of a few rows. Each cache line is used once, soon after it was prefetched.
 * Near the end, the prefetch continues in the next panels. */
KERNEL_INLINE void add_few(uint32_t n_panels, uint32_t n_rows, const struct tile *t,
                           struct place *at, vf acc[TILE_ROWS][FEW_PANELS])
{
    const uint32_t n = t->n_pairs > PREFETCH_PAIRS ? t->n_pairs - PREFETCH_PAIRS : 0;
    const uint64_t ahead = (uint64_t)PREFETCH_PAIRS * WORDS_BYTES;
    add_pairs(n_panels, n_rows, n, ahead, t, at, acc);
    add_pairs(n_panels, n_rows, t->n_pairs - n, ahead + (n_panels - 1) * t->panel_bytes, t, at,
              acc);
}

/* Adds the products of many rows. Prefetches are spread evenly, because a core can request only
 * a few cache lines at once, and one more prefetch would stall. */
KERNEL_INLINE void add_many(uint32_t n_panels, uint32_t n_rows, const struct tile *t,
                            struct place *at, vf acc[TILE_ROWS][FEW_PANELS])
{
    uint32_t left = t->n_pairs;
    const uint8_t *ask = t->ask;
    for (uint32_t i_ask = 0; i_ask < t->n_asks && left > 0; i_ask++, ask += WORDS_BYTES) {
        const uint32_t n = t->every < left ? t->every : left;
        KERNEL_UNROLL
        for (uint32_t i = 0; i < n_panels; i++)
            __builtin_prefetch(ask + i * t->panel_bytes, 0, 2);
        add_pairs(n_panels, n_rows, n, NOTHING_AHEAD, t, at, acc);
        left -= n;
    }
    add_pairs(n_panels, n_rows, left, NOTHING_AHEAD, t, at, acc);
}

KERNEL_INLINE void add_single(uint32_t n_panels, uint32_t n_rows, const struct tile *t,
                              const struct place *at, vf acc[TILE_ROWS][FEW_PANELS])
{
    KERNEL_UNROLL
    for (uint32_t r = 0; r < n_rows; r++) {
        /* the low half of the word is zero, because this input has no partner */
        const vf xk = vf_set1(at->x[at->row_at[r]]);
        KERNEL_UNROLL
        for (uint32_t i = 0; i < n_panels; i++) {
            const void *w = at->w + i * t->panel_bytes;
            acc[r][i] = vf_fma(xk, vf_load_bf16(w), acc[r][i]);
        }
    }
}

KERNEL_INLINE uint32_t columns_of(const struct tile *t, uint32_t i_panel)
{
    const uint32_t left = t->n_columns - i_panel * PANEL_N;
    return left < PANEL_N ? left : PANEL_N;
}

/* Multiplies one tile. is_whole means that t has max_rows rows. */
KERNEL_INLINE void tile(uint32_t n_panels, uint32_t max_rows, bool is_whole, const struct tile *t)
{
    const bool is_few = max_rows <= FEW_ROWS;
    vf acc[TILE_ROWS][FEW_PANELS];
    struct place at = {.x = t->x, .w = t->w};
    KERNEL_UNROLL
    for (uint32_t r = 0; r < max_rows; r++) {
        const uint32_t row = is_whole || r < t->n_rows ? r : t->n_rows - 1;
        at.row_at[r] = (uint64_t)row * t->x_stride;
        const float *out = t->out + (uint64_t)row * t->out_stride;
        KERNEL_UNROLL
        for (uint32_t i = 0; i < n_panels; i++)
            acc[r][i] =
                t->first ? vf_zero() : load_columns(out + (size_t)i * PANEL_N, columns_of(t, i));
    }
    if (is_few && t->every == 0)
        add_few(n_panels, max_rows, t, &at, acc);
    else
        add_many(n_panels, max_rows, t, &at, acc);
    if (t->has_single)
        add_single(n_panels, max_rows, t, &at, acc);
    KERNEL_UNROLL
    for (uint32_t r = 0; r < max_rows; r++) {
        if (!is_whole && r >= t->n_rows)
            continue;
        KERNEL_UNROLL
        for (uint32_t i = 0; i < n_panels; i++) {
            const size_t column = (size_t)i * PANEL_N;
            vf y = acc[r][i];
            if (t->bias)
                y = vf_add(y, load_columns(t->bias + column, columns_of(t, i)));
            store_columns(t->out + (uint64_t)r * t->out_stride + column, y, columns_of(t, i));
        }
    }
}

#define TILE(n_panels, max_rows)                                                                   \
    static __attribute__((noinline)) void tile_##n_panels##_##max_rows(const struct tile *t)       \
    {                                                                                              \
        if (t->n_rows == (max_rows))                                                               \
            tile(n_panels, max_rows, true, t);                                                     \
        else                                                                                       \
            tile(n_panels, max_rows, false, t);                                                    \
    }
TILE(4, 1)
TILE(4, 2)
TILE(4, 4)
TILE(2, 8)
TILE(2, 12)
TILE(1, 4)
TILE(1, 8)
TILE(1, 12)

static void run_tile(uint32_t n_panels, const struct tile *t)
{
    if (n_panels == FEW_PANELS)
        (t->n_rows == 1 ? tile_4_1 : t->n_rows == 2 ? tile_4_2 : tile_4_4)(t);
    else if (n_panels == TILE_PANELS)
        (t->n_rows <= 8 ? tile_2_8 : tile_2_12)(t);
    else
        (t->n_rows <= 4 ? tile_1_4 : t->n_rows <= 8 ? tile_1_8 : tile_1_12)(t);
}
/* Returns the number of panels that are multiplied side by side when n_left are left. */
static uint32_t panels_of_tile(uint32_t n_rows, uint32_t n_left)
{
    const uint32_t n = n_rows <= 4 ? FEW_PANELS : TILE_PANELS;
    return n_left >= n ? n : 1;
}

/* Returns the rows of the next tile when n_left are left. 13 to 16 rows become two tiles of
 * similar size. */
static uint32_t rows_of_tile(uint32_t n_left)
{
    const uint32_t n = n_left > TILE_ROWS && n_left <= 16 ? 8 : TILE_ROWS;
    return n_left < n ? n_left : n;
}

/* Multiplies many rows by a chunk of some panels. `next` is the chunk to prefetch, with as many
 * pairs as this chunk, or NULL. */
static void run_many(uint32_t n_panels, struct tile *t, uint32_t n_rows, const uint8_t *next)
{
    const uint32_t n_tiles = (n_rows + TILE_ROWS - 1) / TILE_ROWS;
    const uint32_t share = next ? (t->n_pairs + n_tiles - 1) / n_tiles : 0;
    uint32_t asked = 0;
    t->every = n_tiles;
    for (; n_rows > 0; n_rows -= t->n_rows) {
        const uint32_t left = t->n_pairs - asked;
        t->n_rows = rows_of_tile(n_rows);
        t->n_asks = share < left ? share : left;
        t->ask = next ? next + (uint64_t)asked * WORDS_BYTES : NULL;
        run_tile(n_panels, t);
        asked += t->n_asks;
        t->x += (uint64_t)t->n_rows * t->x_stride;
        t->out += (uint64_t)t->n_rows * t->out_stride;
    }
}

static void run_panels(const struct linear_task *task, uint32_t i_panel, uint32_t n_panels)
{
    const uint32_t k = task->w->k, n_pairs = k / 2, column = i_panel * PANEL_N;
    const uint32_t left = task->w->n - column;
    struct tile t = {.panel_bytes = pack_panel_bytes(DTYPE_BF16, k),
                     .x_stride = task->x_stride,
                     .out_stride = task->out_stride,
                     .n_columns = left < n_panels * PANEL_N ? left : n_panels * PANEL_N};
    const uint8_t *w = (const uint8_t *)task->w->data + i_panel * t.panel_bytes;
    const uint32_t chunk = task->n_rows <= FEW_ROWS ? n_pairs : CHUNK_PAIRS;
    uint32_t begin = 0;
    do {
        t.w = w + (uint64_t)begin * WORDS_BYTES;
        t.n_pairs = n_pairs - begin < chunk ? n_pairs - begin : chunk;
        t.x = task->x + begin;
        t.out = task->out + column;
        t.first = begin == 0;
        begin += t.n_pairs;
        const bool is_last = begin == n_pairs, ends = i_panel + n_panels == task->panel_end;
        t.has_single = is_last && k % 2 == 1;
        t.bias = is_last && task->bias ? task->bias + column : NULL;
        if (task->n_rows <= FEW_ROWS) {
            t.n_rows = task->n_rows;
            run_tile(n_panels, &t);
        } else {
            const uint8_t *next = w + n_panels * t.panel_bytes;
            if (!is_last)
                next = w + (uint64_t)begin * WORDS_BYTES;
            else if (ends)
                next = task->next.n >= n_panels ? task->next.data : NULL;
            run_many(n_panels, &t, task->n_rows, next);
        }
    } while (begin < n_pairs);
}

static void linear_pairs(const struct linear_task *t)
{
    uint32_t n_panels;
    for (uint32_t i = t->panel_begin; i < t->panel_end; i += n_panels) {
        n_panels = panels_of_tile(t->n_rows, t->panel_end - i);
        run_panels(t, i, n_panels);
    }
}

/* Rounds a row to pairs. The even number of a pair is the high half of its word. The last number
 * of an odd k has zeros in the low half. */
static void round_pairs(float *to, const float *x, uint32_t k)
{
    for (uint32_t i = 0; i < k; i += 2 * PANEL_N) {
        const uint32_t n = k - i < 2 * PANEL_N ? k - i : 2 * PANEL_N;
        const __mmask32 there = n < 32 ? (1u << n) - 1 : UINT32_MAX;
        const vf low = _mm512_maskz_loadu_ps((__mmask16)there, x + i);
        const vf high = _mm512_maskz_loadu_ps((__mmask16)(there >> 16), x + i + PANEL_N);
        const __m512i words = (__m512i)_mm512_cvtne2ps_pbh(high, low);
        _mm512_mask_storeu_epi32(to + i / 2, (__mmask16)((1u << (n + 1) / 2) - 1),
                                 _mm512_rol_epi32(words, 16));
    }
}

/* Adds the pair (2^24, -2^24) to 1. If the high half is added first, the 1 is rounded away and
 * the sum is 0. In the other order, or with the pair added up first, the 1 remains. */
bool rounded_avx512_bf16_adds_in_order(void)
{
    const __m512i w = _mm512_set1_epi32(0x4b80cb80), x = _mm512_set1_epi32(0x3f803f80);
    return vf_sum(_mm512_dpbf16_ps(vf_set1(1), (__m512bh)w, (__m512bh)x)) == 0;
}

const struct rounded_kernels rounded_kernels_avx512_bf16 = {
    .name = "avx512-bf16", .in_pairs = true, .linear = linear_pairs, .round = round_pairs};
