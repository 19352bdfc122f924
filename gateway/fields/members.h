#pragma once
#include "gateway/fields/field.h"

/* Whether the members of what the body's lists hold, messages, tools and items and what is in
 * them, are known to this kind's readers; others are as above. */
bool fields_check_members(struct params *p, const struct params_policy *policy,
                          struct api_error *e);
