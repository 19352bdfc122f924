#pragma once
/* The null worker's token rule (docs/develop/null-worker.md): the token at position p is a hash of
 * the request's key and of all ids before p. Shared by the null executor and by every test that has
 * to know what a stream must be. The state is a plain value: copy it to branch. Pure. */
#include <stdint.h>

struct null_hash {
    uint64_t h;
};

/* temperature 0: the key folds in as zeros. */
void null_hash_init(struct null_hash *s, uint64_t seed, uint32_t i_prompt, uint32_t i_choice,
                    float temperature);
/* The id at the next position. */
void null_hash_push(struct null_hash *s, uint32_t id);
/* The token at the position after all ids pushed so far. */
uint32_t null_hash_token(const struct null_hash *s, uint32_t vocab_size);
