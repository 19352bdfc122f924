#pragma once
/* Reads model_config from a GGUF's metadata. The caller has set family, format and vocab_size,
 * and checks the result. Only common/model/config includes this header. */
#include "common/model/config/family_row.h"

struct gguf;
MUST_USE enum status model_config_from_gguf(const struct model_info *m, const struct gguf *g,
                                            const struct config_family *f, struct model_config *out,
                                            struct error *err);
