#pragma once
/* The conditions that cox-head's option table cannot say. */
#include "common/options/head.h"

/* Checks what the table cannot say: keys or --insecure, an admin key for an admin API that others
 * reach.
 */
MUST_USE enum status head_options_check(const struct head_options *o, struct error *err);
