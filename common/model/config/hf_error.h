#pragma once
/* Sets the error for a setting of config.json that this build does not run. Only
 * common/model/config includes this header. */
#include "common/base/status.h"
#include "common/model/files/hf_json.h"

MUST_USE enum status model_config_unsupported(const struct hf_config *c, const char *key,
                                              const char *value, const char *runs,
                                              struct error *err);
