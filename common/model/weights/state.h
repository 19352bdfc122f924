#pragma once
/* Defines the struct that weights.h declares. Only common/model/weights includes this header. */
#include "common/model/weights/shard.h"

struct weights {
    char *path;
    struct gguf *gguf;    /* opened GGUF; only one of `gguf` and `shards` is set */
    struct shard *shards; /* files of the folder, sorted by name */
    uint64_t n_shards;
    struct tensor *tensors;
    uint64_t n_tensors, n_file_bytes;
    const struct tensor **by_name;
    uint8_t config_digest[16]; /* XXH3-128 of config.json */
};
