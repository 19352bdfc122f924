/* Tests the memory that several processes share: publishing, waiting, the death of a process that
 * packs or holds, files and descriptors of strangers, and a full file system. Other processes are
 * children of the test; pipes tell when they have reached a state, so no test waits for a time. */
#include "worker/share/share.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_BYTES = 300000, LARGE = 5 << 20 };

static char folder[64], inner[128];

static void run_here(struct device *d, uint32_t n, void (*fn)(void *ctx, uint32_t i), void *ctx)
{
    for (uint32_t i = 0; i < n; i++)
        fn(ctx, i);
}
static const struct ops ops = {.loading = {.parallel_for = run_here}};
static struct device device = {&ops};

static int make_folder(void **state)
{
    snprintf(folder, sizeof folder, "/dev/shm/cox-share-test-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    snprintf(inner, sizeof inner, "%s/coxswain-weights-%u", folder, (unsigned)geteuid());
    return 0;
}

/* Fails if a file is left in the folder. */
static int remove_folder(void **state)
{
    (void)rmdir(inner);
    return rmdir(folder);
}

static uint32_t n_files(void)
{
    uint32_t n = 0;
    DIR *d = opendir(inner);
    for (const struct dirent *e; d && (e = readdir(d));)
        n += e->d_name[0] != '.';
    if (d)
        closedir(d);
    return n;
}

static struct share_ask ask_of(uint8_t key, uint64_t n_bytes)
{
    return (struct share_ask){.option = folder, .key = {key}, .n_bytes = n_bytes};
}

static struct share *open_share(uint8_t key, uint64_t n_bytes)
{
    struct share *s;
    struct error err = {0};
    const struct share_ask ask = ask_of(key, n_bytes);
    if (share_open(&ask, &s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return s;
}

static void pack(struct share *s)
{
    struct error err = {0};
    assert_false(s->is_packed);
    if (share_reserve(s, &device, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < s->memory.n_bytes; i++)
        s->memory.at[i] = (uint8_t)(i * 7);
    if (share_publish(s, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void check_packed(const struct share *s)
{
    assert_true(s->is_packed);
    for (uint64_t i = 0; i < s->memory.n_bytes; i++)
        assert_int_equal(s->memory.at[i], (uint8_t)(i * 7));
}

/* ---- children ---- */

struct child {
    pid_t pid;
    int reached, go; /* pipes: the child writes a byte to `reached`, and reads one from `go` */
};

static void reach(const struct child *c)
{
    if (write(c->reached, "", 1) != 1)
        _exit(3);
}
static void await_go(const struct child *c)
{
    char byte;
    if (read(c->go, &byte, 1) < 0)
        _exit(3);
}

static struct child start(void (*fn)(const struct child *c))
{
    int up[2], down[2];
    assert_int_equal(pipe(up) | pipe(down), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(up[0]);
        close(down[1]);
        fn(&(struct child){0, up[1], down[0]});
        _exit(0);
    }
    close(up[1]);
    close(down[0]);
    char byte;
    assert_int_equal(read(up[0], &byte, 1), 1);
    return (struct child){pid, up[0], down[1]};
}

static int end(struct child *c, bool kills)
{
    int status;
    if (kills)
        kill(c->pid, SIGKILL);
    close(c->go);
    assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
    close(c->reached);
    return status;
}

static void packs_half(const struct child *c)
{
    struct share *s = open_share(1, N_BYTES);
    struct error err;
    if (share_reserve(s, &device, &err) != STATUS_OK)
        _exit(4);
    memset(s->memory.at, 1, N_BYTES / 2);
    share_beat(s, N_BYTES / 2);
    reach(c);
    await_go(c);
    memset(s->memory.at, 0, N_BYTES / 2);
    pack(s);
    await_go(c); /* until the test ends it */
    share_close(s);
}

static void holds(const struct child *c)
{
    struct share *s = open_share(1, N_BYTES);
    if (!s->is_packed)
        pack(s);
    reach(c);
    await_go(c);
    share_close(s);
}

/* ---- tests ---- */

static void test_one_packs_and_others_find(void **state)
{
    const uint64_t sizes[] = {1, 65536, N_BYTES, LARGE};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct share *a = open_share(1, sizes[i]);
        pack(a);
        struct share *b = open_share(1, sizes[i]), *other = open_share(2, sizes[i]);
        check_packed(b);
        assert_ptr_not_equal(a->memory.at, b->memory.at);
        assert_false(other->is_packed);
        share_close(other);
        share_close(a);
        struct share *c = open_share(1, sizes[i]); /* found at b */
        check_packed(c);
        share_close(b);
        check_packed(c);
        share_close(c);
        assert_int_equal(n_files(), 0);
        c = open_share(1, sizes[i]);
        assert_false(c->is_packed);
        share_close(c);
    }
    share_close(NULL);
}

static void test_nobody_writes(void **state)
{
    struct share *s = open_share(1, N_BYTES);
    char path[32], byte = 1;
    pack(s);
    assert_int_equal(mprotect(s->memory.at, N_BYTES, PROT_READ | PROT_WRITE), -1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", s->memory.fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &byte, 1, 0), -1);
    assert_int_equal(ftruncate(fd, 0), -1);
    assert_ptr_equal(mmap(NULL, N_BYTES, PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
    check_packed(s);
    share_close(s);
}

struct waited {
    struct child *child;
    uint64_t n_calls, done_bytes;
    bool kills;
};
static void on_wait(void *ctx, uint64_t done_bytes)
{
    struct waited *w = ctx;
    w->done_bytes = done_bytes > w->done_bytes ? done_bytes : w->done_bytes;
    if (w->n_calls++ > 0)
        return;
    if (w->kills)
        kill(w->child->pid, SIGKILL);
    else
        assert_int_equal(write(w->child->go, "", 1), 1);
}

/* A second process waits while the first one packs, and then packs itself if the first one was
 * killed meanwhile. */
static void test_waits_for_the_one_that_packs(void **state)
{
    for (int kills = 0; kills < 2; kills++) {
        struct child c = start(packs_half);
        struct waited w = {.child = &c, .kills = kills};
        struct share_ask ask = ask_of(1, N_BYTES);
        struct share *s;
        struct error err = {0};
        ask.on_wait = on_wait;
        ask.ctx = &w;
        if (share_open(&ask, &s, &err) != STATUS_OK)
            fail_msg("%s", err.text);
        assert_true(w.n_calls > 0);
        assert_int_equal(w.done_bytes, N_BYTES / 2);
        assert_int_equal(s->is_packed, !kills);
        if (kills)
            pack(s);
        check_packed(s);
        assert_int_equal(end(&c, false) == 0, !kills);
        share_close(s);
        assert_int_equal(n_files(), 0);
    }
}

static void test_stalled_packing_is_not_awaited(void **state)
{
    struct child c = start(packs_half);
    struct share_ask ask = ask_of(1, N_BYTES);
    struct share *s;
    struct error err = {0};
    ask.stall_ns = 1;
    assert_int_equal(share_open(&ask, &s, &err), STATUS_TIMEOUT);
    assert_null(s);
    assert_non_null(strstr(err.text, "no progress"));
    (void)end(&c, true);
    s = open_share(1, N_BYTES);
    assert_false(s->is_packed);
    share_close(s);
}

static void test_killed_holders(void **state)
{
    struct child c = start(holds);
    struct share *s = open_share(1, N_BYTES);
    check_packed(s);
    (void)end(&c, true); /* the process that packed */
    check_packed(s);
    struct share *t = open_share(1, N_BYTES);
    check_packed(t);
    share_close(s);
    share_close(t);
    assert_int_equal(n_files(), 0);
    c = start(holds);
    (void)end(&c, true); /* the last process */
    assert_int_equal(n_files(), 1);
    s = open_share(2, N_BYTES); /* sweeps */
    assert_int_equal(n_files(), 1);
    share_close(s);
    assert_int_equal(n_files(), 0);
}

/* Offers a descriptor in the table as if it were weights. */
static enum status ask_with(int fd, struct error *err)
{
    struct share_table t;
    struct share *s = NULL;
    const struct share_ask ask = ask_of(1, N_BYTES);
    int dir_fd = open(inner, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(share_table_open(&t, dir_fd, ask.key, err), STATUS_OK);
    assert_int_equal(share_table_lock(&t, err), STATUS_OK);
    assert_int_equal(share_table_enter(&t, fd, err), STATUS_OK);
    share_table_unlock(&t);
    enum status st = share_open(&ask, &s, err);
    assert_null(s);
    assert_int_equal(share_table_lock(&t, err), STATUS_OK);
    share_table_leave(&t);
    share_table_close(&t);
    close(dir_fd);
    return st;
}

static void test_descriptors_that_are_no_weights(void **state)
{
    struct error err;
    struct share *s = open_share(3, N_BYTES), *larger = open_share(1, N_BYTES + 65536);
    int zero = open("/dev/zero", O_RDONLY), loose = memfd_create("loose", MFD_ALLOW_SEALING);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pack(s);
    pack(larger);
    int large_fd = larger->memory.fd;
    larger->memory.fd = -1;
    share_close(larger);
    assert_int_equal(ftruncate(loose, N_BYTES), 0);
    assert_int_equal(ask_with(zero, &err), STATUS_INVALID);
    assert_int_equal(ask_with(ends[0], &err), STATUS_INVALID);
    assert_int_equal(ask_with(loose, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "not a sealed file"));
    assert_int_equal(ask_with(s->memory.fd, &err), STATUS_INVALID); /* key 3 */
    assert_non_null(strstr(err.text, "other weights"));
    assert_int_equal(ask_with(large_fd, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "bytes instead of"));
    close(large_fd);
    close(zero);
    close(loose);
    close(ends[0]);
    close(ends[1]);
    share_close(s);
}

static enum status try_open(struct error *err)
{
    struct share *s;
    const struct share_ask ask = ask_of(1, N_BYTES);
    enum status st = share_open(&ask, &s, err);
    assert_true((st == STATUS_OK) == (s != NULL));
    share_close(s);
    return st;
}

static void test_files_of_strangers(void **state)
{
    struct error err;
    char path[256], target[256];
    assert_int_equal(try_open(&err), STATUS_OK); /* makes the folder */
    snprintf(path, sizeof path, "%s/01%030d", inner, 0);
    snprintf(target, sizeof target, "%s/target", inner);
    int fd = open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(symlink(target, path), 0);
    assert_int_equal(try_open(&err), STATUS_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(link(target, path), 0);
    assert_int_equal(try_open(&err), STATUS_DENIED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(try_open(&err), STATUS_DENIED);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(try_open(&err), STATUS_IO);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rename(target, path), 0);
    assert_int_equal(chmod(path, 0604), 0);
    assert_int_equal(try_open(&err), STATUS_DENIED);
    assert_non_null(strstr(err.text, "only this user may use"));
    assert_int_equal(chmod(path, 0600), 0);
    assert_int_equal(try_open(&err), STATUS_OK); /* removes the file at its end */
    assert_int_equal(chmod(inner, 0701), 0);
    assert_int_equal(try_open(&err), STATUS_DENIED);
    assert_int_equal(chmod(inner, 0700), 0);
    assert_int_equal(n_files(), 0);
}

static void test_rubbish_in_the_table(void **state)
{
    char path[256];
    uint8_t rubbish[4096];
    assert_int_equal(mkdir(inner, 0700) == 0 || errno == EEXIST, 1);
    snprintf(path, sizeof path, "%s/01%030d", inner, 0);
    memset(rubbish, 0xff, sizeof rubbish);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, rubbish, sizeof rubbish), sizeof rubbish);
    close(fd);
    struct share *s = open_share(1, N_BYTES); /* nobody has locked a slot, so all are empty */
    pack(s);
    struct share *t = open_share(1, N_BYTES);
    check_packed(t);
    share_close(t);
    share_close(s);
    assert_int_equal(n_files(), 0);
}

static bool put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return ok;
}

/* Lets this process mount file systems that only it sees. Returns false if the kernel does not
 * allow it. */
static bool enter_namespace(void)
{
    char uid[32], gid[32];
    snprintf(uid, sizeof uid, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
    snprintf(gid, sizeof gid, "%u %u 1", (unsigned)getegid(), (unsigned)getegid());
    return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && put_text("/proc/self/uid_map", uid) &&
           put_text("/proc/self/setgroups", "deny") && put_text("/proc/self/gid_map", gid);
}

/* Runs in a child, since the limit and the mount stay. */
static void meets_limits(const struct child *c)
{
    struct error err;
    struct share *s;
    struct share_ask ask = ask_of(1, N_BYTES);
    const struct rlimit small = {N_BYTES / 2, RLIM_INFINITY};
    const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    bool ok = setrlimit(RLIMIT_FSIZE, &small) == 0 && share_open(&ask, &s, &err) == STATUS_LIMIT &&
              strstr(err.text, "ulimit -f") && setrlimit(RLIMIT_FSIZE, &none) == 0;
    if (ok && enter_namespace() && mount("full", folder, "tmpfs", 0, "size=4k,mode=0777") == 0) {
        char path[128];
        snprintf(path, sizeof path, "%s/full", folder);
        int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        char page[4096] = {1};
        ok = write(fd, page, sizeof page) == sizeof page &&
             share_open(&ask, &s, &err) == STATUS_IO && strstr(err.text, "Free room") && !s;
    }
    reach(c);
    if (!ok)
        fprintf(stderr, "%s\n", err.text);
    _exit(ok ? 0 : 1);
}

static void test_no_room(void **state)
{
    struct child c = start(meets_limits);
    assert_int_equal(end(&c, false), 0);
}

static void test_too_many_holders(void **state)
{
    struct share *s[SHARE_MAX_HOLDERS];
    struct error err;
    s[0] = open_share(1, 1);
    pack(s[0]);
    for (int i = 1; i < SHARE_MAX_HOLDERS; i++)
        s[i] = open_share(1, 1);
    const struct share_ask ask = ask_of(1, 1);
    struct share *none;
    assert_int_equal(share_open(&ask, &none, &err), STATUS_LIMIT);
    for (int i = 0; i < SHARE_MAX_HOLDERS; i++)
        share_close(s[i]);
    assert_int_equal(n_files(), 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {TEST(test_one_packs_and_others_find),
                                       TEST(test_nobody_writes),
                                       TEST(test_waits_for_the_one_that_packs),
                                       TEST(test_stalled_packing_is_not_awaited),
                                       TEST(test_killed_holders),
                                       TEST(test_descriptors_that_are_no_weights),
                                       TEST(test_files_of_strangers),
                                       TEST(test_rubbish_in_the_table),
                                       TEST(test_no_room),
                                       TEST(test_too_many_holders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
