#pragma once
/* An API key: whose it is, what bounds it has, and what of them is used. A key lives as long as
 * somebody holds it: the table of keys (auth.h), each open request, a lease that is being asked
 * for. limits.h counts with it, leases.h with those of other gateways. Loop thread only. */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum quota { QUOTA_REQUESTS, QUOTA_TOKENS, QUOTA_COUNT };

struct quota_terms {
    double per_s, size; /* of one bucket, for all gateways together */
};

struct quota_lease { /* of one bucket, beside its level: what is leased and not spent; below 0: owed
                      */
    struct quota_terms terms; /* others begin anew */
    double demand;            /* spent or refused since the last question */
    double want;              /* of the last question */
    double left;              /* in the store, after the last answer */
    uint64_t known_until_ns, ask_after_ns, used_ns;
    uint64_t empty_until_ns; /* as far as the store knew */
    uint32_t epoch;          /* the sharing's that this is of */
    bool asking, empty;
};

struct key_limits { /* 0: no bound */
    double requests_per_s, tokens_per_min;
    uint32_t max_open; /* requests at once */
    bool has_priority;
    int32_t priority;
    char *models; /* owned: "a,b"; NULL: all */
};

struct bucket {
    double level;
    uint64_t filled_ns;       /* 0: full, never used */
    struct quota_lease lease; /* where it is shared */
};

enum { TENANT_NAME_MAX = 64, API_KEY_ID = 33 };

struct api_key {
    uint64_t tenant;
    char name[TENANT_NAME_MAX]; /* its tenant's, for logs, cut if need be; of a key without one the
                                 * beginning of its digest, sha256:xxxxxxxx */
    uint32_t n_refs;            /* the table's and one per open request */
    uint32_t n_open;
    struct key_limits limits;
    struct bucket buckets[QUOTA_COUNT];
    struct sharing *sharing; /* borrowed; NULL: this gateway counts for itself */
    struct api_key *next_active, **prev_active;
    char id[API_KEY_ID]; /* its name in a store: the key cannot be told from it */
};

void key_limits_fini(struct key_limits *l);

void api_key_hold(struct api_key *k);
void api_key_drop(struct api_key *k); /* freed with the last one */
