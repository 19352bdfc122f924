#include "common/model/weights/shard.h"

#include "common/base/mem.h"
#include "common/model/files/safetensors.h"
#include "common/model/files/torch_file.h"

enum status shard_open(struct shard *s, const char *path, struct error *err)
{
    return s->kind == SHARD_TORCH ? torch_file_open(path, &s->torch, err)
                                  : safetensors_open(path, &s->safetensors, err);
}

void shard_close(struct shard *s)
{
    if (s->kind == SHARD_TORCH)
        torch_file_close(s->torch);
    else
        safetensors_close(s->safetensors);
    mem_free(s->name);
    *s = (struct shard){0};
}

uint64_t shard_n_tensors(const struct shard *s)
{
    return s->kind == SHARD_TORCH ? torch_file_n_tensors(s->torch)
                                  : safetensors_n_tensors(s->safetensors);
}

const struct tensor *shard_tensor_at(const struct shard *s, uint64_t i)
{
    return s->kind == SHARD_TORCH ? torch_file_tensor_at(s->torch, i)
                                  : safetensors_tensor_at(s->safetensors, i);
}

bool shard_holds(const struct shard *s, const char *name)
{
    return s->kind == SHARD_TORCH ? torch_file_holds(s->torch, name)
                                  : safetensors_holds(s->safetensors, name);
}

struct str shard_bytes(const struct shard *s)
{
    if (s->kind == SHARD_TORCH)
        return torch_file_bytes(s->torch);
    return (struct str){safetensors_header(s->safetensors).ptr,
                        safetensors_file_bytes(s->safetensors)};
}

struct file_stamp shard_stamp(const struct shard *s)
{
    return s->kind == SHARD_TORCH ? torch_file_stamp(s->torch) : safetensors_stamp(s->safetensors);
}

struct str shard_header(const struct shard *s, int i)
{
    if (s->kind == SHARD_TORCH)
        return i == 0 ? torch_file_directory(s->torch) : torch_file_pickle(s->torch);
    return i == 0 ? safetensors_header(s->safetensors) : (struct str){0};
}
