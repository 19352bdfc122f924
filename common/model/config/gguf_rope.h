#pragma once
/* The rotary embeddings of a GGUF. Private to common/model/config. */
#include "common/model/config/family_row.h"
#include "common/model/config/gguf_reader.h"

/* rope.n_rot is set before. */
MUST_USE enum status model_config_gguf_ropes(const struct gguf_reader *r,
                                             const struct config_family *f,
                                             struct model_config *out);
