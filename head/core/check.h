#pragma once
/* Checks every invariant that spans modules. For tests. */
#include "common/base/status.h"

struct head_core;

bool head_core_check(const struct head_core *h, struct error *err);
