#include "common/host/host.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/fake_root.h"

static void drop(const char *root, const char *path)
{
    char full[512];
    snprintf(full, sizeof full, "%s%s", root, path);
    (void)(unlink(full) != 0 && rmdir(full) != 0);
}

static const struct {
    const char *name, *max, *current, *cpu;
    uint64_t want_bytes;
    uint32_t want_cpus;
    const char *stat; /* content of memory.stat; NULL = the previous file is kept */
} cases[] = {
    {"no cgroup", NULL, NULL, NULL, 4096000ull * 1024, 8, NULL},
    {"no limit", "max\n", "1000\n", "max 100000\n", 4096000ull * 1024, 8, NULL},
    {"a limit below what is there", "1073741824\n", "73741824\n", "250000 100000\n", 1000000000, 2,
     NULL},
    {"half of it is a file that was read", "1073741824\n", "573741824\n", "250000 100000\n",
     1000000000, 2, "anon 1\nfile 500000001\nactive_file 1\ninactive_file 500000000\nslab 7\n"},
    {"more files than usage", "1000000\n", "1000\n", "50000 100000\n", 1000000, 1, NULL},
    {"no such line", "1073741824\n", "73741824\n", "250000 100000\n", 1000000000, 2,
     "anon 1\nno_inactive_file 5\n"},
    {"a limit already passed", "1000\n", "2000\n", "50000 100000\n", 0, 1, NULL},
    {"a limit above the machine", "99999999999999\n", "0\n", "1600000 100000\n", 4096000ull * 1024,
     8, NULL},
    {"not numbers", "many\n", "some\n", "half 0\n", 4096000ull * 1024, 8, NULL},
    {"one and a half CPUs", "max\n", "0\n", "150000 100000", 4096000ull * 1024, 1, NULL},
    {"a quota of zero", "max\n", "0\n", "0 100000\n", 4096000ull * 1024, 8, NULL},
    {"more than a number holds", "max\n", "0\n", "99999999999999999999 1\n", 4096000ull * 1024, 8,
     NULL},
    {"empty files", "", "", "", 4096000ull * 1024, 8, NULL},
    {"a period of zero", "max\n", "0\n", "100 0\n", 4096000ull * 1024, 8, NULL},
};

static void test_limits(void **state)
{
    char root[] = "/tmp/cox-host-XXXXXX";
    assert_non_null(mkdtemp(root));
    fake_put(root, "/proc/meminfo",
             "MemTotal: 8192000 kB\nMemAvailable:    4096000 kB\nBuffers: 1 kB\n");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].max) {
            fake_put(root, "/sys/fs/cgroup/memory.max", cases[i].max);
            fake_put(root, "/sys/fs/cgroup/memory.current", cases[i].current);
            fake_put(root, "/sys/fs/cgroup/cpu.max", cases[i].cpu);
        }
        if (cases[i].stat)
            fake_put(root, "/sys/fs/cgroup/memory.stat", cases[i].stat);
        if (host_available_bytes_at(root) != cases[i].want_bytes ||
            host_cpus_at(root, 8) != cases[i].want_cpus)
            fail_msg("%s: %llu bytes, %u CPUs", cases[i].name,
                     (unsigned long long)host_available_bytes_at(root), host_cpus_at(root, 8));
    }
    assert_int_equal(host_cpus_at(root, 0), 1);
    static const char *const made[] = {"/sys/fs/cgroup/memory.max",
                                       "/sys/fs/cgroup/memory.current",
                                       "/sys/fs/cgroup/memory.stat",
                                       "/sys/fs/cgroup/cpu.max",
                                       "/sys/fs/cgroup",
                                       "/sys/fs",
                                       "/sys",
                                       "/proc/meminfo",
                                       "/proc",
                                       ""};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        drop(root, made[i]);
}

static void test_address_space(void **state)
{
    char root[] = "/tmp/cox-host-XXXXXX";
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    assert_non_null(mkdtemp(root));
    /* without the file that shows how much is in use, the whole limit is left */
    assert_int_equal(host_address_space_left_at(root, 5), 5);
    fake_put(root, "/proc/self/statm", "1000 300 20 1 0 70 0\n");
    assert_int_equal(host_address_space_left_at(root, 1500 * page), 500 * page);
    assert_int_equal(host_address_space_left_at(root, 1000 * page), 0);
    assert_int_equal(host_address_space_left_at(root, 7), 0);
    assert_true(host_address_space_left_at(root, UINT64_MAX) == UINT64_MAX);
    static const char *const made[] = {"/proc/self/statm", "/proc/self", "/proc", ""};
    for (size_t i = 0; i < sizeof made / sizeof made[0]; i++)
        drop(root, made[i]);
}

/* Mapped memory counts as used. A sanitizer maps terabytes. */
static void test_address_space_of_this_process(void **state)
{
    const uint64_t room = 32ull << 20, limit = 1ull << 60;
    uint64_t used = limit - host_address_space_left_at("", limit);
    struct rlimit was;
    assert_int_equal(getrlimit(RLIMIT_AS, &was), 0);
    struct rlimit less = {.rlim_cur = used + room, .rlim_max = was.rlim_max};
    if (less.rlim_cur > was.rlim_max)
        skip();
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    uint64_t left = host_available_bytes();
    assert_int_equal(setrlimit(RLIMIT_AS, &was), 0);
    assert_true(left > 0 && left <= room);
}

#define SELF "/proc/self/cgroup"
#define V2   "/sys/fs/cgroup/"
#define V1   "/sys/fs/cgroup/memory/"
#define CPU1 "/sys/fs/cgroup/cpu/"

/* `machine` is an invented machine with 8 CPUs and 4000 MB of free memory. NULL ends a list. */
static const struct {
    const char *name, *files[16]; /* name of a case; its files: path, content, path, … */
    uint64_t want_bytes;
    uint32_t want_cpus;
} places[] = {
    {"version 2, in a slice",
     {SELF, "0::/user.slice/job\n", V2 "user.slice/job/memory.max", "3000000\n",
      V2 "user.slice/job/memory.current", "1000000\n", V2 "user.slice/job/cpu.max",
      "300000 100000\n"},
     2000000,
     3},
    {"the slice around it is tighter",
     {SELF, "0::/user.slice/job\n", V2 "user.slice/job/memory.max", "3000000\n",
      V2 "user.slice/job/memory.current", "1000000\n", V2 "user.slice/memory.max", "5000000\n",
      V2 "user.slice/memory.current", "4500000\n", V2 "user.slice/cpu.max", "200000 100000\n"},
     500000,
     2},
    {"a container that sees the host's path",
     {SELF, "0::/docker/0123\n", V2 "memory.max", "3000000\n", V2 "memory.current", "1\n"},
     2999999,
     8},
    {"a path outside of the mount",
     {SELF, "0::/../other\n", V2 "memory.max", "3000000\n", V2 "memory.current", "0\n"},
     3000000,
     8},
    {"version 1",
     {SELF, "11:cpu,cpuacct:/a\n4:memory:/a/b\n0::/\n", V1 "a/b/memory.limit_in_bytes", "7000000\n",
      V1 "a/b/memory.usage_in_bytes", "5000000\n", V1 "a/b/memory.stat",
      "cache 1\ninactive_file 9\ntotal_inactive_file 1000000\n", CPU1 "a/cpu.cfs_quota_us",
      "150000\n", CPU1 "a/cpu.cfs_period_us", "50000\n"},
     3000000,
     3},
    {"version 1 without limits",
     {SELF, "4:memory:/\n3:cpu:/\n", V1 "memory.limit_in_bytes", "9223372036854771712\n",
      V1 "memory.usage_in_bytes", "5000000\n", CPU1 "cpu.cfs_quota_us", "-1\n",
      CPU1 "cpu.cfs_period_us", "100000\n"},
     4096000ull * 1024,
     8},
    {"nonsense", {SELF, ":\n\n9:\n::\n4:memory\n0::"}, 4096000ull * 1024, 8},
};

static void test_where_this_process_is(void **state)
{
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char root[] = "/tmp/cox-host-XXXXXX", command[64];
        assert_non_null(mkdtemp(root));
        fake_put(root, "/proc/meminfo", "MemTotal: 8192000 kB\nMemAvailable:    4096000 kB\n");
        for (size_t k = 0; places[i].files[k]; k += 2)
            fake_put(root, places[i].files[k], places[i].files[k + 1]);
        if (host_available_bytes_at(root) != places[i].want_bytes ||
            host_cpus_at(root, 8) != places[i].want_cpus)
            fail_msg("%s: %llu bytes, %u CPUs", places[i].name,
                     (unsigned long long)host_available_bytes_at(root), host_cpus_at(root, 8));
        snprintf(command, sizeof command, "rm -r %s", root);
        assert_int_equal(system(command), 0);
    }
}

static void test_this_machine(void **state)
{
    char name[96];
    host_cpu_name(name, sizeof name);
    assert_true(name[0] != '\0');
    assert_true(host_cpus() >= 1);
    assert_true(host_available_bytes() > 0);
    assert_true(host_available_bytes() <= host_memory_bytes());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits), cmocka_unit_test(test_address_space),
        cmocka_unit_test(test_address_space_of_this_process),
        cmocka_unit_test(test_where_this_process_is), cmocka_unit_test(test_this_machine)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
