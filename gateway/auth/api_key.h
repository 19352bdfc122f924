#pragma once
/* `api_key` holds an API key's tenant, its limits, and the use counted against the limits. The
 * table of keys (auth.h), each open request and each requested lease hold references to a key.
 * The key is freed when its last reference is dropped. limits.h counts the use, and leases.h
 * shares the counts with other gateways. Only the loop thread calls these functions. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum quota { QUOTA_REQUESTS, QUOTA_TOKENS, QUOTA_COUNT };

struct quota_terms {
    /* refill per second and capacity of one bucket, for all gateways together */
    double per_s, size;
};

/* `quota_lease` describes the lease of one bucket, beside the bucket's level. A positive level
 * is leased and not spent. A negative level is owed to the store. */
struct quota_lease {
    struct quota_terms terms; /* terms of this lease; a lease with other terms starts again */
    double demand;            /* units spent or refused since the last request to the store */
    double want;              /* units that the last request asked the store for */
    double left;              /* units left in the store after its last answer */
    uint64_t known_until_ns, ask_after_ns, used_ns;
    /* expected time at which the store's bucket is no longer empty, from the last answer */
    uint64_t empty_until_ns;
    uint32_t epoch; /* `sharing->epoch` when the lease began */
    bool asking, empty;
};

#define SLO_TTFT_MS_MAX 3600000u /* largest promise of a first token: one hour */

struct key_limits { /* limits of one key; 0 = no limit */
    double requests_per_s, tokens_per_min;
    uint32_t max_open; /* most open requests at once */
    bool has_priority;
    int32_t priority;
    /* promised milliseconds to the first token, for requests without x-slo-ttft-ms; 0 = none */
    uint32_t slo_ttft_ms;
    char *models; /* models that the key may use, "a,b"; owned; NULL = all models */
};

struct bucket {
    double level;
    uint64_t filled_ns;       /* time when the bucket was last filled; 0 = full, never used */
    struct quota_lease lease; /* used when a store shares the bucket */
};

enum { TENANT_NAME_MAX = 64, API_KEY_ID = 33 };

struct api_key {
    uint64_t tenant;
    /* The tenant's name for logs, cut to fit. For a key without a tenant, `name` is the start of
     * its digest: sha256:xxxxxxxx. */
    char name[TENANT_NAME_MAX];
    /* number of references: from the table, open requests, and requested leases */
    uint32_t n_refs;
    uint32_t n_open;
    struct key_limits limits;
    struct bucket buckets[QUOTA_COUNT];
    struct sharing *sharing; /* shared buckets, borrowed; NULL = this gateway counts alone */
    struct api_key *next_active, **prev_active;
    char id[API_KEY_ID]; /* name of the key in a store, from which the key cannot be derived */
};

void key_limits_fini(struct key_limits *l);

void api_key_hold(struct api_key *k);
void api_key_drop(struct api_key *k); /* frees the key at the last reference */
