#pragma once
/* Reads the rotary embeddings of a GGUF. Only common/model/config includes this header. */
#include "common/model/config/family_row.h"
#include "common/model/config/gguf_reader.h"

/* Reads the rotary embeddings into `out`. The caller has set rope.n_rot. */
MUST_USE enum status model_config_gguf_ropes(const struct gguf_reader *r,
                                             const struct config_family *f,
                                             struct model_config *out);
