#pragma once
/* Reads keys of a GGUF's metadata that begin with its architecture. The functions may run on any
 * thread. */
#include "common/base/str.h"

/* `model_arch_key` holds the text "<arch>.<name>", a key of a GGUF's metadata. */
struct model_arch_key {
    char text[128];
};
struct gguf;
struct model_arch_key model_arch_key(struct str arch, const char *name);
/* Calls gguf_get_u64 with the key "<arch>.<name>". */
MUST_USE enum status model_arch_u64(const struct gguf *g, struct str arch, const char *name,
                                    uint64_t min, uint64_t max, uint64_t *out, struct error *err);
/* Returns true when the model has experts. A count of 0 means no experts; converters write it
 * for dense models. For a count that is not a number the function returns true, so that the
 * reader of experts checks and refuses the value. */
bool model_arch_has_experts(const struct gguf *g, struct str arch);
