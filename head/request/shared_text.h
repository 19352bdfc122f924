#pragma once
/* Keeps texts that requests share, each stored once: the grammars of the choices of one request,
 * and of requests with the same schema. A text is found by content and freed with its last
 * reference. One thread owns the texts. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

/* SHARED_TEXTS_BYTES limits all texts together to twice a rank's limit for grammars
 * (PROTO_MAX_GRAMMARS_BYTES). Any tenant may use the first half. In the other half each tenant
 * has a limit, so that no tenant can use all memory. */
#define SHARED_TEXTS_BYTES        (128u << 20)
#define SHARED_TEXTS_TENANT_BYTES (SHARED_TEXTS_BYTES / 8)

enum { SHARED_TEXT_BUCKETS = 1024, SHARED_TEXT_TENANTS = 256 };

struct shared_text;
struct shared_text_tenant;

/* Holds the key that other modules use for a text. The key is stored with the text, since
 * computing it reads all bytes. */
struct shared_text_key {
    bool known;
    uint32_t kind; /* equal texts of different kinds have different keys */
    uint64_t hi, lo;
};

struct shared_texts {
    struct shared_text *buckets[SHARED_TEXT_BUCKETS];
    struct shared_text_tenant *tenants[SHARED_TEXT_TENANTS]; /* tenants that have added texts */
    uint64_t seed;    /* random hash seed, so that no client can make texts collide */
    uint64_t n_bytes; /* bytes of all texts */
};

void shared_texts_init(struct shared_texts *t);
/* Returns a reference to the stored text. A new text is copied and counts for `tenant`. Returns
 * STATUS_LIMIT when the limit of all texts or of the tenant is reached. `must` ignores the
 * limit. */
MUST_USE enum status shared_text_take(struct shared_texts *t, uint64_t tenant, struct str bytes,
                                      bool must, struct shared_text **out, struct error *err);
/* Drops a reference. The last reference frees the text. NULL is allowed. */
void shared_text_release(struct shared_text *x);
struct str shared_text_str(const struct shared_text *x);
/* Returns the text's stored key; `known` is false until a caller has set it. */
struct shared_text_key *shared_text_key(struct shared_text *x);
