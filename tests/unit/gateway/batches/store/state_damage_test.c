/* Tests the store with damaged rows. While the gateway is stopped, a test damages the rows of
 * one batch. The gateway starts again, only that batch fails or expires, and another tenant's
 * batch completes. `gateway_state_fuzz` damages arbitrary bytes. */
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
#include "gateway/batches/store/store.h"

enum { HARMED = 1, OTHER = 2, NOW_S = 100, EXPIRES_S = 1000, STORE_BYTES = 8 << 20 };

struct fixture {
    char dir[64], path[96];
    struct state_store *s;
};

static struct error err;

static void open_store(struct fixture *f)
{
    if (state_open(f->dir, STORE_BYTES, &f->s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/coxstate-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof f->path, "%s/state.sqlite", f->dir);
    open_store(f);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    char path[160];
    state_close(f->s);
    assert_int_equal(unlink(f->path), 0);
    snprintf(path, sizeof path, "%s/state.reserve", f->dir);
    (void)unlink(path);
    assert_int_equal(rmdir(f->dir), 0);
    mem_free(f);
    return 0;
}

static void add_batch(struct fixture *f, uint64_t tenant, char id[STATE_ID_BYTES])
{
    static const char line[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\","
        "\"body\":{\"prompt\":\"x\"}}\n";
    struct stored_file file = {.tenant = tenant, .filename = "in", .purpose = "batch"};
    struct stored_batch b = {.tenant = tenant,
                             .endpoint = "/v1/completions",
                             .created_s = NOW_S,
                             .expires_s = EXPIRES_S};
    assert_int_equal(state_add_file(f->s, &file, str_from(line), &err), STATUS_OK);
    memcpy(b.input_file, file.id, sizeof b.input_file);
    assert_int_equal(state_add_batch(f->s, &b, &err), STATUS_OK);
    memcpy(id, b.id, STATE_ID_BYTES);
    stored_batch_fini(&b);
}

/* Runs `sql` while the store is closed, after removing the columns' constraints. */
static void damage(struct fixture *f, const char *sql)
{
    sqlite3 *db;
    state_close(f->s);
    f->s = NULL;
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db,
                                  "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = "
                                  "replace(sql, ' NOT NULL', '')",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    open_store(f);
}

static bool see_state(void *ctx, const struct stored_batch *b)
{
    *(int *)ctx = (int)b->state;
    return true;
}

static int only_state(struct fixture *f, uint64_t tenant)
{
    const struct state_query q = {.tenant = tenant, .limit = 10};
    bool more;
    int found = -1;
    assert_int_equal(state_list_batches(f->s, &q, see_state, &found, &more, &err), STATUS_OK);
    return found;
}

/* Takes lines until none is left, with a bound on the number of calls. Returns the number of
 * lines of HARMED's batch. */
static uint32_t run_all(struct fixture *f)
{
    uint32_t n = 1, n_open, n_harmed = 0;
    for (int i = 0; n > 0; i++) {
        struct taken_line l[4];
        assert_true(i < 4);
        assert_int_equal(state_take_lines(f->s, 4, NOW_S, l, &n, &n_open, &err), STATUS_OK);
        for (uint32_t k = 0; k < n; k++) {
            n_harmed += l[k].tenant == HARMED;
            assert_int_equal(
                state_answer_line(f->s, l[k].batch_no, l[k].i_line, 200, STR("{}"), NOW_S, &err),
                STATUS_OK);
            mem_free(l[k].owned_body);
        }
    }
    return n_harmed;
}

static void a_damaged_batch_harms_no_other(void **state)
{
    static const struct {
        const char *sql;
        uint32_t n_run;
        enum batch_state end; /* state of the damaged batch after it has expired */
    } cases[] = {
        {"UPDATE batch SET id = 'none' WHERE tenant = 1", 1, BATCH_COMPLETED},
        {"UPDATE line SET body = NULL WHERE batch = 1", 1, BATCH_COMPLETED},
        {"UPDATE line SET n = 4294967296 WHERE batch = 1", 0, BATCH_EXPIRED},
        {"UPDATE line SET n = -1 WHERE batch = 1", 0, BATCH_EXPIRED},
        /* the line has ended, but has no answer */
        {"UPDATE line SET state = 2 WHERE batch = 1", 0, BATCH_EXPIRED},
        {"UPDATE batch SET state = 77 WHERE tenant = 1", 0, BATCH_FAILED},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char harmed[STATE_ID_BYTES], other[STATE_ID_BYTES];
        if (i > 0) {
            teardown(state);
            setup(state);
        }
        struct fixture *f = *state;
        add_batch(f, HARMED, harmed);
        add_batch(f, OTHER, other);
        damage(f, cases[i].sql);
        assert_int_equal(run_all(f), cases[i].n_run);
        assert_int_equal(only_state(f, OTHER), BATCH_COMPLETED);
        struct taken_line none;
        uint32_t n, n_open;
        assert_int_equal(state_take_lines(f->s, 1, EXPIRES_S + 1, &none, &n, &n_open, &err),
                         STATUS_OK);
        assert_int_equal(n, 0);
        if (only_state(f, HARMED) != (int)cases[i].end)
            fail_msg("%s: state %d", cases[i].sql, only_state(f, HARMED));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_damaged_batch_harms_no_other, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
