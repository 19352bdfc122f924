#pragma once
/* Reads a body's JSON into `params`, by the table of fields. Pure; any thread. */
#include "gateway/params/params.h"

/* `owned_body` moves into `out`, also on failure. `policy` is borrowed for the call. Returns
 * false with the reason in `e`; call `params_fini` then too. */
bool params_init(struct params *out, enum api_kind kind, json_t *owned_body,
                 const struct params_policy *policy, struct api_error *e);
