/* Reasoning between two markers, most often <think>…</think>. A prompt that ends in the opening one
 * (templates of newer models do) has begun it, one that ends in the closing one has ended it
 * (thinking turned off); of a message that is continued the last of both counts. Else the text
 * says: it is reasoning when it begins with the marker, or when the model always reasons first. */
#include <string.h>

#include "gateway/answer.h"
#include "gateway/harmony.h"

enum { STEP_START, STEP_INSIDE, STEP_PAST };

struct think_family {
    const char *const *open, *const *close; /* any of them; NULL at the end */
    const char *call; /* one of close: a call's, which ends it too and stays; NULL: none */
    const char *const *text_close; /* close without call, where there is one */
    const char *const *drop;       /* around the content, nobody's; NULL: nothing */
    bool always; /* text without the opening marker is reasoning up to the closing one */
};

static bool ends_with(struct str s, const char *const *ends)
{
    for (; *ends; ends++) {
        size_t n = strlen(*ends);
        if (s.len >= n && memcmp(s.ptr + s.len - n, *ends, n) == 0)
            return true;
    }
    return false;
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

static bool think_marks(const struct answer_parser *p, struct str prompt, struct str continued,
                        struct reasoning_marks *out)
{
    const struct think_family *f = p->family;
    struct parser_state s = {0};
    think_init(p, &s, prompt, continued);
    *out = (struct reasoning_marks){.open = f->open,
                                    .close = f->text_close ? f->text_close : f->close,
                                    .begun = s.step == STEP_INSIDE || f->always};
    return s.step != STEP_PAST;
}

/* Before anything was said: white space may precede the marker, and is nobody's. */
static size_t feed_start(const struct think_family *f, struct parser_state *s, struct str text,
                         bool end)
{
    size_t at = json_skip_space(text, 0), i_open;
    struct str rest = {text.ptr + at, text.len - at};
    size_t n = parser_find_first(rest, f->open, &i_open);
    if (rest.len == 0 && !end)
        return 0;
    if (n == 0 && i_open != SIZE_MAX) {
        s->step = STEP_INSIDE;
        return at + strlen(f->open[i_open]);
    }
    if (n == 0 && rest.len > 0 && !end)
        return 0;
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
        size_t i_close;
        struct str rest = {text.ptr + at, text.len - at};
        size_t n = parser_find_first(rest, f->close, &i_close);
        bool found = i_close != SIZE_MAX;
        if (end && !found)
            n = rest.len;
        answer_reasoning(a, (struct str){rest.ptr, n});
        at += n;
        if (found) {
            if (!f->call || strcmp(f->close[i_close], f->call) != 0)
                at += strlen(f->close[i_close]);
            s->step = STEP_PAST;
        }
    }
    while (s->step == STEP_PAST && at < text.len) {
        size_t i_drop = SIZE_MAX;
        struct str rest = {text.ptr + at, text.len - at};
        size_t n = f->drop ? parser_find_first(rest, f->drop, &i_drop) : rest.len;
        if (end && i_drop == SIZE_MAX)
            n = rest.len;
        answer_past_reasoning(a, (struct str){rest.ptr, n});
        at += n;
        if (i_drop == SIZE_MAX)
            break;
        at += strlen(f->drop[i_drop]);
    }
    return end ? text.len : at;
}

/* The reasoning stays in the content, with the marker that the template put into the prompt. */
static size_t append_feed(const struct answer_parser *p, struct parser_state *s, struct str text,
                          bool end, struct answer *a)
{
    if (s->step == STEP_START && text.len > 0)
        answer_past_reasoning(a, STR("<think>"));
    if (text.len > 0)
        s->step = STEP_PAST;
    answer_past_reasoning(a, text);
    return text.len;
}

#define MARKS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define THINK(n, o, c, always_it)                                                                  \
    {                                                                                              \
        .name = n, .markers = MARKS(o, c), .init = think_init, .marks = think_marks,               \
        .feed = think_feed, .family = &(const struct think_family)                                 \
        {                                                                                          \
            .open = MARKS(o), .close = MARKS(c), .always = always_it                               \
        }                                                                                          \
    }

#define KIMI_CALLS "<|tool_calls_section_begin|>"

/* vLLM's names. Where a template says in the prompt whether the model thinks, the prompt decides,
 * and `always` is for prompts that say nothing. */
static const struct answer_parser parsers[] = {
    THINK("deepseek_r1", "<think>", "</think>", true),
    THINK("deepseek_v3", "<think>", "</think>", false),
    THINK("glm45", "<think>", "</think>", false),
    THINK("holo2", "<think>", "</think>", false),
    THINK("minimax_m2", "<think>", "</think>", true),
    THINK("mistral", "[THINK]", "[/THINK]", false),
    THINK("nemotron_v3", "<think>", "</think>", true),
    THINK("olmo3", "<think>", "</think>", true),
    THINK("qwen3", "<think>", "</think>", false),
    THINK("seed_oss", "<seed:think>", "</seed:think>", true),
    THINK("step3", "<think>", "</think>", true),
    THINK("step3p5", "<think>", "</think>", true),
    {.name = "kimi_k2",
     .markers = MARKS("<think>", "</think>", KIMI_CALLS),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<think>"),
                                            .close = MARKS("</think>", KIMI_CALLS),
                                            .call = KIMI_CALLS,
                                            .text_close = MARKS("</think>")}},
    {.name = "ernie45",
     .markers = MARKS("<think>", "</think>", "<response>", "</response>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<think>"),
                                            .close = MARKS("</think>"),
                                            .drop = MARKS("<response>", "</response>"),
                                            .always = true}},
    {.name = "hunyuan_a13b",
     .markers = MARKS("<think>", "</think>", "<answer>", "</answer>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<think>\n"),
                                            .close = MARKS("\n</think>\n<answer>\n"),
                                            .drop = MARKS("\n</answer>")}},
    {.name = "gemma4",
     .markers = MARKS("<|channel>", "<channel|>"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family = &(const struct think_family){.open = MARKS("<|channel>thought\n"),
                                            .close = MARKS("<channel|>")}},
    {.name = "minimax_m2_append_think",
     .markers = MARKS("<think>", "</think>"),
     .feed = append_feed},
    {.name = "granite", /* plain words, in two spellings */
     .markers = MARKS("Here is my thought process:"),
     .init = think_init,
     .marks = think_marks,
     .feed = think_feed,
     .family =
         &(const struct think_family){
             .open = MARKS("Here is my thought process:", "Here's my thought process:"),
             .close = MARKS("Here is my response:", "Here's my response:")}},
};

const struct answer_parser *reasoning_parser_find(const char *name)
{
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        if (strcmp(parsers[i].name, name) == 0)
            return &parsers[i];
    return strcmp(reasoning_parser_harmony.name, name) == 0 ? &reasoning_parser_harmony : NULL;
}

void reasoning_parser_names(struct strbuf *out)
{
    for (size_t i = 0; i < sizeof parsers / sizeof *parsers; i++)
        strbuf_printf(out, "%s, ", parsers[i].name);
    strbuf_append_c(out, reasoning_parser_harmony.name);
}
