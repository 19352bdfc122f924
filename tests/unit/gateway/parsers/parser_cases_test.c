/* Tests all parsers with the rows of parser_cases.jsonl. Each text is fed whole, byte by byte
 * and with pseudo-random cuts. A row names its parsers and the text, and has the expected
 * reasoning, content and calls. A call's arguments are a JSON value, or a string when the model
 * stopped within them. "why" says how vLLM's answer differs. Invariant: a parser's work is
 * linear in the text, also for damaged and endless texts. */
#include "gateway/answer/answer.h"
#include "gateway/parsers/reasoning.h"
#include "gateway/parsers/tool_parsers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const char PARSER_CASES[] =
    /* path of the rows, relative to the source folder */
    "tests/unit/gateway/parsers/parser_cases.jsonl";
enum { LEAST_ROWS = 300, N_CUTS = 3, N_DAMAGES = 12 };
#define MOST_SECONDS 1.5 /* most CPU seconds, enough for a slow machine and for sanitizers */

struct heard {
    /* `calls`: a NUL precedes each name, and \1 follows it */
    struct strbuf reasoning, content, calls;
};

static void hear(struct heard *h, const struct answer_delta *d)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct answer_part *p = &d->parts[i];
        if (p->kind == ANSWER_REASONING) {
            strbuf_append_str(&h->reasoning, p->text);
        } else if (p->kind == ANSWER_CONTENT) {
            strbuf_append_str(&h->content, p->text);
        } else if (p->kind == ANSWER_CALL) {
            strbuf_append_str(&h->calls, (struct str){"", 1});
            strbuf_append_str(&h->calls, p->name);
            strbuf_append_str(&h->calls, STR("\1"));
        } else {
            strbuf_append_str(&h->calls, p->text);
        }
    }
}

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Feeds a text in pieces. `most` is the number of bytes of a piece; 0 = the whole text. With
 * `seed` 0 all pieces have exactly `most` bytes, otherwise 1 to `most` bytes. `finished` means
 * that the model ended the answer; otherwise its length limit did. */
static void feed(const struct answer_rules *rules, const struct prompt *prompt, struct str text,
                 size_t most, uint32_t seed, bool finished, struct heard *h)
{
    struct answer a;
    struct answer_delta d = {0};
    strbuf_init(&h->reasoning, 0);
    strbuf_init(&h->content, 0);
    strbuf_init(&h->calls, 0);
    answer_init(&a, rules, 0, prompt);
    for (size_t i = 0, n; i < text.len; i += n) {
        n = most == 0 ? text.len : seed ? 1 + next_random(&seed) % most : most;
        n = n < text.len - i ? n : text.len - i;
        d = (struct answer_delta){0};
        answer_feed(&a, (struct str){text.ptr + i, n}, false, &d);
        hear(h, &d);
    }
    d = (struct answer_delta){.finish = finished ? ANSWER_STOP : ANSWER_LENGTH,
                              .stop_id = UINT32_MAX};
    answer_feed(&a, STR(""), true, &d);
    hear(h, &d);
    answer_fini(&a);
}

static void heard_fini(struct heard *h)
{
    strbuf_fini(&h->reasoning);
    strbuf_fini(&h->content);
    strbuf_fini(&h->calls);
}

static bool is_text(const struct strbuf *b, const json_t *row, const char *key)
{
    const json_t *want = json_object_get(row, key);
    const char *s = want ? json_string_value(want) : "";
    return s && b->len == strlen(s) && (b->len == 0 || memcmp(b->ptr, s, b->len) == 0);
}

/* Returns the calls in `b` as JSON: [["f", {…}], …]. */
static json_t *calls_of(const struct strbuf *b)
{
    json_t *all = json_array();
    for (size_t i = 0; i < b->len;) {
        const char *name = b->ptr + i + 1, *end = memchr(name, 1, b->len - i - 1);
        const char *text = end + 1, *last = b->ptr + b->len;
        const char *next = memchr(text, 0, (size_t)(last - text));
        json_error_t e;
        const size_t n = (size_t)((next ? next : last) - text);
        json_t *value = json_loadb(text, n, JSON_DECODE_ANY, &e);
        if (!value)
            value = json_stringn_nocheck(text, n);
        json_array_append_new(all, json_pack("[s%o]", name, (size_t)(end - name), value));
        i = (size_t)(text - b->ptr) + n;
    }
    return all;
}

static bool is_wanted(const struct heard *h, const json_t *row)
{
    json_t *calls = calls_of(&h->calls), *none = json_array();
    const json_t *want = json_object_get(row, "calls");
    const bool same = json_equal(calls, want ? want : none) &&
                      is_text(&h->reasoning, row, "reasoning") &&
                      is_text(&h->content, row, "content");
    if (!same) {
        char *got = json_dumps(calls, JSON_ENCODE_ANY), *line = json_dumps(row, 0);
        print_error("%s\n  reasoning: %.*s\n  content: %.*s\n  calls: %s\n", line,
                    (int)h->reasoning.len, h->reasoning.ptr, (int)h->content.len, h->content.ptr,
                    got);
        free(got);
        free(line);
    }
    json_decref(calls);
    json_decref(none);
    return same;
}

static bool same(const struct strbuf *a, const struct strbuf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->ptr, b->ptr, a->len) == 0);
}

static const struct answer_parser *find(const json_t *row, const char *key,
                                        const struct answer_parser *(*by_name)(const char *))
{
    const char *name = json_string_value(json_object_get(row, key));
    const struct answer_parser *p = name ? by_name(name) : NULL;
    if (name && !p)
        fail_msg("no parser %s", name);
    return p;
}

static struct prompt prompt_of(const json_t *row)
{
    const char *text = json_string_value(json_object_get(row, "prompt"));
    return (struct prompt){.has_text = true, .text = str_from(text ? text : "")};
}

static struct answer_rules rules_of(const json_t *row, const json_t *tools)
{
    return (struct answer_rules){
        .reasoning = find(row, "r", reasoning_parser_find),
        .tools = find(row, "t", tool_parser_find),
        .tool_list = tools,
        .call_prefix = "call-",
    };
}

/* Returns false when the row's answer stopped within a call, so that its arguments are a string. */
static bool is_finished(const json_t *row)
{
    const json_t *calls = json_object_get(row, "calls");
    for (size_t i = 0; i < json_array_size(calls); i++)
        if (json_is_string(json_array_get(json_array_get(calls, i), 1)))
            return false;
    return true;
}

static bool row_is_right(const json_t *row, const json_t *tools)
{
    const bool finished = is_finished(row);
    const struct prompt prompt = prompt_of(row);
    const struct answer_rules rules = rules_of(row, tools);
    const struct str text = str_from(json_string_value(json_object_get(row, "text")));
    struct heard whole, pieces;
    feed(&rules, &prompt, text, 0, 0, finished, &whole);
    bool ok = is_wanted(&whole, row);
    for (uint32_t i = 0; i < 1 + N_CUTS; i++) {
        feed(&rules, &prompt, text, i == 0 ? 1 : 3 * i * i, i, finished, &pieces);
        const bool alike = same(&whole.reasoning, &pieces.reasoning) &&
                           same(&whole.content, &pieces.content) &&
                           same(&whole.calls, &pieces.calls);
        if (!alike)
            print_error("cut %u: %.*s | %.*s\n", i, (int)pieces.content.len, pieces.content.ptr,
                        (int)pieces.calls.len, pieces.calls.ptr);
        ok = ok && alike && is_wanted(&pieces, row);
        heard_fini(&pieces);
    }
    heard_fini(&whole);
    return ok;
}

/* ---- damaged rows ---- */

/* Damages a text in one of five ways, such as a cut, a repetition or wrong bytes. */
static void damage(struct str text, uint32_t *seed, struct strbuf *out)
{
    static const char signs[] = "{}[]()\"'\\,:=<>|/ \nx0-";
    const size_t at = next_random(seed) % (text.len + 1), way = next_random(seed) % 5;
    const size_t again = next_random(seed) % (text.len - at + 1);
    strbuf_reset(out);
    (void)strbuf_append_str(out, way == 0 ? (struct str){text.ptr, at} : text);
    if (way == 1)
        (void)strbuf_append_str(out, text);
    if (way == 2)
        (void)strbuf_append(out, text.ptr + at, again);
    for (uint32_t i = 0; way > 2 && i < way - 2; i++)
        out->ptr[next_random(seed) % out->len] = signs[next_random(seed) % (sizeof signs - 1)];
}

static bool damaged_row_is_right(const json_t *row, const json_t *tools, uint32_t *seed)
{
    const struct prompt prompt = prompt_of(row);
    const struct answer_rules rules = rules_of(row, tools);
    struct strbuf text;
    bool ok = true;
    strbuf_init(&text, 0);
    for (int i = 0; i < N_DAMAGES && ok; i++) {
        struct heard whole, pieces;
        damage(str_from(json_string_value(json_object_get(row, "text"))), seed, &text);
        feed(&rules, &prompt, strbuf_str(&text), 0, 0, true, &whole);
        feed(&rules, &prompt, strbuf_str(&text), 1 + (size_t)i, 0, true, &pieces);
        ok = same(&whole.calls, &pieces.calls) && same(&whole.content, &pieces.content) &&
             same(&whole.reasoning, &pieces.reasoning);
        if (!ok)
            print_error("t %s, r %s, %d: %.*s\n", rules.tools ? rules.tools->name : "",
                        rules.reasoning ? rules.reasoning->name : "", i, (int)text.len, text.ptr);
        heard_fini(&whole);
        heard_fini(&pieces);
    }
    strbuf_fini(&text);
    return ok;
}

/* Reports the names of parsers that occur in no row. Returns the number of such names. */
static size_t n_missing(void (*names)(struct strbuf *out), const json_t *seen)
{
    struct strbuf all;
    char *save = NULL;
    size_t n = 0;
    strbuf_init(&all, 0);
    names(&all);
    for (char *name = strtok_r(all.ptr, ", ", &save); name; name = strtok_r(NULL, ", ", &save))
        if (!json_object_get(seen, name)) {
            print_error("no row for %s\n", name);
            n++;
        }
    strbuf_fini(&all);
    return n;
}

static void note_name(json_t *seen, const json_t *row, const char *key)
{
    const char *name = json_string_value(json_object_get(row, key));
    if (name)
        json_object_set_new(seen, name, json_true());
}

typedef void each_row(const json_t *row, const json_t *tools, void *arg);

/* Calls `f` for each row. The first line of the file holds the tools. Every other line is a row. */
static size_t for_each_row(each_row *f, void *arg)
{
    FILE *file = fopen(PARSER_CASES, "r");
    json_t *tools = NULL;
    size_t n_rows = 0;
    char line[16 << 10];
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_error_t e;
        json_t *row = json_loads(line, 0, &e);
        if (!row)
            fail_msg("row %zu: %s", n_rows + 1, e.text);
        if (!tools) {
            tools = json_incref(json_object_get(row, "tools"));
        } else {
            n_rows++;
            f(row, tools, arg);
        }
        json_decref(row);
    }
    fclose(file);
    json_decref(tools);
    return n_rows;
}

struct seen {
    json_t *tools, *reasoning; /* names of the parsers that occurred in a row */
    size_t n_wrong;
    uint32_t seed;
};

static void check_row(const json_t *row, const json_t *tools, void *arg)
{
    struct seen *seen = arg;
    seen->n_wrong += !row_is_right(row, tools);
    note_name(seen->tools, row, "t");
    note_name(seen->reasoning, row, "r");
}

static void every_row_is_right(void **state)
{
    struct seen seen = {.tools = json_object(), .reasoning = json_object()};
    (void)state;
    assert_true(for_each_row(check_row, &seen) >= LEAST_ROWS);
    seen.n_wrong += n_missing(tool_parser_names, seen.tools);
    seen.n_wrong += n_missing(reasoning_parser_names, seen.reasoning);
    json_decref(seen.tools);
    json_decref(seen.reasoning);
    assert_int_equal(seen.n_wrong, 0);
}

static void check_damaged(const json_t *row, const json_t *tools, void *arg)
{
    struct seen *seen = arg;
    seen->n_wrong += !damaged_row_is_right(row, tools, &seen->seed);
}

static void damaged_rows_are_alike_in_pieces(void **state)
{
    struct seen seen = {.seed = 20240607};
    (void)state;
    for_each_row(check_damaged, &seen);
    assert_int_equal(seen.n_wrong, 0);
}

/* ---- long texts ---- */

/* Feeds a long text in small pieces after the first half of a row. A parser may read each byte a
 * bounded number of times. Such a parser needs a few hundredths of a second. A parser that reads
 * all held text with every piece reads 8 GiB, which takes several seconds. */
static void feed_for_ever(const json_t *row, const json_t *tools, void *arg)
{
    enum { N_LONG = 1 << 18, PIECE = 4 };
    static const char *const fills[] = {"{\"a\":", "\"", "<", "a", " "};
    static char text[N_LONG];
    const char *name = json_string_value(json_object_get(row, "t"));
    const struct prompt prompt = {.has_text = true, .text = STR("")};
    const struct answer_rules rules = rules_of(row, tools);
    const char *start = json_string_value(json_object_get(row, "text"));
    const size_t n = strlen(start) / 2;
    if (!name || json_object_get(arg, name))
        return;
    json_object_set_new(arg, name, json_true());
    memcpy(text, start, n);
    for (size_t k = 0; k < sizeof fills / sizeof *fills; k++) {
        struct heard h;
        for (size_t i = n, len = strlen(fills[k]); i < N_LONG; i++)
            text[i] = fills[k][(i - n) % len];
        const clock_t from = clock();
        feed(&rules, &prompt, (struct str){text, N_LONG}, PIECE, 0, true, &h);
        const double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        heard_fini(&h);
        if (took > MOST_SECONDS)
            fail_msg("%s, %s again and again: %.1f s of work", name, fills[k], took);
    }
}

static void long_texts_take_linear_time(void **state)
{
    json_t *seen = json_object();
    (void)state;
    for_each_row(feed_for_ever, seen);
    assert_true(json_object_size(seen) > 0);
    json_decref(seen);
}

/* A long text of nothing but markers arrives at once. Finding each marker must take a bounded
 * number of steps, not a search through the rest of the text. */
static void marks_at_once_take_linear_time(void **state)
{
    enum { N_LONG = 1 << 20 };
    static const char *const rows[][2] = {
        {"inkling", "<|end_message|>"}, {"openai", "<|channel|>"}, {"muse", "<atem:invoke "}};
    const struct prompt prompt = {.has_text = true, .text = STR("")};
    char *text = malloc(N_LONG);
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct answer_rules rules = {.tools = tool_parser_find(rows[k][0]),
                                           .call_prefix = "call-"};
        struct heard h;
        assert_non_null(rules.tools);
        for (size_t i = 0, len = strlen(rows[k][1]); i < N_LONG; i++)
            text[i] = rows[k][1][i % len];
        feed(&rules, &prompt, (struct str){text, N_LONG}, 0, 0, true, &h);
        heard_fini(&h);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_row_is_right),
                                       cmocka_unit_test(damaged_rows_are_alike_in_pieces),
                                       cmocka_unit_test(long_texts_take_linear_time),
                                       cmocka_unit_test(marks_at_once_take_linear_time)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
