#pragma once
/* Declares the part of libnccl's ABI that is used. The library is loaded at run time, and builds
 * without NVIDIA's toolchain use a stand-in (tests/fakenccl). tests/cuda checks this header
 * against nccl.h if that is installed. Names are NCCL's without the prefix. Result codes and
 * values are stable within 2.x. */
#include <stddef.h>
#include <stdint.h>

#define NCCL_ID_BYTES 128

struct nccl_native; /* NCCL's own struct of a communicator */
struct nccl_id {
    char internal[NCCL_ID_BYTES];
};
enum nccl_result {
    NCCL_SUCCESS = 0,
    NCCL_UNHANDLED_CUDA_ERROR = 1,
    NCCL_INVALID_ARGUMENT = 4,
    NCCL_INVALID_USAGE = 5,
    NCCL_REMOTE_ERROR = 6,
    NCCL_IN_PROGRESS = 7
};
enum nccl_type { NCCL_INT8 = 0, NCCL_FLOAT32 = 7, NCCL_BFLOAT16 = 9 };
enum nccl_op { NCCL_SUM = 0 };

/* The struct has the layout of 2.18. A later library reads `size` and `version` and uses its
 * defaults for the rest. */
#define NCCL_CONFIG_MAGIC   0xcafebeefu
#define NCCL_CONFIG_VERSION 21800u
#define NCCL_CONFIG_UNSET   INT32_MIN
struct nccl_config {
    size_t size;
    unsigned magic, version;
    int blocking, cga_cluster_size, min_ctas, max_ctas;
    const char *net_name;
    int split_share;
};

struct nccl_api {
    int (*get_version)(int *version);
    int (*get_unique_id)(struct nccl_id *id);
    const char *(*get_error_string)(int result);
    const char *(*get_last_error)(struct nccl_native *comm);
    int (*comm_init_rank_config)(struct nccl_native **comm, int n_ranks, struct nccl_id id,
                                 int rank, struct nccl_config *config);
    int (*comm_split)(struct nccl_native *comm, int color, int key, struct nccl_native **out,
                      struct nccl_config *config);
    int (*comm_get_async_error)(struct nccl_native *comm, int *result);
    int (*comm_abort)(struct nccl_native *comm);
    int (*group_start)(void);
    int (*group_end)(void);
    /* `stream` is a cudaStream_t. */
    int (*all_reduce)(const void *from, void *to, size_t n, int type, int op,
                      struct nccl_native *comm, void *stream);
    int (*broadcast)(const void *from, void *to, size_t n, int type, int root,
                     struct nccl_native *comm, void *stream);
    int (*send)(const void *from, size_t n, int type, int peer, struct nccl_native *comm,
                void *stream);
    int (*recv)(void *to, size_t n, int type, int peer, struct nccl_native *comm, void *stream);
};
