#pragma once
/* Reads experts and latent attention of a config.json, for the families that have them. Only
 * common/model/config includes this header. */
#include "common/model/config/shape.h"
#include "common/model/files/hf_json.h"

MUST_USE enum status model_config_mixtral(const struct hf_config *c, struct model_config *out,
                                          struct error *err);
MUST_USE enum status model_config_qwen2_moe(const struct hf_config *c, struct model_config *out,
                                            struct error *err);
MUST_USE enum status model_config_qwen3_moe(const struct hf_config *c, struct model_config *out,
                                            struct error *err);
MUST_USE enum status model_config_gpt_oss(const struct hf_config *c, struct model_config *out,
                                          struct error *err);
MUST_USE enum status model_config_deepseek(const struct hf_config *c, struct model_config *out,
                                           struct error *err);
