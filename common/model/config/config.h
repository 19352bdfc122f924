#pragma once
/* The shape of a model, read from its files and checked. Any thread. */
#include "common/base/status.h"
#include "common/model/config/shape.h"

/* STATUS_UNSUPPORTED names what this build does not run (a rope scaling, an activation, ...). */
MUST_USE enum status model_config_read(const struct model_info *m, struct model_config *out,
                                       struct error *err);

/* Heads, head_dim and the like against each other. */
MUST_USE enum status model_config_check(const struct model_info *m, const struct model_config *c,
                                        struct error *err);
