/* Tests the requests of blas.cu to the stand-in for cuBLASLt. blas.cu must query an algorithm
 * once for a shape, even after the algorithm for rounded-up rows was refused. It must never
 * accept an algorithm that rounds parts of a sum. */
#include <cublasLt.h>

#include "tests/cuda/emulate/faults.h"
#include "tests/cuda/emulation/emulate_check.h"

extern "C" {
#include "kernels/cuda/linear/abi.h"
}

namespace
{
constexpr uint32_t N = 16, K = 64, ROWS = 512;
struct rig {
    struct error err = {};
    struct gpu_device *device = nullptr;
    struct gpu_stream *stream = nullptr;
    struct gpu_linear *linear = nullptr;
    struct gpu_products products = {};

    void *room(uint64_t n_bytes)
    {
        void *p = nullptr;
        CHECK(gpu_alloc(device, n_bytes, &p, &err) == STATUS_OK);
        return p;
    }
    rig()
    {
        struct gpu_info info;
        CHECK(gpu_info(0, &info, &err) == STATUS_OK);
        CHECK(gpu_device_open(0, &device, &err) == STATUS_OK);
        CHECK(gpu_stream_new(device, &stream, &err) == STATUS_OK);
        CHECK(gpu_linear_new(stream, &info, &linear, &err) == STATUS_OK);
        struct gpu_product *p = &products.parts[0];
        CHECK(gpu_matrix_of(DTYPE_BF16, N, K, 0, nullptr, &p->w));
        CHECK(gpu_matrix_of(DTYPE_BF16, N, K, 0, room(gpu_matrix_bytes(&p->w)), &p->w));
        p->out = {room(ROWS * N * 2), N};
        products.x = {room(ROWS * K * 2), K};
        products.n_parts = 1;
        products.scratch_bytes = GPU_BLAS_WORKSPACE;
        products.scratch = room(GPU_BLAS_WORKSPACE);
    }
    ~rig()
    {
        gpu_release(device, products.scratch);
        gpu_release(device, products.x.data);
        gpu_release(device, products.parts[0].out.data);
        gpu_release(device, const_cast<void *>(products.parts[0].w.codes));
        gpu_linear_free(linear);
        gpu_stream_free(stream);
        gpu_device_close(device);
    }

    /* Returns how often a product of n_rows rows queries an algorithm. */
    unsigned long long asks(uint32_t n_rows)
    {
        const unsigned long long before = emulate_n_algorithms();
        products.n_rows = n_rows;
        CHECK(cuda_linear_many(linear, &products, &err) == STATUS_OK);
        CHECK(gpu_stream_sync(stream, &err) == STATUS_OK);
        return emulate_n_algorithms() - before;
    }
};

void test_algorithms_are_kept()
{
    rig r;
    CHECK(r.asks(200) == 1);
    CHECK(r.asks(250) == 0);
    CHECK(r.asks(300) == 1);
    CHECK(r.asks(20) == 1); /* the algorithm for 256 rows is refused */
    CHECK(r.asks(20) == 0);
    CHECK(r.asks(21) == 1);
    CHECK(r.asks(20) == 0);
    CHECK(r.asks(256) == 0);
}

void test_rounded_parts_are_refused()
{
    cublasLtHandle_t h;
    cublasLtMatmulDesc_t d;
    cublasLtMatrixLayout_t w, x, out;
    cublasLtMatmulPreference_t p;
    cublasLtMatmulHeuristicResult_t result;
    int n = 0;
    CHECK(cublasLtCreate(&h) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulDescCreate(&d, CUBLAS_COMPUTE_32F, CUDA_R_32F) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatrixLayoutCreate(&w, CUDA_R_16BF, K, N, K) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatrixLayoutCreate(&x, CUDA_R_16BF, K, 1, K) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatrixLayoutCreate(&out, CUDA_R_16BF, N, 1, N) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulPreferenceCreate(&p) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulAlgoGetHeuristic(h, d, w, x, out, out, p, 1, &result, &n) ==
          CUBLAS_STATUS_NOT_SUPPORTED);
    const uint32_t float_parts = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CHECK(cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                               &float_parts,
                                               sizeof float_parts) == CUBLAS_STATUS_SUCCESS);
    CHECK(cublasLtMatmulAlgoGetHeuristic(h, d, w, x, out, out, p, 1, &result, &n) ==
          CUBLAS_STATUS_SUCCESS);
    CHECK(n == 1);
    cublasLtMatmulPreferenceDestroy(p);
    cublasLtMatrixLayoutDestroy(out), cublasLtMatrixLayoutDestroy(x);
    cublasLtMatrixLayoutDestroy(w);
    cublasLtMatmulDescDestroy(d);
    cublasLtDestroy(h);
}
} // namespace

int main()
{
    checks_begin("emulate_blas_test.cu");
    test_algorithms_are_kept();
    test_rounded_parts_are_refused();
    return checks_end();
}
