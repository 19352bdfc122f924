#pragma once
/* Reads the shape of a model from its files and checks it. The functions may run on any thread. */
#include "common/base/status.h"
#include "common/model/config/shape.h"

/* Reads the configuration of a model. Returns STATUS_UNSUPPORTED, with the name of the feature,
 * when this build cannot run a feature of the model (a rope scaling, an activation, ...). */
MUST_USE enum status model_config_read(const struct model_info *m, struct model_config *out,
                                       struct error *err);

/* Checks heads, head_dim and other sizes against each other. */
MUST_USE enum status model_config_check(const struct model_info *m, const struct model_config *c,
                                        struct error *err);
