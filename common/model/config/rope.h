#pragma once
/* Reads the rotary embeddings of a config.json. Only common/model/config includes this header. */
#include "common/model/config/family_row.h"
#include "common/model/files/hf_json.h"

/* Reads the rotary embeddings of all layers and of window layers. `max_len` is the model's
 * length. */
MUST_USE enum status model_config_ropes(const struct hf_config *c, const struct config_family *f,
                                        uint32_t max_len, struct model_config *out,
                                        struct error *err);
