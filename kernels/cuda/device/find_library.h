#pragma once
/* Declares the search for cuBLASLt and NCCL in the places where a worker may find them. Packages
 * of Coxswain have copies in lib/coxswain. NVIDIA ships both libraries in three ways: as packages
 * of a distribution, in a toolkit (/usr/local/cuda), and as wheels. Wheels put them beside Python's
 * modules, where the dynamic linker does not search. */
#ifdef __cplusplus
extern "C" {
#endif
#include "common/base/status.h"

/* Loads the library `name` ("libcublasLt.so.13", without a path) and puts dlopen's handle into
 * *handle. These places are tried in order, and the first library that loads is used:
 *   1. the dynamic linker's search path: LD_LIBRARY_PATH, the program's RUNPATH, the system;
 *   2. ../lib/coxswain beside the program's own folder, for Coxswain's packages, and then
 *      ../lib/python3.N/{site,dist}-packages/nvidia/{cu13,cublas,nccl}/lib, for the wheel
 *      coxswain-llm[cuda], also when its environment is not active;
 *   3. the same folders of Python beside each absolute folder of PATH, which finds an active
 * virtual environment, conda, and the system's Python;
 *   4. /usr/local/cuda/lib64 and /usr/local/cuda/targets/<machine>/lib.
 * The caller closes the handle. This function may be called from any thread.
 * Returns STATUS_UNSUPPORTED when no place has the library; the error text is the dynamic
 * linker's, for place 1. */
MUST_USE enum status gpu_find_library(const char *name, void **handle, struct error *err);

#ifdef __cplusplus
}
#endif
