#pragma once
/* Reads how the weights of a config.json are stored. Only common/model/config includes this
 * header. */
#include "common/model/config/shape.h"
#include "common/model/files/hf_json.h"

/* Reads the member quantization_config. `root` is the whole config.json. */
MUST_USE enum status model_config_quant(const struct hf_config *c, const json_t *root,
                                        struct model_config *out, struct error *err);
