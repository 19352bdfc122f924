#pragma once
/* GET /api/debug: the inside of the head as JSON, for who looks into a fault. Loop thread. */
#include <jansson.h>

struct head_core;

json_t *admin_json_debug(const struct head_core *h); /* the caller decrefs it */
