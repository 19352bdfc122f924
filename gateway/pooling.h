#pragma once
/* How a model makes a vector of a prompt. */
#include "proto/messages.h"

/* As 1_Pooling/config.json in the model's folder says (sentence-transformers); without that file
 * the last token's, as in vLLM. NONE: the file asks for something else, or cannot be read. */
enum pooling_kind pooling_of_model(const char *path);
