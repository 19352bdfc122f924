#pragma once
/* What an engine on a GPU is, apart from what options say. */
#include "worker/engine/engine.h"

/* Of a GPU with so much memory. */
void cuda_engine_setup(struct engine_setup *s, uint64_t memory_bytes);
