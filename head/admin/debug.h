#pragma once
/* Answers GET /api/debug with the internal state of the head as JSON, for debugging. The code
 * runs on the loop thread. */
#include <jansson.h>

struct head_core;

json_t *admin_json_debug(const struct head_core *h); /* the caller owns the result */
