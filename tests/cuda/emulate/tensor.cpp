#include "tensor.h"

#include <string.h>

#include "engine.h"

namespace emulate
{
namespace
{
constexpr unsigned M = 16, N = 8, K = 16;

struct mma_args {
    float *d;
    const uint32_t *a, *b;
};

struct ldmatrix_args {
    uint32_t *r;
    const void *row;
    unsigned n_matrices;
    bool trans;
};

typedef float floats8 __attribute__((vector_size(32)));

/* The matrices, in float: a row of a, b and d is one or two vectors. */
struct mma_tile {
    alignas(32) float a[M][K];
    alignas(32) float b[K][N];
    alignas(32) float d[M][N];
};

/* d += a b: products of two bfloat16 are exact in float; sums are in order of k, where a device's
 * order is its own. */
#define MULTIPLY                                                                                   \
    for (unsigned i = 0; i < M; i += 4) {                                                          \
        floats8 sums[4];                                                                           \
        memcpy(sums, t->d[i], sizeof sums);                                                        \
        for (unsigned k = 0; k < K; k++) {                                                         \
            floats8 b;                                                                             \
            memcpy(&b, t->b[k], sizeof b);                                                         \
            _Pragma("GCC unroll 4") for (unsigned row = 0; row < 4; row++) sums[row] +=            \
                t->a[i + row][k] * b;                                                              \
        }                                                                                          \
        memcpy(t->d[i], sums, sizeof sums);                                                        \
    }

#define DOT                                                                                        \
    floats8 sums[2] = {};                                                                          \
    uint64_t i = 0;                                                                                \
    for (; i + 16 <= n; i += 16)                                                                   \
        for (unsigned part = 0; part < 2; part++) {                                                \
            floats8 x, y;                                                                          \
            memcpy(&x, a + i + 8 * part, sizeof x);                                                \
            memcpy(&y, b + i + 8 * part, sizeof y);                                                \
            sums[part] += x * y;                                                                   \
        }                                                                                          \
    float sum = 0;                                                                                 \
    for (unsigned lane = 0; lane < 8; lane++)                                                      \
        sum += sums[0][lane] + sums[1][lane];                                                      \
    for (; i < n; i++)                                                                             \
        sum += a[i] * b[i];                                                                        \
    return sum;

#ifdef __x86_64__
__attribute__((target("avx2"))) void multiply_avx2(mma_tile *t)
{
    MULTIPLY
}

__attribute__((target("avx2"))) float dot_avx2(const float *a, const float *b, uint64_t n)
{
    DOT
}
#endif

float dot_plain(const float *a, const float *b, uint64_t n)
{
    DOT
}

void multiply_plain(mma_tile *t)
{
    MULTIPLY
}

#ifdef __x86_64__
const bool has_avx2 = __builtin_cpu_supports("avx2");
void (*const multiply)(mma_tile *) = has_avx2 ? multiply_avx2 : multiply_plain;
float (*const dot_best)(const float *, const float *, uint64_t) = has_avx2 ? dot_avx2 : dot_plain;
#else
void (*const multiply)(mma_tile *) = multiply_plain;
float (*const dot_best)(const float *, const float *, uint64_t) = dot_plain;
#endif

float as_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

void two(float *out, uint32_t pair)
{
    const uint64_t both = (uint64_t)(pair & 0xffff0000u) << 32 | pair << 16;
    memcpy(out, &both, sizeof both);
}

void need_all(uint32_t lanes, const char *name)
{
    if (lanes != ALL_LANES)
        die("%s: only lanes %08x of the warp are there", name, lanes);
}

void mma_run(exchange *x, uint32_t lanes)
{
    need_all(lanes, "mma");
    mma_tile t;
    for (unsigned lane = 0; lane < WARP; lane++) {
        const mma_args &l = *static_cast<const mma_args *>(x->args[lane]);
        const unsigned row = lane / 4, column = lane % 4 * 2;
        two(&t.a[row][column], l.a[0]);
        two(&t.a[row + 8][column], l.a[1]);
        two(&t.a[row][column + 8], l.a[2]);
        two(&t.a[row + 8][column + 8], l.a[3]);
        for (unsigned i = 0; i < 2; i++) {
            t.b[column + 8 * i][row] = as_float(l.b[i] << 16);
            t.b[column + 8 * i + 1][row] = as_float(l.b[i] & 0xffff0000u);
        }
        memcpy(&t.d[row][column], l.d, 2 * sizeof(float));
        memcpy(&t.d[row + 8][column], l.d + 2, 2 * sizeof(float));
    }
    multiply(&t);
    for (unsigned lane = 0; lane < WARP; lane++) {
        const mma_args &l = *static_cast<const mma_args *>(x->args[lane]);
        const unsigned row = lane / 4, column = lane % 4 * 2;
        memcpy(l.d, &t.d[row][column], 2 * sizeof(float));
        memcpy(l.d + 2, &t.d[row + 8][column], 2 * sizeof(float));
    }
}

/* Lane 8 i + j brings the address of row j of matrix i. Of the matrix, or of its transpose, lane l
 * gets the elements 2 (l % 4) and the next of row l / 4. */
void ldmatrix_run(exchange *x, uint32_t lanes)
{
    need_all(lanes, "ldmatrix");
    const ldmatrix_args &first = *static_cast<const ldmatrix_args *>(x->args[0]);
    for (unsigned i = 0; i < first.n_matrices; i++) {
        uint16_t rows[8][8];
        for (unsigned j = 0; j < 8; j++) {
            const ldmatrix_args &from = *static_cast<const ldmatrix_args *>(x->args[8 * i + j]);
            if ((uintptr_t)from.row % 16)
                die("ldmatrix: the address %p of lane %u is not aligned to 16 bytes", from.row,
                    8 * i + j);
            memcpy(rows[j], from.row, sizeof rows[j]);
        }
        for (unsigned lane = 0; lane < WARP; lane++) {
            const ldmatrix_args &to = *static_cast<const ldmatrix_args *>(x->args[lane]);
            const unsigned row = lane / 4, column = lane % 4 * 2;
            to.r[i] = first.trans ? rows[column][row] | (uint32_t)rows[column + 1][row] << 16
                                  : rows[row][column] | (uint32_t)rows[row][column + 1] << 16;
        }
    }
}

/* One for each kind, so that lanes that call different ones do not meet. */
const warp_call MMA = {"waits at mma", mma_run};
const warp_call LDMATRIX[] = {{"waits at ldmatrix.x2", ldmatrix_run},
                              {"waits at ldmatrix.x2.trans", ldmatrix_run},
                              {"waits at ldmatrix.x4", ldmatrix_run},
                              {"waits at ldmatrix.x4.trans", ldmatrix_run}};
} // namespace

float dot(const float *a, const float *b, uint64_t n)
{
    return dot_best(a, b, n);
}

void mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
    mma_args args = {d, a, b};
    meet(ALL_LANES, &MMA, &args);
}

void ldmatrix(uint32_t *r, const void *row, unsigned n_matrices, bool trans)
{
    ldmatrix_args args = {r, row, n_matrices, trans};
    meet(ALL_LANES, &LDMATRIX[(n_matrices == 4) * 2 + trans], &args);
}
} // namespace emulate
