#pragma once
/* Log-probabilities of generated tokens on their way to the request's gateway: a row for each
 * token from the first that has one, kept until it has been sent. A request that asks for twenty
 * alternatives would hold 200 bytes for every token of its life otherwise. A gateway that comes
 * back with fewer tokens than were sent to it has the rows made again with the tokens. Owned by its
 * request. */
#include "head/request/state.h"

struct token_rows {
    struct logprob_row *rows; /* [n], of the generated tokens from `from` on; numbers on the heap */
    uint32_t from, n, cap;
    bool lost; /* there was no memory: none is kept any more, and none is sent */
};

/* The row is that of the token that was pushed last. Rows are a courtesy: without memory the token
 * counts all the same, and its row is empty or missing. */
void request_push_row(struct request *r, const struct logprob_row *row);
/* The rows of the tokens that its gateway does not have; NULL: there are none. */
const struct logprob_row *request_undelivered_rows(const struct request *r);
/* n_delivered has grown: what its gateway has is freed. */
void request_rows_delivered(struct request *r);
/* Whether the rows behind so many generated tokens are all here. */
bool request_has_rows_from(const struct request *r, uint32_t n_generated);
void request_logprobs_fini(struct request *r);
