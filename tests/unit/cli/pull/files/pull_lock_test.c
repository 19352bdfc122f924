/* Tests the lock that makes pulls of one model wait for each other, on one machine and over a
 * shared file system. `pull_lock_acquire` creates the file `path` with its holder's name and a
 * counter. The tests act as other holders by writing that file or by a child process.
 * Invariants: there is one holder at a time, and a dead holder's lock is taken over. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/pull/files/lock.h"

static char dir[64], path[96];
static int looks;      /* number of calls of `is_done` so far */
static int stop_after; /* number of calls after which `is_done` returns true; 0 = never */
static int done_after;
static char said[256];

static bool is_stopped(void)
{
    return stop_after && looks >= stop_after;
}

static void say(const char *text)
{
    snprintf(said, sizeof said, "%s", text);
}

static bool is_done(void *ctx)
{
    looks++;
    return done_after && looks >= done_after;
}

static struct pull_lock_wait waiting(double silence_s)
{
    return (struct pull_lock_wait){silence_s, is_stopped, say, is_done, NULL};
}

static int setup(void **state)
{
    looks = stop_after = done_after = 0;
    said[0] = '\0';
    snprintf(dir, sizeof dir, "/tmp/cox-lock-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(path, sizeof path, "%s/lock", dir);
    return 0;
}

static int teardown(void **state)
{
    unlink(path);
    return rmdir(dir); /* rmdir fails when any file is left */
}

static void test_one_at_a_time(void **state)
{
    struct pull_lock a, b;
    struct error err = {0};
    struct pull_lock_wait w = waiting(30);
    assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_OK);
    stop_after = 4;
    looks = 0;
    assert_int_equal(pull_lock_acquire(&b, path, &w, &err), STATUS_CLOSED);
    assert_non_null(strstr(said, "waiting for it"));
    assert_false(pull_lock_is_lost(&a));
    looks = stop_after = 0;
    done_after = 3;
    assert_int_equal(pull_lock_acquire(&b, path, &w, &err), STATUS_EXISTS);
    pull_lock_release(&a);
    assert_int_not_equal(access(path, F_OK), 0);
    looks = done_after = 0;
    assert_int_equal(pull_lock_acquire(&b, path, &w, &err), STATUS_OK);
    pull_lock_release(&b);
}

static void test_a_folder_that_is_not_there(void **state)
{
    struct pull_lock a;
    struct error err = {0};
    struct pull_lock_wait w = waiting(30);
    assert_int_equal(pull_lock_acquire(&a, "/no/such/folder/lock", &w, &err), STATUS_IO);
    assert_non_null(strstr(err.text, "/no/such/folder/lock"));
}

static bool is_done_when_held(void *ctx)
{
    looks++;
    return access(path, F_OK) == 0;
}

/* Another pull may end between the first check and the lock, or a cache of names (NFS) may hide
 * its end. Therefore, `is_done` is called again while the lock is held. */
static void test_done_just_before(void **state)
{
    struct pull_lock a;
    struct error err = {0};
    struct pull_lock_wait w = waiting(30);
    w.is_done = is_done_when_held;
    assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_EXISTS);
    assert_int_equal(looks, 2);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* The lock of a process that has ended on this machine is taken over at once. */
static void test_died(void **state)
{
    struct pull_lock a;
    struct error err = {0};
    struct pull_lock_wait w = waiting(1e9);
    pid_t pid = fork();
    if (pid == 0)
        /* the child exits without releasing the lock */
        _exit(pull_lock_acquire(&a, path, &w, &err) == STATUS_OK ? 0 : 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_OK);
    assert_false(pull_lock_is_lost(&a));
    pull_lock_release(&a);
}

static void put(const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* A holder on another machine counts as dead only when the file has not changed for some time.
 * The same is true for a holder whose name cannot be read. */
static void test_silence(void **state)
{
    static const char *const records[] = {
        "", "garbage", "\x1b[2J \x1b \x1b \x1b[31m \x1b",
        "0123456789abcdef0123456789abcdef another-boot 000000000001 another-host 1\n"};
    for (size_t i = 0; i < sizeof records / sizeof *records; i++) {
        struct pull_lock a;
        struct error err = {0};
        struct pull_lock_wait w = waiting(1e9);
        put(records[i]);
        looks = 0;
        stop_after = 4;
        assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_CLOSED);
        assert_null(strchr(said, '\x1b'));
        looks = stop_after = 0;
        w = waiting(0.25);
        assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_OK);
        assert_true(looks >= 3); /* the lock is not taken over at the first check */
        pull_lock_release(&a);
    }
}

static bool beats; /* true = a holder on another machine writes a new count before each check */

static bool is_done_elsewhere(void *ctx)
{
    char record[128];
    snprintf(record, sizeof record,
             "0123456789abcdef0123456789abcdef another-boot %012d another-host 1\n", looks);
    if (beats)
        put(record);
    return is_done(ctx);
}

/* A holder whose count changes is alive, however short the allowed silence is. */
static void test_beats_elsewhere(void **state)
{
    struct pull_lock a;
    struct error err = {0};
    struct pull_lock_wait w = waiting(0);
    w.is_done = is_done_elsewhere;
    put("0123456789abcdef0123456789abcdef another-boot 000000000000 another-host 1\n");
    beats = true;
    stop_after = 5;
    assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_CLOSED);
    assert_non_null(strstr(said, "another-host"));
    beats = false;
    looks = stop_after = 0;
    assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_OK);
    pull_lock_release(&a);
}

/* A holder that was declared dead by mistake detects that it lost the lock. */
static void test_lost(void **state)
{
    struct pull_lock a, b;
    struct error err = {0};
    struct pull_lock_wait w = waiting(30);
    assert_int_equal(pull_lock_acquire(&a, path, &w, &err), STATUS_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pull_lock_acquire(&b, path, &w, &err), STATUS_OK);
    a.beat_ns = b.beat_ns = 0; /* the last beats of both locks were a long time ago */
    assert_true(pull_lock_is_lost(&a));
    assert_false(pull_lock_is_lost(&b));
    assert_false(pull_lock_may_write(&a));
    assert_true(pull_lock_may_write(&b));
    pull_lock_release(&a); /* the release does not remove b's file */
    assert_false(pull_lock_is_lost(&b));
    pull_lock_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_one_at_a_time, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_folder_that_is_not_there, setup, teardown),
        cmocka_unit_test_setup_teardown(test_done_just_before, setup, teardown),
        cmocka_unit_test_setup_teardown(test_died, setup, teardown),
        cmocka_unit_test_setup_teardown(test_silence, setup, teardown),
        cmocka_unit_test_setup_teardown(test_beats_elsewhere, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
