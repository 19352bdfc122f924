#pragma once
/* The flag --structured-outputs-config, which speaks of every request's shape. Pure. */
#include <stdbool.h>

#include "common/base/status.h"
#include "gateway/params/params.h"

struct outputs_config {
    bool compact; /* disable_any_whitespace */
};
/* vLLM's JSON; NULL: nothing is said. A key that vLLM has, and that changes nothing here, is taken;
 * any other one is refused by name. */
MUST_USE enum status outputs_config_read(const char *json, struct outputs_config *out,
                                         struct error *err);

/* A request's JSON schema, if its grammar is one, leaves no white space between tokens, unless its
 * own x-guidance says otherwise. */
bool outputs_make_compact(struct params *p, struct api_error *e);
