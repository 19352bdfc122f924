#pragma once
#include "gateway/fields/field.h"

/* Checks that the members of objects in the body's lists (messages, tools, items) are known to
 * readers of this kind. Unknown members are refused or ignored by the policy. Returns false with
 * an error in `e`. */
bool fields_check_members(struct params *p, const struct params_policy *policy,
                          struct api_error *e);
