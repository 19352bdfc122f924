#pragma once
/* The keys of a GGUF's metadata that begin with its architecture. Any thread. */
#include "common/base/str.h"

/* "<arch>.<name>", the key of a GGUF's metadata. */
struct model_arch_key {
    char text[128];
};
struct gguf;
struct model_arch_key model_arch_key(struct str arch, const char *name);
/* gguf_get_u64 of such a key. */
MUST_USE enum status model_arch_u64(const struct gguf *g, struct str arch, const char *name,
                                    uint64_t min, uint64_t max, uint64_t *out, struct error *err);
/* A count of 0 is none, as converters write it for dense models; one that is no number is looked
 * at, and refused, by who reads it. */
bool model_arch_has_experts(const struct gguf *g, struct str arch);
