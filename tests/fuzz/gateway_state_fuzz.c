/* Fuzzes a gateway's state folder that was damaged while the gateway was away. The gateway
 * starts, answers each call, and ends. In the first byte, bit 0 set means that single values of
 * rows are replaced, by any type. Otherwise bytes of the database's file are replaced, and bit 1
 * cuts the file. Then each RECORD_BYTES describe one change. make_databases makes the databases
 * once for each process; each input damages a copy of one database. */
#include <dirent.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/mem.h"
#include "gateway/batches/store/store.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { ME = 1, CREATED_S = 100, EXPIRES_S = 1000, STORE_BYTES = 8 << 20, RECORD_BYTES = 10 };
enum { RECORDS_MAX = 48, N_TAKEN = 4, N_LOOKS = 4, LONG_BYTES = 5000 };

struct database {
    char *ptr;
    size_t n;
};

static char dir[64], path[96];
/* `typed` and `untyped` are databases with the same rows. The second accepts any type of value. */
static struct database typed, untyped;
static struct error err;

static const char lines[] =
    "{\"custom_id\":\"a\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"n\":1}}\n"
    "{\"custom_id\":\"b\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"n\":2}}\n"
    "{\"custom_id\":\"c\",\"method\":\"POST\",\"url\":\"/v1/completions\",\"body\":{\"n\":3}}\n";

/* ---- the folder ---- */

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void empty_folder(void)
{
    char name[400];
    DIR *d = opendir(dir);
    must(d);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            snprintf(name, sizeof name, "%s/%s", dir, e->d_name);
            must(unlink(name) == 0);
        }
    closedir(d);
}

static void remove_folder(void)
{
    empty_folder();
    (void)rmdir(dir);
}

static struct database read_database(void)
{
    struct database b = {0};
    FILE *f = fopen(path, "rb");
    must(f && fseek(f, 0, SEEK_END) == 0);
    b.n = (size_t)ftell(f);
    b.ptr = mem_alloc(b.n);
    rewind(f);
    must(fread(b.ptr, 1, b.n, f) == b.n);
    fclose(f);
    return b;
}

static void write_database(const char *ptr, size_t n)
{
    FILE *f = fopen(path, "wb");
    must(f && fwrite(ptr, 1, n, f) == n && fclose(f) == 0);
}

static void run_sql(const char *sql)
{
    sqlite3 *db;
    must(sqlite3_open(path, &db) == SQLITE_OK);
    must(sqlite3_exec(db, sql, NULL, NULL, NULL) == SQLITE_OK);
    must(sqlite3_close(db) == SQLITE_OK);
}

static void add_file(struct state_store *s, struct stored_file *f, const char *text)
{
    *f = (struct stored_file){
        .tenant = ME, .filename = "in.jsonl", .purpose = "batch", .created_s = CREATED_S};
    must(state_add_file(s, f, str_from(text), &err) == STATUS_OK);
}

static void add_batch(struct state_store *s, const struct stored_file *input)
{
    struct stored_batch b = {.tenant = ME,
                             .endpoint = "/v1/completions",
                             .created_s = CREATED_S,
                             .expires_s = EXPIRES_S,
                             .owned_metadata = mem_strdup("{\"a\":\"b\"}")};
    memcpy(b.input_file, input->id, sizeof b.input_file);
    must(state_add_batch(s, &b, &err) == STATUS_OK);
    stored_batch_fini(&b);
}

/* Makes files, a batch in progress (one line answered, one taken, one waiting), a waiting batch,
 * and a file that is being deleted. Ids are the same in every process, so that inputs are
 * repeatable. */
static void make_databases(void)
{
    struct state_store *s;
    struct stored_file in, extra;
    struct taken_line l[2];
    uint32_t n, n_open;
    must(state_open(dir, STORE_BYTES, &s, &err) == STATUS_OK);
    add_file(s, &in, lines);
    add_file(s, &extra, "another file");
    add_batch(s, &in);
    add_batch(s, &in);
    must(state_take_lines(s, 2, CREATED_S, l, &n, &n_open, &err) == STATUS_OK && n == 2);
    must(state_answer_line(s, l[0].batch_no, l[0].i_line, 200, STR("{}"), CREATED_S, &err) ==
         STATUS_OK);
    for (uint32_t i = 0; i < n; i++)
        mem_free(l[i].owned_body);
    state_close(s);
    run_sql("UPDATE file SET id = printf('file-%032d', no);"
            "UPDATE batch SET id = printf('batch_%032d', no), input = printf('file-%032d', 1);"
            "INSERT INTO gone (no, zeroed) VALUES (2, 0); VACUUM");
    typed = read_database();
    run_sql("PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(replace(replace("
            "replace(sql, ' NOT NULL', ''), ' TEXT', ''), ' BLOB', ''), ' INTEGER,', ',')");
    untyped = read_database();
}

static void prepare(void)
{
    snprintf(dir, sizeof dir, "%s/coxfuzz-XXXXXX", access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm");
    must(mkdtemp(dir));
    (void)atexit(remove_folder);
    snprintf(path, sizeof path, "%s/state.sqlite", dir);
    log_init("fuzz", LOG_ERROR, LOG_LOGFMT);
    make_databases();
}

/* ---- the damage ---- */

static void change_bytes(const uint8_t *data, size_t size, bool cut)
{
    char *changed = mem_alloc(typed.n);
    size_t n = typed.n;
    memcpy(changed, typed.ptr, n);
    for (; size >= RECORD_BYTES; data += RECORD_BYTES, size -= RECORD_BYTES) {
        const size_t at = (data[0] | (size_t)data[1] << 8 | (size_t)data[2] << 16) % typed.n;
        const size_t room = typed.n - at, n_new = 1 + data[3] % 6u;
        memcpy(changed + at, data + 4, n_new < room ? n_new : room);
        if (cut)
            n = at;
        cut = false;
    }
    write_database(changed, n);
    mem_free(changed);
}

static void bind(sqlite3_stmt *q, uint8_t kind, const uint8_t value[8])
{
    static char text[LONG_BYTES];
    int64_t number;
    double real;
    memcpy(&number, value, sizeof number);
    memcpy(&real, value, sizeof real);
    memset(text, '_', sizeof text);
    switch (kind % 7u) {
    case 0:
        sqlite3_bind_null(q, 1);
        break;
    case 1:
        sqlite3_bind_int64(q, 1, number);
        break;
    case 2:
        sqlite3_bind_int64(q, 1, (int8_t)value[0]);
        break;
    case 3:
        sqlite3_bind_double(q, 1, real);
        break;
    case 4:
        sqlite3_bind_text(q, 1, (const char *)value, value[7] % 8, SQLITE_TRANSIENT);
        break;
    case 5:
        sqlite3_bind_blob(q, 1, value, value[7] % 8, SQLITE_TRANSIENT);
        break;
    default:
        sqlite3_bind_text(q, 1, text, (value[0] | value[1] << 8) % LONG_BYTES, SQLITE_TRANSIENT);
    }
}

static void change_values(const uint8_t *data, size_t size)
{
    static const char *const columns[] = {
        "file SET id",       "file SET tenant",        "file SET filename", "file SET purpose",
        "file SET created",  "file SET bytes",         "file SET content",  "batch SET id",
        "batch SET tenant",  "batch SET endpoint",     "batch SET input",   "batch SET output",
        "batch SET error",   "batch SET state",        "batch SET created", "batch SET expires",
        "batch SET ended",   "batch SET lines",        "batch SET failed",  "batch SET completed",
        "batch SET failure", "batch SET metadata",     "line SET batch",    "line SET n",
        "line SET body",     "batch SET failure_line", "line SET status",   "line SET answer",
        "line SET state",    "line SET custom_id",     "gone SET zeroed",   "gone SET no"};
    enum { N = sizeof columns / sizeof *columns };
    sqlite3 *db;
    write_database(untyped.ptr, untyped.n);
    must(sqlite3_open(path, &db) == SQLITE_OK);
    sqlite3_exec(db, "BEGIN", NULL, NULL, NULL);
    for (; size >= RECORD_BYTES; data += RECORD_BYTES, size -= RECORD_BYTES) {
        const char *column = columns[data[0] % N];
        const int row = data[1] >> 4 & 3; /* number of the row to change; 0 = all rows */
        char sql[160];
        sqlite3_stmt *q;
        snprintf(sql, sizeof sql, "UPDATE OR IGNORE %s = ?1 WHERE ?2 = 0 OR %s = ?2", column,
                 column[0] == 'l' ? "n + 1" : "no");
        must(sqlite3_prepare_v2(db, sql, -1, &q, NULL) == SQLITE_OK);
        bind(q, data[1] & 15, data + 2);
        sqlite3_bind_int(q, 2, row);
        (void)sqlite3_step(q);
        sqlite3_finalize(q);
    }
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    must(sqlite3_close(db) == SQLITE_OK);
}

/* ---- calls after the damage ---- */

/* Checks a call. It must work, or its status must give the reason. */
static void tell(enum status s)
{
    must(s == STATUS_OK || err.text[0] != '\0');
    err.text[0] = '\0';
}

struct seen {
    struct state_store *s;
    char files[2][STATE_ID_BYTES], batches[2][STATE_ID_BYTES];
    uint32_t n_files, n_batches;
};

static bool see_file(void *ctx, const struct stored_file *f)
{
    struct seen *seen = ctx;
    must(memchr(f->id, 0, sizeof f->id) && memchr(f->filename, 0, sizeof f->filename) &&
         memchr(f->purpose, 0, sizeof f->purpose));
    if (seen->n_files < 2)
        memcpy(seen->files[seen->n_files++], f->id, sizeof f->id);
    return true;
}

static void check_batch(const struct stored_batch *b)
{
    must((unsigned)b->state < BATCH_STATE_COUNT);
    must(memchr(b->id, 0, sizeof b->id) && memchr(b->endpoint, 0, sizeof b->endpoint) &&
         memchr(b->failure, 0, sizeof b->failure) &&
         memchr(b->input_file, 0, sizeof b->input_file) &&
         memchr(b->output_file, 0, sizeof b->output_file) &&
         memchr(b->error_file, 0, sizeof b->error_file));
}

static bool see_batch(void *ctx, const struct stored_batch *b)
{
    struct seen *seen = ctx;
    check_batch(b);
    if (seen->n_batches < 2)
        memcpy(seen->batches[seen->n_batches++], b->id, sizeof b->id);
    return true;
}

static void list(struct seen *seen)
{
    const struct state_query q = {.tenant = ME, .limit = 10};
    bool more;
    tell(state_list_files(seen->s, &q, see_file, seen, &more, &err));
    tell(state_list_batches(seen->s, &q, see_batch, seen, &more, &err));
}

static void read_files(struct seen *seen)
{
    char slice[16];
    for (uint32_t i = 0; i < seen->n_files; i++) {
        struct stored_file f;
        struct strbuf content;
        strbuf_init(&content, STORE_BYTES);
        tell(state_get_file(seen->s, ME, str_from(seen->files[i]), &f, &content, &err));
        tell(state_read_file(seen->s, ME, str_from(seen->files[i]), 3, slice, sizeof slice, &err));
        strbuf_fini(&content);
    }
}

/* Returns true when some line could be taken. A taken line must not be offered again. */
static bool run_lines(struct state_store *s, uint64_t now_s)
{
    struct taken_line l[N_TAKEN];
    uint32_t n, n_open;
    if (state_take_lines(s, N_TAKEN, now_s, l, &n, &n_open, &err) != STATUS_OK)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        must(l[i].owned_body && memchr(l[i].endpoint, 0, sizeof l[i].endpoint));
        tell(state_answer_line(s, l[i].batch_no, l[i].i_line, 200, STR("{}"), now_s, &err));
        mem_free(l[i].owned_body);
    }
    return n > 0;
}

static void end_all(struct seen *seen)
{
    for (uint32_t i = 0; i < seen->n_batches; i++) {
        struct stored_batch b;
        int64_t no;
        const struct str id = str_from(seen->batches[i]);
        if (state_cancel_batch(seen->s, ME, id, CREATED_S, &b, &no, &err) == STATUS_OK) {
            check_batch(&b);
            stored_batch_fini(&b);
        }
    }
    for (uint32_t i = 0; i < seen->n_files; i++)
        tell(state_delete_file(seen->s, ME, str_from(seen->files[i]), &err));
}

static void live(void)
{
    struct seen seen = {0};
    if (state_open(dir, STORE_BYTES, &seen.s, &err) != STATUS_OK)
        return;
    list(&seen);
    read_files(&seen);
    int n_turns = 0;
    while (run_lines(seen.s, CREATED_S))
        /* the batch has six lines, four at a time, so the loop must end soon */
        must(++n_turns < 16);
    for (int i = 0; i < N_LOOKS; i++)
        (void)state_look(seen.s);
    end_all(&seen);
    (void)run_lines(seen.s, EXPIRES_S + 1);
    list(&seen);
    state_close(seen.s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (dir[0] == '\0')
        prepare();
    if (size == 0 || size > 1 + RECORDS_MAX * RECORD_BYTES)
        return 0;
    empty_folder();
    if (data[0] & 1)
        change_values(data + 1, size - 1);
    else
        change_bytes(data + 1, size - 1, data[0] & 2);
    live();
    return 0;
}
