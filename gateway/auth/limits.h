#pragma once
/* The bounds of an API key, and their counting. A key has two token buckets with the time as an
 * argument: requests (a second's worth may come at once) and tokens of prompts and answers (a
 * minute's). Tokens are counted when they are known, so that a bucket may fall below nothing: what
 * was admitted is finished, and the next request waits until it is filled again. One gateway
 * counts for itself, or with all others (leases.h). Loop thread only. */
#include "common/base/str.h"
#include "gateway/auth/api_key.h"
#include "gateway/base/api_error.h"

/* One "name=value" of a key's line. False: there is no such option, or its value is none. */
bool limits_parse(struct key_limits *l, struct str option);

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
