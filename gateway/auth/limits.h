#pragma once
/* An API key's tenant, what it may use and what it has used. Two token buckets with the time as an
 * argument: requests (a second's worth may come at once) and tokens of prompts and answers (a
 * minute's). Tokens are counted when they are known, so that a bucket may fall below nothing: what
 * was admitted is finished, and the next request waits until it is filled again. One gateway
 * counts for itself, or with all others (leases.h). Loop thread only. */
#include "common/base/str.h"
#include "gateway/auth/leases.h"
#include "gateway/base/api_error.h"

struct key_limits { /* 0: no bound */
    double requests_per_s, tokens_per_min;
    uint32_t max_open; /* requests at once */
    bool has_priority;
    int32_t priority;
    char *models; /* owned: "a,b"; NULL: all */
};

struct bucket {
    double level;
    uint64_t filled_ns; /* 0: full, never used */
    struct lease lease; /* where it is shared */
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

/* One "name=value" of a key's line. False: there is no such option, or its value is none. */
bool limits_parse(struct key_limits *l, struct str option);
void limits_fini(struct key_limits *l);

void api_key_hold(struct api_key *k);
void api_key_drop(struct api_key *k); /* freed with the last one */

/* All of these take a NULL key, which has no bounds. */
/* May one more request come now? True: it is counted. False: e is a 429 that says when. */
bool limits_admit(struct api_key *k, uint64_t now_ns, struct api_error *e);
void limits_open(struct api_key *k); /* holds it as well */
void limits_close(struct api_key *k);
void limits_spend(struct api_key *k, uint64_t n_tokens, uint64_t now_ns);
bool limits_any(const struct api_key *k); /* has it any bound? */
bool limits_allow_model(const struct api_key *k, struct str name);
/* The key's class, or a lower one (a larger number) that the request asks for. */
int64_t limits_priority(const struct api_key *k, int64_t asked);
