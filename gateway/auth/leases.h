#pragma once
/* What several gateways do with one key's buckets. A store that all of them reach has the buckets;
 * a gateway takes some of one ahead (a lease), spends it without asking, asks for more before it
 * is used up, and gives back what it did not need within a second. No request waits for the store:
 * what a gateway does not know yet it grants on credit, a part of what the store had left, and
 * tells of it with the next question, so that in the long run no key has more than its rate.
 * While the store is down each gateway fills its own buckets at the rate divided by the gateways
 * that there were. Pure: the time is an argument, the store an operation. Loop thread only. */
#include "gateway/auth/api_key.h"

struct sharing {
    void *ctx;
    /* Takes `take` (below 0: gives back) and asks for `want` more; leases_answer or leases_lost
     * comes later. False: it cannot be asked now, and nothing was taken. */
    bool (*ask)(void *ctx, struct api_key *k, enum quota q, double take, double want);
    bool up;
    uint32_t n_gateways; /* as last known, at least 1 */
    uint32_t epoch;
    struct api_key *active; /* keys with something leased, owed or asked for; held */
};

void leases_link(struct sharing *s, bool up);
/* What may be spent of it now; 1 is enough for a request. Only while s->up. */
double leases_room(struct sharing *s, struct api_key *k, enum quota q, struct quota_terms t,
                   uint64_t now_ns);
void leases_spend(struct sharing *s, struct api_key *k, enum quota q, double amount,
                  uint64_t now_ns);
/* It would have been spent if there had been room. Seconds until there may be. */
double leases_refused(struct sharing *s, struct api_key *k, enum quota q, double amount,
                      uint64_t now_ns);
/* left: what the store has left for all after this; below 0: that much is owed to it. */
void leases_answer(struct sharing *s, struct api_key *k, enum quota q, double grant, double left,
                   uint64_t now_ns);
void leases_lost(struct api_key *k, enum quota q);    /* there will be no answer */
void leases_tick(struct sharing *s, uint64_t now_ns); /* a few times a second */
void leases_fini(struct sharing *s);                  /* lets go of its keys */
