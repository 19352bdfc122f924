#pragma once
/* Reads a GGUF's experts and latent attention, for the families that have them. Only
 * common/model/config includes this header. */
#include "common/model/config/gguf_reader.h"
#include "common/model/config/shape.h"

MUST_USE enum status model_config_gguf_mixtral(const struct gguf_reader *r,
                                               struct model_config *out);
MUST_USE enum status model_config_gguf_qwen2_moe(const struct gguf_reader *r,
                                                 struct model_config *out);
MUST_USE enum status model_config_gguf_qwen3_moe(const struct gguf_reader *r,
                                                 struct model_config *out);
MUST_USE enum status model_config_gguf_gpt_oss(const struct gguf_reader *r,
                                               struct model_config *out);
MUST_USE enum status model_config_gguf_deepseek(const struct gguf_reader *r,
                                                struct model_config *out);
