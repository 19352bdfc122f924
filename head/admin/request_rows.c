/* Builds the rows of requests for the dashboard's table.
 *
 * admin/stream.c calls `live_requests_begin`, then `live_requests_go_on` once per slice until it
 * returns true. These calls copy open requests from the core's request table. `request_page_fill`
 * then selects and sorts one page of the copies or of ended requests.
 *
 * Invariants: everything runs on the loop thread. Each slice is bounded, so that steps are not
 * delayed. `rows` is the last complete copy, `next` is the copy that is being made. A page
 * contains pointers into these arrays and is valid until the next walk ends. */
#include "head/admin/request_rows.h"

#include <stdlib.h>

#include "common/base/mem.h"
#include "head/state/head_core.h"

/* ---- open requests ---- */

void live_requests_begin(struct live_requests *l)
{
    if (!l->rows) {
        l->rows = mem_array(REQUEST_ROWS_LIVE, sizeof *l->rows);
        l->next = mem_array(REQUEST_ROWS_LIVE, sizeof *l->next);
    }
    l->n_next = l->i_next = 0;
    l->walking = true;
}

bool live_requests_go_on(struct live_requests *l, const struct head_core *h)
{
    const struct request_table *t = h->requests;
    uint32_t n_places = request_table_n_places(t), n_taken = 0;
    /* empty places take little time, so a slice may skip many of them */
    uint32_t stop = l->i_next + 16 * REQUEST_ROWS_SLICE;
    for (; l->i_next < n_places && l->i_next < stop; l->i_next++) {
        const struct request *ahead = request_table_at(t, l->i_next + REQUEST_PREFETCH_FAR);
        const struct request *r = request_table_at(t, l->i_next);
        if (ahead)
            request_prefetch(ahead);
        /* ended requests are listed after they were removed from the table */
        if (!r || r->finish != FINISH_NONE)
            continue;
        if (l->n_next == REQUEST_ROWS_LIVE || n_taken++ == REQUEST_ROWS_SLICE)
            break;
        l->next[l->n_next++] = request_row_of(r);
    }
    if (l->i_next < n_places && l->n_next < REQUEST_ROWS_LIVE)
        return false;
    struct request_row *was = l->rows;
    l->rows = l->next;
    l->next = was;
    l->n = l->n_next;
    l->n_here = request_table_count(t);
    l->taken_ns = h->now_ns;
    l->walking = false;
    return true;
}

void live_requests_fini(struct live_requests *l)
{
    mem_free(l->rows);
    mem_free(l->next);
    *l = (struct live_requests){0};
}

/* ---- a page ---- */

struct sort_key {
    uint64_t key, arrival_seq;
    const struct request_row *row;
};

static enum status parse_name(struct str name, const char *const *names, int n, int *out)
{
    for (int i = 0; i < n; i++)
        if (str_eq_c(name, names[i])) {
            *out = i;
            return STATUS_OK;
        }
    return STATUS_INVALID;
}

enum status request_show_parse(struct str name, enum request_show *out)
{
    static const char *const names[SHOW_COUNT] = {"live", "waiting", "running", "ended"};
    int i = 0;
    enum status s = parse_name(name, names, SHOW_COUNT, &i);
    *out = (enum request_show)i;
    return s;
}

enum status request_sort_parse(struct str name, enum request_sort *out)
{
    static const char *const names[SORT_COUNT] = {"arrival", "queue",     "prefill", "decode",
                                                  "prompt",  "generated", "group"};
    int i = 0;
    enum status s = parse_name(name, names, SORT_COUNT, &i);
    *out = (enum request_sort)i;
    return s;
}

static bool is_shown(const struct request_row *row, enum request_show show)
{
    return show == SHOW_WAITING   ? row->state != REQUEST_RUNNING
           : show == SHOW_RUNNING ? row->state == REQUEST_RUNNING
                                  : true;
}

/* Returns the sort key of a row. A phase that the request has not reached counts as 0. */
static uint64_t key_of(const struct request_row *row, const struct request_view *v, uint64_t now_ns)
{
    struct request_times t = request_row_times(row, now_ns);
    uint64_t key = 0;
    switch (v->sort) {
    case SORT_QUEUE:
        key = t.queue_ns;
        break;
    case SORT_PREFILL:
        key = t.prefill_ns + 1;
        break;
    case SORT_DECODE:
        key = t.decode_ns + 1;
        break;
    case SORT_PROMPT:
        key = row->n_prompt;
        break;
    case SORT_GENERATED:
        key = row->n_generated;
        break;
    case SORT_REPLICA:
        key = row->has_replica ? row->replica_id + 1 : 0;
        break;
    case SORT_ARRIVAL:
    case SORT_COUNT:
        key = row->arrival_seq;
        break;
    }
    return v->descending ? ~key : key;
}

static int compare_keys(const void *a, const void *b)
{
    const struct sort_key *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->arrival_seq < y->arrival_seq ? -1 : x->arrival_seq > y->arrival_seq;
}

/* Partially sorts `a`: afterwards the elements of a[0, k) precede those of a[k, n). Pivots are
 * random, so that no order of arrival makes the sort slow. */
static void put_first(struct sort_key *a, size_t n, size_t k, struct rng *rng)
{
    size_t begin = 0, end = n;
    while (k > begin && k < end && end - begin > 1) {
        struct sort_key pivot = a[begin + rng_below(rng, end - begin)];
        size_t i = begin, j = end - 1;
        for (;;) { /* this loop is Hoare's partition */
            while (compare_keys(&a[i], &pivot) < 0)
                i++;
            while (compare_keys(&a[j], &pivot) > 0)
                j--;
            if (i >= j)
                break;
            struct sort_key x = a[i];
            a[i++] = a[j];
            a[j--] = x;
        }
        size_t cut = j + 1; /* [begin, cut) ≤ pivot ≤ [cut, end) */
        if (cut == end)     /* the pivot was the largest element, and last */
            cut--;
        if (k < cut)
            end = cut;
        else
            begin = cut;
    }
}

static uint32_t collect(const struct request_view *v, const struct live_requests *l,
                        const struct ended_requests *e, struct sort_key *out)
{
    uint32_t n = 0;
    const struct request_row *row;
    if (v->show == SHOW_ENDED) {
        for (uint64_t i = 0; (row = ended_requests_at(e, i)) != NULL; i++)
            out[n++] = (struct sort_key){key_of(row, v, 0), row->arrival_seq, row};
        return n;
    }
    for (uint32_t i = 0; i < l->n; i++) {
        row = &l->rows[i];
        if (is_shown(row, v->show))
            out[n++] = (struct sort_key){key_of(row, v, l->taken_ns), row->arrival_seq, row};
    }
    return n;
}

void request_page_fill(const struct request_view *v, const struct live_requests *l,
                       const struct ended_requests *e, struct rng *rng, struct request_page *out)
{
    uint32_t n_most = v->show == SHOW_ENDED ? REQUEST_ROWS_ENDED : l->n;
    struct sort_key *keys = mem_array(n_most + 1, sizeof *keys);
    uint32_t n = collect(v, l, e, keys);
    uint32_t limit = v->limit < REQUEST_ROWS_PAGE ? v->limit : REQUEST_ROWS_PAGE;
    uint32_t last = n > limit ? n - limit : 0;
    uint32_t offset = v->offset < last ? v->offset : last;
    *out = (struct request_page){.n_matching = n, .offset = offset};
    out->n = n - offset < limit ? n - offset : limit;
    put_first(keys, n, offset, rng);
    put_first(keys + offset, n - offset, out->n, rng);
    qsort(keys + offset, out->n, sizeof *keys, compare_keys);
    for (uint32_t i = 0; i < out->n; i++)
        out->rows[i] = keys[offset + i].row;
    mem_free(keys);
}
