#pragma once
/* Reads model_config from config.json. The caller has set family, format and vocab_size, and
 * checks the result. Only common/model/config includes this header. */
#include "common/model/config/family_row.h"
#include "common/model/files/hf_json.h"

MUST_USE enum status model_config_from_json(const struct model_info *m, const json_t *root,
                                            const struct config_family *f, struct model_config *out,
                                            struct error *err);
