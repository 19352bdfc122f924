#pragma once
/* The families that this build runs: one table. */
#include "common/base/str.h"

/* NULL: this build does not run it. */
const struct config_family *model_config_family(const char *name);
/* "llama, mistral, ...": the families that this build runs. */
void model_config_families(struct strbuf *out);
