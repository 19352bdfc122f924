#pragma once
/* Checks of cox-head's options that the option table cannot express. */
#include "common/options/head.h"

/* Checks rules between options, such as: keys or --insecure; an admin key when the admin API is
 * not on loopback. */
MUST_USE enum status head_options_check(const struct head_options *o, struct error *err);
