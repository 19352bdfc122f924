#pragma once
/* Reads the option --structured-outputs-config, which applies to the grammar of every request.
 * The functions are pure. */
#include <stdbool.h>

#include "common/base/status.h"
#include "gateway/params/params.h"

struct outputs_config {
    bool compact; /* value of the key disable_any_whitespace */
};
/* Reads vLLM's JSON for the option. `json` may be NULL. A key of vLLM that changes nothing here
 * is accepted. Any other unknown key is refused by name. */
MUST_USE enum status outputs_config_read(const char *json, struct outputs_config *out,
                                         struct error *err);

/* Makes a request's JSON schema forbid white space between tokens, unless the schema's own
 * x-guidance says otherwise. Other grammars are unchanged. */
bool outputs_make_compact(struct params *p, struct api_error *e);
