#pragma once
/* Handles the promised time of the first token, as the client sees it: the header x-slo-ttft-ms
 * and the key's slo_ttft_ms. The head decides (docs/develop/head.md, "Promises"). Its times begin
 * with the Submit; the client's times begin when the request arrived at this gateway. */
#include "gateway/request/state.h"

/* Reads the header's value, or takes the key's default if there is none. Returns false with a 400
 * in `e` when the value is invalid. */
bool promise_read(struct str header, const struct api_key *key, uint32_t *slo_ms,
                  struct api_error *e);
/* Returns what is left of the promise for a Submit now, at least 1; 0 = no promise. */
uint32_t promise_left_ms(const struct api_request *r);
/* Keeps the head's prediction for a choice. */
void promise_take(struct api_request *r, const struct api_choice *c, const struct tokens_item *t);
/* Describes a refused promise in `e`, with the client's own times. Returns false and does nothing
 * when the error has another reason. */
bool promise_explain(const struct api_request *r, const struct tokens_item *t, struct api_error *e);
/* Replaces the error of a fallback by the refusal of the model that handed the request over, unless
 * the fallback refused with a smaller prediction. Keeps an error after the first token, and 500 and
 * 504, which tell the client not to send the request again. Does nothing for other requests. */
void promise_explain_first(struct api_request *r, struct api_error *e);
/* Returns true when a request that was handed over has waited much too long for its first token:
 * twice its promise and five seconds, in which a lost worker or head is replaced. */
bool promise_is_hopeless(const struct api_request *r, uint64_t now_ns);
/* Adds the header x-slo-predicted-ttft-ms to the answer, before its first byte. */
void promise_tell(const struct api_request *r);
