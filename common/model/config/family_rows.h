#pragma once
/* Lists the model families that this build runs. */
#include "common/base/str.h"

/* Finds a family by its name. Returns NULL when this build does not run the family. */
const struct config_family *model_config_family(const char *name);
/* Appends the names of all families as "llama, mistral, ...". */
void model_config_families(struct strbuf *out);
