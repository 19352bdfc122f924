#pragma once
/* Reads one PyTorch file (torch.save of 1.6 and later: a zip archive with a pickle),
 * memory-mapped and read-only, safe for untrusted files. Archive, pickle, storages, shapes and
 * strides are checked at open, so that reading afterwards cannot fail. Only contiguous tensors
 * are accepted. Several may share their bytes. For the older format, TorchScript and big-endian
 * files the error says what to do.
 * Names (followed by a NUL) and data point into the object and live until close. The object is
 * immutable, so any thread may use it. As with every mapped file, replace models by rename. */
#include "common/model/files/map.h"
#include "common/model/files/tensor.h"

struct torch_file;
MUST_USE enum status torch_file_open(const char *path, struct torch_file **out, struct error *err);
/* Opens a PyTorch file in memory. `bytes` is borrowed until close. `name` is for error texts. */
MUST_USE enum status torch_file_open_memory(const void *bytes, size_t n, const char *name,
                                            struct torch_file **out, struct error *err);
void torch_file_close(struct torch_file *f); /* f may be NULL */
/* Returns the bytes of the whole file. */
struct str torch_file_bytes(const struct torch_file *f);
struct file_stamp torch_file_stamp(const struct torch_file *f);
/* Returns the number of tensors. Tensors of more than TENSOR_MAX_DIMS dimensions are checked but
 * left out. Only torch_file_holds finds them. */
uint64_t torch_file_n_tensors(const struct torch_file *f);
/* Returns a tensor by its index. Tensors are sorted by position in the file. */
const struct tensor *torch_file_tensor_at(const struct torch_file *f, uint64_t i);
bool torch_file_holds(const struct torch_file *f, const char *name);
/* These functions return the bytes of the file that describe the tensors: the pickle, and the
 * archive's directory. */
struct str torch_file_pickle(const struct torch_file *f);
struct str torch_file_directory(const struct torch_file *f);
