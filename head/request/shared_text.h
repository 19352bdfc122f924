#pragma once
/* Texts that requests have alike, each kept once: the grammars of the choices of one request, and
 * of requests that use the same schema. Found by content, counted by who holds them. One thread. */
#include <stdbool.h>
#include <stdint.h>

#include "common/base/status.h"
#include "common/base/str.h"

/* All texts together: twice what a rank keeps of grammars (PROTO_MAX_GRAMMARS_BYTES). Half of that
 * is anybody's; of the rest no tenant has more than its part, so that one cannot take all. */
#define SHARED_TEXTS_BYTES        (128u << 20)
#define SHARED_TEXTS_TENANT_BYTES (SHARED_TEXTS_BYTES / 8)

enum { SHARED_TEXT_BUCKETS = 1024, SHARED_TEXT_TENANTS = 256 };

struct shared_text;
struct shared_text_tenant;

/* The holders know a text by this key. It is kept with the text, as making it reads all bytes. */
struct shared_text_key {
    bool known;
    uint32_t kind; /* the same text of another kind has another one */
    uint64_t hi, lo;
};

struct shared_texts {
    struct shared_text *buckets[SHARED_TEXT_BUCKETS];
    struct shared_text_tenant *tenants[SHARED_TEXT_TENANTS]; /* who has brought some */
    uint64_t seed;    /* of the hash: drawn, so that nobody makes all texts meet in one bucket */
    uint64_t n_bytes; /* of all texts */
};

void shared_texts_init(struct shared_texts *t);
/* A reference to the text, which is copied if it is not there; it then counts as tenant's.
 * STATUS_LIMIT: there is no room for it, which is not asked for what must be taken. */
MUST_USE enum status shared_text_take(struct shared_texts *t, uint64_t tenant, struct str bytes,
                                      bool must, struct shared_text **out, struct error *err);
/* The last one frees it. NULL is fine. */
void shared_text_release(struct shared_text *x);
struct str shared_text_str(const struct shared_text *x);
/* The key that was stored last; unknown at first. */
struct shared_text_key *shared_text_key(struct shared_text *x);
