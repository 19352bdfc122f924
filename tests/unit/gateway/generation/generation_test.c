/* Tests `generation`, which turns a choice's token ids into text deltas. A case accepts items
 * like those of the head's Tokens messages and takes a delta after each item. It compares the
 * deltas, the finish reason and the ids. Invariants: half a character or a possible stop string
 * is held back, and log-probabilities stay with their ids. */
#include "gateway/generation/generation.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* tokenizer builtin:bytes, where a token's id is its byte */
static struct text_tokenizer *tokenizer;
static struct api_error why; /* reason of the last failure */

struct gen_case {
    const char *name;
    const char *stops[3];
    bool include_stop;
    uint32_t min_tokens;
    struct {
        const char *text;
        enum finish_reason finish;
    } items[6];
    const char *want; /* expected deltas after each item, joined by '|' */
    enum finish_reason finish;
    uint32_t n_ids;
    bool sends_finish; /* true when a Finish must be sent to the head */
};

static const struct gen_case cases[] = {
    {"by length",
     {NULL},
     false,
     0,
     {{"ab", 0}, {"c", FINISH_LENGTH}},
     "ab|c",
     FINISH_LENGTH,
     3,
     false},
    {"by a stop id: its text is hidden",
     {NULL},
     false,
     0,
     {{"ab", 0}, {"c!", FINISH_STOP}},
     "ab|c",
     FINISH_STOP,
     4,
     false},
    {"by a stop id, shown",
     {NULL},
     true,
     0,
     {{"ab", 0}, {"c!", FINISH_STOP}},
     "ab|c!",
     FINISH_STOP,
     4,
     false},
    {"stop string over items",
     {"END"},
     false,
     0,
     {{"abE", 0}, {"N", 0}, {"Dxyz", 0}},
     "ab||",
     FINISH_STOP,
     5,
     true},
    {"stop string shown",
     {"END"},
     true,
     0,
     {{"abE", 0}, {"NDx", 0}},
     "ab|END",
     FINISH_STOP,
     5,
     true},
    {"held back, then released by the end",
     {"END"},
     false,
     0,
     {{"abE", 0}, {"N", FINISH_LENGTH}},
     "ab|EN",
     FINISH_LENGTH,
     4,
     false},
    {"stop string with the last token",
     {"END"},
     false,
     0,
     {{"abEND", FINISH_LENGTH}},
     "ab",
     FINISH_STOP,
     5,
     false},
    {"stop string before the end of the item",
     {"b"},
     false,
     0,
     {{"abc", FINISH_LENGTH}},
     "a",
     FINISH_STOP,
     2,
     true},
    {"min_tokens passes over",
     {"b"},
     false,
     3,
     {{"ab", 0}, {"cdb", 0}},
     "ab|cd",
     FINISH_STOP,
     5,
     true},
    {"half a character at the end",
     {NULL},
     false,
     0,
     {{"a\xC3", FINISH_LENGTH}},
     "a\xEF\xBF\xBD",
     FINISH_LENGTH,
     2,
     false},
    {"a character over two items",
     {NULL},
     false,
     0,
     {{"a\xC3", 0}, {"\xA9", FINISH_LENGTH}},
     "a|\xC3\xA9",
     FINISH_LENGTH,
     3,
     false},
};

static uint32_t to_ids(const char *text, uint32_t *ids)
{
    uint32_t n = 0;
    for (; text[n]; n++)
        ids[n] = (uint8_t)text[n];
    return n;
}

static void run_case(const struct gen_case *c)
{
    struct str strings[3];
    struct stop_set stops;
    struct generation g;
    struct strbuf shown;
    uint32_t n_stops = 0, start = 0, ids[64];
    bool told = false;
    for (; c->stops[n_stops]; n_stops++)
        strings[n_stops] = str_from(c->stops[n_stops]);
    stop_set_init(&stops, strings, n_stops);
    struct generation_rules r = {.tokenizer = tokenizer,
                                 .stops = &stops,
                                 .skip_special = true,
                                 .include_stop = c->include_stop,
                                 .min_tokens = c->min_tokens};
    generation_init(&g, &r, NULL, 0);
    stream_sent(&g.stream);
    strbuf_init(&shown, 0);
    for (uint32_t i = 0; c->items[i].text; i++) {
        struct generation_delta d;
        struct tokens_item t = {
            .attempt = 1, .start = start, .finish = c->items[i].finish, .stop_id = UINT32_MAX};
        t.ids = (struct u32_span){ids, to_ids(c->items[i].text, ids)};
        start += t.ids.n;
        told = generation_on_tokens(&g, &r, &t, &why) == GENERATION_STOPPED || told;
        generation_delta(&g, &r, false, &d);
        strbuf_append_c(&shown, i ? "|" : "");
        strbuf_append_str(&shown, d.text);
        generation_given(&g, &r, &d);
    }
    if (strcmp(strbuf_str(&shown).ptr, c->want) != 0 || g.finish != c->finish ||
        g.n_ids != c->n_ids || told != c->sends_finish)
        fail_msg("%s: \"%s\" finish %d ids %u told %d", c->name, strbuf_str(&shown).ptr,
                 (int)g.finish, g.n_ids, told);
    assert_true(generation_ended(&g));
    generation_fini(&g);
    stop_set_fini(&stops);
    strbuf_fini(&shown);
}

static void test_table(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        run_case(&cases[i]);
}

/* Special tokens are left out of the text, except those that a parser needs. */
static void test_markers(void **state)
{
    /* id 258 is <pad>, and id 256 is <bos> */
    static const uint32_t ids[] = {'a', 258, 256, 'b'}, markers[] = {258};
    for (uint32_t n = 0; n < 2; n++) {
        struct stop_set stops = {0};
        struct generation g;
        struct generation_delta d;
        struct generation_rules r = {.tokenizer = tokenizer,
                                     .stops = &stops,
                                     .skip_special = true,
                                     .marker_ids = markers,
                                     .n_marker_ids = n};
        struct tokens_item t = {.attempt = 1, .ids = {ids, 4}};
        generation_init(&g, &r, NULL, 0);
        stream_sent(&g.stream);
        generation_on_tokens(&g, &r, &t, &why);
        assert_true(generation_delta(&g, &r, false, &d));
        assert_true(str_eq(d.text, n ? STR("a<pad>b") : STR("ab")));
        generation_took_text(&g, &d);
        assert_false(generation_delta(&g, &r, false, &d));
        assert_int_equal(d.n_ids, 4); /* the ids are emitted together with the next text */
        generation_fini(&g);
    }
}

struct error_case {
    enum finish_reason finish;
    enum status status;
    int want;
};

static void test_errors(void **state)
{
    static const struct error_case errors[] = {
        {FINISH_ERROR, STATUS_INVALID, 400},  {FINISH_ERROR, STATUS_LIMIT, 429},
        {FINISH_ERROR, STATUS_INTERNAL, 500}, {FINISH_ERROR, STATUS_CLOSED, 503},
        {FINISH_TIMEOUT, STATUS_OK, 504},     {FINISH_CANCELLED, STATUS_OK, 503},
    };
    struct stop_set stops = {0};
    struct generation_rules r = {.tokenizer = tokenizer, .stops = &stops};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        struct generation g;
        generation_init(&g, &r, NULL, 0);
        stream_sent(&g.stream);
        struct tokens_item t = {.attempt = 1,
                                .finish = errors[i].finish,
                                .status = errors[i].status,
                                .text = STR("why")};
        assert_int_equal(generation_on_tokens(&g, &r, &t, &why), GENERATION_FAILED);
        assert_int_equal(why.http_status, errors[i].want);
        assert_int_equal(why.retry_after_s > 0, errors[i].want == 429);
        generation_fini(&g);
    }
}

static void test_logprobs_follow_the_ids(void **state)
{
    struct stop_set stops;
    struct str stop = STR("b");
    struct generation g;
    struct generation_delta d;
    uint32_t ids[] = {'a', 'b', 'c'}, row_ids[] = {'a', 'x'};
    float values[] = {-0.5f, -1.5f};
    struct logprob_row rows[3] = {{{row_ids, 2}, {values, 2}, 1},
                                  {{row_ids, 2}, {values, 2}, 1},
                                  {{row_ids, 2}, {values, 2}, 1}};
    stop_set_init(&stops, &stop, 1);
    struct generation_rules r = {.tokenizer = tokenizer, .stops = &stops, .want_logprobs = true};
    generation_init(&g, &r, NULL, 0);
    stream_sent(&g.stream);
    struct tokens_item t = {.attempt = 1, .ids = {ids, 3}, .logprobs = rows, .n_logprobs = 3};
    assert_int_equal(generation_on_tokens(&g, &r, &t, &why), GENERATION_STOPPED);
    assert_true(generation_delta(&g, &r, true, &d));
    assert_int_equal(d.n_ids, 2); /* the ids end at the token that completes the stop string */
    assert_int_equal(g.n_logprobs, 2);
    assert_true(d.logprobs[1].values[1] == -1.5f);
    assert_int_equal(d.logprobs[0].offset, 0);
    assert_int_equal(d.logprobs[1].offset, 1);
    generation_given(&g, &r, &d);
    assert_int_equal(g.n_chars, 1); /* the stop string is not part of the text */
    generation_fini(&g);
    stop_set_fini(&stops);
}

static int open_tokenizer(void **state)
{
    char err[TEXT_ERR_MAX];
    return text_tokenizer_open("builtin:bytes", NULL, &tokenizer, err);
}

static int close_tokenizer(void **state)
{
    text_tokenizer_free(tokenizer);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_markers),
        cmocka_unit_test(test_errors),
        cmocka_unit_test(test_logprobs_follow_the_ids),
    };
    return cmocka_run_group_tests(tests, open_tokenizer, close_tokenizer);
}
