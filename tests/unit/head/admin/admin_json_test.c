/* Tests the JSON documents of the admin API. `cox status` and the dashboard depend on their
 * shape. */
#include "tests/unit/head/core/core_fixture.h"

#include "head/admin/json.h"
#include "head/options.h"

static void status_has_every_field_of_its_page(void **state)
{
    static const char *const top[] = {
        "version",  "term",       "uptime_s",    "healthy",         "draining", "model",
        "nodes",    "workers",    "groups",      "gateways",        "kv",       "requests",
        "warnings", "throughput", "speculation", "recent_failures", "transfers"};
    static const char *const worker[] = {
        "instance",   "node",          "device",        "device_name",  "memory_bytes",
        "state",      "group",         "rank",          "stage",        "ordinal",
        "term_epoch", "step_received", "step_executed", "last_seen_ms", "http_address",
        "own_step_s", "straggler"};
    static const char *const replica[] = {
        "id",      "role",    "state",           "epoch",          "tp",    "pp",        "workers",
        "running", "waiting", "kv_blocks_total", "kv_blocks_used", "steps", "recoveries"};
    struct fixture *f = fixture_new(2);
    form_pair(f);
    say_gateway_hello(f, 3, 9);
    json_t *s = admin_json_status(f->core, false);
    for (size_t i = 0; i < sizeof top / sizeof top[0]; i++)
        assert_non_null(json_object_get(s, top[i]));
    json_t *w = json_array_get(json_object_get(s, "workers"), 0);
    for (size_t i = 0; i < sizeof worker / sizeof worker[0]; i++)
        assert_non_null(json_object_get(w, worker[i]));
    json_t *g = json_array_get(json_object_get(s, "groups"), 0);
    for (size_t i = 0; i < sizeof replica / sizeof replica[0]; i++)
        assert_non_null(json_object_get(g, replica[i]));
    assert_string_equal(json_string_value(json_object_get(w, "instance")), "0000000000000065");
    assert_string_equal(json_string_value(json_object_get(w, "state")), "ready");
    assert_string_equal(json_string_value(json_object_get(g, "epoch")), "1.1");
    assert_int_equal(json_array_size(json_object_get(s, "gateways")), 1);
    assert_true(json_is_true(json_object_get(s, "healthy")));
    json_decref(s);
    fixture_free(f);
}

static void scale_has_every_field_of_its_page(void **state)
{
    static const char *const all[] = {"desired_workers", "workers",     "workers_per_group",
                                      "groups_ready",    "min_workers", "max_workers",
                                      "ttft_target_s",   "calm_s",      "load",
                                      "reason",          "idle_s",      "cold_start_s",
                                      "unused_s",        "version"};
    static const char *const load[] = {"running", "waiting", "oldest_wait_s", "kv_usage", "open"};
    struct fixture *f = fixture_new(2);
    form_pair(f);
    assert_int_equal(head_core_desired_workers(f->core), 0); /* the head has just started */
    head_core_tick(f->core, f->now);
    head_core_tick(f->core, f->now + SCALE_HINT_BLIND_NS);
    json_t *s = admin_json_scale(f->core);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        assert_non_null(json_object_get(s, all[i]));
    for (size_t i = 0; i < sizeof load / sizeof load[0]; i++)
        assert_non_null(json_object_get(json_object_get(s, "load"), load[i]));
    assert_int_equal(json_integer_value(json_object_get(s, "desired_workers")), 2);
    assert_true(json_is_null(json_object_get(s, "max_workers")));
    head_core_forget_scale(f->core); /* a standby that begins to serve makes the same call */
    assert_int_equal(head_core_desired_workers(f->core), 0);
    json_decref(s);
    fixture_free(f);
}

/* The status and the scale page both report that there are enough workers but that they cannot
 * share a replica. */
static void workers_that_differ_are_told(void **state)
{
    struct fixture *f = fixture_new(2);
    struct msg a = worker_hello(101, 0), b = worker_hello(102, 1);
    b.hello.worker.max_model_len = 256;
    b.hello.worker.config_hash[0] = 1;
    say(f, 1, &a);
    json_t *before = admin_json_events(f->core, 0);
    say(f, 2, &b);
    json_t *after = admin_json_events(f->core, 0), *status = admin_json_status(f->core, false);
    char *texts[] = {json_dumps(before, 0), json_dumps(after, 0),
                     json_dumps(json_object_get(status, "warnings"), 0)};
    assert_null(strstr(texts[0], "worker_unlike"));
    assert_non_null(strstr(texts[1], "worker_unlike"));
    assert_non_null(strstr(texts[1], "\"other_max_model_len\": \"512\""));
    assert_non_null(strstr(texts[1], "these two workers cannot be in one replica"));
    assert_non_null(strstr(texts[2],
                           "2 workers are connected, and a replica needs 2, but these workers "
                           "cannot form one: model file, device, "));
    assert_non_null(strstr(texts[2], ". One of them has --max-model-len 512, another one 256\""));
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        free(texts[i]);
    json_decref(before);
    json_decref(after);
    json_decref(status);
    fixture_free(f);
}

/* When more workers are connected than a replica takes and none serves, the counts are not shown
 * as parts of a replica. */
static void spares_are_not_members(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint8_t i = 1; i <= 3; i++) {
        struct msg m = worker_hello(100u + i, i - 1);
        say(f, i, &m);
    }
    json_t *status = admin_json_status(f->core, false), *list = json_object_get(status, "warnings");
    const char *last = json_string_value(json_array_get(list, json_array_size(list) - 1));
    assert_string_equal(last, "no replica serves: 3 workers are connected, and a replica needs 2");
    json_decref(status);
    fixture_free(f);
}

static void fields_are_read_back_from_logfmt(void **state)
{
    static const struct {
        const char *logfmt, *want;
    } cases[] = {
        {"", "{}"},
        {"a=1 b=two", "{\"a\":\"1\",\"b\":\"two\"}"},
        {"a=\"x y\" b=3", "{\"a\":\"x y\",\"b\":\"3\"}"},
        {"a=\"q\\\"q\\\\\" b=", "{\"a\":\"q\\\"q\\\\\",\"b\":\"\"}"},
        {"stray a=1", "{\"a\":\"1\"}"},
        {"a=\"cut off", "{\"a\":\"cut off\"}"},
        {"a=\xff", "{\"a\":\"(not UTF-8)\"}"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *o = admin_json_fields(cases[i].logfmt);
        char *text = json_dumps(o, JSON_COMPACT);
        assert_string_equal(text, cases[i].want);
        free(text);
        json_decref(o);
    }
}

static void events_are_numbered_and_bounded(void **state)
{
    struct fixture *f = fixture_new(2);
    for (uint32_t i = 0; i < EVENTS_CAP + 10; i++)
        events_add(&f->core->events, f->now, LOG_DEBUG, "tick", "i=%u", i);
    json_t *all = admin_json_events(f->core, 0);
    assert_int_equal(json_array_size(json_object_get(all, "events")), EVENTS_CAP);
    assert_int_equal(json_integer_value(json_object_get(all, "next")), EVENTS_CAP + 11);
    json_decref(all);
    json_t *last = admin_json_events(f->core, EVENTS_CAP + 10);
    assert_int_equal(json_array_size(json_object_get(last, "events")), 1);
    json_decref(last);
    json_t *none = admin_json_events(f->core, UINT64_MAX);
    assert_int_equal(json_array_size(json_object_get(none, "events")), 0);
    json_decref(none);
    fixture_free(f);
}

static void options_need_keys_where_others_reach(void **state)
{
    static const struct {
        struct head_options o;
        bool ok;
    } cases[] = {
        {{.admin_host = "127.0.0.1", .tp = 1, .pp = 1}, false},
        {{.admin_host = "127.0.0.1", .insecure = true, .tp = 1, .pp = 1}, true},
        {{.admin_host = "localhost", .keys_dir = "k", .tp = 1, .pp = 1}, true},
        {{.admin_host = "0.0.0.0", .keys_dir = "k", .tp = 1, .pp = 1}, false},
        {{.admin_host = "0.0.0.0", .keys_dir = "k", .admin_key_file = "f", .tp = 1, .pp = 1}, true},
        {{.admin_host = "::1", .keys_dir = "k", .insecure = true, .tp = 1, .pp = 1}, false},
        {{.admin_host = "::1", .keys_dir = "k", .tp = 64, .pp = 64}, false},
        {{.admin_host = "::1",
          .keys_dir = "k",
          .tp = 1,
          .pp = 1,
          .max_num_seqs = 256,
          .max_num_batched_tokens = 255},
         false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct error err = {0};
        if ((head_options_check(&cases[i].o, &err) == STATUS_OK) != cases[i].ok)
            fail_msg("case %zu: %s", i, err.text);
    }
}

int main(void)
{
    log_init("test", LOG_LEVEL_COUNT, LOG_LOGFMT);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scale_has_every_field_of_its_page),
        cmocka_unit_test(status_has_every_field_of_its_page),
        cmocka_unit_test(fields_are_read_back_from_logfmt),
        cmocka_unit_test(workers_that_differ_are_told),
        cmocka_unit_test(spares_are_not_members),
        cmocka_unit_test(events_are_numbered_and_bounded),
        cmocka_unit_test(options_need_keys_where_others_reach),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
