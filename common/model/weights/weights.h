#pragma once
/* Opens the tensors of a model, from a GGUF (all parts) or from a folder. The files of a folder,
 * in order of preference, are: model.safetensors; the files of model.safetensors.index.json;
 * pytorch_model.bin; the files of its index; all files that end in .safetensors, .bin, or .pt
 * and .pth. Everything is mapped, and bytes are read when they are used. The object is immutable
 * except for weights_done, so any thread may use it. */
#include "common/model/files/tensor.h"
#include "common/model/info/info.h"
#include "common/model/weights/kind.h"
#include "common/model/weights/table.h"

struct weights;
/* Opens the weights. Returns STATUS_NOT_FOUND with the missing file and its folder, and
 * STATUS_UNSUPPORTED with the feature that this build does not read (PyTorch's older format). */
MUST_USE enum status weights_open(const struct model_info *m, struct weights **out,
                                  struct error *err);
/* Opens only weight files of this kind. */
MUST_USE enum status weights_open_kind(const struct model_info *m, enum weights_kind kind,
                                       struct weights **out, struct error *err);
void weights_close(struct weights *w); /* w may be NULL */
uint64_t weights_n_tensors(const struct weights *w);
const struct tensor *weights_tensor_at(const struct weights *w, uint64_t i);
uint64_t weights_file_bytes(const struct weights *w); /* returns the total size of all files */
/* Releases the pages of data[0..n) from memory. Call it after the last read of these bytes. */
void weights_done(const struct weights *w, const void *data, uint64_t n);
/* Computes the model's identity for the configuration hash, which is XXH3-128. It covers
 * config.json (of a folder), and each file's size and header (metadata, names, shapes, offsets).
 * It also covers the first, middle and last 4 KiB of every tensor. Files are hashed in the order
 * of their names, but the names are not hashed.
 * It would take minutes to read a 140 GB model completely in each rank. So two models that
 * differ only between those pages count as equal (docs/develop/decisions/0009-model-hash.md). */
void weights_identity(const struct weights *w, uint8_t out[16]);
/* Computes XXH3-128 over the stamp (device, inode, size, times) of each file. Two processes of a
 * host with equal results have opened the same files in the same state, while the identity may be
 * equal for a file that was changed between the pages that it covers. */
void weights_stamp(const struct weights *w, uint8_t out[16]);
