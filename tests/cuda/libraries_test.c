/* cuBLAS and NCCL link and load, and are of the version of their headers. Needs no device: what
 * neither can say without one is not asked. */
#include <cublas_v2.h>
#include <nccl.h>
#include <stdio.h>

int main(void)
{
    int major = 0, minor = 0, nccl = 0;
    if (cublasGetProperty(MAJOR_VERSION, &major) != CUBLAS_STATUS_SUCCESS ||
        cublasGetProperty(MINOR_VERSION, &minor) != CUBLAS_STATUS_SUCCESS ||
        ncclGetVersion(&nccl) != ncclSuccess) {
        fprintf(stderr, "cuda_libraries_test: a library does not say its version\n");
        return 1;
    }
    printf("cuBLAS %d.%d (header %d.%d), NCCL %d (header %d)\n", major, minor, CUBLAS_VER_MAJOR,
           CUBLAS_VER_MINOR, nccl, NCCL_VERSION_CODE);
    return major != CUBLAS_VER_MAJOR || minor != CUBLAS_VER_MINOR || nccl != NCCL_VERSION_CODE;
}
