/* Tests the codec of messages. The tests make random messages of each type (message_gen.c),
 * encode them into frames, decode these and compare. Other frames are damaged or have values out
 * of range. Invariants: a decoded message equals the sent one bit for bit, a bad frame is
 * refused without a crash, and decoding stays within a memory budget. codec_columns_test.c tests
 * the columns of a step. COX_WRITE_CORPUS=DIR writes seeds for the fuzzer. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "proto/codec/codec.h"
#include "tests/unit/proto/codec/codec_fixture.h"
#include "tests/unit/proto/codec/message_gen.c"

/* Checks that the fields are in order, with only the padding of alignment between them. */
static void check_table(const struct table *t)
{
    size_t end = 0;
    for (size_t i = 0; i < t->n_fields; i++) {
        const struct field *f = &t->fields[i];
        size_t expected = (end + f->align - 1) / f->align * f->align;
        if (f->offset != expected)
            fail_msg("%s: bytes before %s are in no table row", t->name, f->name);
        end = f->offset + f->size;
        if (f->sub)
            check_table(f->sub);
    }
    if (t->size - end >= 8)
        fail_msg("%s: bytes at the end are in no table row", t->name);
}

static void test_tables_cover_structs(void **state)
{
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++) {
        if (!message_tables[t].table)
            fail_msg("%s has no table", msg_type_name((enum msg_type)t));
        check_table(message_tables[t].table);
    }
}

static void test_round_trip(void **state)
{
    struct fixture *f = *state;
    struct rng r = {0xC0C5};
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++) {
        for (int i = 0; i < 60; i++) {
            struct msg m, back, copy;
            struct frame_header h;
            struct error err = {0};
            uint64_t session = rng_next(&r), seq = rng_next(&r);
            arena_reset(&f->gen);
            gen_message(&r, &f->gen, (enum msg_type)t, &m);
            encode(f, &m, session, seq);
            assert_int_equal(frame_parse_header(strbuf_str(&f->frame), &h, &err), STATUS_OK);
            assert_true(h.session == session && h.seq == seq && (int)h.type == t);
            assert_int_equal(h.major, PROTOCOL_MAJOR);
            if (decode(f, &back, &err) != STATUS_OK)
                fail_msg("%s: %s", msg_type_name(m.type), err.text);
            const char *d = diff_message(&m, &back);
            if (d)
                fail_msg("%s #%d: %s differs", msg_type_name(m.type), i, d);
            assert_int_equal(msg_copy(&back, &f->gen, &copy), STATUS_OK);
            assert_null(diff_message(&m, &copy));
        }
    }
}

/* A frame is cut at each length and has each header bit flipped. The codec refuses or decodes
 * it, and never crashes. The arena stays within the budget of a frame of that size. */
static void test_damaged_frames(void **state)
{
    struct fixture *f = *state;
    struct rng r = {77};
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++) {
        struct msg m, out;
        struct frame_header h;
        struct error err;
        arena_reset(&f->gen);
        gen_message(&r, &f->gen, (enum msg_type)t, &m);
        encode(f, &m, 1, 1);
        struct str whole = strbuf_str(&f->frame);
        char *cut = malloc(whole.len);
        for (size_t n = 0; n < whole.len; n++) {
            memcpy(cut, whole.ptr, n);
            assert_int_equal(frame_parse_header((struct str){cut, n}, &h, &err), STATUS_PROTOCOL);
        }
        for (int i = 0; i < 400; i++) {
            memcpy(cut, whole.ptr, whole.len);
            size_t n_flips = 1 + (size_t)rng_below(&r, 4);
            size_t from = i % 4 ? FRAME_HEADER_BYTES : 0;
            for (size_t k = 0; k < n_flips && whole.len > from; k++)
                cut[from + rng_below(&r, whole.len - from)] ^= (char)(1u << rng_below(&r, 8));
            arena_reset(&f->in);
            if (frame_parse_header((struct str){cut, whole.len}, &h, &err) == STATUS_OK)
                (void)!codec_decode((struct str){cut, whole.len}, &h, &f->in, &out, &err);
            assert_true(f->in.used_bytes <=
                        PROTO_DECODE_BASE_BYTES + whole.len * PROTO_DECODE_FACTOR);
        }
        free(cut);
    }
}

static void test_header_refusals(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        size_t at;
        uint8_t value;
        enum status want;
    } cases[] = {
        {"magic", 0, 'D', STATUS_PROTOCOL},        {"magic 2", 1, 'D', STATUS_PROTOCOL},
        {"major", 2, 1, STATUS_VERSION},           {"major", 2, 3, STATUS_VERSION},
        {"major 0", 2, 0, STATUS_VERSION},         {"newer minor is fine", 3, 9, STATUS_OK},
        {"type none", 4, 0, STATUS_PROTOCOL},      {"type unknown", 4, 200, STATUS_PROTOCOL},
        {"type high byte", 5, 1, STATUS_PROTOCOL}, {"reserved", 6, 1, STATUS_PROTOCOL},
        {"reserved end", 31, 1, STATUS_PROTOCOL},  {"body length", 24, 200, STATUS_PROTOCOL},
        {"body length", 27, 1, STATUS_PROTOCOL},
    };
    struct msg m = {.type = MSG_CREDIT, .credit = {1000}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct frame_header h;
        encode(f, &m, 3, 4);
        f->frame.ptr[cases[i].at] = (char)cases[i].value;
        enum status got = frame_parse_header(strbuf_str(&f->frame), &h, NULL);
        if (got != cases[i].want)
            fail_msg("%s: %s", cases[i].name, status_name(got));
        if (got == STATUS_VERSION)
            assert_int_equal(h.major, cases[i].value);
    }
}

static void test_values_refused_on_encode(void **state)
{
    struct fixture *f = *state;
    static const uint32_t ids[] = {1, 2, 3};
    static const char big[PROTO_MAX_MODEL_BYTES + 2] = {0};
    struct msg ok = {.type = MSG_SUBMIT, .submit = {.n_prompt = 2, .ids = {ids, 3}}}, m = ok;
    encode(f, &ok, 1, 1);
    m.submit.n_prompt = 4;
    expect_refused(f, "n_prompt beyond ids", &m);
    m = ok;
    m.submit.sampling.temperature = NAN;
    expect_refused(f, "NaN", &m);
    m = ok;
    m.submit.sampling.top_p = INFINITY;
    expect_refused(f, "infinity", &m);
    m = ok;
    m.submit.sampling.grammar_kind = GRAMMAR_REGEX;
    expect_refused(f, "grammar without text", &m);
    m = ok;
    m.submit.sampling.bad_words = (struct u32_span){ids, 3};
    expect_refused(f, "bad words without end", &m);
    m = ok;
    m.submit.sampling.n_logprobs = -2;
    expect_refused(f, "n_logprobs", &m);
    m = ok;
    m.submit.sampling.lora = (struct str){big, sizeof big};
    expect_refused(f, "long adapter name", &m);
    m = ok;
    m.submit.cache_salt = STR("\xC3");
    expect_refused(f, "salt that is no UTF-8", &m);
    m = (struct msg){.type = MSG_HELLO, .hello = {.role = ROLE_WORKER}};
    expect_refused(f, "worker without description", &m);
    m = (struct msg){.type = MSG_HELLO, .hello = {.role = ROLE_COUNT}};
    expect_refused(f, "role", &m);
    m = (struct msg){.type = MSG_FORM, .form = {.tp = 33, .pp = 32}};
    expect_refused(f, "ranks", &m);
    m = (struct msg){.type = MSG_FORM, .form = {.tp = 2, .pp = 1, .rank = 2}};
    expect_refused(f, "rank outside", &m);
    m = (struct msg){.type = MSG_NONE};
    expect_refused(f, "no type", &m);
}

/* The same rules hold for a body from elsewhere. The test makes such bodies by changing encoded
 * bytes. */
static void test_values_refused_on_decode(void **state)
{
    struct fixture *f = *state;
    static const struct {
        const char *name;
        enum msg_type type;
        size_t n;
        const char *body;
    } cases[] = {
        {"status out of range", MSG_REFUSED, 2, "\x08\x63"},
        {"negative role", MSG_HELLO, 11, "\x18\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"},
        {"no role", MSG_HELLO, 0, ""},
        {"short hash", MSG_HELLO, 9,
         "\x18\x02\x3A\x05\x3A\x03"
         "abc"},
        {"no sampling", MSG_SUBMIT, 2, "\x18\x01"},
        {"no session", MSG_WELCOME, 0, ""},
        {"text is no UTF-8", MSG_GOODBYE, 3, "\x0A\x01\xFF"},
        {"string past the end", MSG_GOODBYE, 3, "\x0A\x05x"},
        {"varint without end", MSG_CREDIT, 3, "\x08\xFF\xFF"},
        {"wrong wire type", MSG_CREDIT, 3, "\x0A\x01x"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct msg out;
        struct error err = {0};
        make_frame(f, cases[i].type, cases[i].body, cases[i].n);
        enum status got = decode(f, &out, &err);
        if (got != STATUS_PROTOCOL)
            fail_msg("%s: %s", cases[i].name, status_name(got));
        assert_true(err.text[0] != '\0');
    }
}

/* A body of many empty messages would need a hundred times its size in structs. The budget
 * refuses it. */
static void test_amplification_is_bounded(void **state)
{
    struct fixture *f = *state;
    struct msg m = {.type = MSG_PLAN}, out;
    struct error err;
    encode(f, &m, 1, 1);
    uint32_t n = 40000;
    for (uint32_t i = 0; i < n; i++)
        assert_true(strbuf_append(&f->frame, "\x32\x00", 2)); /* these bytes are an empty admit */
    n *= 2;
    memcpy(f->frame.ptr + 24, &n, sizeof n); /* the machines of the tests are little-endian */
    assert_int_equal(decode(f, &out, &err), STATUS_PROTOCOL);
    assert_non_null(strstr(err.text, "more items than its size"));
    assert_true(f->in.used_bytes <= PROTO_DECODE_BASE_BYTES + n * PROTO_DECODE_FACTOR);
    assert_int_equal(f->in.limit_bytes, 64u << 20);
}

/* Small messages need no credit, so the size of their frames must be bounded. */
static void test_small_types_have_small_frames(void **state)
{
    struct fixture *f = *state;
    struct msg m = {.type = MSG_GOODBYE};
    struct frame_header h;
    encode(f, &m, 1, 1);
    char *pad = calloc(1, 20000);
    assert_true(strbuf_append(&f->frame, pad, 20000));
    free(pad);
    uint32_t n = 20000;
    memcpy(f->frame.ptr + 24, &n, sizeof n);
    assert_int_equal(frame_parse_header(strbuf_str(&f->frame), &h, NULL), STATUS_PROTOCOL);
}

static void test_texts_are_cut_not_refused(void **state)
{
    struct fixture *f = *state;
    char big[2 * PROTO_MAX_TEXT_BYTES];
    memset(big, 'x', sizeof big);
    memcpy(big + PROTO_MAX_TEXT_BYTES - 1, "\xC3\xA9", 2); /* the cut would split this character */
    struct msg m = {.type = MSG_GOODBYE, .goodbye = {{big, sizeof big}}}, out;
    encode(f, &m, 1, 1);
    assert_int_equal(decode(f, &out, NULL), STATUS_OK);
    assert_int_equal(out.goodbye.text.len, PROTO_MAX_TEXT_BYTES - 1);
    m.goodbye.text = STR("cut\xE2\x82");
    encode(f, &m, 1, 1);
    assert_int_equal(decode(f, &out, NULL), STATUS_OK);
    assert_true(str_eq_c(out.goodbye.text, "cut"));
}

static void test_limits_reported(void **state)
{
    struct fixture *f = *state;
    struct msg m;
    struct rng r = {9};
    do {
        arena_reset(&f->gen);
        gen_message(&r, &f->gen, MSG_PLAN, &m);
    } while (m.plan.n_runs < 8 || m.plan.n_admits < 2);
    struct arena tiny;
    arena_init(&tiny, 512);
    assert_int_equal(codec_encode(&m, 1, 1, &tiny, &f->frame), STATUS_NO_MEMORY);
    arena_fini(&tiny);
    struct strbuf small;
    strbuf_init(&small, 100);
    assert_int_equal(codec_encode(&m, 1, 1, &f->scratch, &small), STATUS_LIMIT);
    strbuf_fini(&small);
    encode(f, &m, 1, 1);
    struct frame_header h;
    struct msg out;
    assert_int_equal(frame_parse_header(strbuf_str(&f->frame), &h, NULL), STATUS_OK);
    arena_init(&tiny, 1024);
    assert_int_not_equal(codec_decode(strbuf_str(&f->frame), &h, &tiny, &out, NULL), STATUS_OK);
    assert_int_equal(tiny.limit_bytes, 1024);
    arena_fini(&tiny);
}

static void test_who_may_send(void **state)
{
    static const struct {
        enum msg_type type;
        enum peer_role role;
        bool want;
    } cases[] = {
        {MSG_HELLO, ROLE_NONE, true},       {MSG_HEARTBEAT, ROLE_NONE, false},
        {MSG_SUBMIT, ROLE_GATEWAY, true},   {MSG_SUBMIT, ROLE_WORKER, false},
        {MSG_RESULT, ROLE_WORKER, true},    {MSG_RESULT, ROLE_GATEWAY, false},
        {MSG_PLAN, ROLE_WORKER, false},     {MSG_PLAN, ROLE_GATEWAY, false},
        {MSG_PLAN, ROLE_HEAD, true},        {MSG_CANCEL, ROLE_OPERATOR, false},
        {MSG_WELCOME, ROLE_WORKER, false},  {MSG_NONE, ROLE_HEAD, false},
        {MSG_TYPE_COUNT, ROLE_HEAD, false}, {MSG_HELLO, ROLE_COUNT, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(msg_allowed_from(cases[i].type, cases[i].role), cases[i].want);
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++)
        assert_string_not_equal(msg_type_name((enum msg_type)t), "unknown");
    assert_string_equal(finish_reason_name(FINISH_LENGTH), "length");
    assert_string_equal(peer_role_name(ROLE_COUNT), "unknown");
}

static void write_seed(struct fixture *f, const char *dir, const struct msg *m, int i)
{
    char path[512], number[8] = "";
    if (i > 0)
        snprintf(number, sizeof number, "_%d", i + 1);
    snprintf(path, sizeof path, "%s/%s%s", dir, msg_type_name(m->type), number);
    encode(f, m, 7, 1);
    FILE *out = fopen(path, "wb");
    if (!out || fwrite(f->frame.ptr, 1, f->frame.len, out) != f->frame.len || fclose(out) != 0)
        abort();
}

/* Writes one frame of each type. Types with columns get more frames, because their columns
 * depend on the content. */
static void write_corpus(const char *dir)
{
    struct fixture *f;
    struct rng r = {5};
    setup((void **)&f);
    for (int t = MSG_NONE + 1; t < MSG_TYPE_COUNT; t++) {
        int n = t == MSG_PLAN || t == MSG_RESULT || t == MSG_TOKENS ? 6 : 1;
        for (int i = 0; i < n; i++) {
            struct msg m;
            arena_reset(&f->gen);
            gen_message(&r, &f->gen, (enum msg_type)t, &m);
            write_seed(f, dir, &m, i);
        }
    }
    teardown((void **)&f);
}

int main(void)
{
    const char *corpus = getenv("COX_WRITE_CORPUS");
    if (corpus)
        write_corpus(corpus);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(test_tables_cover_structs),
        T(test_round_trip),
        T(test_damaged_frames),
        T(test_header_refusals),
        T(test_values_refused_on_encode),
        T(test_values_refused_on_decode),
        T(test_amplification_is_bounded),
        T(test_small_types_have_small_frames),
        T(test_texts_are_cut_not_refused),
        T(test_limits_reported),
        T(test_who_may_send),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
