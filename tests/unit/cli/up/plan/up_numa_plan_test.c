/* Tests the NUMA nodes, CPUs and threads that `cox up` assigns to its workers (`--numa-bind`).
 * `plan_of` parses a command line and plans for a described machine. `write_places` prints the
 * places. Invariants: workers use only the CPUs that this process may use, and processes other
 * than workers have no place. */
#include "cli/up/plan/plan.h"
#include "tests/unit/cli/up/plan/up_command_line.h"

static struct machine machine = {.n_cores = 12};

/* Describes two sockets with hyperthreads: CPUs 0-15,32-47 and 16-31,48-63. */
static void two_nodes(struct numa *n, const char *may, uint32_t cores)
{
    *n = (struct numa){.n_nodes = 2, .ids = {0, 1}};
    for (uint32_t i = 0; i < NUMA_MAX_CPUS; i++) {
        n->node_of[i] = i < 64 ? (int16_t)(i / 16 % 2) : -1;
        n->core_of[i] = (uint16_t)(i < 64 ? i % 32 : i);
    }
    machine.nodes = n;
    machine.n_cores = cores;
    assert_int_equal(numa_list_parse(str_from(may), NUMA_MAX_CPUS, &machine.allowed, NULL),
                     STATUS_OK);
}

static void one_unknown(void)
{
    machine = (struct machine){.n_cores = 12};
}

/* Makes a plan from a command line with a model in front, because otherwise the last word of a
 * list would be the model. */
static enum status plan_of(struct parsed *p, const char *const *args, struct error *err)
{
    const char *all[16] = {"a-model"};
    for (int i = 0; args[i]; i++)
        all[i + 1] = args[i];
    return plan_on(&machine, p, "demo", all, err);
}

/* Writes "NODE/CPUS/THREADS" of each worker. Checks that the other children have no node, CPUs
 * and threads. */
static void write_places(const struct up_plan *all, char *out, size_t size)
{
    for (uint32_t k = 0; k < all->n_children; k++) {
        const struct up_child *c = &all->children[k];
        const char *node = value(c, "--numa-node"), *cpus = value(c, "--cpus"),
                   *threads = value(c, "--threads");
        size_t used = strlen(out);
        if (c->role == UP_WORKER)
            snprintf(out + used, size - used, "%s%s/%s/%s", used ? " " : "", node ? node : "-",
                     cpus ? cpus : "-", threads ? threads : "-");
        else
            assert_true(!node && !cpus);
    }
}

static void test_nodes_of_workers(void **state)
{
    static const struct {
        const char *name, *args[12], *may;
        uint32_t cores;
        const char *want; /* node, CPUs and threads of each worker */
    } cases[] = {
        {"not asked for", {"--tp", "2"}, "0-63", 64, "-/-/32 -/-/32"},
        {"switched off", {"--no-numa-bind"}, "0-63", 64, "-/-/64"},
        {"alone", {"--numa-bind"}, "0-63", 64, "0/-/32"},
        {"one each", {"--tp", "2", "--numa-bind"}, "0-63", 64, "0/-/32 1/-/32"},
        {"two groups",
         {"--tp", "2", "--dp", "2", "--numa-bind"},
         "0-63",
         64,
         "0/-/16 0/-/16 1/-/16 1/-/16"},
        {"and a spare",
         {"--tp", "2", "--workers", "3", "--numa-bind"},
         "0-63",
         64,
         "0/-/32 1/-/32 0/-/32"},
        {"three", {"--dp", "3", "--numa-bind"}, "0-63", 64, "0/-/16 0/-/16 1/-/32"},
        {"less of one", {"--tp", "2", "--numa-bind"}, "0-23", 24, "0/-/16 1/-/8"},
        {"one alone", {"--tp", "2", "--numa-bind"}, "0-15", 16, "0/-/8 0/-/8"},
        {"less by a quota", {"--tp", "2", "--numa-bind"}, "0-63", 8, "0/-/4 1/-/4"},
        {"as told", {"--tp", "2", "--numa-bind", "--threads", "3"}, "0-63", 64, "0/-/3 1/-/3"},
        {"named",
         {"--workers", "4", "--numa-bind-nodes", "1", "1", "0", "1"},
         "0-63",
         64,
         "1/-/10 1/-/10 0/-/32 1/-/10"},
        {"CPUs",
         {"--tp", "2", "--numa-bind", "--numa-bind-cpus", "0-7", "8-15,40"},
         "0-63",
         64,
         "-/0-7/8 -/8-15,40/9"},
        {"CPUs that meet",
         {"--tp", "2", "--numa-bind-cpus", "0-7", "4-11"},
         "0-63",
         64,
         "-/0-7/4 -/4-11/4"},
        {"both",
         {"--tp", "2", "--numa-bind-nodes", "0", "1", "--numa-bind-cpus", "0-7", "16"},
         "0-63",
         64,
         "0/0-7/8 1/16/1"},
        {"GPUs have nodes",
         {"--tp", "2", "--numa-bind", "--device", "cuda"},
         "0-63",
         64,
         "auto/-/32 auto/-/32"},
        {"nothing to compute",
         {"--tp", "2", "--numa-bind", "--device", "null"},
         "0-63",
         64,
         "0/-/- 1/-/-"},
    };
    struct numa n;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        char got[300] = "";
        two_nodes(&n, cases[i].may, cases[i].cores);
        if (plan_of(&p, cases[i].args, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].name, err.text);
        write_places(&p.plan, got, sizeof got);
        if (strcmp(got, cases[i].want) != 0)
            fail_msg("%s: %s", cases[i].name, got);
        fini(&p);
    }
    one_unknown();
}

static void test_nodes_that_cannot_be(void **state)
{
    static const struct {
        /* words: parts of the error; NULL = the options are accepted */
        const char *args[9], *may, *words[2];
    } cases[] = {
        {{"--tp", "2", "--numa-bind-nodes", "0", "9"},
         "0-63",
         {"worker 1: --numa-bind-nodes 9", "it has 0-1"}},
        {{"--numa-bind-nodes", "1"}, "0-15", {"worker 0: --numa-bind-nodes 1", "0-15"}},
        {{"--tp", "2", "--numa-bind-nodes", "0,1"}, "0-63", {"1 entry for 2 workers", "blanks"}},
        {{"--numa-bind-nodes", "0,1"}, "0-63", {"\"0,1\"", "number of a NUMA node"}},
        {{"--tp", "2", "--workers", "3", "--numa-bind-nodes", "0", "1"},
         "0-63",
         {"--numa-bind-nodes", "2 entries for 3 workers"}},
        {{"--tp", "2", "--numa-bind-cpus", "0-7"}, "0-63", {"--numa-bind-cpus", "1 entry"}},
        {{"--numa-bind-cpus", "7-x"}, "0-63", {"--numa-bind-cpus", "7-x"}},
        {{"--numa-bind-cpus", "62-65"}, "0-63", {"CPU 64", "0-63"}},
        {{"--numa-bind-nodes", "1", "--numa-bind-cpus", "0-7"},
         "0-63",
         {"CPU 0 belongs to NUMA node 0", "--numa-bind-nodes asks for node 1"}},
        {{"--tp", "2", "--numa-bind-nodes", "0", "1", "0"}, "0-63", {NULL}},
    };
    struct numa n;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        two_nodes(&n, cases[i].may, 64);
        enum status s = plan_of(&p, cases[i].args, &err);
        bool refused = cases[i].words[0] != NULL;
        if (s != (refused ? STATUS_INVALID : STATUS_OK) ||
            (refused &&
             (!strstr(err.text, cases[i].words[0]) || !strstr(err.text, cases[i].words[1]))))
            fail_msg("case %zu: %s %s", i, status_name(s), err.text);
        fini(&p);
    }
    /* When the machine's nodes are unknown, only the number of entries in a list is checked. */
    const char *nine[] = {"--numa-bind-nodes", "9", NULL},
               *few[] = {"--dp", "2", "--numa-bind-nodes", "9", NULL};
    struct parsed p;
    struct error err = {0};
    one_unknown();
    assert_int_equal(plan_of(&p, nine, &err), STATUS_OK);
    assert_string_equal(value(&p.plan.children[p.plan.n_children - 1], "--numa-node"), "9");
    fini(&p);
    assert_int_equal(plan_of(&p, few, &err), STATUS_INVALID);
    fini(&p);
}

/* A worker that is added later gets the place that a larger plan would give it. It gets no place
 * when the list has no further entry. */
static void test_node_of_one_more(void **state)
{
    struct numa n;
    struct parsed p;
    struct error err = {0};
    const struct up_child *c;
    two_nodes(&n, "0-63", 64);
    const struct up_place place = {
        .bin_dir = "/b", .n_cores = 64, .numa = &n, .allowed = machine.allowed};
    const char *any[] = {"--dp", "2", "--numa-bind", NULL},
               *two[] = {"--dp", "2", "--numa-bind-nodes", "1", "1", NULL};
    assert_int_equal(plan_of(&p, any, &err), STATUS_OK);
    for (uint32_t i = 2; i < 6; i++) { /* the new workers are spread as evenly as the first ones */
        assert_int_equal(up_plan_worker(&p.o, "demo", &place, &p.arena, i, &c, &err), STATUS_OK);
        assert_string_equal(value(c, "--numa-node"), i % 2 ? "1" : "0");
    }
    fini(&p);
    assert_int_equal(plan_of(&p, two, &err), STATUS_OK);
    assert_int_equal(up_plan_worker(&p.o, "demo", &place, &p.arena, 1, &c, &err), STATUS_OK);
    assert_string_equal(value(c, "--numa-node"), "1");
    assert_int_equal(up_plan_worker(&p.o, "demo", &place, &p.arena, 2, &c, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "2 entries for 3 workers"));
    fini(&p);
    one_unknown();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes_of_workers),
        cmocka_unit_test(test_nodes_that_cannot_be),
        cmocka_unit_test(test_node_of_one_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
