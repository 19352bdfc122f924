#pragma once
/* Private to common/model: the object behind weights.h, how the files of a folder are found
 * (weights_folder.c), and one of them, of whatever kind (weights_shard.c). */
#include "common/model/weights/weights.h"

enum shard_kind { SHARD_SAFETENSORS, SHARD_TORCH };

struct shard {
    char *name; /* in the folder */
    enum shard_kind kind;
    union { /* NULL: not open */
        struct safetensors *safetensors;
        struct torch_file *torch;
    };
};

MUST_USE enum status shard_open(struct shard *s, const char *path, struct error *err);
void shard_close(struct shard *s); /* one that is not open is fine */
uint64_t shard_n_tensors(const struct shard *s);
const struct tensor *shard_tensor_at(const struct shard *s, uint64_t i); /* i < shard_n_tensors */
bool shard_holds(const struct shard *s, const char *name);
struct str shard_bytes(const struct shard *s); /* the whole file */
/* Part i of what describes its tensors, of SHARD_HEADERS; one may be empty. */
#define SHARD_HEADERS 2
struct str shard_header(const struct shard *s, int i);

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
MUST_USE enum status weights_open_folder(struct weights *w, enum weights_kind kind,
                                         struct error *err);
