#pragma once
/* model_config from a GGUF's metadata. family, format and vocab_size are set before; what it
 * leaves is checked after it. Private to common/model/config. */
#include "common/model/config/family_row.h"

struct gguf;
MUST_USE enum status model_config_from_gguf(const struct model_info *m, const struct gguf *g,
                                            const struct config_family *f, struct model_config *out,
                                            struct error *err);
