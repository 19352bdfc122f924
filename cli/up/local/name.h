#pragma once
/* Chooses the name of a cluster of `cox up`. The name distinguishes several clusters of this
 * machine. */
#include <stdbool.h>

#include "common/base/status.h"

enum { UP_NAME_BYTES = 48 };

/* Chooses the name. `wanted` is --name. When `wanted` is NULL, the name is made from the model's
 * name, and ends with a number when that name is taken. *is_only: no other cluster runs on this
 * machine. STATUS_INVALID: the name is not usable. STATUS_EXISTS: a running cluster has the
 * name. */
MUST_USE enum status up_name_choose(const char *wanted, const char *model, char out[UP_NAME_BYTES],
                                    bool *is_only, struct error *err);
/* Makes a name from a model's name: "Qwen/Qwen2-0.5B" gives qwen2-0.5b. The function is pure and
 * may run on any thread. */
void up_name_of_model(const char *model, char out[UP_NAME_BYTES]);
