/* Reasoning between two markers: <think>…</think>. A prompt that ends in the opening one (templates
 * of newer models do) has begun it, one that ends in the closing one has ended it (thinking turned
 * off); of a message that is continued the last of both counts. Else the text says: it is reasoning
 * when it begins with the marker, or when the model always reasons first. */
#include <string.h>

#include "gateway/answer.h"

enum { STEP_START, STEP_INSIDE, STEP_PAST };

struct think_family {
    const char *open, *close;
    bool always; /* text without the opening marker is reasoning up to the closing one */
};

static bool ends_with(struct str s, const char *end)
{
    size_t n = strlen(end);
    return s.len >= n && memcmp(s.ptr + s.len - n, end, n) == 0;
}

/* Which of both comes last in text; without either nothing was thought. */
static uint32_t step_after(const struct think_family *f, struct str text)
{
    for (; text.len > 0; text.len--) {
        if (ends_with(text, f->open))
            return STEP_INSIDE;
        if (ends_with(text, f->close))
            break;
    }
    return STEP_PAST;
}

static void think_init(const struct answer_parser *p, struct parser_state *s, struct str prompt,
                       struct str continued)
{
    const struct think_family *f = p->family;
    if (continued.len > 0) {
        s->step = step_after(f, continued);
        return;
    }
    while (prompt.len > 0 && strchr(" \t\r\n", prompt.ptr[prompt.len - 1]))
        prompt.len--;
    if (ends_with(prompt, f->open))
        s->step = STEP_INSIDE;
    else if (ends_with(prompt, f->close))
        s->step = STEP_PAST;
}

/* Before anything was said: white space may precede the marker, and is nobody's. */
static size_t feed_start(const struct think_family *f, struct parser_state *s, struct str text,
                         bool end)
{
    size_t at = json_skip_space(text, 0), n = strlen(f->open);
    struct str rest = {text.ptr + at, text.len - at};
    size_t k = rest.len < n ? rest.len : n;
    if (rest.len == 0 && !end)
        return 0;
    if (k > 0 && memcmp(rest.ptr, f->open, k) == 0) {
        if (k < n && !end)
            return 0;
        if (k == n) {
            s->step = STEP_INSIDE;
            return at + n;
        }
    }
    s->step = f->always ? STEP_INSIDE : STEP_PAST;
    return 0;
}

static size_t think_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                         bool end, struct answer *a)
{
    const struct think_family *f = p->family;
    size_t at = 0;
    if (s->step == STEP_START)
        at = feed_start(f, s, text, end);
    if (s->step == STEP_INSIDE) {
        bool found;
        struct str rest = {text.ptr + at, text.len - at};
        size_t n = parser_find_marker(rest, f->close, &found);
        if (end && !found)
            n = rest.len;
        answer_reasoning(a, (struct str){rest.ptr, n});
        at += n;
        if (found) {
            at += strlen(f->close);
            s->step = STEP_PAST;
        }
    }
    if (s->step == STEP_PAST) {
        answer_past_reasoning(a, (struct str){text.ptr + at, text.len - at});
        at = text.len;
    }
    return end ? text.len : at;
}

static const char *const think_markers[] = {"<think>", "</think>", NULL};
static const struct think_family qwen3 = {"<think>", "</think>", false};
static const struct think_family deepseek_r1 = {"<think>", "</think>", true};

static const struct answer_parser parsers[] = {
    {.name = "deepseek_r1",
     .markers = think_markers,
     .init = think_init,
     .feed = think_feed,
     .family = &deepseek_r1},
    {.name = "qwen3",
     .markers = think_markers,
     .init = think_init,
     .feed = think_feed,
     .family = &qwen3},
};

const struct answer_parser *reasoning_parser_find(const char *name)
{
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        if (strcmp(parsers[i].name, name) == 0)
            return &parsers[i];
    return NULL;
}

void reasoning_parser_names(struct strbuf *out)
{
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        strbuf_printf(out, i ? ", %s" : "%s", parsers[i].name);
}
