/* Tests that cuBLASLt and NCCL load as a worker loads them (find_library.h), with the major
 * versions that this program was compiled for. A host may have another minor version than the
 * build had. Within a major version both libraries keep their interface, so the rest is only
 * printed. The test needs no device. */
#include <cublasLt.h>
#include <dlfcn.h>
#include <nccl.h>
#include <stdbool.h>
#include <stdio.h>

#include "kernels/cuda/device/find_library.h"

#define TEXT(x)    #x
#define EXPAND(x)  TEXT(x)
#define CUBLAS_LIB "libcublasLt.so." EXPAND(CUBLAS_VER_MAJOR)
#define NCCL_LIB   "libnccl.so.2"

static void *find(const char *library, const char *symbol)
{
    void *handle = NULL;
    struct error err = {0};
    const bool is_loaded = gpu_find_library(library, &handle, &err) == STATUS_OK;
    void *found = is_loaded ? dlsym(handle, symbol) : NULL;
    if (!found)
        fprintf(stderr, "FAILED %s: %s\n", library, is_loaded ? dlerror() : err.text);
    return found;
}

/* Both libraries encode a version as 10000 * major + the rest. */
static bool same_major(const char *library, size_t version, size_t header)
{
    const bool same = version / 10000 == header / 10000;
    printf("%s %zu, compiled for %zu%s\n", library, version, header,
           !same               ? ": FAILED: another major version"
           : version == header ? ""
                               : ": same major");
    return same;
}

int nccl_abi_holds(void); /* defined in nccl_abi.c */

int main(void)
{
    size_t (*cublas_version)(void) = (size_t(*)(void))find(CUBLAS_LIB, "cublasLtGetVersion");
    ncclResult_t (*nccl_version)(int *) = (ncclResult_t(*)(int *))find(NCCL_LIB, "ncclGetVersion");
    int nccl = 0;
    if (!cublas_version || !nccl_version || nccl_version(&nccl) != ncclSuccess)
        return 1;
    const size_t cublas = cublas_version();
    bool ok = same_major("cuBLASLt", cublas, CUBLAS_VERSION);
    ok = same_major("NCCL", (size_t)nccl, NCCL_VERSION_CODE) && ok;
    return nccl_abi_holds() && ok ? 0 : 1;
}
