#pragma once
/* The tensors of a model, from a GGUF (all of its parts) or from a folder: model.safetensors, or
 * the files that model.safetensors.index.json names; else pytorch_model.bin, or those of its index;
 * else all
 * *.safetensors, *.bin, or *.pt and *.pth. Everything is mapped, nothing is read before it is asked
 * for. Immutable but for weights_done: any thread. */
#include "common/model/files/tensor.h"
#include "common/model/info/info.h"
#include "common/model/weights/kind.h"
#include "common/model/weights/table.h"

struct weights;
/* STATUS_NOT_FOUND names what is missing and where, STATUS_UNSUPPORTED what this build does not
 * read (PyTorch's older format). */
MUST_USE enum status weights_open(const struct model_info *m, struct weights **out,
                                  struct error *err);
/* The others are not looked at. */
MUST_USE enum status weights_open_kind(const struct model_info *m, enum weights_kind kind,
                                       struct weights **out, struct error *err);
void weights_close(struct weights *w); /* NULL is fine */
uint64_t weights_n_tensors(const struct weights *w);
const struct tensor *weights_tensor_at(const struct weights *w, uint64_t i);
uint64_t weights_file_bytes(const struct weights *w); /* of all files */
/* The bytes of data[0..n) were read for the last time: their pages need not stay resident. */
void weights_done(const struct weights *w, const void *data, uint64_t n);
/* The model's identity, for the configuration hash: XXH3-128 over config.json (of a folder), and
 * each file's size, its header (metadata, names, shapes, offsets) and the first, middle and last 4
 * KiB of every tensor; files in the order of their names, which themselves do not count. Reading
 * all of a 140 GB model in each rank would cost minutes; two models that differ only between those
 * pages and in no header are taken for one (docs/develop/decisions/0009-model-hash.md). */
void weights_identity(const struct weights *w, uint8_t out[16]);
