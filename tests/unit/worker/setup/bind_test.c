/* Tests how a worker is bound to CPUs and memory. Each test runs `bind_process` in a child and
 * reads its CPUs, memory policy, log and error. The machine is this one, or one that a folder in
 * the form of /sys describes. Cases: nodes, lists of CPUs, a GPU's node, a kernel that forbids
 * memory policies. Invariants: an impossible choice is refused, and a missing permission is only
 * logged. */
#include "worker/setup/bind.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/mempolicy.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/host/numa.h"
#include "tests/unit/fake_root.h"

#define NODE "/sys/devices/system/node/"
#define MAPS "/proc/self/numa_maps"

static const char *const paths[] = {NODE "online", NODE "node0/cpulist", NODE "node1/cpulist",
                                    "/sys/bus/pci/devices/0000:3b:00.0/numa_node", MAPS};

static void drop_all(const char *root)
{
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        fake_drop(root, paths[i]);
    (void)rmdir(root);
}

/* Forbids memory policies, as a container's seccomp profile does. */
static void forbid_mempolicy(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_set_mempolicy, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof rules / sizeof *rules, rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(77);
}

struct told {
    enum status status;
    char error[600], log[3000], cpus[NUMA_TEXT_BYTES];
    int mode;
};

/* Runs `bind_process` in a child. Returns the child's status, CPUs, memory policy and log. */
static struct told bind_child(const struct worker_options *o, const char *root, const char *pci,
                              bool forbids)
{
    struct told t = {0};
    char log[] = "/tmp/cox-bind-log-XXXXXX";
    int ends[2], log_fd = mkstemp(log), code;
    assert_true(log_fd >= 0);
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct error err = {0};
        cpu_set_t set;
        dup2(log_fd, STDERR_FILENO);
        if (forbids)
            forbid_mempolicy();
        t.status = bind_process(o, root, pci, &err);
        snprintf(t.error, sizeof t.error, "%s", err.text);
        (void)sched_getaffinity(0, sizeof set, &set);
        numa_list_print(&set, t.cpus, sizeof t.cpus);
        if (syscall(SYS_get_mempolicy, &t.mode, NULL, 0ul, NULL, 0ul) != 0)
            t.mode = -1;
        bind_log_memory(o);
        _exit(write(ends[1], &t, sizeof t) == (ssize_t)sizeof t ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &code, 0), pid);
    if (WIFEXITED(code) && WEXITSTATUS(code) == 77) {
        t.status = STATUS_COUNT;
    } else {
        assert_int_equal(code, 0);
        assert_int_equal(read(ends[0], &t, sizeof t), sizeof t);
        ssize_t n = pread(log_fd, t.log, sizeof t.log - 1, 0);
        t.log[n > 0 ? n : 0] = '\0';
    }
    close(ends[0]);
    close(ends[1]);
    close(log_fd);
    unlink(log);
    return t;
}

/* `two` is a made-up machine of two nodes, which have the first and the last CPU of this
 * process. */
struct two {
    char root[24], first[12], last[12];
};
static bool make_two(struct two *m)
{
    cpu_set_t all;
    int first = 0, last = CPU_SETSIZE - 1;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    while (!CPU_ISSET(first, &all))
        first++;
    while (!CPU_ISSET(last, &all))
        last--;
    snprintf(m->first, sizeof m->first, "%d", first);
    snprintf(m->last, sizeof m->last, "%d", last);
    snprintf(m->root, sizeof m->root, "/tmp/cox-bind-XXXXXX");
    assert_non_null(mkdtemp(m->root));
    fake_put(m->root, paths[0], "0-1\n");
    fake_put(m->root, paths[1], m->first);
    fake_put(m->root, paths[2], m->last);
    fake_put(m->root, paths[3], "1\n");
    return first != last;
}

static void test_two_nodes(void **state)
{
    struct two m;
    if (!make_two(&m)) {
        drop_all(m.root);
        skip();
    }
    const struct {
        const char *node, *cpus, *pci;
        int64_t ordinal;
        const char *want; /* expected CPUs; NULL = refused */
        const char *word; /* expected word in the log or the error */
    } cases[] = {
        {"0", NULL, "", -1, m.first, " bound node=0"},
        {"auto", NULL, "", -1, m.first, " bound node=0"},
        {"auto", NULL, "", 1, m.last, " bound node=1"},
        {"auto", NULL, "", 2, m.first, " bound node=0"},
        {"auto", NULL, "0000:3B:00.0", 0, m.last, " bound node=1"},
        {"auto", m.last, "", 0, m.last, " bound node=1"},
        {NULL, m.last, "", -1, m.last, " bound node=1"},
        {"1", m.last, "", -1, m.last, "n_cpus=1"},
        {"1", m.first, "", -1, NULL, "belongs to NUMA node 0, but --numa-node asks for node 1"},
        {"9", NULL, "", -1, NULL, "--numa-node 9: this machine has no such NUMA node; it has 0-1"},
        {NULL, "1023", "", -1, NULL, "--cpus 1023"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct worker_options o = {
            .numa_node = cases[i].node, .cpus = cases[i].cpus, .ordinal = cases[i].ordinal};
        struct told t = bind_child(&o, m.root, cases[i].pci, false);
        if (t.status != (cases[i].want ? STATUS_OK : STATUS_INVALID) ||
            !strstr(cases[i].want ? t.log : t.error, cases[i].word) ||
            (cases[i].want && strcmp(t.cpus, cases[i].want) != 0))
            fail_msg("case %zu: %s %s; on %s; %s", i, status_name(t.status), t.error, t.cpus,
                     t.log);
    }
    drop_all(m.root);
}

/* A kernel or container forbids the binding. The worker logs the refusal and continues. */
static void test_what_is_not_allowed(void **state)
{
    struct two m;
    (void)make_two(&m);
    struct worker_options o = {.numa_node = "0", .ordinal = -1};
    struct told t = bind_child(&o, m.root, "", true);
    if (t.status != STATUS_COUNT) {
        assert_int_equal(t.status, STATUS_OK);
        assert_string_equal(t.cpus, m.first);
        assert_int_equal(t.mode, MPOL_DEFAULT);
        if (!strstr(t.log, "memory_not_bound") || !strstr(t.log, "seccomp"))
            fail_msg("%s", t.log);
        assert_null(strstr(t.log, " memory_bound "));
    }
    t = bind_child(&o, "/nowhere", "", false);
    assert_int_equal(t.status, STATUS_OK);
    if (!strstr(t.log, "numa_not_known") || !strstr(t.log, "not_bound"))
        fail_msg("%s", t.log);
    /* A list of CPUs works without /sys. */
    o = (struct worker_options){.cpus = m.first, .ordinal = -1};
    t = bind_child(&o, "/nowhere", "", false);
    assert_int_equal(t.status, STATUS_OK);
    assert_string_equal(t.cpus, m.first);
    fake_put(m.root, paths[0], "0-9999999\n");
    o = (struct worker_options){.numa_node = "auto", .ordinal = -1};
    t = bind_child(&o, m.root, "", false);
    assert_int_equal(t.status, STATUS_OK);
    assert_non_null(strstr(t.log, "1023"));
    drop_all(m.root);
}

/* The binding works on this machine itself, as the kernel describes it. */
static void test_this_machine(void **state)
{
    static struct numa n;
    cpu_set_t all, own;
    char want[NUMA_TEXT_BYTES], node[12];
    if (numa_read("", &n, NULL) != STATUS_OK)
        skip();
    struct numa_binding b;
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    assert_int_equal(numa_bind_any(&n, &all, 0, 1, &b, NULL), STATUS_OK);
    numa_node_cpus(&n, (uint32_t)b.node, &all, &own);
    snprintf(node, sizeof node, "%d", b.node);
    const struct worker_options o = {.numa_node = node, .ordinal = -1}, none = {.ordinal = -1};
    struct told t = bind_child(&o, "", "", false);
    assert_int_equal(t.status, STATUS_OK);
    assert_string_equal(t.cpus, numa_list_print(&own, want, sizeof want));
    /* in a container the log may say that memory is not bound */
    if (!strstr(t.log, "memory_not_bound")) {
        assert_int_equal(t.mode, MPOL_PREFERRED);
        assert_non_null(strstr(t.log, " memory_bound "));
    }
    t = bind_child(&none, "", "", false);
    assert_int_equal(t.status, STATUS_OK);
    assert_int_equal(t.mode <= MPOL_DEFAULT, true);
    assert_string_equal(t.log, "");
}

static void test_memory(void **state)
{
    static const struct {
        const char *text;
        uint64_t near_bytes, far_bytes; /* expected bytes for node 1 */
    } cases[] = {
        {"7f00 prefer:1 anon=10 dirty=10 N1=10 kernelpagesize_kB=4\n", 40960, 0},
        {"7f00 prefer:1 anon=3 dirty=3 N0=1 N1=2 kernelpagesize_kB=4\n"
         "7f10 prefer:1 anon=1 dirty=1 N0=1 kernelpagesize_kB=2048\n",
         8192, 4096 + 2097152},
        {"7f00 prefer:1 file=/usr/lib/libc.so mapped=9 N0=9 kernelpagesize_kB=4\n"
         "7f10 default stack anon=1 N1=1 kernelpagesize_kB=4\n"
         "7f20 default\n",
         4096, 0},
        {"7f00 prefer:1 file=/memfd:coxswain-weights\\040(deleted) mapped=2 N1=2 "
         "kernelpagesize_kB=4\n",
         8192, 0},
        {"N1=10\nkernelpagesize_kB=4\n\n=\nN=1 N1= N1=x kernelpagesize_kB=\n", 0, 0},
        {"", 0, 0},
    };
    char root[] = "/tmp/cox-bind-XXXXXX";
    struct bind_memory m;
    assert_non_null(mkdtemp(root));
    assert_false(bind_count_memory(root, 1, &m));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fake_put(root, MAPS, cases[i].text);
        bool is_known = bind_count_memory(root, 1, &m);
        if (m.near_bytes != cases[i].near_bytes || m.far_bytes != cases[i].far_bytes ||
            is_known != (m.near_bytes + m.far_bytes > 0))
            fail_msg("case %zu: %llu near, %llu far", i, (unsigned long long)m.near_bytes,
                     (unsigned long long)m.far_bytes);
    }
    drop_all(root);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_nodes), cmocka_unit_test(test_what_is_not_allowed),
        cmocka_unit_test(test_this_machine), cmocka_unit_test(test_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
