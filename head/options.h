#pragma once
/* Checks the rules for cox-head's options that the option table cannot express. */
#include "common/options/head.h"

/* Checks rules between options. Examples: keys or --insecure must be given; an admin API that is
 * not on loopback needs an admin key. */
MUST_USE enum status head_options_check(const struct head_options *o, struct error *err);
