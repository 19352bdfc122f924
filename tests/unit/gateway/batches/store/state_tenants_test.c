/* Tests several tenants in one store: the order in which their lines are taken, and the space
 * that each may use. The tests add batches for up to three tenants, take lines as the runner
 * does, and answer them. Invariants: the tenant with the fewest running lines is next, and no
 * tenant can fill the whole store. */
#include "gateway/batches/store/store.h"

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

enum { N_TENANTS = 3, NOW_S = 100, EXPIRES_S = 1000, STORE_BYTES = 8 << 20 };
/* A tenant's number is a hash, so it can be any 64-bit value. */
static const uint64_t tenants[N_TENANTS] = {7, UINT64_MAX / 2, UINT64_MAX - 5};

struct fixture {
    char dir[64];
    struct state_store *s;
};

static struct error err;

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/coxstate-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    assert_int_equal(state_open(f->dir, STORE_BYTES, &f->s, &err), STATUS_OK);
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

/* Adds a batch. The prompt of each line is the tenant's letter and "batch.line". */
static void add_batch(struct fixture *f, int i_tenant, int i_batch, int n_lines)
{
    struct stored_batch b = {.tenant = tenants[i_tenant],
                             .endpoint = "/v1/completions",
                             .created_s = NOW_S,
                             .expires_s = EXPIRES_S};
    struct stored_file file = {.tenant = b.tenant, .filename = "in", .purpose = "batch"};
    struct strbuf text;
    strbuf_init(&text, 0);
    for (int i = 0; i < n_lines; i++)
        strbuf_printf(&text,
                      "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                      "\"body\":{\"prompt\":\"%c%d.%d\"}}\n",
                      i, "abc"[i_tenant], i_batch, i);
    assert_int_equal(state_add_file(f->s, &file, strbuf_str(&text), &err), STATUS_OK);
    memcpy(b.input_file, file.id, sizeof b.input_file);
    assert_int_equal(state_add_batch(f->s, &b, &err), STATUS_OK);
    assert_int_equal(b.state, BATCH_IN_PROGRESS);
    stored_batch_fini(&b);
    strbuf_fini(&text);
}

/* Takes up to `max` lines and appends them to `out`. Their prompts must be `want`. */
static void take(struct fixture *f, uint32_t max, const char *want, struct taken_line *out)
{
    uint32_t n, n_open;
    char got[256] = "", id[64];
    assert_int_equal(state_take_lines(f->s, max, NOW_S, out, &n, &n_open, &err), STATUS_OK);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(sscanf(out[i].owned_body, "{\"prompt\":\"%63[^\"]", id), 1);
        assert_int_equal(out[i].tenant, tenants[id[0] - 'a']);
        assert_string_equal(out[i].endpoint, "/v1/completions");
        strcat(strcat(got, id), " ");
        mem_free(out[i].owned_body);
        out[i].owned_body = NULL;
    }
    assert_string_equal(got, want);
}

/* Each line has 11 MiB. One call reads at most two of these lines, however many lines it asks
 * for. */
static void test_one_call_reads_so_many_bytes(void **state)
{
    enum { N = 4, LINE = 11 << 20 };
    struct fixture *f = *state;
    struct stored_file file = {.tenant = 7, .filename = "in", .purpose = "batch"};
    struct stored_batch b = {
        .tenant = 7, .endpoint = "/v1/completions", .created_s = NOW_S, .expires_s = EXPIRES_S};
    struct taken_line l[N];
    struct strbuf text;
    uint32_t n, n_open;
    state_close(f->s);
    assert_int_equal(state_open(f->dir, 256 << 20, &f->s, &err), STATUS_OK);
    char *prompt = mem_zalloc(LINE + 1);
    memset(prompt, 'a', LINE);
    strbuf_init(&text, 0);
    for (int i = 0; i < N; i++) {
        strbuf_printf(&text, "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":", i);
        strbuf_append_c(&text, "\"/v1/completions\",\"body\":{\"prompt\":\"");
        strbuf_append(&text, prompt, LINE);
        strbuf_append_c(&text, "\"}}\n");
    }
    assert_int_equal(state_add_file(f->s, &file, strbuf_str(&text), &err), STATUS_OK);
    memcpy(b.input_file, file.id, sizeof b.input_file);
    assert_int_equal(state_add_batch(f->s, &b, &err), STATUS_OK);
    for (uint32_t want = 3; want > 0; want = want == 3 ? 1 : 0) {
        assert_int_equal(state_take_lines(f->s, N, NOW_S, l, &n, &n_open, &err), STATUS_OK);
        assert_int_equal(n, want);
        while (n > 0)
            mem_free(l[--n].owned_body);
    }
    stored_batch_fini(&b);
    strbuf_fini(&text);
    mem_free(prompt);
}

static void answer(struct fixture *f, const struct taken_line *l)
{
    assert_int_equal(state_answer_line(f->s, l->batch_no, l->i_line, 200, STR("{}"), NOW_S, &err),
                     STATUS_OK);
}

static int letters(const struct taken_line *l, int n, uint64_t tenant)
{
    int found = 0;
    for (int i = 0; i < n; i++)
        found += l[i].tenant == tenant;
    return found;
}

/* A tenant's thousands of lines do not keep another tenant's single line waiting. That line gets
 * the next free slot. Then both tenants have equally many slots. */
static void test_the_fewest_on_their_way_go_first(void **state)
{
    struct fixture *f = *state;
    struct taken_line l[16];
    add_batch(f, 0, 0, 2000);
    take(f, 4, "a0.0 a0.1 a0.2 a0.3 ", l);
    add_batch(f, 0, 1, 1);
    add_batch(f, 1, 2, 3);
    answer(f, &l[0]);
    take(f, 1, "b2.0 ", l + 4);
    answer(f, &l[1]);
    take(f, 1, "b2.1 ", l + 5);
    answer(f, &l[2]);
    take(f, 1, "a0.4 ", l + 6); /* tenant a has one running line, and tenant b has two */
    answer(f, &l[4]);
    answer(f, &l[5]);
    take(f, 1, "b2.2 ", l + 7);
    take(f, 2, "a0.5 a0.6 ", l + 8); /* tenant b has no line waiting */
}

/* Many free slots are assigned to the tenants in turn. A tenant's own lines stay in order, from
 * the oldest batch first. */
static void test_slots_are_dealt_out(void **state)
{
    struct fixture *f = *state;
    struct taken_line l[16];
    add_batch(f, 0, 0, 1);
    add_batch(f, 0, 1, 20);
    add_batch(f, 1, 2, 2);
    add_batch(f, 2, 3, 20);
    uint32_t n, n_open;
    assert_int_equal(state_take_lines(f->s, 10, NOW_S, l, &n, &n_open, &err), STATUS_OK);
    assert_int_equal(n, 10);
    assert_int_equal(n_open, 4);
    assert_int_equal(letters(l, 10, tenants[0]), 4);
    assert_int_equal(letters(l, 10, tenants[1]), 2);
    assert_int_equal(letters(l, 10, tenants[2]), 4);
    int64_t before = -1;
    for (int i = 0; i < 10; i++) {
        if (l[i].tenant == tenants[0]) {
            assert_true(l[i].batch_no * 100 + l[i].i_line > before);
            before = l[i].batch_no * 100 + l[i].i_line;
        }
        mem_free(l[i].owned_body);
    }
}

/* With one slot no tenant has a running line when the slot becomes free. The tenants then take
 * turns. */
static void test_one_slot_goes_round(void **state)
{
    struct fixture *f = *state;
    struct taken_line l;
    int seen[N_TENANTS] = {0};
    for (int i = 0; i < N_TENANTS; i++)
        add_batch(f, i, i, 20);
    for (int i = 0; i < 4 * N_TENANTS; i++) {
        uint32_t n, n_open;
        assert_int_equal(state_take_lines(f->s, 1, NOW_S, &l, &n, &n_open, &err), STATUS_OK);
        assert_int_equal(n, 1);
        for (int k = 0; k < N_TENANTS; k++)
            seen[k] += l.tenant == tenants[k];
        mem_free(l.owned_body);
        if (i % 2) /* a line that runs again does not cost the other tenants a turn */
            answer(f, &l);
        else
            assert_int_equal(state_release_line(f->s, l.batch_no, l.i_line, &err), STATUS_OK);
    }
    for (int k = 0; k < N_TENANTS; k++)
        assert_int_equal(seen[k], 4);
}

/* ---- room ---- */

static enum status add_file(struct fixture *f, uint64_t tenant, size_t bytes,
                            struct stored_file *out)
{
    char *text = mem_zalloc(bytes + 1);
    *out = (struct stored_file){.tenant = tenant, .filename = "in", .purpose = "batch"};
    enum status status = state_add_file(f->s, out, (struct str){text, bytes}, &err);
    mem_free(text);
    return status;
}

/* Adds files of decreasing sizes until a file of 4 KiB is refused. Returns the bytes that the
 * files take. */
static uint64_t fill(struct fixture *f, uint64_t tenant)
{
    struct stored_file file;
    uint64_t taken = 0;
    for (size_t bytes = 1 << 20; bytes >= 4 << 10; bytes /= 2)
        while (add_file(f, tenant, bytes, &file) == STATUS_OK)
            taken += bytes;
    return taken;
}

static bool keep_state(void *ctx, const struct stored_batch *b)
{
    *(enum batch_state *)ctx = b->state;
    assert_true(b->state != BATCH_COMPLETED || b->output_file[0]);
    return true;
}

/* Returns the state of the tenant's newest batch. */
static enum batch_state state_of_batch(struct fixture *f, int i_tenant)
{
    const struct state_query q = {.tenant = tenants[i_tenant], .limit = 1};
    enum batch_state found = BATCH_STATE_COUNT;
    bool more;
    assert_int_equal(state_list_batches(f->s, &q, keep_state, &found, &more, &err), STATUS_OK);
    return found;
}

/* One tenant fills the store up to its limit. Each further tenant gets less space than the
 * tenant before it, and another tenant's batch completes. */
static void test_nobody_takes_the_whole_store(void **state)
{
    struct fixture *f = *state;
    struct taken_line l;
    struct stored_file file;
    add_batch(f, 1, 0, 1);
    const uint64_t first = fill(f, tenants[0]);
    assert_in_range(first, STORE_BYTES * 8 / 10, STORE_BYTES * 7 / 8);
    assert_int_equal(add_file(f, tenants[0], 8 << 10, &file), STATUS_DENIED);
    take(f, 1, "b0.0 ", &l);
    answer(f, &l);
    assert_int_equal(state_of_batch(f, 1), BATCH_COMPLETED);
    add_batch(f, 2, 1, 1);
    const uint64_t second = fill(f, tenants[1]);
    assert_in_range(second, STORE_BYTES / 16, STORE_BYTES / 8);
    assert_int_equal(add_file(f, tenants[2], 16 << 10, &file), STATUS_OK);
}

/* A tenant can use the space of its deleted files again. */
static void test_room_comes_back(void **state)
{
    struct fixture *f = *state;
    struct stored_file file, small;
    assert_int_equal(add_file(f, tenants[0], 2 << 20, &file), STATUS_OK);
    (void)fill(f, tenants[0]);
    assert_int_equal(add_file(f, tenants[0], 1 << 20, &small), STATUS_DENIED);
    assert_int_equal(state_delete_file(f->s, tenants[0], str_from(file.id), &err), STATUS_OK);
    assert_int_equal(add_file(f, tenants[0], 1 << 20, &small), STATUS_OK);
}

/* A batch fails when its answers leave too little space for other tenants. Lines of other
 * tenants continue. */
static void test_answers_are_of_the_share(void **state)
{
    struct fixture *f = *state;
    struct taken_line l[3];
    char *text = mem_zalloc((400 << 10) + 1);
    add_batch(f, 0, 0, 2);
    add_batch(f, 1, 1, 1);
    (void)fill(f, tenants[0]);
    take(f, 3, "a0.0 b1.0 a0.1 ", l);
    memset(text, '1', 400 << 10);
    /* about 1 MiB is free, and after the second answer less than 1/16 of the store would be free */
    for (int i = 0; i < 3; i += 2)
        assert_int_equal(
            state_answer_line(f->s, l[i].batch_no, l[i].i_line, 200, str_from(text), NOW_S, &err),
            STATUS_OK);
    mem_free(text);
    answer(f, &l[1]);
    assert_int_equal(state_of_batch(f, 0), BATCH_FAILED);
    assert_int_equal(state_of_batch(f, 1), BATCH_COMPLETED);
}

static void run_sql(sqlite3 *db, const char *sql, int want)
{
    const int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (rc != want)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
}

/* The store opens a database that an earlier version left full and without the columns that were
 * added later. */
static void test_a_full_store_of_an_earlier_version(void **state)
{
    struct fixture *f = *state;
    struct taken_line l;
    char path[96], sql[64];
    sqlite3 *db;
    add_batch(f, 0, 0, 1);
    state_close(f->s);
    f->s = NULL;
    snprintf(path, sizeof path, "%s/state.sqlite", f->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    run_sql(db, "DROP TABLE batch_bytes; DROP INDEX line_taken; DROP INDEX batch_open", SQLITE_OK);
    snprintf(sql, sizeof sql, "PRAGMA max_page_count = %d", STORE_BYTES / 4096);
    run_sql(db, sql, SQLITE_OK);
    static const char add[] = "INSERT INTO file (id, tenant, filename, purpose, created, bytes, "
                              "content) VALUES (hex(randomblob(16)), 7, 'x', 'batch', 1, 4000, "
                              "zeroblob(4000))";
    int rc;
    while ((rc = sqlite3_exec(db, add, NULL, NULL, NULL)) == SQLITE_OK)
        ;
    assert_int_equal(rc, SQLITE_FULL);
    sqlite3_close(db);
    assert_int_equal(state_open(f->dir, STORE_BYTES, &f->s, &err), STATUS_OK);
    assert_true(state_look(f->s).is_open);
    take(f, 1, "a0.0 ", &l);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_the_fewest_on_their_way_go_first), T(test_slots_are_dealt_out),
        T(test_one_call_reads_so_many_bytes),     T(test_one_slot_goes_round),
        T(test_nobody_takes_the_whole_store),     T(test_room_comes_back),
        T(test_answers_are_of_the_share),         T(test_a_full_store_of_an_earlier_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
