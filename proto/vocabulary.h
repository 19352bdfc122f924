#pragma once
/* Reduces a vocabulary to 256 bytes, to tell a gateway of another model from a gateway of the
 * workers' model. The model's files may differ (GGUF beside safetensors, another quantisation, a
 * few added tokens). The ordinary tokens, each id with its bytes, may not.
 *
 * The sketch is a one-permutation min-wise hash (Broder, "On the resemblance and containment of
 * documents", 1997; Li, Owen and Zhang, "One permutation hashing", NIPS 2012) of the set of (id,
 * bytes). The low 16 bits of each minimum are kept (Li and König, "b-bit minwise hashing", WWW
 * 2010). The share of equal places estimates |A ∩ B| / |A ∪ B| of the two sets. The functions do
 * no I/O and may run on any thread. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define VOCABULARY_PLACES 128u
#define VOCABULARY_BYTES  (2 * VOCABULARY_PLACES)

/* Holds the sketch as it is sent: two bytes a place, little-endian. 0 = no token was hashed to
 * this place. */
struct vocabulary {
    uint32_t n_tokens; /* number of ids, with special and added tokens; for humans */
    uint8_t sketch[VOCABULARY_BYTES];
};

struct vocabulary_sketcher {
    uint64_t least[VOCABULARY_PLACES];
};
void vocabulary_begin(struct vocabulary_sketcher *k);
/* Adds an ordinary token, in any order. Special tokens are left out, because the forms of one
 * model's files name different ones. */
void vocabulary_add(struct vocabulary_sketcher *k, uint32_t id, const uint8_t *ptr, size_t len);
void vocabulary_end(const struct vocabulary_sketcher *k, uint32_t n_tokens, struct vocabulary *out);

/* Returns false when more than an eighth of the places that hold a token in either sketch
 * differ. Two sketches without an ordinary token are the same. */
bool vocabulary_is_same(const struct vocabulary *a, const struct vocabulary *b);
