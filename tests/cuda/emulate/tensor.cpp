#include "tensor.h"

#include <string.h>

#include <atomic>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "engine.h"
#include "faults.h"

namespace emulate
{
namespace
{
constexpr unsigned M = 16, N = 8, K = 16;
std::atomic<unsigned long long> n_operations;

typedef float floats8 __attribute__((vector_size(32)));

/* `mma_tile` holds the matrices in float: a row of a, b and d is one or two vectors. */
struct mma_tile {
    alignas(32) float a[M][K];
    alignas(32) float b[K][N];
    alignas(32) float d[M][N];
};

#define DOT                                                                                        \
    floats8 even = {}, odd = {}, x, y;                                                             \
    uint64_t i = 0;                                                                                \
    for (; i + 16 <= n; i += 16) {                                                                 \
        memcpy(&x, a + i, sizeof x);                                                               \
        memcpy(&y, b + i, sizeof y);                                                               \
        even += x * y;                                                                             \
        memcpy(&x, a + i + 8, sizeof x);                                                           \
        memcpy(&y, b + i + 8, sizeof y);                                                           \
        odd += x * y;                                                                              \
    }                                                                                              \
    float sum = 0;                                                                                 \
    for (unsigned lane = 0; lane < 8; lane++)                                                      \
        sum += even[lane] + odd[lane];                                                             \
    for (; i < n; i++)                                                                             \
        sum += a[i] * b[i];                                                                        \
    return sum;

/* Computes d += a b. Products of two bfloat16 are exact in float, so fusing changes nothing.
 * Sums are in the order of k; a device has its own order. */
#ifdef __x86_64__
__attribute__((target("avx2,fma"))) void multiply_avx2(mma_tile *t)
{
    for (unsigned i = 0; i < M; i += 4) { /* four rows at a time, because they are independent */
        float *d = t->d[i];
        __m256 d0 = _mm256_load_ps(d), d1 = _mm256_load_ps(d + 8), d2 = _mm256_load_ps(d + 16),
               d3 = _mm256_load_ps(d + 24);
        for (unsigned k = 0; k < K; k++) {
            const __m256 b = _mm256_load_ps(t->b[k]);
            d0 = _mm256_fmadd_ps(_mm256_set1_ps(t->a[i][k]), b, d0);
            d1 = _mm256_fmadd_ps(_mm256_set1_ps(t->a[i + 1][k]), b, d1);
            d2 = _mm256_fmadd_ps(_mm256_set1_ps(t->a[i + 2][k]), b, d2);
            d3 = _mm256_fmadd_ps(_mm256_set1_ps(t->a[i + 3][k]), b, d3);
        }
        _mm256_store_ps(d, d0), _mm256_store_ps(d + 8, d1);
        _mm256_store_ps(d + 16, d2), _mm256_store_ps(d + 24, d3);
    }
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
    for (unsigned i = 0; i < M; i++)
        for (unsigned k = 0; k < K; k++)
            for (unsigned j = 0; j < N; j++)
                t->d[i][j] += t->a[i][k] * t->b[k][j];
}

#ifdef __x86_64__
const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
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

static_assert(sizeof(mma_tile) <= sizeof(exchange::tile), "a warp's tile");

void mma_run(exchange *x, uint32_t lanes)
{
    need_all(lanes, "mma");
    multiply(reinterpret_cast<mma_tile *>(x->tile));
}

/* Loads the matrices of ldmatrix. Lane 8 i + j gives the address of row j of matrix i. Lane l
 * receives elements 2 (l % 4) and 2 (l % 4) + 1 of row l / 4 of the matrix, or of its transpose. */
void ldmatrix_load(exchange *x, uint32_t lanes, unsigned n_matrices, bool trans)
{
    need_all(lanes, "ldmatrix");
    for (unsigned i = 0; i < n_matrices; i++) {
        uint16_t rows[8][8];
        for (unsigned j = 0; j < 8; j++) {
            const uint64_t row = x->values[8 * i + j];
            if (row % 16)
                die("ldmatrix: the address %p of lane %u is not aligned to 16 bytes", (void *)row,
                    8 * i + j);
            memcpy(rows[j], (const void *)row, sizeof rows[j]);
        }
        for (unsigned lane = 0; lane < WARP; lane++) {
            const unsigned row = lane / 4, column = lane % 4 * 2;
            x->loaded[lane][i] = trans ? rows[column][row] | (uint32_t)rows[column + 1][row] << 16
                                       : rows[row][column] | (uint32_t)rows[row][column + 1] << 16;
        }
    }
}

template <unsigned N, bool TRANS> void ldmatrix_run(exchange *x, uint32_t lanes)
{
    ldmatrix_load(x, lanes, N, TRANS);
}

const warp_call MMA = {"waits at mma", mma_run};
const warp_call LDMATRIX[] = {{"waits at ldmatrix.x2", ldmatrix_run<2, false>},
                              {"waits at ldmatrix.x2.trans", ldmatrix_run<2, true>},
                              {"waits at ldmatrix.x4", ldmatrix_run<4, false>},
                              {"waits at ldmatrix.x4.trans", ldmatrix_run<4, true>}};
} // namespace

float dot(const float *a, const float *b, uint64_t n)
{
    return dot_best(a, b, n);
}

void operations_count(unsigned long long n)
{
    n_operations.fetch_add(n, std::memory_order_relaxed);
}

void mma_bf16_16816(float *d, const uint32_t *a, const uint32_t *b)
{
    mma_tile *t = reinterpret_cast<mma_tile *>(warp_exchange()->tile);
    const unsigned lane = lane_index(), row = lane / 4, column = lane % 4 * 2;
    two(&t->a[row][column], a[0]);
    two(&t->a[row + 8][column], a[1]);
    two(&t->a[row][column + 8], a[2]);
    two(&t->a[row + 8][column + 8], a[3]);
    for (unsigned i = 0; i < 2; i++) {
        t->b[column + 8 * i][row] = as_float(b[i] << 16);
        t->b[column + 8 * i + 1][row] = as_float(b[i] & 0xffff0000u);
    }
    if (lane == 0)
        operations_count(2 * M * N * K);
    memcpy(&t->d[row][column], d, 2 * sizeof(float));
    memcpy(&t->d[row + 8][column], d + 2, 2 * sizeof(float));
    (void)meet(ALL_LANES, &MMA, 0, 0);
    memcpy(d, &t->d[row][column], 2 * sizeof(float));
    memcpy(d + 2, &t->d[row + 8][column], 2 * sizeof(float));
}

void ldmatrix(uint32_t *r, const void *row, unsigned n_matrices, bool trans)
{
    (void)meet(ALL_LANES, &LDMATRIX[(n_matrices == 4) * 2 + trans], (uintptr_t)row, 0);
    memcpy(r, warp_exchange()->loaded[lane_index()], n_matrices * sizeof *r);
}
} // namespace emulate

unsigned long long emulate_n_operations(void)
{
    return emulate::n_operations;
}
