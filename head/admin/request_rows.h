#pragma once
/* Describes requests as the dashboard shows them: recently ended ones (request/ended.h) and open
 * ones. Open requests are copied in slices, so that no walk over thousands of them delays a
 * step. A page of rows is selected in O(n), without sorting all rows. The code does no I/O and
 * runs on the loop thread. */
#include "common/base/random.h"
#include "common/base/str.h"
#include "head/request/ended.h"

#define REQUEST_ROWS_LIVE  16384u /* most open requests that are copied */
#define REQUEST_ROWS_SLICE 512u   /* most open requests that are copied in one slice */
#define REQUEST_ROWS_PAGE  200u   /* most rows in one page */

struct head_core;

/* ---- open requests ---- */

struct live_requests {
    /* array of n rows, copied at taken_ns; NULL = no walk has ended yet */
    struct request_row *rows;
    struct request_row *next; /* copy that the current walk fills */
    uint32_t n, n_here;       /* n: copied rows; n_here: all open requests, copied or not */
    uint32_t n_next, i_next;
    uint64_t taken_ns; /* time of the last complete walk; 0 = none */
    bool walking;
};
void live_requests_begin(struct live_requests *l);
/* Copies one more slice of the open requests. Returns true when this slice was the last. */
bool live_requests_go_on(struct live_requests *l, const struct head_core *h);
/* Frees the copies and resets `l` to its state before the first walk. */
void live_requests_fini(struct live_requests *l);

/* ---- a page of requests ---- */

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
    uint32_t offset, limit; /* limit ≤ REQUEST_ROWS_PAGE */
};
MUST_USE enum status request_show_parse(struct str name, enum request_show *out);
MUST_USE enum status request_sort_parse(struct str name, enum request_sort *out);

struct request_page {
    const struct request_row *rows[REQUEST_ROWS_PAGE];
    /* `n` is the number of rows in the page. `offset` is the number of its first row, which is
     * below the wanted offset when there are fewer rows. */
    uint32_t n, offset;
    uint32_t n_matching;
};
void request_page_fill(const struct request_view *v, const struct live_requests *l,
                       const struct ended_requests *e, struct rng *rng, struct request_page *out);
