/* Parses the blocks of Inkling. Each block has a role, an optional name, and a kind:
 *   <|message_model|>f<|content_invoke_tool_json|>{"name": "f", "args": {…}}<|end_message|>
 * The prompt ends in <|message_model|>, or in a kind. Text between blocks is content. */
#include "gateway/parsers/inkling.h"

#include <string.h>

#include "gateway/answer/answer.h"

enum { STEP_HEADER, STEP_CONTENT, STEP_THINK, STEP_CALL, STEP_ARGUMENTS, STEP_REST };
enum { MAX_HEADER = 512 };

static const char *const marks[] = {"<|message_model|>",
                                    "<|content_text|>",
                                    "<|content_thinking|>",
                                    "<|content_invoke_tool_json|>",
                                    "<|content_invoke_tool_text|>",
                                    "<|content_tool_error|>",
                                    "<|end_message|>",
                                    "<|content_model_end_sampling|>",
                                    NULL};
enum { MODEL, TEXT, THINK, CALL, TOOL_TEXT, TOOL_ERROR, END, END_SAMPLING };
static const char *const argument_keys[] = {"args", "arguments", "parameters", NULL};
/* These markers end a block of reasoning. */
static const char *const think_ends[] = {"<|content_thinking|>", "<|content_invoke_tool_json|>",
                                         "<|end_message|>", "<|content_model_end_sampling|>", NULL};

static uint32_t step_behind(size_t mark)
{
    switch (mark) {
    case MODEL:
        return STEP_HEADER;
    case THINK:
        return STEP_THINK;
    case CALL:
        return STEP_CALL;
    default:
        return STEP_CONTENT;
    }
}

static void inkling_init(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                         struct str continued)
{
    (void)p;
    if (continued.len > 0 || str_ends(prompt, str_from(marks[TEXT])))
        s->step = STEP_CONTENT;
    else if (str_ends(prompt, str_from(marks[THINK])))
        s->step = STEP_THINK;
}

static void give(struct str text, bool calls, struct answer *a)
{
    if (calls)
        answer_content(a, text);
    else
        answer_past_reasoning(a, text);
}

/* Switches to the step after a mark. Without a tool parser a call is text. */
static void go(struct parser_state *s, size_t mark, bool calls, struct answer *a)
{
    s->step = step_behind(mark);
    if (s->step == STEP_CALL && !calls) {
        give(str_from(marks[CALL]), calls, a);
        s->step = STEP_CONTENT;
    }
    if (s->step == STEP_THINK && !calls)
        answer_reasoning_again(a);
}

/* Handles a header. A name before a kind is dropped. A name without a kind is content. */
static size_t feed_header(struct parser_state *s, struct str text, bool end, bool calls,
                          struct answer *a)
{
    const struct str within = {text.ptr, text.len < MAX_HEADER ? text.len : MAX_HEADER};
    size_t i_mark, n = parser_find_first(within, marks, &i_mark);
    if (i_mark == SIZE_MAX && text.len < MAX_HEADER && !end)
        return 0;
    if (i_mark == SIZE_MAX) {
        s->step = STEP_CONTENT;
        return 0;
    }
    if (i_mark == END || i_mark == END_SAMPLING)
        give((struct str){text.ptr, n}, calls, a);
    go(s, i_mark, calls, a);
    return n + strlen(marks[i_mark]);
}

static size_t feed_content(struct parser_state *s, struct str text, bool end, bool calls,
                           struct answer *a)
{
    size_t i_mark, n = parser_find_first(text, marks, &i_mark);
    if (end && i_mark == SIZE_MAX)
        n = text.len;
    give((struct str){text.ptr, n}, calls, a);
    if (i_mark == SIZE_MAX)
        return n;
    go(s, i_mark, calls, a);
    return n + strlen(marks[i_mark]);
}

static size_t feed_think(struct parser_state *s, struct str text, bool end, bool calls,
                         struct answer *a)
{
    size_t i_end, n = parser_find_first(text, think_ends, &i_end);
    if (end && i_end == SIZE_MAX)
        n = text.len;
    answer_reasoning(a, (struct str){text.ptr, n});
    if (i_end == SIZE_MAX)
        return n;
    if (i_end > 0) /* the mark at index 0 repeats the beginning of the block */
        go(s, i_end == 1 ? CALL : END, calls, a);
    return n + strlen(think_ends[i_end]);
}

static size_t feed_call(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    struct json_call call = {0};
    const size_t at = json_skip_space(text, 0);
    enum json_call_result res = JSON_CALL_BAD;
    if (at <= MAX_HEADER)
        res = json_call_parse(&s->head, parser_skip(text, at), "name", argument_keys, &call);
    if (res == JSON_CALL_MORE && !end)
        return 0;
    s->head = (struct json_head){0};
    if (res != JSON_CALL_BEGUN && res != JSON_CALL_BARE) {
        answer_content(a, str_from(marks[CALL]));
        s->step = STEP_CONTENT;
        return 0;
    }
    s->i_call = answer_call(a, call.name);
    s->json = (struct json_scan){0};
    s->step = res == JSON_CALL_BEGUN ? STEP_ARGUMENTS : STEP_REST;
    if (res == JSON_CALL_BARE)
        answer_arguments(a, s->i_call, STR("{}"));
    return at + call.arguments;
}

static size_t feed_arguments(struct parser_state *s, struct str text, struct answer *a)
{
    size_t n = 0;
    if (json_scan_feed(&s->json, text, &n) != JSON_SCAN_MORE)
        s->step = STEP_REST;
    answer_arguments(a, s->i_call, (struct str){text.ptr, n});
    return n;
}

/* Skips the rest after a call's arguments, up to the end of the block. */
static size_t feed_rest(struct parser_state *s, struct str text)
{
    size_t i_mark, n = parser_find_first(text, marks, &i_mark);
    if (i_mark == SIZE_MAX)
        return n;
    s->step = step_behind(i_mark);
    return n + strlen(marks[i_mark]);
}

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    const bool calls = p == &tool_parser_inkling;
    switch (s->step) {
    case STEP_HEADER:
        return feed_header(s, text, end, calls, a);
    case STEP_CONTENT:
        return feed_content(s, text, end, calls, a);
    case STEP_THINK:
        return feed_think(s, text, end, calls, a);
    case STEP_CALL:
        return feed_call(s, text, end, a);
    case STEP_ARGUMENTS:
        return feed_arguments(s, text, a);
    default:
        return feed_rest(s, text);
    }
}

static size_t tool_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    return parser_run(feed_step, p, s, text, end, a);
}

/* Passes all text to the tool parser when it is of the same kind, because that parser handles
 * everything. */
static size_t reasoning_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                             bool end, struct answer *a)
{
    if (a->rules->tools != &tool_parser_inkling)
        return parser_run(feed_step, p, s, text, end, a);
    answer_past_reasoning(a, text);
    return text.len;
}

const struct answer_parser reasoning_parser_inkling = {
    .name = "inkling", .markers = marks, .init = inkling_init, .feed = reasoning_feed};
const struct answer_parser tool_parser_inkling = {
    .name = "inkling", .markers = marks, .init = inkling_init, .feed = tool_feed};
