#pragma once
/* Shares the buckets of one key between gateways. The buckets are in a store that all gateways
 * reach. A gateway takes units ahead (a lease) and spends them without asking the store. It asks
 * for more before they run out, and returns unused units within a second.
 * No request waits for the store. A gateway grants units that it does not have yet on credit, up
 * to a part of the units left in the store. The gateway reports the credit with its next request
 * to the store, so in the long run no key exceeds its rate.
 * While the store is down, each gateway fills its own buckets at the rate divided by the last
 * known number of gateways. The functions are pure: time is an argument and the store is a
 * callback. Only the loop thread calls these functions. */
#include "gateway/auth/api_key.h"

struct sharing {
    void *ctx;
    /* Takes `take` units from the store (below 0: returns units) and asks for `want` more.
     * `leases_answer` or `leases_lost` follows later. Returns false when the store cannot be
     * asked now. Then nothing was taken. */
    bool (*ask)(void *ctx, struct api_key *k, enum quota q, double take, double want);
    bool up;
    uint32_t n_gateways; /* last known number of gateways, at least 1 */
    uint32_t epoch;
    /* keys with units leased, owed or asked for; the list holds one reference to each key */
    struct api_key *active;
};

void leases_link(struct sharing *s, bool up);
/* Returns the number of units that may be spent now. One unit is enough for a request. Call this
 * function only while `s->up` is true. */
double leases_room(struct sharing *s, struct api_key *k, enum quota q, struct quota_terms t,
                   uint64_t now_ns);
void leases_spend(struct sharing *s, struct api_key *k, enum quota q, double amount,
                  uint64_t now_ns);
/* Counts the demand of a refused request. Returns the seconds until units may be available. */
double leases_refused(struct sharing *s, struct api_key *k, enum quota q, double amount,
                      uint64_t now_ns);
/* Applies the store's answer. `left` is the number of units left in the store for all gateways
 * after this grant. A negative number is owed to the store. */
void leases_answer(struct sharing *s, struct api_key *k, enum quota q, double grant, double left,
                   uint64_t now_ns);
/* handles a request to the store that will get no answer */
void leases_lost(struct api_key *k, enum quota q);
/* Asks the store for units and returns unused units. It is called a few times per second. */
void leases_tick(struct sharing *s, uint64_t now_ns);
void leases_fini(struct sharing *s); /* drops the references that `s` holds to keys */
