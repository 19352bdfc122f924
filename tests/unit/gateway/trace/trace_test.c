/* Tests which trace a request belongs to, and the span that describes it. The input is the
 * headers `traceparent` and `tracestate`. The output is a `trace_context` and OTLP's JSON.
 * Invariant: a malformed header is handled like an absent one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "gateway/trace/span.h"

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

static void only_what_the_standard_has_counts(void **state)
{
    static const struct {
        const char *parent, *tracestate;
        bool good, sampled;
        const char *want_state;
    } cases[] = {
        {"00-" TRACE "-" PARENT "-01", "", true, true, ""},
        {" 00-" TRACE "-" PARENT "-00\t", "", true, false, ""},
        {"00-" TRACE "-" PARENT "-ff", "", true, true, ""},
        {"00-" TRACE "-" PARENT "-02", "", true, false, ""},
        {"cc-" TRACE "-" PARENT "-01", "", true, true, ""},
        {"cc-" TRACE "-" PARENT "-01-more", "", true, true, ""},
        {"cc-" TRACE "-" PARENT "-01more", "", false, false, ""},
        {"00-" TRACE "-" PARENT "-01-more", "", false, false, ""},
        {"ff-" TRACE "-" PARENT "-01", "", false, false, ""},
        {"", "a=b", false, false, ""},
        {"00-" TRACE "-" PARENT "-0", "", false, false, ""},
        {"00-" TRACE "-" PARENT "-0x", "", false, false, ""},
        {"00-" TRACE "-" PARENT "_01", "", false, false, ""},
        {"0-" TRACE "-" PARENT "-001", "", false, false, ""},
        {"00-0AF7651916CD43DD8448EB211C80319C-" PARENT "-01", "", false, false, ""},
        {"00-00000000000000000000000000000000-" PARENT "-01", "", false, false, ""},
        {"00-" TRACE "-0000000000000000-01", "", false, false, ""},
        {"00-" TRACE "-" PARENT "-01", "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE", true, true,
         "rojo=00f067aa0ba902b7, congo=t61rcWkgMzE"},
        {"00-" TRACE "-" PARENT "-01", "fw529a3039@dt=FfTfe, ,1a-_*/=x y", true, true,
         "fw529a3039@dt=FfTfe, ,1a-_*/=x y"},
        {"00-" TRACE "-" PARENT "-01", "no", true, true, ""},
        {"00-" TRACE "-" PARENT "-01", "Upper=1", true, true, ""},
        {"00-" TRACE "-" PARENT "-01", "a=", true, true, ""},
        {"00-" TRACE "-" PARENT "-01", "=b", true, true, ""},
        {"00-" TRACE "-" PARENT "-01", "a=b=c", true, true, ""},
        {"00-" TRACE "-" PARENT "-01", "a=\x7f", true, true, ""},
        {"00-" TRACE "-" PARENT "-01",
         "a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,"
         "a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1,a=1",
         true, true, ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct trace_context c;
        bool good =
            trace_context_read(&c, str_from(cases[i].parent), str_from(cases[i].tracestate));
        if (good != cases[i].good || c.sampled != cases[i].sampled ||
            strcmp(c.state, cases[i].want_state) != 0 || trace_context_is_set(&c) != good)
            fail_msg("%s | %s: good %d sampled %d state \"%s\"", cases[i].parent,
                     cases[i].tracestate, good, c.sampled, c.state);
        char hex[33];
        trace_hex(c.trace_id, TRACE_ID_BYTES, hex);
        assert_string_equal(hex, good ? TRACE : "00000000000000000000000000000000");
        trace_hex(c.parent_id, SPAN_ID_BYTES, hex);
        assert_string_equal(hex, good ? PARENT : "0000000000000000");
    }
}

static void a_state_that_is_too_long_is_none(void **state)
{
    char text[TRACE_STATE_MAX + 2];
    struct trace_context c;
    for (size_t n = TRACE_STATE_MAX; n <= TRACE_STATE_MAX + 1; n++) {
        memset(text, 'v', n);
        memcpy(text, "a=", 2);
        text[n / 2] = ',';
        memcpy(text + n / 2 + 1, "b=", 2);
        assert_true(
            trace_context_read(&c, STR("00-" TRACE "-" PARENT "-01"), (struct str){text, n}));
        assert_int_equal(strlen(c.state), n == TRACE_STATE_MAX ? n : 0);
    }
}

static void a_share_of_what_begins_here_is_sampled(void **state)
{
    static const struct {
        uint8_t high, low;
        double ratio;
        bool want;
    } cases[] = {
        {0xff, 0xff, 1, true},  {0xff, 0x00, 0, false},  {0xff, 0x00, .01, true},
        {0x00, 0x7f, .5, true}, {0x00, 0x80, .5, false}, {0x00, 0xff, .5, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t random[TRACE_ID_BYTES] = {cases[i].high, 1};
        struct trace_context c;
        random[9] = cases[i].low; /* byte 9 is the first of the low 56 bits */
        trace_context_begin(&c, random, cases[i].ratio);
        if (c.sampled != cases[i].want)
            fail_msg("case %zu", i);
        assert_memory_equal(c.trace_id, random, sizeof random);
    }
    static const uint8_t zeros[TRACE_ID_BYTES];
    struct trace_context c;
    trace_context_begin(&c, zeros, 1);
    assert_true(trace_context_is_set(&c));
}

static json_t *attribute(json_t *list, const char *name)
{
    size_t i;
    json_t *a;
    json_array_foreach(list, i, a)
    {
        if (strcmp(json_string_value(json_object_get(a, "key")), name) == 0)
            return json_object_get(a, "value");
    }
    return NULL;
}

static json_t *batch_of(const struct access_record *n, int status, bool aborted)
{
    struct strbuf b;
    strbuf_init(&b, 0);
    trace_batch_head(&b, "a \"service\"", "host");
    for (int i = 0; i < 2; i++) {
        strbuf_append_c(&b, i ? "," : "");
        trace_span(&b, n, status, aborted, 1500000000);
    }
    trace_batch_tail(&b);
    json_error_t e;
    json_t *j = json_loads(b.ptr, JSON_REJECT_DUPLICATES, &e);
    if (!j)
        fail_msg("%s in %s", e.text, b.ptr);
    strbuf_fini(&b);
    json_t *of = json_array_get(json_object_get(j, "resourceSpans"), 0);
    json_t *resource = json_object_get(json_object_get(of, "resource"), "attributes");
    assert_string_equal(
        json_string_value(json_object_get(attribute(resource, "service.name"), "stringValue")),
        "a \"service\"");
    json_t *spans =
        json_incref(json_object_get(json_array_get(json_object_get(of, "scopeSpans"), 0), "spans"));
    json_decref(j);
    assert_int_equal(json_array_size(spans), 2);
    return spans;
}

static void a_span_is_otlps_json(void **state)
{
    struct access_record n = {.begun_wall_ns = 1700000000123456789,
                              .is_llm = true,
                              .id = "cmpl-1",
                              .model = "a \"model\"",
                              .n = 2,
                              .n_choices = 2,
                              .n_ended = 2,
                              .max_tokens = 9,
                              .temperature = .5,
                              .top_p = 1,
                              .prompt_tokens = 7,
                              .completion_tokens = 18,
                              .has_first_token = true,
                              .ttft = .25,
                              .phases = {.queue = .125, .e2e = 1.5}};
    assert_true(trace_context_read(&n.trace, STR("00-" TRACE "-" PARENT "-01"), STR("k=v")));
    n.trace.span_id[7] = 0x2a;
    json_t *spans = batch_of(&n, 200, false), *s = json_array_get(spans, 1);
    static const char *const texts[][2] = {{"traceId", TRACE},
                                           {"spanId", "000000000000002a"},
                                           {"parentSpanId", PARENT},
                                           {"traceState", "k=v"},
                                           {"name", "llm_request"},
                                           {"startTimeUnixNano", "1700000000123456789"},
                                           {"endTimeUnixNano", "1700000001623456789"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_string_equal(json_string_value(json_object_get(s, texts[i][0])), texts[i][1]);
    assert_int_equal(json_integer_value(json_object_get(s, "kind")), 2);
    json_t *a = json_object_get(s, "attributes");
    assert_string_equal(
        json_string_value(json_object_get(attribute(a, "gen_ai.response.model"), "stringValue")),
        "a \"model\"");
    assert_string_equal(json_string_value(json_object_get(
                            attribute(a, "gen_ai.usage.completion_tokens"), "intValue")),
                        "18");
    assert_true(json_real_value(json_object_get(attribute(a, "gen_ai.latency.time_in_queue"),
                                                "doubleValue")) == .125);
    assert_null(json_object_get(s, "status"));
    json_decref(spans);
}

static void how_it_ended_is_said(void **state)
{
    static const struct {
        uint32_t n_ended;
        bool by_length, aborted;
        int status;
        const char *want;
    } cases[] = {
        {1, false, false, 200, "stop"},  {1, true, false, 200, "length"},
        {0, false, false, 200, "error"}, {0, false, false, 429, "error"},
        {0, false, true, 200, "abort"},  {0, false, true, 499, "abort"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct access_record n = {
            .n_choices = 1, .n_ended = cases[i].n_ended, .by_length = cases[i].by_length};
        trace_context_begin(&n.trace, (const uint8_t[TRACE_ID_BYTES]){9}, 1);
        json_t *spans = batch_of(&n, cases[i].status, cases[i].aborted);
        json_t *s = json_array_get(spans, 0), *a = json_object_get(s, "attributes");
        assert_string_equal(
            json_string_value(json_object_get(attribute(a, "coxswain.outcome"), "stringValue")),
            cases[i].want);
        bool error = strcmp(cases[i].want, "error") == 0;
        assert_int_equal(json_integer_value(json_object_get(json_object_get(s, "status"), "code")),
                         error ? 2 : 0);
        assert_null(json_object_get(s, "parentSpanId"));
        assert_null(attribute(a, "gen_ai.latency.time_to_first_token"));
        json_decref(spans);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_the_standard_has_counts),
        cmocka_unit_test(a_state_that_is_too_long_is_none),
        cmocka_unit_test(a_share_of_what_begins_here_is_sampled),
        cmocka_unit_test(a_span_is_otlps_json),
        cmocka_unit_test(how_it_ended_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
