/* Parses the messages of gpt-oss. Each message has a header, <|message|>, and a body up to the
 * next marker:
 *   <|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{…}<|call|>
 * The prompt ends in `<|start|>assistant`, or within a header. The header decides the kind of
 * the body: a call (recipient in functions), reasoning (channel analysis), or content. */
#include "gateway/parsers/harmony.h"

#include <string.h>

#include "gateway/answer/answer.h"

#define START   "<|start|>"
#define CHANNEL "<|channel|>"
#define MESSAGE "<|message|>"

enum { STEP_HEADER, STEP_REASONING, STEP_CONTENT, STEP_CALL, STEP_BETWEEN };
enum { MAX_HEADER = 512, MAX_PROMPT_HEADER = 1024 };

static const char *const ends[] = {"<|end|>", "<|return|>", "<|call|>", START, CHANNEL, NULL};
enum { I_START = 3, I_CHANNEL };
static const char *const message[] = {MESSAGE, NULL};
static const char *const begins[] = {START, CHANNEL, NULL};

static bool starts_with(struct str s, const char *start)
{
    size_t n = strlen(start);
    return s.len >= n && memcmp(s.ptr, start, n) == 0;
}

/* Returns the word after `word` in a header, up to white space or a marker. Returns an empty
 * text when `word` is missing. */
static struct str word_after(struct str header, const char *word)
{
    bool found;
    size_t at = parser_find_marker(header, word, &found);
    if (!found)
        return STR("");
    struct str rest = parser_skip(header, at + strlen(word));
    size_t n = 0;
    while (n < rest.len && !strchr(" \t\r\n<", rest.ptr[n]))
        n++;
    return (struct str){rest.ptr, n};
}

/* Returns the step for the body after this header. `name` gets the name of the called function,
 * or an empty text. */
static uint32_t step_of(struct str header, struct str *name)
{
    *name = word_after(header, "to=functions.");
    if (name->len > 0)
        return STEP_CALL;
    return str_eq_c(word_after(header, CHANNEL), "analysis") ? STEP_REASONING : STEP_CONTENT;
}

static void harmony_init(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                         struct str continued)
{
    size_t n = prompt.len < MAX_PROMPT_HEADER ? prompt.len : MAX_PROMPT_HEADER;
    struct str tail = parser_skip(prompt, prompt.len - n), name;
    if (continued.len > 0)
        s->step = STEP_CONTENT;
    if (continued.len > 0 || n < strlen(MESSAGE) ||
        memcmp(tail.ptr + n - strlen(MESSAGE), MESSAGE, strlen(MESSAGE)) != 0)
        return;
    for (size_t i = n; i-- > 0;)
        if (starts_with(parser_skip(tail, i), START)) { /* the last header begins here */
            tail = parser_skip(tail, i);
            break;
        }
    s->step = step_of(tail, &name);
    /* at this point the called function's name is unknown */
    s->step = s->step == STEP_CALL ? STEP_CONTENT : s->step;
}

static void give(struct parser_state *s, struct str body, bool calls, struct answer *a)
{
    if (s->step == STEP_CALL)
        answer_arguments(a, s->i_call, body);
    else if (s->step == STEP_REASONING)
        answer_reasoning(a, body);
    else if (calls)
        answer_content(a, body);
    else
        answer_past_reasoning(a, body);
    s->said = s->said || body.len > 0;
}

/* Handles text without a header. Text of a model that writes no messages is content. An
 * incomplete header is dropped. One byte is emitted, so that the next search does not find the
 * same marker again. */
static size_t no_header(struct parser_state *s, struct str text, bool end, bool calls,
                        struct answer *a)
{
    bool begun;
    s->step = STEP_CONTENT;
    if (end && text.len < MAX_HEADER) {
        parser_find_marker(text, CHANNEL, &begun);
        return begun || s->in_header ? text.len : 0;
    }
    give(s, (struct str){text.ptr, 1}, calls, a);
    return 1;
}

static size_t feed_header(struct parser_state *s, struct str text, bool end, bool calls,
                          struct answer *a)
{
    struct str within = {text.ptr, text.len < MAX_HEADER ? text.len : MAX_HEADER}, name;
    size_t i_found, n = parser_find_first(within, message, &i_found);
    if (i_found == SIZE_MAX)
        return end || text.len >= MAX_HEADER ? no_header(s, text, end, calls, a) : 0;
    s->step = step_of((struct str){text.ptr, n}, &name);
    if (s->step == STEP_CALL && !calls)
        s->step = STEP_CONTENT;
    if (s->step == STEP_REASONING && !calls)
        answer_reasoning_again(a);
    if (s->step == STEP_CALL) {
        s->i_call = answer_call(a, name);
        s->said = false;
    }
    return n + strlen(MESSAGE);
}

static size_t feed_body(struct parser_state *s, struct str text, bool end, bool calls,
                        struct answer *a)
{
    size_t i_found, n = parser_find_first(text, ends, &i_found);
    if (end && i_found == SIZE_MAX)
        n = text.len;
    give(s, (struct str){text.ptr, n}, calls, a);
    if (i_found == SIZE_MAX)
        return n;
    if (s->step == STEP_CALL && !s->said)
        give(s, STR("{}"), calls, a); /* the model called a function without parameters */
    s->in_header = true;              /* a header must follow */
    if (i_found == I_CHANNEL) {
        s->step = STEP_HEADER;
        return n;
    }
    s->step = i_found == I_START ? STEP_HEADER : STEP_BETWEEN;
    return n + strlen(ends[i_found]);
}

/* Skips text after a message, up to the next header. */
static size_t feed_between(struct parser_state *s, struct str text)
{
    size_t i_found, n = parser_find_first(text, begins, &i_found);
    if (i_found != SIZE_MAX)
        s->step = STEP_HEADER;
    return n;
}

static size_t feed_step(const struct answer_parser *p, struct parser_state *s, struct str text,
                        bool end, struct answer *a)
{
    bool calls = p == &tool_parser_harmony;
    if (s->step == STEP_HEADER)
        return feed_header(s, text, end, calls, a);
    return s->step == STEP_BETWEEN ? feed_between(s, text) : feed_body(s, text, end, calls, a);
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
    if (a->rules->tools != &tool_parser_harmony)
        return parser_run(feed_step, p, s, text, end, a);
    answer_past_reasoning(a, text);
    return text.len;
}

static const char *const markers[] = {START,     CHANNEL,      MESSAGE,    "<|constrain|>",
                                      "<|end|>", "<|return|>", "<|call|>", NULL};

const struct answer_parser reasoning_parser_harmony = {
    .name = "openai_gptoss", .markers = markers, .init = harmony_init, .feed = reasoning_feed};
const struct answer_parser tool_parser_harmony = {
    .name = "openai", .markers = markers, .init = harmony_init, .feed = tool_feed};
