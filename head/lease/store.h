#pragma once
/* Keeps the lease and the term in Redis, for head/lease/lease.h. Each question is one script in
 * Redis, so that reading and taking the lease are atomic. One question is open at a time. All
 * keys are in one hash slot. An invalid answer counts as no answer. The code runs on the loop
 * thread. */
#include "common/base/str.h"
#include "common/loop/loop.h"
#include "head/lease/lease.h"

struct store_answer {
    struct lease_answer lease;
    struct str holder; /* "INSTANCE ADDRESS KEYS"; "" = no holder; borrowed for the call */
};

struct store_options {
    const char *url, *cluster_name; /* cluster_name must satisfy cluster_name_is_valid */
    const char *address;            /* this head's own address, shown to operators */
    uint64_t instance, ttl_ms;
    void *ctx;
    void (*on_link)(void *ctx, bool up, const char *why);
    /* called with the answer to a question; NULL = no answer */
    void (*on_answer)(void *ctx, const struct store_answer *a);
};

struct store;
/* Opens the store. Only a bad URL is an error. */
MUST_USE enum status store_open(struct loop *l, const struct store_options *o, struct store **out,
                                struct error *err);
void store_close(struct store *s); /* `s` may be NULL; see redis_close */
/* Asks a question, with `wanted` from lease_wanted_term and `known` from lease.store_term.
 * Returns false when nothing was sent; otherwise on_answer is called later. */
bool store_ask(struct store *s, enum lease_question q, uint64_t wanted, uint64_t known);
/* Sets the word that identifies this head's keys. The word follows the head's address in the
 * lease from the next question on. Call the function before the first question, and when the
 * keys change. */
void store_set_keys(struct store *s, const char *keys);
/* Returns why the last answer on this link was invalid, or "" when it was valid. */
const char *store_trouble(const struct store *s);
/* Releases the lease if this head holds it. Returns false when nothing was sent; otherwise
 * `done` is called once. */
bool store_release(struct store *s, void (*done)(void *ctx));
