/* Tests the text of `cox status`. The input is the head's JSON. The output is text, and the
 * tests check its contents and their order. Invariant: a malformed answer causes no crash and
 * counts as not healthy. */
#include "cli/view/status_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const char full[] =
    "{\"version\":\"0.1.0\",\"term\":3,\"uptime_s\":3725,\"healthy\":true,\"draining\":false,"
    "\"model\":{\"name\":\"demo\",\"max_model_len\":4096,\"vocab_size\":259},"
    "\"nodes\":[{\"node\":\"rack1\",\"host\":\"10.0.0.1\",\"workers\":3,\"gateways\":1}],"
    "\"workers\":[{\"instance\":\"00000000000000aa\",\"node\":\"rack1\",\"device\":\"null\","
    "\"state\":\"ready\",\"group\":0,\"rank\":0,\"stage\":0,\"ordinal\":17,\"last_seen_ms\":12},"
    "{\"instance\":\"00000000000000bb\",\"node\":\"rack1\",\"device\":\"null\",\"state\":"
    "\"forming\",\"group\":0,\"rank\":1,\"stage\":0,\"last_seen_ms\":7,"
    "\"device_name\":\"NVIDIA H200\",\"gpu\":{\"memory_used_bytes\":75161927680,"
    "\"memory_total_bytes\":150323855360,\"utilization\":0.87,\"temperature_celsius\":61,"
    "\"power_watts\":512.3}},"
    "{\"instance\":\"00000000000000cc\",\"node\":\"rack1\",\"device\":\"null\",\"state\":\"free\","
    "\"group\":null,\"last_seen_ms\":1}],"
    "\"groups\":[{\"id\":0,\"state\":\"ready\",\"epoch\":\"3.1\",\"tp\":2,\"pp\":1,\"running\":4,"
    "\"waiting\":1,\"kv_blocks_total\":100,\"kv_blocks_used\":25,\"steps\":77,\"recoveries\":2}],"
    "\"gateways\":[{\"instance\":\"00000000000000dd\",\"node\":\"rack1\",\"open_requests\":5,"
    "\"last_seen_ms\":3}],"
    "\"requests\":{\"running\":4,\"waiting\":1,\"finished\":9,\"failed\":0,\"cancelled\":2,"
    "\"preemptions\":3},\"kv\":{\"blocks_total\":100,\"blocks_used\":25,\"usage\":0.25,"
    "\"prefix_hit_rate\":0.5},\"throughput\":{\"prompt_tokens_per_s\":10.5,"
    "\"generation_tokens_per_s\":100},"
    "\"recent_failures\":[{\"time\":1700000000.25,\"node\":\"rack1\",\"what\":\"worker\","
    "\"reason\":\"silent\"}],\"warnings\":[\"half a group\"]}";

static void test_order(void **state)
{
    static const char *const in_order[] = {
        "healthy",
        "demo",
        "1h02m05s",
        "Active:",
        "rack1",
        "3 workers",
        "Pending:",
        "00000000000000bb",
        "Recent failures:",
        "2023-11-14T22:13:20Z",
        "silent",
        "Usage",
        "1/3 workers serve, 1 spare",
        "  0.0/0 CPUs, 0/0 GPUs, 0.0/0.0 GiB of memory, 70.0/140.0 GiB of GPU memory",
        "25/100 KV blocks",
        "Demands",
        "4 running, 1 waiting",
        "replica",
        "3.1",
        "2x1",
        "25/100",
        "worker",
        "ordinal",
        "00000000000000aa",
        "ready",
        " 17 ",
        "00000000000000cc",
        "device of worker",
        "00000000000000bb",
        "70.0/140.0 GiB  87 %   61 C    512 W  NVIDIA H200",
        "gateway",
        "00000000000000dd",
        "Throughput",
        "100.0 generated",
        "WARNING: half a group",
    };
    json_t *j = json_loads(full, 0, NULL);
    assert_non_null(j);
    struct strbuf b;
    strbuf_init(&b, 0);
    status_view_render(j, &b);
    const char *at = b.ptr;
    for (size_t i = 0; i < sizeof in_order / sizeof in_order[0]; i++) {
        at = strstr(at, in_order[i]);
        if (!at)
            fail_msg("\"%s\" is missing or out of order in:\n%s", in_order[i], b.ptr);
    }
    assert_true(status_view_is_healthy(j));
    strbuf_fini(&b);
    json_decref(j);
}

static const struct {
    const char *label, *status, *want;
} waits[] = {
    {"half a group",
     "{\"tp\":4,\"pp\":1,\"workers\":[{\"state\":\"free\"},{\"state\":\"suspect\"}]}",
     "0/2 workers serve, 1 waits for 2 more to make a replica of 4\n"},
    {"stages", "{\"tp\":2,\"pp\":2,\"workers\":[{\"state\":\"free\"},{\"state\":\"free\"}]}",
     "0/2 workers serve, 2 wait for 2 more to make a replica of 4\n"},
    {"a back-off", "{\"tp\":2,\"pp\":1,\"workers\":[{\"state\":\"free\"},{\"state\":\"free\"}]}",
     "0/2 workers serve, 2 wait to join a replica of 2\n"},
    {"a group and a spare",
     "{\"tp\":1,\"pp\":1,\"workers\":[{\"state\":\"ready\"},{\"state\":\"free\"}]}",
     "1/2 workers serve, 1 spare\n"},
    {"one of a kind",
     "{\"nodes\":[{\"node\":\"n1\",\"host\":\"h1\",\"workers\":2,\"gateways\":1}]}",
     "2 workers, 1 gateway\n"},
    {"nobody", "{\"tp\":2,\"pp\":1,\"workers\":[]}", "0/0 workers serve, 0 spare\n"},
    {"a head that does not say", "{\"workers\":[{\"state\":\"free\"}]}",
     "0/1 workers serve, 1 spare\n"},
    {"numbers of no head",
     "{\"tp\":1e300,\"pp\":1e300,\"uptime_s\":-1e96,\"term\":1e96,\"workers\":[]}",
     "term 9007199254740992   up"},
    {"a name that would move the cursor",
     "{\"model\":{\"name\":\"a\\u001b[2Jb\\u007f\"},\"workers\":[]}", "model a?[2Jb?   length"},
    {"devices",
     "{\"workers\":[{\"state\":\"ready\",\"device\":\"cuda\"},{\"state\":\"free\",\"device\":"
     "\"cuda\"},{\"state\":\"ready\",\"device\":\"cpu\"}]}",
     "  0.0/0 CPUs, 1/2 GPUs, 0.0/0.0 GiB of memory\n"},
    {"two of a node, whose memory is theirs together, and one elsewhere",
     "{\"workers\":[{\"node\":\"a\",\"memory_bytes\":34359738368,\"host\":{\"threads\":4,"
     "\"cores_used\":3.5,\"resident_bytes\":1073741824}},{\"node\":\"a\",\"memory_bytes\":"
     "34359738368,\"host\":{\"threads\":4,\"cores_used\":1.25,\"resident_bytes\":2147483648}},"
     "{\"node\":\"b\",\"memory_bytes\":17179869184,\"host\":null}]}",
     "  4.8/8 CPUs, 0/0 GPUs, 3.0/48.0 GiB of memory\n"},
    {"four of one machine, in two containers, whose CPUs and memory are the machine's",
     "{\"workers\":[{\"node\":\"a\",\"memory_bytes\":34359738368,\"host\":{\"id\":\"01\","
     "\"cpus\":2,\"memory_bytes\":34359738368,\"threads\":2}},"
     "{\"node\":\"a\",\"memory_bytes\":34359738368,\"host\":{\"id\":\"01\",\"cpus\":2,"
     "\"memory_bytes\":34359738368,\"threads\":2}},"
     "{\"node\":\"b\",\"memory_bytes\":34359738368,\"host\":{\"id\":\"01\",\"cpus\":2,"
     "\"memory_bytes\":34359738368,\"threads\":2}},"
     "{\"node\":\"c\",\"memory_bytes\":17179869184,\"host\":{\"id\":\"02\",\"cpus\":8,"
     "\"memory_bytes\":34359738368,\"threads\":3}}]}",
     "  0.0/5 CPUs, 0/0 GPUs, 0.0/48.0 GiB of memory\n"},
    {"a CPU",
     "{\"workers\":[{\"instance\":\"aa\",\"node\":\"n\",\"device\":\"cpu\",\"device_name\":\"a "
     "Xeon\","
     "\"memory_bytes\":34359738368}]}",
     "aa               n                             32.0 GiB     -      -        -  a Xeon\n"},
    {"a roll-out",
     "{\"version\":\"2\",\"workers\":[{\"version\":\"1\"},{\"version\":\"2\"},{\"version\":\"1\"},"
     "{\"version\":\"0\"}]}",
     "\nversions 2 (head), 1 (2 workers), 0 (1 worker)\n"},
    {"a shard that is read",
     "{\"workers\":[{\"state\":\"loading\",\"loaded\":0.342,\"node\":\"n1\"}]}",
     " on n1: loading 34 %\n"},
};

static void test_who_waits(void **state)
{
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        json_t *j = json_loads(waits[i].status, 0, NULL);
        struct strbuf b;
        assert_non_null(j);
        strbuf_init(&b, 0);
        status_view_render(j, &b);
        if (!strstr(b.ptr, waits[i].want))
            fail_msg("%s: want \"%s\" in:\n%s", waits[i].label, waits[i].want, b.ptr);
        strbuf_fini(&b);
        json_decref(j);
    }
}

static void test_standby(void **state)
{
    static const struct {
        const char *status, *want;
        bool is_fine;
    } cases[] = {
        {"{\"role\":\"standby\",\"lease\":{\"holder\":\"00000000000000aa tcp://10.0.0.1:7000\","
         "\"store_reached\":true},\"warnings\":[\"look\"]}",
         "standby: tcp://10.0.0.1:7000 serves; ask that head (--address, its admin port)\n\n"
         "WARNING: look\n",
         true},
        {"{\"role\":\"standby\",\"lease\":{\"holder\":\"aa tcp://a:1\",\"store_reached\":false}}",
         "cannot reach Redis, so it cannot take over; the last known serving head is "
         "tcp://a:1\n",
         false},
        {"{\"role\":\"standby\",\"lease\":{\"holder\":\"\",\"store_reached\":true}}",
         "no head has the lease yet\n", false},
        {"{\"role\":\"standby\",\"lease\":[]}", "cannot take over\n", false},
        {"{\"role\":\"standby\",\"lease\":{\"holder\":\"a \\u001b[2J\",\"store_reached\":true}}",
         "?[2J serves", true},
        {"{\"role\":\"serving\",\"healthy\":true}", "healthy", true},
        {"{\"role\":\"serving\",\"healthy\":false}", "NOT HEALTHY", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *j = json_loads(cases[i].status, 0, NULL);
        struct strbuf b;
        assert_non_null(j);
        strbuf_init(&b, 0);
        status_view_render(j, &b);
        if (!strstr(b.ptr, cases[i].want))
            fail_msg("want \"%s\" in:\n%s", cases[i].want, b.ptr);
        assert_int_equal(status_view_is_fine(j), cases[i].is_fine);
        if (status_view_is_standby(j))
            assert_null(strstr(b.ptr, "HEALTHY"));
        strbuf_fini(&b);
        json_decref(j);
    }
}

static void test_strange_answers(void **state)
{
    static const char *const cases[] = {
        "{}",
        "{\"healthy\":\"yes\",\"nodes\":5,\"workers\":{},\"groups\":[1,null,\"x\",[]]}",
        "{\"workers\":[{\"state\":7,\"instance\":[]}],\"warnings\":[1,{}],\"recent_failures\":[0]}",
        "{\"model\":\"x\",\"uptime_s\":-1,\"kv\":[],\"requests\":null}",
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *j = json_loads(cases[i], 0, NULL);
        struct strbuf b;
        strbuf_init(&b, 0);
        status_view_render(j, &b);
        assert_non_null(strstr(b.ptr, "NOT HEALTHY"));
        assert_false(status_view_is_healthy(j));
        strbuf_fini(&b);
        json_decref(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_who_waits),
        cmocka_unit_test(test_standby),
        cmocka_unit_test(test_strange_answers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
