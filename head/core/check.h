#pragma once
/* Checks, for tests, every invariant that spans modules. */
#include "common/base/status.h"

struct head_core;

bool head_core_check(const struct head_core *h, struct error *err);
