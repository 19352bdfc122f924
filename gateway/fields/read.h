#pragma once
/* Reads a body's JSON into `params`, by the table of fields. The function is pure, and usable on
 * any thread. */
#include "gateway/params/params.h"

/* Reads the body. `owned_body` moves into `out`, also on failure. `policy` is borrowed for the
 * call. Returns false with the reason in `e`. The caller must call `params_fini` also after a
 * failure. */
bool params_init(struct params *out, enum api_kind kind, json_t *owned_body,
                 const struct params_policy *policy, struct api_error *e);
