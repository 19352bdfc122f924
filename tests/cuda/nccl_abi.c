/* Checks at compile time that kernels/cuda/comm/nccl_api.h agrees with nccl.h. This file is
 * compiled if nccl.h is installed, and no test has to run. */
#include <nccl.h>

#include "kernels/cuda/comm/nccl_api.h"

_Static_assert(NCCL_UNIQUE_ID_BYTES == NCCL_ID_BYTES, "an id");
_Static_assert(sizeof(ncclUniqueId) == sizeof(struct nccl_id), "an id, passed by value");
#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_UNHANDLED_CUDA_ERROR, ncclUnhandledCudaError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_REMOTE_ERROR, ncclRemoteError);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_INT8, ncclInt8);
SAME(NCCL_FLOAT32, ncclFloat32);
SAME(NCCL_BFLOAT16, ncclBfloat16);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_CONFIG_UNSET, NCCL_CONFIG_UNDEF_INT);
#define FIELD(ours, theirs) SAME(offsetof(struct nccl_config, ours), offsetof(ncclConfig_t, theirs))
FIELD(size, size);
FIELD(magic, magic);
FIELD(version, version);
FIELD(blocking, blocking);
FIELD(cga_cluster_size, cgaClusterSize);
FIELD(min_ctas, minCTAs);
FIELD(max_ctas, maxCTAs);
FIELD(net_name, netName);
FIELD(split_share, splitShare);

/* The static assertions compare the types of the calls' arguments, except enums, which are ints
 * here. */
#define CALL(f, type)                                                                              \
    _Static_assert(__builtin_types_compatible_p(__typeof__(f), type), "a call of other arguments")
CALL(ncclCommInitRankConfig, ncclResult_t(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *));
CALL(ncclCommSplit, ncclResult_t(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *));
CALL(ncclCommGetAsyncError, ncclResult_t(ncclComm_t, ncclResult_t *));
CALL(ncclCommAbort, ncclResult_t(ncclComm_t));
CALL(ncclAllReduce, ncclResult_t(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
                                 ncclComm_t, cudaStream_t));
CALL(ncclBroadcast,
     ncclResult_t(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
CALL(ncclSend, ncclResult_t(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));
CALL(ncclRecv, ncclResult_t(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t));

static const ncclConfig_t config = NCCL_CONFIG_INITIALIZER;

int nccl_abi_holds(void);
int nccl_abi_holds(void)
{
    return config.magic == NCCL_CONFIG_MAGIC;
}
