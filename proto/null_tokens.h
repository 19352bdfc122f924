#pragma once
/* Computes tokens by the null worker's rule (docs/develop/null-worker.md): the token at position
 * p is a hash of the request's key and of all ids before p. The null executor uses the rule, and
 * so does every test that must know a stream in advance. The state is a plain value, which a
 * caller may copy to compute two continuations. The code does no I/O. */
#include <stdint.h>

struct null_hash {
    uint64_t h;
};

/* Starts a hash. At temperature 0 the key is hashed as zeros. */
void null_hash_init(struct null_hash *s, uint64_t seed, uint32_t i_prompt, uint32_t i_choice,
                    float temperature);
/* Adds the id at the next position to the hash. */
void null_hash_push(struct null_hash *s, uint32_t id);
/* Returns the token at the position after all ids pushed so far. */
uint32_t null_hash_token(const struct null_hash *s, uint32_t vocab_size);
