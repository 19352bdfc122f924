#pragma once
/* The name by which people know one of several clusters of `cox up` on this machine. */
#include <stdbool.h>

#include "common/base/status.h"

enum { UP_NAME_BYTES = 48 };

/* wanted: --name; NULL: one made of the model's name, with a number behind it where that is taken.
 * *is_only: no other cluster runs here. STATUS_INVALID: no usable name; STATUS_EXISTS: a cluster
 * that runs has it. */
MUST_USE enum status up_name_choose(const char *wanted, const char *model, char out[UP_NAME_BYTES],
                                    bool *is_only, struct error *err);
/* Pure: "Qwen/Qwen2-0.5B" is qwen2-0.5b. */
void up_name_of_model(const char *model, char out[UP_NAME_BYTES]);
