#pragma once
/* How a model in several files becomes one. Private to common/model/files. */
#include "common/base/status.h"

struct gguf;
/* Opens the other parts of a model in several files and takes their tensors in. */
MUST_USE enum status gguf_join(struct gguf *g, struct error *err);
