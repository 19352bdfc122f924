#include "common/model/config/hf_error.h"

enum status model_config_unsupported(const struct hf_config *c, const char *key, const char *value,
                                     const char *runs, struct error *err)
{
    return error_set(err, STATUS_UNSUPPORTED,
                     "%s/config.json: this build does not support %s \"%.64s\"; it supports only "
                     "%s. Use another model",
                     c->folder, key, value, runs);
}
