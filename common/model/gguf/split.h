#pragma once
/* Joins a model in several files. Only common/model/gguf includes this header. */
#include "common/base/status.h"

struct gguf;
/* Opens the other parts of a model in several files and adds their tensors to `g`. */
MUST_USE enum status gguf_join(struct gguf *g, struct error *err);
