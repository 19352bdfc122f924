#pragma once
/* Counts what each tenant used: requests, tokens, KV blocks × time, and step time. Every function
 * that counts adds to the tenant's row and to the totals, which therefore equal the sums over
 * the rows. A request keeps a struct usage_request from usage_open to usage_close, and has a
 * handle of its tenant's row in it. Tenants beyond USAGE_ROWS share the row `other`. The code
 * does no I/O and has no clock. It belongs to the loop thread. */
#include "common/base/status.h"
#include "common/base/str.h"

#define USAGE_ROWS       1024u /* tenants with a row of their own */
#define USAGE_SERIES     32u   /* tenants with series of their own in /metrics: the first ones */
#define USAGE_NAME_BYTES 64u   /* most bytes of a tenant's name, with the NUL */

struct usage_counts {
    uint64_t n_requests;
    /* Each position of a prompt counts once, as a prompt token or as a cached token. */
    uint64_t n_prompt_tokens, n_cached_tokens;
    uint64_t n_generated_tokens;
    uint64_t block_ms, step_ns; /* held KV blocks times milliseconds; time of steps */
};

struct usage_row {
    struct usage_counts counts;
    uint64_t tenant;
    uint64_t n_blocks, since_ms; /* blocks held since that time; block_ms has the time before */
    uint32_t n_open;             /* open requests; the row is not folded while there are any */
    uint32_t generation;         /* rises when another tenant gets the row */
    uint32_t next;               /* next row of the same bucket; 0 = none */
    bool has_series;
    char name[USAGE_NAME_BYTES]; /* name of the API key, valid UTF-8 without control characters */
};

enum { USAGE_BUCKETS = 2048 };

struct usage {
    uint64_t now_ms;
    struct usage_row *rows; /* rows[0] is `other`, then n_rows tenants; array of USAGE_ROWS + 1 */
    uint32_t n_rows, n_series;
    uint64_t n_folded;               /* tenants whose row was added to `other`, counted each time */
    uint32_t buckets[USAGE_BUCKETS]; /* first row of each bucket; 0 = none */
    struct usage_counts totals;
    uint64_t n_blocks, since_ms; /* as in a row, for all tenants together */
};

/* Holds what is counted for one request. All zero = the request is not counted. */
struct usage_request {
    uint32_t row;      /* handle of the tenant's row: its index and generation; 0 = `other` */
    uint32_t n_prompt; /* first position of the prompt that is not counted yet */
    uint32_t n_skip;   /* next generated tokens that are counted already */
    uint32_t n_blocks; /* blocks that the request's sequence holds */
    uint64_t since_ms; /* the request has held n_blocks since then */
    uint64_t block_ms, step_ns; /* step_ns is counted only with `asks` */
    bool asks;                  /* the client wants to see the counts of the request */
    bool is_open;
};

void usage_init(struct usage *u, uint64_t now_ns);
void usage_fini(struct usage *u);
/* Sets the time of everything that is counted from now on. It never goes back. */
void usage_set_now(struct usage *u, uint64_t now_ns);

/* Counts a new request. `name` is from a peer and may have any bytes; empty = not known. */
void usage_open(struct usage *u, struct usage_request *q, uint64_t tenant, struct str name);
/* Like usage_open, for a request that takes the place of `before`, which was closed. The new one
 * counts only positions and tokens that `before` did not count. `before` had n_generated tokens,
 * and the new request begins with n_known of them. */
void usage_open_again(struct usage *u, struct usage_request *q, uint64_t tenant, struct str name,
                      const struct usage_request *before, uint32_t n_generated, uint32_t n_known);
void usage_close(struct usage *u, struct usage_request *q);

/* Counts the positions before `end` that are not counted yet, as cached or as computed. */
void usage_prompt(struct usage *u, struct usage_request *q, uint32_t end, bool cached);
/* Counts n generated tokens for a row. */
void usage_generated(struct usage *u, uint32_t row, uint32_t n);
/* Returns how many of n new tokens are to be counted. Tokens that an earlier request of the same
 * id had already are not. */
uint32_t usage_skip(struct usage_request *q, uint32_t n);
/* Returns true when the request's own numbers are needed in each step, which nearly never is so. */
static inline bool usage_is_needed(const struct usage_request *q)
{
    return q->asks || q->n_skip > 0;
}
/* Records that the request's sequence holds n_blocks from now on. */
void usage_hold(struct usage *u, struct usage_request *q, uint32_t n_blocks);

/* Adds the request's block time until now to its own sum. The row's sum is complete anyway. */
void usage_settle(const struct usage *u, struct usage_request *q);

/* Divides the time of a step among its runs, in proportion to their tokens. The parts sum to the
 * time exactly. */
struct usage_step {
    uint64_t each_ns, rest_ns; /* time of each token, and the rest of the division by n_tokens */
    uint64_t n_tokens, carry;
};
/* Counts the step in the totals. n_tokens is the sum over its runs. */
struct usage_step usage_begin_step(struct usage *u, uint64_t ns, uint64_t n_tokens);
/* Counts one run of the step for a row. Returns its part of the time. */
static inline uint64_t usage_part_ns(struct usage_step *s, uint32_t n_tokens)
{
    uint64_t ns = s->each_ns * n_tokens;
    s->carry += s->rest_ns * n_tokens;
    if (n_tokens > 1) {
        ns += s->carry / s->n_tokens;
        s->carry %= s->n_tokens;
    } else if (s->carry >= s->n_tokens) {
        ns++;
        s->carry -= s->n_tokens;
    }
    return ns;
}
uint64_t usage_run(struct usage *u, struct usage_step *s, uint32_t row, uint32_t n_tokens);

/* These functions return counts with the block time until now: of a row, of all tenants, and of
 * the rows without series, which are `other` and the tenants that came late. */
struct usage_counts usage_row_now(const struct usage *u, const struct usage_row *row);
struct usage_counts usage_totals_now(const struct usage *u);
struct usage_counts usage_rest_now(const struct usage *u);
/* Checks that the sums over the rows equal the totals. Returns false and a
 * text at the first difference. */
bool usage_check(const struct usage *u, struct error *err);
