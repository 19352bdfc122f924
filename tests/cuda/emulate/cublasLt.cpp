/* Implements the stand-in for cuBLASLt. An algorithm is refused in three cases, so that a caller
 * that keeps algorithms must query again. First, a product has more columns than were given when
 * the algorithm was chosen, or less than an eighth of them. Second, operands have less alignment
 * than was declared (256 bytes if nothing was). Third, the product has another epilogue. No
 * algorithm is given to a caller who allows parts of a sum to be rounded to the result's type.
 * blas.cu calls the stand-in instead of NVIDIA's library. Products run in the stream's order on
 * the host (work.h). */
#include "cublasLt.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "cuda_bf16.h"
#include "faults.h"
#include "runtime_internal.h"
#include "tensor.h"
#include "work.h"

struct emulate_blas {
    int unused;
};
struct emulate_blas_product {
    cublasOperation_t a;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void *bias;
};
struct emulate_blas_layout {
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t ld;
};
struct emulate_blas_preference {
    uint64_t workspace_bytes;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t alignments[4] = {256, 256, 256, 256}; /* alignments in bytes of a, b, c and d */
};

namespace
{
std::atomic<unsigned long long> n_asked;

template <class T> cublasStatus_t make(T **out)
{
    *out = new T();
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t drop(T *p)
{
    delete p;
    return CUBLAS_STATUS_SUCCESS;
}
template <class T> cublasStatus_t take(T *to, const void *value, size_t n_bytes)
{
    if (n_bytes != sizeof *to)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, value, n_bytes);
    return CUBLAS_STATUS_SUCCESS;
}

float element(const void *p, const emulate_blas_layout *l, uint64_t row, uint64_t column)
{
    const uint64_t i = column * (uint64_t)l->ld + row;
    return l->type == CUDA_R_32F ? static_cast<const float *>(p)[i]
                                 : (float)static_cast<const __nv_bfloat16 *>(p)[i];
}

struct product {
    const uint16_t *a, *b;
    /* `bias` has one number for each row, in the result's type; or it is NULL */
    const void *c, *bias;
    void *out;
    emulate_blas_layout a_layout, b_layout, c_layout, out_layout;
    float alpha, beta;
};

/* Converts column j of m to float. */
void column_widen(std::vector<float> &to, const uint16_t *m, const emulate_blas_layout &l,
                  uint64_t j)
{
    for (uint64_t i = 0; i < l.rows; i++)
        to[i] = emulate::bf16_value(m[j * (uint64_t)l.ld + i]);
}

/* Computes out = alpha a^T b + beta c + bias. */
void product_run(const product &p)
{
    const uint64_t k = p.a_layout.rows, n_columns = p.out_layout.columns;
    emulate::operations_count(2 * k * n_columns * p.out_layout.rows);
    std::vector<float> a(k), column(k), b(k * n_columns);
    for (uint64_t j = 0; j < n_columns; j++) {
        column_widen(column, p.b, p.b_layout, j);
        std::copy(column.begin(), column.end(), b.begin() + (ptrdiff_t)(j * k));
    }
    for (uint64_t i = 0; i < p.out_layout.rows; i++) {
        column_widen(a, p.a, p.a_layout, i);
        for (uint64_t j = 0; j < n_columns; j++) {
            float sum = p.alpha * emulate::dot(a.data(), &b[j * k], k);
            if (p.beta != 0)
                sum += p.beta * element(p.c, &p.c_layout, i, j);
            if (p.bias)
                sum += element(p.bias, &p.out_layout, i, 0);
            const uint64_t place = j * (uint64_t)p.out_layout.ld + i;
            if (p.out_layout.type == CUDA_R_32F)
                static_cast<float *>(p.out)[place] = sum;
            else
                static_cast<__nv_bfloat16 *>(p.out)[place] = sum;
        }
    }
}
} // namespace

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    return emulate::setting("COX_EMULATE_NO_BLAS", 0) > 0 ? CUBLAS_STATUS_NOT_INITIALIZED
                                                          : make(out);
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return drop(h);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return make(out);
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return drop(d);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t n_bytes)
{
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return take(&d->a, value, n_bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return take(&d->epilogue, value, n_bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return take(&d->bias, value, n_bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld)
{
    (void)make(out);
    **out = {type, rows, columns, ld};
    return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return drop(l);
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t attribute,
                                                const void *value, size_t n_bytes)
{
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        return take(&l->type, value, n_bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        return take(&l->rows, value, n_bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        return take(&l->columns, value, n_bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
        return take(&l->ld, value, n_bytes);
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    return make(out);
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return drop(p);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t n_bytes)
{
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return take(&p->workspace_bytes, value, n_bytes);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return take(&p->reductions, value, n_bytes);
    return take(&p->alignments[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], value,
                n_bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t p, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *results,
                                              int *n_results)
{
    const bool has_bias = d->epilogue == CUBLASLT_EPILOGUE_BIAS;
    n_asked++;
    *n_results = 0;
    if (n_wanted < 1 || a->rows != b->rows || out->rows != a->columns || out->columns != b->columns)
        return CUBLAS_STATUS_INVALID_VALUE;
    if ((p->reductions & ~(uint32_t)CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) != 0 ||
        has_bias != (d->bias != nullptr))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    results[0] = {};
    results[0].algo.data[0] = out->columns;
    for (int i = 0; i < 4; i++)
        results[0].algo.data[1 + i] = p->alignments[i];
    results[0].algo.data[5] = d->epilogue;
    results[0].workspaceSize = p->workspace_bytes;
    *n_results = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *a, cublasLtMatrixLayout_t a_layout, const void *b,
                              cublasLtMatrixLayout_t b_layout, const void *beta, const void *c,
                              cublasLtMatrixLayout_t c_layout, void *out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const uint64_t k = a_layout->rows;
    if (d->a != CUBLAS_OP_T || a_layout->type != CUDA_R_16BF || b_layout->type != CUDA_R_16BF ||
        b_layout->rows != k || out_layout->rows != a_layout->columns ||
        out_layout->columns != b_layout->columns || !workspace)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (out_layout->columns > algo->data[0] || out_layout->columns * 8 <= algo->data[0] ||
        d->epilogue != algo->data[5])
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const void *const operands[4] = {a, b, c, out};
    for (int i = 0; i < 4; i++)
        if ((uintptr_t)operands[i] % algo->data[1 + i] != 0)
            return CUBLAS_STATUS_NOT_SUPPORTED;
    const product p = {(const uint16_t *)a,
                       (const uint16_t *)b,
                       c,
                       d->epilogue == CUBLASLT_EPILOGUE_BIAS ? d->bias : nullptr,
                       out,
                       *a_layout,
                       *b_layout,
                       *c_layout,
                       *out_layout,
                       *static_cast<const float *>(alpha),
                       *static_cast<const float *>(beta)};
    const size_t n_workspace = workspace_bytes < 4096 ? workspace_bytes : 4096;
    const cudaError_t e = emulate::enqueue_work(stream, [=] {
        memset(workspace, 0xff, n_workspace);
        product_run(p);
    });
    return e == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

unsigned long long emulate_n_algorithms(void)
{
    return n_asked;
}
