#pragma once
/* The lease and the term in Redis, for head/lease/lease.c: one question at a time by a script, so
 * that looking and taking are one thing; all keys in one hash slot. An answer that makes no sense
 * is none. Loop thread. */
#include "common/base/str.h"
#include "common/loop/loop.h"
#include "head/lease/lease.h"

struct store_answer {
    struct lease_answer lease;
    struct str holder; /* "INSTANCE ADDRESS KEYS", "": nobody. Borrowed for the call */
};

struct store_options {
    const char *url, *cluster_name; /* the name: cluster_name_is_valid */
    const char *address;            /* where this head serves, for people */
    uint64_t instance, ttl_ms;
    void *ctx;
    void (*on_link)(void *ctx, bool up, const char *why);
    void (*on_answer)(void *ctx, const struct store_answer *a); /* NULL: there is none */
};

struct store;
/* Errors are of the URL only. */
MUST_USE enum status store_open(struct loop *l, const struct store_options *o, struct store **out,
                                struct error *err);
void store_close(struct store *s); /* as redis_close; NULL is fine */
/* wanted: lease_wanted_term; known: lease.store_term. on_answer follows, unless false. */
bool store_ask(struct store *s, enum lease_question q, uint64_t wanted, uint64_t known);
/* Names the keys that this head has, in one word, behind its address from the next question on.
 * Before the first one, and when they change. */
void store_set_keys(struct store *s, const char *keys);
/* Why the last answer on this link was taken for none: it made no sense. "": it made some. */
const char *store_trouble(const struct store *s);
/* Lets go of the lease if it is ours. done is called once, unless false. */
bool store_release(struct store *s, void (*done)(void *ctx));
