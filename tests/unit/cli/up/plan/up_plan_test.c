/* Tests the command lines that `cox up` makes for its children. `plan` parses real flags and
 * returns a `struct up_plan`. The tests compare children, their flags, listeners and threads.
 * Invariants: every flag of a program can be given to `cox up` and reaches that program, and no
 * secret is in a command line. */
#include "cli/up/plan/argv.h"
#include "cli/up/plan/options.h"
#include "cli/up/plan/plan.h"
#include "common/options/gateway.h"
#include "common/options/head.h"
#include "common/options/worker.h"
#include "tests/unit/cli/up/plan/up_command_line.h"

static struct machine machine = {.n_cores = 12};

static enum status plan(struct parsed *p, const char *model, const char *const *args,
                        struct error *err)
{
    return plan_on(&machine, p, model, args, err);
}

static void test_standby(void **state)
{
    struct parsed p;
    struct error err = {0};
    const char *args[] = {"--redis", "redis://:secret@h", "--standby", "--lease-ttl",
                          "1.5",     "--step-log",        "/log",      NULL};
    assert_int_equal(plan(&p, "null", args, &err), STATUS_OK);
    assert_int_equal(p.plan.n_children, 4);
    const struct up_child *head = &p.plan.children[0], *second = &p.plan.children[1];
    assert_string_equal(second->name, "standby");
    assert_string_equal(value(head, "--port"), "7000");
    assert_string_equal(value(second, "--port"), "6999");
    assert_string_equal(value(second, "--admin-port"), "8266");
    assert_string_equal(value(second, "--lease-ttl"), "1.5");
    assert_string_equal(value(second, "--cluster-name"), "default");
    assert_string_equal(value(second, "--step-log"), "/log.standby");
    for (uint32_t i = 2; i < 4; i++)
        assert_string_equal(value(&p.plan.children[i], "--head"), "127.0.0.1:7000,127.0.0.1:6999");
    /* an API key is in no command line, because all users can read command lines */
    for (uint32_t i = 0; i < 4; i++)
        assert_null(value(&p.plan.children[i], "--redis"));
    fini(&p);
    const char *alone[] = {"--redis", "redis://h", NULL};
    assert_int_equal(plan(&p, "null", alone, &err), STATUS_OK);
    assert_string_equal(value(&p.plan.children[0], "--redis"), "");
    fini(&p);
    const char *without[] = {"--standby", NULL};
    assert_int_equal(plan(&p, "null", without, &err), STATUS_INVALID);
    assert_non_null(strstr(err.text, "--redis"));
    fini(&p);
}

static void test_cluster_name(void **state)
{
    static const struct {
        /* want: the expected name; NULL = the options are refused */
        const char *own, *args[6], *want;
    } cases[] = {
        {NULL, {"--standby", "--redis", "redis://h"}, "default"},
        {"cox-keys-7-aB", {"--standby", "--redis", "redis://h"}, "cox-keys-7-aB"},
        {"cox-keys-7-aB",
         {"--standby", "--redis", "redis://h", "--cluster-name", "default"},
         "default"},
        {NULL, {"--standby", "--redis", "redis://h", "--cluster-name", "a}b"}, NULL},
        {NULL, {"--cluster-name", "a}b"}, NULL},
        {NULL, {"--cluster-name", ""}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        struct error err = {0};
        machine.own_name = cases[i].own;
        enum status s = plan(&p, "null", cases[i].args, &err);
        machine.own_name = NULL;
        assert_int_equal(s, cases[i].want ? STATUS_OK : STATUS_INVALID);
        if (cases[i].want)
            for (uint32_t k = 0; k < 2; k++)
                assert_string_equal(value(&p.plan.children[k], "--cluster-name"), cases[i].want);
        else
            assert_non_null(strstr(err.text, "--cluster-name"));
        fini(&p);
    }
}

static void test_flags_without_a_standby(void **state)
{
    static const struct {
        const char *args[12];
        uint32_t n;
    } cases[] = {
        {{NULL}, 0},
        {{"--standby-port", "7100", "--lease-ttl", "3"}, 2},
        {{"--redis", "redis://h", "--cluster-name", "a", "--standby-admin-port", "9000"}, 2},
        {{"--redis", "redis://h", "--standby", "--cluster-name", "a", "--lease-ttl", "3",
          "--standby-port", "7100"},
         0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct parsed p;
        struct error err = {0};
        struct strbuf lines;
        uint32_t n = 0;
        strbuf_init(&lines, 0);
        assert_int_equal(plan(&p, "null", cases[i].args, &err), STATUS_OK);
        up_options_warnings(&p.o, &lines);
        for (size_t k = 0; k < lines.len; k++)
            n += lines.ptr[k] == '\n';
        assert_int_equal(n, cases[i].n);
        strbuf_fini(&lines);
        fini(&p);
    }
}

static void test_default(void **state)
{
    struct parsed p;
    struct error err = {0};
    const char *args[] = {"--tp", "2", "--null-step-us", "0", NULL};
    assert_int_equal(plan(&p, "null", args, &err), STATUS_OK);
    assert_int_equal(p.plan.n_children, 4);
    const struct up_child *head = &p.plan.children[0], *gateway = &p.plan.children[1],
                          *worker = &p.plan.children[3];
    assert_string_equal(head->argv[0], "/bin-dir/cox-head");
    assert_string_equal(value(head, "--tp"), "2");
    assert_string_equal(value(head, "--port"), "7000");
    /* the flag is absent, so the program's own default applies */
    assert_null(value(head, "--max-num-seqs"));
    assert_null(value(head, "--no-enable-prefix-caching"));
    assert_string_equal(gateway->name, "gateway-0");
    assert_string_equal(value(gateway, "--head"), "127.0.0.1:7000");
    assert_string_equal(value(gateway, "--keys-dir"), "/keys");
    assert_string_equal(worker->name, "worker-1");
    assert_string_equal(value(worker, "--ordinal"), "1");
    assert_string_equal(value(worker, "--http-port"), "7002");
    assert_string_equal(value(worker, "--null-step-us"), "0");
    assert_null(value(worker, "--null-token-us"));
    assert_int_equal(worker->n_listeners, 1);
    assert_int_equal(worker->listeners[0].port, 7002);
    assert_null(value(worker, "--num-speculative-tokens"));
    for (uint32_t i = 0; i < p.plan.n_children; i++)
        assert_null(p.plan.children[i].argv[p.plan.children[i].n_args]);
    fini(&p);
}

static void test_everything_is_passed_on(void **state)
{
    static const struct {
        const char *flag, *value;
        enum up_role role;
        const char *there, *want;
    } cases[] = {
        {"--max-num-seqs", "7", UP_HEAD, "--max-num-seqs", "7"},
        {"--max_num_batched_tokens", "99", UP_HEAD, "--max-num-batched-tokens", "99"},
        {"--step-target-ms", "0", UP_HEAD, "--step-target-ms", "0"},
        {"--no-enable-prefix-caching", NULL, UP_HEAD, "--no-enable-prefix-caching", ""},
        {"--no-async-scheduling", NULL, UP_HEAD, "--no-async-scheduling", ""},
        {"--admin-key-file", "/k", UP_HEAD, "--admin-key-file", "/k"},
        {"--elastic-tp", NULL, UP_HEAD, "--elastic-tp", ""},
        {"--elastic-tp", NULL, UP_HEAD, "--elastic-tp-wait", "5"},
        {"--served-model-name", "nice", UP_HEAD, "--model", "nice"},
        {"--served-model-name", "nice", UP_HEAD, "--served-model-name", "nice"},
        {"--served-model-name", "nice", UP_GATEWAY, "--served-model-name", "nice"},
        {"--head-host", "0.0.0.0", UP_GATEWAY, "--head", "127.0.0.1:7000"},
        {"--head-host", "::1", UP_WORKER, "--head", "[::1]:7000"},
        {"--head-port", "7100", UP_WORKER, "--head", "127.0.0.1:7100"},
        {"--tensor-parallel-size", "3", UP_WORKER, "--tp", "3"},
        {"--max-model-len", "4k", UP_WORKER, "--max-model-len", "4000"},
        {"--device", "cpu", UP_WORKER, "--device", "cpu"},
        {"--threads", "3", UP_WORKER, "--threads", "3"},
        {"--spec-model", "/small", UP_WORKER, "--spec-model", "/small"},
        {"--speculative-model", "/small", UP_WORKER, "--spec-model", "/small"},
        {"--cpu-isa", "avx2", UP_WORKER, "--cpu-isa", "avx2"},
        {"--comm-host", "10.0.0.1", UP_WORKER, "--comm-host", "10.0.0.1"},
        {"--comm-port", "7100", UP_WORKER, "--comm-port", "7100"},
        {"--kv-port", "7200", UP_WORKER, "--kv-port", "7200"},
        {"--kv-port", "-1", UP_WORKER, "--kv-port", "-1"},
        {"--prefill-workers", "1", UP_WORKER, "--role", "prefill"},
        {"--decode-workers", "1", UP_WORKER, "--role", "decode"},
        {"--no-shared-memory", NULL, UP_WORKER, "--no-shared-memory", ""},
        {"--weights-share", "off", UP_WORKER, "--weights-share", "off"},
        {"--enable-expert-parallel", NULL, UP_WORKER, "--enable-expert-parallel", ""},
        {"--kv-cache-dtype", "float16", UP_WORKER, "--kv-cache-dtype", "float16"},
        {"--kv-cache-dtype", "fp8", UP_WORKER, "--kv-cache-dtype", "fp8"},
        {"--quantization", "int8", UP_WORKER, "--quantization", "int8"},
        {"--quantization", "fp8", UP_WORKER, "--quantization", "fp8"},
        {"--kv-cache-dtype", "int8", UP_WORKER, "--kv-cache-dtype", "int8"},
        {"--kv-cache-dtype", "int8_per_token_head", UP_WORKER, "--kv-cache-dtype",
         "int8_per_token_head"},
        {"--dtype", "float32", UP_WORKER, "--dtype", "float32"},
        {"--dtype", "half", UP_WORKER, "--dtype", "half"},
        {"--gpu", "3", UP_WORKER, "--gpu", "3"},
        {"--step-timeout", "7", UP_WORKER, "--step-timeout", "7"},
        {"--log-format", "json", UP_WORKER, "--log-format", "json"},
        {"--metrics-public", NULL, UP_WORKER, "--metrics-public", ""},
        {"--ssl-certfile", "/c", UP_GATEWAY, "--ssl-certfile", "/c"},
        {"--ssl-keyfile", "/k", UP_GATEWAY, "--ssl-keyfile", "/k"},
        {"--ssl-ca-certs", "/a", UP_GATEWAY, "--ssl-ca-certs", "/a"},
        {"--ssl-cert-reqs", "2", UP_GATEWAY, "--ssl-cert-reqs", "2"},
        {"--ssl-ciphers", "x", UP_GATEWAY, "--ssl-ciphers", "x"},
        {"--no-enable-ssl-refresh", NULL, UP_GATEWAY, "--no-enable-ssl-refresh", ""},
        {"--uds", "/s", UP_GATEWAY, "--uds", "/s"},
        {"--gateway-admin-port", "8300", UP_GATEWAY, "--admin-port", "8300"},
        {"--gateway-admin-port", "0", UP_GATEWAY, "--admin-port", "0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        const char *args[] = {cases[i].flag, cases[i].value, NULL};
        if (plan(&p, "demo", args, &err) != STATUS_OK)
            fail_msg("%s: %s", cases[i].flag, err.text);
        const struct up_child *c = NULL;
        for (uint32_t k = 0; k < p.plan.n_children && !c; k++)
            if (p.plan.children[k].role == cases[i].role)
                c = &p.plan.children[k];
        const char *got = c ? value(c, cases[i].there) : NULL;
        if (!got || strcmp(got, cases[i].want) != 0)
            fail_msg("%s: %s is %s, want %s", cases[i].flag, cases[i].there, got ? got : "missing",
                     cases[i].want);
        fini(&p);
    }
}

/* Lists flags of the programs that `cox up` does not have. They are flags that it sets itself,
 * other ways to name the head, flags without a use under `cox up`, and flags for tests. */
static const char *const of_worker[] = {"model",
                                        "offline", /* `cox up` fetches the model itself */
                                        "role",    /* `cox up` sets the role by the counts */
                                        "head",
                                        "ordinal",
                                        "numa-node", /* --numa-bind sets this flag and cpus */
                                        "cpus",
                                        "http-port",
                                        "keys-dir",
                                        "http-host",
                                        "join",
                                        "insecure",
                                        "allow-remote-insecure",
                                        "drain-timeout",
                                        "null-fail-join",
                                        "null-load-ms",
                                        "null-stall-after-step",
                                        "null-draft-percent",
                                        "null-elastic-blocks",
                                        "null-die-at-id",
                                        NULL};

static const char *const of_gateway[] = {"model",
                                         "models", /* `cox up` writes this file */
                                         "offline",
                                         "head",
                                         "keys-dir",
                                         "insecure",
                                         "allow-remote-insecure",
                                         "api-key", /* the environment has this and the next two */
                                         "redis",
                                         "ssl-keyfile-password",
                                         "admin-key-file", /* only adapters need this flag */
                                         "admin-host",     /* `cox up` has --gateway-admin-host */
                                         "admin-port",     /* `cox up` has --gateway-admin-port */
                                         "state-dir",      /* each gateway has its own folder */
                                         "shutdown-delay", /* no load balancer needs the delay */
                                         "otlp-traces-endpoint",
                                         NULL};

static const char *const of_head[] = {
    "host", /* `cox up` has --head-host instead */
    "port", /* `cox up` has --head-port instead */
    "keys-dir",
    "insecure",
    "allow-remote-insecure",
    "runs",       /* `cox run` sets this flag */
    "max-groups", /* --dp beside --workers sets this flag */
    "redis",
    "cluster-name", /* this flag and the next two are set only with a standby */
    "lease-ttl",
    "advertise-host",
    "model",     /* `cox up` sets the model from the served name */
    "scale-min", /* these flags have no use beside `cox scale` */
    "scale-max",
    "scale-ttft-ms",
    "scale-calm-s",
    "scale-idle-s",
    "scale-start-s",
    "scale-settle-s",
    "wake-by-order",
    NULL};

static bool is_passed_on(const char *const *but, const char *name)
{
    while (*but)
        if (strcmp(name, *but++) == 0)
            return false;
    return true;
}

/* Returns a value that is never the option's default. Returns NULL for a switch. */
static const char *unusual(const struct option_spec *s, char *out, size_t size)
{
    if (s->type == OPTION_BOOL)
        return NULL;
    if (s->type == OPTION_ENUM)
        return strcmp(s->name, "load-format") == 0 ? "gguf" : strrchr(s->choices, '|') + 1;
    if (s->type == OPTION_INT)
        snprintf(out, size, "%.0f", s->max < 32 ? s->max : s->min > 32 ? s->min + 1 : 32);
    else if (s->type == OPTION_FLOAT)
        snprintf(out, size, "%g", s->min > 0.5 ? s->min : 0.5);
    else
        snprintf(out, size, "x");
    return out;
}

/* Appends the other flags that this flag requires. */
static void append_needs(const char *name, const char **args)
{
    static const struct {
        const char *part, *args[3];
    } needs[] = {{"lora", {"--enable-lora", "--lora-root", "x"}},
                 {"otlp", {"--otlp-traces-endpoint", "http://x"}},
                 {"elastic-tp-wait", {"--elastic-tp"}}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        for (int k = 0; k < 3 && needs[i].args[k] && strstr(name, needs[i].part); k++)
            *args++ = needs[i].args[k];
}

static const struct up_child *last_of(const struct up_plan *plan, enum up_role role)
{
    const struct up_child *c = NULL;
    for (uint32_t i = 0; i < plan->n_children; i++)
        if (plan->children[i].role == role)
            c = &plan->children[i];
    return c;
}

static void assert_reaches(const struct option_spec *s, enum up_role role)
{
    struct parsed p;
    struct error err = {0};
    char flag[80], text[40];
    const bool is_on = s->type == OPTION_BOOL && s->def && strcmp(s->def, "true") == 0;
    snprintf(flag, sizeof flag, "--%s%s", is_on ? "no-" : "", s->name);
    const char *wanted = unusual(s, text, sizeof text), *args[8] = {flag, wanted};
    if (strcmp(s->name, "speculative-config") == 0)
        args[1] = wanted = "{}";
    if (strcmp(s->name, "spec-method") == 0)
        args[1] = wanted = "ngram";
    append_needs(s->name, wanted ? args + 2 : args + 1);
    if (plan(&p, "demo", args, &err) != STATUS_OK)
        fail_msg("cox up %s %s: %s", flag, wanted ? wanted : "", err.text);
    const char *got = value(last_of(&p.plan, role), flag);
    if (!got || strcmp(got, wanted ? wanted : "") != 0)
        fail_msg("cox up %s %s: role %d gets %s", flag, wanted ? wanted : "", (int)role,
                 got ? got : "nothing");
    fini(&p);
}

/* Each flag of a program is a flag of `cox up` too, and reaches the program. */
static void test_every_flag_of_a_program(void **state)
{
    const struct {
        const struct option_spec *specs;
        size_t n, n_least;
        const char *const *but;
        enum up_role role;
    } programs[] = {{worker_option_specs, worker_n_option_specs, 30, of_worker, UP_WORKER},
                    {gateway_options, n_gateway_options, 50, of_gateway, UP_GATEWAY},
                    {head_option_specs, head_n_option_specs, 20, of_head, UP_HEAD}};
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
        size_t n_passed = 0;
        for (size_t k = 0; k < programs[i].n; k++)
            if (is_passed_on(programs[i].but, programs[i].specs[k].name)) {
                assert_reaches(&programs[i].specs[k], programs[i].role);
                n_passed++;
            }
        assert_true(n_passed >= programs[i].n_least);
    }
}

/* Each worker gets its share of the 12 cores for its kernels, unless the user sets the number of
 * threads. */
static void test_cores_are_shared_out(void **state)
{
    static const struct {
        /* threads: the expected value of --threads; NULL = no --threads */
        const char *model, *args[7], *threads;
    } cases[] = {
        {"demo", {NULL}, "12"},
        {"demo", {"--workers", "2"}, "6"},
        {"demo", {"--tp", "2", "--dp", "4", "--device", "cpu"}, "1"},
        {"demo", {"--workers", "5"}, "2"},
        {"demo", {"--workers", "100"}, "1"},
        {"demo", {"--workers", "3", "--tp", "2"}, "6"}, /* a spare computes nothing */
        /* the fourth rank may be on another machine */
        {"demo", {"--workers", "3", "--tp", "4"}, "4"},
        {"demo", {"--workers", "2", "--threads", "12"}, "12"},
        {"demo", {"--device", "null"}, NULL},
        {"demo", {"--device", "cuda"}, "12"},
        {"null", {"--workers", "2"}, NULL},
        {"null", {"--threads", "2"}, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        if (plan(&p, cases[i].model, cases[i].args, &err) != STATUS_OK)
            fail_msg("case %zu: %s", i, err.text);
        const char *got = value(&p.plan.children[p.plan.n_children - 1], "--threads");
        if (!cases[i].threads != !got || (got && strcmp(got, cases[i].threads) != 0))
            fail_msg("case %zu: --threads %s", i, got ? got : "is missing");
        assert_null(value(&p.plan.children[0], "--threads"));
        fini(&p);
    }
}

static void test_counts_and_refusals(void **state)
{
    static const struct {
        const char *args[9];
        uint32_t n_workers; /* expected number of workers; 0 = the options are refused */
        const char *words;
    } cases[] = {
        {{"--tp", "2", "--pp", "3", "--dp", "2"}, 12, ""},
        {{"--tp", "2", "--workers", "3"}, 3, ""},
        /* the other ranks may be on another machine */
        {{"--tp", "2", "--workers", "1"}, 1, ""},
        {{"--tp", "2", "--dp", "2", "--workers", "3"}, 0, "too few"},
        {{"--spec-method", "eagle"}, 0, "\"eagle\" is not supported; choose ngram"},
        {{"--speculative-config", "{}"}, 1, ""},
        {{"--tp", "1024", "--dp", "2"}, 0, "at most 1024"},
        {{"--port", "65530", "--gateways", "10"}, 0, "65535"},
        {{"--worker-http-port", "65535", "--workers", "2"}, 0, "65535"},
        {{"--port", "7000"}, 0, "port 7000 would be used by both head and gateway-0"},
        {{"--admin-port", "8001", "--gateways", "2"}, 0, "port 8001"},
        {{"--head-port", "8265"}, 0, "used by both head and head's admin API"},
        {{"--gateway-admin-port", "8265"}, 0, "head's admin API and gateway-0's admin API"},
        {{"--gateway-admin-port", "8001", "--gateways", "2"},
         0,
         "gateway-0's admin API and gateway-1"},
        {{"--gateway-admin-port", "65535", "--gateways", "2"}, 0, "65535"},
        {{"--gateway-admin-port", "0", "--gateways", "2"}, 1, ""},
        {{"--uds", "/s", "--gateways", "2", "--port", "7000"}, 1, ""},
        {{"--worker-http-port", "7999", "--workers", "2"}, 0, "gateway-0 and worker-1"},
        {{"--worker-http-port", "8001", "--workers", "2"}, 2, ""},
        {{"--prefill-workers", "1", "--decode-workers", "2"}, 3, ""},
        {{"--prefill-workers", "2", "--workers", "5", "--tp", "2"}, 5, ""},
        {{"--prefill-workers", "2", "--decode-workers", "2", "--workers", "3"},
         0,
         "together need 4"},
        {{"--prefill-workers", "3", "--tp", "2"}, 0, "must be multiples"},
        {{"--kv-port", "65535", "--workers", "2"}, 0, "--kv-port"},
        {{"--no-such-flag"}, 0, "no-such-flag"},
        {{"--tp", "nonsense"}, 0, "tp"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        enum status s = plan(&p, "null", cases[i].args, &err);
        if ((s == STATUS_OK) != (cases[i].n_workers > 0) || !strstr(err.text, cases[i].words))
            fail_msg("case %zu: %s %s", i, status_name(s), err.text);
        if (s == STATUS_OK)
            assert_int_equal(p.plan.n_workers, cases[i].n_workers);
        fini(&p);
    }
}

/* The first workers are for prefill, the next for decode, and the others for both. */
static void test_roles(void **state)
{
    static const char *const want[] = {"prefill", "prefill", "decode", "decode", NULL};
    static const char *const args[] = {
        "--workers", "5",         "--tp", "2", "--prefill-workers", "2", "--decode-workers",
        "2",         "--kv-port", "7200", NULL};
    struct parsed p;
    struct error err = {0};
    assert_int_equal(plan(&p, "null", args, &err), STATUS_OK);
    for (uint32_t i = 0; i < 5; i++) {
        const struct up_child *c = &p.plan.children[p.plan.n_children - 5 + i];
        const char *role = value(c, "--role");
        char port[8];
        snprintf(port, sizeof port, "%u", 7200 + i);
        assert_true(want[i] ? role && strcmp(role, want[i]) == 0 : !role);
        assert_string_equal(value(c, "--kv-port"), port);
    }
    fini(&p);
}

/* Every user can read command lines with `ps`, so keys are passed in another way. */
static void test_keys_are_in_no_command_line(void **state)
{
    struct parsed p;
    struct error err = {0};
    const char *args[] = {
        "--api-key", "secret-1", "--api-key", "secret-2", "--ssl-keyfile-password",
        "secret-3",  NULL};
    assert_int_equal(plan(&p, "null", args, &err), STATUS_OK);
    assert_int_equal(p.o.api_keys.n_items, 2);
    for (uint32_t i = 0; i < p.plan.n_children; i++)
        for (uint32_t k = 0; k < p.plan.children[i].n_args; k++)
            assert_null(strstr(p.plan.children[i].argv[k], "secret"));
    fini(&p);
}

static void test_gateways_are_numbered(void **state)
{
    struct parsed p;
    struct error err = {0};
    const char *args[] = {"--gateways", "3", "--uds", "/s", "--gateway-admin-port", "8300", NULL};
    static const char *const sockets[] = {"/s", "/s.1", "/s.2"};
    static const char *const ports[] = {"8300", "8301", "8302"};
    assert_int_equal(plan(&p, "null", args, &err), STATUS_OK);
    for (uint32_t i = 0; i < 3; i++) {
        assert_string_equal(value(&p.plan.children[1 + i], "--uds"), sockets[i]);
        assert_string_equal(value(&p.plan.children[1 + i], "--admin-port"), ports[i]);
        assert_null(value(&p.plan.children[1 + i], "--port"));
        assert_int_equal(p.plan.children[1 + i].n_listeners, 1); /* only the admin API listens */
    }
    fini(&p);
}

/* The data ports of workers must not clash with other ports. Ports that a worker opens are
 * probed before the start. */
static void test_data_ports(void **state)
{
    static const struct {
        /* words: a part of the error; "" = the options are accepted */
        const char *model, *args[10], *words;
    } cases[] = {
        {"demo", {"--tp", "2", "--comm-port", "7100", "--kv-port", "7200"}, ""},
        {"demo",
         {"--tp", "2", "--comm-port", "7100", "--kv-port", "7100"},
         "port 7100 would be used by both worker-0's KV blocks and worker-0's ranks. Choose "
         "another port with --kv-port or --comm-port"},
        {"demo",
         {"--tp", "2", "--comm-port", "7100", "--kv-port", "7101"},
         "port 7101 would be used by both worker-0's KV blocks and worker-1's ranks"},
        {"demo",
         {"--tp", "2", "--comm-port", "7000"},
         "used by both head and worker-0's ranks. Choose another port with --head-port or "
         "--comm-port"},
        {"demo", {"--tp", "2", "--comm-port", "7002"}, "worker-0's ranks and worker-1"},
        {"demo", {"--kv-port", "8000"}, "gateway-0 and worker-0's KV blocks"},
        {"demo", {"--comm-port", "8265"}, "head's admin API and worker-0's ranks"},
        {"null", {"--comm-port", "8265"}, ""}, /* a null worker does not listen on the comm port */
        {"demo", {"--comm-port", "0", "--kv-port", "-1"}, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        enum status s = plan(&p, cases[i].model, cases[i].args, &err);
        if ((s == STATUS_OK) != (cases[i].words[0] == '\0') || !strstr(err.text, cases[i].words))
            fail_msg("case %zu: %s %s", i, status_name(s), err.text);
        fini(&p);
    }
    static const char *const args[2][8] = {
        {"--tp", "2", "--comm-port", "7100", "--kv-port", "7200"},
        {"--comm-port", "7100", "--kv-port", "7200", "--comm-host", "10.0.0.1"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct parsed p;
        struct error err = {0};
        assert_int_equal(plan(&p, "demo", args[i], &err), STATUS_OK);
        const struct up_child *worker = &p.plan.children[2];
        assert_int_equal(worker->n_listeners, 3);
        assert_string_equal(worker->listeners[1].what, "worker-0's KV blocks");
        assert_string_equal(worker->listeners[1].host, i == 0 ? "127.0.0.1" : "10.0.0.1");
        assert_int_equal(worker->listeners[1].port, 7200);
        assert_int_equal(worker->listeners[2].port, 7100);
        /* a single rank opens no data port */
        assert_true((worker->listeners[2].host != NULL) == (i == 0));
        fini(&p);
    }
}

static void test_reachable(void **state)
{
    static const char *const cases[][2] = {{"127.0.0.1", "127.0.0.1:80"},
                                           {"0.0.0.0", "127.0.0.1:80"},
                                           {"::", "[::1]:80"},
                                           {"[::]", "[::1]:80"},
                                           {"::1", "[::1]:80"},
                                           {"[fe80::1]", "[fe80::1]:80"},
                                           {"node", "node:80"}};
    struct arena arena;
    arena_init(&arena, 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(up_reachable(&arena, cases[i][0], 80), cases[i][1]);
    arena_fini(&arena);
}

static void test_served_name(void **state)
{
    static const char *const cases[][2] = {{"null", "null"},
                                           {"org/name", "org/name"},
                                           {"hf:org/name@v1", "org/name"},
                                           {"/m/gemma-3.gguf", "gemma-3"},
                                           {"models/llama/", "llama"},
                                           {"/", ""},
                                           {".gguf", ".gguf"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct parsed p;
        struct error err = {0};
        assert_int_equal(plan(&p, cases[i][0], NULL, &err), STATUS_OK);
        assert_string_equal(p.plan.model_name, cases[i][1]);
        fini(&p);
    }
}

/* The longest list of names and adapters fits into a command line. */
static void test_names_and_adapters(void **state)
{
    for (uint32_t n = 64; n <= 65; n++) {
        const char *args[300] = {"--enable-lora", "--lora-root", "/l", "--max-loras", "64"};
        struct parsed p;
        struct error err = {0};
        uint32_t n_args = 5;
        for (uint32_t i = 0; i < n; i++) {
            args[n_args++] = "--served-model-name";
            args[n_args++] = "x";
        }
        for (uint32_t i = 0; i < 64; i++) {
            args[n_args++] = "--lora-modules";
            args[n_args++] = "y=y";
        }
        assert_int_equal(plan(&p, "null", args, &err), n == 64 ? STATUS_OK : STATUS_INVALID);
        assert_true(n == 64 || strstr(err.text, "--served-model-name has 65 names"));
        fini(&p);
    }
}

static void test_vllm_flags_are_taken(void **state)
{
    struct parsed p;
    struct error err = {0};
    const char *args[] = {"--gpu-memory-utilization", "0.9",           "--enforce-eager",
                          "--no-early-launch",        "--no-one-shot", NULL};
    assert_int_equal(plan(&p, "demo", args, &err), STATUS_OK);
    assert_int_equal(p.res.warnings.n_items, 0);
    const struct up_child *worker = &p.plan.children[p.plan.n_children - 1];
    assert_string_equal(value(worker, "--gpu-memory-utilization"), "0.9");
    assert_non_null(value(worker, "--enforce-eager"));
    assert_non_null(value(worker, "--no-early-launch"));
    assert_non_null(value(worker, "--no-one-shot"));
    fini(&p);
}

/* The command line of a worker that is added equals that of the last worker of a larger plan. */
static void test_a_worker_that_is_added(void **state)
{
    struct parsed p;
    struct error err = {0};
    const struct up_place place = {
        .bin_dir = "/bin-dir", .keys_dir = "/keys", .own_name = machine.own_name, .n_cores = 12};
    const char *args[] = {"--workers", "3",        "--tp",      "2",           "--kv-port",
                          "9000",      "--device", "cpu",       "--comm-port", "9100",
                          "--zone",    "z",        "--threads", "2",           NULL};
    assert_int_equal(plan(&p, "/a-model", args, &err), STATUS_OK);
    const struct up_child *last = &p.plan.children[p.plan.n_children - 1], *added;
    assert_int_equal(up_plan_worker(&p.o, "/a-model", &place, &p.arena, 2, &added, &err),
                     STATUS_OK);
    assert_string_equal(added->name, "worker-2");
    assert_int_equal(added->n_args, last->n_args);
    for (uint32_t i = 0; i < last->n_args; i++)
        assert_string_equal(added->argv[i], last->argv[i]);
    assert_int_equal(added->n_listeners, last->n_listeners);
    for (uint32_t i = 0; i < last->n_listeners; i++)
        assert_int_equal(added->listeners[i].port, last->listeners[i].port);
    assert_int_equal(up_plan_worker(&p.o, "/a-model", &place, &p.arena, 1024, &added, &err),
                     STATUS_INVALID);
    assert_non_null(strstr(err.text, "at most 1024"));
    fini(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_that_is_added),
        cmocka_unit_test(test_default),
        cmocka_unit_test(test_standby),
        cmocka_unit_test(test_cluster_name),
        cmocka_unit_test(test_flags_without_a_standby),
        cmocka_unit_test(test_everything_is_passed_on),
        cmocka_unit_test(test_every_flag_of_a_program),
        cmocka_unit_test(test_cores_are_shared_out),
        cmocka_unit_test(test_counts_and_refusals),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_keys_are_in_no_command_line),
        cmocka_unit_test(test_gateways_are_numbered),
        cmocka_unit_test(test_data_ports),
        cmocka_unit_test(test_reachable),
        cmocka_unit_test(test_served_name),
        cmocka_unit_test(test_names_and_adapters),
        cmocka_unit_test(test_vllm_flags_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
