#pragma once
/* Requests as the dashboard shows them: those that ended of late (request/ended.h) and those that
 * are here, copied in slices so that no walk over thousands of them stands between two steps. A
 * page of either is chosen in O(n) without sorting the rest. Pure; loop thread. */
#include "common/base/random.h"
#include "common/base/str.h"
#include "head/request/ended.h"

#define REQUEST_ROWS_LIVE  16384u /* copied at most */
#define REQUEST_ROWS_SLICE 512u   /* copied at once, */
#define REQUEST_ROWS_PAGE  200u   /* sent at once */

struct head_core;

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
    SORT_REPLICA,
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
