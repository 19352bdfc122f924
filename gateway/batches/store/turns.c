/* Chooses the order in which lines are taken. A free slot is assigned to the tenant with the
 * fewest running lines. Among equal tenants it is assigned to the first tenant after the owner
 * of the last slot, so a single slot serves the tenants in turn. A tenant's own lines are taken
 * in order, from the oldest batch first.
 * All tenants with waiting lines finally have equally many slots, whatever the order and length
 * of their batches (max-min fairness: Bertsekas and Gallager, Data Networks, 6.5.2). */
#include <string.h>

#include "common/base/mem.h"
#include "gateway/batches/store/lines.h"
#include "gateway/batches/store/sql.h"

enum {
    /* `TURNS_MAX` is the number of tenants to consider. There are fewer slots than this, so when
     * any tenant has a waiting line, at least one of the considered tenants has one. */
    TURNS_MAX = 2048,
    SKIPPED_MAX = 64 /* most damaged rows skipped in one call */
};

struct turn {
    int64_t tenant; /* number of the tenant, signed as in SQLite */
    uint32_t n_taken;
    bool is_done;           /* the tenant has no more waiting lines */
    int64_t batch_no, line; /* last line that was considered; 0 and -1 = none yet */
};

struct turns {
    struct turn *owned;
    uint32_t n;
};

/* Finds the first tenant from `from` to `to` that has an open batch. */
static enum status next_tenant(struct state_store *s, sqlite3_stmt *q, int64_t from, int64_t to,
                               int64_t *tenant, bool *found, struct error *err)
{
    sqlite3_reset(q);
    sqlite3_bind_int64(q, 1, from);
    sqlite3_bind_int64(q, 2, to);
    int rc = sqlite3_step(q);
    *tenant = rc == SQLITE_ROW ? sqlite3_column_int64(q, 0) : 0;
    *found = rc == SQLITE_ROW && *tenant >= from && *tenant <= to; /* the index may be damaged */
    sqlite3_reset(q);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? STATUS_OK : state_error(s, err, "find tenants");
}

static enum status add_tenants(struct state_store *s, sqlite3_stmt *q, int64_t from, int64_t to,
                               struct turns *t, struct error *err)
{
    int64_t tenant;
    bool found = from <= to;
    while (found && t->n < TURNS_MAX) {
        TRY(next_tenant(s, q, from, to, &tenant, &found, err));
        if (found)
            t->owned[t->n++] = (struct turn){.tenant = tenant, .line = -1};
        found = found && tenant < to;
        from = found ? tenant + 1 : to;
    }
    return STATUS_OK;
}

/* Lists the tenants with open batches, starting after the tenant that was served last. */
static enum status list_tenants(struct state_store *s, struct turns *t, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s,
                                    "SELECT tenant FROM batch WHERE state = 0 AND "
                                    "tenant BETWEEN ? AND ? ORDER BY tenant LIMIT 1",
                                    err);
    if (!q)
        return STATUS_IO;
    const int64_t last = s->last_tenant;
    enum status status =
        last < INT64_MAX ? add_tenants(s, q, last + 1, INT64_MAX, t, err) : STATUS_OK;
    if (status == STATUS_OK)
        status = add_tenants(s, q, INT64_MIN, last, t, err);
    sqlite3_finalize(q);
    return status;
}

static enum status count_taken(struct state_store *s, struct turns *t, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s,
                                    "SELECT batch.tenant, count(*) FROM line CROSS JOIN batch ON "
                                    "batch.no = line.batch WHERE line.state = 1 GROUP BY 1",
                                    err);
    if (!q)
        return STATUS_IO;
    int rc;
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        for (uint32_t i = 0; i < t->n; i++)
            if (t->owned[i].tenant == sqlite3_column_int64(q, 0))
                t->owned[i].n_taken = (uint32_t)sqlite3_column_int64(q, 1);
    sqlite3_finalize(q);
    return rc == SQLITE_DONE ? STATUS_OK : state_error(s, err, "count lines");
}

static struct turn *next_turn(const struct turns *t)
{
    struct turn *found = NULL;
    for (uint32_t i = 0; i < t->n; i++)
        if (!t->owned[i].is_done && (!found || t->owned[i].n_taken < found->n_taken))
            found = &t->owned[i];
    return found;
}

enum status state_move_line(struct state_store *s, int64_t batch_no, uint32_t i_line,
                            enum line_state from, enum line_state to, struct error *err)
{
    sqlite3_stmt *q = state_prepare(
        s, "UPDATE line SET state = ?4 WHERE batch = ?1 AND n = ?2 AND state = ?3", err);
    if (!q)
        return STATUS_IO;
    sqlite3_bind_int64(q, 1, batch_no);
    sqlite3_bind_int64(q, 2, i_line);
    sqlite3_bind_int(q, 3, (int)from);
    sqlite3_bind_int(q, 4, (int)to);
    return state_run(s, q, "move a line", err);
}

static enum status find_line(struct state_store *s, sqlite3_stmt *q, struct turn *t,
                             struct taken_line *out, struct error *err)
{
    sqlite3_bind_int64(q, 1, t->tenant);
    sqlite3_bind_int64(q, 2, t->batch_no);
    sqlite3_bind_int64(q, 3, t->line);
    sqlite3_bind_int64(q, 4, STATE_MAX_LINES - 1); /* a line with a damaged number is never taken */
    int rc = sqlite3_step(q);
    t->is_done = rc != SQLITE_ROW;
    if (rc == SQLITE_ROW) {
        const char *body = (const char *)sqlite3_column_text(q, 2);
        *out = (struct taken_line){.batch_no = sqlite3_column_int64(q, 0),
                                   .i_line = (uint32_t)sqlite3_column_int64(q, 1),
                                   .tenant = (uint64_t)t->tenant,
                                   .owned_body = mem_strdup(body ? body : "")};
        state_column(q, 3, out->endpoint, sizeof out->endpoint);
        t->batch_no = out->batch_no;
        t->line = out->i_line;
    }
    sqlite3_reset(q); /* the statement must end before the line changes */
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? STATUS_OK : state_error(s, err, "take lines");
}

/* `TAKE` uses the index of open batches. Without this hint SQLite would choose the tenant's
 * index and scan all ended batches. */
#define TAKE                                                                                       \
    "SELECT line.batch, line.n, line.body, batch.endpoint FROM batch INDEXED BY batch_open "       \
    "CROSS JOIN line ON line.batch = batch.no WHERE batch.tenant = ?1 AND batch.state = 0 "        \
    "AND line.state = 0 AND batch.no >= ?2 AND (batch.no > ?2 OR line.n > ?3) "                    \
    "AND line.n BETWEEN 0 AND ?4 AND typeof(line.n) = 'integer' "                                  \
    "ORDER BY batch.no, line.n LIMIT 1"

static enum status take(struct state_store *s, struct turns *t, uint32_t max,
                        struct taken_line *out, uint32_t *n, struct error *err)
{
    sqlite3_stmt *q = state_prepare(s, TAKE, err);
    struct turn *next;
    enum status status = q ? STATUS_OK : STATUS_IO;
    size_t n_bytes = 0;
    for (uint32_t skipped = 0; status == STATUS_OK && *n < max && n_bytes < STATE_TAKE_BYTES &&
                               skipped < SKIPPED_MAX && (next = next_turn(t)) != NULL;) {
        struct taken_line *l = &out[*n];
        status = find_line(s, q, next, l, err);
        if (status != STATUS_OK || next->is_done)
            continue;
        status = state_move_line(s, l->batch_no, l->i_line, LINE_WAITING, LINE_TAKEN, err);
        if (status == STATUS_OK && sqlite3_changes(s->db) > 0) {
            next->n_taken++;
            s->last_tenant = next->tenant;
            n_bytes += strlen(l->owned_body);
            ++*n;
        } else { /* a damaged row is skipped, because it would be taken again and again */
            mem_free(l->owned_body);
            skipped++;
        }
    }
    sqlite3_finalize(q);
    return status;
}

enum status state_take_in_turn(struct state_store *s, uint32_t max, struct taken_line *out,
                               uint32_t *n, struct error *err)
{
    struct turns t = {.owned = mem_array(TURNS_MAX, sizeof *t.owned)};
    enum status status = list_tenants(s, &t, err);
    if (status == STATUS_OK)
        status = count_taken(s, &t, err);
    if (status == STATUS_OK)
        status = take(s, &t, max, out, n, err);
    mem_free(t.owned);
    return status;
}
