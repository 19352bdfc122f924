#pragma once
/* Counts the use of an API key in two token buckets: requests (capacity: one second of them) and
 * tokens of prompts and answers (capacity: one minute). Time is an argument.
 * Tokens are counted when they are known, so a bucket may fall below 0. An admitted request is
 * always finished. The next request waits until the bucket has filled again. A gateway counts
 * alone or with all others (leases.h). Only the loop thread calls these functions. */
#include "common/base/str.h"
#include "gateway/auth/api_key.h"
#include "gateway/base/api_error.h"

/* Reads one "name=value" of a key's line. Returns false when the option is unknown or its value
 * is invalid. */
bool limits_parse(struct key_limits *l, struct str option);

/* All functions below accept a NULL key, which has no limits. */
/* Admits one more request. Returns true and counts the request, or returns false with a 429 in
 * `e` that says when to retry. */
bool limits_admit(struct api_key *k, uint64_t now_ns, struct api_error *e);
void limits_open(struct api_key *k); /* counts an open request and holds the key */
void limits_close(struct api_key *k);
void limits_spend(struct api_key *k, uint64_t n_tokens, uint64_t now_ns);
bool limits_any(const struct api_key *k); /* returns true when the key has any limit */
bool limits_allow_model(const struct api_key *k, struct str name);
/* Returns the request's class: the key's class, or a lower one (a larger number) that the
 * request asks for. */
int64_t limits_priority(const struct api_key *k, int64_t asked);
