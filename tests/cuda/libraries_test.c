/* cuBLASLt and NCCL load as the worker loads them (dlopen, by name), and are of the version of
 * their headers. Needs no device: what neither can say without one is not asked. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdio.h>

#define TEXT(x)    #x
#define EXPAND(x)  TEXT(x)
#define CUBLAS_LIB "libcublasLt.so." EXPAND(CUBLAS_VER_MAJOR)
#define NCCL_LIB   "libnccl.so.2"

static void *find(const char *library, const char *symbol)
{
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL); /* for as long as the program runs */
    void *found = handle ? dlsym(handle, symbol) : NULL;
    if (!found)
        fprintf(stderr, "FAILED %s: %s\n", library, dlerror());
    return found;
}

int nccl_abi_holds(void); /* nccl_abi.c */

int main(void)
{
    size_t (*cublas_version)(void) = (size_t(*)(void))find(CUBLAS_LIB, "cublasLtGetVersion");
    ncclResult_t (*nccl_version)(int *) = (ncclResult_t(*)(int *))find(NCCL_LIB, "ncclGetVersion");
    int nccl = 0;
    if (!cublas_version || !nccl_version || nccl_version(&nccl) != ncclSuccess)
        return 1;
    const size_t cublas = cublas_version();
    printf("cuBLASLt %zu (header %d), NCCL %d (header %d)\n", cublas, CUBLAS_VERSION, nccl,
           NCCL_VERSION_CODE);
    return !nccl_abi_holds() || cublas != CUBLAS_VERSION || nccl != NCCL_VERSION_CODE;
}
