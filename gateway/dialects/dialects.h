#pragma once
/* Lists the dialects that routes and batches choose from. DJL's dialects, for SageMaker, are in
 * sagemaker/djl.h. */
#include "gateway/prepare/dialect.h"

extern const struct dialect dialect_completions, dialect_chat, dialect_responses, dialect_messages;
extern const struct dialect dialect_count_tokens, dialect_embeddings, dialect_tokenize,
    dialect_detokenize;
