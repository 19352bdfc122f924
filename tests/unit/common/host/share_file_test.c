/* Tests the probe that decides whether processes share weights: kernels without large pages for
 * shared memory, the limit of file sizes, and a process that others may not look into. */
#include "common/host/share_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { LARGE = 5 << 20, SMALL = 300000 };

static char root[] = "/tmp/cox-share-file-test-XXXXXX";
static int populate_error, collapse_error;

static int advise(void *at, size_t n_bytes, int advice)
{
    errno = advice == MADV_POPULATE_WRITE ? populate_error
            : advice == MADV_COLLAPSE     ? collapse_error
                                          : 0;
    return errno ? -1 : 0;
}

/* Writes a file below `root`; NULL removes it. */
static void put(const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/sys/kernel/mm/transparent_hugepage/%s", root, name);
    if (!text) {
        (void)unlink(path);
        return;
    }
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

#define MADVISE "always [madvise] never\n"
#define NEVER   "always within_size advise [never] deny force\n"
#define ADVISE  "always within_size [advise] never deny force\n"
#define ALWAYS  "[always] within_size advise never deny force\n"
#define DENY    "always within_size advise never [deny] force\n"

/* Linux has MADV_POPULATE_WRITE since 5.14 and MADV_COLLAPSE since 6.1. */
static void old_kernels_share_with_large_pages_only(void **state)
{
    static const struct {
        int populate, collapse;
        const char *own, *shared, *option;
        uint64_t n_bytes;
        enum status status;
        const char *words;
    } cases[] = {
        {0, 0, MADVISE, NEVER, "auto", LARGE, STATUS_OK, ""},
        {0, EBUSY, MADVISE, NEVER, "auto", LARGE, STATUS_OK, ""},
        {0, EINVAL, MADVISE, NEVER, "auto", LARGE, STATUS_UNSUPPORTED, "Write advise to"},
        {0, EINVAL, MADVISE, DENY, "auto", LARGE, STATUS_UNSUPPORTED, "Write advise to"},
        {0, EINVAL, MADVISE, NULL, "auto", LARGE, STATUS_UNSUPPORTED, "Write advise to"},
        {0, EINVAL, MADVISE, ADVISE, "auto", LARGE, STATUS_OK, ""},
        {0, EINVAL, MADVISE, NEVER, "/dev/shm", LARGE, STATUS_OK, ""},
        {0, EINVAL, MADVISE, NEVER, "auto", SMALL, STATUS_OK, ""},
        {0, EINVAL, "always madvise [never]\n", NEVER, "auto", LARGE, STATUS_OK, ""},
        {0, EINVAL, NULL, NULL, "auto", LARGE, STATUS_OK, ""},
        {EINVAL, EINVAL, MADVISE, NEVER, "auto", LARGE, STATUS_UNSUPPORTED, "Write always to"},
        {EINVAL, EINVAL, MADVISE, ADVISE, "auto", LARGE, STATUS_UNSUPPORTED, "Write always to"},
        {EINVAL, EINVAL, MADVISE, ALWAYS, "auto", LARGE, STATUS_OK, ""},
        {EINVAL, EINVAL, MADVISE, NEVER, "/dev/shm", LARGE, STATUS_OK, ""},
        {EINVAL, EINVAL, MADVISE, NEVER, "auto", SMALL, STATUS_OK, ""},
        {ENOMEM, 0, MADVISE, NEVER, "auto", SMALL, STATUS_NO_MEMORY, "no memory"},
    };
    const struct share_system system = {root, advise};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct error err = {0};
        populate_error = cases[i].populate;
        collapse_error = cases[i].collapse;
        put("enabled", cases[i].own);
        put("shmem_enabled", cases[i].shared);
        if (share_probe_on(&system, cases[i].option, cases[i].n_bytes, &err) != cases[i].status ||
            !strstr(err.text, cases[i].words))
            fail_msg("case %zu: %s", i, err.text);
    }
    put("enabled", NULL);
    put("shmem_enabled", NULL);
}

static int end_of(int (*fn)(void))
{
    int status;
    const pid_t pid = fork();
    if (pid == 0)
        _exit(fn());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

/* Below its limit of file sizes, a process would end by SIGXFSZ when it makes the file. */
static int meets_limit(void)
{
    static const struct {
        rlim_t limit;
        uint64_t n_bytes;
        enum status status;
    } cases[] = {{1 << 20, LARGE, STATUS_LIMIT}, {1 << 20, SMALL, STATUS_OK},
                 {SMALL, SMALL, STATUS_LIMIT},   {SHARE_PAGE_BYTES, 0, STATUS_OK},
                 {1, 0, STATUS_LIMIT},           {0, 1, STATUS_LIMIT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct rlimit limit = {cases[i].limit, RLIM_INFINITY};
        struct error err = {0};
        if (setrlimit(RLIMIT_FSIZE, &limit) != 0 ||
            share_probe("/dev/shm", cases[i].n_bytes, &err) != cases[i].status ||
            (cases[i].status == STATUS_LIMIT && !strstr(err.text, "ulimit -f")))
            return (int)i + 1;
    }
    return 0;
}

static int is_closed_to_others(void)
{
    struct error err;
    return prctl(PR_SET_DUMPABLE, 0) != 0 || share_probe("auto", SMALL, &err) != STATUS_DENIED;
}

static void limits_of_a_process(void **state)
{
    assert_int_equal(end_of(meets_limit), 0);
    assert_int_equal(end_of(is_closed_to_others), 0);
}

static uint32_t n_open(void)
{
    uint32_t n = 0;
    for (int fd = 0; fd < 256; fd++)
        n += dup2(fd, fd) == fd;
    return n;
}

static void nothing_is_left(void **state)
{
    struct error err = {0};
    const uint32_t before = n_open();
    if (share_probe("/dev/shm", LARGE, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    assert_int_equal(n_open(), before);
}

static bool make_folders(bool removes)
{
    static const char *const below[] = {"", "/sys", "/sys/kernel", "/sys/kernel/mm",
                                        "/sys/kernel/mm/transparent_hugepage"};
    enum { N = sizeof below / sizeof *below };
    bool ok = true;
    for (int i = 0; i < N; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s%s", root, below[removes ? N - 1 - i : i]);
        ok = ok && (removes ? rmdir(path) == 0 : i == 0 || mkdir(path, 0700) == 0);
    }
    return ok;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(old_kernels_share_with_large_pages_only),
                                       cmocka_unit_test(limits_of_a_process),
                                       cmocka_unit_test(nothing_is_left)};
    if (!mkdtemp(root) || !make_folders(false))
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return make_folders(true) ? failed : 1;
}
