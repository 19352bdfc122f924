#pragma once
/* A body's JSON to params, by the table of fields. Pure; any thread. */
#include "gateway/params/params.h"

/* owned_body moves into out, also on failure; policy is borrowed for this call. False: e says why,
 * and params_fini is still due. */
bool params_init(struct params *out, enum api_kind kind, json_t *owned_body,
                 const struct params_policy *policy, struct api_error *e);
