/* Tests the NUMA nodes and cores of a machine, and the placement of processes on them.
 * `read_tree` builds a folder like /sys and reads it. The binding functions then choose a node
 * and CPUs. Only CPUs that the process may use are chosen, and errors name the nodes or CPUs
 * that exist. */
#include "common/host/numa.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/unit/fake_root.h"

#define NODE "/sys/devices/system/node/"
#define CPU  "/sys/devices/system/cpu/"

struct file {
    const char *path, *text;
};

static enum status read_tree(const struct file *files, struct numa *out, struct error *err)
{
    char root[] = "/tmp/cox-numa-XXXXXX";
    assert_non_null(mkdtemp(root));
    for (const struct file *f = files; f->path; f++)
        fake_put(root, f->path, f->text);
    enum status s = numa_read(root, out, err);
    for (const struct file *f = files; f->path; f++)
        fake_drop(root, f->path);
    (void)rmdir(root);
    return s;
}

static cpu_set_t cpus(const char *list)
{
    cpu_set_t set;
    assert_int_equal(numa_list_parse(str_from(list), NUMA_MAX_CPUS, &set, NULL), STATUS_OK);
    return set;
}

static const struct file one_node[] = {
    {NODE "online", "0\n"}, {NODE "node0/cpulist", "0-3\n"}, {0}};

/* `two_nodes` is a machine of two sockets with hyperthreads, numbered as on real machines. */
static const struct file two_nodes[] = {{NODE "online", "0-1\n"},
                                        {NODE "node0/cpulist", "0-15,32-47\n"},
                                        {NODE "node1/cpulist", "16-31,48-63\n"},
                                        {CPU "cpu0/topology/thread_siblings_list", "0,32\n"},
                                        {CPU "cpu32/topology/thread_siblings_list", "0,32\n"},
                                        {CPU "cpu1/topology/thread_siblings_list", "1,33\n"},
                                        {CPU "cpu33/topology/thread_siblings_list", "1,33\n"},
                                        {0}};

static const struct file with_memory_alone[] = {{NODE "online", "0,2,8\n"},
                                                {NODE "node0/cpulist", "0-3\n"},
                                                {NODE "node2/cpulist", "\n"},
                                                {NODE "node8/cpulist", "4-7\n"},
                                                {0}};

/* In `offline`, CPUs 1 and 5 and node 3 are offline. */
static const struct file offline[] = {{NODE "online", "0,7\n"},
                                      {NODE "possible", "0-7\n"},
                                      {NODE "node0/cpulist", "0,2-3\n"},
                                      {NODE "node7/cpulist", "4,6-7\n"},
                                      {0}};

static void test_trees(void **state)
{
    static const struct {
        const char *name;
        const struct file *files;
        const char *nodes, *of_first, *of_last;
    } cases[] = {
        {"one node", one_node, "0", "0-3", "0-3"},
        {"two with hyperthreads", two_nodes, "0-1", "0-15,32-47", "16-31,48-63"},
        {"a node of memory", with_memory_alone, "0,2,8", "0-3", "4-7"},
        {"CPUs that are offline", offline, "0,7", "0,2-3", "4,6-7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct numa n;
        struct error err = {0};
        cpu_set_t ids, all, first, last;
        char text[3][NUMA_TEXT_BYTES];
        if (read_tree(cases[i].files, &n, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].name, err.text);
        CPU_ZERO(&ids);
        memset(&all, 0xff, sizeof all);
        for (uint32_t k = 0; k < n.n_nodes; k++)
            CPU_SET(n.ids[k], &ids);
        numa_node_cpus(&n, n.ids[0], &all, &first);
        numa_node_cpus(&n, n.ids[n.n_nodes - 1], &all, &last);
        if (strcmp(numa_list_print(&ids, text[0], sizeof text[0]), cases[i].nodes) != 0 ||
            strcmp(numa_list_print(&first, text[1], sizeof text[1]), cases[i].of_first) != 0 ||
            strcmp(numa_list_print(&last, text[2], sizeof text[2]), cases[i].of_last) != 0)
            fail_msg("%s: nodes %s, %s, %s", cases[i].name, text[0], text[1], text[2]);
        assert_int_equal(numa_node_of(&n, &first), n.ids[0]);
    }
}

static char too_long[9000], many_nodes[] = "0-1024\n";

static void test_nonsense(void **state)
{
    const struct {
        const char *name;
        struct file files[4];
        enum status want;
        const char *word;
    } cases[] = {
        {"nothing there", {{CPU "x", "0"}}, STATUS_NOT_FOUND, "node/online"},
        {"no node", {{NODE "online", "\n"}}, STATUS_INVALID, "/node/online lists none"},
        {"words", {{NODE "online", "zero\n"}}, STATUS_INVALID, "zero"},
        {"a sign", {{NODE "online", "-1\n"}}, STATUS_INVALID, "online"},
        {"more nodes than there can be", {{NODE "online", many_nodes}}, STATUS_INVALID, "1023"},
        {"a node without a file", {{NODE "online", "0"}}, STATUS_NOT_FOUND, "node0/cpulist"},
        {"backwards", {{NODE "online", "0"}, {NODE "node0/cpulist", "7-0"}}, STATUS_INVALID, "7-0"},
        {"half a range",
         {{NODE "online", "0"}, {NODE "node0/cpulist", "0-"}},
         STATUS_INVALID,
         "0-"},
        {"two commas",
         {{NODE "online", "0"}, {NODE "node0/cpulist", "0,,1"}},
         STATUS_INVALID,
         ",,"},
        {"a comma at the end",
         {{NODE "online", "0"}, {NODE "node0/cpulist", "0,"}},
         STATUS_INVALID,
         "0,"},
        {"a CPU of 20 digits",
         {{NODE "online", "0"}, {NODE "node0/cpulist", "99999999999999999999"}},
         STATUS_INVALID,
         "1023"},
        {"a mask", {{NODE "online", "0"}, {NODE "node0/cpulist", "ff,ffff"}}, STATUS_INVALID, "ff"},
        {"longer than any",
         {{NODE "online", "0"}, {NODE "node0/cpulist", too_long}},
         STATUS_INVALID,
         "more than 8192 bytes"},
        {"a CPU of two nodes",
         {{NODE "online", "0-1"}, {NODE "node0/cpulist", "0-4"}, {NODE "node1/cpulist", "4-7"}},
         STATUS_INVALID,
         "CPU 4 also belongs to NUMA node 0"},
    };
    memset(too_long, ' ', sizeof too_long - 1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct numa n;
        struct error err = {0};
        enum status s = read_tree(cases[i].files, &n, &err);
        if (s != cases[i].want || !strstr(err.text, cases[i].word))
            fail_msg("%s: %s, %s", cases[i].name, status_name(s), err.text);
        assert_int_equal(n.n_nodes, 0);
        assert_int_equal(n.node_of[4], -1);
        assert_int_equal(n.core_of[4], 4);
    }
}

static void test_lists(void **state)
{
    static const struct {
        const char *text, *want; /* list of CPUs and its printed form; NULL = refused */
    } cases[] = {
        {"0", "0"},         {"0-3", "0-3"},       {"3,1-2,0", "0-3"}, {" 5 \n", "5"},
        {"0-3,2-5", "0-5"}, {"1023", "1023"},     {"", "none"},       {"1024", NULL},
        {"0x3", NULL},      {"1 2", NULL},        {"+1", NULL},       {"0-2:2", NULL},
        {"0--2", NULL},     {"4294967296", NULL}, {",", NULL},        {"a", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cpu_set_t set;
        char text[NUMA_TEXT_BYTES];
        struct error err = {0};
        enum status s = numa_list_parse(str_from(cases[i].text), NUMA_MAX_CPUS, &set, &err);
        if (s != (cases[i].want ? STATUS_OK : STATUS_INVALID) ||
            (cases[i].want && strcmp(numa_list_print(&set, text, sizeof text), cases[i].want) != 0))
            fail_msg("\"%s\": %s %s", cases[i].text, status_name(s), err.text);
    }
    cpu_set_t odd;
    char some[24];
    CPU_ZERO(&odd);
    for (size_t i = 1; i < NUMA_MAX_CPUS; i += 2)
        CPU_SET(i, &odd);
    assert_string_equal(numa_list_print(&odd, some, sizeof some), "1,3,5,7,9,11,13,15,...");
}

static void test_order(void **state)
{
    static const struct {
        const struct file *files;
        const char *set;
        uint16_t want[8];
    } cases[] = {
        {two_nodes, "0-1,16,32-33,48", {0, 32, 1, 33, 16, 48}},
        {two_nodes, "16,33,1", {1, 33, 16}},
        {offline, "0,2-4", {0, 2, 3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct numa n;
        uint16_t got[CPU_SETSIZE];
        cpu_set_t set = cpus(cases[i].set);
        assert_int_equal(read_tree(cases[i].files, &n, NULL), STATUS_OK);
        uint32_t count = numa_order(&n, &set, got);
        assert_int_equal(count, CPU_COUNT(&set));
        assert_memory_equal(got, cases[i].want, count * sizeof *got);
    }
}

/* Processes are spread in order over the nodes that have usable CPUs. */
static void test_in_order(void **state)
{
    static const struct {
        const char *name;
        const struct file *files;
        const char *allowed;
        uint32_t n;
        int want[8]; /* nodes of processes 0 to 5 */
    } cases[] = {
        {"one node", one_node, "0-3", 4, {0, 0, 0, 0, 0, 0}},
        /* processes from the third on are spares */
        {"two on two", two_nodes, "0-63", 2, {0, 1, 0, 1, 0, 1}},
        {"four on two", two_nodes, "0-63", 4, {0, 0, 1, 1, 0, 1}},
        {"three on two", two_nodes, "0-63", 3, {0, 0, 1, 0, 1, 0}},
        {"one on two", two_nodes, "0-63", 1, {0, 0, 1, 0, 1, 0}},
        {"by their numbers", two_nodes, "0-63", 0, {0, 1, 0, 1, 0, 1}},
        {"what it may use is of one", two_nodes, "20-21", 2, {1, 1, 1, 1, 1, 1}},
        {"past memory", with_memory_alone, "0-7", 4, {0, 0, 8, 8, 0, 8}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct numa n;
        cpu_set_t allowed = cpus(cases[i].allowed);
        assert_int_equal(read_tree(cases[i].files, &n, NULL), STATUS_OK);
        for (uint32_t k = 0; k < 6; k++) {
            struct numa_binding b;
            cpu_set_t both;
            assert_int_equal(numa_bind_any(&n, &allowed, k, cases[i].n, &b, NULL), STATUS_OK);
            if (b.node != cases[i].want[k])
                fail_msg("%s: process %u is on node %d", cases[i].name, k, b.node);
            CPU_AND(&both, &b.cpus, &allowed);
            assert_true(CPU_EQUAL(&both, &b.cpus) && CPU_COUNT(&both) > 0);
        }
    }
}

static void test_by_words(void **state)
{
    static const struct {
        const struct file *files;
        const char *allowed, *node, *list;
        int want;                    /* node that must be chosen */
        const char *cpus, *words[2]; /* CPUs that must be chosen; NULL = the error has `words` */
    } cases[] = {
        {two_nodes, "0-63", "1", NULL, 1, "16-31,48-63", {0}},
        {two_nodes, "0-40", "1", NULL, 1, "16-31", {0}},
        {two_nodes, "0-63", NULL, "0-7", 0, "0-7", {0}},
        {two_nodes, "0-63", NULL, "0-31", -1, "0-31", {0}},
        {two_nodes, "0-63", "0", "32-39", 0, "32-39", {0}},
        {two_nodes, "0-63", "9", NULL, 0, NULL, {"-N 9", "it has 0-1"}},
        {one_node, "0-3", "1", NULL, 0, NULL, {"-N 1", "it has 0"}},
        {two_nodes, "0-63", "99999", NULL, 0, NULL, {"-N 99999", "no such NUMA node"}},
        {two_nodes, "0-63", "-1", NULL, 0, NULL, {"-N \"-1\"", "number of a NUMA node"}},
        {two_nodes, "0-63", "0,1", NULL, 0, NULL, {"-N \"0,1\"", "number of a NUMA node"}},
        {two_nodes, "0-63", "", NULL, 0, NULL, {"-N \"\"", "number of a NUMA node"}},
        {two_nodes, "0-15", "1", NULL, 0, NULL, {"-N 1", "the process may use 0-15"}},
        {with_memory_alone, "0-7", "2", NULL, 0, NULL, {"-N 2", "no CPUs"}},
        {two_nodes, "0-63", NULL, "7-3", 0, NULL, {"-C", "7-3"}},
        {two_nodes, "0-63", NULL, "", 0, NULL, {"-C", "contains no CPU"}},
        {two_nodes,
         "0-63",
         NULL,
         "60-64",
         0,
         NULL,
         {"-C 60-64: this process cannot use CPU 64", "0-63"}},
        {two_nodes, "0-7", NULL, "7-8", 0, NULL, {"-C 7-8: this process cannot use CPU 8", "0-7"}},
        {two_nodes,
         "0-63",
         "1",
         "12-16",
         0,
         NULL,
         {"CPU 12 belongs to NUMA node 0", "-N asks for node 1"}},
        /* the kernel accepts the list and uses the CPUs that exist */
        {offline, "0-7", NULL, "0,5", -1, "0,5", {0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct numa n;
        struct numa_binding b;
        struct error err = {0};
        char text[NUMA_TEXT_BYTES];
        cpu_set_t allowed = cpus(cases[i].allowed);
        const struct numa_words w = {"-N", cases[i].node, "-C", cases[i].list};
        assert_int_equal(read_tree(cases[i].files, &n, NULL), STATUS_OK);
        enum status s = numa_bind_to(&n, &allowed, &w, &b, &err);
        if (s != (cases[i].cpus ? STATUS_OK : STATUS_INVALID))
            fail_msg("case %zu: %s %s", i, status_name(s), err.text);
        if (s == STATUS_OK) {
            assert_int_equal(b.node, cases[i].want);
            assert_string_equal(numa_list_print(&b.cpus, text, sizeof text), cases[i].cpus);
        } else if (!strstr(err.text, cases[i].words[0]) || !strstr(err.text, cases[i].words[1])) {
            fail_msg("case %zu: %s", i, err.text);
        }
    }
}

/* On a kernel without nodes, a binding to a node fails, and a binding to CPUs works. */
static void test_without_nodes(void **state)
{
    static const struct file none[] = {{0}};
    struct numa n;
    struct numa_binding b;
    cpu_set_t allowed = cpus("0-3");
    const struct numa_words node = {"-N", "0", "-C", NULL}, list = {"-N", NULL, "-C", "1-2"};
    assert_int_equal(read_tree(none, &n, NULL), STATUS_NOT_FOUND);
    assert_int_equal(numa_bind_any(&n, &allowed, 0, 1, &b, NULL), STATUS_NOT_FOUND);
    assert_int_equal(numa_bind_to(&n, &allowed, &node, &b, NULL), STATUS_NOT_FOUND);
    assert_int_equal(numa_bind_to(&n, &allowed, &list, &b, NULL), STATUS_OK);
    assert_int_equal(b.node, -1);
    assert_int_equal(CPU_COUNT(&b.cpus), 2);
}

static void test_of_a_device(void **state)
{
    static const struct {
        const char *pci, *text;
        int want;
    } cases[] = {
        {"0000:3B:00.0", "1\n", 1},
        {"0000:3b:00.0", "-1\n", -1},
        {"0000:3b:00.0", "x\n", -1},
        {"0000:3b:00.0", "1024", -1},
        {"0000:3b:00.0", "99999999999", -1},
        {"0000:3c:00.0", "1", -1},
        {"../../../x", "1", -1},
        {"", "1", -1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char path[] = "/sys/bus/pci/devices/0000:3b:00.0/numa_node";
        char root[] = "/tmp/cox-numa-XXXXXX";
        assert_non_null(mkdtemp(root));
        fake_put(root, path, cases[i].text);
        if (numa_node_of_pci(root, cases[i].pci) != cases[i].want)
            fail_msg("case %zu: node %d", i, numa_node_of_pci(root, cases[i].pci));
        fake_drop(root, path);
        (void)rmdir(root);
    }
}

/* On any machine, every CPU of this process belongs to a node and is in the order. */
static void test_this_machine(void **state)
{
    struct numa n;
    cpu_set_t allowed;
    uint16_t order[CPU_SETSIZE];
    enum status s = numa_read("", &n, NULL);
    if (s == STATUS_NOT_FOUND) {
        print_message("this kernel says nothing of nodes\n");
        skip();
    }
    assert_int_equal(s, STATUS_OK);
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    assert_int_equal(numa_order(&n, &allowed, order), CPU_COUNT(&allowed));
    for (int i = 0; i < CPU_COUNT(&allowed); i++)
        assert_true(n.node_of[order[i]] >= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trees),         cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_lists),         cmocka_unit_test(test_order),
        cmocka_unit_test(test_in_order),      cmocka_unit_test(test_by_words),
        cmocka_unit_test(test_without_nodes), cmocka_unit_test(test_of_a_device),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
