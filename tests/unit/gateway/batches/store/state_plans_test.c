/* Tests the cost of the store's SQL statements. The cost must not grow with the number of rows
 * that a statement does not need, because all tenants share the store's thread. */
#include <setjmp.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "gateway/batches/store/state.h"

enum { TENANT = 7, N_ROWS = 5000, FEW = 2000 };

struct fixture {
    char dir[64];
    struct state_store *s;
};

static struct error err;
/* steps of SQLite's virtual machine, in all statements that have finished */
static uint64_t n_steps;
static char with_expires[1024];

static int on_end(unsigned type, void *ctx, void *statement, void *ns)
{
    n_steps += (uint64_t)sqlite3_stmt_status(statement, SQLITE_STMTSTATUS_VM_STEP, 1);
    if (strstr(sqlite3_sql(statement), "expires <="))
        snprintf(with_expires, sizeof with_expires, "%s", sqlite3_sql(statement));
    return 0;
}

static void run_sql(struct fixture *f, const char *sql)
{
    if (sqlite3_exec(f->s->db, sql, NULL, NULL, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(f->s->db));
}

/* Fills the store with thousands of ended batches and of files, and then one batch with an open
 * line. */
static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    char sql[1024];
    snprintf(f->dir, sizeof f->dir, "/tmp/coxstate-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(state_open(f->dir, 64 << 20, &f->s, &err), STATUS_OK);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
             "INSERT INTO batch (id, tenant, endpoint, input, state, created, expires, lines, "
             "failure_line) SELECT 'batch_' || i, %d, '/v1/completions', 'f', i < %d, 1, 1000, 1, "
             "-1 FROM n",
             N_ROWS, TENANT, N_ROWS);
    run_sql(f, sql);
    snprintf(sql, sizeof sql,
             "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "
             "INSERT INTO file (id, tenant, filename, purpose, created, bytes, content) "
             "SELECT 'file-' || i, %d, 'x', 'batch', 1, 1, x'31' FROM n",
             N_ROWS, TENANT);
    run_sql(f, sql);
    snprintf(sql, sizeof sql,
             "INSERT INTO line (batch, n, custom_id, body, state) VALUES (%d, 0, 'a', '{}', 0)",
             N_ROWS);
    run_sql(f, sql);
    sqlite3_trace_v2(f->s->db, SQLITE_TRACE_PROFILE, on_end, NULL);
    n_steps = 0;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    static const char *const names[] = {"state.sqlite", "state.sqlite-wal", "state.sqlite-shm",
                                        "state.reserve"};
    struct fixture *f = *state;
    char path[128];
    state_close(f->s);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", f->dir, names[i]);
        (void)unlink(path);
    }
    assert_int_equal(rmdir(f->dir), 0);
    mem_free(f);
    return 0;
}

static void assert_few_steps(void)
{
    assert_in_range(n_steps, 1, FEW);
}

static void test_a_line_is_taken_past_what_has_ended(void **state)
{
    struct fixture *f = *state;
    struct taken_line l;
    uint32_t n, n_open;
    assert_int_equal(state_take_lines(f->s, 1, 100, &l, &n, &n_open, &err), STATUS_OK);
    assert_int_equal(n, 1);
    assert_int_equal(l.batch_no, N_ROWS);
    assert_int_equal(n_open, 1);
    mem_free(l.owned_body);
    assert_few_steps();
}

static void test_what_is_due_is_found_by_its_time(void **state)
{
    struct fixture *f = *state;
    sqlite3_stmt *q;
    char explain[1100];
    uint32_t n, n_open;
    assert_int_equal(state_take_lines(f->s, 0, 100, NULL, &n, &n_open, &err), STATUS_OK);
    snprintf(explain, sizeof explain, "EXPLAIN QUERY PLAN %s", with_expires);
    assert_int_equal(sqlite3_prepare_v2(f->s->db, explain, -1, &q, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(q), SQLITE_ROW);
    const char *plan = (const char *)sqlite3_column_text(q, 3);
    if (!strstr(plan, "SEARCH batch USING INDEX batch_due"))
        fail_msg("%s", plan);
    sqlite3_finalize(q);
}

static bool one_batch(void *ctx, const struct stored_batch *b)
{
    strcat(strcat(ctx, b->id), " ");
    return true;
}

static bool one_file(void *ctx, const struct stored_file *f)
{
    strcat(strcat(ctx, f->id), " ");
    return true;
}

/* The last page of a list costs as much as the first page. */
static void test_a_list_goes_on_where_it_was(void **state)
{
    struct fixture *f = *state;
    struct state_query q = {.tenant = TENANT, .after = STR("batch_3"), .limit = 2};
    char got[256] = "";
    bool more;
    assert_int_equal(state_list_batches(f->s, &q, one_batch, got, &more, &err), STATUS_OK);
    assert_string_equal(got, "batch_2 batch_1 ");
    assert_false(more);
    assert_few_steps();
    q.after = STR("file-3");
    got[0] = '\0';
    assert_int_equal(state_list_files(f->s, &q, one_file, got, &more, &err), STATUS_OK);
    assert_string_equal(got, "file-2 file-1 ");
    assert_few_steps();
    q.after = STR("file-4998");
    q.oldest_first = true;
    got[0] = '\0';
    assert_int_equal(state_list_files(f->s, &q, one_file, got, &more, &err), STATUS_OK);
    assert_string_equal(got, "file-4999 file-5000 ");
    assert_few_steps();
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_a_line_is_taken_past_what_has_ended),
        T(test_what_is_due_is_found_by_its_time),
        T(test_a_list_goes_on_where_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
