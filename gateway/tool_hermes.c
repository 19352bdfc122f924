#include "gateway/tool_hermes.h"

#include <string.h>

#include "gateway/answer.h"

#define OPEN  "<tool_call>"
#define CLOSE "</tool_call>"

enum { STEP_TEXT, STEP_HEAD, STEP_ARGUMENTS, STEP_TAIL };

static const char *const argument_keys[] = {"arguments", "parameters", NULL};

/* Content up to the next call. White space before the first content may be before a call, where it
 * is nobody's. */
static size_t feed_text(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    bool found;
    size_t n = parser_find_marker(text, OPEN, &found);
    if (end && !found)
        n = text.len;
    if (!s->said && json_skip_space((struct str){text.ptr, n}, 0) == n &&
        (found || !end || a->n_calls > 0)) {
        s->step = found ? STEP_HEAD : STEP_TEXT;
        return found ? n + strlen(OPEN) : 0; /* at the end after a call: dropped */
    }
    s->said = s->said || n > 0;
    answer_content(a, (struct str){text.ptr, n});
    if (!found)
        return n;
    s->step = STEP_HEAD;
    return n + strlen(OPEN);
}

/* Up to the arguments. What turns out to be no call is content, with its marker, as in vLLM. */
static size_t feed_head(struct parser_state *s, struct str text, bool end, struct answer *a)
{
    struct json_call call = {0};
    size_t at = json_skip_space(text, 0);
    enum json_call_result res =
        json_call_parse((struct str){text.ptr + at, text.len - at}, argument_keys, &call);
    if (res == JSON_CALL_MORE && !end)
        return 0;
    if (res == JSON_CALL_BEGUN) {
        s->i_call = answer_call(a, call.name);
        s->step = STEP_ARGUMENTS;
        s->json = (struct json_scan){0};
        return at + call.arguments;
    }
    if (res == JSON_CALL_BARE) {
        answer_arguments(a, answer_call(a, call.name), STR("{}"));
        s->step = STEP_TAIL;
        return at + call.arguments;
    }
    answer_content(a, STR(OPEN));
    s->said = true;
    s->step = STEP_TEXT;
    return 0;
}

static size_t feed_arguments(struct parser_state *s, struct str text, struct answer *a)
{
    size_t n = 0;
    enum json_scan_result res = json_scan_feed(&s->json, text, &n);
    answer_arguments(a, s->i_call, (struct str){text.ptr, n});
    if (res != JSON_SCAN_MORE)
        s->step = STEP_TAIL;
    return n;
}

static size_t feed_tail(struct parser_state *s, struct str text)
{
    bool found;
    size_t n = parser_find_marker(text, CLOSE, &found);
    if (!found)
        return n;
    s->step = STEP_TEXT;
    s->said = false;
    return n + strlen(CLOSE);
}

static size_t feed(const struct answer_parser *p, struct parser_state *s, struct str text, bool end,
                   struct answer *a)
{
    size_t at = 0;
    for (;;) {
        struct str rest = {text.ptr + at, text.len - at};
        uint32_t before = s->step;
        size_t n = s->step == STEP_TEXT        ? feed_text(s, rest, end, a)
                   : s->step == STEP_HEAD      ? feed_head(s, rest, end, a)
                   : s->step == STEP_ARGUMENTS ? feed_arguments(s, rest, a)
                                               : feed_tail(s, rest);
        at += n;
        if (s->step == before)
            return end ? text.len : at;
    }
}

static const char *const markers[] = {OPEN, CLOSE, NULL};

const struct answer_parser tool_parser_hermes = {
    .name = "hermes", .markers = markers, .feed = feed};
