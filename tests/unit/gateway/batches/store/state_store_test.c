/* Tests the store behind the Files and Batches API: files, batches, lines and answers in one
 * SQLite database. The tests call the store's functions in the test's own thread, close and open
 * the store again, and make the disk fail. Invariants: content that was acknowledged is there
 * after a restart, a line is answered once, a tenant sees its own rows only, and deleted content
 * is overwritten with zeros. */
#include "gateway/batches/store/store.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"
#include "common/batch/input.h"
#include "common/json/bounded.h"

enum { ME = 1, OTHER = 2, HOUR = 3600, STORE_BYTES = 8 << 20 };

struct fixture {
    char dir[64];
    struct state_store *s;
};

static struct error err;

static void reopen(struct fixture *f)
{
    state_close(f->s);
    f->s = NULL;
    if (state_open(f->dir, STORE_BYTES, &f->s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static int setup(void **state)
{
    struct fixture *f = mem_zalloc(sizeof *f);
    snprintf(f->dir, sizeof f->dir, "/tmp/coxstate-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    reopen(f);
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

static struct stored_file add_file(struct fixture *f, uint64_t tenant, const char *text)
{
    struct stored_file file = {
        .tenant = tenant, .filename = "in.jsonl", .purpose = "batch", .created_s = 100};
    assert_int_equal(state_add_file(f->s, &file, str_from(text), &err), STATUS_OK);
    return file;
}

static void assert_content(struct fixture *f, const char *id, const char *want)
{
    struct stored_file file;
    struct strbuf b;
    strbuf_init(&b, 0);
    assert_int_equal(state_get_file(f->s, ME, str_from(id), &file, &b, &err), STATUS_OK);
    assert_string_equal(strbuf_str(&b).ptr, want);
    assert_int_equal(file.bytes, strlen(want));
    strbuf_fini(&b);
}

static void test_files_outlive_the_process(void **state)
{
    struct fixture *f = *state;
    struct stored_file a = add_file(f, ME, "first"), got;
    reopen(f);
    assert_content(f, a.id, "first");
    assert_int_equal(state_get_file(f->s, ME, str_from(a.id), &got, NULL, &err), STATUS_OK);
    assert_string_equal(got.filename, "in.jsonl");
    assert_int_equal(got.created_s, 100);
    assert_int_equal(state_delete_file(f->s, ME, str_from(a.id), &err), STATUS_OK);
    assert_int_equal(state_get_file(f->s, ME, str_from(a.id), &got, NULL, &err), STATUS_NOT_FOUND);
    assert_int_equal(state_delete_file(f->s, ME, str_from(a.id), &err), STATUS_NOT_FOUND);
}

/* Reads slices of several files in turn, with writes in between. There are more files than the
 * store keeps handles open. */
static void test_files_are_read_in_slices(void **state)
{
    enum { N_FILES = 12, BYTES = 300001, SLICE = 4097 };
    struct fixture *f = *state;
    struct stored_file files[N_FILES];
    char *text = mem_alloc(BYTES + 1), slice[SLICE];
    for (int i = 0; i < N_FILES; i++) {
        for (int k = 0; k < BYTES; k++)
            text[k] = (char)('a' + (i + k / 7) % 26);
        text[BYTES] = '\0';
        files[i] = add_file(f, ME, text);
    }
    for (size_t step = 0; step < 600; step++) {
        const size_t i = step * 7 % N_FILES, at = step * 104729 % BYTES;
        const size_t n = BYTES - at < SLICE ? BYTES - at : SLICE;
        const struct str id = str_from(files[i].id);
        assert_int_equal(state_read_file(f->s, ME, id, at, slice, n, &err), STATUS_OK);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(slice[k], 'a' + (i + (at + k) / 7) % 26);
        if (step % 100 == 50)
            add_file(f, OTHER, "a write");
    }
    const struct str id = str_from(files[3].id);
    assert_int_equal(state_read_file(f->s, ME, id, BYTES, slice, 0, &err), STATUS_OK);
    assert_int_equal(state_read_file(f->s, ME, id, BYTES, slice, 1, &err), STATUS_INVALID);
    assert_int_equal(state_read_file(f->s, ME, id, UINT64_MAX, slice, 1, &err), STATUS_INVALID);
    assert_int_equal(state_read_file(f->s, OTHER, id, 0, slice, 1, &err), STATUS_NOT_FOUND);
    assert_int_equal(state_delete_file(f->s, ME, id, &err), STATUS_OK);
    assert_int_equal(state_read_file(f->s, ME, id, 0, slice, 1, &err), STATUS_NOT_FOUND);
    mem_free(text);
}

static bool count(void *ctx, const struct stored_file *file)
{
    char *ids = ctx;
    strcat(strcat(ids, file->id), " ");
    return true;
}

static bool take_one(void *ctx, const struct stored_file *file)
{
    (void)count(ctx, file);
    return false;
}

static void test_a_tenant_sees_its_own(void **state)
{
    struct fixture *f = *state;
    struct stored_file a = add_file(f, ME, "a"), b = add_file(f, ME, "b"), got;
    struct stored_file x = add_file(f, OTHER, "x");
    struct stored_batch batch = {.tenant = ME, .endpoint = "/v1/completions"};
    char ids[4 * STATE_ID_BYTES] = "", want[4 * STATE_ID_BYTES];
    bool more;
    assert_int_equal(state_get_file(f->s, ME, str_from(x.id), &got, NULL, &err), STATUS_NOT_FOUND);
    assert_int_equal(state_delete_file(f->s, ME, str_from(x.id), &err), STATUS_NOT_FOUND);
    memcpy(batch.input_file, x.id, sizeof x.id);
    assert_int_equal(state_add_batch(f->s, &batch, &err), STATUS_NOT_FOUND);

    struct state_query q = {.tenant = ME, .limit = 1};
    assert_int_equal(state_list_files(f->s, &q, count, ids, &more, &err), STATUS_OK);
    snprintf(want, sizeof want, "%s ", b.id);
    assert_string_equal(ids, want);
    assert_true(more);
    q.after = str_from(b.id);
    ids[0] = '\0';
    assert_int_equal(state_list_files(f->s, &q, count, ids, &more, &err), STATUS_OK);
    snprintf(want, sizeof want, "%s ", a.id);
    assert_string_equal(ids, want);
    assert_false(more);
    q.after = str_from(x.id); /* a list cannot start at a file that it does not contain */
    ids[0] = '\0';
    assert_int_equal(state_list_files(f->s, &q, count, ids, &more, &err), STATUS_OK);
    assert_string_equal(ids, "");
}

static void test_full_is_said(void **state)
{
    struct fixture *f = *state;
    char *big = mem_zalloc(STORE_BYTES + 1);
    struct stored_file file = {.tenant = ME, .purpose = "batch"};
    assert_int_equal(state_add_file(f->s, &file, (struct str){big, STORE_BYTES}, &err),
                     STATUS_DENIED);
    mem_free(big);
    (void)add_file(f, ME, "a small one still has room");
}

static void test_a_folder_is_one_gateways(void **state)
{
    struct fixture *f = *state;
    struct state_store *second;
    assert_int_equal(state_open(f->dir, STORE_BYTES, &second, &err), STATUS_EXISTS);
    assert_non_null(strstr(err.text, "another gateway"));
}

/* ---- batches ---- */

#define LINE(id)                                                                                   \
    "{\"custom_id\":\"" id "\",\"method\":\"POST\",\"url\":\"/v1/completions\","                   \
    "\"body\":{\"prompt\":\"" id "\"}}\n"

static struct stored_batch add_batch(struct fixture *f, const char *input)
{
    struct stored_file file = add_file(f, ME, input);
    struct stored_batch b = {
        .tenant = ME, .endpoint = "/v1/completions", .created_s = 1000, .expires_s = 1000 + HOUR};
    memcpy(b.input_file, file.id, sizeof file.id);
    assert_int_equal(state_add_batch(f->s, &b, &err), STATUS_OK);
    return b;
}

static struct stored_batch get_batch(struct fixture *f, const char *id)
{
    struct stored_batch b;
    assert_int_equal(state_get_batch(f->s, ME, str_from(id), &b, &err), STATUS_OK);
    stored_batch_fini(&b);
    return b;
}

/* Takes up to `max` lines. The ids in the lines' bodies must be `want`, written as "a b ". */
static uint32_t take(struct fixture *f, uint32_t max, const char *want, struct taken_line *out)
{
    uint32_t n, n_open;
    char got[256] = "", id[64];
    assert_int_equal(state_take_lines(f->s, max, 1001, out, &n, &n_open, &err), STATUS_OK);
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(sscanf(out[i].owned_body, "{\"prompt\":\"%63[^\"]", id), 1);
        strcat(strcat(got, id), " ");
        mem_free(out[i].owned_body);
    }
    assert_string_equal(got, want);
    return n_open;
}

static void answer(struct fixture *f, const struct taken_line *l, int status, const char *text)
{
    assert_int_equal(
        state_answer_line(f->s, l->batch_no, l->i_line, status, str_from(text), 1002, &err),
        STATUS_OK);
}

static void test_lines_run_once(void **state)
{
    struct fixture *f = *state;
    struct stored_batch b = add_batch(f, LINE("a") "\r\n" LINE("b") LINE("c"));
    struct taken_line l[4];
    char want[2600];
    assert_int_equal(take(f, 2, "a b ", l), 1);
    answer(f, &l[0], 200, "{\"x\":1}");
    /* this answer is ignored, because the line already has an answer */
    answer(f, &l[0], 200, "{\"x\":\"twice\"}");
    assert_int_equal(state_release_line(f->s, l[1].batch_no, l[1].i_line, &err), STATUS_OK);
    (void)take(f, 4, "b c ", l);
    reopen(f); /* b and c were running, so they run again; a does not run again */
    (void)take(f, 4, "b c ", l);
    (void)take(f, 4, "", l + 2);
    answer(f, &l[1], 200, "{\"x\":3}");
    assert_int_equal(get_batch(f, b.id).n_completed, 2);
    assert_int_equal(get_batch(f, b.id).state, BATCH_IN_PROGRESS);
    answer(f, &l[0], 400, "{\"error\":{}}");

    struct stored_batch end = get_batch(f, b.id);
    assert_int_equal(end.state, BATCH_COMPLETED);
    assert_int_equal(end.n_lines, 3);
    assert_int_equal(end.n_completed, 2);
    assert_int_equal(end.n_failed, 1);
    assert_int_equal(end.ended_s, 1002);
    const char *hex = b.id + strlen("batch_");
    snprintf(want, sizeof want,
             "{\"id\":\"batch_req_%s_0\",\"custom_id\":\"a\",\"response\":{\"status_code\":200,"
             "\"request_id\":\"req_%s_0\",\"body\":{\"x\":1}},\"error\":null}\n"
             "{\"id\":\"batch_req_%s_2\",\"custom_id\":\"c\",\"response\":{\"status_code\":200,"
             "\"request_id\":\"req_%s_2\",\"body\":{\"x\":3}},\"error\":null}\n",
             hex, hex, hex, hex);
    assert_content(f, end.output_file, want);
    snprintf(want, sizeof want,
             "{\"id\":\"batch_req_%s_1\",\"custom_id\":\"b\",\"response\":{\"status_code\":400,"
             "\"request_id\":\"req_%s_1\",\"body\":{\"error\":{}}},\"error\":null}\n",
             hex, hex);
    assert_content(f, end.error_file, want);
    assert_int_equal(take(f, 4, "", l), 0);
}

/* When a batch ends early, its answers are kept, its other lines become errors, and late answers
 * change nothing. */
static void test_cut_short(void **state)
{
    for (int late = 0; late < 2; late++) {
        struct fixture *f = *state;
        struct stored_batch b = add_batch(f, LINE("a") LINE("b")), end;
        struct taken_line l[4];
        uint32_t n, n_open;
        int64_t no = 0;
        char want[2600];
        (void)take(f, 2, "a b ", l);
        answer(f, &l[0], 200, "{}");
        if (late) {
            assert_int_equal(state_take_lines(f->s, 4, 1000 + HOUR, l + 2, &n, &n_open, &err),
                             STATUS_OK);
            assert_int_equal(n + n_open, 0);
        } else {
            assert_int_equal(state_cancel_batch(f->s, OTHER, str_from(b.id), 1003, &end, &no, &err),
                             STATUS_NOT_FOUND);
            assert_int_equal(state_cancel_batch(f->s, ME, str_from(b.id), 1003, &end, &no, &err),
                             STATUS_OK);
            assert_int_equal(no, l[0].batch_no);
        }
        answer(f, &l[1], 200, "{}");
        end = get_batch(f, b.id);
        assert_int_equal(end.state, late ? BATCH_EXPIRED : BATCH_CANCELLED);
        assert_int_equal(end.n_completed, 1);
        assert_string_not_equal(end.output_file, "");
        snprintf(want, sizeof want,
                 "{\"id\":\"batch_req_%s_1\",\"custom_id\":\"b\",\"response\":null,\"error\":"
                 "{\"code\":\"batch_%s\",\"message\":\"This request could not be executed before "
                 "the %s\"}}\n",
                 b.id + strlen("batch_"), late ? "expired" : "cancelled",
                 late ? "completion window expired." : "batch was cancelled.");
        assert_content(f, end.error_file, want);
        assert_int_equal(state_cancel_batch(f->s, ME, str_from(b.id), 1003, &end, &no, &err),
                         STATUS_INVALID);
    }
}

static void test_what_is_no_batch(void **state)
{
    static const struct {
        const char *input, *why;
        uint32_t line;
    } cases[] = {
        {"", "the file has no lines", 0},
        {" \n\n", "the file has no lines", 0},
        {LINE("a") "nonsense\n", "the line is not JSON", 2},
        {"[]", "the line must be a JSON object", 1},
        {LINE("a") "\n" LINE("a"), "custom_id: another line has the same", 3},
        {"{\"custom_id\":7}", "custom_id must be a string", 1},
        {"{\"custom_id\":\"\"}", "custom_id must be a string", 1},
        {"{\"custom_id\":\"a\",\"method\":\"GET\"}", "method must be", 1},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/models\"}", "url must be", 1},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\"}", "body must be",
         1},
        {"{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\","
         "\"body\":{\"stream\":true}}",
         "body.stream cannot be true", 1},
    };
    struct fixture *f = *state;
    struct taken_line l[1];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stored_batch b = add_batch(f, cases[i].input), got = get_batch(f, b.id);
        assert_int_equal(got.state, BATCH_FAILED);
        assert_int_equal(got.n_lines, 0);
        if (strncmp(got.failure, cases[i].why, strlen(cases[i].why)) != 0 ||
            got.i_line_of_failure != cases[i].line)
            fail_msg("%s: \"%s\" in line %u", cases[i].input, got.failure, got.i_line_of_failure);
        assert_int_equal(take(f, 1, "", l), 0);
    }
}

#define BODY_LINE(body)                                                                            \
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":" body "}"

static char *line_of(const char *begin, const char *piece, size_t n, const char *end)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    strbuf_append_c(&b, begin);
    for (size_t i = 0; i < n; i++)
        strbuf_append_c(&b, piece);
    strbuf_append_c(&b, end);
    return b.ptr;
}

/* A line's body has the same limits as a request's body, so that no JSON tree of millions of
 * values is built. Its numbers may have any size where the gateway only forwards them. */
static void test_lines_have_the_bounds_of_bodies(void **state)
{
    static const char begin[] =
        "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\","
        "\"body\":{\"prompt\":[";
    static const char numbers[] =
        BODY_LINE("{\"big\":18446744073709551616,\"real\":1e999,\"text\":\"a\\u0000b\"}");
    const struct {
        char *owned;
        const char *why; /* expected reason of the refusal; NULL = the line is valid */
    } cases[] = {
        {line_of(begin, "1,", JSON_BODY_MAX_VALUES - 8, "1]}}"), NULL},
        {line_of(begin, "1,", JSON_BODY_MAX_VALUES + 64, "1]}}"), "the line has more than"},
        {line_of(begin, "[", JSON_BODY_MAX_DEPTH, ""), "the line is nested deeper"},
        {line_of(begin, "[", JSON_BODY_MAX_DEPTH - 2, ""), "the line is not JSON"},
        {line_of(begin, "\"\xff\",", 1, "1]}}"), "the line is not JSON: it is not valid UTF-8"},
        {line_of(numbers, "", 0, ""), NULL},
        {line_of(BODY_LINE("18446744073709551616"), "", 0, ""), "body must be a JSON object"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct batch_input_line l;
        char why[200] = "";
        bool ok = batch_input_read(str_from(cases[i].owned), "/v1/completions", &l, why);
        if (ok != !cases[i].why || (!ok && strncmp(why, cases[i].why, strlen(cases[i].why)) != 0))
            fail_msg("case %zu: %d, %s", i, ok, why);
        if (i == 5)
            assert_string_equal(
                l.owned_body,
                "{\"big\":18446744073709551616,\"real\":1e999,\"text\":\"a\\u0000b\"}");
        if (ok)
            batch_input_line_fini(&l);
        mem_free(cases[i].owned);
    }
}

/* A batch fails when its answers do not fit into its lines or into its output file. The next
 * batch runs. */
static void test_no_room_for_answers(void **state)
{
    struct fixture *f = *state;
    /* the bytes are stored twice, as a line and as a file */
    static const size_t sizes[] = {STORE_BYTES * 5 / 8, STORE_BYTES};
    for (size_t i = 0; i < 2; i++) {
        struct stored_batch full = add_batch(f, LINE("a") LINE("b")),
                            next = add_batch(f, LINE("c"));
        struct taken_line lines[2], last;
        char *big = mem_zalloc(sizes[i] + 1);
        memset(big, '1', sizes[i]);
        (void)take(f, 2, "a b ", lines);
        answer(f, &lines[1], 400, "{}");
        answer(f, &lines[0], 200, big);
        mem_free(big);
        full = get_batch(f, full.id);
        assert_int_equal(full.state, BATCH_FAILED);
        assert_int_equal(full.ended_s, 1002);
        assert_non_null(strstr(full.failure, "no room"));
        assert_string_equal(full.output_file, "");
        assert_string_equal(full.error_file, "");
        assert_int_equal(take(f, 2, "c ", &last), 1);
        answer(f, &last, 200, "{}");
        next = get_batch(f, next.id);
        assert_int_equal(next.state, BATCH_COMPLETED);
        assert_string_not_equal(next.output_file, "");
    }
}

/* ---- disk errors ---- */

static enum status add_of(struct fixture *f, uint64_t tenant, size_t bytes, struct stored_file *out)
{
    char *text = mem_zalloc(bytes);
    memset(text, 'x', bytes);
    *out = (struct stored_file){.tenant = tenant, .filename = "in.jsonl", .purpose = "batch"};
    enum status s = state_add_file(f->s, out, (struct str){text, bytes}, &err);
    mem_free(text);
    return s;
}

static enum status add_once(struct fixture *f, size_t bytes, struct stored_file *out)
{
    return add_of(f, ME, bytes, out);
}

/* Adds a file as an API call does: tries again while the store frees space. */
static enum status try_add(struct fixture *f, size_t bytes, struct stored_file *out)
{
    enum status s;
    while ((s = add_once(f, bytes, out)) == STATUS_AGAIN)
        ;
    return s;
}

/* Waits until the store is open again. The store tries after one second. On a busy machine it
 * may be later. */
static void wait_until_it_is_back(struct fixture *f)
{
    struct stored_file file;
    for (int i = 0; i < 600 && !state_look(f->s).is_open; i++)
        usleep(50000);
    assert_int_equal(try_add(f, 100, &file), STATUS_OK);
}

static void path_of(const struct fixture *f, const char *name, char out[128])
{
    snprintf(out, 128, "%s/%s", f->dir, name);
}

static void test_a_foreign_file_keeps_nobody_from_starting(void **state)
{
    struct fixture *f = *state;
    struct stored_file file;
    char path[128];
    path_of(f, "state.sqlite", path);
    state_close(f->s);
    FILE *out = fopen(path, "we");
    for (int i = 0; i < 3000; i++)
        fputs("this is no database\n", out);
    fclose(out);
    assert_int_equal(state_open(f->dir, STORE_BYTES, &f->s, &err), STATUS_OK);
    assert_int_equal(try_add(f, 100, &file), STATUS_CLOSED);
    assert_non_null(strstr(err.text, "not a database"));
    struct state_health h = state_look(f->s);
    assert_false(h.is_open || h.disk_full);
    assert_int_equal(h.n_lost, 1); /* the store makes no second attempt before the retry is due */
    assert_int_equal(unlink(path), 0);
    wait_until_it_is_back(f);
}

static void test_a_file_that_vanishes(void **state)
{
    struct fixture *f = *state;
    struct stored_file file;
    char path[128];
    path_of(f, "state.sqlite", path);
    add_file(f, ME, "before");
    assert_int_equal(unlink(path), 0);
    /* the store does not write into an unlinked file */
    assert_int_equal(try_add(f, 100, &file), STATUS_CLOSED);
    assert_int_equal(state_look(f->s).n_lost, 1);
    wait_until_it_is_back(f);
}

static void test_a_folder_that_is_no_folder(void **state)
{
    struct fixture *f = *state;
    struct state_store *s = NULL;
    char path[128];
    path_of(f, "state.sqlite/below", path);
    assert_int_equal(state_open(path, STORE_BYTES, &s, &err), STATUS_INVALID);
    assert_null(s);
}

/* Deletions work when files cannot grow. The test limits the file size in place of a full disk
 * or a quota. */
static void test_deletions_go_on_where_nothing_may_grow(void **state)
{
    struct fixture *f = *state;
    struct stored_file file, more;
    struct rlimit before, low = {0};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, old;
    assert_int_equal(try_add(f, 1 << 20, &file), STATUS_OK);
    sigaction(SIGXFSZ, &ignore, &old);
    getrlimit(RLIMIT_FSIZE, &before);
    low = (struct rlimit){.rlim_cur = 1200 << 10, .rlim_max = before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &low);
    assert_int_equal(try_add(f, 2 << 20, &more), STATUS_NO_MEMORY);
    assert_true(state_look(f->s).is_open);
    assert_int_equal(state_get_file(f->s, ME, str_from(file.id), &more, NULL, &err), STATUS_OK);
    state_close(f->s);
    assert_int_equal(state_open(f->dir, STORE_BYTES, &f->s, &err), STATUS_OK);
    assert_int_equal(state_delete_file(f->s, ME, str_from(file.id), &err), STATUS_OK);
    assert_int_equal(try_add(f, 300 << 10, &more), STATUS_OK);
    setrlimit(RLIMIT_FSIZE, &before);
    sigaction(SIGXFSZ, &old, NULL);
    assert_int_equal(try_add(f, 2 << 20, &more), STATUS_OK);
}

static uint64_t bytes_of(const struct fixture *f, const char *name)
{
    struct stat st;
    char path[128];
    path_of(f, name, path);
    return stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

static void test_a_long_log_is_cut(void **state)
{
    struct fixture *f = *state;
    struct stored_file file;
    assert_int_equal(try_add(f, 5 << 20, &file), STATUS_OK);
    assert_int_equal(bytes_of(f, "state.sqlite-wal"), 0);
    assert_true(bytes_of(f, "state.sqlite") >= 5 << 20);
    assert_int_equal(bytes_of(f, "state.reserve"), 2 << 20);
}

/* ---- deleted piece by piece ---- */

enum { LARGE_BYTES = 6 << 20 }; /* size of a file that is deleted in two pieces */

static void assert_gone(struct fixture *f, const char *id)
{
    struct stored_file file;
    char byte, ids[1024] = "";
    bool more;
    struct state_query q = {.tenant = ME, .limit = 9};
    struct str s = str_from(id);
    assert_int_equal(state_get_file(f->s, ME, s, &file, NULL, &err), STATUS_NOT_FOUND);
    assert_int_equal(state_read_file(f->s, ME, s, 0, &byte, 1, &err), STATUS_NOT_FOUND);
    assert_int_equal(state_delete_file(f->s, ME, s, &err), STATUS_NOT_FOUND);
    assert_int_equal(state_list_files(f->s, &q, count, ids, &more, &err), STATUS_OK);
    assert_null(strstr(ids, id));
}

static uint32_t looks_until_done(struct fixture *f)
{
    uint32_t n = 1;
    while (state_look(f->s).has_more)
        assert_true(++n < 1000);
    return n;
}

/* Returns true when a piece of the deleted content is still in the file. This may happen on a
 * disk with little free space. */
static bool is_in_file(const struct fixture *f, const char *name)
{
    char path[128], block[65536];
    size_t n;
    bool found = false;
    path_of(f, name, path);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (!found && (n = fread(block, 1, sizeof block, file)) > 0)
        found = memmem(block, n, "xxxxxxxxxxxxxxxx", 16) != NULL;
    fclose(file);
    return found;
}

static bool disk_is_low(const struct fixture *f)
{
    struct statvfs v;
    assert_int_equal(statvfs(f->dir, &v), 0);
    return v.f_bavail < v.f_blocks / 20 || v.f_bavail * v.f_frsize < 64ull << 20;
}

static void test_a_large_file_goes_piece_by_piece(void **state)
{
    struct fixture *f = *state;
    struct stored_file file, small;
    assert_int_equal(try_add(f, LARGE_BYTES, &file), STATUS_OK);
    assert_int_equal(try_add(f, 1000, &small), STATUS_OK);
    assert_true(is_in_file(f, "state.sqlite"));
    assert_int_equal(state_delete_file(f->s, ME, str_from(file.id), &err), STATUS_OK);
    assert_gone(f, file.id);
    assert_true(state_look(f->s).has_more);
    reopen(f); /* the store is closed in the middle of the deletion */
    assert_gone(f, file.id);
    const uint32_t n = looks_until_done(f);
    assert_in_range(n, 2, LARGE_BYTES / (4 << 20) + 2 + (disk_is_low(f) ? 2 : 0));
    assert_gone(f, file.id);
    assert_int_equal(state_get_file(f->s, ME, str_from(small.id), &file, NULL, &err), STATUS_OK);
    assert_int_equal(state_delete_file(f->s, ME, str_from(small.id), &err), STATUS_OK);
    state_close(f->s); /* state_close writes the log into the database file */
    f->s = NULL;
    assert_true(disk_is_low(f) || !is_in_file(f, "state.sqlite"));
    reopen(f);
    assert_int_equal(try_add(f, LARGE_BYTES, &file), STATUS_OK);
}

/* An upload uses the space of a file that is being deleted, without waiting for the next
 * `state_look`. Each call frees a piece, and the upload then continues. */
static void test_an_upload_takes_the_room_of_what_goes(void **state)
{
    struct fixture *f = *state;
    struct stored_file file, next;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try_add(f, LARGE_BYTES, &file), STATUS_OK);
        assert_int_equal(add_once(f, LARGE_BYTES, &next), STATUS_DENIED);
        assert_int_equal(state_delete_file(f->s, ME, str_from(file.id), &err), STATUS_OK);
        uint32_t n = 0; /* number of calls; each call frees one piece */
        enum status s;
        while ((s = add_once(f, LARGE_BYTES, &next)) == STATUS_AGAIN)
            n++;
        assert_int_equal(s, STATUS_OK);
        assert_in_range(n, 1, LARGE_BYTES / (4 << 20) + 1);
        assert_int_equal(state_delete_file(f->s, ME, str_from(next.id), &err), STATUS_OK);
    }
}

/* Deleted content is overwritten with zeros also when another tenant's upload uses its space.
 * That upload exceeds its own share until the space is free. */
static void test_what_goes_is_overwritten_for_others_too(void **state)
{
    struct fixture *f = *state;
    struct stored_file file, next = {.tenant = OTHER, .filename = "in", .purpose = "batch"};
    assert_int_equal(try_add(f, LARGE_BYTES, &file), STATUS_OK);
    assert_int_equal(state_delete_file(f->s, ME, str_from(file.id), &err), STATUS_OK);
    char *text = mem_zalloc(LARGE_BYTES);
    enum status s;
    while ((s = state_add_file(f->s, &next, (struct str){text, LARGE_BYTES / 2}, &err)) ==
           STATUS_AGAIN)
        ;
    mem_free(text);
    assert_int_equal(s, STATUS_OK);
    state_close(f->s); /* state_close writes the log into the database file */
    f->s = NULL;
    assert_true(disk_is_low(f) || !is_in_file(f, "state.sqlite"));
    reopen(f);
}

/* A store may be so full that no page is left to record a deletion. Then the file is deleted at
 * once. */
static void test_a_large_file_goes_from_a_full_store(void **state)
{
    struct fixture *f = *state;
    struct stored_file file, small;
    assert_int_equal(try_add(f, LARGE_BYTES, &file), STATUS_OK);
    for (uint64_t tenant = OTHER; tenant < OTHER + 16; tenant++)
        for (size_t bytes = 1 << 20; bytes >= 1; bytes /= 2)
            while (add_of(f, tenant, bytes, &small) == STATUS_OK)
                ;
    assert_int_equal(add_of(f, 1000, 4 << 10, &small), STATUS_DENIED);
    assert_int_equal(state_delete_file(f->s, ME, str_from(file.id), &err), STATUS_OK);
    assert_gone(f, file.id);
    assert_int_equal(try_add(f, LARGE_BYTES - (1 << 20), &file), STATUS_OK);
}

/* A list stops when `each` returns false, and reports that more entries follow. */
static void test_a_list_ends_with_its_reader(void **state)
{
    struct fixture *f = *state;
    struct state_query q = {.tenant = ME, .limit = 9, .oldest_first = true};
    struct stored_file a = add_file(f, ME, "a"), b = add_file(f, ME, "b");
    char ids[256] = "";
    bool more = false;
    assert_int_equal(state_list_files(f->s, &q, take_one, ids, &more, &err), STATUS_OK);
    assert_true(more);
    assert_memory_equal(ids, a.id, strlen(a.id));
    ids[0] = '\0';
    q.after = str_from(a.id);
    assert_int_equal(state_list_files(f->s, &q, take_one, ids, &more, &err), STATUS_OK);
    assert_false(more);
    assert_memory_equal(ids, b.id, strlen(b.id));
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_files_outlive_the_process),
        T(test_files_are_read_in_slices),
        T(test_a_tenant_sees_its_own),
        T(test_full_is_said),
        T(test_a_folder_is_one_gateways),
        T(test_lines_run_once),
        T(test_cut_short),
        T(test_what_is_no_batch),
        T(test_no_room_for_answers),
        T(test_a_foreign_file_keeps_nobody_from_starting),
        T(test_a_file_that_vanishes),
        T(test_a_folder_that_is_no_folder),
        T(test_deletions_go_on_where_nothing_may_grow),
        T(test_a_long_log_is_cut),
        T(test_a_large_file_goes_piece_by_piece),
        T(test_an_upload_takes_the_room_of_what_goes),
        T(test_what_goes_is_overwritten_for_others_too),
        T(test_a_large_file_goes_from_a_full_store),
        T(test_a_list_ends_with_its_reader),
        cmocka_unit_test(test_lines_have_the_bounds_of_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
