#pragma once
/* One file of PyTorch's (torch.save of 1.6 and later: a zip archive with a pickle), read only,
 * memory-mapped, made for hostile files: archive, pickle, storages, shapes and strides are checked
 * at open, so that reading afterwards can not fail. Only contiguous tensors; several may share
 * their bytes. Of the older format, TorchScript and big-endian files the error says what to do.
 * Names (a NUL follows each) and data point into the object and live until close. Immutable: any
 * thread. As with every mapped file, replace models by rename. */
#include "common/model/files/tensor.h"

struct torch_file;
MUST_USE enum status torch_file_open(const char *path, struct torch_file **out, struct error *err);
/* bytes are borrowed until close; name is for error texts. */
MUST_USE enum status torch_file_open_memory(const void *bytes, size_t n, const char *name,
                                            struct torch_file **out, struct error *err);
void torch_file_close(struct torch_file *f); /* NULL is fine */
/* The whole file. */
struct str torch_file_bytes(const struct torch_file *f);
/* Tensors of more than TENSOR_MAX_DIMS dimensions are checked like the others and then left out:
 * only torch_file_holds knows them. */
uint64_t torch_file_n_tensors(const struct torch_file *f);
const struct tensor *torch_file_tensor_at(const struct torch_file *f, uint64_t i); /* as they lie */
bool torch_file_holds(const struct torch_file *f, const char *name);
/* The description of the tensors as it is in the file: the pickle, and the archive's directory. */
struct str torch_file_pickle(const struct torch_file *f);
struct str torch_file_directory(const struct torch_file *f);
