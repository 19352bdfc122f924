#pragma once
/* Requests as the dashboard shows them: those that ended of late (a ring the core fills, O(1) each)
 * and those that are here, copied in slices so that no walk over thousands of them stands between
 * two steps. A page of either is chosen in O(n) without sorting the rest. Pure; loop thread. */
#include "common/base/random.h"
#include "common/base/str.h"
#include "head/request/request.h"

#define REQUEST_ROWS_ENDED 1024u  /* that ended of late: held */
#define REQUEST_ROWS_LIVE  16384u /* copied at most */
#define REQUEST_ROWS_SLICE 512u   /* copied at once, */
#define REQUEST_ROWS_PAGE  200u   /* sent at once */

struct head_core;

struct request_row {
    struct request_id id;
    uint64_t arrival_seq, group_id;                            /* of who had it last */
    uint64_t arrival_ns, scheduled_ns, first_token_ns, end_ns; /* 0: not yet */
    uint32_t i_choice, n_prompt, n_cached, n_generated, n_max;
    int32_t priority;
    enum request_state state;
    enum finish_reason finish;
    bool has_group;
};

struct request_times { /* UINT64_MAX: it did not come to that */
    uint64_t queue_ns, prefill_ns, decode_ns;
};
/* now_ns: for what has not ended. */
struct request_times request_row_times(const struct request_row *row, uint64_t now_ns);

struct ended_requests {
    struct request_row *ring; /* [REQUEST_ROWS_ENDED] */
    uint64_t n;               /* that ever ended */
};
void ended_requests_init(struct ended_requests *e);
void ended_requests_fini(struct ended_requests *e);
void ended_requests_add(struct ended_requests *e, const struct request *r, uint64_t now_ns);
/* The last one had a stop string's end: like others. */
void ended_requests_finish_last(struct ended_requests *e);
/* The i-th newest; NULL: no longer, or never, there. */
const struct request_row *ended_requests_at(const struct ended_requests *e, uint64_t i);

/* ---- those that are here ---- */

struct live_requests {
    struct request_row *rows; /* [n] as of taken_ns; NULL: never taken */
    struct request_row *next; /* of the walk under way */
    uint32_t n, n_here;       /* n_here: in all, copied or not */
    uint32_t n_next, i_next;
    uint64_t taken_ns; /* 0: never */
    bool walking;
};
void live_requests_begin(struct live_requests *l);
/* A slice more. True: that was the last one. */
bool live_requests_go_on(struct live_requests *l, const struct head_core *h);
void live_requests_fini(struct live_requests *l); /* as never taken */

/* ---- a page of them ---- */

enum request_show { SHOW_LIVE, SHOW_WAITING, SHOW_RUNNING, SHOW_ENDED, SHOW_COUNT };
enum request_sort {
    SORT_ARRIVAL,
    SORT_QUEUE,
    SORT_PREFILL,
    SORT_DECODE,
    SORT_PROMPT,
    SORT_GENERATED,
    SORT_GROUP,
    SORT_COUNT
};
struct request_view {
    enum request_show show;
    enum request_sort sort;
    bool descending;
    uint32_t offset, limit; /* at most REQUEST_ROWS_PAGE */
};
MUST_USE enum status request_show_parse(struct str name, enum request_show *out);
MUST_USE enum status request_sort_parse(struct str name, enum request_sort *out);

struct request_page {
    const struct request_row *rows[REQUEST_ROWS_PAGE];
    uint32_t n, offset; /* offset: as it is, when fewer are there than were asked for */
    uint32_t n_matching;
};
void request_page_fill(const struct request_view *v, const struct live_requests *l,
                       const struct ended_requests *e, struct rng *rng, struct request_page *out);
