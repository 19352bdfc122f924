/* Tests the end of a batch with large answers: its output files, and the memory that writing
 * them takes. */
#include "gateway/batches/store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/mem.h"

enum { ME = 1, N_LINES = 48, ANSWER_BYTES = 400001, NOW_S = 100, EXPIRES_S = 1000 };
enum { STORE_MIB = 256, MEMORY_MAX_KIB = 8 << 10 /* limits for 18 MiB of answers */ };

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
    assert_int_equal(state_open(f->dir, (uint64_t)STORE_MIB << 20, &f->s, &err), STATUS_OK);
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

static struct stored_batch add_batch(struct fixture *f)
{
    struct stored_batch b = {
        .tenant = ME, .endpoint = "/v1/completions", .created_s = NOW_S, .expires_s = EXPIRES_S};
    struct stored_file file = {.tenant = ME, .filename = "in", .purpose = "batch"};
    struct strbuf text;
    strbuf_init(&text, 0);
    for (int i = 0; i < N_LINES; i++)
        strbuf_printf(&text,
                      "{\"custom_id\":\"%d\",\"method\":\"POST\",\"url\":\"/v1/completions\","
                      "\"body\":{}}\n",
                      i);
    assert_int_equal(state_add_file(f->s, &file, strbuf_str(&text), &err), STATUS_OK);
    memcpy(b.input_file, file.id, sizeof b.input_file);
    assert_int_equal(state_add_batch(f->s, &b, &err), STATUS_OK);
    strbuf_fini(&text);
    return b;
}

/* Returns the answer of a line: a JSON string of one repeated letter, with a different length
 * for each line. */
static struct str answer_of(uint32_t i_line, char *buffer)
{
    const size_t n = ANSWER_BYTES - i_line;
    memset(buffer, (int)('a' + i_line % 26), n);
    buffer[0] = buffer[n - 1] = '"';
    buffer[n] = '\0';
    return (struct str){buffer, n};
}

static int status_of(uint32_t i_line)
{
    return i_line % 3 == 2 ? 400 : 200;
}

/* Answers all lines but the last. Returns the last line. */
static struct taken_line answer_all(struct fixture *f, char *buffer)
{
    struct taken_line l[N_LINES];
    uint32_t n, n_open;
    assert_int_equal(state_take_lines(f->s, N_LINES, NOW_S, l, &n, &n_open, &err), STATUS_OK);
    assert_int_equal(n, N_LINES);
    for (uint32_t i = 0; i < N_LINES; i++) {
        mem_free(l[i].owned_body);
        assert_int_equal(l[i].i_line, i);
        if (i + 1 < N_LINES)
            assert_int_equal(state_answer_line(f->s, l[i].batch_no, i, status_of(i),
                                               answer_of(i, buffer), NOW_S, &err),
                             STATUS_OK);
    }
    return l[N_LINES - 1];
}

static void assert_file(struct fixture *f, const struct stored_batch *b, const char *id, bool fine,
                        char *buffer)
{
    struct stored_file file;
    struct strbuf got, want;
    const char *hex = b->id + strlen("batch_");
    strbuf_init(&got, 0);
    strbuf_init(&want, 0);
    for (uint32_t i = 0; i < N_LINES; i++) {
        if ((status_of(i) == 200) != fine)
            continue;
        strbuf_printf(&want,
                      "{\"id\":\"batch_req_%s_%u\",\"custom_id\":\"%u\",\"response\":{"
                      "\"status_code\":%d,\"request_id\":\"req_%s_%u\",\"body\":",
                      hex, i, i, status_of(i), hex, i);
        strbuf_append_str(&want, answer_of(i, buffer));
        strbuf_append_c(&want, "},\"error\":null}\n");
    }
    assert_int_equal(state_get_file(f->s, ME, str_from(id), &file, &got, &err), STATUS_OK);
    assert_int_equal(file.bytes, want.len);
    assert_int_equal(got.len, want.len);
    assert_memory_equal(got.ptr, want.ptr, want.len);
    strbuf_fini(&got);
    strbuf_fini(&want);
}

/* Returns a value of this process in KiB. `name` is its name in /proc/self/status. */
static long status_kib(const char *name)
{
    char line[256];
    long kib = -1;
    FILE *in = fopen("/proc/self/status", "re");
    assert_non_null(in);
    while (kib < 0 && fgets(line, sizeof line, in))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtol(line + strlen(name), NULL, 10);
    fclose(in);
    return kib;
}

static bool reset_peak(void)
{
    FILE *out = fopen("/proc/self/clear_refs", "we");
    const bool ok = out && fputs("5", out) >= 0;
    return out && fclose(out) == 0 && ok;
}

static void test_large_answers(void **state)
{
    struct fixture *f = *state;
    char *buffer = mem_alloc(ANSWER_BYTES + 1);
    const struct stored_batch b = add_batch(f);
    struct stored_batch end;
    const struct taken_line last = answer_all(f, buffer);
    const struct str text = answer_of(last.i_line, buffer);
    const bool measures = reset_peak();
    const long before = status_kib("VmRSS:");
    assert_int_equal(state_answer_line(f->s, last.batch_no, last.i_line, status_of(last.i_line),
                                       text, NOW_S, &err),
                     STATUS_OK);
    const long taken = status_kib("VmHWM:") - before;
    assert_int_equal(state_get_batch(f->s, ME, str_from(b.id), &end, &err), STATUS_OK);
    assert_int_equal(end.state, BATCH_COMPLETED);
    assert_file(f, &b, end.output_file, true, buffer);
    assert_file(f, &b, end.error_file, false, buffer);
    mem_free(buffer);
/* with a sanitizer this check is left out: freed memory stays with the process for a while */
#ifndef COX_SANITIZED
    if (measures && taken > MEMORY_MAX_KIB)
        fail_msg("the end of a batch took %ld KiB", taken);
#endif
    (void)measures;
    (void)taken;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_large_answers, setup, teardown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
