/* Counts usage in rows of tenants and in totals.
 *
 * core/submit.c opens a request here, state/requests.c closes it. The scheduler reports prompt
 * positions, tokens, blocks and steps in between. admin/usage/usage_report.c reads rows and totals.
 *
 * Invariants: a tenant with open requests keeps its row, so only a step in flight can have a
 * handle of an earlier generation. Such a handle leads to rows[0]. A row that is folded is added
 * to rows[0], so the sums over all rows never change by it. A request is found by its handle,
 * without a hash. */
#include "head/usage/usage.h"

#include <string.h>

#include "common/base/clock.h"
#include "common/base/mem.h"

enum { INDEX_BITS = 11 };
_Static_assert(USAGE_ROWS < 1u << INDEX_BITS, "a handle has the index of every row");
#define GENERATION_MAX (UINT32_MAX >> INDEX_BITS)

void usage_init(struct usage *u, uint64_t now_ns)
{
    *u = (struct usage){.now_ms = now_ns / NS_PER_MS};
    u->since_ms = u->now_ms;
    u->rows = mem_array(USAGE_ROWS + 1, sizeof *u->rows);
    for (uint32_t i = 0; i <= USAGE_ROWS; i++)
        u->rows[i] = (struct usage_row){.since_ms = u->now_ms};
}

void usage_fini(struct usage *u)
{
    mem_free(u->rows);
    *u = (struct usage){0};
}

void usage_set_now(struct usage *u, uint64_t now_ns)
{
    if (now_ns / NS_PER_MS > u->now_ms)
        u->now_ms = now_ns / NS_PER_MS;
}

/* ---- rows ---- */

static struct usage_row *row_of(const struct usage *u, uint32_t handle)
{
    struct usage_row *row = &u->rows[handle & ((1u << INDEX_BITS) - 1)];
    return row->generation == handle >> INDEX_BITS ? row : &u->rows[0];
}

static uint32_t *bucket_of(struct usage *u, uint64_t tenant)
{
    return &u->buckets[(tenant * 0x9E3779B97F4A7C15ull) >> 53];
}
_Static_assert(USAGE_BUCKETS == 1 << (64 - 53), "bits of the hash");

static void settle_row(const struct usage *u, struct usage_row *row)
{
    row->counts.block_ms += row->n_blocks * (u->now_ms - row->since_ms);
    row->since_ms = u->now_ms;
}

static void settle_totals(struct usage *u)
{
    u->totals.block_ms += u->n_blocks * (u->now_ms - u->since_ms);
    u->since_ms = u->now_ms;
}

static void add(struct usage_counts *sum, const struct usage_counts *x)
{
    sum->n_requests += x->n_requests;
    sum->n_prompt_tokens += x->n_prompt_tokens;
    sum->n_cached_tokens += x->n_cached_tokens;
    sum->n_generated_tokens += x->n_generated_tokens;
    sum->block_ms += x->block_ms;
    sum->step_ns += x->step_ns;
}

/* Adds a row to `other`, so that another tenant may have it. */
static void fold(struct usage *u, uint32_t i)
{
    struct usage_row *row = &u->rows[i], *other = &u->rows[0];
    uint32_t *at = bucket_of(u, row->tenant);
    while (*at != i)
        at = &u->rows[*at].next;
    *at = row->next;
    settle_row(u, row);
    settle_row(u, other);
    add(&other->counts, &row->counts);
    other->n_blocks += row->n_blocks;
    uint32_t generation = row->generation < GENERATION_MAX ? row->generation + 1 : 0;
    *row = (struct usage_row){.generation = generation, .since_ms = u->now_ms};
    u->n_folded++;
}

/* Returns the index of a row for a new tenant, or 0 when all rows are needed. */
static uint32_t free_row(struct usage *u)
{
    if (u->n_rows < USAGE_ROWS)
        return ++u->n_rows;
    uint32_t least = 0;
    for (uint32_t i = 1; i <= USAGE_ROWS; i++) {
        const struct usage_row *row = &u->rows[i];
        if (row->n_open > 0 || row->has_series)
            continue;
        if (!least || row->counts.step_ns < u->rows[least].counts.step_ns)
            least = i;
    }
    if (least)
        fold(u, least);
    return least;
}

static uint32_t find(struct usage *u, uint64_t tenant)
{
    uint32_t i = *bucket_of(u, tenant);
    while (i && u->rows[i].tenant != tenant)
        i = u->rows[i].next;
    return i;
}

/* Returns the index of the tenant's row, which is made when the tenant is new; 0 = `other`. */
static uint32_t enter(struct usage *u, uint64_t tenant)
{
    uint32_t i = find(u, tenant);
    if (i || (i = free_row(u)) == 0)
        return i;
    struct usage_row *row = &u->rows[i];
    uint32_t *bucket = bucket_of(u, tenant);
    row->tenant = tenant;
    row->since_ms = u->now_ms;
    row->next = *bucket;
    *bucket = i;
    row->has_series = u->n_series < USAGE_SERIES;
    u->n_series += row->has_series;
    return i;
}

/* Keeps a name that a peer sent. */
static void set_name(struct usage_row *row, struct str name)
{
    name.len = name.len < USAGE_NAME_BYTES ? name.len : USAGE_NAME_BYTES - 1;
    name.len = str_utf8_valid(name);
    if (name.len == 0)
        return;
    memcpy(row->name, name.ptr, name.len);
    row->name[name.len] = '\0';
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)row->name[i] < ' ' || row->name[i] == 0x7F)
            row->name[i] = '?';
}

/* ---- requests ---- */

static void open_request(struct usage *u, struct usage_request *q, uint64_t tenant, struct str name)
{
    uint32_t i = enter(u, tenant);
    struct usage_row *row = &u->rows[i];
    if (i)
        set_name(row, name);
    row->n_open++;
    q->row = i | row->generation << INDEX_BITS;
    q->is_open = true;
}

void usage_open(struct usage *u, struct usage_request *q, uint64_t tenant, struct str name)
{
    open_request(u, q, tenant, name);
    row_of(u, q->row)->counts.n_requests++;
    u->totals.n_requests++;
}

void usage_open_again(struct usage *u, struct usage_request *q, uint64_t tenant, struct str name,
                      const struct usage_request *before, uint32_t n_generated, uint32_t n_known)
{
    open_request(u, q, tenant, name);
    q->n_prompt = before->n_prompt;
    uint64_t n_counted = (uint64_t)n_generated + before->n_skip;
    q->n_skip = n_counted > n_known ? (uint32_t)(n_counted - n_known) : 0;
    q->block_ms = before->block_ms;
    q->step_ns = before->step_ns;
}

void usage_close(struct usage *u, struct usage_request *q)
{
    if (!q->is_open)
        return;
    usage_hold(u, q, 0);
    row_of(u, q->row)->n_open--;
    q->is_open = false;
}

void usage_prompt(struct usage *u, struct usage_request *q, uint32_t end, bool cached)
{
    if (!q->is_open || end <= q->n_prompt)
        return;
    struct usage_counts *row = &row_of(u, q->row)->counts;
    uint32_t n = end - q->n_prompt;
    q->n_prompt = end;
    *(cached ? &row->n_cached_tokens : &row->n_prompt_tokens) += n;
    *(cached ? &u->totals.n_cached_tokens : &u->totals.n_prompt_tokens) += n;
}

void usage_generated(struct usage *u, uint32_t row, uint32_t n)
{
    row_of(u, row)->counts.n_generated_tokens += n;
    u->totals.n_generated_tokens += n;
}

uint32_t usage_skip(struct usage_request *q, uint32_t n)
{
    uint32_t n_skip = q->n_skip < n ? q->n_skip : n;
    q->n_skip -= n_skip;
    return n - n_skip;
}

void usage_settle(const struct usage *u, struct usage_request *q)
{
    q->block_ms += q->n_blocks * (u->now_ms - q->since_ms);
    q->since_ms = u->now_ms;
}

void usage_hold(struct usage *u, struct usage_request *q, uint32_t n_blocks)
{
    if (!q->is_open || n_blocks == q->n_blocks)
        return;
    struct usage_row *row = row_of(u, q->row);
    settle_row(u, row);
    settle_totals(u);
    usage_settle(u, q);
    row->n_blocks += (uint64_t)n_blocks - q->n_blocks; /* modulo 2^64, so the sum stays right */
    u->n_blocks += (uint64_t)n_blocks - q->n_blocks;
    q->n_blocks = n_blocks;
}

/* ---- steps ---- */

struct usage_step usage_begin_step(struct usage *u, uint64_t ns, uint64_t n_tokens)
{
    if (n_tokens == 0)
        return (struct usage_step){0};
    u->totals.step_ns += ns;
    return (struct usage_step){
        .each_ns = ns / n_tokens, .rest_ns = ns % n_tokens, .n_tokens = n_tokens};
}

uint64_t usage_run(struct usage *u, struct usage_step *s, uint32_t row, uint32_t n_tokens)
{
    uint64_t ns = usage_part_ns(s, n_tokens);
    row_of(u, row)->counts.step_ns += ns;
    return ns;
}

/* ---- reading ---- */

struct usage_counts usage_row_now(const struct usage *u, const struct usage_row *row)
{
    struct usage_counts now = row->counts;
    now.block_ms += row->n_blocks * (u->now_ms - row->since_ms);
    return now;
}

struct usage_counts usage_totals_now(const struct usage *u)
{
    struct usage_counts now = u->totals;
    now.block_ms += u->n_blocks * (u->now_ms - u->since_ms);
    return now;
}

static struct usage_counts sum_of(const struct usage *u, bool with_series)
{
    struct usage_counts sum = {0};
    for (uint32_t i = 0; i <= u->n_rows; i++) {
        const struct usage_counts now = usage_row_now(u, &u->rows[i]);
        if (with_series || !u->rows[i].has_series)
            add(&sum, &now);
    }
    return sum;
}

struct usage_counts usage_rest_now(const struct usage *u)
{
    return sum_of(u, false);
}

bool usage_check(const struct usage *u, struct error *err)
{
    const struct usage_counts sum = sum_of(u, true), total = usage_totals_now(u);
    uint64_t n_blocks = 0;
    for (uint32_t i = 0; i <= u->n_rows; i++)
        n_blocks += u->rows[i].n_blocks;
    const struct {
        const char *name;
        uint64_t rows, total;
    } pairs[] = {
        {"requests", sum.n_requests, total.n_requests},
        {"prompt tokens", sum.n_prompt_tokens, total.n_prompt_tokens},
        {"cached tokens", sum.n_cached_tokens, total.n_cached_tokens},
        {"generated tokens", sum.n_generated_tokens, total.n_generated_tokens},
        {"block milliseconds", sum.block_ms, total.block_ms},
        {"nanoseconds of steps", sum.step_ns, total.step_ns},
        {"blocks", n_blocks, u->n_blocks},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].rows != pairs[i].total) {
            error_set(err, STATUS_INTERNAL,
                      "the tenants used %llu %s, but the total is %llu. Report this bug",
                      (unsigned long long)pairs[i].rows, pairs[i].name,
                      (unsigned long long)pairs[i].total);
            return false;
        }
    return true;
}
