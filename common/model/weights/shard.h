#pragma once
/* Opens one file of a folder's weights, safetensors or PyTorch. Only common/model/weights
 * includes this header. */
#include "common/base/status.h"
#include "common/model/files/map.h"
#include "common/model/files/tensor.h"

enum shard_kind { SHARD_SAFETENSORS, SHARD_TORCH };

struct shard {
    char *name; /* name of the file within the folder */
    enum shard_kind kind;
    union { /* opened file; NULL = not open */
        struct safetensors *safetensors;
        struct torch_file *torch;
    };
};

MUST_USE enum status shard_open(struct shard *s, const char *path, struct error *err);
void shard_close(struct shard *s); /* the shard may be closed already */
uint64_t shard_n_tensors(const struct shard *s);
/* Returns tensor i, which must be below shard_n_tensors. */
const struct tensor *shard_tensor_at(const struct shard *s, uint64_t i);
bool shard_holds(const struct shard *s, const char *name);
struct str shard_bytes(const struct shard *s); /* returns the whole file */
struct file_stamp shard_stamp(const struct shard *s);
/* Returns part i (below SHARD_HEADERS) of the bytes that describe the file's tensors. A part may
 * be empty. */
#define SHARD_HEADERS 2
struct str shard_header(const struct shard *s, int i);
