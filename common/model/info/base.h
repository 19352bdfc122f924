#pragma once
/* Private to common/model: the two readers behind model_info_open. They fill family, the lengths
 * and the EOS ids; the caller has set format, path and name, and frees on failure. */
#include "common/model/info/family.h"
#include "common/model/info/info.h"

#define MODEL_MAX_LEN   (1u << 27)
#define MODEL_MAX_VOCAB (1u << 24)

MUST_USE enum status model_info_read_gguf(struct model_info *m, struct error *err);
MUST_USE enum status model_info_read_hf(struct model_info *m, struct error *err);

/* Adds an id once; INVALID when it is no id of the vocabulary or there are too many. */
MUST_USE enum status model_info_add_eos(struct model_info *m, uint64_t id, struct error *err);
/* "architecture x is not supported; supported: ..." */
enum status model_info_unknown(const struct model_info *m, struct str arch, struct error *err);

/* "<arch>.<name>", the key of a GGUF's metadata. */
struct model_arch_key {
    char text[128];
};
struct gguf;
struct model_arch_key model_arch_key(struct str arch, const char *name);
/* A count of 0 is none, as converters write it for dense models; one that is no number is looked
 * at, and refused, by who reads it. */
bool model_arch_has_experts(const struct gguf *g, struct str arch);
