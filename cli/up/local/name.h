#pragma once
/* Chooses the name of a cluster of `cox up`. The name distinguishes several clusters of this
 * machine. */
#include <stdbool.h>

#include "common/base/status.h"

enum { UP_NAME_BYTES = 48 };

/* Chooses the name. `wanted` is --name. With NULL, the name comes from the model's name, with a
 * number at its end when the name is taken. *is_only: no other cluster runs here.
 * STATUS_INVALID: the name is not usable. STATUS_EXISTS: a running cluster has the name. */
MUST_USE enum status up_name_choose(const char *wanted, const char *model, char out[UP_NAME_BYTES],
                                    bool *is_only, struct error *err);
/* Makes a name from a model's name: "Qwen/Qwen2-0.5B" gives qwen2-0.5b. Pure. */
void up_name_of_model(const char *model, char out[UP_NAME_BYTES]);
