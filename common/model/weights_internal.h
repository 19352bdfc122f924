#pragma once
/* Private to common/model: the object behind weights.h, and how the safetensors of a folder are
 * found and opened (weights_folder.c). */
#include "common/model/safetensors.h"
#include "common/model/weights.h"

struct shard {
    char *name; /* in the folder */
    struct safetensors *file;
};

struct weights {
    char *path;
    struct gguf *gguf;    /* or */
    struct shard *shards; /* by name */
    uint64_t n_shards;
    struct tensor *tensors;
    uint64_t n_tensors, n_file_bytes;
    const struct tensor **by_name;
    uint8_t config_digest[16]; /* XXH3-128 of config.json */
};

/* Room for n tensors. */
MUST_USE enum status weights_reserve(struct weights *w, uint64_t n, struct error *err);
/* Fills shards, tensors, n_file_bytes and config_digest. */
MUST_USE enum status weights_open_folder(struct weights *w, struct error *err);
