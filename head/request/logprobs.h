#pragma once
/* Keeps log-probabilities of generated tokens on their way to the request's gateway. Each token
 * from the first one with a row on has a row, which is kept until it has been sent. Otherwise a
 * request with twenty alternatives would hold 200 bytes for every token of its life. When a
 * gateway resubmits a request with fewer tokens than were sent, the tokens and their rows are
 * generated again. The request owns the rows. */
#include "head/request/state.h"

struct token_rows {
    /* `rows` has n rows, for generated tokens from `from` on. Ids and values are on the heap. */
    struct logprob_row *rows;
    uint32_t from, n, cap;
    bool lost; /* memory ran out: rows are no longer kept or sent */
};

/* Adds the row of the last token. Rows are optional: without memory the token still counts, and
 * its row is empty or missing. */
void request_push_row(struct request *r, const struct logprob_row *row);
/* Returns the rows of the undelivered tokens, or NULL when there are none. */
const struct logprob_row *request_undelivered_rows(const struct request *r);
/* Frees the rows that were passed to the gateway's link. Call it when n_delivered has grown. */
void request_rows_delivered(struct request *r);
/* Returns true when all rows after the first n_generated tokens are still kept, or when the
 * request keeps no rows. */
bool request_has_rows_from(const struct request *r, uint32_t n_generated);
void request_logprobs_fini(struct request *r);
