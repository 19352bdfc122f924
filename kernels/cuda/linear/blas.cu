/* Computes products of many rows with cuBLASLt. gpu_linear_new loads the library with dlopen, so
 * that a program without a GPU starts without it. backend/linear.c calls cuda_linear_many. All
 * work is enqueued on the stream of the struct gpu_linear. In cuBLASLt's terms, columns first:
 * out [n][rows] = w^T [n][k] x [k][rows], where w is k x n. For each shape, with rows rounded
 * up, cuBLASLt is queried once for an algorithm, which is kept. Parts of split sums are added in
 * float. Weights in codes are converted to bfloat16 some outputs at a time, so that they are
 * read back from the L2 cache if it is large enough. A product begins with the bias in its
 * output. The part of the bias that bfloat16 cannot hold is a vector that cuBLASLt adds in float
 * before it rounds. The result is therefore rounded once, with a bias of 16 bits of fraction (or
 * all bits, if the result is float). */
#include "kernels/cuda/device/find_library.h"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/linear/state.cuh"

#include <cublasLt.h>
#include <cuda_bf16.h>
#include <dlfcn.h>

extern "C" {
#include "kernels/cuda/weights/dequantise.h"
}

#define BLAS_LIBRARY "libcublasLt.so.13"

/* BLAS_FUNCTIONS lists the functions in use. If the installed cublasLt.h differs from these
 * declarations, compilation fails there. */
#define BLAS_FUNCTIONS(X)                                                                          \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatrixLayoutSetAttribute)                                                            \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)                                                        \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmul)

namespace
{
constexpr uint32_t MAX_KEPT = 256, ROWS_UNIT = 256;
constexpr uint64_t WORKSPACE = GPU_BLAS_WORKSPACE - GPU_BLAS_BIASES;
/* MAX_BIASES is the largest number of biases of a product. */
constexpr uint32_t MAX_BIASES = GPU_BLAS_BIASES / sizeof(uint16_t);
constexpr uint32_t PIECE_OUTPUTS =
    128; /* the outputs of a piece are a multiple of this number, if there is enough scratch */

struct api {
#define X(name) decltype(&::name) name;
    BLAS_FUNCTIONS(X)
#undef X
};

struct shape {
    uint32_t n, rows, k, x_stride, out_stride;
    /* is_aligned: all pointers and strides are aligned to 16 bytes */
    bool to_float, has_bias, is_aligned;
};
struct kept {
    struct shape shape;
    cublasLtMatmulAlgo_t algo;
};
struct operand {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};
} // namespace

struct blas {
    struct api api;
    void *library;
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t w, x, out;
    cublasLtMatmulPreference_t preference;
    struct kept kept[MAX_KEPT];
    uint32_t n_kept, next; /* next: index of the oldest entry, which is replaced first */
};

namespace
{
enum status check(cublasStatus_t s, const char *call, struct error *err)
{
    if (s == CUBLAS_STATUS_SUCCESS)
        return STATUS_OK;
    return error_set(err, s == CUBLAS_STATUS_ALLOC_FAILED ? STATUS_NO_MEMORY : STATUS_IO,
                     "%s failed with cuBLAS status %d", call, (int)s);
}
#define TRY_BLAS(b, name, ...) TRY(check((b)->api.name(__VA_ARGS__), #name, err))

#ifdef CUBLASLT_IS_LINKED
enum status load(struct blas *b, struct error *err)
{
#define X(name) b->api.name = ::name;
    BLAS_FUNCTIONS(X)
#undef X
    return STATUS_OK;
}
#else
enum status load(struct blas *b, struct error *err)
{
    struct error why;
    if (gpu_find_library(BLAS_LIBRARY, &b->library, &why) != STATUS_OK)
        return error_set(err, STATUS_UNSUPPORTED,
                         "long prompts need cuBLAS 13, but it cannot be loaded: %s. Install it, or "
                         "put the folder of " BLAS_LIBRARY " into LD_LIBRARY_PATH",
                         why.text);
    bool complete = true;
#define X(name)                                                                                    \
    b->api.name = reinterpret_cast<decltype(&::name)>(dlsym(b->library, #name));                   \
    complete = complete && b->api.name;
    BLAS_FUNCTIONS(X)
#undef X
    return complete ? STATUS_OK
                    : error_set(err, STATUS_UNSUPPORTED,
                                BLAS_LIBRARY " lacks a function that is needed: %s", dlerror());
}
#endif

enum status prepare(struct blas *b, struct error *err)
{
    const cublasOperation_t transposed = CUBLAS_OP_T;
    const uint64_t workspace = WORKSPACE;
    /* Other reduction schemes, in place or in the result's type, would round the parts. */
    const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    TRY(load(b, err));
    TRY_BLAS(b, cublasLtCreate, &b->handle);
    TRY_BLAS(b, cublasLtMatmulDescCreate, &b->product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    TRY_BLAS(b, cublasLtMatmulDescSetAttribute, b->product, CUBLASLT_MATMUL_DESC_TRANSA,
             &transposed, sizeof transposed);
    TRY_BLAS(b, cublasLtMatrixLayoutCreate, &b->w, CUDA_R_16BF, 1, 1, 1);
    TRY_BLAS(b, cublasLtMatrixLayoutCreate, &b->x, CUDA_R_16BF, 1, 1, 1);
    TRY_BLAS(b, cublasLtMatrixLayoutCreate, &b->out, CUDA_R_16BF, 1, 1, 1);
    TRY_BLAS(b, cublasLtMatmulPreferenceCreate, &b->preference);
    TRY_BLAS(b, cublasLtMatmulPreferenceSetAttribute, b->preference,
             CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    TRY_BLAS(b, cublasLtMatmulPreferenceSetAttribute, b->preference,
             CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions);
    return STATUS_OK;
}

enum status set_layout(struct blas *b, cublasLtMatrixLayout_t layout, const struct operand &o,
                       struct error *err)
{
    const uint32_t type = (uint32_t)o.type;
    TRY_BLAS(b, cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_TYPE, &type,
             sizeof type);
    TRY_BLAS(b, cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_ROWS, &o.rows,
             sizeof o.rows);
    TRY_BLAS(b, cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_COLS, &o.columns,
             sizeof o.columns);
    TRY_BLAS(b, cublasLtMatrixLayoutSetAttribute, layout, CUBLASLT_MATRIX_LAYOUT_LD, &o.ld,
             sizeof o.ld);
    return STATUS_OK;
}

enum status set_layouts(struct blas *b, const struct shape &s, struct error *err)
{
    const cudaDataType_t out = s.to_float ? CUDA_R_32F : CUDA_R_16BF;
    TRY(set_layout(b, b->w, {CUDA_R_16BF, s.k, s.n, gpu_padded_k(GPU_BF16, s.k)}, err));
    TRY(set_layout(b, b->x, {CUDA_R_16BF, s.k, s.rows, s.x_stride}, err));
    return set_layout(b, b->out, {out, s.n, s.rows, s.out_stride}, err);
}

bool same(const struct shape &a, const struct shape &b)
{
    return a.n == b.n && a.rows == b.rows && a.k == b.k && a.x_stride == b.x_stride &&
           a.out_stride == b.out_stride && a.to_float == b.to_float && a.has_bias == b.has_bias &&
           a.is_aligned == b.is_aligned;
}

/* Queries cuBLASLt for an algorithm. The layouts must be set. */
enum status ask(struct blas *b, const struct shape &s, cublasLtMatmulAlgo_t *out, struct error *err)
{
    cublasLtMatmulHeuristicResult_t result = {};
    int n = 0;
    const uint32_t n_bytes = s.is_aligned ? 16 : 2;
    static const cublasLtMatmulPreferenceAttributes_t operands[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    for (uint32_t i = 0; i < sizeof operands / sizeof operands[0]; i++)
        TRY_BLAS(b, cublasLtMatmulPreferenceSetAttribute, b->preference, operands[i], &n_bytes,
                 sizeof n_bytes);
    TRY_BLAS(b, cublasLtMatmulAlgoGetHeuristic, b->handle, b->product, b->w, b->x, b->out, b->out,
             b->preference, 1, &result, &n);
    if (n == 0)
        return error_set(
            err, STATUS_UNSUPPORTED,
            "cuBLAS has no algorithm for a product of %u outputs, %u inputs and %u rows", s.n, s.k,
            s.rows);
    *out = result.algo;
    return STATUS_OK;
}

struct kept *find(struct blas *b, const struct shape &s)
{
    for (uint32_t i = 0; i < b->n_kept; i++)
        if (same(b->kept[i].shape, s))
            return &b->kept[i];
    return nullptr;
}

/* Queries cuBLASLt for an algorithm and stores it, in place of the shape's old algorithm. */
enum status keep(struct blas *b, const struct shape &s, const struct kept **out, struct error *err)
{
    struct kept k = {};
    k.shape = s;
    TRY(set_layouts(b, s, err));
    TRY(ask(b, s, &k.algo, err));
    struct kept *at = find(b, s);
    if (!at)
        at = &b->kept[b->n_kept < MAX_KEPT ? b->n_kept++ : b->next++ % MAX_KEPT];
    *at = k;
    *out = at;
    return STATUS_OK;
}

/* `places` holds the memory that a product reads and writes. */
struct places {
    const void *w, *x;
    void *out, *scratch; /* scratch: cuBLASLt's workspace, then the rest of the biases */
};
void *biases_of(void *scratch)
{
    return static_cast<uint8_t *>(scratch) + WORKSPACE;
}

/* Sets the product's epilogue and the pointer to its bias. The pointer is also set when an
 * algorithm is chosen, because the algorithm depends on the pointer's alignment. */
enum status set_epilogue(struct blas *b, const struct shape &s, const struct places &at,
                         struct error *err)
{
    const bool rest = s.has_bias && !s.to_float;
    const uint32_t epilogue = rest ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    const void *biases = rest ? biases_of(at.scratch) : nullptr;
    TRY_BLAS(b, cublasLtMatmulDescSetAttribute, b->product, CUBLASLT_MATMUL_DESC_EPILOGUE,
             &epilogue, sizeof epilogue);
    TRY_BLAS(b, cublasLtMatmulDescSetAttribute, b->product, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
             &biases, sizeof biases);
    return STATUS_OK;
}

cublasStatus_t run(struct gpu_linear *l, const struct shape &s, const struct places &at,
                   const cublasLtMatmulAlgo_t *algo)
{
    struct blas *b = l->blas;
    const float one = 1.0f, beta = s.has_bias ? 1.0f : 0.0f;
    return b->api.cublasLtMatmul(b->handle, b->product, &one, at.w, b->w, at.x, b->x, &beta, at.out,
                                 b->out, at.out, b->out, algo, at.scratch, WORKSPACE,
                                 l->stream->native);
}

/* Multiplies with the algorithm for the rounded-up number of rows, which mostly works for fewer
 * rows too. If cuBLASLt refuses this algorithm, one for the exact number is used. */
enum status multiply(struct gpu_linear *l, const struct shape &s, const struct places &at,
                     struct error *err)
{
    struct blas *b = l->blas;
    struct shape rounded = s;
    rounded.rows = (s.rows + ROWS_UNIT - 1) / ROWS_UNIT * ROWS_UNIT;
    TRY(set_epilogue(b, s, at, err));
    const struct kept *k = find(b, s);
    if (!k)
        k = find(b, rounded);
    if (!k)
        TRY(keep(b, rounded, &k, err));
    TRY(set_layouts(b, s, err));
    cublasStatus_t status = run(l, s, at, &k->algo);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
        TRY(keep(b, s, &k, err));
        status = run(l, s, at, &k->algo);
    }
    return check(status, "cublasLtMatmul", err);
}

/* `fill_args` describes filling out[row] with the bias; `rest` receives the part that out's type
 * cannot hold. */
struct fill_args {
    void *out;
    const float *bias;
    __nv_bfloat16 *rest;
    uint32_t out_stride, n, to_float;
};
constexpr uint32_t FILL_THREADS = 256;
__global__ __launch_bounds__(FILL_THREADS) void fill_kernel(const fill_args a)
{
    const size_t row = (size_t)blockIdx.x * a.out_stride;
    dependency_wait();
    dependency_launch();
    for (uint32_t i = threadIdx.x; i < a.n; i += FILL_THREADS) {
        if (a.to_float) {
            static_cast<float *>(a.out)[row + i] = a.bias[i];
            continue;
        }
        const __nv_bfloat16 most = __float2bfloat16_rn(a.bias[i]);
        static_cast<__nv_bfloat16 *>(a.out)[row + i] = most;
        if (blockIdx.x == 0) {
            const float rest = a.bias[i] - __bfloat162float(most);
            a.rest[i] = __float2bfloat16_rn(fabsf(rest) < INFINITY ? rest : 0.0f);
        }
    }
}

enum status fill(struct gpu_linear *l, const struct shape &s, const struct places &at,
                 const float *bias, struct error *err)
{
    fill_args a = {};
    a.out = at.out, a.out_stride = s.out_stride;
    a.bias = bias, a.n = s.n, a.to_float = s.to_float;
    a.rest = static_cast<__nv_bfloat16 *>(biases_of(at.scratch));
    const cudaError_t e =
        launch_kernel(l->stream, fill_kernel, dim3(s.rows), dim3(FILL_THREADS), 0, a);
    return gpu_check(e, "fill_bias", err);
}

/* Returns the number of row tiles of weights that are converted to bfloat16 at a time. */
uint32_t piece_tiles(const struct gpu_products *p, const struct gpu_matrix *w, uint64_t row_bytes)
{
    constexpr uint32_t UNIT = PIECE_OUTPUTS / GPU_TILE_N;
    const uint64_t room = (p->scratch_bytes - GPU_BLAS_WORKSPACE) / (row_bytes * GPU_TILE_N);
    const uint32_t all = gpu_n_row_tiles(w);
    if (room >= all)
        return all;
    const uint32_t n_pieces = (uint32_t)((all + room - 1) / room);
    const uint32_t even = ((all + n_pieces - 1) / n_pieces + UNIT - 1) / UNIT * UNIT;
    return even <= room ? even : (uint32_t)room;
}

enum status one_product(struct gpu_linear *l, const struct gpu_products *p,
                        const struct gpu_product *part, struct error *err)
{
    const struct gpu_matrix *w = &part->w;
    const uint64_t row_bytes = (uint64_t)gpu_padded_k(GPU_BF16, w->k) * 2;
    const bool plain = w->format == GPU_BF16;
    uint8_t *values = static_cast<uint8_t *>(p->scratch) + GPU_BLAS_WORKSPACE;
    if (p->scratch_bytes < GPU_BLAS_WORKSPACE + (plain ? 0 : row_bytes * GPU_TILE_N))
        return error_set(err, STATUS_INTERNAL,
                         "%llu bytes of scratch memory are too few for a matrix product",
                         (unsigned long long)p->scratch_bytes);
    const uint32_t n_tiles = gpu_n_row_tiles(w);
    uint32_t piece = plain ? n_tiles : piece_tiles(p, w, row_bytes);
    if (part->bias && piece > MAX_BIASES / GPU_TILE_N)
        piece = MAX_BIASES / GPU_TILE_N;
    for (uint32_t first = 0; first < n_tiles; first += piece) {
        const uint32_t n = n_tiles - first < piece ? n_tiles - first : piece;
        const uint32_t output = first * GPU_TILE_N, left = w->n - output;
        const size_t skip = output * (part->to_float ? sizeof(float) : sizeof(uint16_t));
        if (!plain)
            TRY(cuda_dequantise(l->stream, w, first, n, values, err));
        const struct places at = {plain ? w->codes : values, p->x.data,
                                  static_cast<uint8_t *>(part->out.data) + skip, p->scratch};
        const uintptr_t bits = (uintptr_t)at.w | (uintptr_t)at.x | (uintptr_t)at.out |
                               p->x.stride * 2 | part->out.stride * (part->to_float ? 4 : 2);
        const struct shape s = {n * GPU_TILE_N < left ? n * GPU_TILE_N : left,
                                p->n_rows,
                                w->k,
                                p->x.stride,
                                part->out.stride,
                                part->to_float,
                                part->bias != nullptr,
                                bits % 16 == 0};
        if (part->bias)
            TRY(fill(l, s, at, part->bias + output, err));
        TRY(multiply(l, s, at, err));
    }
    return STATUS_OK;
}
} // namespace

enum status cuda_linear_many(struct gpu_linear *l, const struct gpu_products *p, struct error *err)
{
    if (p->n_rows == 0)
        return STATUS_OK;
    TRY(gpu_enter(l->stream->device, err));
    for (uint32_t i = 0; i < p->n_parts; i++)
        TRY(one_product(l, p, &p->parts[i], err));
    return STATUS_OK;
}

enum status blas_new(struct blas **out, struct error *err)
{
    struct blas *b = static_cast<struct blas *>(mem_zalloc(sizeof *b));
    const enum status s = prepare(b, err);
    if (s != STATUS_OK) {
        blas_free(b);
        return s;
    }
    *out = b;
    return STATUS_OK;
}

void blas_free(struct blas *b)
{
    if (!b)
        return;
    if (b->preference)
        (void)b->api.cublasLtMatmulPreferenceDestroy(b->preference);
    const cublasLtMatrixLayout_t layouts[] = {b->w, b->x, b->out};
    for (cublasLtMatrixLayout_t layout : layouts)
        if (layout)
            (void)b->api.cublasLtMatrixLayoutDestroy(layout);
    if (b->product)
        (void)b->api.cublasLtMatmulDescDestroy(b->product);
    if (b->handle)
        (void)b->api.cublasLtDestroy(b->handle);
    if (b->library)
        dlclose(b->library);
    mem_free(b);
}

/* Returns the number of rows from which cuBLASLt is faster.
 * BF16: from two turns of cuda_linear_few on, which read the weights twice, while cuBLASLt reads
 * them once. Up to about 266 rows (an H100's 798 TFLOP/s to 3.0 TB/s, two operations and two
 * bytes a weight), reading is the limit of a product. One reading at half of the memory's rate
 * is therefore no slower than two readings at the full rate, and one turn of up to 64 rows gains
 * nothing.
 * Codes: cuda_linear_many reads, writes and reads each weight again: 4.5 bytes for a code of 4
 * bits, 5 bytes for a code of 8 bits. A turn of 64 rows reads each weight once, so the limit is
 * four or five turns. If these turns are bound by instructions, fewer turns are as slow;
 * gemm_launch.cuh estimates a third to a half of the memory's rate for 64 rows of 4 bits. This
 * was not measured. */
uint32_t gpu_many_rows(enum gpu_format f)
{
    return f == GPU_BF16 ? GPU_FEW_ROWS + 1 : 256;
}
